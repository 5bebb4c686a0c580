"""The compiler, graphs that run at once: what is evaluated outside `jit`, but reads weights of low
bits, is compiled.

Receives a graph and arrays for its inputs, returns arrays. NumPy would have to decode a weight into
floats before it multiplies; kernels read the codes where they lie.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from tetrad.compiler.jit import NATIVE, Compiled
from tetrad.compiler.program_cache import program_key
from tetrad.core.record import record
from tetrad.core.types import ArrayType
from tetrad.graph.build import constant, fresh_like, make_graph, rebuild
from tetrad.graph.nodes import Graph
from tetrad.passes.inline_custom import INLINE_CUSTOM
from tetrad.passes.step import run_pass
from tetrad.tracing.array import Array, array_type, kept

KEPT = 64  # programs of graphs without large constants

_programs: OrderedDict[str, GraphProgram] = OrderedDict()


@record(eq=False)
class GraphProgram:
    """A compiled graph that takes and gives arrays."""

    executable: Compiled
    outputs: tuple[ArrayType, ...]

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        storages = [x._storage or x.storage(NATIVE.from_numpy) for x in map(kept, arrays)]
        made = self.executable.run(storages, ())
        return [Array.from_storage(k, s) for k, s in zip(self.outputs, made, strict=True)]


def compiled(graph: Graph) -> GraphProgram:
    """The program of a graph whose sizes are known."""
    plain = run_pass(INLINE_CUSTOM, graph)
    outputs = tuple(array_type(o.type.dtype, o.type.shape) for o in graph.outputs)
    return GraphProgram(NATIVE.compile_graph(plain, ()), outputs)


def run(graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of the graph for these inputs; equal graphs are compiled once."""
    whole, constants = without_constants(graph)
    return known_program(whole).run([*arrays, *constants])


def without_constants(graph: Graph) -> tuple[Graph, list[Array]]:
    """The graph with its large constants as further inputs, and those: whoever differentiates a
    function that closes over a weight gets a new graph in every call, but one program."""
    found = [n for n in graph.nodes() if n.op is constant and not n.param("value").is_small]
    if not found:
        return graph, []
    inputs = fresh_like(found)
    outputs = rebuild(graph.outputs, dict(zip(found, inputs, strict=True)))
    values = [array_of(node.param("value").held, node.type) for node in found]
    return make_graph(graph.name, [*graph.inputs, *inputs], outputs), values


def array_of(held: np.ndarray, kind: ArrayType) -> Array:
    return Array.from_bytes(held, kind) if kind.dtype.is_quantized else Array.from_numpy(held)


def known_program(graph: Graph) -> GraphProgram:
    """Large constants are left inside loops alone; such a program is that of one graph."""
    key = program_key(graph, ())
    if key is None:
        return compiled(graph)
    made = _programs.pop(key, None) or compiled(graph)
    _programs[key] = made
    while len(_programs) > KEPT:
        _programs.popitem(last=False)
    return made
