"""Kernels of products with packed rows: a lane is a row of the weight. Words of sixteen rows are
read along the rows and transposed in registers; where that does not fit, each lane gathers its own.

Each output keeps the order of its sum, whatever the tile.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.dtypes import DType, f32, i32, u32
from tetrad.core.machine import LANES
from tetrad.core.record import record
from tetrad.core.sizes import ceil_div, is_below, is_multiple, plain, product
from tetrad.graph.group import Group
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.loopnest.transpose import turned
from tetrad.ops.int4.op import BLOCK, WORD, int4_dots, int4_matvec, int4_matvec_back
from tetrad.ops.int4.operands import PackedOperands, back_rows, tile_rows
from tetrad.ops.matmul.epilogue import output_buffers, store_result
from tetrad.schedule.nodes import Launch

MOST_ROWS = 4  # of a tile
EVEN = 0x0F0F0F0F  # nibbles 0, 2, 4, 6
OFFSET = 0x88888888  # turns the highest bit of each nibble: 8 is added to what it stands for

# block, vectors of its words, the columns they hold
Visit = Callable[[Val, list[Val], int], None]


def signed_nibble(k: KernelBuilder, word: Val, j: int, dtype: DType) -> Val:
    held = k.bitcast(word, i32)
    return k.cast((held << (28 - 4 * j)) >> 28 if j < WORD - 1 else held >> 28, dtype)


class PackedRows:
    """A product with sixteen lines of a packed weight, one a lane, and a tile of rows of the left
    side."""

    def __init__(self, frame: Frame, group: Group, columns: int, inner: int = 1) -> None:
        self.frame, self.k, self.group = frame, frame.k, group
        frame.reads(frame.inputs)
        self.of = PackedOperands(frame, group.root, inner)
        self.outputs = output_buffers(frame, group)
        self.columns, self.lines = columns, self.of.w.type.shape[-2]
        # of sixteen whole words, which are transposed together
        self.chunks = columns // (LANES * WORD)
        self.area = frame.private("words", u32, LANES * LANES if self.chunks else 0)

    def launch(self, run: Callable[[PackedLines], None]) -> Launch:
        k, of, count = self.k, self.of, tile_rows(self.of.rows, MOST_ROWS)
        grid = (of.stacks, ceil_div(of.rows, count), ceil_div(self.lines, LANES))
        position = Space(k, self.frame.sizes, grid, k.group_id())
        of.stack, first = position.span(0, 1), position.span(1, 2) * count
        start, end = position.span(2, 3) * LANES, self.frame.sizes.val(self.lines)

        def run_tile(is_whole: bool) -> None:
            of.tile(first, count, lambda rows: run(PackedLines(self, rows, start, is_whole)))

        if is_multiple(self.lines, LANES):
            run_tile(is_whole=True)
        else:
            if not is_below(self.lines, LANES):
                with k.when(start + LANES <= end):
                    run_tile(is_whole=True)
            with k.when(start + LANES > end), k.when(start + k.lane() < end, guard=True):
                run_tile(is_whole=False)
        flops = product((*self.group.root.type.shape, self.columns)) * 2
        return self.frame.finish(product(grid), self.group, flops=flops)


@record
class PackedLines:
    """What one piece of code computes: rows of the left side, and lines from `start` on, not all
    sixteen of them unless it `is_whole`."""

    of: PackedRows
    rows: list[Val]
    start: Val
    is_whole: bool

    def each_block(self, visit: Visit) -> None:
        """Visit blocks of 32 columns in order, the last of them with what is left."""
        k, whole = self.of.k, self.of.columns // (BLOCK * WORD)
        chunks = self.of.chunks if self.is_whole else 0
        if chunks:
            with k.loop(chunks) as chunk:
                self.each_transposed(chunk, visit)
        if chunks * LANES < whole * BLOCK:
            with k.loop(whole, chunks * (LANES // BLOCK)) as block:
                visit(block, self.gathered(block, BLOCK), BLOCK * WORD)
        if left := self.of.columns % (BLOCK * WORD):
            visit(k.index(whole), self.gathered(k.index(whole), -(-left // WORD)), left)

    def each_transposed(self, chunk: Val, visit: Visit) -> None:
        """Transposed, words wait in memory: a loop over them is short code. (To gather each word
        takes 1.4 times as long for floats, twice as long for integers.)"""
        k, of, area = self.of.k, self.of.of, self.of.area
        at = chunk * LANES + k.lane()
        tile = [of.shared(of.w, self.start + i, at) for i in range(LANES)]
        for i, vector in enumerate(turned(k, tile)):
            k.store(area, i * LANES + k.lane(), vector)
        with k.loop(LANES // BLOCK) as b:
            held = [k.load(area, (b * BLOCK + i) * LANES + k.lane()) for i in range(BLOCK)]
            visit(chunk * (LANES // BLOCK) + b, held, BLOCK * WORD)

    def gathered(self, block: Val, count: int) -> list[Val]:
        of, line = self.of.of, self.start + self.of.k.lane()
        return [of.shared(of.w, line, block * BLOCK + i) for i in range(count)]

    def store(self, sums: list[LocalVar]) -> None:
        of, line = self.of, self.start + self.of.k.lane()
        for row, total in zip(self.rows, sums, strict=True):
            at = of.of.row_at(row, line)
            store_result(of.frame, of.of.node, of.outputs, at, total.get())


# -- floats ----------------------------------------------------------------------------------------


@int4_matvec.kernel
def lower_int4_matvec(frame: Frame, group: Group) -> Launch:
    x = group.root.inputs[0]
    return PackedRows(frame, group, plain(x.type.shape[-1])).launch(run_matvec)


def run_matvec(lines: PackedLines) -> None:
    k, of, x = lines.of.k, lines.of.of, lines.of.of.x
    sums = [k.local(0.0, x.type.dtype) for _ in lines.rows]

    def visit(block: Val, words: list[Val], columns: int) -> None:
        for c in range(columns):
            number = signed_nibble(k, words[c // WORD], c % WORD, x.type.dtype)
            for row, total in zip(lines.rows, sums, strict=True):
                held = of.of_row(x, row, block * (BLOCK * WORD) + c)
                total.set(total.get() + held * number)

    lines.each_block(visit)
    lines.store(sums)


@int4_matvec_back.kernel
def lower_int4_matvec_back(frame: Frame, group: Group) -> Launch:
    """A lane is a word, so adjacent lanes read adjacent words: eight sums for each row."""
    k, node = frame.k, group.root
    of, out = PackedOperands(frame, node), frame.output(frame.memory.slots[node])
    words, count = plain(of.w.type.shape[-1]), back_rows(of, frame.memory.machine)
    grid = (of.stacks, ceil_div(of.rows, count), -(-words // LANES))
    position = Space(k, frame.sizes, grid, k.group_id())
    of.stack, first = position.span(0, 1), position.span(1, 2) * count
    word = position.span(2, 3) * LANES + k.lane()
    with frame.within(word, k.index(words), words):
        of.tile(first, count, lambda rows: run_back(of, out, rows, word))
    flops = product((*node.type.shape, of.w.type.shape[-2])) * 2
    return frame.finish(product(grid), group, flops=flops)


def run_back(of: PackedOperands, out: Buffer, rows: list[Val], word: Val) -> None:
    k, frame, node = of.k, of.frame, of.node
    dtype, columns = node.type.dtype, int(node.param("columns"))
    sums = [[k.local(0.0, dtype) for _ in range(WORD)] for _ in rows]
    with k.loop(frame.sizes.val(of.w.type.shape[-2])) as line:
        held = of.shared(of.w, line, word)
        cotangents = [of.of_row(of.x, row, line) for row in rows]
        for j in range(WORD):
            number = signed_nibble(k, held, j, dtype)
            for ct, totals in zip(cotangents, sums, strict=True):
                totals[j].set(totals[j].get() + ct * number)
    for row, totals in zip(rows, sums, strict=True):
        for j, total in enumerate(totals):
            with frame.within(word * WORD + j, k.index(columns), columns, WORD):
                frame.write(out, node, of.row_at(row, word * WORD + j), total.get())


# -- integers --------------------------------------------------------------------------------------


@int4_dots.kernel
def lower_int4_dots(frame: Frame, group: Group) -> Launch:
    columns = plain(group.root.inputs[1].type.shape[-1]) * WORD
    is_scaled = len(group.root.inputs) > 3
    return PackedRows(frame, group, columns, inner=2).launch(run_scaled if is_scaled else run_dots)


def run_dots(lines: PackedLines) -> None:
    k, of, sums = lines.of.k, lines.of.of, lines.of.group.root.inputs[2]
    dots = [k.local(of.of_row(sums, row, k.index(0)) * -8, i32) for row in lines.rows]

    def visit(block: Val, words: list[Val], _: int) -> None:
        for row, dot in zip(lines.rows, dots, strict=True):
            dot.set(add_dots(lines, row, block, words, dot.get()))

    lines.each_block(visit)
    lines.store(dots)


def run_scaled(lines: PackedLines) -> None:
    k, of, operands = lines.of.k, lines.of.of, lines.of.group.root.inputs
    sums, scales, factors = operands[2], operands[3], operands[5]
    totals = [k.local(0.0, f32) for _ in lines.rows]

    def visit(block: Val, words: list[Val], _: int) -> None:
        for row, total in zip(lines.rows, totals, strict=True):
            start, scale = (of.of_row(side, row, block) for side in (sums, scales))
            dot = k.cast(add_dots(lines, row, block, words, start * -8), f32)
            total.set(total.get() + scale * dot)

    lines.each_block(visit)
    factor = of.shared(factors, lines.start + k.lane())
    for total in totals:
        total.set(total.get() * factor)
    lines.store(totals)


def add_dots(lines: PackedLines, row: Val, block: Val, words: list[Val], total: Val) -> Val:
    """The dots of the words of a block with the bytes of a row, added to a total."""
    k, of = lines.of.k, lines.of.of
    for i, word in enumerate(words):
        for half in range(2):
            codes = of.of_row(of.x, row, block * BLOCK + i, k.index(half))
            nibbles = ((word ^ OFFSET) >> 4 * half) & EVEN
            total = k.dot4(total, nibbles, codes, u_max=15)
    return total
