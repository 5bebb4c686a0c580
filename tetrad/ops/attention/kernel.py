"""Kernels, attention: queries against a key-value cache, in key blocks of 256 that are merged in
order.

Two schedules give the same bits: `WholeTile` takes a tile of rows through all the blocks it sees;
`Spread`, for a few tokens, gives every block a workgroup and merges in a second launch. What
happens in a block is in `ops.attention.block`.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.dtypes import f32
from tetrad.core.machine import LANES
from tetrad.core.record import record
from tetrad.core.sizes import Shape, Size, ceil_div, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.ops.attention.block import LOWEST, Area, Cache, Tile, Tokens, extent_of, hull, merged
from tetrad.ops.attention.cache import put_cache, put_scales
from tetrad.ops.attention.cache_kernel import lower_put_cache, lower_put_scales
from tetrad.ops.attention.dense_kernel import lower_dense
from tetrad.ops.attention.gradient import attention_gradient
from tetrad.ops.attention.gradient_kernel import lower_attention_gradient
from tetrad.ops.attention.op import attention
from tetrad.ops.attention.texts import text_attention
from tetrad.ops.attention.texts_kernel import lower_text_attention
from tetrad.schedule.nodes import Launch

FEW_TOKENS = 4  # up to here, blocks are spread over workgroups

put_cache.kernel(lower_put_cache)
put_scales.kernel(lower_put_scales)
attention_gradient.kernel(lower_attention_gradient)
text_attention.kernel(lower_text_attention)


@attention.kernel
def lower_attention(frame: Frame, group: Group) -> list[Launch]:
    if is_dense(group.root):
        return lower_dense(group, frame.memory)
    extent = extent_of(group.root)
    few = isinstance(extent.tokens, int) and extent.tokens <= FEW_TOKENS
    return (
        Spread(frame, group).launches()
        if few and extent.blocks > 1
        else [WholeTile(frame, group).launch()]
    )


def is_dense(node: Node) -> bool:
    """Does it attend to arrays? Otherwise to a cache."""
    return len(node.types) > 1


# -- all blocks in one workgroup -------------------------------------------------------------------


@record
class Split:
    """Rows in tiles: `tokens` neighbouring tokens, `heads` of the query heads that share a kv
    head."""

    tokens: int
    heads: int


def split_of(shared: int, tokens: Size, most: int) -> Split:
    """The tile of up to `most` rows that has most of them; the heads of a token come in equal
    tiles."""
    longest = tokens if isinstance(tokens, int) else most
    splits = [Split(min(longest, most // n), n) for n in range(1, most + 1) if shared % n == 0]
    return max(splits, key=lambda split: (split.tokens * split.heads, split.heads))


def heads_alone(shared: int, most: int) -> int:
    """Heads of a tile of one token: in as few tiles as possible, so that its keys are read few
    times."""
    return -(-shared // -(-shared // most))


def each_tile(k: KernelBuilder, shared: int, heads: int, visit: Callable[[Val], None]) -> None:
    """Visit the first head of every tile; the last tile is moved up, and computes some heads twice,
    alike."""
    if heads == shared:
        visit(k.index(0))
        return
    with k.loop(shared, 0, heads, always=True) as head:
        visit(k.min(head, shared - heads))


class WholeTile:
    """The kernel in which a workgroup takes a tile through all blocks it sees."""

    def __init__(self, frame: Frame, group: Group) -> None:
        self.frame, self.group, self.node, self.k = frame, group, group.root, frame.k
        self.extent = extent_of(self.node)
        most = frame.memory.machine.f32_tile.rows
        self.split = split_of(self.extent.shared, self.extent.tokens, most)
        self.alone = heads_alone(self.extent.shared, most)
        self.out = frame.output(frame.memory.slots[self.node])
        self.cache = Cache(frame, self.node)
        rows, channels = [self.split.tokens * self.split.heads, self.alone], self.extent.channels
        self.area = Area(frame, self.cache, rows, channels)
        # by row: of all blocks so far, and how to go on
        self.tops, self.totals, self.keep, self.add = (
            frame.scratch(name, f32, LANES) for name in ("tops", "totals", "keep", "add")
        )
        self.results = frame.scratch("results", f32, max(rows) * channels)

    def launch(self) -> Launch:
        k, extent = self.k, self.extent
        tiles = ceil_div(extent.tokens, self.split.tokens)
        position = Space(k, self.frame.sizes, (extent.groups, tiles), k.group_id())
        self.kv_head = position.span(0, 1)
        first = self.balanced(position.span(1, 2), self.frame.sizes.val(tiles)) * self.split.tokens
        self.run(first, self.frame.sizes.val(extent.tokens))
        return self.frame.finish(product((extent.groups, tiles)), self.group, flops=extent.flops)

    def balanced(self, tile: Val, tiles: Val) -> Val:
        """Early tokens see little, late ones much: first and last take turns, so neighbours have
        equal work."""
        half = tile // 2
        return self.k.select((tile % 2).eq(0), half, tiles - 1 - half)

    def run(self, first: Val, end: Val) -> None:
        """Neighbouring tokens of one slot together, others one by one."""
        k, tokens = self.k, self.split.tokens
        if tokens == 1:
            self.run_tokens(first, 1, self.alone)
            return
        where = Tokens(self.frame, self.node)
        slots = [where.slot(k.min(first + i, end - 1)) for i in range(tokens)]
        together = first + tokens <= end
        for slot in slots[1:]:
            together = together & slot.eq(slots[0])
        with k.when(together):
            self.run_tokens(first, tokens, self.split.heads)
        with k.otherwise(), k.loop(k.min(first + tokens, end), first) as token:
            self.run_tokens(token, 1, self.alone)

    def run_tokens(self, token: Val, tokens: int, heads: int) -> None:
        tile = Tile(self.frame, self.node, self.cache, self.area, tokens, heads)
        each_tile(self.k, self.extent.shared, heads, lambda head: self.run_tile(tile, token, head))

    def run_tile(self, tile: Tile, token: Val, head: Val) -> None:
        k = self.k
        self.clear(tile.rows)
        tile.start(token, self.kv_head, head)
        first, stop = hull(k, [tile.where.blocks(token + i) for i in range(tile.tokens)])
        with k.loop(stop, first) as block:
            tile.weights(block)
            self.merge()
            tile.weigh(block, self.collect)
            k.barrier()
        self.finish(tile)

    def clear(self, rows: int) -> None:
        k, lane = self.k, self.k.lane()
        zero = k.const(0.0, f32)
        for buffer in (self.tops, self.area.here):
            k.store(buffer, lane, k.const(LOWEST, f32))
        for buffer in (self.totals, self.area.sums):
            k.store(buffer, lane, zero)
        with k.loop(rows * self.extent.channels, 0, LANES, always=True) as at:
            k.store(self.results, at + lane, zero)

    def merge(self) -> None:
        """All rows at once, a row a lane."""
        k, lane = self.k, self.k.lane()
        operands = (
            k.load(buffer, lane)
            for buffer in (self.tops, self.totals, self.area.here, self.area.sums)
        )
        after = merged(k, *operands)
        k.store(self.tops, lane, after.top)
        k.store(self.totals, lane, after.total)
        k.store(self.keep, lane, after.keep)
        k.store(self.add, lane, after.add)
        k.barrier()

    def result_at(self, row: int, vector: Val) -> Val:
        return row * self.extent.channels + vector * LANES + self.k.lane()

    def collect(self, row: int, vector: Val, acc: Val) -> None:
        """result = result * keep + acc * add"""
        k, at = self.k, self.result_at(row, vector)
        kept = k.load(self.results, at) * k.load(self.keep, row)
        k.store(self.results, at, k.fma(acc, k.load(self.add, row), kept))

    def finish(self, tile: Tile) -> None:
        k, channels = self.k, self.extent.channels
        with (
            k.loop(tile.rows, always=True) as row,
            k.loop(channels, 0, LANES, always=True) as channel,
        ):
            token, head = tile.place(row)
            value = k.load(self.results, row * channels + channel + k.lane()) / k.load(
                self.totals, row
            )
            at = (token * self.extent.heads + head) * channels + channel + k.lane()
            k.store(self.out, at, tile.where.unless_padding(token, value))
        k.barrier()


# -- blocks spread over workgroups -----------------------------------------------------------------


class Spread:
    """Two kernels: every block of every token by itself, then, for every row, the blocks merged in
    order."""

    def __init__(self, frame: Frame, group: Group) -> None:
        self.frame, self.group, self.node, self.k = frame, group, group.root, frame.k
        self.extent = extent_of(self.node)
        memory, rows = frame.memory, (self.extent.tokens, self.extent.heads, self.extent.blocks)
        self.here, self.sums = (memory.temp(name, f32, *rows) for name in ("here", "sums"))
        self.parts = memory.temp("parts", f32, *rows, self.extent.channels)

    def launches(self) -> list[Launch]:
        return [self.blocks(), self.join()]

    def blocks(self) -> Launch:
        k, extent, frame = self.k, self.extent, self.frame
        grid: Shape = (extent.tokens, extent.groups, extent.blocks)
        token, kv_head, block = (
            Space(k, frame.sizes, grid, k.group_id()).span(i, i + 1) for i in range(3)
        )
        buffers = [frame.output(slot) for slot in (self.here, self.sums, self.parts)]
        heads = heads_alone(extent.shared, frame.memory.machine.f32_tile.rows)
        cache = Cache(frame, self.node)
        tile = Tile(frame, self.node, cache, Area(frame, cache, [heads], extent.channels), 1, heads)
        first, stop = tile.where.blocks(token)

        def run_tile(head: Val) -> None:
            tile.start(token, kv_head, head)
            tile.weights(block)
            self.keep(tile, block, buffers)

        with k.when((block >= first) & (block < stop)):
            each_tile(k, extent.shared, heads, run_tile)
        # where a block is not seen; `join` does not look
        left_alone = frozenset((self.here, self.sums, self.parts))
        return frame.finish(product(grid), self.group, flops=extent.flops, updates=left_alone)

    def keep(self, tile: Tile, block: Val, buffers: list[Buffer]) -> None:
        k = self.k
        here, sums, parts = buffers
        with k.loop(tile.rows, always=True) as row:
            at = self.row_at(*tile.place(row)) + block
            k.store(here, at, k.load(tile.area.here, row))
            k.store(sums, at, k.load(tile.area.sums, row))

        def store(row: int, vector: Val, acc: Val) -> None:
            at = self.row_at(*tile.place(row)) + block
            k.store(parts, at * self.extent.channels + vector * LANES + k.lane(), acc)

        tile.weigh(block, store)

    def row_at(self, token: Val, head: Val) -> Val:
        return (token * self.extent.heads + head) * self.extent.blocks

    def join(self) -> Launch:
        extent = self.extent
        frame = Frame(self.group.name + "_join", self.frame.memory)
        frame.reads(self.node.inputs[3:6])
        k, grid = frame.k, (extent.tokens, extent.heads)
        token, head = (Space(k, frame.sizes, grid, k.group_id()).span(i, i + 1) for i in range(2))
        where, out = Tokens(frame, self.node), frame.output(frame.memory.slots[self.node])
        where.check(token)
        total, results = self.merge_blocks(frame, where.blocks(token), self.row_at(token, head))
        for v, result in enumerate(results):
            value = where.unless_padding(token, result.get() / total.get())
            k.store(out, k.group_id() * extent.channels + v * LANES + k.lane(), value)
        return frame.finish(product(grid), self.group)

    def merge_blocks(
        self, frame: Frame, span: tuple[Val, Val], row: Val
    ) -> tuple[LocalVar, list[LocalVar]]:
        """The sum and the result of a row."""
        k, channels = frame.k, self.extent.channels
        here, sums, parts = (frame.input(slot) for slot in (self.here, self.sums, self.parts))
        top, total = k.local(LOWEST, f32), k.local(0.0, f32)
        results = [k.local(0.0, f32) for _ in range(channels // LANES)]
        with k.loop(span[1], span[0]) as block:
            at = row + block
            after = merged(k, top.get(), total.get(), k.load(here, at), k.load(sums, at))
            top.set(after.top)
            total.set(after.total)
            for v, result in enumerate(results):
                acc = k.load(parts, at * channels + v * LANES + k.lane())
                result.set(k.fma(acc, after.add, result.get() * after.keep))
        return total, results
