"""The compiler, dims: which axes of the arguments of a jitted function are Dims, and their sizes.

Receives `dims=` as users write it and the arguments of a call; returns a mark for each array, types
with Dims in them, and the checked value of every Dim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tetrad.core.errors import ShapeError
from tetrad.core.sizes import Named, Size, SizeExpr, bind, dims_of
from tetrad.core.tree import TreeDef
from tetrad.core.types import ArrayType
from tetrad.tracing.array import array_type, fail
from tetrad.tracing.signature import Arguments, argument_name
from tetrad.tracing.trace import ArgumentKind

Marks = Mapping[int, Size] | None  # {axis: Dim} of one array


def spread_dims(
    dims: Any, arguments: Arguments, name: str, parameters: tuple[str, ...]
) -> list[Marks]:
    """One {axis: Dim} (or None) per leaf, from a tuple per positional argument or a dict by
    argument name."""
    positional, keyword = arguments.tree.parts
    marks: list[Marks] = []
    keys: Any = keyword.data
    owners: list[tuple[str, int | None]] = [
        (argument_name(parameters, i), i) for i in arguments.positions
    ]
    owners += [(key, None) for key in keys]
    for (key, i), child in zip(owners, (*positional.parts, *keyword.parts), strict=True):
        marks.extend(spread(prefix_of(dims, key, i), child, name))
    return marks


def prefix_of(dims: Any, key: str, position: int | None) -> Any:
    if isinstance(dims, Mapping):
        return dims.get(key)
    if not isinstance(dims, tuple | list):
        fail(
            ShapeError,
            f"dims: expected a tuple with one entry per argument, or a dict by name, got {dims!r}",
        )
    return dims[position] if position is not None and position < len(dims) else None


def spread(prefix: Any, tree: TreeDef, name: str) -> list[Marks]:
    """A prefix of the tree: what stands above several leaves holds for each of them."""
    leaves = list(tree.leaf_names())
    if prefix is None or (
        isinstance(prefix, Mapping) and all(isinstance(axis, int) for axis in prefix)
    ):
        return [prefix] * len(leaves)
    keys: Any = tree.data
    children = (
        [prefix.get(key) for key in keys or ()] if isinstance(prefix, Mapping) else list(prefix)
    )
    if len(children) != len(tree.parts):
        fail(
            ShapeError,
            f"{name}: dims has {len(children)} entries for a container of {len(tree.parts)}",
        )
    return [
        mark
        for child, sub in zip(children, tree.parts, strict=True)
        for mark in spread(child, sub, name)
    ]


def check_names(kinds: Sequence[ArgumentKind]) -> None:
    known: dict[str, Named] = {}
    for dim in (d for kind in kinds for n in kind.type.shape for d in dims_of(n)):
        if known.setdefault(dim.name, dim) != dim:
            fail(
                ShapeError,
                f"dims: two Dims are named {dim.name}, with max {known[dim.name].max} and "
                f"{dim.max}",
            )


def mark(name: str, kind: ArrayType, mark: Mapping[int, Size] | None) -> ArrayType:
    if not mark:
        return kind
    shape = list(kind.shape)
    for axis, size in mark.items():
        if not -len(shape) <= axis < len(shape):
            hint = "dims=({axis: Dim}, ...), one for each argument"
            fail(ShapeError, f"dims: {name} is {kind}, it has no axis {axis}", hint)
        if not isinstance(size, SizeExpr):
            fail(
                ShapeError,
                f"dims: axis {axis} of {name} is marked with {size!r}",
                "mark it with a td.Dim",
            )
        shape[axis] = size
    return array_type(kind.dtype, tuple(shape))


def bind_sizes(
    function: str, names: Sequence[str], declared: Sequence[ArrayType], actual: Sequence[ArrayType]
) -> dict[str, int]:
    """The value of every Dim, checked: within its bound, and the same wherever it stands."""
    axes = [
        (f"axis {axis} of {name}", size, bind(came.shape[axis], {}))
        for name, kind, came in zip(names, declared, actual, strict=True)
        for axis, size in enumerate(kind.shape)
        if isinstance(size, SizeExpr)
    ]
    values: dict[str, int] = {}
    places: dict[str, str] = {}
    for place, size, came in axes:
        for dim in dims_of(size):
            if size == SizeExpr((((dim,), 1),)) and dim.name not in values:
                if not 1 <= came <= dim.max:
                    fail(
                        ShapeError,
                        f"{function}: {dim} is {came} ({place}), it must lie in 1 to {dim.max}",
                    )
                values[dim.name], places[dim.name] = came, place
    for place, size, came in axes:
        missing = [dim.name for dim in dims_of(size) if dim.name not in values]
        if missing:
            fail(
                ShapeError,
                f"{function}: no axis has the size {missing[0]} by itself",
                f"{place} is {size}",
            )
        if bind(size, values) != came:
            known = ", ".join(
                f"{dim.name} is {values[dim.name]} ({places[dim.name]})" for dim in dims_of(size)
            )
            fail(
                ShapeError, f"{function}: {place} is {came}, but it should be {size} where {known}"
            )
    return values
