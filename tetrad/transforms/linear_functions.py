"""Transforms, linear functions: what `vjp` and `linearize` return, a function of cotangents or
tangents that is a tree.

Receives the linear half of a function taken apart, and the values it needs; returns a `Partial`
whose leaves are those values, so it may leave `jit`, go through `vmap` and be carried by loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tetrad.core.errors import DtypeError, ShapeError, TraceError
from tetrad.core.floats import guarded
from tetrad.core.record import record
from tetrad.core.tree import TreeDef, flatten, sketch, unflatten
from tetrad.core.tree.classes import Partial
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Graph
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, convert, expand
from tetrad.tracing.run_graph import run_graph
from tetrad.transforms.forward import is_differentiable
from tetrad.transforms.jvp import Flags
from tetrad.transforms.linearize import Linear
from tetrad.transforms.transpose import transpose as transpose_graph


@record
class LinearPart:
    """The change of a function, without the values it needs: equal for equal functions at equal
    types, so it selects a compiled program."""

    name: str
    graph: Graph  # residuals..., tangents... -> tangents of the outputs that change
    changes: Flags  # of the outputs
    wrt: Flags  # which leaves of the arguments change
    arguments: TreeDef
    argument_kinds: tuple[ArrayType, ...]
    value: TreeDef  # of the first outputs; what follows them stands beside the value
    kinds: tuple[ArrayType, ...]

    def __repr__(self) -> str:
        return f"<linear part of {self.name}>"


def linear_part(
    name: str,
    linear: Linear,
    wrt: Flags,
    arguments: tuple[TreeDef, Sequence[ArrayType]],
    value: tuple[TreeDef, Sequence[ArrayType]],
) -> LinearPart:
    return LinearPart(
        name,
        linear.tangent,
        linear.changes,
        wrt,
        arguments[0],
        tuple(arguments[1]),
        value[0],
        tuple(value[1]),
    )


@record
class Pullback:
    """From cotangents of the value to cotangents of the arguments."""

    part: LinearPart

    @guarded
    def __call__(self, kept: Sequence[Array], cotangents: Any) -> Any:
        part = self.part
        seeds = matching(cotangents, part.value, part.kinds, "vjp: cotangents", part.name)
        rest = [None] * (len(part.changes) - len(seeds))
        found = pulled(part.graph, part.changes, kept, part.wrt, [*seeds, *rest])
        leaves = [
            found[i] if i in found else zeros_of(kind) for i, kind in enumerate(part.argument_kinds)
        ]
        return unflatten(part.arguments, leaves)

    def __repr__(self) -> str:
        return f"<vjp of {self.part.name}>"


@record
class Pushforward:
    """From tangents of the arguments to the tangent of the value."""

    part: LinearPart

    @guarded
    def __call__(self, kept: Sequence[Array], *tangents: Any) -> Any:
        part = self.part
        what = "linearize: tangents"
        given = matching(tangents, part.arguments, part.argument_kinds, what, part.name)
        changing = [t for t, flag in zip(given, part.wrt, strict=True) if flag]
        rest = iter(run_graph(part.graph, [*(as_array(k) for k in kept), *changing]))
        spread = [
            next(rest) if changes else zeros_of(kind)
            for changes, kind in zip(part.changes, part.kinds, strict=False)
        ]
        return unflatten(part.value, spread)

    def __repr__(self) -> str:
        return f"<linear map of {self.part.name}>"


def pullback(part: LinearPart, kept: Sequence[Array]) -> Partial:
    return Partial(Pullback(part), list(kept))


def pushforward(part: LinearPart, kept: Sequence[Array]) -> Partial:
    return Partial(Pushforward(part), list(kept))


def residuals(linear: Linear, inputs: Sequence[Array], results: Sequence[Array]) -> list[Array]:
    """The values of this call that the linear half needs."""
    return [(inputs if kind == "input" else results)[i] for kind, i in linear.residuals]


def pulled(
    graph: Graph,
    changes: Flags,
    kept: Sequence[Array],
    wrt: Flags,
    seeds: Sequence[Array | None],
) -> dict[int, Array]:
    """Cotangents of the inputs that change, from cotangents of the outputs; those not reached are
    left out."""
    given = [seed for seed, is_given in zip(seeds, changes, strict=True) if is_given]
    changing = [i for i, flag in enumerate(wrt) if flag]
    flags = (False,) * len(kept) + (True,) * len(changing)
    made = transpose_graph(graph, flags, tuple(g is not None for g in given))
    arrays = [*(as_array(k) for k in kept), *(g for g in given if g is not None)]
    found = iter(run_graph(made.graph, arrays))
    return {i: next(found) for i, reached in zip(changing, made.reached, strict=True) if reached}


def zeros_of(kind: ArrayType) -> Array:
    return expand(convert(0.0 if kind.dtype.is_float else 0, kind.dtype), kind.shape)


def matching(
    tree: Any, wanted: TreeDef, kinds: Sequence[ArrayType], what: str, name: str
) -> list[Array]:
    """The leaves of a tree that must have the shape, and each leaf the type, of another."""
    leaves, shape = flatten(tree)
    if shape != wanted:
        trees = f"expected {sketch(wanted)}, got {sketch(shape)}"
        message = f"{what} of {name} must have the tree of what they belong to: {trees}"
        fail(TraceError, message, "same containers, same keys")
    each = zip(leaves, kinds, wanted.leaf_names(), strict=True)
    return [_matching_leaf(leaf, kind, f"{what} of {name}{n}") for leaf, kind, n in each]


def _matching_leaf(leaf: Any, kind: ArrayType, what: str) -> Array:
    array = as_array(leaf)
    if type(leaf) in (bool, int, float, complex):
        array = convert(leaf, kind.dtype)
    if not is_differentiable(kind):
        return array
    if array.type.shape != kind.shape:
        fail(ShapeError, f"{what}: expected {kind}, got {array.type}")
    if array.type.dtype is not kind.dtype:
        fail(DtypeError, f"{what}: expected {kind}, got {array.type}", "convert it with astype")
    return array
