"""Lowering, concat of many parts: each part is written where it goes by a launch of its own.

One kernel for all parts would hold a branch for each of them; here the place of a part is an
argument, so that parts that are alike share one kernel. Concats of few parts, or of many kinds, are
read through (`ops.movement`).
"""

from __future__ import annotations

from itertools import accumulate

from tetrad.core.sizes import Size
from tetrad.graph.group import Group, inputs_of
from tetrad.graph.nodes import Node
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.reader import At
from tetrad.lower.elementwise import parts_of, walk_rows
from tetrad.schedule.nodes import Launch


def lower_concat(group: Group, inputs: list[Node], memory: Memory) -> list[Launch]:
    parts, axis = group.root.inputs, group.root.param("axis")
    starts = accumulate((part.type.shape[axis] for part in parts), initial=0)
    placed = [
        (part, start)
        for part, start in zip(parts, starts, strict=False)
        if 0 not in part.type.shape
    ]
    return [lower_part(group, part, start, set(inputs), memory) for part, start in placed]


def lower_part(group: Group, part: Node, start: Size, inputs: set[Node], memory: Memory) -> Launch:
    """whole[..., start + i, ...] = part[..., i, ...]"""
    whole, axis = group.root, group.root.param("axis")
    frame = Frame(group.name, memory)
    frame.is_light = True
    frame.reads(
        [part] if part in inputs else inputs_of(Group("map", part, (part,), (part,)), inputs)
    )
    written, first = frame.output(memory.slots[whole]), frame.sizes.argument(start)

    def store(at: At) -> None:
        there = (*at[:axis], first + at[axis], *at[axis + 1 :])
        frame.write(written, whole, there, *parts_of(frame, part, at))

    groups = walk_rows(frame, part.type.shape, store)
    return frame.finish(groups, group, updates=frozenset({memory.slots[whole]}))
