"""Explain, inside: what a model does in one decoding step, as plain data.

Receives the path of a model, or its description and the explanation of a step; returns what the
page of a server shows. The fields are listed in docs/serve-page.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tetrad.core.visible import visible
from tetrad.explain.layout import lay_out
from tetrad.explain.page import box_width, drawn_edges, group_id, label
from tetrad.explain.parts import GraphPart
from tetrad.explain.story import Explanation, KernelStory, explain
from tetrad.graph.constants import constant_value
from tetrad.graph.nodes import Node
from tetrad.hub.describe import Description
from tetrad.models.load import load_parts
from tetrad.passes.fused import ordered
from tetrad.tracing.array import Array

Data = dict[str, Any]
MOST_NODES = 600  # of a graph that is drawn; the layout of a larger one takes seconds
BEFORE = 255  # tokens in the cache when the step is measured
LONGEST_TEXT = 20_000  # of a kernel that is shown


def decode_step(path: Path) -> Explanation:
    """The story of one token after a few others, with every kernel timed."""
    parts = load_parts(path, context=BEFORE + 1)
    state = parts.programs.state(1, BEFORE + 1)
    token, slot, position, rows = (
        Array.from_numpy(np.array([n], np.int32)) for n in (0, 0, BEFORE, 0)
    )
    return explain(parts.programs.single)(token, slot, position, rows, *state)


def inside(found: Description, step: Explanation, context: int) -> Data:
    kernels = list(by_name(step.kernels).values())
    kernels.sort(key=lambda of: -sum(kernel.ns for kernel in of))
    numbers = {of[0].name: number for number, of in enumerate(kernels)}
    return {
        "model": model_data(found, context),
        "memory": memory_data(found, context),
        "step": step_data(step),
        "kernels": [kernel_data(of) for of in kernels],
        "sequence": [[numbers[kernel.name], kernel.ns] for kernel in step.kernels],
        "graphs": [graph_data(step, part, numbers) for part in drawn_parts(step)],
        "arena": arena_data(step),
    }


def by_name(kernels: Sequence[KernelStory]) -> dict[str, list[KernelStory]]:
    found: dict[str, list[KernelStory]] = {}
    for kernel in kernels:
        found.setdefault(kernel.name, []).append(kernel)
    return found


def model_data(found: Description, context: int) -> Data:
    file = visible(Path(found.path).name)
    return {
        "name": visible(found.title) or file,
        "file": file,
        "architecture": found.architecture,
        "quant": found.quant,
        "parameters": found.parameters,
        "layers": found.number("block_count"),
        "width": found.number("embedding_length"),
        "vocabulary": found.vocabulary,
        "context": context,
        "weight_bytes": found.weight_bytes,
    }


def memory_data(found: Description, context: int) -> list[Data]:
    parts = [
        {"name": f"{kind.format}, {kind.count} tensors", "bytes": kind.nbytes}
        for kind in found.kinds
    ]
    cache = {"name": f"keys and values, {context} tokens", "bytes": found.cache_bytes(context)}
    return [*parts, cache]


def step_data(step: Explanation) -> Data:
    return {
        "ns": step.wall_ns,
        "launches": len(step.kernels),
        "threads": step.threads,
        "bytes": sum(kernel.nbytes for kernel in step.kernels),
        "roof": step.all.memory * 1e9,
        "busy": step.is_busy,
    }


def kernel_data(of: Sequence[KernelStory]) -> Data:
    """All launches of one kernel."""
    return {
        "name": of[0].name,
        "text": of[0].text[:LONGEST_TEXT],
        "launches": len(of),
        "bytes": sum(kernel.nbytes for kernel in of),
        "flops": sum(kernel.flops for kernel in of),
        "ns": sum(kernel.ns for kernel in of),
        "least_ns": sum(
            min(kernel.ns, max(kernel.memory_ns, kernel.arithmetic_ns)) for kernel in of
        ),
        "bound": of[0].bound,
    }


# -- graphs ----------------------------------------------------------------------------------------


def drawn_parts(step: Explanation) -> Iterator[GraphPart]:
    for part in step.parts:
        if len(ordered(part.graph)) <= MOST_NODES:
            yield part


def graph_data(step: Explanation, part: GraphPart, numbers: Mapping[str, int]) -> Data:
    """Boxes and lines with their places: operands above users."""
    nodes = [node for node in ordered(part.graph) if constant_value(node) is None]
    shown = set(nodes)
    edges = [(operand, node) for node in nodes for operand in node.inputs if operand in shown]
    layout = lay_out({node: box_width(node) for node in nodes}, edges)
    kernels = kernels_of(step, part, numbers)
    return {
        "name": part.graph.name,
        "width": round(layout.width),
        "height": round(layout.height),
        "nodes": [node_data(part, node, layout.centres[node], kernels) for node in nodes],
        "edges": [[[round(x), round(y)] for x, y in path] for _, path in drawn_edges(layout)],
    }


def kernels_of(step: Explanation, part: GraphPart, numbers: Mapping[str, int]) -> dict[int, int]:
    """The kernel of each group."""
    place, found = step.parts.index(part), {}
    for kernel in step.kernels:
        group = group_id(step, kernel.launch)
        if group is not None and group[0] == place:
            found[group[1]] = numbers[kernel.name]
    return found


def node_data(
    part: GraphPart, node: Node, centre: tuple[float, float], kernels: Mapping[int, int]
) -> Data:
    groups = part.computed.get(node, ())
    return {
        "label": label(node),
        "type": str(node.type),
        "line": part.lines[node],
        "x": round(centre[0]),
        "y": round(centre[1]),
        "width": round(box_width(node)),
        "kernel": next((kernels[group] for group in groups if group in kernels), None),
    }


# -- memory of intermediates -----------------------------------------------------------------------


def arena_data(step: Explanation) -> Data:
    buffers = [
        {
            "name": life.name,
            "bytes": life.nbytes,
            "offset": offset,
            "first": life.first,
            "last": life.last,
        }
        for life, offset in zip(step.lives, step.plan.offsets, strict=True)
    ]
    return {
        "bytes": step.arena_bytes,
        "unshared": step.intermediate_bytes,
        "steps": len(step.steps),
        "buffers": buffers,
    }
