"""Kernels of products with packed rows: a lane is a row of the weight. Words of sixteen rows are
read along the rows and transposed in registers; where that does not fit, each lane gathers its own.

Each output keeps the order of its sum, whatever the tile.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.dtypes import DType, f32, i32, u32
from tetrad.core.machine import LANES
from tetrad.core.sizes import ceil_div, is_below, is_multiple, plain, product
from tetrad.graph.group import Group
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.loopnest.transpose import turned
from tetrad.ops.int4.op import BLOCK, WORD, int4_dots, int4_matvec, int4_matvec_back
from tetrad.ops.int4.operands import PackedOperands, tile_rows
from tetrad.ops.matmul.epilogue import output_buffers, store_result
from tetrad.schedule.nodes import Launch

MOST_ROWS = 4  # of a tile
EVEN = 0x0F0F0F0F  # nibbles 0, 2, 4, 6
OFFSET = 0x88888888  # turns the highest bit of each nibble: 8 is added to what it stands for

# block of four words, vectors of the words it has, the columns they hold
Visit = Callable[[Val, list[Val], int], None]


def signed_nibble(k: KernelBuilder, word: Val, j: int, dtype: DType) -> Val:
    held = k.bitcast(word, i32)
    return k.cast((held << (28 - 4 * j)) >> 28 if j < WORD - 1 else held >> 28, dtype)


class PackedRows:
    """A product with sixteen packed rows a workgroup, and a tile of rows of the left side."""

    def __init__(self, frame: Frame, group: Group, columns: int, inner: int = 1) -> None:
        self.frame, self.k, self.group = frame, frame.k, group
        frame.reads(frame.inputs)
        self.of = PackedOperands(frame, group.root, inner)
        self.outputs = output_buffers(frame, group)
        self.columns, self.lines = columns, self.of.w.type.shape[-2]
        self.area = frame.private("words", u32, LANES * LANES) if self.chunks else None

    @property
    def chunks(self) -> int:
        """Of sixteen whole words, which are transposed together."""
        return self.columns // (LANES * WORD)

    def launch(self, run: Callable[[list[Val], PackedRows], None]) -> Launch:
        k, of, count = self.k, self.of, tile_rows(self.of.rows, MOST_ROWS)
        grid = (of.stacks, ceil_div(of.rows, count), ceil_div(self.lines, LANES))
        position = Space(k, self.frame.sizes, grid, k.group_id())
        of.stack, first = position.span(0, 1), position.span(1, 2) * count
        self.base = position.span(2, 3) * LANES
        self.line, end = self.base + k.lane(), self.frame.sizes.val(self.lines)
        self.is_whole = is_multiple(self.lines, LANES)
        if self.is_whole or not self.chunks:
            with self.frame.within(self.line, end, self.lines):
                of.tile(first, count, lambda rows: run(rows, self))
        else:
            self.is_whole = True
            if not is_below(self.lines, LANES):
                with k.when(self.base + LANES <= end):
                    of.tile(first, count, lambda rows: run(rows, self))
            self.is_whole = False
            with k.when((self.base + LANES > end)), k.when(self.line < end, guard=True):
                of.tile(first, count, lambda rows: run(rows, self))
        flops = product((*self.group.root.type.shape, self.columns)) * 2
        return self.frame.finish(product(grid), self.group, flops=flops)

    def each_block(self, visit: Visit) -> None:
        """Visit blocks of 32 columns in order, the last of them with what is left."""
        k, whole = self.k, self.columns // (BLOCK * WORD)
        first = 0
        if self.is_whole and self.chunks:
            first = self.chunks * (LANES // BLOCK)
            with k.loop(self.chunks) as chunk:
                self.each_transposed(chunk, visit)
        if first < whole:
            with k.loop(whole, first) as block:
                visit(block, self.gathered(block, BLOCK), BLOCK * WORD)
        if left := self.columns % (BLOCK * WORD):
            block = k.index(whole)
            visit(block, self.gathered(block, -(-left // WORD)), left)

    def each_transposed(self, chunk: Val, visit: Visit) -> None:
        k, area = self.k, self.area
        if area is None:
            raise TypeError("no chunk, no area")
        at = chunk * LANES + k.lane()
        tile = [self.of.shared(self.of.w, self.base + i, at) for i in range(LANES)]
        for i, vector in enumerate(turned(k, tile)):
            k.store(area, i * LANES + k.lane(), vector)
        with k.loop(LANES // BLOCK) as b:
            held = [k.load(area, (b * BLOCK + i) * LANES + k.lane()) for i in range(BLOCK)]
            visit(chunk * (LANES // BLOCK) + b, held, BLOCK * WORD)

    def gathered(self, block: Val, count: int) -> list[Val]:
        return [self.of.shared(self.of.w, self.line, block * BLOCK + i) for i in range(count)]

    def store(self, row: Val, total: Val) -> None:
        at = self.of.row_at(row, self.line)
        store_result(self.frame, self.of.node, self.outputs, at, total)


# -- floats ----------------------------------------------------------------------------------------


@int4_matvec.kernel
def lower_int4_matvec(frame: Frame, group: Group) -> Launch:
    x = group.root.inputs[0]
    return PackedRows(frame, group, plain(x.type.shape[-1])).launch(run_matvec)


def run_matvec(rows: list[Val], of: PackedRows) -> None:
    k, x = of.k, of.of.x
    sums = [k.local(0.0, x.type.dtype) for _ in rows]

    def visit(block: Val, words: list[Val], columns: int) -> None:
        for c in range(columns):
            number = signed_nibble(k, words[c // WORD], c % WORD, x.type.dtype)
            for row, total in zip(rows, sums, strict=True):
                held = of.of.of_row(x, row, block * (BLOCK * WORD) + c)
                total.set(total.get() + held * number)

    of.each_block(visit)
    for row, total in zip(rows, sums, strict=True):
        of.store(row, total.get())


@int4_matvec_back.kernel
def lower_int4_matvec_back(frame: Frame, group: Group) -> Launch:
    """A lane is a word, so adjacent lanes read adjacent words: eight sums each."""
    k, node = frame.k, group.root
    of, columns = PackedOperands(frame, node), int(node.param("columns"))
    out = frame.output(frame.memory.slots[node])
    words = plain(of.w.type.shape[-1])
    grid = (of.stacks, of.rows, -(-words // LANES))
    position = Space(k, frame.sizes, grid, k.group_id())
    of.stack, row = position.span(0, 1), position.span(1, 2)
    word = position.span(2, 3) * LANES + k.lane()
    with frame.within(word, k.index(words), words):
        sums = [k.local(0.0, node.type.dtype) for _ in range(WORD)]
        with k.loop(frame.sizes.val(of.w.type.shape[-2])) as line:
            ct, held = of.of_row(of.x, row, line), of.shared(of.w, line, word)
            for j, total in enumerate(sums):
                total.set(total.get() + ct * signed_nibble(k, held, j, node.type.dtype))
        for j, total in enumerate(sums):
            with frame.within(word * WORD + j, k.index(columns), columns, WORD):
                frame.write(out, node, of.row_at(row, word * WORD + j), total.get())
    flops = product((*node.type.shape, of.w.type.shape[-2])) * 2
    return frame.finish(product(grid), group, flops=flops)


# -- integers --------------------------------------------------------------------------------------


@int4_dots.kernel
def lower_int4_dots(frame: Frame, group: Group) -> Launch:
    columns = plain(group.root.inputs[1].type.shape[-1]) * WORD
    is_scaled = len(group.root.inputs) > 3
    return PackedRows(frame, group, columns, inner=2).launch(run_scaled if is_scaled else run_dots)


def run_dots(rows: list[Val], of: PackedRows) -> None:
    k, sums = of.k, of.group.root.inputs[2]
    zero = k.index(0)
    dots = [k.local(of.of.of_row(sums, row, zero) * -8, i32) for row in rows]

    def visit(block: Val, words: list[Val], _: int) -> None:
        for row, dot in zip(rows, dots, strict=True):
            dot.set(add_dots(of, row, block, words, dot))

    of.each_block(visit)
    for row, dot in zip(rows, dots, strict=True):
        of.store(row, dot.get())


def run_scaled(rows: list[Val], of: PackedRows) -> None:
    k, (sums, scales) = of.k, of.group.root.inputs[2:]
    totals = [k.local(0.0, f32) for _ in rows]

    def visit(block: Val, words: list[Val], _: int) -> None:
        for row, total in zip(rows, totals, strict=True):
            start = of.of.of_row(sums, row, block) * -8
            dot = k.cast(add_dots(of, row, block, words, start), f32)
            total.set(total.get() + of.of.of_row(scales, row, block) * dot)

    of.each_block(visit)
    for row, total in zip(rows, totals, strict=True):
        of.store(row, total.get())


def add_dots(of: PackedRows, row: Val, block: Val, words: list[Val], start: Val | LocalVar) -> Val:
    """The dots of the words of a block with the bytes of a row, added to a start."""
    k, total = of.k, start
    for i, word in enumerate(words):
        for half in range(2):
            codes = of.of.of_row(of.of.x, row, block * BLOCK + i, k.index(half))
            nibbles = ((word ^ OFFSET) >> 4 * half) & EVEN
            total = k.dot4(total, nibbles, codes, u_max=15)
    return k.value(total, i32)
