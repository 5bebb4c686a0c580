"""Passes, split: complex arrays become pairs of real arrays.

Receives and returns graphs. Kernels have no complex type: the `split` rule of an op turns a complex
node into two real nodes. Inputs, and results of calls and of ops that take complex memory (`fft`,
LAPACK), are read part by part; outputs and operands of those ops are joined. A program without
complex numbers stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.core import lazy
from tetrad.core.source import taken_from
from tetrad.graph.build import constant, make_constant, make_graph, with_inputs
from tetrad.graph.nodes import Graph, Literal, Node
from tetrad.ops.complex import join, part
from tetrad.ops.movement import expand
from tetrad.passes.rewrite import RuleLog, Rules, var

Pair = tuple[Node, Node]
parts = Rules("parts")
x, y = var("x"), var("y")


@parts.rule(part(join(x, y), which=var("which")))
def part_of_joined(x: Node, y: Node, which: int) -> Node:
    """part(join(x, y), 0)  ->  x."""
    return y if which else x


@parts.rule(join(part(x, which=0), part(x, which=1)))
def joined_again(x: Node) -> Node:
    """join(part(x, 0), part(x, 1))  ->  x."""
    return x


def split(graph: Graph, trace: RuleLog | None = None) -> Graph:
    """The graph with every complex node split into its parts; parameters and outputs keep their
    types."""
    nodes = graph.nodes()
    if not any(kind.dtype.is_complex for node in (*graph.inputs, *nodes) for kind in node.types):
        return graph
    lazy.module("tetrad.ops.split")  # it attaches the rules
    return make_graph(graph.name, graph.inputs, _Split(nodes).whole(graph.outputs))


class _Split:
    """What each node became: a node of its own type, or the parts of a complex number, or both."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.kept: dict[Node, Node] = {}
        self.pairs: dict[Node, Pair] = {}
        for node in nodes:
            with taken_from(node.source):
                self.add(node)

    def add(self, node: Node) -> None:
        is_met = any(n.type.dtype.is_complex for n in (node, *node.inputs) if len(n.types) == 1)
        if node.op is constant and is_met:
            self.pairs[node] = constant_parts(node)
        elif is_met and node.op.split_rule is not None:
            self.apply(node)
        else:
            self.kept[node] = with_inputs(node, tuple(self.whole(node.inputs)))

    def apply(self, node: Node) -> None:
        operands = [self.parts(i) if i.type.dtype.is_complex else self.kept[i] for i in node.inputs]
        made: Any = node.op.split_rule(*operands, **dict(node.params))  # type: ignore[misc]
        if isinstance(made, tuple):
            self.pairs[node] = made
        else:
            self.kept[node] = made

    def parts(self, node: Node) -> Pair:
        if node not in self.pairs:
            held = self.kept[node]
            self.pairs[node] = part(held, which=0), part(held, which=1)
        return self.pairs[node]

    def whole(self, nodes: Sequence[Node]) -> list[Node]:
        """The nodes for ops that are not split: complex ones joined."""
        for node in nodes:
            if node not in self.kept:
                with taken_from(node.source):
                    self.kept[node] = join(*self.pairs[node])
        return [self.kept[node] for node in nodes]


def constant_parts(node: Node) -> Pair:
    """A small constant, or one with a single value, becomes two; a large one stays in memory and is
    read part by part."""
    literal: Literal = node.param("value")
    if not literal.is_small and literal.splat is None:
        return part(node, which=0), part(node, which=1)
    if literal.splat is None or literal.held.size == 1:
        return make_constant(np.real(literal.array).copy()), make_constant(
            np.imag(literal.array).copy()
        )
    one = [make_constant(np.asarray(p)) for p in (literal.splat.real, literal.splat.imag)]
    return expand(one[0], shape=node.type.shape), expand(one[1], shape=node.type.shape)
