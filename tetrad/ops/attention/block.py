"""Kernels, attention in a block: what a token sees, how a cache is read, and a tile of rows
against 256 keys.

Rows of a tile are query heads that share a kv head, of one token or of neighbouring tokens of one
slot, so a key is converted once for all of them. A lane is first a key (scores), then a channel
(values). Only keys a token sees take part: what others hold, NaN too, does not matter.
`ops.attention.kernel` walks the blocks and merges them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tetrad.core.dtypes import f32, index
from tetrad.core.machine import LANES, RegisterTile
from tetrad.core.record import record
from tetrad.core.sizes import Size, plain
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.kernel.math import exponential as math
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.reader import FIRST_TRAP
from tetrad.ops.attention.op import KEYS, SCALED, out_of_range
from tetrad.schedule.nodes import TrapSite

# between rows of scores: rows a power of two apart would share places in the cache
PITCH = KEYS + LANES
UNROLL = 4  # steps of an inner loop written out
LOWEST = -float("inf")

Locals = list[list[LocalVar]]  # accumulators: rows, vectors
Pairs = list[tuple[Val, Val]]
Left = tuple[Buffer, int]  # rows in scratch, and the pitch between them
Sink = Callable[[int, Val, Val], None]  # row, vector of channels, the block's result there


@record
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
    return Extent(tokens, *(plain(n) for n in (heads, channels, layers, slots, groups, keys)))


# -- operands --------------------------------------------------------------------------------------


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
        for name, value, count in (
            ("layer", self.layer(), size.layers),
            ("slot", self.slot(token), size.slots),
        ):
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
        return (
            self.k.max(self.position(token) - (self.window - 1), 0)
            if self.window
            else self.k.index(0)
        )

    def unless_padding(self, token: Val, value: Val) -> Val:
        return self.k.select(self.position(token) < 0, 0.0, value)

    def blocks(self, token: Val) -> tuple[Val, Val]:
        """The blocks with a key it sees: first, and one past the last."""
        return self.first(token) // KEYS, (self.k.max(self.position(token), -1) + KEYS) // KEYS

    def seen(self, token: Val, block: Val) -> tuple[Val, Val]:
        """The keys of a block it sees: first, and one past the last, counted from the block's
        first."""
        k, base = self.k, block * KEYS
        stop = k.min(k.max(self.position(token) + 1 - base, 0), KEYS)
        return (
            k.min(k.max(self.first(token) - base, 0), KEYS) if self.window else k.index(0)
        ), stop


class Cache:
    """The keys and values one kv head has for one slot, element by element. Other storage changes
    only this class."""

    def __init__(self, frame: Frame, node: Node) -> None:
        self.k, self.extent = frame.k, extent_of(node)
        made, slots = frame.reading.buffers, frame.memory.slots
        self.keys, self.values, *self.packed = (
            made.get(i) or frame.input(slots[i]) for i in (*node.inputs[1:3], *node.inputs[6:])
        )
        self.parts = self.extent.channels // SCALED  # of a key or a value, each with a scale
        names = ("key_scales", "value_scales") if self.packed else ()
        self.scales = [frame.scratch(name, f32, KEYS * self.parts) for name in names]
        # of the cache seen as [L*S*G, C, D]
        self.line, self.block = self.k.index(0), self.k.index(0)

    def select(self, layer: Val, slot: Val, head: Val) -> None:
        self.line = (layer * self.extent.slots + slot) * self.extent.groups + head

    def open(self, block: Val) -> None:
        """From now on, this block. Its scales are converted once; beside a full tile no register is
        left for them."""
        k = self.k
        self.block = block
        if not self.packed:
            return
        first = (self.line * self.extent.keys + block * KEYS) * self.parts
        with k.loop(KEYS * self.parts, 0, LANES, always=True) as at:
            for packed, scales in zip(self.packed, self.scales, strict=True):
                k.store(scales, at + k.lane(), k.cast(k.load(packed, first + at + k.lane()), f32))
        k.barrier()

    def read_key(self, vector: Val, start: Val, channel: Val) -> Val:
        """Sixteen keys of the block at a channel; `start` is the channel its part begins with."""
        k, lane = self.k, self.k.lane()
        row = self.line * (self.extent.keys // LANES) + self.block * (KEYS // LANES) + vector
        value = k.cast(
            k.load(self.keys, (row * self.extent.channels + channel) * LANES + lane), f32
        )
        if not self.packed:
            return value
        return value * k.load(
            self.scales[0], (vector * self.parts + start // SCALED) * LANES + lane
        )

    def column(self, vector: Val) -> tuple[Val, Val]:
        """Where sixteen channels stand in a value, and their scale among its scales."""
        return vector * LANES, vector // (SCALED // LANES) if self.packed else vector

    def read_value(self, key: Val, column: tuple[Val, Val]) -> Val:
        """Sixteen channels of a value of the block."""
        k = self.k
        row = self.line * self.extent.keys + self.block * KEYS + key
        value = k.cast(k.load(self.values, row * self.extent.channels + column[0] + k.lane()), f32)
        return (
            value * k.load(self.scales[1], key * self.parts + column[1]) if self.packed else value
        )


@record
class Registers:
    """Accumulators of a row, in vectors, and copies of the left side.

    Beside its accumulators a tile holds the vectors of the right side, until the last row has used
    them. Where that leaves too few accumulators to keep the multipliers busy, vectors come one by
    one, each with its copy of the left side: elements at one address would be read once, and held.
    """

    vectors: int
    copies: int


def registers_of(tile: RegisterTile, rows: int, is_scaled: bool) -> Registers:
    most, held = tile.rows * tile.vectors // rows, (tile.rows + 1) * tile.vectors // (rows + 1)
    if rows == 1:
        return Registers(most, 1)
    return (
        Registers(most, most) if held == 1 < most and not is_scaled else Registers(max(held, 1), 1)
    )


class Area:
    """Scratch of tiles in a block: queries, scores that become weights, and by row their maximum
    and their sum."""

    def __init__(self, frame: Frame, cache: Cache, rows: list[int], channels: int) -> None:
        tile, is_scaled = frame.memory.machine.f32_tile, bool(cache.packed)
        lines = max(n * registers_of(tile, n, is_scaled).copies for n in rows)
        self.pitch = channels + LANES
        self.queries = frame.scratch("queries", f32, lines * self.pitch)
        self.scores = frame.scratch("scores", f32, lines * PITCH)
        self.totals = frame.scratch("totals", f32, max(rows) * LANES)  # of weights, by lane
        self.here, self.sums = (frame.scratch(name, f32, LANES) for name in ("here", "sums"))


# -- one block -------------------------------------------------------------------------------------


class Tile:
    """Rows `token * heads + head` against a block of keys."""

    def __init__(
        self, frame: Frame, node: Node, cache: Cache, area: Area, tokens: int, heads: int
    ) -> None:
        self.frame, self.k, self.node, self.extent = frame, frame.k, node, extent_of(node)
        self.cache, self.area = cache, area
        self.tokens, self.heads, self.rows = tokens, heads, tokens * heads
        self.where = Tokens(frame, node)
        self.registers = registers_of(frame.memory.machine.f32_tile, self.rows, bool(cache.packed))
        self.token, self.head = self.k.index(0), self.k.index(0)

    def start(self, token: Val, group: Val, head: Val) -> None:
        """Take the rows from this token and this head of the kv head on."""
        k, extent = self.k, self.extent
        self.token, self.head = token, group * extent.shared + head
        for i in range(self.tokens):
            self.where.check(token + i)
        self.cache.select(self.where.layer(), self.where.slot(token), group)
        queries = self.frame.reading.operand(self.node.inputs[0])
        with (
            k.loop(self.rows, always=True) as row,
            k.loop(extent.channels, 0, LANES, always=True) as channel,
        ):
            lane = channel + k.lane()
            value = queries((*self.place(row), lane))
            for copy in range(self.registers.copies):
                k.store(self.area.queries, (row + copy * self.rows) * self.area.pitch + lane, value)
        k.barrier()

    def place(self, row: int | Val) -> tuple[Val, Val]:
        """Token and query head of a row."""
        return self.token + row // self.heads, self.head + row % self.heads

    def locals(self, vectors: int) -> Locals:
        return [[self.k.local(0.0, f32) for _ in range(vectors)] for _ in range(self.rows)]

    def spans(self, block: Val) -> Pairs:
        """What each token sees of a block."""
        return [self.where.seen(self.token + i, block) for i in range(self.tokens)]

    def weights(self, block: Val) -> None:
        """scores[row][key] = exp(score - maximum); maximum and sum of every row in `here` and
        `sums`.

        Lanes are joined for all rows at once: one row alone would wait for each step of its tree.
        """
        k, area = self.k, self.area
        self.cache.open(block)
        join_lanes(self.k, self.score(self.spans(block)), area.here, partial(greater, k))
        k.barrier()
        with k.loop(self.rows, always=True) as row:
            token = self.token if self.tokens == 1 else self.token + row // self.heads
            self.softmax(row, *self.where.seen(token, block))
        k.barrier()
        totals = [k.load(area.totals, row * LANES + k.lane()) for row in range(self.rows)]
        join_lanes(self.k, totals, area.sums, lambda x, y: y + x)
        k.barrier()

    def score(self, spans: Pairs) -> list[Val]:
        """scores[row][key] = q . k * scale for every vector of keys between first and stop, the
        lowest of all where a row does not see the key: never the maximum, and a weight of exactly
        0. Returns the maxima of rows, by lane."""
        k, vectors = self.k, divisor(KEYS // LANES, self.registers.vectors)
        first, stop = hull(k, spans)
        start = first // (vectors * LANES) * vectors
        tops = [k.local(LOWEST, f32) for _ in range(self.rows)]
        with k.loop((stop + (LANES - 1)) // LANES, start, vectors) as vector:
            accs = self.locals(vectors)
            self.dot(accs, [vector + v for v in range(vectors)])
            with k.when(self.all_seen(vector * LANES, (vector + vectors) * LANES, spans)):
                self.keep_scores(accs, vector, tops, [])
            with k.otherwise():
                self.keep_scores(accs, vector, tops, spans)
        return [top.get() for top in tops]

    def all_seen(self, first: Val, stop: Val, spans: Pairs) -> Val:
        """Does every token see all keys from first to stop?"""
        seen = stop <= least([s for _, s in spans], self.k.min)
        return (
            seen & (first >= least([s for s, _ in spans], self.k.max))
            if self.where.window
            else seen
        )

    def keep_scores(self, accs: Locals, vector: Val, tops: list[LocalVar], spans: Pairs) -> None:
        """With spans, for the keys they have."""
        k = self.k
        for row, line in enumerate(accs):
            for v, acc in enumerate(line):
                key = (vector + v) * LANES + k.lane()
                score = self.capped(acc.get() * k.const(self.node.param("scale"), f32))
                if spans:
                    first, stop = spans[row // self.heads]
                    seen = (key >= first) & (key < stop) if self.where.window else key < stop
                    score = k.select(seen, score, LOWEST)
                k.store(self.area.scores, row * PITCH + key, score)
                tops[row].set(greater(k, score, tops[row].get()))

    def capped(self, score: Val) -> Val:
        """c tanh(score / c), where there is a softcap c."""
        c = float(dict(self.node.params).get("softcap", 0.0))
        return math.tanh(self.k, score / c) * c if c else score

    def dot(self, accs: Locals, keys: list[Val]) -> None:
        """One chain over channels, ascending."""
        k, span = self.k, SCALED if self.cache.packed else self.extent.channels
        with (
            k.loop(self.extent.channels, 0, span, always=True) as start,
            k.loop(start + span, start, UNROLL, always=True) as channel,
        ):
            for u in range(UNROLL):
                right = [
                    partial(self.cache.read_key, vector, start, channel + u) for vector in keys
                ]
                self.multiply_add(accs, 0, (self.area.queries, self.area.pitch), channel + u, right)

    def multiply_add(
        self, accs: Locals, top: int, left: Left, at: Val, right: Sequence[Callable[[], Val]]
    ) -> None:
        """accs[row][v] += left[row][at] * right[v], the rows counted from `top`."""
        if self.registers.copies > 1:
            for v, read in enumerate(right):
                self.add_products(
                    [[line[v]] for line in accs], top + v * self.rows, left, at, [read()]
                )
            return
        self.add_products(accs, top, left, at, [read() for read in right])

    def add_products(self, accs: Locals, top: int, left: Left, at: Val, right: list[Val]) -> None:
        buffer, pitch = left
        for row, line in enumerate(accs, top):
            x = self.k.load(buffer, row * pitch + at)
            for acc, value in zip(line, right, strict=True):
                acc.set(self.k.fma(x, value, acc))

    def softmax(self, row: Val, first: Val, stop: Val) -> None:
        """Scores of the keys from first to stop, and of those beside them in a vector, become
        weights."""
        k, scores = self.k, self.area.scores
        start, end = first // LANES * LANES, (stop + (LANES - 1)) // LANES * LANES
        shift, total = finite(k, k.load(self.area.here, row)), k.local(0.0, f32)
        with k.loop(end, start, LANES) as key:
            at = row * PITCH + key + k.lane()
            weight = math.exp_nonpositive(k, k.load(scores, at) - shift)
            for copy in range(self.registers.copies):
                k.store(scores, at + copy * self.rows * PITCH, weight)
            total.set(total.get() + weight)
        k.store(self.area.totals, row * LANES + k.lane(), total)

    def weigh(self, block: Val, sink: Sink) -> None:
        """Each row's sum of weight * value: one chain over the keys its token sees, ascending."""
        k, chunks = self.k, self.extent.channels // LANES
        vectors = divisor(chunks, self.registers.vectors)
        spans = self.spans(block)
        with k.loop(chunks, 0, vectors, always=True) as chunk:
            accs = self.locals(vectors)
            columns = [self.cache.column(chunk + v) for v in range(vectors)]
            self.walk_keys(accs, columns, spans)
            for row, line in enumerate(accs):
                for v, acc in enumerate(line):
                    self.offer(sink, row, chunk + v, acc, spans[row // self.heads])

    def offer(
        self, sink: Sink, row: int, vector: Val, acc: LocalVar, span: tuple[Val, Val]
    ) -> None:
        """A row that sees nothing of the block stays as it is. (A tile of one token only walks
        blocks it sees.)"""
        if self.tokens == 1:
            sink(row, vector, acc.get())
            return
        with self.k.when(span[1] > span[0]):
            sink(row, vector, acc.get())

    def walk_keys(self, accs: Locals, columns: Pairs, spans: Pairs) -> None:
        """Keys that every token sees go four at a time, those before and after one at a time, to
        who sees them."""
        k = self.k
        first, stop = hull(k, spans)
        common = stop if self.tokens == 1 else least([s for _, s in spans], k.min)
        begin = first if self.tokens == 1 else k.min(least([s for s, _ in spans], k.max), stop)
        end = begin + k.max(common - begin, 0) // UNROLL * UNROLL
        if self.where.window and self.tokens > 1:
            with k.loop(begin, first) as key:
                self.weigh_key(accs, columns, key, spans)
        with k.loop(end, begin, UNROLL) as key:
            for u in range(UNROLL):
                self.weigh_key(accs, columns, key + u, [])
        with k.loop(stop, end) as key:
            self.weigh_key(accs, columns, key, spans)

    def weigh_key(self, accs: Locals, columns: Pairs, key: Val, spans: Pairs) -> None:
        """One key for all rows; with spans, for the rows of tokens that see it."""
        k, heads = self.k, self.heads
        left, right = (
            (self.area.scores, PITCH),
            [partial(self.cache.read_value, key, column) for column in columns],
        )
        if not spans or self.tokens == 1:
            self.multiply_add(accs, 0, left, key, right)
            return
        values = [read() for read in right]
        for i, (first, stop) in enumerate(spans):
            with k.when((key >= first) & (key < stop)):
                self.add_products(accs[i * heads : (i + 1) * heads], i * heads, left, key, values)


def hull(k: KernelBuilder, spans: Pairs) -> tuple[Val, Val]:
    return least([first for first, _ in spans], k.min), least([stop for _, stop in spans], k.max)


def least(values: list[Val], join: Callable[[Val, Val], Val]) -> Val:
    found = values[0]
    for value in values[1:]:
        found = join(found, value)
    return found


def join_lanes(
    k: KernelBuilder, values: list[Val], whole: Buffer, op: Callable[[Val, Val], Val]
) -> None:
    """The lanes of every row by a halving tree, each result into `whole`; all rows at once, for one
    alone would wait for each step of its tree."""
    for width in (8, 4, 2, 1):
        values = [op(k.rotate(value, width), value) for value in values]
    for row, value in enumerate(values):
        k.store(whole, row, k.broadcast(value))


def greater(k: KernelBuilder, x: Val, y: Val) -> Val:
    """The maximum of two scores, y where x is NaN: a NaN finds its way into the sum by its own
    weight."""
    return k.select(x > y, x, y)


def finite(k: KernelBuilder, top: Val) -> Val:
    """What to subtract before exp: nothing, where all scores are -inf."""
    return k.select(top.eq(LOWEST), 0.0, top)


def divisor(count: int, most: int) -> int:
    """The largest number up to `most` that divides `count`."""
    return max(n for n in range(1, most + 1) if count % n == 0)


@record
class BlockMerge:
    """Two runs of blocks become one: the maximum and the sum of both, and what the results of each
    count."""

    top: Val
    total: Val
    keep: Val
    add: Val


def merged(k: KernelBuilder, before: Val, total: Val, here: Val, mine: Val) -> BlockMerge:
    after = greater(k, here, before)
    shift = finite(k, after)
    keep, add = math.exp_nonpositive(k, before - shift), math.exp_nonpositive(k, here - shift)
    return BlockMerge(after, k.fma(total, keep, mine * add), keep, add)
