"""Passes, merge_products: products of one array with several constant weights become one product
with all of them side by side, of which each reader has a slice.

Receives a simplified graph, returns one of the same meaning, to the bit: an element of a product
does not depend on the columns beside it. It fires where readers take slices as they lie: views, and
ops that read operands in place, as attention does. Elementwise work on a result stays with its own
product, whose kernel does it; so the two products of a gated unit stay two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tetrad.core.flags import flag_words
from tetrad.core.record import record
from tetrad.core.sizes import Size
from tetrad.graph.build import constant, make_constant, make_graph, with_inputs
from tetrad.graph.group import holds
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.arithmetic import add
from tetrad.ops.matmul.op import is_plain, matmul
from tetrad.ops.movement import expand, slice_, transpose
from tetrad.passes.rewrite import Fired, Rule, RuleLog

NAME = "merge_products"
Users = Mapping[Node, Sequence[Node]]


@record(eq=False)
class LinearLayer:
    """A product of x with a constant weight, and the constant bias that is added to it, if any."""

    product: Node
    weight: Node
    is_turned: bool  # the weight lies [outputs, inputs]
    bias: Node | None
    result: Node


@record(eq=False)
class ProductMerge:
    """Layers of one array that could be one; why they are not, or nothing."""

    layers: tuple[LinearLayer, ...]
    why_not: str = ""


def merge_products(graph: Graph, log: RuleLog | None, simplify: Callable[[Graph], Graph]) -> Graph:
    """The graph with merged products, simplified again where something was merged."""
    off = flag_words("TETRAD_UNFUSED")
    if NAME in off or "encoder_layer" in off:
        return graph
    merges = [merge for merge in candidates(graph) if not merge.why_not]
    if not merges:
        return graph
    first = {layer.result: merge for merge in merges for layer in merge.layers}
    done: dict[Node, Node] = {}
    for node in graph.nodes():
        if node in done:
            continue
        done[node] = with_inputs(node, tuple(done[i] for i in node.inputs))
        if node in first:
            done.update(parts_of_one(first[node].layers, done))
            if log is not None:
                layers = (layer.result for layer in first[node].layers)
                log.fired.extend(Fired(RULE, result, done[result]) for result in layers)
    return simplify(make_graph(graph.name, graph.inputs, [done[o] for o in graph.outputs]))


def parts_of_one(layers: Sequence[LinearLayer], done: Mapping[Node, Node]) -> dict[Node, Node]:
    """One product in place of the layers: the result of each is a slice of it."""
    axis = 0 if layers[0].is_turned else 1
    weights = [layer.weight.param("value").array for layer in layers]
    whole: Node = make_constant(np.concatenate(weights, axis=axis))
    whole = transpose(whole, perm=(1, 0)) if layers[0].is_turned else whole
    made = matmul(done[layers[0].product.inputs[0]], whole)
    if layers[0].bias is not None:
        biases = [
            np.ravel(layer.bias.param("value").array) for layer in layers if layer.bias is not None
        ]
        made = add(made, expand(make_constant(np.concatenate(biases)), shape=made.type.shape))
    found: dict[Node, Node] = {}
    start: Size = 0
    for layer in layers:
        shape = layer.result.type.shape
        found[layer.result] = slice_(made, starts=(0, start), sizes=shape, steps=(1, 1))
        start = start + shape[1]
    return found


RULE = Rule(f"{NAME}.one_product", (), lambda: None, None)


# -- where -----------------------------------------------------------------------------------------


def candidates(graph: Graph) -> Iterator[ProductMerge]:
    """Every array with several products, with their layers in order."""
    users: dict[Node, list[Node]] = {}
    for node in graph.nodes():
        for operand in dict.fromkeys(node.inputs):
            users.setdefault(operand, []).append(node)
    alike: dict[object, list[LinearLayer]] = {}
    for node in graph.nodes():
        layer = layer_of(node, users)
        if layer is not None:
            alike.setdefault((node.inputs[0], layer.is_turned), []).append(layer)
    outputs = set(graph.outputs)
    for layers in alike.values():
        if len(layers) > 1:
            yield ProductMerge(tuple(layers), reason(layers, users, outputs))


def layer_of(node: Node, users: Users) -> LinearLayer | None:
    """The product of a matrix and a constant one, with its bias."""
    if not is_plain(node) or node.type.rank != 2:
        return None
    right = node.inputs[1]
    weight = right.inputs[0] if right.op is transpose else right
    if weight.op is not constant:
        return None
    readers = users.get(node, ())
    bias = bias_of(readers[0], node) if len(readers) == 1 else None
    result = node if bias is None else readers[0]
    return LinearLayer(node, weight, right.op is transpose, bias, result)


def bias_of(node: Node, product: Node) -> Node | None:
    """A constant along the columns that is added to a product."""
    if node.op is not add or node.inputs[0] is not product or node.inputs[1].op is not expand:
        return None
    small = node.inputs[1].inputs[0]
    is_row = small.type.size == product.type.shape[1] and small.type.shape[-1:] == (
        product.type.shape[1],
    )
    return small if small.op is constant and is_row else None


def reason(layers: Sequence[LinearLayer], users: Users, outputs: set[Node]) -> str:
    """Why the layers are not one product; nothing where they are."""
    if len({layer.bias is None for layer in layers}) > 1:
        return "some have a bias, some have none"
    for layer in layers:
        if layer.product in outputs or any(v in outputs for v in views_of(layer.result, users)):
            return "a result is an output of the program"
        for reader in users.get(layer.result, ()):
            if not (is_seen_through(reader) or holds(reader.op.prologue, reader)):
                return f"{reader.op.name} works on one of the results"
    return ""


def views_of(node: Node, users: Users) -> Iterator[Node]:
    """A node, and every view of it."""
    yield node
    for reader in users.get(node, ()):
        if is_seen_through(reader):
            yield from views_of(reader, users)


def is_seen_through(node: Node) -> bool:
    return node.op.view or node.op.strided
