"""Graph language, evaluate: the meaning of a graph, computed with NumPy op by op.

Receives a graph and one array per input, returns one array per output. The shapes of the arrays
determine the Dims. Every result is checked against its type in the graph. Results may share memory
with arguments and constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tetrad.core.errors import CheckError, DtypeError, ShapeError, TetradError
from tetrad.core.floats import guarded
from tetrad.core.sizes import Named, Size, SizeExpr, bind, dims_of
from tetrad.core.types import ArrayType
from tetrad.graph.build import call, constant, item
from tetrad.graph.nodes import Graph, Node

Dims = dict[str, int]
Values = tuple[np.ndarray, ...]  # the results of one node


@guarded
def evaluate(
    graph: Graph, arrays: Sequence[np.ndarray], dims: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """The outputs of the graph for these inputs. `dims` gives the values of Dims that no input
    shape determines.

    >>> from tetrad.graph.build import make_graph, make_parameter
    >>> from tetrad.core.dtypes import f32
    >>> x = make_parameter(ArrayType(f32, (2,)), 0)
    >>> evaluate(make_graph("same", [x], [x]), [np.ones(2, np.float32)])
    [array([1., 1.], dtype=float32)]
    """
    arrays = [np.asarray(a) for a in arrays]
    known = bind_dims(graph, arrays, dims or {})
    values: dict[Node, Values] = {p: (a,) for p, a in zip(graph.inputs, arrays, strict=True)}
    nodes = graph.nodes()
    last_use = {operand: position for position, node in enumerate(nodes) for operand in node.inputs}
    kept = set(graph.outputs)
    for position, node in enumerate(nodes):
        if node not in values:
            values[node] = checked(
                node, evaluate_node(node, [values[i] for i in node.inputs], known), known
            )
        for operand in set(node.inputs) - kept:
            if last_use[operand] == position:
                del values[operand]
    return [values[o][0] for o in graph.outputs]


def evaluate_node(node: Node, operands: Sequence[Values], dims: Dims) -> Values:
    """All results of one node; an error in it names the user's line."""
    if node.op is constant:
        return (node.param("value").array,)
    if node.op is item:
        return (operands[0][node.param("index")],)
    arrays = [values[0] for values in operands]
    if node.op is call:
        return tuple(evaluate(node.param("graph"), arrays, dims))
    # the reference of a loop or a branch evaluates the graphs it holds
    if node.op.kind == "structural":
        return tuple(node.op.reference(*arrays, dims=dims, **dict(node.params)))
    if node.op.kind in ("reduce", "special"):
        # NumPy sums in memory order; the result must depend on values only, not on their layout.
        arrays = [np.ascontiguousarray(a).reshape(a.shape) for a in arrays]
    params = {name: bind_value(value, dims) for name, value in node.params}
    try:
        with np.errstate(all="ignore"):
            if node.op.typed:
                params["types"] = tuple(i.type for i in node.inputs)
            result = node.op.reference(*arrays, **params)
            return (
                tuple(map(np.asarray, result))
                if isinstance(result, tuple)
                else (np.asarray(result),)
            )
    except TetradError as error:
        raise error.located(node.source) from None


def bind_value(value: Any, dims: Mapping[str, int]) -> Any:
    """A param with every symbolic size replaced by its integer."""
    if isinstance(value, SizeExpr):
        return bind(value, dims)
    return tuple(bind_value(part, dims) for part in value) if isinstance(value, tuple) else value


def checked(node: Node, values: Values, dims: Dims) -> Values:
    """The values, if each has the dtype and shape of the node's type; else an error."""
    for kind, value in zip(node.types, values, strict=True):
        wanted = tuple(bind(size, dims) for size in kind.storage_shape)
        if value.dtype != kind.dtype.np or value.shape != wanted:
            came = f"{value.dtype} {list(value.shape)}"
            message = (
                f"{node.op.name}: the reference gave {came} where the type rule promised {kind}"
            )
            raise CheckError(
                message, source=node.source, hint="the op's reference and its type rule disagree"
            )
    return values


# -- arguments -------------------------------------------------------------------------------------


def bind_dims(graph: Graph, arrays: Sequence[np.ndarray], given: Mapping[str, int]) -> Dims:
    """Check the arguments against the types of the inputs; return the values of the Dims."""
    if len(arrays) != len(graph.inputs):
        raise ShapeError(f"graph {graph.name}: takes {len(graph.inputs)} arrays, got {len(arrays)}")
    for position, (node, array) in enumerate(zip(graph.inputs, arrays, strict=True)):
        if array.dtype != node.type.dtype.np:
            raise DtypeError(
                f"graph {graph.name}: input {position} is {node.type}, got an array of "
                f"{array.dtype}"
            )
        if array.ndim != len(node.type.storage_shape):
            raise ShapeError(
                f"graph {graph.name}: input {position} is {node.type}, got shape "
                f"{list(array.shape)}"
            )
    sizes = [size for node in graph.inputs for size in node.type.storage_shape]
    dims = solve_dims(
        list(zip(sizes, [n for array in arrays for n in array.shape], strict=True)), given
    )
    for position, (node, array) in enumerate(zip(graph.inputs, arrays, strict=True)):
        check_shape(graph, position, node.type, array, dims)
    return dims


def solve_dims(pairs: Sequence[tuple[Size, int]], given: Mapping[str, int]) -> Dims:
    """The values of the Dims from pairs (size, actual): solves the equations that are linear in one
    unknown, one after the other."""
    dims = dict(given)
    waiting = [(size, actual) for size, actual in pairs if isinstance(size, SizeExpr)]
    solved = True
    while solved:
        solved = False
        for size, actual in waiting:
            unknown = {d for d in dims_of(size) if d.name not in dims}
            if (
                len(unknown) == 1
                and (value := solve(size, actual, dim := unknown.pop(), dims)) is not None
            ):
                dims[dim.name] = value
                solved = True
    return dims


def solve(size: SizeExpr, actual: int, dim: Named, dims: Dims) -> int | None:
    """The value of `dim` for which the size equals `actual`, if the size is linear in it and the
    value is whole; else None."""
    if any(monomial.count(dim) > 1 for monomial, _ in size.terms):
        return None
    base, next_ = (bind(size, {**dims, dim.name: value}) for value in (0, 1))
    quotient, rest = divmod(actual - base, next_ - base) if next_ != base else (0, 1)
    return quotient if rest == 0 and quotient >= 0 else None


def check_shape(
    graph: Graph, position: int, kind: ArrayType, array: np.ndarray, dims: Dims
) -> None:
    for axis, (size, actual) in enumerate(zip(kind.storage_shape, array.shape, strict=True)):
        place = f"graph {graph.name}: input {position} is {kind}"
        for dim in dims_of(size):
            if dim.name not in dims:
                raise ShapeError(
                    f"{place}: axis {axis} of size {actual} does not determine {dim.name}"
                )
            if dims[dim.name] > dim.max:
                raise ShapeError(f"{place}: {dim.name} is {dims[dim.name]}, its max is {dim.max}")
        if bind(size, dims) != actual:
            hint = f"{size} is {bind(size, dims)} here" if isinstance(size, SizeExpr) else None
            raise ShapeError(f"{place}, got shape {list(array.shape)}", hint=hint)
