"""Transforms, vmap: a function of one example becomes a function of a batch; and what rows of a
batch tell each other.

Receives a function of trees of arrays and which axes are the batch; returns a function. Each call
traces it for one example and asks `transforms.batch` for the graph of all. Names and arguments are
JAX's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import update_wrapper
from typing import Any, SupportsIndex

import tetrad.transforms.branches
import tetrad.transforms.collective_rules
import tetrad.transforms.custom_rules
import tetrad.transforms.scans  # noqa: F401
from tetrad.core.errors import DtypeError, ShapeError, TraceError
from tetrad.core.floats import guarded
from tetrad.core.sizes import Size, SizeExpr, product
from tetrad.core.tracebacks import plain_tracebacks
from tetrad.core.tree import NODES, TreeDef, flatten, unflatten
from tetrad.ops.collective import axis_index_node
from tetrad.tracing.array import Array, TracedArray, array_type, fail
from tetrad.tracing.context import current_trace, stack, with_axes
from tetrad.tracing.operands import as_array, run, size_array, traced
from tetrad.tracing.run_graph import run_graph
from tetrad.tracing.signature import check_function, signature_of
from tetrad.tracing.static_arguments import is_values, without_settings
from tetrad.tracing.trace import ArgumentKind, kinds_of, trace_function
from tetrad.transforms.batch import Axis
from tetrad.transforms.batch import batch as batch_graph

SHARED = "in_axes=None shares an argument between all examples"
Axes = Any  # an int, None, or a tree of them above the leaves they are for


def vmap(
    fun: Callable[..., Any],
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
) -> Callable[..., Any]:
    """A function that applies `fun` to every example of a batch, as one batched program.

    in_axes     which axis of each argument is the batch: an int for all, or one for each (trees
                allowed); None: shared, and what is shared and no array (a number, a name, a
                function) `fun` gets as it is
    out_axes    where the batch goes in the results
    axis_name   a name for `td.psum` and its like inside `fun`
    axis_size   the number of examples, where no argument tells it
    spmd_axis_name   JAX places arrays on devices by it; there is one here, so it changes nothing

    >>> import tetrad as td
    >>> vmap(lambda x, y: x @ y, in_axes=(0, None))(td.ones((2, 3)), td.ones(3))
    Array([3., 3.], float32)
    """
    check_function("vmap", fun)
    check_axis(axis_name, axis_size)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        signature = signature_of(fun, (), ())
        whole_call, tree = flatten((args, kwargs))
        all_axes = argument_axes(in_axes, args, tree, signature.name)
        is_input = [
            axis is not None or is_values(x) for axis, x in zip(all_axes, whole_call, strict=True)
        ]
        function, shown, named = without_settings(fun, args, kwargs, is_input)
        arguments = signature.arguments(shown, named)
        names = signature.leaf_names(arguments)
        kinds_of(signature, arguments)  # names an argument that is no array
        leaves = [as_array(leaf) for leaf in arguments.leaves]
        axes = [axis for axis, keep in zip(all_axes, is_input, strict=True) if keep]
        size = common_size(names, leaves, axes, axis_size, signature.name)
        rows = [x if axis is None else front(x, axis) for x, axis in zip(leaves, axes, strict=True)]
        batched = tuple(axis is not None for axis in axes)
        kinds = [
            ArgumentKind(one_example(x) if flag else x.type)
            for x, flag in zip(rows, batched, strict=True)
        ]
        with bound_axis(axis_name, size):
            made = trace_function(signature, function, arguments, kinds, rows=rows)
        flags = batched + (False,) * len(made.captured)
        whole = batch_graph(made.graph, flags, Axis(size, axis_name))
        results = run_graph(whole.graph, [*rows, *made.captured])[: made.tree.num_leaves]
        places = spread_axes(out_axes, made.tree, f"vmap: out_axes of {signature.name}")
        placed = [
            put_back(x, flag, place, size, signature.name)
            for x, flag, place in zip(results, whole.batched, places, strict=False)
        ]
        return unflatten(made.tree, placed)

    return update_wrapper(plain_tracebacks(guarded(wrapped)), fun)


# -- axes ------------------------------------------------------------------------------------------


def check_axis(name: Any, size: Any) -> None:
    is_size = isinstance(size, SizeExpr) or (isinstance(size, SupportsIndex) and int(size) >= 0)
    if size is not None and not is_size:
        fail(ShapeError, f"vmap: axis_size is {size!r}, it must be an int of at least 0")
    if not isinstance(name, Hashable):
        fail(TraceError, f"vmap: axis_name is {name!r}, it must have a hash", "a string, say")


def one_example(x: Array) -> Any:
    return array_type(x.type.dtype, x.type.shape[1:])


def argument_axes(in_axes: Axes, args: Sequence[Any], tree: TreeDef, name: str) -> list[int | None]:
    """One axis for each leaf; arguments passed by name have the batch in front."""
    positional, keyword = tree.parts
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        message = (
            f"vmap: in_axes has {len(in_axes)} entries, {name} was called with {len(args)} "
            "arguments"
        )
        fail(TraceError, message, "one for each positional argument, or one int for all")
    return [
        *spread_axes(in_axes, positional, f"vmap: in_axes of {name}"),
        *spread_axes(0, keyword, f"vmap: in_axes of {name}"),
    ]


def spread_axes(axes: Axes, tree: TreeDef, what: str) -> list[int | None]:
    """A tree of axes, given from the root down to where it no longer differs, for every leaf."""
    if axes is None or isinstance(axes, int):
        return [axes] * tree.num_leaves
    if tree.container is None:
        fail(TraceError, f"{what}: expected an int or None for an array, got {axes!r}")
    children = entries(axes, tree, what)
    return [
        a
        for child, part in zip(children, tree.parts, strict=True)
        for a in spread_axes(child, part, what)
    ]


def entries(axes: Any, tree: TreeDef, what: str) -> list[Any]:
    """The children of a tree of axes that belong to the children of a tree of arrays."""
    keys: Any = tree.data
    if isinstance(axes, Mapping) and tree.container is dict:
        if set(axes) == set(keys):
            return [axes[key] for key in keys]
    elif isinstance(axes, tuple | list) and len(axes) == len(tree.parts):
        return list(axes)
    elif tree.container is type(axes):  # a class of the user's
        children, data = NODES[type(axes)].flatten(axes)
        if data == tree.data and len(children) == len(tree.parts):
            return list(children)
    kind = tree.container.__name__ if tree.container else "array"
    fail(
        TraceError,
        f"{what}: {axes!r} does not fit a {kind} of {len(tree.parts)}",
        "same containers, same keys",
    )


def common_size(
    names: Sequence[str],
    leaves: Sequence[Array],
    axes: Sequence[int | None],
    given: int | None,
    name: str,
) -> Size:
    """The number of examples, on which all arguments must agree."""
    marked = [(n, x, a) for n, x, a in zip(names, leaves, axes, strict=True) if a is not None]
    sizes = [(n, x.type.shape[checked_axis(n, x, a)]) for n, x, a in marked]
    if given is not None:
        sizes.insert(0, ("axis_size", given if isinstance(given, SizeExpr) else int(given)))
    if not sizes:
        fail(
            ShapeError,
            f"vmap: no argument of {name} has a batch axis",
            "give axis_size, or an int in in_axes",
        )
    if any(size != sizes[0][1] for _, size in sizes):
        listed = ", ".join(f"{n}: {size}" for n, size in sizes)
        fail(
            ShapeError,
            f"vmap: the arguments of {name} have batches of different sizes: {listed}",
            SHARED,
        )
    return sizes[0][1]


def checked_axis(name: str, x: Array, axis: int) -> int:
    if x.dtype.is_quantized and not x.dtype.is_narrow:
        message = f"vmap: {name} is {x.type}, and a quantised array cannot be batched over"
        fail(DtypeError, message, "in_axes=None shares it between the rows")
    if not -x.ndim <= axis < x.ndim:
        fail(ShapeError, f"vmap: {name} is {x.type}, it has no axis {axis} to batch over", SHARED)
    return axis % x.ndim


def front(x: Array, axis: int) -> Array:
    """The axis first."""
    axis %= x.ndim
    order = (axis, *(a for a in range(x.ndim) if a != axis))
    return x if axis == 0 else run("transpose", x, perm=order)


def put_back(x: Array, batched: bool, place: int | None, size: Size, name: str) -> Array:
    """The batch axis where out_axes wants it."""
    if place is None:
        if batched:
            fail(
                ShapeError,
                f"vmap: out_axes is None for a result of {name} that differs between examples",
            )
        return x
    if not batched:
        x = run("expand", x if isinstance(size, int) else traced(x), shape=(size, *x.type.shape))
    if not -x.ndim <= place < x.ndim:
        fail(
            ShapeError,
            f"vmap: out_axes has {place} for a result of {name}, which is {x.type} with its batch",
        )
    place %= x.ndim
    order = list(range(1, x.ndim))
    order.insert(place, 0)
    return x if place == 0 else run("transpose", x, perm=tuple(order))


# -- between the rows ------------------------------------------------------------------------------


def bound_axis(name: Any, size: Size) -> AbstractContextManager[None]:
    return nullcontext() if name is None else with_axes((*stack.axes, (name, size)))


def size_of_axis(what: str, name: Any) -> Any:
    bound = dict(stack.axes)
    if name in bound:
        return bound[name]
    known = ", ".join(map(repr, bound)) or "none"
    fail(
        TraceError,
        f"{what}: there is no axis named {name!r} here, bound are: {known}",
        "td.vmap(axis_name=...)",
    )


def names_of(axis_name: Any) -> Sequence[Any]:
    return axis_name if isinstance(axis_name, tuple | list) else (axis_name,)


def collective(name: str, x: Any, axis_name: Any) -> Array:
    """A collective op on one array, over one axis or several."""
    made = traced(as_array(x))
    for each in names_of(axis_name):
        size_of_axis(name, each)
        made = run(name, made, axis_name=each)
    return made


def over_tree(function: Callable[[Any], Any], tree: Any) -> Any:
    leaves, shape = flatten(tree)
    return unflatten(shape, [function(leaf) for leaf in leaves])


def psum(x: Any, axis_name: Any) -> Any:
    """The sum over the examples of the batch that `vmap` names `axis_name`; of a number of Python
    it is one as well.

    >>> import tetrad as td
    >>> vmap(lambda x: x / td.psum(x, "i"), axis_name="i")(td.asarray([1.0, 3.0]))
    Array([0.25, 0.75], float32)
    """

    def total(leaf: Any) -> Any:
        if type(leaf) not in (int, float, complex):
            return collective("psum", leaf, axis_name)
        sizes = [size_of_axis("psum", name) for name in names_of(axis_name)]
        known = all(isinstance(size, int) for size in sizes)
        return leaf * math.prod(sizes) if known else collective("psum", leaf, axis_name)

    return over_tree(total, x)


def pmean(x: Any, axis_name: Any) -> Any:
    """The mean over the examples of the batch."""
    return over_tree(lambda leaf: psum(leaf, axis_name) / psum(as_array(1.0), axis_name), x)


def pmax(x: Any, axis_name: Any) -> Any:
    """The largest over the examples of the batch."""
    return over_tree(lambda leaf: collective("pmax", leaf, axis_name), x)


def pmin(x: Any, axis_name: Any) -> Any:
    """The smallest over the examples of the batch."""

    def smallest(leaf: Any) -> Array:
        # of integers the complement turns the order around, and none is left out
        array = as_array(leaf)
        is_whole = array.dtype.is_integer
        turned = collective("pmax", ~array if is_whole else -array, axis_name)
        return ~turned if is_whole else -turned

    return over_tree(smallest, x)


def all_gather(x: Any, axis_name: Any, *, axis: int = 0, tiled: bool = False) -> Any:
    """The values of all examples, along a new axis; `tiled` joins them along an existing one."""
    sizes = [size_of_axis("all_gather", name) for name in names_of(axis_name)]

    def gathered(leaf: Any) -> Array:
        rows = traced(as_array(leaf))
        inner = rows.type.shape
        for name, size in reversed([*zip(names_of(axis_name), sizes, strict=True)]):
            rows = run("all_gather", rows, axis_name=name, size=size)
        rows = run("reshape", rows, shape=(product(sizes), *inner))
        place = axis % (rows.ndim - 1 if tiled else rows.ndim)
        order = [*range(1, rows.ndim)]
        order.insert(place, 0)
        placed = run("transpose", rows, perm=tuple(order))
        if not tiled:
            return placed
        shape = placed.type.shape
        return run(
            "reshape",
            placed,
            shape=(*shape[:place], shape[place] * shape[place + 1], *shape[place + 2 :]),
        )

    return over_tree(gathered, x)


def axis_index(axis_name: Any) -> Array:
    """Which example of the batch this is; of several batches they are counted together, the last
    name fastest."""
    sizes = [size_of_axis("axis_index", name) for name in names_of(axis_name)]
    trace = current_trace()
    if trace is None:
        fail(TraceError, "axis_index: nothing is being traced")
    first, *others = [TracedArray.of(axis_index_node(name), trace) for name in names_of(axis_name)]
    place: Array = first
    for index, size in zip(others, sizes[1:], strict=True):
        place = run("add", run("multiply", place, size_array(size, place.dtype)), index)
    return place


def axis_size(axis_name: Any) -> Any:
    """How many examples the batch has, or several together."""
    return product([size_of_axis("axis_size", name) for name in names_of(axis_name)])
