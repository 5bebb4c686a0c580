"""Kernels that write a part of an array whose place is data: where the array lies, the rest of it
untouched."""

from __future__ import annotations

from tetrad.core.dtypes import index
from tetrad.core.machine import LANES
from tetrad.core.sizes import ceil_div, product
from tetrad.core.types import row_strides
from tetrad.graph.group import Group
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space, offset
from tetrad.ops.dynamic.op import dynamic_update_slice
from tetrad.schedule.nodes import Launch


@dynamic_update_slice.kernel
def lower_dynamic_update_slice(frame: Frame, group: Group) -> Launch | list[Launch]:
    """Sixteen elements of the update a workgroup, each to its place."""
    node, k, sizes = group.root, frame.k, frame.sizes
    _, update, starts = node.inputs
    shape, part = node.type.shape, update.type.shape
    if 0 in part:
        return []
    out = frame.output(frame.memory.slots[node], "readwrite")
    count = product(part)
    lane = k.group_id() * LANES + k.lane()
    with frame.within(lane, sizes.val(count), count):
        at = Space(k, sizes, part, lane).axes()
        places = []
        for axis, (i, size, total) in enumerate(zip(at, part, shape, strict=True)):
            if size == total:
                places.append(i)
                continue
            start = k.max(k.cast(frame.reading.wide(starts, (k.index(axis),)), index), k.index(0))
            places.append(k.min(start, sizes.val(total) - sizes.val(size)) + i)
        where = offset(sizes, tuple(places), shape, row_strides(shape))
        k.store(out, where, k.cast(frame.reading.wide(update, at), node.type.dtype))
    return frame.finish(
        ceil_div(count, LANES), group, updates=frozenset({frame.memory.slots[node]})
    )
