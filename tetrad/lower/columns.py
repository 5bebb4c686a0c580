"""Lowering, columns: a reduction over axes that are not the last ones; lanes run along the kept last axis.

Canonical order (design D6): chunks of 256 positions, sequential inside a chunk, chunks joined by the fixed pairwise
tree. One kernel makes the chunk results, a second joins them; a single chunk needs no second.
"""

from __future__ import annotations

from tetrad.core.sizes import Shape, Size, ceil_div, product
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.lower.frame import LANES, Frame, Memory
from tetrad.lower.index import Space
from tetrad.lower.launch import Launch, Slot
from tetrad.lower.reader import At
from tetrad.lower.rows import accumulator
from tetrad.passes.fuse import Group

CHUNK = 256
STRETCH = 1024  # elements of the last axis one workgroup takes
TOGETHER = 4  # positions joined in one pass over the accumulators


def lower_columns(group: Group, inputs: list[Node], memory: Memory) -> list[Launch]:
    """The kept axes are [outer..., last]; reduced axes are walked as one, row-major."""
    node = group.root
    chunks = chunk_count(node)
    if chunks == 1:
        return [chunk_kernel(group, inputs, memory, memory.slots[node], final=True)]
    kept = product(node.type.shape)
    parts = memory.temp("parts", accumulator(node), chunks, kept)
    return [chunk_kernel(group, inputs, memory, parts, final=False), join_kernel(group, memory, parts)]


def reduced_shape(node: Node) -> Shape:
    return tuple(node.inputs[0].type.shape[a] for a in node.param("axes"))


def reduced_size(node: Node) -> Size:
    return product(reduced_shape(node))


def chunk_count(node: Node) -> Size:
    """Nothing to reduce still makes a result, so there is one chunk at least; a Dim that is 0 has none."""
    count = ceil_div(reduced_size(node), CHUNK)
    return max(count, 1) if isinstance(count, int) else count


def chunk_kernel(group: Group, inputs: list[Node], memory: Memory, result: Slot, *, final: bool) -> Launch:
    """Workgroup: (chunk, row of kept axes, stretch of the last axis). One accumulator a column, positions in order.

    A stretch is long so that memory is read in long runs; its accumulators wait in scratch, four positions at a time.
    """
    node = group.root
    frame = Frame(group.name + ("" if final else "_chunks"), memory)
    k, sizes = frame.k, frame.sizes
    frame.reads(inputs)
    out = frame.output(result)
    *outer, last = node.type.shape
    stretch = min(STRETCH, -(-last // LANES) * LANES) if isinstance(last, int) else STRETCH
    blocks, rows, total = ceil_div(last, stretch), product(outer), reduced_size(node)
    grid = Space(k, sizes, (chunk_count(node), rows, blocks), k.group_id())
    chunk, row, block = (grid.span(i, i + 1) for i in range(3))
    kept = Space(k, sizes, tuple(outer), row).axes()
    base, end = block * stretch, sizes.val(last)
    width = k.min(end - base, stretch)
    first = chunk * CHUNK
    stop = k.min(first + CHUNK, sizes.val(total))
    whole = first + ((stop - first) // TOGETHER) * TOGETHER
    accs = frame.scratch("accs", accumulator(node), stretch)

    def sweep(start: Val, count: int, *, fresh: bool = False) -> None:
        """accs[column] with `count` positions from `start` joined in, for every column of the stretch."""
        with k.loop(width, 0, LANES, always=True) as lane0:
            lane = lane0 + k.lane()
            with frame.within(lane, width, last):
                identity = k.const(node.op.monoid.init(accumulator(node)), accumulator(node))
                value = identity if fresh else k.load(accs, lane)
                for u in range(count):
                    at = source_at(frame, node, start + u, (*kept, base + lane))
                    value = node.op.monoid.combine(k, value, frame.reading.wide(node.inputs[0], at))
                k.store(accs, lane, value)

    sweep(first, 0, fresh=True)
    if total != 0:
        with k.loop(whole, first, TOGETHER) as position:
            sweep(position, TOGETHER)
        with k.loop(stop, whole) as position:
            sweep(position, 1)
    with k.loop(width, 0, LANES, always=True) as lane0:
        lane = lane0 + k.lane()
        with frame.within(lane, width, last):
            value = k.load(accs, lane)
            where = (chunk * sizes.val(rows) + row) * end + base + lane
            k.store(out, where, k.cast(value, node.type.dtype) if final else value)
    groups = chunk_count(node) * rows * blocks
    return frame.finish(groups, group, flops=product(node.inputs[0].type.shape))


def source_at(frame: Frame, node: Node, position: Val, kept: At) -> At:
    """The operand's index: reduced axes from `position`, kept axes in order."""
    axes = node.param("axes")
    reduced = iter(Space(frame.k, frame.sizes, reduced_shape(node), position).axes() if len(axes) > 1 else (position,))
    rest = iter(kept)
    return tuple(next(reduced) if a in axes else next(rest) for a in range(node.inputs[0].type.rank))


def join_kernel(group: Group, memory: Memory, parts: Slot) -> Launch:
    """parts[chunk, column] over chunks by the pairwise tree, as a stack of lanes in scratch."""
    node = group.root
    frame = Frame(group.name + "_join", memory)
    k, sizes = frame.k, frame.sizes
    source, out = frame.input(parts), frame.output(memory.slots[node])
    chunks, kept = parts.type.shape
    count, total = sizes.val(chunks), sizes.val(kept)
    tree = frame.scratch("tree", parts.type.dtype, (chunks + 1) * LANES)
    column = k.group_id() * LANES + k.lane()
    with k.when(column < total, guard=True):
        k.store(tree, k.lane(), k.const(node.op.monoid.init(parts.type.dtype), parts.type.dtype))  # of no chunks
        with k.loop(count) as i:
            k.store(tree, i * LANES + k.lane(), k.load(source, i * total + column))
        left = k.local(count)
        with k.loop(64):
            now = left.get()
            with k.when(now > 1):
                halve(frame, node, tree, now)
                left.set(now // 2 + now % 2)
        k.store(out, column, k.cast(k.load(tree, k.lane()), node.type.dtype))
    return frame.finish(ceil_div(kept, LANES), group)


def halve(frame: Frame, node: Node, tree: Buffer, now: Val) -> None:
    k = frame.k
    pairs = now // 2

    def slot(i: Val) -> Val:
        return i * LANES + k.lane()

    with k.loop(pairs) as i:
        joined = node.op.monoid.combine(k, k.load(tree, slot(i * 2)), k.load(tree, slot(i * 2 + 1)))
        k.store(tree, slot(i), joined)
    with k.when((now % 2).eq(1)):
        k.store(tree, slot(pairs), k.load(tree, slot(now - 1)))
