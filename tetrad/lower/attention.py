"""Lowering, attention: queries against a key-value cache, in key blocks of 256 that are merged in order (design D6).

Rows of a register tile are the query heads that share a kv head, of one token or of neighbouring tokens of one slot, so
a key is converted once for all of them. In a block a lane is first a key (scores), then a channel (values). Two
schedules give the same bits: `Whole` takes a tile through all its blocks; `Spread`, for a few tokens, gives every block
a workgroup and merges in a second launch. Only keys a token sees take part: what others hold, NaN too, does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tetrad.core.dtypes import f32, index
from tetrad.core.sizes import Shape, Size, ceil_div, product
from tetrad.core.target import Tile as RegisterTile
from tetrad.graph.nodes import Node
from tetrad.kernel import math
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.kernel.nodes import Buffer
from tetrad.lower.frame import LANES, Frame
from tetrad.lower.index import Space
from tetrad.lower.launch import Launch, TrapSite
from tetrad.lower.reader import FIRST_TRAP
from tetrad.ops.attention import KEYS, SCALED, out_of_range
from tetrad.passes.fuse import Group

FEW_TOKENS = 4  # up to here, blocks are spread over workgroups
PITCH = KEYS + LANES  # between rows of scores: rows a power of two apart would share places in the cache
UNROLL = 4  # steps of an inner loop written out
LOWEST = -float("inf")

Sink = Callable[[int, Val, Val], None]  # row, vector of channels, the block's result there


def lower_attention(frame: Frame, group: Group) -> list[Launch]:
    extent = extent_of(group.root)
    few = isinstance(extent.tokens, int) and extent.tokens <= FEW_TOKENS
    return Spread(frame, group).launches() if few and extent.blocks > 1 else [Whole(frame, group).launch()]


@dataclass(frozen=True, slots=True)
class Extent:
    """Sizes, named as in the op: q [T,H,D], v [L,S,G,C,D]."""

    tokens: Size
    heads: int
    channels: int
    layers: int
    slots: int
    groups: int
    keys: int

    @property
    def shared(self) -> int:
        """Query heads of a kv head."""
        return self.heads // self.groups

    @property
    def blocks(self) -> int:
        return self.keys // KEYS

    @property
    def flops(self) -> Size:
        """If every token saw every key."""
        return self.tokens * (4 * self.heads * self.channels * self.keys)


def extent_of(node: Node) -> Extent:
    tokens, heads, channels = node.inputs[0].type.shape
    layers, slots, groups, keys, _ = node.inputs[2].type.shape
    return Extent(tokens, *(int(n) for n in (heads, channels, layers, slots, groups, keys)))  # type: ignore[arg-type]


# -- operands ---------------------------------------------------------------------------------------------------------


class Tokens:
    """Where tokens belong: their slots and positions, checked, and the keys they see."""

    def __init__(self, frame: Frame, node: Node) -> None:
        self.frame, self.k, self.node, self.extent = frame, frame.k, node, extent_of(node)
        self.window = int(dict(node.params).get("window", 0))

    def number(self, operand: int, at: tuple[Val, ...]) -> Val:
        return self.k.cast(self.frame.reading.wide(self.node.inputs[operand], at), index)

    def layer(self) -> Val:
        return self.number(3, ())

    def slot(self, token: Val) -> Val:
        return self.number(4, (token,))

    def position(self, token: Val) -> Val:
        return self.number(5, (token,))

    def check(self, token: Val) -> None:
        """Stop the program where a token lies outside the cache."""
        size, zero = self.extent, self.k.index(0)
        for name, value, count in (("layer", self.layer(), size.layers), ("slot", self.slot(token), size.slots)):
            self.trap(name, count, (value < zero) | (value >= count), value)
        position = self.position(token)
        self.trap("position", size.keys, position >= size.keys, position)

    def trap(self, name: str, count: int, bad: Val, value: Val) -> None:
        traps, message = self.frame.reading.traps, out_of_range(name, count)
        known = (code for code, site in traps.items() if site.message == message)
        code = next(known, FIRST_TRAP + len(traps))
        traps[code] = TrapSite("attention", message, self.node.source)
        self.k.trap(bad, code, value)

    def first(self, token: Val) -> Val:
        """The first key a token sees."""
        return self.k.max(self.position(token) - (self.window - 1), 0) if self.window else self.k.index(0)

    def unless_padding(self, token: Val, value: Val) -> Val:
        return self.k.select(self.position(token) < 0, 0.0, value)

    def blocks(self, token: Val) -> tuple[Val, Val]:
        """The blocks with a key it sees: first, and one past the last."""
        return self.first(token) // KEYS, (self.k.max(self.position(token), -1) + KEYS) // KEYS

    def seen(self, token: Val, block: Val) -> tuple[Val, Val]:
        """The keys of a block it sees: first, and one past the last, counted from the block's first."""
        k, base = self.k, block * KEYS
        stop = k.min(k.max(self.position(token) + 1 - base, 0), KEYS)
        return (k.min(k.max(self.first(token) - base, 0), KEYS) if self.window else k.index(0)), stop


