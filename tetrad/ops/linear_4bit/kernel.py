"""Kernels of `linear_4bit`: a lane is an output, so adjacent lanes read adjacent words. A weight is
decoded once for a tile of rows; each output keeps the order of its sum, whatever the tile.

The derivative by the rows adds along the outputs: lanes run along them and join in the end.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.dtypes import f32, f64, i32
from tetrad.core.machine import LANES, Machine
from tetrad.core.sizes import Size, ceil_div, is_below, is_multiple, plain, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import LocalVar, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.ops.int4.operands import PackedOperands, back_rows, tile_rows
from tetrad.ops.linear_4bit.int8 import linear_4bit_int8
from tetrad.ops.linear_4bit.op import WORD, linear_4bit, linear_4bit_back, parted
from tetrad.ops.matmul.epilogue import output_buffers, store_result
from tetrad.schedule.nodes import Launch

MOST_ROWS = 8  # of a tile
EVEN = 0x0F0F0F0F  # nibbles 0, 2, 4, 6
CHAINS = 4  # sums at once, so that an addition need not wait for the one before


def plan_tile(rows: Size, outputs: Size, machine: Machine, is_wide: bool) -> tuple[int, int]:
    """Rows of a tile, and vectors of outputs: sums that are held in registers."""
    tile = machine.f64_tile if is_wide else machine.f32_tile
    count = tile_rows(rows, max(1, min(MOST_ROWS, tile.rows * tile.vectors)))
    vectors = max(1, CHAINS // count)
    while vectors > 1 and is_below(outputs, vectors * LANES):
        vectors //= 2
    return count, vectors


Sides = tuple[Val, ...]  # scale and zero point, or neither
Visit = Callable[[Val, Callable[[int], list[Sides]]], None]


class AffineOperands(PackedOperands):
    """Those of `linear_4bit`: a weight of unsigned nibbles, with scale and zero point or not."""

    def __init__(self, frame: Frame, node: Node, first: int = 2, inner: int = 1) -> None:
        super().__init__(frame, node, inner)
        self.affine, self.bias = parted(node.inputs[first:])
        self.dtype = node.type.dtype
        self.words, self.outputs = plain(self.w.type.shape[-2]), self.w.type.shape[-1]
        # without groups, or of a group longer than the weight: all inputs are one
        size = int(dict(node.params).get("group_size", 0))
        self.group_size = min(size or self.words * WORD, self.words * WORD)

    def number(self, word: Val, j: int, sides: Sides) -> Val:
        """Nibble j of a word as the number it stands for."""
        nibble = self.k.cast(self.k.bitcast((word >> 4 * j) & 15, i32), self.dtype)
        if not sides:
            return nibble
        scale, zero_point = sides
        return (nibble - zero_point) * scale

    def sides(self, group: Val, columns: list[Val]) -> list[Sides]:
        return [
            tuple(self.k.cast(self.shared(side, group, c), self.dtype) for side in self.affine)
            for c in columns
        ]

    def group_of(self, word: Val, j: int) -> Val:
        if self.group_size % WORD == 0:
            return word // (self.group_size // WORD)
        return (word * WORD + j) // self.group_size

    def each_word(self, columns: list[Val], visit: Visit) -> None:
        """Visit words in order, with a function from a nibble to the sides of each column. Groups
        of whole words have them loaded once."""
        k, size = self.k, self.group_size // WORD
        if self.group_size % WORD:
            with k.loop(self.words) as word:
                visit(word, lambda j: self.sides(self.group_of(word, j), columns))
            return
        with k.loop(-(-self.words // size)) as group:
            held = self.sides(group, columns)
            last = k.min((group + 1) * size, self.words)
            with k.loop(last, group * size, always=True) as word:
                visit(word, lambda _: held)


# -- rows times the weight -------------------------------------------------------------------------


@linear_4bit.kernel
def lower_linear_4bit(frame: Frame, group: Group) -> Launch:
    frame.reads(frame.inputs)
    of = AffineOperands(frame, group.root)
    return ColumnTiles(frame, group, of, run_floats).launch()


@linear_4bit_int8.kernel
def lower_linear_4bit_int8(frame: Frame, group: Group) -> Launch:
    frame.reads(frame.inputs)
    of = AffineOperands(frame, group.root, first=5, inner=2)
    return ColumnTiles(frame, group, of, run_codes).launch()


# operands, rows, columns: a sum for each pair, column by column in a row
Run = Callable[[AffineOperands, list[Val], list[Val]], list[list[LocalVar]]]


class ColumnTiles:
    """One product: a workgroup takes a tile of rows and some vectors of outputs."""

    def __init__(self, frame: Frame, group: Group, of: AffineOperands, run: Run) -> None:
        self.frame, self.k, self.group, self.of, self.run = frame, frame.k, group, of, run
        self.results = output_buffers(frame, group)
        self.count, self.vectors = plan_tile(
            of.rows, of.outputs, frame.memory.machine, of.dtype is f64
        )

    def launch(self) -> Launch:
        k, of, width = self.k, self.of, self.vectors * LANES
        grid = (of.stacks, ceil_div(of.rows, self.count), ceil_div(of.outputs, width))
        position = Space(k, self.frame.sizes, grid, k.group_id())
        of.stack, first = position.span(0, 1), position.span(1, 2) * self.count
        base, end = position.span(2, 3) * width, self.frame.sizes.val(of.outputs)
        if is_multiple(of.outputs, width):
            self.run_tile(first, base, self.vectors)
        else:
            with k.when(base + width <= end):
                self.run_tile(first, base, self.vectors)
            with (
                k.otherwise(),
                k.loop(k.min(base + width, end), base, LANES) as column,
                k.when(column + k.lane() < end, guard=True),
            ):
                self.run_tile(first, column, 1)
        flops = product((*self.group.root.type.shape, of.words * WORD)) * 2
        return self.frame.finish(product(grid), self.group, flops=flops)

    def run_tile(self, first: Val, base: Val, vectors: int) -> None:
        columns = [base + v * LANES + self.k.lane() for v in range(vectors)]
        self.of.tile(first, self.count, lambda rows: self.store(rows, columns))

    def store(self, rows: list[Val], columns: list[Val]) -> None:
        for row, line in zip(rows, self.run(self.of, rows, columns), strict=True):
            for column, total in zip(columns, line, strict=True):
                at = self.of.row_at(row, column)
                store_result(self.frame, self.of.node, self.results, at, total.get())


def biased(of: AffineOperands, rows: list[Val], columns: list[Val]) -> list[list[LocalVar]]:
    """Sums that begin at the bias, or at zero."""
    starts: list[Val | float] = [0.0] * len(columns)
    for bias in of.bias:
        starts = [of.shared(bias, column) for column in columns]
    return [[of.k.local(start, of.dtype) for start in starts] for _ in rows]


def run_floats(of: AffineOperands, rows: list[Val], columns: list[Val]) -> list[list[LocalVar]]:
    """Rounded, then added: no fused multiply-add, which would round once."""
    sums = biased(of, rows, columns)

    def visit(word: Val, sides: Callable[[int], list[Sides]]) -> None:
        held = [of.shared(of.w, word, column) for column in columns]
        for j in range(WORD):
            pairs = zip(held, sides(j), strict=True)
            numbers = [of.number(each, j, affine) for each, affine in pairs]
            for row, line in zip(rows, sums, strict=True):
                x = of.of_row(of.x, row, word * WORD + j)
                for total, number in zip(line, numbers, strict=True):
                    total.set(total.get() + x * number)

    of.each_word(columns, visit)
    return sums


# -- rows in 8 bits --------------------------------------------------------------------------------


def run_codes(of: AffineOperands, rows: list[Val], columns: list[Val]) -> list[list[LocalVar]]:
    """Whole blocks in a loop, then the one that is left."""
    k, block = of.k, int(of.node.param("block"))
    totals, whole = biased(of, rows, columns), of.words // block
    with k.loop(whole) as i:
        add_block(of, totals, i, block, rows, columns)
    if left := of.words % block:
        add_block(of, totals, k.index(whole), left, rows, columns)
    return totals


def add_block(
    of: AffineOperands,
    totals: list[list[LocalVar]],
    block: Val,
    count: int,
    rows: list[Val],
    columns: list[Val],
) -> None:
    k, (sums, scales) = of.k, of.node.inputs[2:4]
    first = block * int(of.node.param("block"))
    sides = of.sides(of.group_of(first, 0), columns)
    held = [[of.shared(of.w, first + i, c) for i in range(count)] for c in columns]
    for row, line in zip(rows, totals, strict=True):
        total_code, factor = k.cast(of.of_row(sums, row, block), f32), of.of_row(scales, row, block)
        for total, words, affine in zip(line, held, sides, strict=True):
            value = k.cast(block_dot(of, row, first, words), f32)
            if affine:
                scale, zero_point = affine
                value = value - zero_point * total_code
                total.set(total.get() + (factor * scale) * value)
            else:
                total.set(total.get() + factor * value)


def block_dot(of: AffineOperands, row: Val, first: Val, words: list[Val]) -> Val:
    k, dot = of.k, of.k.const(0, i32)
    for i, word in enumerate(words):
        for half in range(2):
            codes = of.of_row(of.x, row, first + i, k.index(half))
            dot = k.dot4(dot, (word >> 4 * half) & EVEN, codes, u_max=15)
    return dot


# -- derivative by the rows ------------------------------------------------------------------------


@linear_4bit_back.kernel
def lower_linear_4bit_back(frame: Frame, group: Group) -> Launch:
    """A workgroup takes a tile of rows and eight inputs; lanes run along the outputs."""
    k, node = frame.k, group.root
    of = AffineOperands(frame, node)
    out, count = frame.output(frame.memory.slots[node]), back_rows(of, frame.memory.machine)
    grid = (of.stacks, ceil_div(of.rows, count), of.words)
    position = Space(k, frame.sizes, grid, k.group_id())
    of.stack, first, word = position.span(0, 1), position.span(1, 2) * count, position.span(2, 3)
    # all lanes store what they have in common, so no row may be stored twice
    of.tile(first, count, lambda rows: run_back(of, out, rows, word), repeats=False)
    flops = product((*node.type.shape, of.outputs)) * 2
    return frame.finish(product(grid), group, flops=flops)


def run_back(of: AffineOperands, out: Buffer, rows: list[Val], word: Val) -> None:
    k, frame, end = of.k, of.frame, of.frame.sizes.val(of.outputs)
    sums = [[k.local(0.0, of.dtype) for _ in range(WORD)] for _ in rows]
    with k.loop(end, 0, LANES) as start:
        column = start + k.lane()
        with frame.within(column, end, of.outputs):
            held = of.shared(of.w, word, column)
            cotangents = [of.of_row(of.x, row, column) for row in rows]
            for j in range(WORD):
                number = of.number(held, j, of.sides(of.group_of(word, j), [column])[0])
                for ct, totals in zip(cotangents, sums, strict=True):
                    totals[j].set(totals[j].get() + ct * number)
    for row, totals in zip(rows, sums, strict=True):
        for j, total in enumerate(totals):
            at = of.row_at(row, word * WORD + j)
            frame.write(out, of.node, at, k.reduce_lanes("add", total.get()))
