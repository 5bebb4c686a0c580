"""Transforms, transpose: a graph that is linear in some of its inputs, turned around. The second
half of reverse mode.

Receives a linear graph; returns the graph that takes cotangents of its outputs to cotangents of
those inputs. What does not depend on them is computed as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

from tetrad.core.errors import CompileError, TetradError
from tetrad.core.op import Op
from tetrad.core.record import record
from tetrad.core.source import taken_from
from tetrad.graph.build import call, item, make_call, make_graph, make_parameter, results, spliced
from tetrad.graph.infer import dim_names, dims_in
from tetrad.graph.nodes import Graph, Node, topological
from tetrad.transforms.forward import Tangent, sum_of
from tetrad.transforms.jvp import Flags, flags_of, present
from tetrad.transforms.linearize import depends_on

Cotangents = tuple[Tangent, ...]
# node, cotangents of its results, which inputs are linear
NestedRule = Callable[[Node, Cotangents, Flags], Cotangents]


@record
class Transposed:
    """inputs that are not linear..., cotangents of given outputs... -> cotangents of the linear
    inputs reached."""

    graph: Graph
    reached: Flags  # of the linear inputs: the others get no cotangent


_done: WeakKeyDictionary[Graph, dict[tuple[Flags, Flags], Transposed]] = WeakKeyDictionary()
NESTED: dict[Op, NestedRule] = {}


def transpose(graph: Graph, linear: Flags, given: Flags) -> Transposed:
    """The graph turned around in its `linear` inputs, for cotangents of the `given` outputs."""
    memo = _done.setdefault(graph, {})
    if (linear, given) not in memo:
        outputs = [o for o, g in zip(graph.outputs, given, strict=True) if g]
        seeds = [make_parameter(o.type, i, fresh=True) for i, o in enumerate(outputs)]
        found = pull(
            outputs, seeds, [p for p, flag in zip(graph.inputs, linear, strict=True) if flag]
        )
        fixed = [p for p, flag in zip(graph.inputs, linear, strict=True) if not flag]
        made = make_graph(f"{graph.name}.transposed", [*fixed, *seeds], present(found))
        memo[linear, given] = Transposed(made, flags_of(found))
    return memo[linear, given]


def pull(
    outputs: Sequence[Node], cotangents: Sequence[Tangent], inputs: Sequence[Node]
) -> Cotangents:
    """Cotangents of the inputs, from cotangents of outputs that are linear in them."""
    linear = depends_on(outputs, set(inputs))
    found: dict[Node, list[list[Node]]] = {}
    for node, cotangent in zip(outputs, cotangents, strict=True):
        give(found, node, 0, cotangent)
    for node in reversed(tuple(topological(outputs))):
        if node in found and node in linear and node not in inputs:
            try:
                with taken_from(node.source):
                    collected = tuple(sum_of(parts) for parts in found.pop(node))
                    pull_node(node, collected, linear, found)
            except TetradError as error:
                raise error.located(node.source) from None
    return tuple(sum_of(found[i][0]) if i in found else None for i in inputs)


def give(found: dict[Node, list[list[Node]]], node: Node, index: int, cotangent: Tangent) -> None:
    """Cotangents of a node used several times are added, users nearest to the outputs first."""
    if cotangent is not None:
        found.setdefault(node, [[] for _ in node.types])[index].append(cotangent)


def pull_node(
    node: Node, cotangents: Cotangents, linear: set[Node], found: dict[Node, list[list[Node]]]
) -> None:
    if node.op is item:
        give(found, node.inputs[0], node.param("index"), cotangents[0])
        return
    flags = tuple(i in linear for i in node.inputs)
    for operand, cotangent in zip(
        node.inputs, operand_cotangents(node, cotangents, flags), strict=True
    ):
        give(found, operand, 0, cotangent)


def operand_cotangents(node: Node, cotangents: Cotangents, linear: Flags) -> Cotangents:
    op, params = node.op, dict(node.params)
    if op in NESTED:
        return NESTED[op](node, cotangents, linear)
    given = cotangents[0] if len(node.types) == 1 else cotangents
    if op.joint_transpose is not None:
        made = op.joint_transpose(given, linear, *node.inputs, **params)
        return tuple(c if flag else None for c, flag in zip(made, linear, strict=True))
    return tuple(
        transposed(node, i, given, params) if flag else None for i, flag in enumerate(linear)
    )


def transposed(node: Node, i: int, given: object, params: Mapping[str, object]) -> Tangent:
    rules = node.op.transpose_rules or ()
    if i >= len(rules) or (rule := rules[i]) is None:
        message = (
            f"{node.op.name} stands in a derivative, but no rule says how it is transposed in "
            f"operand {i}"
        )
        raise CompileError(
            message, source=node.source, hint="a jvp rule must be linear in its tangents"
        )
    result: Tangent = rule(given, *node.inputs, **params)
    return result


# -- graphs inside ---------------------------------------------------------------------------------


def transpose_call(node: Node, cotangents: Cotangents, linear: Flags) -> Cotangents:
    made = transpose(node.param("graph"), linear, flags_of(cotangents))
    fixed = [i for i, flag in zip(node.inputs, linear, strict=True) if not flag]
    given = [*fixed, *present(cotangents)]
    # The cotangent of a sum has no axes: a Dim of the operand is then known outside the call only.
    is_whole = {dim.name for dim in dims_in(made.graph)} <= set(dim_names(made.graph))
    found = iter(
        results(make_call(made.graph, given, node.source))
        if is_whole
        else spliced(made.graph, given)
    )
    reached = iter(made.reached)
    return tuple(next(found) if flag and next(reached) else None for flag in linear)


NESTED[call] = transpose_call
