"""Products with weights in groups: rows rounded to 8 bits, integer dots with codes of four bits as
they lie, lanes along the columns.

A word of codes is eight columns: four even ones in the low halves of its bytes, four odd ones in
the high. So rows of x are laid out once in blocks of 128 columns: sixteen words of even codes,
sixteen of odd ones, the sums of the eight codes that lie in each lane, and a scale. Where groups
are whole blocks one sum of a block does, and what zero points take off is summed apart: once for
sixteen outputs where there are many rows. The order is that of `ops.matmul.op`.

Entries of the NF4 table are taken in 15 bits, as a high and a low byte: off by at most 2**-15 of
the scale.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tetrad.core.dtypes import f32, i32, u32
from tetrad.core.machine import LANES
from tetrad.core.sizes import plain
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.loopnest.frame import Frame
from tetrad.ops.matmul.group_rows import GroupProduct, GroupWeight
from tetrad.ops.matmul.op import INT8_BLOCK
from tetrad.ops.quantized.kernel import ROUNDER, ROUNDER_BITS, butterfly
from tetrad.ops.quantized.op import SCALE_OF_TOP, SMALLEST
from tetrad.quant.groups import LEVELS, MIDDLE, NF4
from tetrad.schedule.nodes import Launch, Slot

EACH = INT8_BLOCK // LANES  # columns of a lane
EVEN, ODD, SUM = range(3)  # parts of a block, a word in each lane
LOW_HALVES = 0x0F0F0F0F
STEP = 128  # of the high byte of an entry of the table
UNITS = STEP * 127  # what 1 is
BYTE_OFFSET, LOW_OFFSET = 128, 64  # that make the high and the low byte unsigned


def entry_bytes() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The table in units, as bytes h and l: h * 128 + l less what both offsets add."""
    units = [round(entry * UNITS) for entry in NF4]
    high = [(unit + LOW_OFFSET) // STEP for unit in units]
    low = [unit - h * STEP for unit, h in zip(units, high, strict=True)]
    return tuple(h + BYTE_OFFSET for h in high), tuple(one + LOW_OFFSET for one in low)


class GroupInt8(GroupProduct):
    """The kernels of one product of rows in 8 bits."""

    def launches(self) -> list[Launch]:
        memory, blocks = self.frame.memory, -(-self.columns // INT8_BLOCK)
        self.blocks, self.is_whole = blocks, has_whole_blocks(self.node)
        self.parts = SUM if self.is_whole else SUM + 1
        words = memory.temp("codes", u32, self.rows, blocks * self.parts * LANES)
        scales = memory.temp("scales", f32, self.rows, blocks)
        sums = memory.temp("sums", f32, self.rows, blocks) if self.is_whole else None
        staged = Frame(self.group.name + "_rows", memory, inputs=[self.x])
        return [stage_rows(staged, self.x, words, scales, sums), self.launch(words, scales, sums)]

    def launch(self, words: Slot, scales: Slot, sums: Slot | None) -> Launch:
        frame, tile = self.frame, self.plan.tile
        self.words, self.scales = frame.input(words), frame.input(scales)
        if sums is not None:
            self.sums = frame.input(sums)
            self.pitch = -(-self.blocks // LANES) * LANES
            self.factors = frame.scratch("factors", f32, tile.rows * tile.vectors * self.pitch)
            self.panel = frame.private("panel", f32, self.blocks * LANES)
            self.lows = frame.scratch("lows", f32, tile.rows * LANES)
        self.weight = GroupWeight(frame, self.node)
        self.codes = frame.view(self.weight.slot, u32)
        self.out = frame.output(frame.memory.slots[self.node])
        self.walk_rows()
        return self.finish()

    def walk_rows(self) -> None:
        """Tiles of rows, each times all outputs of the workgroup, which stay in the cache."""
        k, tall = self.k, self.plan.tile.rows
        if self.is_whole and self.rows != 1:
            self.fill_panel()
        if isinstance(self.rows, int) and self.rows < tall:
            self.walk_outputs([k.index(i) for i in range(self.rows)])
            return
        total = self.frame.sizes.val(self.rows)
        whole = total // tall * tall
        with k.loop(whole, 0, tall) as row:
            self.walk_outputs([row + i for i in range(tall)])
        with k.loop(total, whole) as row:
            self.walk_outputs([row])

    def walk_outputs(self, rows: list[Val]) -> None:
        k, wide = self.k, self.plan.tile.vectors
        start, end = self.stretch()
        whole = start + (end - start) // wide * wide
        if self.is_whole and len(rows) > 1:
            self.sum_zeros(rows)
        with k.loop(whole, start, wide) as output:
            self.run_tile(rows, [output + j for j in range(wide)])
        with k.loop(end, whole) as output:
            self.run_tile(rows, [output])

    def run_tile(self, rows: list[Val], outputs: list[Val]) -> None:
        k = self.k
        sums = {(i, j): k.local(0.0, f32) for i in range(len(rows)) for j in range(len(outputs))}
        lows = {key: k.local(0.0, f32) for key in sums} if self.is_whole else {}
        if self.is_whole and len(rows) > 1:
            self.place_factors(rows, outputs)
        with k.loop(self.blocks) as block:
            left = [self.left(row, block) for row in rows]
            for j, output in enumerate(outputs):
                if self.is_whole:
                    self.add_block(sums, j, rows, left, output, block)
                    if len(rows) == 1:
                        self.add_zero(lows[0, j], rows[0], output, block)
                else:
                    self.run_block(sums, j, rows, left, output, block)
                # rows are too short for processors to ask in time themselves
                k.prefetch(self.codes, self.word_at(output + len(outputs), block))
        if self.is_whole and len(rows) > 1:
            self.fetch_lows(lows, outputs)
        self.store(sums, rows, outputs, lows)

    def left(self, row: Val, block: Val) -> list[Val]:
        """Words of even and odd codes, and the sums of both where a block has several groups."""
        k, at = self.k, (row * self.blocks + block) * (self.parts * LANES)
        return [k.load(self.words, at + part * LANES + k.lane()) for part in range(self.parts)]

    # -- groups of whole blocks --------------------------------------------------------------------

    def place_factors(self, rows: list[Val], outputs: list[Val]) -> None:
        """Of all blocks into scratch, from where an fma takes one for all lanes."""
        k = self.k
        k.barrier()
        with self.sixteen_blocks() as block:
            of_rows = [k.load(self.scales, row * self.blocks + block) for row in rows]
            for j, output in enumerate(outputs):
                scale = self.block_factor(0, output, block)
                for i, of_row in enumerate(of_rows):
                    k.store(self.factors, self.factor_at(i, j, block), scale * of_row)
        k.barrier()

    def fill_panel(self) -> None:
        """`low` of all blocks, an output of the workgroup in each lane."""
        k, (start, end) = self.k, self.stretch()
        output = k.min(start + k.lane(), end - 1)
        with k.loop(self.blocks) as block:
            k.store(self.panel, block * LANES + k.lane(), self.low(output, block))

    def sum_zeros(self, rows: list[Val]) -> None:
        """What zero points take off a tile of rows times all outputs of the workgroup."""
        k = self.k
        lows = [k.local(0.0, f32) for _ in rows]
        with k.loop(self.blocks) as block:
            low = k.load(self.panel, block * LANES + k.lane())
            for row, total in zip(rows, lows, strict=True):
                total.set(k.fma(low, k.load(self.sums, row * self.blocks + block), total))
        k.barrier()
        for i, total in enumerate(lows):
            k.store(self.lows, i * LANES + k.lane(), total)

    def fetch_lows(self, lows: dict[tuple[int, int], LocalVar], outputs: list[Val]) -> None:
        start, _ = self.stretch()
        for (i, j), low in lows.items():
            low.set(self.k.load(self.lows, i * LANES + outputs[j] - start))

    def add_zero(self, total: LocalVar, row: Val, output: Val, block: Val) -> None:
        k = self.k
        x = k.load(self.sums, row * self.blocks + block)
        total.set(k.fma(self.low(output, block), x, total))

    def low(self, output: Val, block: Val) -> Val:
        """What a sum of x is multiplied by."""
        return -(self.block_factor(0, output, block) * self.block_factor(1, output, block))

    @contextmanager
    def sixteen_blocks(self) -> Iterator[Val]:
        """All blocks, one in each lane."""
        k = self.k
        with k.loop(self.pitch, 0, LANES) as first:
            block = first + k.lane()
            with self.frame.within(block, k.index(self.blocks), self.blocks):
                yield block

    def block_factor(self, which: int, output: Val, block: Val) -> Val:
        """The scale (0) or the zero point (1) of a block."""
        k, parts = self.k, self.weight.factors
        if which >= len(parts):
            return k.const(MIDDLE, f32)
        at = (output * self.blocks + block) // (self.weight.group // INT8_BLOCK)
        return k.load(parts[which], at)

    def factor_at(self, i: int, j: int, block: Val) -> Val:
        return (i * self.plan.tile.vectors + j) * self.pitch + block

    def add_block(
        self,
        sums: dict[tuple[int, int], LocalVar],
        j: int,
        rows: list[Val],
        left: list[list[Val]],
        output: Val,
        block: Val,
    ) -> None:
        k = self.k
        even, odd = self.codes_of(output, block)
        for i, (left_even, left_odd) in enumerate(left):
            dot = k.dot4(k.const(0, i32), even, left_even, LEVELS)
            dot = k.dot4(dot, odd, left_odd, LEVELS)
            if len(rows) > 1:
                factor = k.load(self.factors, self.factor_at(i, j, block))
            else:
                of_row = k.load(self.scales, rows[i] * self.blocks + block)
                factor = self.block_factor(0, output, block) * of_row
            sums[i, j].set(k.fma(factor, k.cast(dot, f32), sums[i, j]))

    # -- other groups ------------------------------------------------------------------------------

    def run_block(
        self,
        sums: dict[tuple[int, int], LocalVar],
        j: int,
        rows: list[Val],
        left: list[list[Val]],
        output: Val,
        block: Val,
    ) -> None:
        k = self.k
        even, odd = self.codes_of(output, block)
        scale, zero = self.factor(0, output, block), self.factor(1, output, block)
        if scale is None:
            raise TypeError("a weight in groups has scales")
        for i, (left_even, left_odd, word) in enumerate(left):
            total = k.bitcast(word, i32)
            of_row = k.load(self.scales, rows[i] * self.blocks + block)
            if self.weight.scheme == "nf4":
                dot = k.cast(table_dot(k, (even, odd), (left_even, left_odd), total), f32)
                factor = scale * (of_row * (1 / UNITS))
            else:
                exact = k.dot4(k.const(0, i32), even, left_even, LEVELS)
                exact = k.dot4(exact, odd, left_odd, LEVELS)
                low = k.const(MIDDLE, f32) if zero is None else zero
                dot = k.fma(-low, k.cast(total, f32), k.cast(exact, f32))
                factor = scale * of_row
            sums[i, j].set(k.fma(factor, dot, sums[i, j]))

    def codes_of(self, output: Val, block: Val) -> tuple[Val, Val]:
        """Even and odd ones."""
        word = self.word(output, block)
        return word & LOW_HALVES, (word >> 4) & LOW_HALVES

    def word(self, output: Val, block: Val) -> Val:
        """Sixteen words of a row; zeros behind its end, where codes of x are zeros too."""
        k = self.k
        at = self.word_at(output, block) + k.lane()
        if self.columns % INT8_BLOCK == 0:
            return k.load(self.codes, at)
        found = k.local(0, u32)
        with k.when(block * LANES + k.lane() < self.columns // EACH, guard=True):
            found.set(k.load(self.codes, at))
        return found.get()

    def word_at(self, output: Val, block: Val) -> Val:
        return output * (self.columns // EACH) + block * LANES

    def factor(self, which: int, output: Val, block: Val) -> Val | None:
        """Of the columns of each lane: one for all where groups are whole blocks; else of groups
        that are parts of a block, or whatever they are."""
        k, weight = self.k, self.weight
        column = block * INT8_BLOCK
        whole = weight.factor(which, output, column)
        if weight.span % INT8_BLOCK == 0 or whole is None:
            return whole
        parts = INT8_BLOCK // weight.span if INT8_BLOCK % weight.span == 0 else LANES
        for part in range(1, parts):
            start = k.min(column + part * (INT8_BLOCK // parts), self.columns - EACH)
            value = weight.factor(which, output, start)
            if value is not None:
                whole = k.select(k.lane() < part * (LANES // parts), whole, value)
        return whole


def has_whole_blocks(node: Node) -> bool:
    """Has a block one scale and one zero point?"""
    span: int = min(node.param("group"), plain(node.inputs[0].type.shape[1]))
    return bool(node.param("scheme") == "int4") and span % INT8_BLOCK == 0


def table_dot(k: KernelBuilder, codes: tuple[Val, Val], left: tuple[Val, Val], total: Val) -> Val:
    """The exact dot with entries of the table, in units; what offsets add is taken off first."""
    high, low = entry_bytes()
    tops, rest = k.const(0, i32), total * -(BYTE_OFFSET * STEP + LOW_OFFSET)
    for code, x in zip(codes, left, strict=True):
        tops = k.dot4(tops, k.lookup(code, high), x, 255)
        rest = k.dot4(rest, k.lookup(code, low), x, 127)
    return (tops << 7) + rest


# -- rows of x -------------------------------------------------------------------------------------


def stage_rows(frame: Frame, x: Node, words: Slot, scales: Slot, sums: Slot | None) -> Launch:
    """A row a workgroup, a block of 128 columns at a time, eight of them in each lane. The sum of a
    block goes to `sums`, scaled, or those of the lanes beside their codes."""
    k, columns = frame.k, plain(x.type.shape[1])
    frame.reads([x])
    out, of_rows, row = frame.output(words), frame.output(scales), k.group_id()
    blocks, parts = -(-columns // INT8_BLOCK), SUM + 1 if sums is None else SUM
    of_sums = None if sums is None else frame.output(sums)
    with k.loop(blocks) as block:
        numbers = []
        for i in range(EACH):
            column, number = block * INT8_BLOCK + k.lane() * EACH + i, k.local(0.0, f32)
            with frame.within(column, k.index(columns), columns, INT8_BLOCK):
                number.set(frame.reading.wide(x, (row, column)))
            numbers.append(number.get())
        codes, scale = eight_bits_of(k, numbers)
        at = (row * blocks + block) * (parts * LANES) + k.lane()
        k.store(out, at + EVEN * LANES, word_of(k, codes[0::2]))
        k.store(out, at + ODD * LANES, word_of(k, codes[1::2]))
        total = codes[0]
        for code in codes[1:]:
            total = total + code
        if of_sums is None:
            k.store(out, at + SUM * LANES, k.bitcast(total, u32))
        else:
            whole = k.cast(k.reduce_lanes("add", total), f32)
            k.store(of_sums, row * blocks + block, scale * whole)
        k.store(of_rows, row * blocks + block, scale)
    return frame.finish(x.type.shape[0], flops=0)


def eight_bits_of(k: KernelBuilder, numbers: list[Val]) -> tuple[list[Val], Val]:
    """Codes (i32) and the scale of a block, as `ops.quantized` rounds them."""
    top = k.bitcast(k.abs(numbers[0]), i32)
    for number in numbers[1:]:
        top = k.max(top, k.bitcast(k.abs(number), i32))
    whole = k.bitcast(k.broadcast(butterfly(k, top, k.max, (8, 4, 2, 1))), f32)
    inverse = k.select(whole < SMALLEST, k.const(0.0, f32), k.const(127.0, f32) / whole)
    scale = k.select(whole < float("inf"), whole * SCALE_OF_TOP, k.const(float("nan"), f32))
    codes = [k.bitcast(number * inverse + ROUNDER, i32) - ROUNDER_BITS for number in numbers]
    return [k.max(k.min(code, 127), -127) for code in codes], scale


def word_of(k: KernelBuilder, codes: list[Val]) -> Val:
    """Four signed bytes."""
    word = k.bitcast(codes[0] & 255, u32)
    for i, code in enumerate(codes[1:], 1):
        word = word | (k.bitcast(code & 255, u32) << 8 * i)
    return word
