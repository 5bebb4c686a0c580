"""Lowering, loops and branches: a node that holds graphs in, one step with the lowered graphs in it
out.

Where carries live is decided here. One that the body changes in place stays where it is. One that
is also a result of each step lives in the rows of that result. Any other has two homes and goes to
and fro between them.
"""

from __future__ import annotations

from typing import Protocol

from tetrad.core.dtypes import bool_
from tetrad.graph.loops import scan, while_loop
from tetrad.graph.nodes import Graph, Node
from tetrad.loopnest.frame import Memory
from tetrad.passes.in_place_updates import updates_by
from tetrad.schedule.nodes import Loop, Schedule, Slot, Step, Switch, While

CONTROL = ("scan", "while_loop", "switch")


class LowerGraph(Protocol):
    """Lowers a sub-graph, once."""

    def __call__(self, graph: Graph, placed: frozenset[int]) -> Schedule: ...


def lower_control(node: Node, memory: Memory, lower: LowerGraph, in_rows: bool = True) -> Step:
    """`in_rows`: a carry may live in the rows of a result."""
    if node.op is scan:
        return lower_scan(node, memory, lower, in_rows)
    return (
        lower_while(node, memory, lower)
        if node.op is while_loop
        else lower_switch(node, memory, lower)
    )


def outputs_of(node: Node, memory: Memory) -> tuple[Slot, ...]:
    """Where a step writes: the slots of its results, or those of the operands it changes in
    place."""
    outputs = list(memory.results(node))
    for i, operand in updates_by(node).items():
        outputs[i] = memory.slots[node.inputs[operand]]
    return tuple(outputs)


def lower_scan(node: Node, memory: Memory, lower: LowerGraph, in_rows: bool) -> Step:
    consts, carries = node.param("consts"), node.param("carries")
    stays, body = updates_by(node), node.param("body")
    rows = tuple(
        -1 if i in stays or not in_rows else row_of(body, i, carries) for i in range(carries)
    )
    inputs, outputs = tuple(memory.slots[i] for i in node.inputs), outputs_of(node, memory)
    spares = tuple(
        None if i in stays or rows[i] >= 0 else spare(memory, i, outputs[i]) for i in range(carries)
    )
    lowered = lower(body, frozenset((*stays, *(row for row in rows if row >= 0))))
    length, reverse = node.param("length"), node.param("reverse")
    return Loop(
        lowered, inputs, outputs, consts, carries, length, reverse, spares, rows, node.source
    )


def row_of(body: Graph, carry: int, carries: int) -> int:
    """The per-step result that is the carry's next value, so that one memory serves both; -1 if
    there is none."""
    value = body.outputs[carry]
    is_computed = not value.op.leaf and body.outputs.index(value) == carry
    if not is_computed or value not in body.outputs[carries:]:
        return -1
    return body.outputs.index(value, carries)


def spare(memory: Memory, i: int, home: Slot) -> Slot:
    return memory.temp(f"spare{i}", home.type.dtype, *home.type.shape)


def lower_while(node: Node, memory: Memory, lower: LowerGraph) -> Step:
    asked, fixed = node.param("condition_consts"), node.param("body_consts")
    stays = updates_by(node)
    inputs, outputs = tuple(memory.slots[i] for i in node.inputs), outputs_of(node, memory)
    spares = tuple(None if i in stays else spare(memory, i, slot) for i, slot in enumerate(outputs))
    flag = memory.temp("flag", bool_)
    condition, body = node.param("condition"), node.param("body")
    lowered = lower(condition, frozenset()), lower(body, frozenset(stays))
    return While(*lowered, inputs, outputs, asked, fixed, spares, flag, node.source)


def lower_switch(node: Node, memory: Memory, lower: LowerGraph) -> Step:
    stays = frozenset(updates_by(node))
    branches = tuple(lower(branch, stays) for branch in node.param("branches"))
    index, *inputs = (memory.slots[i] for i in node.inputs)
    return Switch(index, branches, tuple(inputs), outputs_of(node, memory), node.source)
