"""Transforms, linear transpose: `linear_transpose`, a linear function turned around, as in JAX.

Receives a linear function of trees of arrays, and arrays or `Spec`s that say what it takes; returns
the function that goes the other way. The change of a linear function is the function itself, so
`transforms.linearize` finds it, and finds what is not linear: then a change depends on where it
begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tetrad.transforms.branches
import tetrad.transforms.custom_rules
import tetrad.transforms.scans  # noqa: F401
from tetrad.core.errors import DtypeError, TraceError
from tetrad.core.floats import guarded
from tetrad.core.tree import unflatten
from tetrad.core.types import ArrayType
from tetrad.graph.build import call, filled, make_graph
from tetrad.graph.custom import checkpoint_call
from tetrad.graph.loops import switch
from tetrad.graph.nodes import Graph, Node, topological
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array
from tetrad.tracing.run_graph import run_graph
from tetrad.tracing.signature import check_function, signature_of
from tetrad.tracing.trace import ArgumentKind, Spec, kinds_of, trace_function
from tetrad.transforms.forward import is_differentiable
from tetrad.transforms.linear_functions import matching, zeros_of
from tetrad.transforms.linearize import Linear, depends_on
from tetrad.transforms.linearize import linearize as linearize_graph
from tetrad.transforms.transpose import transpose as transpose_graph

Function = Callable[..., Any]


@guarded
def linear_transpose(fun: Function, *primals: Any) -> Function:
    """A linear function turned around: from cotangents of what it returns to cotangents of its
    arguments, a tuple.

    primals   arrays like the arguments, or `td.Spec`s: only their shapes and dtypes matter

    >>> import tetrad as td
    >>> back = td.linear_transpose(lambda x: td.stack([x, 10 * x]), td.Spec((2,)))
    >>> back(td.asarray([[1.0, 2.0], [3.0, 4.0]]))
    (Array([31., 42.], float32),)
    """
    check_function("linear_transpose", fun)
    signature = signature_of(fun, (), ())
    arguments = signature.arguments(primals, {})
    kinds_of(signature, arguments)  # names an argument that is no array
    kinds = [x.type if isinstance(x, Spec) else as_array(x).type for x in arguments.leaves]
    check_kinds(kinds, signature.leaf_names(arguments))
    made = trace_function(signature, fun, arguments, [ArgumentKind(kind) for kind in kinds])
    linear = linearize_graph(made.graph, (True,) * len(kinds) + (False,) * len(made.captured))
    kept = run_graph(residuals(linear, len(kinds), signature.name), made.captured)
    results = [o.type for o in made.graph.outputs]

    def back(cotangents: Any) -> Any:
        seeds = matching(
            cotangents, made.tree, results, "linear_transpose: cotangents", signature.name
        )
        given = [seed for seed, changes in zip(seeds, linear.changes, strict=True) if changes]
        return unflatten(arguments.tree.parts[0], pulled_back(linear, kept, given, kinds))

    return back


@guarded
def pulled_back(
    linear: Linear, kept: list[Array], given: list[Array], kinds: list[ArrayType]
) -> list[Array]:
    """A cotangent for each leaf of the arguments, zeros for those the results do not depend on."""
    flags = (False,) * len(kept) + (True,) * len(kinds)
    turned = transpose_graph(linear.tangent, flags, (True,) * len(given))
    found = iter(run_graph(turned.graph, [*kept, *given]))
    return [
        next(found) if reached else zeros_of(kind)
        for reached, kind in zip(turned.reached, kinds, strict=True)
    ]


def residuals(linear: Linear, count: int, name: str) -> Graph:
    """What the linear part needs, from what the function found outside alone."""
    inputs = linear.primal.inputs
    nodes = linear.residual_values(inputs, linear.primal.outputs)
    outputs = linear.primal.outputs[: len(linear.changes)]
    reached, needed = (
        depends_on([*nodes, *outputs], set(inputs[:count])),
        needed_inputs(linear.tangent),
    )
    in_use = [
        n for n, parameter in zip(nodes, linear.tangent.inputs, strict=False) if parameter in needed
    ]
    # floor, argmax, ...
    in_steps = [n for n, changes in zip(outputs, linear.changes, strict=True) if not changes]
    if any(node in reached for node in (*in_use, *in_steps)):
        message = (
            f"linear_transpose: {name} is not linear: how much it changes depends on where it "
            "begins"
        )
        fail(TraceError, message, "td.vjp turns the change of any function around")
    known = [filled(0, node.type) if node in reached else node for node in nodes]
    return make_graph(f"{name}.residuals", inputs[count:], known)


def needed_inputs(graph: Graph) -> set[Node]:
    """The inputs that some output is computed from. Branches and checkpoints are handed all there
    is, needed or not."""
    needed = set(graph.outputs)
    for node in reversed(tuple(topological(graph.outputs))):
        if node in needed:
            needed.update(needed_operands(node))
    return needed


def needed_operands(node: Node) -> list[Node]:
    if node.op not in (call, checkpoint_call, switch):
        return list(node.inputs)
    graphs = node.param("branches") if node.op is switch else (node.param("graph"),)
    operands = node.inputs[1:] if node.op is switch else node.inputs
    columns = [(g.inputs, needed_inputs(g)) for g in graphs]
    chosen = [
        x for i, x in enumerate(operands) if any(inputs[i] in found for inputs, found in columns)
    ]
    return [*node.inputs[: len(node.inputs) - len(operands)], *chosen]


def check_kinds(kinds: list[ArrayType], names: list[str]) -> None:
    for kind, name in zip(kinds, names, strict=True):
        if not is_differentiable(kind):
            message = (
                f"linear_transpose: the argument {name} is {kind}, only floats can be turned around"
            )
            fail(DtypeError, message, "close over what is constant")
