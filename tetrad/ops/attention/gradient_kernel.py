"""Kernels, the gradient of attention over arrays: a workgroup takes a kv head of a batch through
all pairs of key blocks and row blocks that see each other.

Of each pair it computes the weights again, and the slopes of the scores, a register tile of rows at
a time; then the rows' share of dq, and the keys' shares of dk and dv. Order: key blocks of 256
ascending outside, row blocks of 64 ascending inside; in each block one chain from zero, ascending,
and blocks added in order. So memory beside the results is linear: sums of one key block, and dq.
Where kv heads are too few for the threads, two launches share the pairs out in another way, with
the same bits: a workgroup has a key block, then a row block.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from tetrad.core.machine import LANES
from tetrad.core.sizes import ceil_div, product
from tetrad.core.types import row_strides
from tetrad.graph.group import Group
from tetrad.kernel.build import Val
from tetrad.kernel.math import exponential as math
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.index import Space, offset
from tetrad.ops.attention.block import LOWEST, UNROLL, divisor, finite
from tetrad.ops.attention.dense import AttentionForm, accumulator
from tetrad.ops.attention.dense_kernel import (
    PITCH,
    ROWS,
    Accumulators,
    Range,
    RowBlock,
    Scoring,
    TileRows,
    accumulators,
    add_products,
    node_form,
    row_count,
    rows_of,
)
from tetrad.ops.attention.op import KEYS
from tetrad.ops.attention.packing import COLUMNS, CopyPlan, NearCopies, padded
from tetrad.ops.attention.packing import ROWS as IN_ROWS
from tetrad.schedule.nodes import Launch

KEY_TILES = (8, 4, 2, 1)  # keys of a register tile, which divide a vector


def lower_attention_gradient(frame: Frame, group: Group) -> list[Launch]:
    form, memory, wrt = node_form(group.root), frame.memory, group.root.param("wrt")
    lines, of_keys = product((form.batch, form.groups)), tuple(n for n in wrt if n in ("k", "v"))
    of_rows = tuple(name for name in wrt if name not in of_keys)
    # 7 products instead of 5, if all are asked for
    if not (isinstance(lines, int) and 2 * lines <= memory.machine.parallel_groups):
        return [Backward(group, form, memory, wrt).launch()]
    parts = [("keys", of_keys), ("rows", of_rows)]
    return [Backward(group, form, memory, names, by).launch() for by, names in parts if names]


class Backward:
    """The kernel of a gradient, or of some of its results. A workgroup has all pairs of a kv head,
    those of a block of "keys", or those of a block of "rows"."""

    def __init__(
        self,
        group: Group,
        form: AttentionForm,
        memory: Memory,
        wrt: tuple[str, ...],
        by: str = "heads",
    ) -> None:
        self.group, self.node, self.form, self.wrt, self.by = group, group.root, form, wrt, by
        self.dtype = accumulator(self.node.inputs[0].type.dtype)
        self.frame = Frame(group.name if by == "heads" else f"{group.name}_{by}", memory)
        self.k = self.frame.k
        self.lse, self.delta, self.ct = self.node.inputs[-3:]
        self.frame.reads([self.node.inputs[0], *self.node.inputs[3:]])
        self.outputs = self.output_buffers(memory)
        is_wide = self.dtype.bits == 64
        tile = memory.machine.f64_tile if is_wide else memory.machine.f32_tile
        few, count = rows_of(tile, form), row_count(form)
        count = max(count, 1) if isinstance(count, int) and count < ROWS else ROWS
        self.count = count  # rows of a block; `rows.block` have memory: whole tiles
        self.rows = TileRows(few.tile, few.vectors, -(-count // few.tile) * few.tile)
        self.key_tile = next(n for n in KEY_TILES if n <= tile.rows)

    def output_buffers(self, memory: Memory) -> dict[str, Buffer]:
        every: tuple[str, ...] = self.node.param("wrt")
        slots = memory.results(self.node) if len(every) > 1 else (memory.slots[self.node],)
        pairs = zip(every, slots, strict=True)
        return {name: self.frame.output(slot) for name, slot in pairs if name in self.wrt}

    def launch(self) -> Launch:
        form, k = self.form, self.k
        blocks = {
            "heads": 1,
            "keys": ceil_div(form.keys, KEYS),
            "rows": ceil_div(row_count(form), self.count),
        }
        grid = (product((form.batch, form.groups)), blocks[self.by])
        position = Space(k, self.frame.sizes, grid, k.group_id())
        self.mine = position.span(1, 2)
        self.block = RowBlock(self.frame, form, self.rows, position)
        wanted = ((1, COLUMNS), (1, IN_ROWS), (2, COLUMNS))
        plan = CopyPlan(self.node, form, wanted, LANES * self.rows.vectors)
        self.frame.reads(self.node.inputs[1:3])
        self.copies = NearCopies(plan, self.frame, self.block.batch, self.block.group)
        self.scoring = Scoring(self.frame, self.node, form, self.copies, self.block)
        self.sight = self.scoring.sight
        self.length = self.sight.limit("query_lengths", self.sight.times)
        self.make_scratch()
        self.run()
        flops = product((form.batch, form.heads, form.times, form.keys)) * (
            6 * form.channels + 4 * form.width
        )
        return self.frame.finish(product(grid), self.group, flops=flops)

    def make_scratch(self) -> None:
        form, rows = self.form, self.rows
        self.depth, self.width = padded(form.channels), padded(form.width)
        scratch, dtype = self.frame.scratch, self.dtype
        self.value_columns = self.copies.buffers[2, COLUMNS]
        self.key_rows = self.copies.buffers[1, IN_ROWS]
        self.ct_pitch = self.width + LANES
        self.cts = scratch("cts", dtype, rows.block * self.ct_pitch)
        self.ct_flags = scratch("ct_flags", dtype, rows.block)
        self.weights = scratch("weights", dtype, rows.block * PITCH)
        self.slopes = scratch("slopes", dtype, rows.block * PITCH)
        self.of_keys = scratch("dk", dtype, KEYS * self.depth)
        self.of_values = scratch("dv", dtype, KEYS * self.width)
        blocks = 1 if self.by == "rows" else ceil_div(row_count(form), self.count)
        lines = blocks * self.count
        self.of_rows = scratch("dq", dtype, lines * self.depth) if "q" in self.wrt else None

    def run(self) -> None:
        k, keys = self.k, self.sight.keys
        blocks, base = self.row_blocks(), k.index(0)
        if self.by == "keys":
            base = self.mine * KEYS
            keys = k.min(keys, base + KEYS)
        self.origin = blocks.first * self.count
        self.end = k.min(blocks.stop * self.count, self.block.count)
        if self.of_rows is not None:
            self.clear(self.of_rows, (blocks.stop - blocks.first) * self.count * self.depth)
        if "bias" in self.wrt:
            self.clear_bias()
        with k.loop(keys, base, KEYS) as base:
            self.run_keys(base, blocks)
        if self.of_rows is not None:
            self.store_rows()

    def row_blocks(self) -> Range:
        if self.by == "rows":
            return Range(self.mine, self.mine + 1)
        count = ceil_div(row_count(self.form), self.count)
        return Range(self.k.index(0), self.frame.sizes.val(count))

    def run_keys(self, base: Val, blocks: Range) -> None:
        """A key block against the row blocks that see some of it."""
        k = self.k
        if {"k", "v"} & set(self.wrt):
            self.clear(self.of_keys, k.index(KEYS * self.depth))
            self.clear(self.of_values, k.index(KEYS * self.width))
            k.barrier()
        end_of_block = k.min(self.sight.keys - base, KEYS)
        whole = self.scoring.in_vectors(Range(k.index(0), end_of_block))
        self.copies.open(base, whole.first, whole.stop)
        with k.loop(blocks.stop, blocks.first) as block:
            top = block * self.count
            end = k.min(top + self.count, self.block.count)
            times = self.block.time(top), self.block.time(end - 1)
            hull = self.sight.clipped(self.sight.hull(*times), base)
            with k.when((hull.first < hull.stop) & (times[0] < self.length)):
                self.run_pair(top, end, base, self.scoring.in_vectors(hull))
        self.store_keys(base)

    def clear(self, buffer: Buffer, count: Val) -> None:
        with self.k.loop(count, 0, LANES) as at:
            self.k.store(buffer, at + self.k.lane(), self.k.const(0.0, self.dtype))

    def clear_bias(self) -> None:
        """Pairs that do not see each other are not walked: their slopes are 0."""
        k = self.k
        with k.loop(self.end, self.origin) as row, k.loop(self.sight.keys, 0, LANES) as first:
            key = first + k.lane()
            with self.frame.within(key, self.sight.keys, self.form.keys):
                k.store(self.outputs["bias"], self.bias_at(row, key), k.const(0.0, self.dtype))
        k.barrier()

    def bias_at(self, row: Val, key: Val) -> Val:
        form = self.form
        shape = (form.batch, form.heads, form.times, form.keys)
        at = (self.block.batch, self.block.head(row), self.block.time(row), key)
        return offset(self.frame.sizes, at, shape, row_strides(shape))

    # -- a row block and a key block ---------------------------------------------------------------

    def run_pair(self, top: Val, end: Val, base: Val, keys: Range) -> None:
        k, scoring, form = self.k, self.scoring, self.form
        scoring.stage(
            top, self.node.inputs[0], form.channels, scoring.queries, scoring.pitch,
            scoring.row_flags,
        )  # fmt: skip
        scoring.stage(top, self.ct, form.width, self.cts, self.ct_pitch, self.ct_flags)
        with k.loop(end - top, 0, self.rows.tile) as row:
            self.run_tile(top, end, row, base, keys)
        k.barrier()
        if self.of_rows is not None:
            with k.loop(end - top, 0, self.rows.tile) as row:
                self.add_rows(top, row, base, keys, self.of_rows)
        for name, left, right, pitch, sums, width in (
            ("k", self.slopes, scoring.queries, scoring.pitch, self.of_keys, self.depth),
            ("v", self.weights, self.cts, self.ct_pitch, self.of_values, self.width),
        ):
            if name in self.wrt:
                self.add_keys(end - top, keys, left, (right, pitch), sums, width)
        k.barrier()

    def run_tile(self, top: Val, end: Val, row: Val, base: Val, keys: Range) -> None:
        """weights[row][key] and slopes[row][key]; zeros where no row of the tile sees the key."""
        k, step = self.k, self.rows.vectors
        last = k.min(top + row + (self.rows.tile - 1), end - 1)
        low, high = self.block.time(top + row), self.block.time(last)
        hull = self.scoring.in_vectors(self.sight.clipped(self.sight.hull(low, high), base))
        common = self.sight.clipped(self.sight.common(low, high), base)
        is_whole = (row + self.rows.tile <= end - top) & (high < self.length)
        common = Range(common.first, k.select(is_whole, common.stop, k.index(0)))
        with k.loop(keys.stop // LANES, keys.first // LANES, step) as vector:
            with k.when((vector * LANES >= hull.first) & (vector * LANES < hull.stop)):
                self.run_vectors(top, end, row, base, vector, common)
            with k.otherwise():
                for i in range(self.rows.tile):
                    for v in range(step):
                        at = (row + i) * PITCH + (vector + v) * LANES + k.lane()
                        for buffer in (self.weights, self.slopes):
                            k.store(buffer, at, k.const(0.0, self.dtype))

    def run_vectors(
        self, top: Val, end: Val, row: Val, base: Val, vector: Val, common: Range
    ) -> None:
        k, scoring, form = self.k, self.scoring, self.form
        at = [scoring.vector_at(base, vector + v) for v in range(self.rows.vectors)]
        accs = accumulators(k, self.dtype, self.rows.tile, len(at))
        scoring.dots(accs, scoring.queries, scoring.pitch, row, scoring.columns, form.channels, at)
        scoring.by_sight(
            vector, common, partial(self.keep_weights, accs, top, end, row, base, vector)
        )
        if self.wrt == ("v",):
            return
        accs = accumulators(k, self.dtype, self.rows.tile, len(at))
        scoring.dots(accs, self.cts, self.ct_pitch, row, self.value_columns, form.width, at)
        self.keep_slopes(accs, top, end, row, base, vector)

    def keep_weights(
        self, accs: Accumulators, top: Val, end: Val, row: Val, base: Val, vector: Val,
        is_all_seen: bool,
    ) -> None:  # fmt: skip
        """weights = exp(score - lse), exactly 0 where hidden. With a softcap, slopes hold its slope
        until the scores' own are known."""
        k, scoring = self.k, self.scoring
        for i, line in enumerate(accs):
            place = k.min(top + row + i, self.block.count - 1)
            own = None if is_all_seen else self.own_keys(top + row + i, end, place, base)
            shift = finite(k, self.of_row(self.lse, place))
            for v, acc in enumerate(line):
                key = (vector + v) * LANES + k.lane()
                score = scoring.score(acc.get())
                if self.form.softcap:
                    bend = score / self.form.softcap
                    k.store(self.slopes, (row + i) * PITCH + key, 1.0 - bend * bend)
                if own is not None:
                    score = scoring.visible(score, place, base, key, own)
                weight = math.exp_nonpositive(k, score - shift)
                if own is not None:
                    weight = k.select(score.eq(LOWEST), 0.0, weight)
                if self.form.hides:
                    flag = k.load(self.ct_flags, row + i)
                    weight = k.select(weight.eq(0.0), 0.0, weight + flag)
                k.store(self.weights, (row + i) * PITCH + key, weight)

    def own_keys(self, row: Val, end: Val, place: Val, base: Val) -> Range:
        """What a row sees of a block: nothing behind the last row or the end of its sequence."""
        k, time = self.k, self.block.time(place)
        own = self.sight.clipped(self.sight.own(time), base)
        is_there = (row < end) & (time < self.length)
        return Range(own.first, k.select(is_there, own.stop, k.index(0)))

    def of_row(self, node: object, row: Val) -> Val:
        """lse or delta of a row."""
        at = self.block.place(row, self.k.index(0))[:3]
        return self.frame.reading.wide(node, at)  # type: ignore[arg-type]

    def keep_slopes(
        self, accs: Accumulators, top: Val, end: Val, row: Val, base: Val, vector: Val
    ) -> None:
        """slopes = weights * (ct . v - delta), exactly 0 where the weight is."""
        k = self.k
        for i, line in enumerate(accs):
            place = k.min(top + row + i, self.block.count - 1)
            delta = self.of_row(self.delta, place)
            for v, acc in enumerate(line):
                key = (vector + v) * LANES + k.lane()
                at = (row + i) * PITCH + key
                weight = k.load(self.weights, at)
                slope = k.select(weight.eq(0.0), 0.0, weight * (acc.get() - delta))
                if "bias" in self.wrt:
                    self.store_bias(top + row + i, end, base + key, slope)
                if self.form.softcap:
                    slope = k.select(weight.eq(0.0), 0.0, slope * k.load(self.slopes, at))
                k.store(self.slopes, at, slope)

    def store_bias(self, row: Val, end: Val, key: Val, slope: Val) -> None:
        k = self.k
        with k.when(row < end), k.when(key < self.sight.keys, guard=True):
            k.store(self.outputs["bias"], self.bias_at(row, key), slope)

    # -- products ----------------------------------------------------------------------------------

    def add_rows(self, top: Val, row: Val, base: Val, keys: Range, sums: Buffer) -> None:
        """dq[row] += slopes[row] . keys, one chain over the keys of the block, ascending."""
        k, lane = self.k, self.k.lane()
        vectors = divisor(self.depth // LANES, self.rows.vectors) if self.depth else 1
        with k.loop(self.depth, 0, vectors * LANES) as channel:
            accs = accumulators(k, self.dtype, self.rows.tile, vectors)
            with k.loop(keys.stop, keys.first, UNROLL) as key:
                for u in range(UNROLL):
                    at = (key + u) * self.depth + channel
                    right = [k.load(self.key_rows, at + v * LANES + lane) for v in range(vectors)]
                    add_products(k, accs, partial(self.slope_at, row, key + u), right)
            self.add_sums(
                sums, (top - self.origin + row) * self.depth + channel, accs, self.depth,
                self.count - row if self.count % self.rows.tile else None,
            )  # fmt: skip

    def slope_at(self, row: Val, key: Val, i: int) -> Val:
        return self.k.load(self.slopes, (row + i) * PITCH + key)

    def add_sums(
        self, sums: Buffer, at: Val, accs: Accumulators, pitch: int, count: Val | None = None
    ) -> None:
        """sums += accs, of the first `count` lines where not all of a tile are there."""
        for i, line in enumerate(accs):
            with nullcontext() if count is None else self.k.when(count > i):
                for v, acc in enumerate(line):
                    where = at + (i * pitch + v * LANES) + self.k.lane()
                    self.k.store(sums, where, self.k.load(sums, where) + acc.get())

    def add_keys(
        self, count: Val, keys: Range, left: Buffer, right: tuple[Buffer, int], sums: Buffer,
        width: int,
    ) -> None:  # fmt: skip
        """sums[key] += left[:, key] . right, one chain over the rows of the block, ascending."""
        k = self.k
        vectors = divisor(width // LANES, self.rows.vectors) if width else 1
        whole = count // UNROLL * UNROLL
        with (
            k.loop(keys.stop, keys.first, self.key_tile) as key,
            k.loop(width, 0, vectors * LANES) as channel,
        ):
            accs = accumulators(k, self.dtype, self.key_tile, vectors)
            with k.loop(whole, 0, UNROLL) as row:
                for u in range(UNROLL):
                    self.add_row(accs, left, right, row + u, key, channel)
            with k.loop(count, whole) as row:
                self.add_row(accs, left, right, row, key, channel)
            self.add_sums(sums, key * width + channel, accs, width)

    def add_row(
        self, accs: Accumulators, left: Buffer, right: tuple[Buffer, int], row: Val, key: Val,
        channel: Val,
    ) -> None:  # fmt: skip
        k, (buffer, pitch) = self.k, right
        values = [
            k.load(buffer, row * pitch + channel + v * LANES + k.lane())
            for v in range(len(accs[0]))
        ]
        add_products(k, accs, lambda i: k.load(left, row * PITCH + key + i), values)

    # -- results -----------------------------------------------------------------------------------

    def store_keys(self, base: Val) -> None:
        k = self.k
        count = k.min(self.sight.keys - base, KEYS)
        for name, sums, width, channels in (
            ("k", self.of_keys, self.depth, self.form.channels),
            ("v", self.of_values, self.width, self.form.width),
        ):
            if name not in self.wrt:
                continue
            with k.loop(count) as key:
                place = partial(self.form.at, self.block.batch, base + key, self.block.group)
                self.store_line(name, sums, key * width, channels, place)
        k.barrier()

    def store_rows(self) -> None:
        k, sums = self.k, self.of_rows
        if sums is None:
            raise TypeError("nobody asks for dq")
        with k.loop(self.end, self.origin) as row:
            self.store_line(
                "q",
                sums,
                (row - self.origin) * self.depth,
                self.form.channels,
                partial(self.block.place, row),
            )

    def store_line(
        self,
        name: str,
        sums: Buffer,
        at: Val,
        channels: int,
        place: Callable[[Val], tuple[Val, ...]],
    ) -> None:
        """A row of a result, of q and k times the scale."""
        k, node = self.k, self.node.inputs["qkv".index(name)]
        with k.loop(padded(channels), 0, LANES) as channel:
            lane = channel + k.lane()
            value = k.load(sums, at + lane)
            value = value if name == "v" else value * k.const(self.form.scale, self.dtype)
            with self.frame.within(lane, k.index(channels), channels):
                self.frame.write(
                    self.outputs[name], node, place(lane), k.cast(value, node.type.dtype)
                )
