"""Kernels of scattered sums: updates in order, a workgroup owns 16 columns of the trailing axes, so
no two write one element.
"""

from __future__ import annotations

from tetrad.core.dtypes import index
from tetrad.core.machine import LANES
from tetrad.core.sizes import ceil_div, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.ops.rules import HALVES
from tetrad.ops.scatter.op import add_at, scatter_add
from tetrad.schedule.nodes import Launch


@scatter_add.kernel
def lower_scatter_add(frame: Frame, group: Group) -> Launch:
    """Zero, then updates in order; a workgroup owns 16 columns of the trailing axes, so no two
    write one element.

    Sums of halves wait in scratch as f32: each is rounded once, at the end.
    """
    node, k = group.root, frame.k
    updates, indices = node.inputs
    dtype, wide = node.type.dtype, node.type.dtype.computing
    size, columns = node.type.shape[0], product(node.type.shape[1:])
    n, width = frame.sizes.val(size), frame.sizes.val(columns)
    column = k.index(0) if columns == 1 else k.group_id() * LANES + k.lane()
    is_half = dtype in HALVES
    out = frame.output(frame.memory.slots[node], "write" if is_half else "readwrite")
    own = frame.scratch if columns == 1 else frame.private
    sums = own("sums", wide, size * LANES) if is_half else out

    def place(row: Val) -> Val:
        if not is_half:
            return row * width + column
        return row * LANES + (k.index(0) if columns == 1 else k.lane())

    def body() -> None:
        with k.loop(n) as row:
            k.store(sums, place(row), k.const(0, sums.dtype))
        with k.loop(frame.sizes.val(updates.type.shape[0])) as i:
            where = place(checked_index(frame, node, indices, i, n))
            at = (i, *Space(k, frame.sizes, node.type.shape[1:], column).axes())
            total = k.cast(k.load(sums, where), wide) + frame.reading.wide(updates, at)
            if columns == 1:
                k.barrier()  # all invocations add to one column: all have read before any writes
            k.store(sums, where, k.cast(total, sums.dtype))
        if is_half:
            with k.loop(n) as row:
                k.store(out, row * width + column, k.cast(k.load(sums, place(row)), dtype))

    if columns == 1:
        body()
    else:
        with k.when(column < width, guard=True):
            body()
    return frame.finish(ceil_div(columns, LANES), group, flops=product(updates.type.shape))


@add_at.kernel
def lower_add_at(frame: Frame, group: Group) -> Launch | list[Launch]:
    """Updates in order, where the array lies; a workgroup owns 16 columns of the trailing axes."""
    node, k = group.root, frame.k
    _, updates, indices = node.inputs
    if 0 in updates.type.shape:
        return []
    dtype, columns = node.type.dtype, product(node.type.shape[1:])
    n, width = frame.sizes.val(node.type.shape[0]), frame.sizes.val(columns)
    column = k.index(0) if columns == 1 else k.group_id() * LANES + k.lane()
    out = frame.output(frame.memory.slots[node], "readwrite")

    def body() -> None:
        with k.loop(frame.sizes.val(updates.type.shape[0])) as i:
            where = checked_index(frame, node, indices, i, n) * width + column
            at = (i, *Space(k, frame.sizes, node.type.shape[1:], column).axes())
            total = k.cast(k.load(out, where), dtype.computing) + frame.reading.wide(updates, at)
            if columns == 1:
                k.barrier()  # every invocation has read what all of them write
            k.store(out, where, k.cast(total, dtype))

    if columns == 1:
        body()
    else:
        with k.when(column < width, guard=True):
            body()
    changed = frozenset({frame.memory.slots[node]})
    return frame.finish(
        ceil_div(columns, LANES), group, flops=product(updates.type.shape), updates=changed
    )


def checked_index(frame: Frame, node: Node, indices: Node, i: Val, size: Val) -> Val:
    """indices[i] with negative ones counted from the end; out of range stops the program."""
    k = frame.k
    raw = k.cast(frame.reading.wide(indices, (i,)), index)
    row = k.select(raw < 0, raw + size, raw)
    bad = (row < 0) | (row >= size)
    frame.reading.trap(node, node, bad, raw)
    return row
