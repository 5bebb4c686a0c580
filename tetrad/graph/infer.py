"""Graph language, infer: types of results and Dims in use.

Receives an op with operands and params, or a graph; returns types or Dims. The parser and the
verifier ask here.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any

from tetrad.core.op import Op
from tetrad.core.sizes import Named, SizeExpr, dims_of
from tetrad.core.types import ArrayType
from tetrad.graph.build import call, item
from tetrad.graph.nodes import Graph, Node


def infer(op: Op, inputs: tuple[Node, ...], params: Mapping[str, Any]) -> tuple[ArrayType, ...]:
    """The types of an op's results, by the op's own rule; `call` and `item` follow the graph and
    the call."""
    if op is call:
        return _call_types(inputs, **params)
    if op is item:
        return _item_types(*inputs, **params)
    extra = {"types": ()} if op.typed else {}
    # a type rule may take any number of operands; the op's signature does not
    bound = _signature(op).bind(*inputs, **params, **extra)
    if len(bound.args) != len(inputs):
        raise TypeError(f"{op.name}: operands are positional, settings are named")
    found = op.type(*(i.type for i in inputs), **params)
    return found if isinstance(found, tuple) else (found,)


_signature = cache(lambda op: inspect.signature(op.reference))


def _call_types(inputs: tuple[Node, ...], *, graph: Graph) -> tuple[ArrayType, ...]:
    if not isinstance(graph, Graph):
        raise TypeError(f"graph is {graph!r}")
    wanted, given = ([str(n.type) for n in nodes] for nodes in (graph.inputs, inputs))
    if wanted != given:
        raise TypeError(f"graph {graph.name} takes {', '.join(wanted)}, not {', '.join(given)}")
    return tuple(o.type for o in graph.outputs)


def _item_types(node: Node, *, index: int) -> tuple[ArrayType, ...]:
    if not isinstance(index, int) or not 0 <= index < len(node.types):
        raise TypeError(f"index {index} is none of {len(node.types)} results")
    return (node.types[index],)


def dims_in(graph: Graph) -> set[Named]:
    """Every Dim that a type or a param of the graph mentions."""
    nodes = (*graph.inputs, *graph.nodes())
    found = {
        dim
        for shape in {t.shape for node in nodes for t in node.types}
        for dim in _dims_of_value(shape)
    }
    return found.union(*(_dims_of_value(value) for node in nodes for _, value in node.params))


def dim_names(graph: Graph) -> tuple[str, ...]:
    """The Dims of the inputs, in the order in which a program takes their sizes."""
    return tuple(
        sorted({dim.name for node in graph.inputs for n in node.type.shape for dim in dims_of(n)})
    )


def _dims_of_value(value: Any) -> set[Named]:
    if isinstance(value, tuple):
        return {dim for part in value for dim in _dims_of_value(part)}
    return dims_of(value) if isinstance(value, SizeExpr) else set()