class Cache:
    """The keys and values one kv head has for one slot, element by element. Other storage changes only this class."""

    def __init__(self, frame: Frame, node: Node) -> None:
        self.k, self.extent = frame.k, extent_of(node)
        made = frame.reading.buffers
        self.buffers = [
            made.get(i) or frame.input(frame.memory.slots[i]) for i in (*node.inputs[1:3], *node.inputs[6:])
        ]
        self.is_scaled = len(self.buffers) == 4
        self.span = SCALED if self.is_scaled else self.extent.channels  # channels of a key with one scale
        self.line = self.k.index(0)  # of the cache seen as [L*S*G, C, D]

    def select(self, layer: Val, slot: Val, head: Val) -> None:
        self.line = (layer * self.extent.slots + slot) * self.extent.groups + head

    def read_key(self, vector: Val, start: Val, channel: Val) -> Val:
        """Sixteen keys at a channel; `start` is where its stretch of `span` channels begins."""
        k, channels = self.k, self.extent.channels
        row = (self.line * (self.extent.keys // LANES) + vector) * channels
        value = self.number(0, (row + channel) * LANES + k.lane())
        if not self.is_scaled:
            return value
        return value * self.number(2, (row // SCALED + start // SCALED) * LANES + k.lane())

    def read_value(self, key: Val, vector: Val) -> Val:
        """Sixteen channels of a value."""
        k, channels = self.k, self.extent.channels
        row = (self.line * self.extent.keys + key) * channels
        value = self.number(1, row + vector * LANES + k.lane())
        if not self.is_scaled:
            return value
        return value * self.number(3, row // SCALED + (vector * LANES) // SCALED)

    def number(self, which: int, at: Val) -> Val:
        return self.k.cast(self.k.load(self.buffers[which], at), f32)


class Area:
    """Scratch of a workgroup: the rows of a tile on their way through the blocks."""

    def __init__(self, frame: Frame, rows: int, channels: int) -> None:
        self.pitch = channels + LANES
        self.queries = frame.scratch("queries", f32, rows * self.pitch)
        self.scores = frame.scratch("scores", f32, rows * PITCH)
        self.here, self.sums = (frame.scratch(name, f32, LANES) for name in ("here", "sums"))  # of this block, by row
        self.tops, self.totals, self.keep, self.add = (
            frame.scratch(name, f32, LANES) for name in ("tops", "totals", "keep", "add")
        )
        self.results = frame.scratch("results", f32, rows * channels)


# -- one block --------------------------------------------------------------------------------------------------------


class Tile:
    """Rows `token * heads + head` against a block of keys."""

    def __init__(self, frame: Frame, node: Node, cache: Cache, area: Area, tokens: int, heads: int) -> None:
        self.frame, self.k, self.node, self.extent = frame, frame.k, node, extent_of(node)
        self.cache, self.area = cache, area
        self.tokens, self.heads, self.rows = tokens, heads, tokens * heads
        self.where = Tokens(frame, node)
        self.most = most_vectors(frame.memory.target.f32_tile, self.rows)
        self.token, self.head = self.k.index(0), self.k.index(0)

    def start(self, token: Val, group: Val, head: Val) -> None:
        """Take the rows from this token and this head of the kv head on."""
        k, extent = self.k, self.extent
        self.token, self.head = token, group * extent.shared + head
        for i in range(self.tokens):
            self.where.check(token + i)
        self.cache.select(self.where.layer(), self.where.slot(token), group)
        queries = self.frame.reading.operand(self.node.inputs[0])
        with k.loop(self.rows, always=True) as row, k.loop(extent.channels, 0, LANES, always=True) as channel:
            lane = channel + k.lane()
            k.store(self.area.queries, row * self.area.pitch + lane, queries((*self.place(row), lane)))
        k.barrier()

    def place(self, row: int | Val) -> tuple[Val, Val]:
        """Token and query head of a row."""
        return self.token + row // self.heads, self.head + row % self.heads

    def locals(self, vectors: int) -> list[list[LocalVar]]:
        return [[self.k.local(0.0, f32) for _ in range(vectors)] for _ in range(self.rows)]

    def spans(self, block: Val) -> list[tuple[Val, Val]]:
        """What each token sees of a block."""
        return [self.where.seen(self.token + i, block) for i in range(self.tokens)]

    def weights(self, block: Val) -> None:
        """scores[row][key] = exp(score - maximum); maximum and sum of every row in `here` and `sums`."""
        spans = self.spans(block)
        self.score(block, *hull(self.k, spans))
        self.k.barrier()
        with self.k.loop(self.rows, always=True) as row:
            token = self.token if self.tokens == 1 else self.token + row // self.heads
            self.softmax(row, *self.where.seen(token, block))
        self.k.barrier()

    def score(self, block: Val, first: Val, stop: Val) -> None:
        """scores[row][key] = q . k * scale, for every vector of keys between first and stop."""
        k, vectors = self.k, divisor(KEYS // LANES, self.most)
        scale = k.const(self.node.param("scale"), f32)
        start = first // (vectors * LANES) * vectors
        with k.loop((stop + (LANES - 1)) // LANES, start, vectors) as vector:
            accs = self.locals(vectors)
            self.dot(accs, [block * (KEYS // LANES) + vector + v for v in range(vectors)])
            for row, line in enumerate(accs):
                for v, acc in enumerate(line):
                    k.store(self.area.scores, row * PITCH + (vector + v) * LANES + k.lane(), acc.get() * scale)

    def dot(self, accs: list[list[LocalVar]], keys: list[Val]) -> None:
        """One chain over channels, ascending."""
        k, span = self.k, self.cache.span
        with (
            k.loop(self.extent.channels, 0, span, always=True) as start,
            k.loop(start + span, start, UNROLL, always=True) as channel,
        ):
            for u in range(UNROLL):
                right = [self.cache.read_key(vector, start, channel + u) for vector in keys]
                for row, line in enumerate(accs):
                    left = k.load(self.area.queries, row * self.area.pitch + channel + u)
                    for acc, value in zip(line, right, strict=True):
                        acc.set(k.fma(left, value, acc))

    def softmax(self, row: Val, first: Val, stop: Val) -> None:
        """Scores of the keys from first to stop become weights, those of others beside them in a vector become 0."""
        k = self.k
        start, end = first // LANES * LANES, (stop + (LANES - 1)) // LANES * LANES
        self.cap(row, start, end)
        if self.where.window:
            self.hide(row, start, first, lambda key: key >= first)
        self.hide(row, stop // LANES * LANES, end, lambda key: key < stop)
        here = self.highest(row, start, end)
        shift, total = finite(k, here), k.local(0.0, f32)
        with k.loop(end, start, LANES) as key:
            at = self.score_at(row, key)
            weight = math.exp(k, k.load(self.area.scores, at) - shift)
            k.store(self.area.scores, at, weight)
            total.set(total.get() + weight)
        k.store(self.area.here, row, here)
        k.store(self.area.sums, row, k.reduce_lanes("add", total))

    def score_at(self, row: Val, key: Val) -> Val:
        return row * PITCH + key + self.k.lane()

    def cap(self, row: Val, start: Val, end: Val) -> None:
        """score = c tanh(score / c), where there is a softcap c."""
        k, c = self.k, float(dict(self.node.params).get("softcap", 0.0))
        if not c:
            return
        with k.loop(end, start, LANES) as key:
            at = self.score_at(row, key)
            k.store(self.area.scores, at, math.tanh(k, k.load(self.area.scores, at) / c) * c)

    def hide(self, row: Val, start: Val, end: Val, is_seen: Callable[[Val], Val]) -> None:
        """Keys that are not seen get the lowest score: never the maximum, and a weight of exactly 0."""
        k = self.k
        with k.loop(end, start, LANES) as key:
            at = self.score_at(row, key)
            k.store(self.area.scores, at, k.select(is_seen(key + k.lane()), k.load(self.area.scores, at), LOWEST))

    def highest(self, row: Val, start: Val, end: Val) -> Val:
        k = self.k
        found = k.local(LOWEST, f32)
        with k.loop(end, start, LANES) as key:
            found.set(greater(k, k.load(self.area.scores, self.score_at(row, key)), found.get()))
        top = found.get()
        for width in (8, 4, 2, 1):
            top = greater(k, k.rotate(top, width), top)
        return k.broadcast(top)

    def weigh(self, block: Val, sink: Sink) -> None:
        """Each row's sum of weight * value: one chain over the keys its token sees, ascending."""
        k, chunks = self.k, self.extent.channels // LANES
        vectors = divisor(chunks, self.most)
        spans = self.spans(block)
        with k.loop(chunks, 0, vectors, always=True) as chunk:
            accs = self.locals(vectors)
            self.walk_keys(accs, block, chunk, spans)
            for row, line in enumerate(accs):
                for v, acc in enumerate(line):
                    self.offer(sink, row, chunk + v, acc, spans[row // self.heads])

    def offer(self, sink: Sink, row: int, vector: Val, acc: LocalVar, span: tuple[Val, Val]) -> None:
        """A row that sees nothing of the block stays as it is. (A tile of one token only walks blocks it sees.)"""
        if self.tokens == 1:
            sink(row, vector, acc.get())
            return
        with self.k.when(span[1] > span[0]):
            sink(row, vector, acc.get())

    def walk_keys(self, accs: list[list[LocalVar]], block: Val, chunk: Val, spans: list[tuple[Val, Val]]) -> None:
        """Keys that every token sees go four at a time, those before and after one at a time, to who sees them."""
        k = self.k
        first, stop = hull(k, spans)
        common = stop if self.tokens == 1 else least([s for _, s in spans], k.min)
        begin = first if self.tokens == 1 else k.min(least([s for s, _ in spans], k.max), stop)
        end = begin + k.max(common - begin, 0) // UNROLL * UNROLL
        if self.where.window and self.tokens > 1:
            with k.loop(begin, first) as key:
                self.weigh_key(accs, block, chunk, key, spans)
        with k.loop(end, begin, UNROLL) as key:
            for u in range(UNROLL):
                self.weigh_key(accs, block, chunk, key + u, [])
        with k.loop(stop, end) as key:
            self.weigh_key(accs, block, chunk, key, spans)

    def weigh_key(
        self, accs: list[list[LocalVar]], block: Val, chunk: Val, key: Val, spans: list[tuple[Val, Val]]
    ) -> None:
        """One key for all rows; with spans, for the rows of tokens that see it."""
        k, heads = self.k, self.heads
        right = [self.cache.read_value(block * KEYS + key, chunk + v) for v in range(len(accs[0]))]
        if not spans or self.tokens == 1:
            self.add_weighted(accs, 0, key, right)
            return
        for i, (first, stop) in enumerate(spans):
            with k.when((key >= first) & (key < stop)):
                self.add_weighted(accs[i * heads : (i + 1) * heads], i * heads, key, right)

    def add_weighted(self, accs: list[list[LocalVar]], top: int, key: Val, right: list[Val]) -> None:
        for row, line in enumerate(accs, top):
            left = self.k.load(self.area.scores, row * PITCH + key)
            for acc, value in zip(line, right, strict=True):
                acc.set(self.k.fma(left, value, acc))


def hull(k: KernelBuilder, spans: list[tuple[Val, Val]]) -> tuple[Val, Val]:
    return least([first for first, _ in spans], k.min), least([stop for _, stop in spans], k.max)


def least(values: list[Val], join: Callable[[Val, Val], Val]) -> Val:
    found = values[0]
    for value in values[1:]:
        found = join(found, value)
    return found


def greater(k: KernelBuilder, x: Val, y: Val) -> Val:
    """The maximum of two scores, y where x is NaN: a NaN finds its way into the sum by its own weight."""
    return k.select(x > y, x, y)


def finite(k: KernelBuilder, top: Val) -> Val:
    """What to subtract before exp: nothing, where all scores are -inf."""
    return k.select(top.eq(LOWEST), 0.0, top)


def most_vectors(tile: RegisterTile, rows: int) -> int:
    """Vectors of accumulators a row may have. Beside them a vector of the right side stays in a register for the rows
    to come; a single row uses it at once."""
    return tile.rows * tile.vectors if rows == 1 else max(1, (tile.rows + 1) * tile.vectors // (rows + 1))


def divisor(count: int, most: int) -> int:
    """The largest number up to `most` that divides `count`."""
    return max(n for n in range(1, most + 1) if count % n == 0)


@dataclass(frozen=True, slots=True)
class Merge:
    """Two runs of blocks become one: the maximum and the sum of both, and what the results of each count."""

    top: Val
    total: Val
    keep: Val
    add: Val


def merged(k: KernelBuilder, before: Val, total: Val, here: Val, mine: Val) -> Merge:
    after = greater(k, here, before)
    shift = finite(k, after)
    keep, add = math.exp(k, before - shift), math.exp(k, here - shift)
    return Merge(after, k.fma(total, keep, mine * add), keep, add)


# -- all blocks in one workgroup --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Split:
    """Rows in tiles: `tokens` neighbouring tokens, `heads` of the query heads that share a kv head."""

    tokens: int
    heads: int


def split_of(shared: int, tokens: Size, most: int) -> Split:
    """The tile of up to `most` rows that has most of them; the heads of a token come in equal tiles."""
    longest = tokens if isinstance(tokens, int) else most
    splits = [Split(min(longest, most // n), n) for n in range(1, most + 1) if shared % n == 0]
    return max(splits, key=lambda split: (split.tokens * split.heads, split.heads))


def heads_alone(shared: int, most: int) -> int:
    """Heads of a tile of one token: in as few tiles as possible, so that its keys are read few times."""
    return -(-shared // -(-shared // most))


def each_tile(k: KernelBuilder, shared: int, heads: int, visit: Callable[[Val], None]) -> None:
    """Visit the first head of every tile; the last tile is moved up, and computes some heads twice, alike."""
    if heads == shared:
        visit(k.index(0))
        return
    with k.loop(shared, 0, heads, always=True) as head:
        visit(k.min(head, shared - heads))


class Whole:
    """The kernel in which a workgroup takes a tile through all blocks it sees."""

    def __init__(self, frame: Frame, group: Group) -> None:
        self.frame, self.group, self.node, self.k = frame, group, group.root, frame.k
        self.extent = extent_of(self.node)
        most = frame.memory.target.f32_tile.rows
        self.split = split_of(self.extent.shared, self.extent.tokens, most)
        self.alone = heads_alone(self.extent.shared, most)
        self.out = frame.output(frame.memory.slots[self.node])
        self.cache = Cache(frame, self.node)
        self.area = Area(frame, max(self.split.tokens * self.split.heads, self.alone), self.extent.channels)

    def launch(self) -> Launch:
        k, extent = self.k, self.extent
        tiles = ceil_div(extent.tokens, self.split.tokens)
        position = Space(k, self.frame.sizes, (extent.groups, tiles), k.group_id())
        self.kv_head = position.span(0, 1)
        first = self.balanced(position.span(1, 2), self.frame.sizes.val(tiles)) * self.split.tokens
        self.run(first, self.frame.sizes.val(extent.tokens))
        return self.frame.finish(product((extent.groups, tiles)), self.group, flops=extent.flops)

    def balanced(self, tile: Val, tiles: Val) -> Val:
        """Early tokens see little, late ones much: first and last take turns, so neighbours have equal work."""
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
        for buffer, value in ((self.area.tops, LOWEST), (self.area.here, LOWEST)):
            k.store(buffer, lane, k.const(value, f32))
        for buffer in (self.area.totals, self.area.sums):
            k.store(buffer, lane, k.const(0.0, f32))
        with k.loop(rows * self.extent.channels, 0, LANES, always=True) as at:
            k.store(self.area.results, at + lane, k.const(0.0, f32))

    def merge(self) -> None:
        """All rows at once, a row a lane."""
        k, lane, area = self.k, self.k.lane(), self.area
        operands = (k.load(b, lane) for b in (area.tops, area.totals, area.here, area.sums))
        after = merged(k, *operands)
        for buffer, value in ((area.tops, after.top), (area.totals, after.total)):
            k.store(buffer, lane, value)
        for buffer, value in ((area.keep, after.keep), (area.add, after.add)):
            k.store(buffer, lane, value)
        k.barrier()

    def result_at(self, row: int, vector: Val) -> Val:
        return row * self.extent.channels + vector * LANES + self.k.lane()

    def collect(self, row: int, vector: Val, acc: Val) -> None:
        """result = result * keep + acc * add"""
        k, at = self.k, self.result_at(row, vector)
        kept = k.load(self.area.results, at) * k.load(self.area.keep, row)
        k.store(self.area.results, at, k.fma(acc, k.load(self.area.add, row), kept))

    def finish(self, tile: Tile) -> None:
        k, channels = self.k, self.extent.channels
        with k.loop(tile.rows, always=True) as row, k.loop(channels, 0, LANES, always=True) as channel:
            token, head = tile.place(row)
            value = k.load(self.area.results, row * channels + channel + k.lane()) / k.load(self.area.totals, row)
            at = (token * self.extent.heads + head) * channels + channel + k.lane()
            k.store(self.out, at, tile.where.unless_padding(token, value))


# -- blocks spread over workgroups ------------------------------------------------------------------------------------


class Spread:
    """Two kernels: every block of every token by itself, then, for every row, the blocks merged in order."""

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
        token, kv_head, block = (Space(k, frame.sizes, grid, k.group_id()).span(i, i + 1) for i in range(3))
        buffers = [frame.output(slot) for slot in (self.here, self.sums, self.parts)]
        heads = heads_alone(extent.shared, frame.memory.target.f32_tile.rows)
        tile = Tile(frame, self.node, Cache(frame, self.node), Area(frame, heads, extent.channels), 1, heads)
        first, stop = tile.where.blocks(token)

        def run_tile(head: Val) -> None:
            tile.start(token, kv_head, head)
            tile.weights(block)
            self.keep(tile, block, buffers)

        with k.when((block >= first) & (block < stop)):
            each_tile(k, extent.shared, heads, run_tile)
        return frame.finish(product(grid), self.group, flops=extent.flops)

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
        frame.reads([*self.node.inputs[3:6]])
        k, sizes = frame.k, frame.sizes
        out = frame.output(frame.memory.slots[self.node])
        here, sums, parts = (frame.input(slot) for slot in (self.here, self.sums, self.parts))
        grid: Shape = (extent.tokens, extent.heads)
        token, head = (Space(k, sizes, grid, k.group_id()).span(i, i + 1) for i in range(2))
        where = Tokens(frame, self.node)
        where.check(token)
        top, total = k.local(LOWEST, f32), k.local(0.0, f32)
        results = [k.local(0.0, f32) for _ in range(extent.channels // LANES)]
        first, stop = where.blocks(token)
        with k.loop(stop, first) as block:
            at = self.row_at(token, head) + block
            after = merged(k, top.get(), total.get(), k.load(here, at), k.load(sums, at))
            top.set(after.top)
            total.set(after.total)
            for v, result in enumerate(results):
                acc = k.load(parts, at * extent.channels + v * LANES + k.lane())
                result.set(k.fma(acc, after.add, result.get() * after.keep))
        for v, result in enumerate(results):
            value = where.unless_padding(token, result.get() / total.get())
            k.store(out, k.group_id() * extent.channels + v * LANES + k.lane(), value)
        return frame.finish(product(grid), self.group)
