"""Transforms, custom rules: functions whose derivative is given, functions that are computed again,
and what does not change.

Receives the nodes of `graph.custom`. A rule gives graphs: how they come about (by tracing what a
user wrote) is the business of `transforms.custom`. Importing this module fills the tables of the
transforms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tetrad.core.errors import DerivativeError, UnsupportedError
from tetrad.core.record import record
from tetrad.graph.build import (
    call,
    filled,
    fresh_like,
    item,
    make_call,
    make_graph,
    rebuild,
    results,
    spliced,
    with_inputs,
)
from tetrad.graph.custom import (
    checkpoint_call,
    custom_call,
    linear_call,
    make_checkpoint,
    make_custom,
    make_linear,
)
from tetrad.graph.effects import without_effects
from tetrad.graph.nodes import Graph, Node, topological
from tetrad.ops.calculus import reduce_sum
from tetrad.ops.matmul.op import matmul
from tetrad.ops.movement import checkpoint_name
from tetrad.transforms import batch as batching
from tetrad.transforms import jvp as forward
from tetrad.transforms import linearize as linearizing
from tetrad.transforms import transpose as transposing
from tetrad.transforms.batch import Axis, BatchedGraph, Many, batch
from tetrad.transforms.forward import Both, Tangent, instantiate, is_differentiable
from tetrad.transforms.jvp import Flags, flags_of, jvp, present
from tetrad.transforms.linearize import linearize
from tetrad.transforms.transpose import Cotangents


@record(eq=False)
class JvpRule:
    """`derivative()`: operands..., a tangent for each -> results..., tangents of the results.

    The first `given` operands are arguments; the function found the others outside, and its rule
    takes them as fixed.
    """

    name: str
    given: int
    derivative: Callable[[], Graph]


@record(eq=False)
class VjpRule:
    """`forward()`: operands... -> results..., residuals...

    `backward()`: residuals..., cotangents of the results that are floats -> a cotangent for each
    operand.
    """

    name: str
    given: int
    forward: Callable[[], Graph]
    backward: Callable[[], Graph]


Rule = JvpRule | VjpRule


# -- custom calls ----------------------------------------------------------------------------------


def jvp_custom(node: Node, primals: Sequence[Node], tangents: Sequence[Tangent]) -> Both:
    return pushed(node, node.param("rule"), primals, tangents, lambda graph: graph)


def pushed(
    node: Node,
    rule: Rule,
    primals: Sequence[Node],
    tangents: Sequence[Tangent],
    seen: Callable[[Graph], Graph],
) -> Both:
    """Values and changes by a jvp rule, whose graph is used as `seen`."""
    if isinstance(rule, VjpRule):
        raise DerivativeError(
            f"{rule.name} has a custom vjp, so it has no forward derivative",
            source=node.source,
            hint="td.grad and td.vjp work; td.custom_jvp gives a rule for both",
        )
    check_fixed(node, rule, tangents)
    moves = [filled(0, p.type) if t is None else t for p, t in zip(primals, tangents, strict=True)]
    made = spliced(seen(rule.derivative()), [*primals, *moves])
    count = len(node.types)
    pairs = zip(made[count:], node.types, strict=True)
    return tuple(made[:count]), tuple(t if is_differentiable(kind) else None for t, kind in pairs)


def check_fixed(node: Node, rule: Rule, tangents: Sequence[Tangent]) -> None:
    if any(t is not None for t in tangents[rule.given :]):
        message = (
            f"{rule.name} uses a value from outside that changes too, which its rule does not know"
        )
        raise UnsupportedError(
            message, source=node.source, hint="pass it as an argument, or through td.stop_gradient"
        )


def linearize_custom(node: Node, primals: Sequence[Node], tangents: Sequence[Tangent]) -> Both:
    rule: Rule = node.param("rule")
    if isinstance(rule, JvpRule):
        return pushed(node, rule, primals, tangents, without_calls)
    check_fixed(node, rule, tangents)
    count = len(node.types)
    outputs = spliced(rule.forward(), primals)
    moving = [
        instantiate(t, p.type)
        for t, p in zip(tangents, primals, strict=True)
        if is_differentiable(p.type)
    ]
    gives = tuple(kind for kind in node.types if is_differentiable(kind))
    backward = among(rule.backward(), [is_differentiable(p.type) for p in primals])
    found = iter(make_linear(None, backward, outputs[count:], moving, gives, node.source))
    changes = tuple(next(found) if is_differentiable(kind) else None for kind in node.types)
    return tuple(outputs[:count]), changes


def without_calls(graph: Graph) -> Graph:
    """The graph with the bodies of calls in their place: a call may give a value and its change,
    which part ways."""
    done: dict[Node, list[Node]] = {p: [p] for p in graph.inputs}
    for node in topological(graph.outputs):
        inputs = [done[i][0] for i in node.inputs]
        if node.op is call:
            done[node] = spliced(without_calls(node.param("graph")), inputs)
        elif node.op is item and node.inputs[0].op is call:
            done[node] = [done[node.inputs[0]][node.param("index")]]
        elif node not in done:
            done[node] = [with_inputs(node, tuple(inputs))]
    return make_graph(graph.name, graph.inputs, [done[o][0] for o in graph.outputs])


def among(graph: Graph, chosen: Sequence[bool]) -> Graph:
    """The graph with some of its outputs."""
    outputs = [o for o, flag in zip(graph.outputs, chosen, strict=True) if flag]
    return make_graph(graph.name, graph.inputs, outputs)


def batch_custom(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> Many:
    made = batch(node.param("graph"), batched, axis)
    seeds = tuple(
        flag for flag, kind in zip(made.batched, node.types, strict=True) if is_differentiable(kind)
    )
    rule = batched_rule(node.param("rule"), batched, made.batched, seeds, axis)
    return make_custom(made.graph, inputs, rule, node.source), made.batched


def batched_rule(rule: Rule, batched: Flags, outputs: Flags, seeds: Flags, axis: Axis) -> Rule:
    if isinstance(rule, JvpRule):
        return JvpRule(
            rule.name,
            rule.given,
            lambda: batch(rule.derivative(), batched * 2, axis, outputs * 2).graph,
        )

    def whole() -> (
        BatchedGraph
    ):  # made when asked for: a forward rule may call the function it belongs to
        kept = len(rule.forward().outputs) - len(outputs)
        return batch(rule.forward(), batched, axis, outputs + (False,) * kept)

    return VjpRule(
        rule.name,
        rule.given,
        lambda: whole().graph,
        lambda: batched_backward(
            rule.backward(), whole().batched[len(outputs) :] + seeds, batched, axis
        ),
    )


def batched_backward(graph: Graph, given: Flags, wanted: Flags, axis: Axis) -> Graph:
    """Cotangents of operands that all rows share are summed over the rows."""
    made = batch(graph, given, axis)
    inputs = fresh_like(made.graph.inputs)
    found = zip(spliced(made.graph, inputs), made.batched, wanted, strict=True)
    return make_graph(
        made.graph.name, inputs, [settled_rows(x, has, wants, axis) for x, has, wants in found]
    )


def settled_rows(x: Node, has: bool, wants: bool, axis: Axis) -> Node:
    if has and not wants:
        return reduce_sum(x, (0,))
    return batching.with_axis(x, has, axis) if wants else x


# -- linear calls ----------------------------------------------------------------------------------


def transpose_linear(node: Node, cotangents: Cotangents, linear: Flags) -> Cotangents:
    fixed = node.param("fixed")
    seeds = [instantiate(ct, kind) for ct, kind in zip(cotangents, node.types, strict=True)]
    found = spliced(node.param("backward"), [*node.inputs[:fixed], *seeds])
    return (*(None,) * fixed, *found)


def push_linear(node: Node, primals: Sequence[Node], tangents: Sequence[Tangent]) -> Both:
    """Where a derivative is differentiated before it was transposed: through its forward graph."""
    graph = node.param("forward")
    if graph is None:
        message = (
            "a function with a custom vjp has no forward derivative, and so no derivative of one"
        )
        raise DerivativeError(
            message, source=node.source, hint="td.custom_jvp gives a rule for both"
        )
    return forward.jvp_call(make_call(graph, primals, node.source), primals, tangents)


def batch_linear(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> Many:
    fixed, graph = node.param("fixed"), node.param("forward")
    whole = (True,) * len(node.types)
    made = batch(graph, batched, axis, whole).graph if graph is not None else None
    backward = batched_backward(
        node.param("backward"), batched[:fixed] + whole, batched[fixed:], axis
    )
    gives = tuple(kind.with_shape((axis.size, *kind.shape)) for kind in node.types)
    return make_linear(made, backward, inputs[:fixed], inputs[fixed:], gives, node.source), whole


# -- computed again --------------------------------------------------------------------------------


# policies that name what is kept, or what is not: the names follow, with commas between
ONLY, BUT = "save_only_these_names:", "save_any_names_but_these:"


def jvp_checkpoint(node: Node, primals: Sequence[Node], tangents: Sequence[Tangent]) -> Both:
    made = jvp(node.param("graph"), flags_of(tangents))
    operands = [*primals, *present(tangents)]
    return made.split(
        make_checkpoint(made.graph, operands, node.source, policy=node.param("policy"))
    )


def linearize_checkpoint(node: Node, primals: Sequence[Node], tangents: Sequence[Tangent]) -> Both:
    """The tangents come from a graph that computes everything again from the operands, and what the
    policy keeps."""
    policy = node.param("policy")
    graph = node.param("graph") if policy is None else without_calls(node.param("graph"))
    linear = linearize(graph, flags_of(tangents))
    count = len(graph.outputs)
    saved = saved_nodes(linear.primal.outputs[count:], policy) if any(linear.changes) else []
    first = make_graph(graph.name, linear.primal.inputs, [*linear.primal.outputs[:count], *saved])
    outputs = make_checkpoint(first, primals, node.source, policy=policy)
    if not any(linear.changes):
        return outputs, linear.spread([])
    inputs, kept, moves = fresh_like(graph.inputs), fresh_like(saved), fresh_like(present(tangents))
    known = dict(zip([*linear.primal.inputs, *saved], [*inputs, *kept], strict=True))
    residuals = linear.residual_values(inputs, rebuild(linear.primal.outputs, known))
    changes = spliced(linear.tangent, [*residuals, *moves])
    again = make_graph(f"{graph.name}.again", [*inputs, *kept, *moves], changes)
    again = without_effects(again, "td.checkpoint computes it again for the derivative")
    operands = [*primals, *outputs[count:], *present(tangents)]
    return outputs[:count], linear.spread(results(make_call(again, operands, node.source)))


def is_kept(node: Node, policy: str) -> bool:
    kind, names = policy.split(":")
    return (node.param("called") in names.split(",")) == (f"{kind}:" == ONLY)


def saved_nodes(wanted: Sequence[Node], policy: str | None) -> list[Node]:
    """Products of matrices that residuals come from; of some policies only those without a
    batch."""
    if policy is None:
        return []
    if policy.startswith((ONLY, BUT)):
        return [n for n in topological(wanted) if n.op is checkpoint_name and is_kept(n, policy)]
    rank = 2 if policy == "dots_with_no_batch_dims_saveable" else math.inf
    return [n for n in topological(wanted) if n.op is matmul and n.type.rank <= rank]


def batch_checkpoint(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> Many:
    made = batch(node.param("graph"), batched, axis)
    return make_checkpoint(
        made.graph, inputs, node.source, policy=node.param("policy")
    ), made.batched


forward.NESTED |= {
    custom_call: jvp_custom,
    linear_call: push_linear,
    checkpoint_call: jvp_checkpoint,
}
linearizing.NESTED |= {
    custom_call: linearize_custom, linear_call: push_linear, checkpoint_call: linearize_checkpoint,
}  # fmt: skip
transposing.NESTED |= {linear_call: transpose_linear}
batching.NESTED |= {
    custom_call: batch_custom,
    linear_call: batch_linear,
    checkpoint_call: batch_checkpoint,
}
