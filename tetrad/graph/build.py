"""Graph language, build: the one place that makes nodes and graphs.

Receives an op, operand nodes and params; infers and checks the type; returns the interned node.
Equal nodes are one object.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tetrad.core.dtypes import as_dtype
from tetrad.core.errors import ShapeError, TetradError
from tetrad.core.op import REGISTRY, Op, op
from tetrad.core.owners import lasting
from tetrad.core.sizes import MAX_ELEMENTS
from tetrad.core.source import Source, user_source
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Graph, Literal, Node, ParamItems, topological

_nodes: weakref.WeakValueDictionary[tuple[Any, ...], Node] = weakref.WeakValueDictionary()
_graphs: weakref.WeakValueDictionary[tuple[Any, ...], Graph] = weakref.WeakValueDictionary()
_serial = itertools.count()


def _structural(*args: Any, **params: Any) -> ArrayType:
    raise TypeError("structural nodes are built by graph.build")


def _no_reference(*args: Any, **params: Any) -> Any:
    raise TypeError("structural nodes are evaluated by graph.evaluate")


def _define(name: str, leaf: bool = False) -> Op:
    define = op(type=_structural, kind="structural", name=name, public=False, leaf=leaf)
    return define(_no_reference)


# index: position among the graph's inputs; serial: unique while tracing, else -1
parameter = _define("parameter", leaf=True)
constant = _define("constant", leaf=True)  # value: Literal
call = _define("call")  # graph: Graph; several outputs
item = _define("item")  # index: which result of a call, or of an op with several


def apply(
    op: Op, args: Sequence[Any], params: Mapping[str, Any], source: Source | None = None
) -> Any:
    """op(*args, **params) as a node, a tuple of nodes when the op has several results.

    Plain numbers and arrays among the arguments become constants.
    """
    source = source or user_source()
    partner = next(a for a in args if isinstance(a, Node))
    inputs = tuple(a if isinstance(a, Node) else as_operand(op, a, partner) for a in args)
    try:
        result = op.type(*(i.type for i in inputs), **params)
        for kind in result if isinstance(result, tuple) else (result,):
            if kind is not inputs[0].type:
                check_size(op, kind)
    except TetradError as error:
        raise error.located(source) from None
    if not isinstance(result, tuple):
        return intern(op, inputs, tuple(sorted(params.items())), (result,), source)
    return results(intern(op, inputs, tuple(sorted(params.items())), result, source))


def check_size(op: Op, kind: ArrayType) -> None:
    """Raise an error for a size that no machine can hold, where it arises."""
    known = [n for n in kind.shape if isinstance(n, int)]
    if len(known) == len(kind.shape) and (total := math.prod(known)) > MAX_ELEMENTS:
        message = (
            f"{op.name}: {total} elements exceed the limit of 2**48: the result would be {kind}"
        )
        raise ShapeError(message, hint="check the shapes for a wrong size")


def results(node: Node) -> tuple[Node, ...]:
    """The results of a call, or of an op with several, each as a node."""
    return tuple(make_item(node, i) for i in range(len(node.types)))


def as_operand(op: Op, value: Any, partner: Node) -> Node:
    """A number becomes an array of its partner's dtype (of its partner's shape too, for elementwise
    ops); an array stays as it is."""
    if not isinstance(value, bool | int | float | complex):
        return make_constant(lasting(np.asarray(value)))
    kind = partner.type if op.kind == "elementwise" else partner.type.with_shape(())
    return filled(value, kind)


def filled(value: Any, kind: ArrayType) -> Node:
    """An array with one repeated value; it takes no memory."""
    scalar = make_constant(np.asarray(value, kind.dtype.np))
    return (
        intern(REGISTRY["expand"], (scalar,), (("shape", kind.shape),), (kind,), None)
        if kind.shape
        else scalar
    )


def make_constant(array: np.ndarray, kind: ArrayType | None = None) -> Node:
    """An array as a node; `kind` is the type of quantised blocks, whose array holds bytes. Nobody
    may write to a large array afterwards."""
    return literal_node(
        Literal(array), kind or ArrayType(as_dtype(array.dtype), tuple(array.shape))
    )


def literal_node(literal: Literal, kind: ArrayType) -> Node:
    return intern(constant, (), (("value", literal),), (kind,), None)


def make_parameter(kind: ArrayType, index: int, *, fresh: bool = False) -> Node:
    """An input of a graph. While tracing it is `fresh`: different from every other. In a finished
    graph equal parameters are one."""
    serial = next(_serial) if fresh else -1
    return intern(parameter, (), (("index", index), ("serial", serial)), (kind,), None)


def make_call(graph: Graph, args: Sequence[Node], source: Source | None = None) -> Node:
    kinds = tuple(o.type for o in graph.outputs)
    return intern(call, tuple(args), (("graph", graph),), kinds, source or user_source())


def make_item(node: Node, index: int) -> Node:
    return intern(item, (node,), (("index", index),), (node.types[index],), node.source)


def intern(
    op: Op,
    inputs: tuple[Node, ...],
    params: ParamItems,
    types: tuple[ArrayType, ...],
    source: Source | None,
) -> Node:
    key = (op, tuple(map(id, inputs)), exact(params), types)
    found = _nodes.get(key)
    if found is None:
        found = Node(op, inputs, params, types, source)
        _nodes[key] = found
    return found


def exact(value: Any) -> Any:
    """A param as part of a key. Values that Python calls equal but that differ (0.0 and -0.0, 1 and
    True) get different keys."""
    if isinstance(value, tuple):
        return tuple(map(exact, value))
    if isinstance(value, float):
        return (float, value.hex())  # by its text: to Python nan does not equal itself
    if isinstance(value, complex):
        return (complex, value.real.hex(), value.imag.hex())
    return (bool, value) if isinstance(value, bool) else value


def make_graph(name: str, inputs: Sequence[Node], outputs: Sequence[Node]) -> Graph:
    """A graph with canonical parameters, identified by position alone, so that equal functions give
    equal graphs."""
    canonical = {p: make_parameter(p.type, i) for i, p in enumerate(inputs)}
    rebuilt = rebuild(outputs, canonical)
    key = (name, tuple(map(id, canonical.values())), tuple(map(id, rebuilt)))
    found = _graphs.get(key)
    if found is None:
        found = Graph(name, tuple(canonical.values()), tuple(rebuilt))
        _graphs[key] = found
    return found


def rebuild(outputs: Sequence[Node], replaced: Mapping[Node, Node]) -> list[Node]:
    """The outputs with some nodes replaced, and their users rebuilt."""
    done: dict[Node, Node] = dict(replaced)
    for node in topological(outputs):
        if node not in done:
            done[node] = with_inputs(node, tuple(done[i] for i in node.inputs))
    return [done[o] for o in outputs]


def spliced(graph: Graph, nodes: Sequence[Node]) -> list[Node]:
    """The outputs of a graph applied to these nodes: its body inlined."""
    return rebuild(graph.outputs, dict(zip(graph.inputs, nodes, strict=True)))


def fresh_like(nodes: Sequence[Node]) -> list[Node]:
    """Fresh parameters of the types of these nodes, for a graph to be built."""
    return [make_parameter(node.type, -1, fresh=True) for node in nodes]


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    if all(a is b for a, b in zip(node.inputs, inputs, strict=True)):
        return node
    return intern(node.op, inputs, node.params, node.types, node.source)
