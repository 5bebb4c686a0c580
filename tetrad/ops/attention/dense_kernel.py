"""Kernels, attention over arrays: a block of query rows of a kv head through the key blocks it
sees.

Keys and values are packed first (`ops.attention.packing`), in a launch of their own where a kv head
has several blocks of rows. A workgroup takes ROWS rows through the key blocks, a register tile of
them at a time, so that a block is read from memory once for all of them. Order and merging are
those of `ops.attention.block`; of every row the logarithm of its sum is kept for the gradient.
`Scoring` is shared with the gradient's kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tetrad.core.dtypes import DType, index
from tetrad.core.machine import LANES, RegisterTile
from tetrad.core.record import record
from tetrad.core.sizes import Shape, Size, ceil_div, is_below, product
from tetrad.core.types import row_strides
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.kernel.math import exponential as math
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.index import Space, offset
from tetrad.ops.attention.block import LOWEST, UNROLL, divisor, finite, greater, join_lanes, merged
from tetrad.ops.attention.dense import UNBOUNDED, AttentionForm, accumulator, form_of
from tetrad.ops.attention.op import KEYS
from tetrad.ops.attention.packing import (
    COLUMNS,
    Copies,
    CopyPlan,
    NearCopies,
    Stored,
    finite_or_zero,
    padded,
)
from tetrad.ops.attention.packing import ROWS as IN_ROWS
from tetrad.schedule.nodes import Launch

ROWS = (
    64  # of a workgroup: a block of keys and values is read from the second cache for all of them
)
PITCH = KEYS + LANES  # rows a power of two apart would share places in the cache

Accumulators = list[list[LocalVar]]  # rows, vectors


def node_form(node: Node) -> AttentionForm:
    settings = {name: value for name, value in node.params if name != "wrt"}
    return form_of(*(x.type for x in node.inputs[:3]), **settings)


def lower_dense(group: Group, memory: Memory) -> list[Launch]:
    form = node_form(group.root)
    attend = Attend(group, form, memory)
    return [*attend.packs, attend.launch()]


@record
class TileRows:
    """Rows of a register tile, its vectors, and the rows of a workgroup, which are whole tiles."""

    tile: int
    vectors: int
    block: int


def rows_of(tile: RegisterTile, form: AttentionForm) -> TileRows:
    """Few rows make tiles of fewer, which have room for more vectors."""
    count = max(form.times * form.shared, 1) if isinstance(form.times, int) else ROWS
    tiles = -(-min(count, ROWS) // tile.rows)
    rows = min(tile.rows, -(-count // tiles))
    has_room = tile.rows * tile.vectors >= 2 * rows and not is_below(form.keys, LANES + 1)
    return TileRows(rows, 2 if has_room else 1, min(ROWS // rows, -(-count // rows)) * rows)


@record
class Range:
    """Keys between first and stop."""

    first: Val
    stop: Val


class Visibility:
    """Which keys the queries of a batch see: a range for each time, and what a mask says."""

    def __init__(self, frame: Frame, node: Node, form: AttentionForm, batch: Val) -> None:
        self.frame, self.k, self.node, self.form = frame, frame.k, node, form
        self.batch = batch
        self.times, self.keys = (frame.sizes.val(n) for n in (form.times, form.keys))
        self.shift = self.keys - self.times if form.causal == "bottom_right" else self.k.index(0)
        self.end = self.limit("key_lengths", self.keys)
        # each time has a range of its own, in no order
        self.is_packed = bool({"key_starts", "key_stops"} & set(form.given))

    def limit(self, name: str, size: Val) -> Val:
        """The length of this batch, at most the size and at least 0."""
        node = self.form.operand(self.node.inputs, name)
        if node is None:
            return size
        at = self.batch if node.type.shape[0] != 1 else self.k.index(0)
        length = self.k.cast(self.frame.reading.wide(node, (at,)), index)
        return self.k.max(self.k.min(length, size), 0)

    def bound(self, name: str, time: Val) -> Val | None:
        """Where a query begins or ends to see, if an operand says so."""
        node = self.form.operand(self.node.inputs, name)
        if node is None:
            return None
        batches, times = node.type.shape
        at = self.batch if batches != 1 else self.k.index(0)
        place = (at, time if times != 1 else self.k.index(0))
        return self.k.cast(self.frame.reading.wide(node, place), index)

    def first(self, time: Val) -> Val:
        k, before = self.k, self.form.before
        first = k.max(time + self.shift - before, 0) if before < UNBOUNDED else k.index(0)
        start = self.bound("key_starts", time)
        return first if start is None else k.max(first, start)

    def stop(self, time: Val) -> Val:
        k, form, stop = self.k, self.form, self.end
        if form.causal:
            stop = k.min(stop, k.max(time + self.shift + 1, 0))
        if form.after < UNBOUNDED:
            stop = k.min(stop, k.max(time + self.shift + (form.after + 1), 0))
        end = self.bound("key_stops", time)
        return stop if end is None else k.max(k.min(stop, end), 0)

    def own(self, time: Val) -> Range:
        """Keys that a time sees."""
        return Range(self.first(time), self.stop(time))

    def hull(self, low: Val, high: Val) -> Range:
        """Keys that some time from low to high sees."""
        if not self.is_packed:
            return Range(self.first(low), self.stop(high))
        k = self.k
        first, stop = k.local(self.keys), k.local(k.index(0))
        with k.loop(high + 1, low) as time:
            own = self.own(time)
            with k.when(own.first < own.stop):  # who sees nothing says nothing
                first.set(k.min(first, own.first))
                stop.set(k.max(stop, own.stop))
        return Range(first.get(), stop.get())

    def common(self, low: Val, high: Val) -> Range:
        """Keys that all of them see."""
        if not self.is_packed:
            return Range(self.first(high), self.stop(low))
        k = self.k
        first, stop = k.local(k.index(0)), k.local(self.keys)
        with k.loop(high + 1, low) as time:
            own = self.own(time)
            first.set(k.max(first, own.first))
            stop.set(k.min(stop, own.stop))
        return Range(first.get(), stop.get())

    def clipped(self, keys: Range, base: Val) -> Range:
        """Counted from the first key of a block, inside it."""
        k = self.k
        first, stop = (
            k.min(k.max(x - base, 0), KEYS) if x.const != 0 else k.index(0)
            for x in (keys.first, keys.stop)
        )
        return Range(first, stop)

    def optional(self, name: str, head: Val, time: Val, key: Val) -> Val | None:
        """The element that bias or mask has for a query and a key."""
        node = self.form.operand(self.node.inputs, name)
        if node is None:
            return None
        at = (self.batch, head, time, key)
        places = tuple(
            self.k.index(0) if n == 1 else i for i, n in zip(at, node.type.shape, strict=True)
        )
        return self.frame.reading.wide(node, places)


class RowBlock:
    """The rows of a workgroup: `first` on, time t and query head h of a kv head at t * shared +
    h."""

    def __init__(self, frame: Frame, form: AttentionForm, rows: TileRows, position: Space) -> None:
        self.k, self.form, self.rows = frame.k, form, rows
        k, sizes = frame.k, frame.sizes
        self.line = position.span(0, 1)
        lines = Space(k, sizes, (form.batch, form.groups), self.line)
        self.batch, self.group = (lines.span(i, i + 1) for i in range(2))
        self.count = sizes.val(row_count(form))

    def time(self, row: Val) -> Val:
        return row // self.form.shared if self.form.shared > 1 else row

    def head(self, row: Val) -> Val:
        shared = self.form.shared
        return self.group * shared + row % shared if shared > 1 else self.group

    def whole_tiles(self, top: Val) -> Val | int:
        """Rows from `top` on that are staged: whole tiles, at most a block."""
        return self.rows.block

    def place(self, row: Val, channel: Val) -> tuple[Val, ...]:
        return self.form.at(self.batch, self.time(row), self.head(row), channel)


def row_count(form: AttentionForm) -> Size:
    return form.times * form.shared


class Scoring:
    """Scores of a register tile of staged rows against a block of keys."""

    def __init__(
        self, frame: Frame, node: Node, form: AttentionForm, copies: Copies, block: RowBlock
    ) -> None:
        self.frame, self.k, self.node, self.form = frame, frame.k, node, form
        self.block, self.rows, self.copies = block, block.rows, copies
        self.dtype = accumulator(node.inputs[0].type.dtype)
        self.sight = Visibility(frame, node, form, block.batch)
        self.columns, self.flags = copies.buffers[1, COLUMNS], copies.flags
        self.pitch = padded(form.channels) + LANES
        self.queries = frame.scratch("queries", self.dtype, self.rows.block * self.pitch)
        self.row_flags = frame.scratch("row_flags", self.dtype, self.rows.block)

    def stage(
        self, top: Val, node: Node, channels: int, area: Buffer, pitch: int, flags: Buffer
    ) -> None:
        """Rows `top` on of q, or of what has its axes; the last repeats behind the end. Where keys
        can be hidden, what is not finite is 0, and its row starts scores with NaN."""
        k, lane, hides = self.k, self.k.lane(), self.form.hides
        with k.loop(self.block.whole_tiles(top), always=True) as row:
            flag = k.local(0.0, self.dtype)
            with k.loop(padded(channels), 0, LANES) as channel:
                value = self.element(
                    node, k.min(top + row, self.block.count - 1), channel, channels
                )
                if hides:
                    flag.set(k.fma(value, 0.0, flag))
                    value = finite_or_zero(k, value)
                k.store(area, row * pitch + channel + lane, value)
            if hides:
                k.store(flags, row, k.reduce_lanes("add", flag.get()))
        k.barrier()

    def element(self, node: Node, row: Val, channel: Val, channels: int) -> Val:
        k, lane = self.k, channel + self.k.lane()
        at = self.block.place(row, lane)
        if channels % LANES == 0:
            return k.cast(self.frame.reading.wide(node, at), self.dtype)
        value = k.local(0.0, self.dtype)
        with k.when(lane < channels, guard=True):
            value.set(k.cast(self.frame.reading.wide(node, at), self.dtype))
        return value.get()

    def times(self, row: Val) -> tuple[Val, Val]:
        """Of a tile, the first and the last time; rows behind the last repeat it."""
        k, last = self.k, self.block.count - 1
        return (
            self.block.time(k.min(row, last)),
            self.block.time(k.min(row + (self.rows.tile - 1), last)),
        )

    def dots(
        self, accs: Accumulators, left: Buffer, pitch: int, top: Val, columns: Buffer,
        channels: int, vectors: list[Val],
    ) -> None:  # fmt: skip
        """accs[row][v] += left[top + row] . columns[v], one chain over channels, ascending."""
        whole = channels // UNROLL * UNROLL
        with self.k.loop(whole, 0, UNROLL) as channel:
            for u in range(UNROLL):
                self.dot_step(accs, left, pitch, top, columns, channels, vectors, channel + u)
        for last in range(whole, channels):
            self.dot_step(accs, left, pitch, top, columns, channels, vectors, self.k.index(last))

    def dot_step(
        self, accs: Accumulators, left: Buffer, pitch: int, top: Val, columns: Buffer,
        channels: int, vectors: list[Val], channel: Val,
    ) -> None:  # fmt: skip
        k = self.k
        right = [
            k.load(columns, (vector * channels + channel) * LANES + k.lane()) for vector in vectors
        ]
        add_products(k, accs, lambda row: k.load(left, (top + row) * pitch + channel), right)

    def vector_at(self, base: Val, vector: Val) -> Val:
        """Where a vector of keys of a block stands among all of the packed columns."""
        return self.copies.origin(base) // LANES + vector

    def start(self, top: Val, at: list[Val]) -> Accumulators:
        """Scores begin with 0, or with NaN where a query or a key that can be hidden is not
        finite."""
        k = self.k
        if self.flags is None:
            return accumulators(k, self.dtype, self.rows.tile, len(at))
        keys = [k.load(self.flags, vector * LANES + k.lane()) for vector in at]
        rows = [k.load(self.row_flags, top + row) for row in range(self.rows.tile)]
        return [[k.local(key + row) for key in keys] for row in rows]

    def is_all_seen(self, vector: Val, common: Range) -> Val:
        """Do all rows see all keys of the vectors from here, as far as ranges say?"""
        seen = (vector + self.rows.vectors) * LANES <= common.stop
        return seen & (vector * LANES >= common.first) if self.form.begins_late else seen

    def in_vectors(self, keys: Range) -> Range:
        """The same keys, and those beside them in a step of vectors."""
        step = self.rows.vectors * LANES
        return Range(keys.first // step * step, (keys.stop + (step - 1)) // step * step)

    def by_sight(self, vector: Val, common: Range, visit: Callable[[bool], None]) -> None:
        """Visit vectors of keys, told whether all rows see all of them: then nothing is tested."""
        if {"mask", "bias"} & set(self.form.given):
            visit(False)
            return
        with self.k.when(self.is_all_seen(vector, common)):
            visit(True)
        with self.k.otherwise():
            visit(False)

    def score(self, product: Val) -> Val:
        """c tanh(product * scale / c) where there is a softcap c."""
        score, c = product * self.k.const(self.form.scale, self.dtype), self.form.softcap
        return math.tanh(self.k, score / c) * c if c else score

    def visible(self, score: Val, row: Val, base: Val, key: Val, own: Range) -> Val:
        """The score of a row, with bias, where it sees the key; the lowest of all elsewhere: never
        the maximum, and a weight of exactly 0."""
        k, absolute = self.k, base + key
        seen = key < own.stop
        if self.form.begins_late:
            seen = seen & (key >= own.first)
        if not {"mask", "bias"} & set(self.form.given):
            return k.select(seen, score, LOWEST)
        found = k.local(LOWEST, self.dtype)
        with k.when(seen, guard=True):
            place = self.block.head(row), self.block.time(row), absolute
            bias, mask = (self.sight.optional(name, *place) for name in ("bias", "mask"))
            score = score if bias is None else score + k.cast(bias, self.dtype)
            found.set(score if mask is None else k.select(mask, score, LOWEST))
        return found.get()


def accumulators(k: KernelBuilder, dtype: DType, rows: int, vectors: int) -> Accumulators:
    return [[k.local(0.0, dtype) for _ in range(vectors)] for _ in range(rows)]


def add_products(
    k: KernelBuilder, accs: Accumulators, left: Callable[[int], Val], right: list[Val]
) -> None:
    """accs[row][v] += left(row) * right[v]"""
    for row, line in enumerate(accs):
        x = left(row)
        for acc, value in zip(line, right, strict=True):
            acc.set(k.fma(x, value, acc))


class Attend:
    """The kernel in which a workgroup takes a block of rows through all key blocks they see."""

    def __init__(self, group: Group, form: AttentionForm, memory: Memory) -> None:
        self.group, self.node, self.form = group, group.root, form
        self.dtype = accumulator(self.node.inputs[0].type.dtype)
        self.frame = Frame(group.name, memory)
        self.k = self.frame.k
        self.frame.reads([self.node.inputs[0], *self.node.inputs[3:]])
        is_wide = self.dtype.bits == 64
        tile = memory.machine.f64_tile if is_wide else memory.machine.f32_tile
        self.rows = rows_of(tile, form)
        self.out, self.logs = (self.frame.output(slot) for slot in memory.results(self.node))
        self.width = padded(form.width)
        self.plan = CopyPlan(
            self.node, form, ((1, COLUMNS), (2, IN_ROWS)), LANES * self.rows.vectors
        )
        self.blocks = ceil_div(row_count(form), self.rows.block)
        self.stored = None if self.blocks == 1 else Stored(self.plan, group, memory)
        self.packs = [] if self.stored is None else self.stored.launches()

    def launch(self) -> Launch:
        form, k, rows = self.form, self.k, self.rows
        grid = (product((form.batch, form.groups)), self.blocks)
        position = Space(k, self.frame.sizes, grid, k.group_id())
        self.block = RowBlock(self.frame, form, rows, position)
        self.copies = self.copies_of()
        self.values = self.copies.buffers[2, IN_ROWS]
        self.scoring = Scoring(self.frame, self.node, form, self.copies, self.block)
        self.sight = self.scoring.sight
        self.make_scratch()
        blocks = self.frame.sizes.val(self.blocks)
        self.run(self.balanced(position.span(1, 2), blocks) * rows.block)
        flops = product((form.batch, form.heads, form.times, form.keys)) * (
            2 * (form.channels + form.width)
        )
        return self.frame.finish(product(grid), self.group, flops=flops)

    def copies_of(self) -> Copies:
        if self.stored is None:
            self.frame.reads(self.node.inputs[1:3])
            return NearCopies(self.plan, self.frame, self.block.batch, self.block.group)
        self.stored.read_by(self.frame, self.block.line)
        return self.stored

    def balanced(self, block: Val, blocks: Val) -> Val:
        """Early rows see little of what is causal, late ones much: first and last take turns, so
        neighbours have equal work."""
        if not self.form.causal:
            return block
        half = block // 2
        return self.k.select((block % 2).eq(0), half, blocks - 1 - half)

    def make_scratch(self) -> None:
        tiles, rows = self.rows.block // self.rows.tile, self.rows
        state = (rows.tile + LANES - 1) // LANES * LANES  # of a tile, a row a lane
        self.state = state

        def scratch(name: str, count: int) -> Buffer:
            return self.frame.scratch(name, self.dtype, count)

        self.scores = scratch("scores", rows.tile * PITCH)
        self.by_lane = scratch("by_lane", rows.tile * LANES)
        self.here, self.sums, self.keep, self.add = (
            scratch(name, state) for name in ("here", "sums", "keep", "add")
        )
        self.tops, self.totals = (scratch(name, tiles * state) for name in ("tops", "totals"))
        self.results = scratch("results", rows.block * self.width)

    def run(self, top: Val) -> None:
        k, block, rows = self.k, self.block, self.rows
        self.clear(top)
        scoring = self.scoring
        scoring.stage(
            top, self.node.inputs[0], self.form.channels, scoring.queries, scoring.pitch,
            scoring.row_flags,
        )  # fmt: skip
        end = k.min(top + rows.block, block.count)
        seen = self.sight.hull(block.time(top), block.time(end - 1))
        with k.loop((seen.stop + (KEYS - 1)) // KEYS, seen.first // KEYS) as key_block:
            base = key_block * KEYS
            whole = self.scoring.in_vectors(self.sight.clipped(seen, base))
            self.copies.open(base, whole.first, whole.stop)
            with k.loop(end - top, 0, rows.tile) as row:
                low, high = self.scoring.times(top + row)
                hull = self.sight.clipped(self.sight.hull(low, high), base)
                common = self.sight.clipped(self.sight.common(low, high), base)
                with k.when(hull.first < hull.stop):
                    self.run_tile(top, row, base, hull, common)
        self.finish(top, end)

    def clear(self, top: Val) -> None:
        k, lane, rows = self.k, self.k.lane(), self.block.whole_tiles(top)
        for buffers, value in (((self.tops,), LOWEST), ((self.totals,), 0.0)):
            for buffer in buffers:
                with k.loop(rows // self.rows.tile * self.state, 0, LANES) as at:
                    k.store(buffer, at + lane, k.const(value, self.dtype))
        with k.loop(self.state, 0, LANES) as at:
            k.store(self.here, at + lane, k.const(LOWEST, self.dtype))
            k.store(self.sums, at + lane, k.const(0.0, self.dtype))
        with k.loop(rows * self.width, 0, LANES) as at:
            k.store(self.results, at + lane, k.const(0.0, self.dtype))
        k.barrier()

    # -- a tile against a block --------------------------------------------------------------------

    def run_tile(self, top: Val, row: Val, base: Val, hull: Range, common: Range) -> None:
        k = self.k
        keys = self.scoring.in_vectors(hull)
        vectors = Range(keys.first // LANES, keys.stop // LANES)
        maxima = self.score_keys(top, row, base, vectors, common)
        join_lanes(self.k, maxima, self.here, lambda x, y: greater(k, x, y))
        k.barrier()
        self.weigh_scores(keys)
        self.merge(row // self.rows.tile * self.state)
        self.weigh_values(row, base, keys)

    def score_keys(self, top: Val, row: Val, base: Val, vectors: Range, common: Range) -> list[Val]:
        """scores[row][key]; returns the maxima of rows, by lane."""
        k, scoring, count = self.k, self.scoring, self.rows.vectors
        maxima = [k.local(LOWEST, self.dtype) for _ in range(self.rows.tile)]
        with k.loop(vectors.stop, vectors.first, count) as vector:
            at = [scoring.vector_at(base, vector + v) for v in range(count)]
            accs = scoring.start(row, at)
            scoring.dots(
                accs, scoring.queries, scoring.pitch, row, scoring.columns, self.form.channels, at
            )
            keep = partial(self.keep_scores, accs, top, row, base, vector, maxima)
            scoring.by_sight(vector, common, keep)
        return [maximum.get() for maximum in maxima]

    def keep_scores(
        self, accs: Accumulators, top: Val, row: Val, base: Val, vector: Val,
        maxima: list[LocalVar], is_all_seen: bool,
    ) -> None:  # fmt: skip
        k, scoring = self.k, self.scoring
        for i, line in enumerate(accs):
            own, place = None, k.min(top + row + i, self.block.count - 1)
            if not is_all_seen:
                time = self.block.time(place)
                own = self.sight.clipped(self.sight.own(time), base)
            for v, acc in enumerate(line):
                key = (vector + v) * LANES + k.lane()
                score = scoring.score(acc.get())
                if own is not None:
                    score = scoring.visible(score, place, base, key, own)
                k.store(self.scores, i * PITCH + key, score)
                maxima[i].set(greater(k, score, maxima[i].get()))

    def weigh_scores(self, keys: Range) -> None:
        """scores[row][key] becomes exp(score - maximum), `sums` the sums of rows."""
        k, lane = self.k, self.k.lane()
        with k.loop(self.rows.tile, always=True) as row:
            shift, total = finite(k, k.load(self.here, row)), k.local(0.0, self.dtype)
            with k.loop(keys.stop, keys.first, LANES) as key:
                at = row * PITCH + key + lane
                weight = math.exp_nonpositive(k, k.load(self.scores, at) - shift)
                k.store(self.scores, at, weight)
                total.set(total.get() + weight)
            k.store(self.by_lane, row * LANES + lane, total)
        k.barrier()
        totals = [k.load(self.by_lane, row * LANES + lane) for row in range(self.rows.tile)]
        join_lanes(self.k, totals, self.sums, lambda x, y: y + x)
        k.barrier()

    def merge(self, at: Val) -> None:
        """All rows at once, a row a lane."""
        k = self.k
        with k.loop(self.state, 0, LANES) as part:
            lane = part + k.lane()
            top, total = (k.load(buffer, at + lane) for buffer in (self.tops, self.totals))
            after = merged(k, top, total, k.load(self.here, lane), k.load(self.sums, lane))
            k.store(self.tops, at + lane, after.top)
            k.store(self.totals, at + lane, after.total)
            k.store(self.keep, lane, after.keep)
            k.store(self.add, lane, after.add)
        k.barrier()

    def weigh_values(self, top: Val, base: Val, keys: Range) -> None:
        """results = results * keep + (weights . values) * add, one chain over keys, ascending: the
        weight of a hidden key is 0, which adds nothing."""
        k, lane = self.k, self.k.lane()
        first = self.copies.origin(base)
        vectors = divisor(self.width // LANES, self.rows.vectors) if self.width else 1
        with k.loop(self.width, 0, vectors * LANES) as channel:
            accs = accumulators(k, self.dtype, self.rows.tile, vectors)
            with k.loop(keys.stop, keys.first, UNROLL) as key:
                for u in range(UNROLL):
                    self.weigh_key(accs, key + u, (first + key + u) * self.width + channel)
            for row, line in enumerate(accs):
                for v, acc in enumerate(line):
                    at = (top + row) * self.width + channel + v * LANES + lane
                    kept = k.load(self.results, at) * k.load(self.keep, row)
                    k.store(self.results, at, k.fma(acc, k.load(self.add, row), kept))
        k.barrier()

    def weigh_key(self, accs: Accumulators, key: Val, at: Val) -> None:
        k = self.k
        right = [k.load(self.values, at + v * LANES + k.lane()) for v in range(len(accs[0]))]
        add_products(k, accs, lambda row: k.load(self.scores, row * PITCH + key), right)

    # -- the end -----------------------------------------------------------------------------------

    def finish(self, top: Val, end: Val) -> None:
        k = self.k
        length = self.sight.limit("query_lengths", self.sight.times)
        with k.loop(end - top) as row:
            at = row // self.rows.tile * self.state + row % self.rows.tile
            time = self.block.time(top + row)
            total, highest = k.load(self.totals, at), k.load(self.tops, at)
            is_empty = total.eq(0.0) | (time >= length)
            self.store_row(top, row, total, is_empty)
            log = finite(k, highest) + math.log(k, total)
            place = self.block.place(top + row, k.index(0))[:3]
            at_log = self.offset(self.node.types[1].shape, place)
            k.store(self.logs, at_log, k.select(is_empty, LOWEST, log))

    def store_row(self, top: Val, row: Val, total: Val, is_empty: Val) -> None:
        k, kind = self.k, self.node.types[0]
        with k.loop(self.width, 0, LANES) as channel:
            lane = channel + k.lane()
            value = k.load(self.results, row * self.width + lane) / total
            value = k.select(is_empty, 0.0, value)
            with self.frame.within(lane, k.index(self.form.width), self.form.width):
                place = self.block.place(top + row, lane)
                k.store(self.out, self.offset(kind.shape, place), k.cast(value, kind.dtype))

    def offset(self, shape: Shape, place: tuple[Val, ...]) -> Val:
        return offset(self.frame.sizes, place, shape, row_strides(shape))
