"""An engine for tests: graphs are evaluated with NumPy instead of compiled, so tracing is tested by
itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tetrad.backends.cpu.memory import Storage
from tetrad.compiler.jit import Jitted
from tetrad.core.sizes import bind, dims_of
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Graph
from tetrad.graph.verify import verify


class EvaluatedGraph:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.dims = sorted({d.name for i in graph.inputs for n in i.type.shape for d in dims_of(n)})

    def run(self, storages: Sequence[Storage], dims: tuple[int, ...]) -> list[Storage]:
        values = dict(zip(self.dims, dims, strict=True))
        kinds = [
            (i.type.dtype.np, tuple(bind(n, values) for n in i.type.shape))
            for i in self.graph.inputs
        ]
        arrays = [s.as_numpy(*kind) for s, kind in zip(storages, kinds, strict=True)]
        results = evaluate(self.graph, arrays, values)
        return [Storage.from_numpy(np.array(result, order="C")) for result in results]


class Evaluator:
    """Checks every graph and remembers what it was asked for."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.donated: list[tuple[int, ...]] = []

    from_numpy = staticmethod(Storage.from_numpy)

    def prepare(self) -> None:
        """Nothing to get ready."""

    def compile_graph(self, graph: Graph, donated: tuple[int, ...]) -> EvaluatedGraph:
        verify(graph)
        self.graphs.append(graph)
        self.donated.append(donated)
        return EvaluatedGraph(graph)


def jit(function: Callable[..., Any], **settings: Any) -> Jitted:
    return Jitted(function, Evaluator(), **settings)
