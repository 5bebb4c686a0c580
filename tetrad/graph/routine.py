"""Graph language, routine: a graph prepared for many evaluations, such as the body of a loop.

Receives a graph and the values of its Dims, returns a function from arrays to arrays. Whatever does
not depend on the arrays is done once: the order of nodes, their params, the constants. The first
run goes through `graph.evaluate`, which checks every type; later runs have the same types and are
not checked.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tetrad.core.errors import TetradError
from tetrad.core.record import record
from tetrad.graph.build import call, constant, item
from tetrad.graph.evaluate import bind_value, evaluate
from tetrad.graph.nodes import Graph, Node

Arrays = list[np.ndarray]


@record(eq=False)
class Instruction:
    """One node: registers of operands, registers of results, and the function between them."""

    node: Node
    function: Callable[..., Any]
    operands: tuple[int, ...]
    results: tuple[int, ...]


_known: weakref.WeakKeyDictionary[Graph, dict[tuple[tuple[str, int], ...], Routine]] = (
    weakref.WeakKeyDictionary()
)


def routine(graph: Graph, dims: Mapping[str, int]) -> Routine:
    """The routine of a graph at these sizes; built once and kept as long as the graph."""
    known = _known.setdefault(graph, {})
    key = tuple(sorted(dims.items()))
    if key not in known:
        known[key] = Routine(graph, dims)
    return known[key]


class Routine:
    """A graph as a list of instructions on numbered registers."""

    def __init__(self, graph: Graph, dims: Mapping[str, int]) -> None:
        # weak: the graph owns its routines
        self.graph, self.dims = weakref.ref(graph), dims
        self.registers: list[Any] = [None] * len(graph.inputs)
        self.places: dict[Node, tuple[int, ...]] = {
            node: (i,) for i, node in enumerate(graph.inputs)
        }
        self.instructions: list[Instruction] = []
        for node in graph.nodes():
            if node not in self.places:
                self.add(node)
        self.outputs = [self.places[node][0] for node in graph.outputs]
        self.ran = False

    def add(self, node: Node) -> None:
        if node.op is item:
            self.places[node] = (self.places[node.inputs[0]][node.param("index")],)
            return
        first = len(self.registers)
        self.registers += (
            [node.param("value").array] if node.op is constant else [None] * len(node.types)
        )
        self.places[node] = tuple(range(first, len(self.registers)))
        if node.op is not constant:
            operands = tuple(self.places[operand][0] for operand in node.inputs)
            self.instructions.append(
                Instruction(node, function_of(node, self.dims), operands, self.places[node])
            )

    def __call__(self, arrays: Sequence[np.ndarray]) -> Arrays:
        """The results for these inputs. The first call evaluates the graph itself, which checks
        every type."""
        graph = None if self.ran else self.graph()
        if graph is not None:
            checked = evaluate(graph, arrays, self.dims)
            self.ran = True
            return checked
        values = self.registers.copy()
        values[: len(arrays)] = arrays
        for step in self.instructions:
            try:
                found = step.function(*[values[i] for i in step.operands])
            except TetradError as error:
                raise error.located(step.node.source) from None
            if len(step.results) == 1:
                values[step.results[0]] = found[0] if type(found) is tuple else np.asarray(found)
            else:
                for place, value in zip(step.results, found, strict=True):
                    values[place] = value
        return [values[i] for i in self.outputs]


def function_of(node: Node, dims: Mapping[str, int]) -> Callable[..., Any]:
    """The node as a function of its operands alone; returns a tuple if the op may have several
    results."""
    if node.op is call:
        inner = routine(node.param("graph"), dims)
        return lambda *arrays: tuple(inner(arrays))
    params = {name: bind_value(value, dims) for name, value in node.params}
    reference = node.op.reference
    if node.op.kind == "structural":
        return lambda *arrays: reference(*arrays, dims=dims, **params)
    if node.op.typed:
        params["types"] = tuple(operand.type for operand in node.inputs)
    if node.op.kind in ("reduce", "special"):
        return lambda *arrays: reference(*map(in_order, arrays), **params)
    return (lambda *arrays: reference(*arrays, **params)) if params else reference


def in_order(array: np.ndarray) -> np.ndarray:
    """The array in row-major order: NumPy sums in memory order, and the result must depend on
    values only."""
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)
