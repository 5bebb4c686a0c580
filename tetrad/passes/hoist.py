"""Passes, hoisting: what a loop's body computes from its constants alone is computed once, before the loop.

Receives and returns graphs. Only work worth it leaves a body: products, reductions, costly functions, and transposes
that change what lies side by side in memory. Cheap work and broadcasts stay: memory for them would cost more. A matrix
that does not change, times a vector, becomes the vector times the matrix turned around: once, not in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tetrad.core.source import taken_from
from tetrad.graph.build import intern, item, make_graph, make_parameter, rebuild, with_inputs
from tetrad.graph.loops import scan, while_loop
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.movement import reshape, transpose
from tetrad.ops.special import matmul
from tetrad.passes.fuse import CHEAP, LEAVES, moves_last_axis


def hoist(graph: Graph, tidy: Callable[[Graph], Graph]) -> Graph:
    """The graph with the loops it holds directly relieved of what does not change in them; `tidy` simplifies bodies."""
    done: dict[Node, Node] = {}
    for node in graph.nodes():
        moved = with_inputs(node, tuple(done[i] for i in node.inputs))
        done[node] = relieved(moved, tidy) if moved.op in (scan, while_loop) else moved
    outputs = [done[o] for o in graph.outputs]
    is_same = all(a is b for a, b in zip(outputs, graph.outputs, strict=True))
    return graph if is_same else make_graph(graph.name, graph.inputs, outputs)


def relieved(node: Node, tidy: Callable[[Graph], Graph]) -> Node:
    """A loop that is given what its body computed again in every step."""
    before = 0 if node.op is scan else node.param("condition_consts")
    name = "consts" if node.op is scan else "body_consts"
    count = node.param(name)
    body = with_vectors_first(node.param("body"), count)
    found = list(worth_hoisting(body, body.inputs[:count]))
    if not found:
        return node
    fresh = [make_parameter(value.type, -1, fresh=True) for value in found]
    inputs = [*body.inputs[:count], *fresh, *body.inputs[count:]]
    lighter = tidy(make_graph(body.name, inputs, rebuild(body.outputs, dict(zip(found, fresh, strict=True)))))
    given = dict(zip(body.inputs[:count], node.inputs[before : before + count], strict=True))
    values = rebuild(found, given)
    params = dict(node.params) | {"body": lighter, name: count + len(found)}
    operands = (*node.inputs[: before + count], *values, *node.inputs[before + count :])
    return intern(node.op, operands, tuple(sorted(params.items())), node.types, node.source)


def with_vectors_first(body: Graph, consts: int) -> Graph:
    """matmul(constant [m,k], x [k,1])  ->  matmul(x [1,k], transpose(constant)), the same sums in the same order."""
    fixed = fixed_nodes(body, body.inputs[:consts])
    done: dict[Node, Node] = {}
    for node in body.nodes():
        moved = with_inputs(node, tuple(done[i] for i in node.inputs))
        is_column = node.op is matmul and node.type.rank == 2 and node.type.shape[1] == 1
        if is_column and node.inputs[0] in fixed and node.inputs[1] not in fixed:
            matrix, x = moved.inputs
            with taken_from(node.source):
                row = matmul(reshape(x, shape=(1, x.type.shape[0])), transpose(matrix, perm=(1, 0)))
                moved = reshape(row, shape=node.type.shape)
        done[node] = moved
    return make_graph(body.name, body.inputs, [done[o] for o in body.outputs])


def fixed_nodes(body: Graph, consts: Sequence[Node]) -> set[Node]:
    """What depends on constants alone."""
    fixed = set(consts)
    for node in body.nodes():
        if node.op.name == "constant" or (node.inputs and all(i in fixed for i in node.inputs)):
            fixed.add(node)
    return fixed


def worth_hoisting(body: Graph, consts: Sequence[Node]) -> Iterator[Node]:
    """Costly nodes that depend on constants only and that others read, each once."""
    nodes, fixed = body.nodes(), fixed_nodes(body, consts)
    users: dict[Node, list[Node]] = {}
    for node in nodes:
        for operand in node.inputs:
            users.setdefault(operand, []).append(node)
    for node in nodes:
        ends_here = node in body.outputs or any(u not in fixed or not is_costly(u) for u in users.get(node, ()))
        if node in fixed and is_costly(node) and ends_here:
            yield node


def is_costly(node: Node) -> bool:
    if node.op is item:  # of a factorisation: its results leave one by one, and it with them
        return node.inputs[0].op.kind == "special"
    if node.op.name in LEAVES or node.op.in_place or len(node.types) != 1:
        return False
    if node.op.name == "transpose":
        return moves_last_axis(node)
    return node.op.kind in ("reduce", "special") or (node.op.kind == "elementwise" and node.op.cost > CHEAP)
