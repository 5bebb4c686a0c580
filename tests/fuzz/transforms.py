"""Programs differentiated or batched. Receives the graph of a program, returns the graph a
transform makes of it.

    jvp    the inputs, a tangent for each float among them
           ->  outputs, tangents of the outputs that change
    grad   the inputs, a cotangent for each output that changes
           ->  outputs, cotangents of the inputs reached
    vmap   three rows of some inputs  ->  three rows of the outputs that depend on them

Arguments beyond the program's own come from its seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import tetrad.transforms.custom_rules
import tetrad.transforms.scans  # noqa: F401  (with custom: fills the tables of the transforms)
from tests.fuzz.program import Dims, Leaf, Program
from tetrad.core.sizes import bind
from tetrad.graph.build import fresh_like, make_graph, spliced
from tetrad.graph.nodes import Graph
from tetrad.ops.cases import exact_array
from tetrad.transforms.batch import Axis, batch
from tetrad.transforms.forward import is_differentiable
from tetrad.transforms.jvp import Flags, jvp
from tetrad.transforms.linearize import linearize
from tetrad.transforms.transpose import transpose

TRANSFORMS = ("jvp", "grad", "vmap")
ROWS = 3


@dataclass(frozen=True)
class Derived:
    """What a transform made: the first `kept` outputs are those of the program; or `batched` ones
    have rows."""

    graph: Graph
    kept: int = 0
    inputs: Flags = ()
    batched: Flags = ()


def derived(program: Program, graph: Graph) -> Derived | None:
    """The transformed graph; None where nothing changes or nothing can have rows."""
    return {"jvp": forward, "grad": reverse, "vmap": rows}[program.transform](program, graph)


def changing(graph: Graph) -> Flags:
    return tuple(is_differentiable(p.type) for p in graph.inputs)


def forward(program: Program, graph: Graph) -> Derived | None:
    made = jvp(graph, changing(graph)) if any(changing(graph)) else None
    return (
        Derived(made.graph, len(graph.outputs)) if made is not None and any(made.changes) else None
    )


def reverse(program: Program, graph: Graph) -> Derived | None:
    wrt = changing(graph)
    linear = linearize(graph, wrt) if any(wrt) else None
    if linear is None or not any(linear.changes):
        return None
    inputs = fresh_like(graph.inputs)
    values = spliced(linear.primal, inputs)
    kept = linear.residual_values(inputs, values)
    seeds = fresh_like(linear.tangent.outputs)
    turned = transpose(
        linear.tangent, (False,) * len(kept) + (True,) * sum(wrt), (True,) * len(seeds)
    )
    count = len(graph.outputs)
    outputs = [*values[:count], *spliced(turned.graph, [*kept, *seeds])]
    return Derived(make_graph("grad", [*inputs, *seeds], outputs), count)


def rows(program: Program, graph: Graph) -> Derived | None:
    """Some inputs, by the seed. Operands of an op's own cases may belong together: they are
    shared."""
    leaves = [program.items[i] for i in program.inputs]
    rng = np.random.default_rng(program.seed)
    flags = tuple(
        isinstance(leaf, Leaf) and not leaf.fill.startswith("case:") and bool(rng.random() < 0.7)
        for leaf in leaves
    )
    if not any(flags):
        return None
    made = batch(graph, flags, Axis(ROWS))
    return Derived(made.graph, inputs=flags, batched=made.batched)


# -- arguments -------------------------------------------------------------------------------------


def arguments(
    program: Program, found: Derived, arrays: Sequence[np.ndarray], dims: Dims
) -> list[np.ndarray]:
    if found.inputs:
        pairs = zip(arrays, found.inputs, strict=True)
        return [np.stack([row(a, i) for i in range(ROWS)]) if flag else a for a, flag in pairs]
    rng = np.random.default_rng(program.seed + 1)
    extra = found.graph.inputs[len(arrays) :]
    return [
        *arrays,
        *(
            exact_array(rng, p.type.dtype, tuple(bind(n, dims) for n in p.type.shape))
            for p in extra
        ),
    ]


def row(array: np.ndarray, i: int) -> np.ndarray:
    """The array's elements, moved on."""
    return np.roll(array.reshape(-1), i).reshape(array.shape)
