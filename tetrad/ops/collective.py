"""Ops between the rows of a batch: they name the axis that `vmap` adds, and mean something only
inside it.

Batching with that axis (`transforms.collective_rules`) turns each into ordinary ops; outside,
asking for them is an error.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tetrad.core.dtypes import i32
from tetrad.core.errors import TraceError
from tetrad.core.op import op
from tetrad.core.sizes import Size
from tetrad.core.types import ArrayType
from tetrad.graph.build import intern
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import cast, run
from tetrad.ops.rules import Array


def _unbound(axis_name: Any) -> NoReturn:
    raise TraceError(
        f"the axis name {axis_name!r} is not bound",
        hint="td.vmap(..., axis_name=...) around it binds it",
    )


def _same(x: ArrayType, *, axis_name: Any) -> ArrayType:
    return x


@op(type=_same, kind="structural", public=False)
def psum(x: Array, *, axis_name: Any, dims: Any = None) -> Array:
    """The sum over the rows of the batch."""
    _unbound(axis_name)


@op(type=_same, kind="structural", public=False)
def pmax(x: Array, *, axis_name: Any, dims: Any = None) -> Array:
    """The largest over the rows of the batch."""
    _unbound(axis_name)


@op(
    type=lambda x, *, axis_name, size: x.with_shape((size, *x.shape)),
    kind="structural",
    public=False,
)
def all_gather(x: Array, *, axis_name: Any, size: Size, dims: Any = None) -> Array:
    """The elements of all rows, along a new leading axis."""
    _unbound(axis_name)


@op(type=lambda *, axis_name: ArrayType(i32, ()), kind="structural", public=False)
def axis_index(*, axis_name: Any, dims: Any = None) -> Array:
    """Which row of the batch this is."""
    _unbound(axis_name)


def axis_index_node(axis_name: Any) -> Node:
    return intern(axis_index, (), (("axis_name", axis_name),), (ArrayType(i32, ()),), None)


@pmax.jvp
def pmax_jvp(t: Node, y: Node, x: Node, *, axis_name: Any) -> Node:
    """Of several largest, the mean of their changes."""
    wins = cast(run("equal", x, y), x.type.dtype)
    result: Node = psum(t * wins, axis_name=axis_name) / psum(wins, axis_name=axis_name)
    return result


@all_gather.transpose
def all_gather_transpose(ct: Node, x: Node, *, axis_name: Any, size: Size) -> Node:
    result: Node = run("gather", psum(ct, axis_name=axis_name), axis_index_node(axis_name), axis=0)
    return result


psum.transpose(lambda ct, x, *, axis_name: psum(ct, axis_name=axis_name))
