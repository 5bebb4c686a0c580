"""Kernel language, library, analysis: questions about programs, asked as kernels.

What can be reached in a graph: a launch follows every edge once, and a flag tells whether anything
was found, so that the caller launches again until nothing is.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import u8, u32
from tetrad.core.machine import LANES
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.library.sizes import checked_product, refuse_empty
from tetrad.kernel.nodes import Program
from tetrad.kernel.packing import pack
from tetrad.kernel.registry import Fixpoint, Grid, Sample, register


def lanes(nodes: int = 4) -> Grid:
    return (-(-nodes // LANES), 1, 1)


@register(
    "tetrad::analysis::reachable",
    category="analysis",
    grid=lanes,
    fixpoint=Fixpoint("changed", {"found": "reached"}),
    # 0 -> 1 -> 2, and 3 -> 0
    inputs=[[bytes([0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]), bytes([1, 0, 0, 0])]],
    expected=[[bytes([1, 1, 1, 0]), pack([0], u32)]],
)
def reachable(nodes: int = 4) -> Program:
    """found[i] = reached[i], or an edge leads there from a node that is reached. edges[j, i] = 1:
    from j to i. changed[0] = 1 if a node was found now."""
    refuse_empty("reachable", nodes=nodes)
    k = KernelBuilder("reachable", LANES)
    size = checked_product("reachable", "nodes * nodes", nodes, nodes)
    edges, reached = k.buffer("edges", u8, count=size), k.buffer("reached", u8, count=nodes)
    found = k.buffer("found", u8, "write", nodes)
    changed, i = k.buffer("changed", u32, "write", 1), k.global_id()
    with k.when(i < nodes, guard=True):
        here = k.local(k.load(reached, i))
        with k.loop(nodes, always=True) as j:
            here.set(here.get() | k.load(edges, j * nodes + i) & k.load(reached, j))
        k.store(found, i, here.get())
        with k.when(here.get().ne(k.load(reached, i))):
            k.store(changed, 0, k.const(1, u32), hint="same")
    return k.finish()


@reachable.sampler
def reachable_sample(rng: np.random.Generator) -> Sample:
    nodes = int(rng.integers(1, 40))
    edges = (rng.random((nodes, nodes)) < 1.5 / nodes).astype(np.uint8)
    start, answer = np.eye(1, nodes, dtype=np.uint8)[0], {0}
    waiting = [0]
    while waiting:
        new = set(np.flatnonzero(edges[waiting.pop()]).tolist()) - answer
        answer |= new
        waiting += new
    found = np.isin(np.arange(nodes), list(answer)).astype(np.uint8)
    outputs = (found.tobytes(), pack([0], u32))
    return Sample((nodes,), (edges.tobytes(), start.tobytes()), outputs)
