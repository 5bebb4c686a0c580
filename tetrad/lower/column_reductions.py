"""Lowering, column reductions: a reduction over axes that are not the last ones; lanes run along
the kept last axis.

Canonical order (docs/numerics.md): chunks of 256 positions, sequential inside a chunk, chunks
joined by the fixed pairwise tree. One kernel makes the chunk results, a second joins them; a single
chunk needs no second.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from tetrad.core.machine import LANES
from tetrad.core.sizes import Shape, Size, ceil_div, is_multiple, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import At
from tetrad.lower.elementwise import accumulator, guarded_vectors
from tetrad.schedule.nodes import Launch, Slot

CHUNK = 256
# elements of the last axis one workgroup takes; at least, where threads wait for work
STRETCH, SHORT = 1024, 256
# positions, and elements of the last axis, that are gathered sooner than a workgroup is begun
FEW, NARROW = 8, 4
TOGETHER = 4  # positions joined in one pass over the accumulators


def lower_columns(group: Group, inputs: list[Node], memory: Memory) -> list[Launch]:
    """The kept axes are [outer..., last]; reduced axes are walked as one, row-major."""
    node = group.root
    chunks = chunk_count(node)
    if is_narrow(node):
        return [narrow_kernel(group, inputs, memory)]
    if chunks == 1:
        return [chunk_kernel(group, inputs, memory, memory.slots[node], final=True)]
    kept = product(node.type.shape)
    parts = memory.temp("parts", accumulator(node), chunks, kept)
    return [
        chunk_kernel(group, inputs, memory, parts, final=False),
        join_kernel(group, node, memory, parts),
    ]


def is_narrow(node: Node) -> bool:
    """A few positions, and a last axis that would leave lanes without work: they run along all kept
    axes instead."""
    kept, last, positions = product(node.type.shape), node.type.shape[-1], reduced_size(node)
    if not isinstance(kept, int) or not isinstance(last, int) or not isinstance(positions, int):
        return False
    return 0 < positions <= FEW and last <= NARROW and kept >= LANES


def narrow_kernel(group: Group, inputs: list[Node], memory: Memory) -> Launch:
    """A lane an element of the result: its positions in order, in a register."""
    node, total = group.root, product(group.root.type.shape)
    frame = Frame(group.name, memory)
    k, monoid, dtype = frame.k, node.op.monoid, accumulator(node)
    frame.reads(inputs)
    out = frame.output(memory.slots[node])

    def body(element: Val) -> None:
        kept = Space(k, frame.sizes, node.type.shape, element).axes()
        value = k.local(monoid.init(dtype), dtype)
        with k.loop(frame.sizes.val(reduced_size(node))) as position:
            one = frame.reading.wide(node.inputs[0], source_at(frame, node, position, kept))
            value.set(monoid.combine(k, value.get(), one))
        k.store(out, element, k.cast(value.get(), node.type.dtype))

    guarded_vectors(frame, k.group_id() * LANES, total, 1, body)
    return frame.finish(ceil_div(total, LANES), group, flops=product(node.inputs[0].type.shape))


def reduced_shape(node: Node) -> Shape:
    return tuple(node.inputs[0].type.shape[a] for a in node.param("axes"))


def reduced_size(node: Node) -> Size:
    return product(reduced_shape(node))


def chunk_count(node: Node) -> Size:
    """Nothing to reduce still makes a result, so there is one chunk at least; a Dim that is 0 has
    none."""
    count = ceil_div(reduced_size(node), CHUNK)
    return max(count, 1) if isinstance(count, int) else count


def chunk_kernel(
    group: Group, inputs: list[Node], memory: Memory, result: Slot, *, final: bool
) -> Launch:
    """Workgroup: (chunk, row of kept axes, stretch of the last axis). One accumulator a column,
    positions in order."""
    node = group.root
    frame = Frame(group.name + ("" if final else "_chunks"), memory)
    k, sizes = frame.k, frame.sizes
    frame.reads(inputs)
    out = frame.output(result)
    *outer, last = node.type.shape
    rows = product(outer)
    longest = stretch(last, chunk_count(node) * rows, memory.machine.parallel_groups)
    blocks = ceil_div(last, longest)
    grid = Space(k, sizes, (chunk_count(node), rows, blocks), k.group_id())
    chunk, row, block = (grid.span(i, i + 1) for i in range(3))
    kept = Space(k, sizes, tuple(outer), row).axes()
    columns = Stretch(frame, node, kept, block * longest, longest)
    columns.add_chunk(chunk * CHUNK)
    columns.store(out, (chunk * sizes.val(rows) + row) * sizes.val(last), final)
    return frame.finish(
        chunk_count(node) * rows * blocks, group, flops=product(node.inputs[0].type.shape)
    )


def stretch(last: Size, others: Size, threads: int) -> int:
    """Elements of the last axis for a workgroup: long runs of memory, but not fewer workgroups than
    threads.

    >>> stretch(4096, 16, 2), stretch(1000, 1, 2), stretch(1000, 1, 8), stretch(10, 1, 2)
    (1024, 512, 256, 16)
    """
    if not isinstance(last, int):
        return STRETCH
    parts = -(-threads // max(others, 1)) if isinstance(others, int) else 1
    share = max(-(-last // parts), min(SHORT, last), 1)
    return min(STRETCH, -(-share // LANES) * LANES)


class Stretch:
    """The columns of one workgroup: a stretch of the last axis from `base` on, at the indices
    `kept` of the others.

    It is long so that memory is read in long runs; its accumulators wait in scratch, four positions
    at a time.
    """

    def __init__(self, frame: Frame, node: Node, kept: At, base: Val, longest: int) -> None:
        self.frame, self.node, self.kept, self.base = frame, node, kept, base
        self.last = node.type.shape[-1]
        self.width = frame.k.min(frame.sizes.val(self.last) - base, longest)
        self.accs = frame.private("accs", accumulator(node), longest)

    def add_chunk(self, first: Val) -> None:
        """accs[column] = the positions of one chunk, in order, for every column."""
        k, total = self.frame.k, reduced_size(self.node)
        stop = k.min(first + CHUNK, self.frame.sizes.val(total))
        whole = first + ((stop - first) // TOGETHER) * TOGETHER
        self.sweep(first, 0, fresh=True)
        if total != 0:
            with k.loop(whole, first, TOGETHER) as position:
                self.sweep(position, TOGETHER)
            if not is_multiple(total, TOGETHER):
                with k.loop(stop, whole) as position:
                    self.sweep(position, 1)

    def sweep(self, start: Val, count: int, *, fresh: bool = False) -> None:
        """accs[column] with `count` positions from `start` joined in."""
        k, monoid, dtype = self.frame.k, self.node.op.monoid, accumulator(self.node)
        with self.every_column() as lane:
            value = k.const(monoid.init(dtype), dtype) if fresh else k.load(self.accs, lane)
            for u in range(count):
                at = source_at(self.frame, self.node, start + u, (*self.kept, self.base + lane))
                value = monoid.combine(k, value, self.frame.reading.wide(self.node.inputs[0], at))
            k.store(self.accs, lane, value)

    def store(self, out: Buffer, row: Val, final: bool) -> None:
        k = self.frame.k
        with self.every_column() as lane:
            value = k.load(self.accs, lane)
            k.store(
                out, row + self.base + lane, k.cast(value, self.node.type.dtype) if final else value
            )

    def every_column(self) -> AbstractContextManager[Val]:
        return self.frame.every_lane(self.width, self.last)


def source_at(frame: Frame, node: Node, position: Val, kept: At) -> At:
    """The operand's index: reduced axes from `position`, kept axes in order."""
    axes = node.param("axes")
    reduced = iter(
        Space(frame.k, frame.sizes, reduced_shape(node), position).axes()
        if len(axes) > 1
        else (position,)
    )
    rest = iter(kept)
    return tuple(
        next(reduced) if a in axes else next(rest) for a in range(node.inputs[0].type.rank)
    )


def join_kernel(group: Group, node: Node, memory: Memory, parts: Slot) -> Launch:
    """parts[chunk, column] over chunks by the pairwise tree, as a stack of lanes in scratch."""
    frame = Frame(node.op.name + "_join", memory)
    k, sizes = frame.k, frame.sizes
    source, out = frame.input(parts), frame.output(memory.slots[node])
    chunks, kept = parts.type.shape
    count, total = sizes.val(chunks), sizes.val(kept)
    tree = frame.private("tree", parts.type.dtype, (chunks + 1) * LANES)
    column = k.group_id() * LANES + k.lane()
    with k.when(column < total, guard=True):
        # of no chunks
        k.store(tree, k.lane(), k.const(node.op.monoid.init(parts.type.dtype), parts.type.dtype))
        with k.loop(count) as i:
            k.store(tree, i * LANES + k.lane(), k.load(source, i * total + column))
        left = k.local(count)
        with k.loop(64):
            now = left.get()
            with k.when(now > 1):
                halve(frame, node, tree, now)
                left.set(now // 2 + now % 2)
        k.store(out, column, k.cast(k.load(tree, k.lane()), node.type.dtype))
    return frame.finish(ceil_div(kept, LANES), group, flops=product(parts.type.shape))


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
