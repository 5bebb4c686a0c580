"""Passes, hoist: loop-invariant code motion.

Receives and returns graphs. A carry that the body passes on unchanged becomes a constant of the
loop. Of what the body computes from constants alone, costly work moves before the loop: products,
reductions, costly functions, and transposes that change which elements are adjacent in memory.
Cheap work and broadcasts stay, because memory for them would cost more. An invariant matrix times a
vector becomes the vector times the transposed matrix, transposed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tetrad.core.source import taken_from
from tetrad.graph.build import (
    constant,
    intern,
    item,
    make_graph,
    make_parameter,
    rebuild,
    results,
    with_inputs,
)
from tetrad.graph.effects import is_effect
from tetrad.graph.group import holds
from tetrad.graph.loops import replace_loops, scan
from tetrad.graph.nodes import Graph, Node, topological
from tetrad.ops.matmul.op import is_plain, matmul
from tetrad.ops.movement import reshape, transpose
from tetrad.passes.questions import CHEAP, is_read_inline, moves_last_axis


def hoist(graph: Graph, tidy: Callable[[Graph], Graph]) -> Graph:
    """The graph with invariant work moved out of the loops it holds directly; `tidy` simplifies
    bodies."""
    return replace_loops(graph, lambda loop: results_of(loop, tidy))


def results_of(loop: Node, tidy: Callable[[Graph], Graph]) -> list[Node]:
    """The results of a loop, from a lighter loop if there is one."""
    before, consts, carries = parts_of(loop)
    first = before + consts
    handed_on = handed_on_carries(loop.param("body"), consts, carries)
    if not handed_on or len(handed_on) == len(loop.types):
        return list(results(relieved(loop, tidy)))
    lighter = iter(results(relieved(without_carries(loop, handed_on), tidy)))
    return [
        loop.inputs[first + i] if i in handed_on else next(lighter) for i in range(len(loop.types))
    ]


def parts_of(loop: Node) -> tuple[int, int, int]:
    """How many operands are constants of the condition, constants of the body, and carries."""
    if loop.op is scan:
        return 0, loop.param("consts"), loop.param("carries")
    return loop.param("condition_consts"), loop.param("body_consts"), len(loop.types)


def handed_on_carries(body: Graph, consts: int, carries: int) -> list[int]:
    return [i for i in range(carries) if body.outputs[i] is body.inputs[consts + i]]


def without_carries(loop: Node, handed_on: Sequence[int]) -> Node:
    """The loop with these carries turned into constants."""
    before, consts, carries = parts_of(loop)
    first = before + consts
    fixed = [loop.inputs[first + i] for i in handed_on]
    rest = [x for i, x in enumerate(loop.inputs[first:]) if i not in handed_on]
    body = with_constants(loop.param("body"), consts, handed_on)
    outputs = [o for i, o in enumerate(body.outputs) if i not in handed_on]
    changed: dict[str, Any] = {"body": make_graph(body.name, body.inputs, outputs)}
    if loop.op is scan:
        operands = [*loop.inputs[:first], *fixed, *rest]
        changed |= {"consts": consts + len(fixed), "carries": carries - len(fixed)}
    else:
        operands = [*loop.inputs[:before], *fixed, *loop.inputs[before:first], *fixed, *rest]
        condition = with_constants(loop.param("condition"), before, handed_on)
        counts = {"condition_consts": before + len(fixed), "body_consts": consts + len(fixed)}
        changed |= {"condition": condition, **counts}
    types = tuple(kind for i, kind in enumerate(loop.types) if i not in handed_on)
    return intern(
        loop.op,
        tuple(operands),
        tuple(sorted((dict(loop.params) | changed).items())),
        types,
        loop.source,
    )


def with_constants(graph: Graph, consts: int, carries: Sequence[int]) -> Graph:
    """A body or condition that takes these carries right after its constants."""
    chosen = [graph.inputs[consts + i] for i in carries]
    rest = [x for x in graph.inputs[consts:] if x not in chosen]
    return make_graph(graph.name, [*graph.inputs[:consts], *chosen, *rest], graph.outputs)


def relieved(node: Node, tidy: Callable[[Graph], Graph]) -> Node:
    """The loop that receives as operands what its body recomputed in every step."""
    before, count, _ = parts_of(node)
    name = "consts" if node.op is scan else "body_consts"
    body = with_vectors_first(node.param("body"), count)
    found = [
        n for n in worth_hoisting(body, body.inputs[:count]) if surely_runs(node) or not may_fail(n)
    ]
    if not found:
        return node
    fresh = [make_parameter(value.type, -1, fresh=True) for value in found]
    inputs = [*body.inputs[:count], *fresh, *body.inputs[count:]]
    lighter = tidy(
        make_graph(body.name, inputs, rebuild(body.outputs, dict(zip(found, fresh, strict=True))))
    )
    given = dict(zip(body.inputs[:count], node.inputs[before : before + count], strict=True))
    values = rebuild(found, given)
    params = dict(node.params) | {"body": lighter, name: count + len(found)}
    operands = (*node.inputs[: before + count], *values, *node.inputs[before + count :])
    return intern(node.op, operands, tuple(sorted(params.items())), node.types, node.source)


def surely_runs(loop: Node) -> bool:
    """Does it have at least one step? Otherwise an error in a step that never runs must not be
    raised before the loop."""
    length = loop.param("length") if loop.op is scan else 0
    return isinstance(length, int) and length > 0


def may_fail(node: Node) -> bool:
    """Can it, or one of its operands, raise an error: an index out of range, a singular matrix, a
    negative power of integers?"""

    def can_fail(one: Node) -> bool:
        trait = one.op.may_fail
        return one.op.kind == "special" if trait is None else holds(trait, one)

    return any(can_fail(one) for one in topological([node]))


def with_vectors_first(body: Graph, consts: int) -> Graph:
    """matmul(constant [m,k], x [k,1])  ->  matmul(x [1,k], transpose(constant))

    The sums are the same, in the same order.
    """
    fixed = fixed_nodes(body, body.inputs[:consts])
    done: dict[Node, Node] = {}
    for node in body.nodes():
        moved = with_inputs(node, tuple(done[i] for i in node.inputs))
        is_column = is_plain(node) and node.type.rank == 2 and node.type.shape[1] == 1
        if is_column and node.inputs[0] in fixed and node.inputs[1] not in fixed:
            matrix, x = moved.inputs
            with taken_from(node.source):
                row = matmul(reshape(x, shape=(1, x.type.shape[0])), transpose(matrix, perm=(1, 0)))
                moved = reshape(row, shape=node.type.shape)
        done[node] = moved
    return make_graph(body.name, body.inputs, [done[o] for o in body.outputs])


def fixed_nodes(body: Graph, consts: Sequence[Node]) -> set[Node]:
    """Nodes that depend on constants alone, and not on what happens in each step."""
    fixed = set(consts)
    for node in body.nodes():
        depends = node.inputs and all(i in fixed for i in node.inputs)
        if node.op is constant or (depends and not is_effect(node)):
            fixed.add(node)
    return fixed


def worth_hoisting(body: Graph, consts: Sequence[Node]) -> Iterator[Node]:
    """Costly nodes that depend on constants alone and that other nodes read, each once."""
    nodes, fixed = body.nodes(), fixed_nodes(body, consts)
    users: dict[Node, list[Node]] = {node: [] for node in nodes}
    for node in nodes:
        for operand in node.inputs:
            users[operand].append(node)
    costly = {n for n in nodes if n in fixed and is_costly(n)}
    # what products compute as they read it would get memory outside
    costly -= {n for n in costly if is_read_inline(n, users, body.outputs)}
    for node in nodes:
        ends_here = node in body.outputs or any(u not in costly for u in users[node])
        if node in costly and ends_here:
            yield node


def is_costly(node: Node) -> bool:
    if node.op is item:  # hoisting the results of a factorisation hoists the factorisation
        return node.inputs[0].op.kind == "special"
    # an array: one kernel for the whole loop reads it like any operand
    if node.op is constant:
        return node.param("value").held.size > 1  # type: ignore[no-any-return]
    if node.op.leaf or node.op.in_place or len(node.types) != 1:
        return False
    if node.op is transpose:
        return moves_last_axis(node)
    return node.op.kind in ("reduce", "special") or (
        node.op.kind == "elementwise" and node.op.cost > CHEAP
    )
