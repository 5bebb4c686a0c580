"""Optim, base: what an optimiser is, and how small ones make a large one.

Receives trees of gradients, returns trees of updates to add to the parameters. State is a tree of
arrays (named tuples), so a jitted step takes it and gives it back, and donating it updates it where
it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from tetrad.arrays import functions as td
from tetrad.core.errors import ShapeError, TraceError, an
from tetrad.core.tree import TreeDef, flatten, unflatten
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array

Tree = Any  # nested containers of arrays: parameters, gradients, updates, state
Leaf = Any  # an array, or a number that stands for one


class Init(Protocol):
    def __call__(self, params: Tree) -> Tree: ...


class Update(Protocol):
    def __call__(self, updates: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]: ...


class GradientTransformation(NamedTuple):
    """init(params) makes the state; update(gradients, state, params) gives what to add, and the
    next state.

    >>> import tetrad as td
    >>> params = {"w": td.asarray([1.0, 2.0])}
    >>> optimiser = td.optim.sgd(0.5)
    >>> state = optimiser.init(params)
    >>> updates, state = optimiser.update({"w": td.asarray([1.0, 1.0])}, state, params)
    >>> td.optim.apply_updates(params, updates)
    {'w': Array([0.5, 1.5], float32)}
    """

    init: Init
    update: Update


class EmptyState(NamedTuple):
    """The state of a step that remembers nothing."""


class MaskedState(NamedTuple):
    inner_state: Tree


Words = tuple[str, str, str]
GRADIENTS = (
    "gradients", "state and parameters",
    "pass gradients, state and parameters of the same containers and keys"
)  # fmt: skip


def squared(x: Leaf) -> Leaf:
    """The square of the absolute value; the plain square of a complex number would turn its
    direction."""
    x = as_array(x)
    return x * td.conj(x) if x.dtype.is_complex else td.square(x)


def real(x: Leaf) -> Leaf:
    """The real part: all there is of sums of `squared`."""
    return td.real(x) if x.dtype.is_complex else x


def map_trees(
    name: str, function: Callable[..., Any], tree: Tree, *others: Tree, they: Words = GRADIENTS
) -> Tree:
    """A function of matching leaves; trees that do not match are an error that names the step and
    the leaves.

    they   what the first tree is, what the others are, and how to call the step
    """
    leaves, shape = flatten(tree)
    columns = [leaves]
    for other in others:
        found, other_shape = flatten(other)
        if other_shape != shape:
            wanted, came = (
                ", ".join(s.leaf_names("tree")) or "nothing" for s in (other_shape, shape)
            )
            first, rest, hint = they
            fail(TraceError, f"{name}: {first} have the leaves {came}; {rest} have {wanted}", hint)
        check_shapes(name, leaves, found, list(shape.leaf_names("tree")))
        columns.append(found)
    return unflatten(shape, map(function, *columns))


def check_shapes(name: str, leaves: list[Leaf], others: list[Leaf], names: list[str]) -> None:
    """Leaves that belong together have one shape: one of another shape would be broadcast in
    silence."""
    for leaf, a, b in zip(names, leaves, others, strict=True):
        x, y = as_array(a), as_array(b)
        if x.shape != y.shape:
            fail(ShapeError, f"{name}: {leaf} is {x.type} in one tree and {y.type} in another")


def stateless(update: Callable[[Tree, Tree], Tree]) -> GradientTransformation:
    """A step that remembers nothing, from a function of updates and parameters."""

    def without_state(updates: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        return update(updates, params), state

    return GradientTransformation(lambda params: EmptyState(), without_state)


def identity() -> GradientTransformation:
    """Updates as they come."""
    return stateless(lambda updates, params: updates)


def chain(*steps: GradientTransformation) -> GradientTransformation:
    """One step after the other: what the first gives, the second receives. The state is a tuple of
    theirs.

    >>> import tetrad as td
    >>> both = td.optim.chain(td.optim.clip(1.0), td.optim.scale(-0.5))
    >>> both.update(td.asarray([3.0, -0.5]), both.init(td.zeros(2)))[0]
    Array([-0.5 ,  0.25], float32)
    """
    for i, step in enumerate(steps):
        if not (hasattr(step, "init") and hasattr(step, "update")):
            came = an(type(step).__name__)
            fail(
                TraceError,
                f"chain: step {i} is {came}, no transformation: it needs init and update",
            )

    def init(params: Tree) -> Tree:
        return tuple(step.init(params) for step in steps)

    def update(updates: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        if not isinstance(state, tuple) or len(state) != len(steps):
            fail(
                TraceError,
                f"chain: the state is not one of {len(steps)} steps",
                "make it with init(params)",
            )
        after = []
        for step, before in zip(steps, state, strict=True):
            updates, changed = step.update(updates, before, params)
            after.append(changed)
        return updates, tuple(after)

    return GradientTransformation(init, update)


def apply_updates(params: Tree, updates: Tree) -> Tree:
    """Parameters plus updates, in the dtypes of the parameters."""

    def added(parameter: Leaf, update: Leaf) -> Array:
        before = as_array(parameter)
        return td.astype(before + update, before.dtype)

    they = (
        "parameters",
        "updates",
        "call apply_updates(params, updates), both of the same containers and keys",
    )
    return map_trees("apply_updates", added, params, updates, they=they)


# -- some leaves only ------------------------------------------------------------------------------


def masked(
    inner: GradientTransformation, mask: Tree | Callable[[Tree], Tree]
) -> GradientTransformation:
    """A step for the leaves where the mask is true; others pass unchanged and have no state.

    mask   a tree of bools, or a function from parameters to one; a bool above leaves stands for
           all of them

    >>> import tetrad as td
    >>> some = masked(td.optim.scale(-1.0), {"w": True, "b": False})
    >>> params = {"w": td.asarray([1.0]), "b": td.asarray([1.0])}
    >>> some.update(params, some.init(params))[0]
    {'b': Array([1.], float32), 'w': Array([-1.], float32)}
    """

    def chosen(tree: Tree) -> tuple[Tree, list[bool]]:
        """The tree with None, which has no leaves, in place of leaves that take no part."""
        leaves, shape = flatten(tree)
        flags = list(flags_of(flatten(mask(tree) if callable(mask) else mask), shape))
        return unflatten(
            shape, [leaf if flag else None for leaf, flag in zip(leaves, flags, strict=True)]
        ), flags

    def init(params: Tree) -> Tree:
        return MaskedState(inner.init(chosen(params)[0]))

    def update(updates: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        some, flags = chosen(updates)
        wanted = None if params is None else chosen(params)[0]
        changed, after = inner.update(some, state.inner_state, wanted)
        new, (leaves, shape) = iter(flatten(changed)[0]), flatten(updates)
        together = [next(new) if flag else leaf for leaf, flag in zip(leaves, flags, strict=True)]
        return unflatten(shape, together), MaskedState(after)

    return GradientTransformation(init, update)


def flags_of(mask: tuple[list[Any], TreeDef], shape: TreeDef) -> Iterator[bool]:
    """One bool per leaf of a tree: the mask has the same shape, or ends in a bool above some
    leaves."""
    leaves = iter(mask[0])

    def walk(part: TreeDef, below: TreeDef) -> Iterator[bool]:
        if part.container is None:
            flag = next(leaves)
            if not isinstance(flag, bool):
                fail(
                    TraceError,
                    f"masked: a mask is a tree of bools, it has {an(type(flag).__name__)}",
                )
            yield from [flag] * below.num_leaves
            return
        if (part.container, part.data, len(part.parts)) != (
            below.container,
            below.data,
            len(below.parts),
        ):
            hint = "use the containers of the tree; a bool may stand for a subtree"
            fail(TraceError, "masked: the mask has other containers or keys than the tree", hint)
        for each, other in zip(part.parts, below.parts, strict=True):
            yield from walk(each, other)

    return walk(mask[1], shape)
