"""Graph language, verify: the rules that every graph obeys between any two stages.

Receives a graph, returns nothing, or raises a `VerifyError` whose code names the broken rule:

    G001  a graph input is a parameter whose index is its position
    G002  no parameter that was fresh while tracing is left
    G003  every parameter used is an input of the graph
    G004  params are hashable, sorted by name, each name once
    G005  the op accepts its operands and settings
    G006  the recorded type is the one the op's rule infers
    G007  a call matches the signature of its graph
    G008  several results are taken apart by `item`, with an index in range
    G009  a constant's type is that of its array
    G010  a Dim has one bound, and an input has an axis that mentions it
    G011  an op is the one registered under its name
"""

from __future__ import annotations

from tetrad.core.dtypes import as_dtype, u8
from tetrad.core.errors import TetradError, VerifyError
from tetrad.core.op import REGISTRY
from tetrad.core.sizes import dims_of
from tetrad.core.types import ArrayType
from tetrad.graph.build import call, constant, item, parameter
from tetrad.graph.infer import dims_in, infer
from tetrad.graph.nested import innermost_first
from tetrad.graph.nodes import Graph, Literal, Node


def verify(graph: Graph) -> None:
    """Check the graph and every graph inside it."""
    for part in innermost_first(graph):
        verify_one(part)


def verify_one(graph: Graph) -> None:
    """Check one graph, not the graphs its nodes hold."""
    for position, node in enumerate(graph.inputs):
        verify_input(graph, node, position)
    inputs = set(graph.inputs)
    for node in graph.nodes():
        verify_params(node)
        if node.op is parameter:
            verify_parameter(graph, node, node in inputs)
        else:
            verify_node(node)
    verify_outputs(graph)
    verify_dims(graph)


def _error(code: str, node: Node, message: str) -> VerifyError:
    return VerifyError(code, f"{node.op.name}: {message}", source=node.source)


def verify_input(graph: Graph, node: Node, position: int) -> None:
    if node.op is not parameter or node.param("index") != position:
        raise _error(
            "G001",
            node,
            f"input {position} of graph {graph.name} is not the parameter with that index",
        )


def verify_parameter(graph: Graph, node: Node, is_input: bool) -> None:
    if node.param("serial") != -1:
        raise _error(
            "G002", node, f"graph {graph.name} holds a {node.type} that only lives while tracing"
        )
    if not is_input:
        raise _error(
            "G003",
            node,
            f"{node.type} number {node.param('index')} is not an input of graph {graph.name}",
        )


def verify_params(node: Node) -> None:
    names = [name for name, _ in node.params]
    if names != sorted(set(names)):
        raise _error("G004", node, f"params are not sorted, each once: {', '.join(names)}")
    try:
        hash(node.params)
    except TypeError:
        raise _error("G004", node, f"a param among {', '.join(names)} is not hashable") from None


def verify_node(node: Node) -> None:
    if REGISTRY.get(node.op.name) is not node.op:
        raise _error("G011", node, "is not the op registered under its name")
    if node.op is not item and any(len(i.types) != 1 for i in node.inputs):
        raise _error("G008", node, "an operand has several results; item takes one of them")
    if node.op is constant:
        verify_constant(node)
        return
    verify_type(node)


def verify_constant(node: Node) -> None:
    literal = node.params[0][1] if len(node.params) == 1 else None
    if node.inputs or not isinstance(literal, Literal):
        raise _error("G009", node, "holds something other than one array")
    kind = ArrayType(as_dtype(literal.held.dtype), literal.held.shape)
    if node.type.dtype.is_quantized and kind == ArrayType(u8, node.type.storage_shape):
        return
    if node.types != (kind,):
        raise _error("G009", node, f"the array is {kind}, the node says {_shown(node.types)}")


def verify_type(node: Node) -> None:
    try:
        inferred = infer(node.op, node.inputs, dict(node.params))
    except (TetradError, TypeError, ValueError) as problem:
        code = {call: "G007", item: "G008"}.get(node.op, "G005")
        message = problem.message if isinstance(problem, TetradError) else str(problem)
        raise _error(
            code, node, f"does not accept {_shown([i.type for i in node.inputs])}: {message}"
        ) from None
    if inferred != node.types:
        raise _error(
            "G006", node, f"has type {_shown(node.types)}, its rule infers {_shown(inferred)}"
        )


def verify_outputs(graph: Graph) -> None:
    for node in graph.outputs:
        if len(node.types) != 1:
            raise _error(
                "G008", node, "an output of a graph has several results; item takes one of them"
            )


def verify_dims(graph: Graph) -> None:
    """Every Dim must occur in the shape of an input, which determines its value."""
    known = {d for node in graph.inputs for size in node.type.shape for d in dims_of(size)}
    for dim in sorted(dims_in(graph), key=lambda d: (d.name, d.max)):
        if dim not in known:
            shown = f"{dim.name} (max {dim.max})"
            raise VerifyError(
                "G010", f"graph {graph.name}: no input has an axis with the Dim {shown}"
            )
    names = [d.name for d in known]
    for name in sorted(names):
        if names.count(name) > 1:
            raise VerifyError("G010", f"graph {graph.name}: the Dim {name} has several bounds")


def _shown(types: list[ArrayType] | tuple[ArrayType, ...]) -> str:
    return ", ".join(map(str, types)) or "nothing"
