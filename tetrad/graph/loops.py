"""Graph language, loops: `scan`, `while_loop` and `switch`, structural ops that hold graphs.

Receives graphs and operand nodes, checks that they fit, returns the results as nodes. The NumPy
function of each op is its meaning. `graph.nested` finds the graphs that an op holds, so passes,
text and verify need not know these ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tetrad.core.dtypes import bool_, i32
from tetrad.core.errors import DtypeError, ShapeError, TetradError
from tetrad.core.op import Op, op
from tetrad.core.sizes import Size, SizeExpr, bind, is_multiple
from tetrad.core.source import Source, taken_from, user_source
from tetrad.core.types import ArrayType
from tetrad.graph import patience
from tetrad.graph.build import intern, item, make_graph, results, with_inputs
from tetrad.graph.nodes import Graph, Node
from tetrad.graph.routine import routine

Types = tuple[ArrayType, ...]
Arrays = tuple[np.ndarray, ...]
# what the derivative stores: None is everything, else a strategy
Checkpoint = None | str | tuple[str, int]


# -- scan ------------------------------------------------------------------------------------------


def scan_types(
    *kinds: ArrayType, body: Graph, consts: int, carries: int, length: Size, reverse: bool,
    unroll: int,
    checkpoint: Checkpoint,
) -> Types:  # fmt: skip
    """The types of final carries and stacked results, if the body fits its operands."""
    check_count(
        "scan", len(kinds) >= consts + carries, f"{consts} consts and {carries} carries", len(kinds)
    )
    given = [
        *kinds[: consts + carries],
        *(slice_type(x, length) for x in kinds[consts + carries :]),
    ]
    check_inputs("scan", body, given)
    outputs = tuple(o.type for o in body.outputs)
    check_carries("scan", kinds[consts : consts + carries], outputs)
    if unroll < 1:
        raise ShapeError(f"scan: unroll is {unroll}, it must be at least 1")
    stacked = [whole_bytes(y).with_shape((length, *y.shape)) for y in outputs[carries:]]
    return (*outputs[:carries], *stacked)


def slice_type(x: ArrayType, length: Size) -> ArrayType:
    """The type of one row of xs."""
    if not x.shape or x.shape[0] != length:
        raise ShapeError(f"scan: xs {x} has no leading axis of the length {length}")
    return whole_bytes(x.with_shape(x.shape[1:]))


def whole_bytes(row: ArrayType) -> ArrayType:
    """The type of a row that lies at an address of its own."""
    if row.dtype.is_nibble and not is_multiple(row.size, 2):
        raise ShapeError(
            f"scan: rows {row} do not end with a byte", hint="convert them with astype first"
        )
    return row


@op(type=scan_types, kind="structural", public=False)
def scan(
    *operands: np.ndarray, body: Graph, consts: int, carries: int, length: Size, reverse: bool,
    unroll: int,
    checkpoint: Checkpoint, dims: Mapping[str, int] | None = None,
) -> Arrays:  # fmt: skip
    """carries = init; for each t: (carries, ys[t]) = body(consts, carries, xs[t]). `reverse` starts
    at the last row."""
    dims = dims or {}
    fixed, state = list(operands[:consts]), list(operands[consts : consts + carries])
    count = bind(length, dims)
    given = zip(operands[consts + carries :], body.inputs[consts + carries :], strict=True)
    xs = [x.reshape(count, -1) if row.type.dtype.is_nibble else x for x, row in given]
    stacked = [
        np.empty((count, *bound_shape(y.type, dims)), y.type.dtype.np)
        for y in body.outputs[carries:]
    ]
    step = routine(body, dims)
    with np.errstate(all="ignore"):
        for t in range(count - 1, -1, -1) if reverse else range(count):
            made = step([*fixed, *state, *[x[t, ...] for x in xs]])
            state = made[:carries]
            for ys, y in zip(stacked, made[carries:], strict=True):
                ys[t] = y
    kinds = (y.type.dtype for y in body.outputs[carries:])
    pairs = zip(stacked, kinds, strict=True)
    return (*state, *(ys.reshape(-1) if kind.is_nibble else ys for ys, kind in pairs))


def make_scan(
    body: Graph, consts: Sequence[Node], carries: Sequence[Node], xs: Sequence[Node], *,
    length: Size,
    reverse: bool = False, unroll: int = 1, checkpoint: Checkpoint = None,
    source: Source | None = None,
) -> tuple[Node, ...]:  # fmt: skip
    """The results of a scan: final carries, then the stacked results of all steps."""
    params = {
        "body": body, "consts": len(consts), "carries": len(carries), "length": length,
        "reverse": reverse,
        "unroll": unroll, "checkpoint": checkpoint,
    }  # fmt: skip
    return make(scan, [*consts, *carries, *xs], params, source)


# -- while -----------------------------------------------------------------------------------------


def while_types(
    *kinds: ArrayType, condition: Graph, body: Graph, condition_consts: int, body_consts: int
) -> Types:
    """The types of the carries, if condition and body fit them."""
    consts = condition_consts + body_consts
    check_count("while_loop", len(kinds) >= consts, f"{consts} consts", len(kinds))
    carries = kinds[consts:]
    check_inputs("while_loop", condition, [*kinds[:condition_consts], *carries])
    check_inputs("while_loop", body, [*kinds[condition_consts:consts], *carries])
    tested = [o.type for o in condition.outputs]
    if tested != [ArrayType(bool_, ())]:
        raise DtypeError(
            f"while_loop: the condition must give one bool[], it gives {shown(tested)}"
        )
    check_carries("while_loop", carries, tuple(o.type for o in body.outputs))
    return carries


@op(type=while_types, kind="structural", public=False)
def while_loop(
    *operands: np.ndarray, condition: Graph, body: Graph, condition_consts: int, body_consts: int,
    dims: Mapping[str, int] | None = None,
) -> Arrays:  # fmt: skip
    """carries = init; while condition(consts, carries): carries = body(consts, carries)."""
    consts = condition_consts + body_consts
    asked, fixed, state = (
        operands[:condition_consts],
        operands[condition_consts:consts],
        list(operands[consts:]),
    )
    holds, step = routine(condition, dims or {}), routine(body, dims or {})
    each = operations(condition) + operations(body)
    with np.errstate(all="ignore"):
        while holds([*asked, *state])[0]:
            patience.spend(each)
            state = step([*fixed, *state])
    return tuple(state)


def make_while(
    condition: Graph, body: Graph, condition_consts: Sequence[Node], body_consts: Sequence[Node],
    carries: Sequence[Node], source: Source | None = None,
) -> tuple[Node, ...]:  # fmt: skip
    """The carries when the condition has become false."""
    params = {
        "condition": condition, "body": body, "condition_consts": len(condition_consts),
        "body_consts": len(body_consts),
    }  # fmt: skip
    return make(while_loop, [*condition_consts, *body_consts, *carries], params, source)


# -- switch ----------------------------------------------------------------------------------------


def switch_types(*kinds: ArrayType, branches: tuple[Graph, ...]) -> Types:
    """The types of the results; all branches have the same signature."""
    if not branches:
        raise ShapeError("switch: there are no branches")
    check_count("switch", bool(kinds), "an index", len(kinds))
    if kinds[0] != ArrayType(i32, ()):
        raise DtypeError(f"switch: the index must be i32[], it is {kinds[0]}")
    wanted = tuple(o.type for o in branches[0].outputs)
    for number, branch in enumerate(branches):
        check_inputs("switch", branch, kinds[1:])
        given = tuple(o.type for o in branch.outputs)
        if given != wanted:
            raise ShapeError(
                f"switch: branch 0 gives {shown(wanted)}, branch {number} gives {shown(given)}"
            )
    return wanted


@op(type=switch_types, kind="structural", public=False)
def switch(
    *operands: np.ndarray, branches: tuple[Graph, ...], dims: Mapping[str, int] | None = None
) -> Arrays:
    """branches[index](operands), the index clamped into range."""
    chosen = branches[min(max(int(operands[0]), 0), len(branches) - 1)]
    return tuple(routine(chosen, dims or {})(operands[1:]))


def make_switch(
    index: Node, operands: Sequence[Node], branches: Sequence[Graph], source: Source | None = None
) -> tuple[Node, ...]:
    """The results of the branch that the index selects."""
    return make(switch, [index, *operands], {"branches": tuple(branches)}, source)


# -- how long they take ----------------------------------------------------------------------------


def operations(graph: Graph) -> int:
    """Nodes that one evaluation computes, those of loops in every step; trips of a while loop,
    which nobody knows, count as one."""
    return sum(operations_of(node) for node in graph.nodes())


def operations_of(node: Node) -> int:
    held = [operations(graph) for _, value in node.params for graph in held_graphs(value)]
    if not held:
        return 0 if node.op.leaf else 1
    length = node.param("length") if node.op is scan else 1
    return (max(held) if node.op is switch else sum(held)) * (
        length if isinstance(length, int) else 1
    )


def held_graphs(value: Any) -> tuple[Graph, ...]:
    """The graphs in a setting: the setting itself, or those of a tuple."""
    if isinstance(value, Graph):
        return (value,)
    return tuple(v for v in value if isinstance(v, Graph)) if isinstance(value, tuple) else ()


# -- checks ----------------------------------------------------------------------------------------


def make(
    op: Op, inputs: Sequence[Node], params: dict[str, Any], source: Source | None
) -> tuple[Node, ...]:
    """The results of the node; none for a loop without carries and results, which does nothing."""
    source = source or user_source()
    try:
        types: Any = op.type(*(node.type for node in inputs), **params)
    except TetradError as error:
        raise error.located(source) from None
    return (
        results(intern(op, tuple(inputs), tuple(sorted(params.items())), types, source))
        if types
        else ()
    )


def replace_loops(graph: Graph, results_of: Callable[[Node], Sequence[Node] | None]) -> Graph:
    """The graph with the results of loops replaced: `results_of` gives the new results of a loop,
    or None to keep it."""
    if not any(node.op in (scan, while_loop) for node in graph.nodes()):
        return graph
    done: dict[Node, Node] = {}
    found: dict[Node, Sequence[Node]] = {}  # loop -> its results
    for node in graph.nodes():
        moved = with_inputs(node, tuple(done[i] for i in node.inputs))
        if node.op is item and node.inputs[0] in found:
            moved = found[node.inputs[0]][node.param("index")]
        elif node.op in (scan, while_loop):
            with taken_from(node.source):
                others = results_of(moved)
            if others is not None:
                found[node] = others
        done[node] = moved
    outputs = [done[o] for o in graph.outputs]
    is_same = all(a is b for a, b in zip(outputs, graph.outputs, strict=True))
    return graph if is_same else make_graph(graph.name, graph.inputs, outputs)


def check_count(name: str, holds: bool, wanted: str, given: int) -> None:
    if not holds:
        raise ShapeError(f"{name}: expected {wanted}, got {given} operands")


def check_inputs(name: str, graph: Graph, given: Sequence[ArrayType]) -> None:
    wanted = [node.type for node in graph.inputs]
    if wanted != list(given):
        raise ShapeError(
            f"{name}: the graph {graph.name} takes {shown(wanted)}, it is given {shown(given)}"
        )


def check_carries(name: str, carries: Sequence[ArrayType], outputs: Sequence[ArrayType]) -> None:
    if len(outputs) < len(carries) or (name != "scan" and len(outputs) > len(carries)):
        raise ShapeError(
            f"{name}: the body gives {len(outputs)} results for {len(carries)} carries"
        )
    for number, (before, after) in enumerate(zip(carries, outputs, strict=False)):
        if before != after:
            raise ShapeError(f"{name}: carry {number} is {before}, the body gives {after} for it")


def bound_shape(kind: ArrayType, dims: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(
        bind(size, dims) if isinstance(size, SizeExpr) else size for size in kind.storage_shape
    )


def shown(kinds: Sequence[ArrayType]) -> str:
    return ", ".join(map(str, kinds)) or "nothing"
