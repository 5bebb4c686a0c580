"""Integer dots: rows in 8 bits times sixteen rows of an interleaved weight, for any number of rows
and any format.

A lane is a row of the weight. For each block of 32 columns the codes of sixteen weight rows are
multiplied with as many rows of x as the target's registers hold; the order of the sum is that of
`ops.matmul.op`, whatever the tile.
"""

from __future__ import annotations

from functools import reduce
from itertools import islice
from operator import add
from typing import Protocol

from tetrad.core.dtypes import f32, i32, u32
from tetrad.core.sizes import plain
from tetrad.graph.nodes import Node
from tetrad.kernel.build import LocalVar, Val
from tetrad.loopnest.frame import Frame
from tetrad.ops.quantized.weight import Weight
from tetrad.quant.lanes import BLOCK, FIELDS, WORDS

Place = tuple[Val, int]  # a row of x, and the block its term begins with
SCALE, SUM, WHOLE, HALF = range(FIELDS)  # of a block of x, beside its codes


class Codes(Protocol):
    """What a product needs of 32 columns of sixteen rows, wherever they are."""

    def codes(self, w: int) -> Val: ...

    def signed(self, w: int) -> Val: ...

    def factor(self, side: int, sub: int) -> Val: ...


class Int8Rows:
    """Rows in 8 bits inside a kernel."""

    def __init__(self, frame: Frame, node: Node) -> None:
        slot = frame.memory.slots[node]
        self.k, self.columns = frame.k, plain(node.type.shape[1])
        self.words, self.floats = frame.view(slot, u32), frame.view(slot, f32)
        self.blocks = self.columns // BLOCK
        self.pitch = self.blocks * (WORDS + FIELDS)  # words of a row

    def word(self, row: Val, block: Val, index: int) -> Val:
        return self.k.load(self.words, row * self.pitch + block * WORDS + index)

    def field(self, row: Val, block: Val, which: int) -> Val:
        return self.k.load(
            self.floats, row * self.pitch + self.blocks * WORDS + block * FIELDS + which
        )


class Sums:
    """Rows of x times sixteen rows of a weight, in the order that is the meaning of every low-bit
    product."""

    def __init__(self, frame: Frame, x: Node, w: Node) -> None:
        self.k, machine = frame.k, frame.memory.machine
        self.x, self.weight = Int8Rows(frame, x), Weight(frame, w)
        self.is_signed = self.weight.lanes.top > 128 and not machine.dots_mixed_bytes

    def run(self, group: Val, rows: list[Val], terms: int = 1) -> list[Val]:
        """The products of some rows of x with a group of sixteen rows of the weight, one a lane."""
        k, blocks = self.k, self.x.blocks // terms
        places = [(row, t * blocks) for row in rows for t in range(terms)]
        accs = [k.local(0.0, f32) for _ in places]
        start = self.weight.group(group)
        with k.loop(blocks) as b:
            self.run_block(self.weight.block(start, b), b, places, accs)
        sums = iter([acc.get() for acc in accs])
        return [reduce(add, islice(sums, terms)) for _ in rows]

    def run_block(self, block: Codes, b: Val, places: list[Place], accs: list[LocalVar]) -> None:
        k, lanes = self.k, self.weight.lanes
        for sub in range(lanes.sub_blocks):
            dots = self.dots(block, b, places, sub)
            scale = block.factor(0, sub)
            low = block.factor(1, sub) if lanes.has_mins else None
            for (row, first), acc, dot in zip(places, accs, dots, strict=True):
                total = k.fma(scale * self.x.field(row, b + first, SCALE), dot, acc)
                acc.set(
                    total
                    if low is None
                    else k.fma(low, self.scaled_sum(row, b + first, sub), total)
                )

    def dots(self, block: Codes, b: Val, places: list[Place], sub: int) -> list[Val]:
        """The exact dot of (code - offset) with each row of x over a sub-block. Word by word: few
        are held at once."""
        k, lanes, per = self.k, self.weight.lanes, WORDS // self.weight.lanes.sub_blocks
        most = 128 if self.is_signed else lanes.top
        dots = [k.const(0, i32) for _ in places]
        for w in lanes.word_order(range(sub * per, (sub + 1) * per)):
            code = block.signed(w) if self.is_signed else block.codes(w)
            words = [self.x.word(row, b + first, w) for row, first in places]
            dots = [
                k.dot4(dot, code, x, most, signed=self.is_signed)
                for dot, x in zip(dots, words, strict=True)
            ]
        found = [dot.cast(f32) for dot in dots]
        if self.is_signed or lanes.offset == 0:
            return found
        sums, offset = (
            [self.sum_of(row, b + first, sub) for row, first in places],
            -float(lanes.offset),
        )
        # exact: all below 2**24
        return [k.fma(offset, total, dot) for dot, total in zip(found, sums, strict=True)]

    def sum_of(self, row: Val, b: Val, sub: int) -> Val:
        """The sum of the codes of x in a sub-block of its block b."""
        if self.weight.lanes.sub_blocks == 1:
            return self.x.field(row, b, WHOLE)
        half = self.x.field(row, b, HALF)
        return half if sub == 0 else self.x.field(row, b, WHOLE) - half

    def scaled_sum(self, row: Val, b: Val, sub: int) -> Val:
        """What the codes of x in a sub-block of its block b stand for, added up."""
        if self.weight.lanes.sub_blocks == 1:
            return self.x.field(row, b, SUM)
        return self.x.field(row, b, SCALE) * self.sum_of(row, b, sub)
