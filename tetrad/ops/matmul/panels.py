"""Kernels, low-bit products of many rows: codes put together once for all of them.

Sixteen rows of a weight are decoded into scratch, a panel of columns at a time: a byte a code,
factors in f32. Tiles of rows of x then read what they need from there. Sums wait in scratch between
panels; their order is that of `ops.matmul.op`.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.dtypes import f32, u32
from tetrad.core.machine import LANES
from tetrad.core.record import record
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame
from tetrad.ops.matmul.int8_dots import Sums
from tetrad.ops.matmul.plan import MatmulPlan
from tetrad.ops.quantized.weight import Weight
from tetrad.quant.lanes import WORDS

Store = Callable[[Val, Val], None]  # row, its sixteen results


class Panel:
    """Some blocks of sixteen rows of a weight, decoded."""

    def __init__(self, frame: Frame, weight: Weight, blocks: int, is_signed: bool) -> None:
        self.k, self.weight, self.is_signed = frame.k, weight, is_signed
        self.sides = weight.lanes.sides
        self.words = frame.private("panel", u32, blocks * WORDS * LANES)
        self.factors = frame.private(
            "factors", f32, blocks * self.sides * weight.lanes.sub_blocks * LANES
        )

    def fill(self, sixteen: Val, first: Val, count: Val) -> None:
        k, lanes = self.k, self.weight.lanes
        with k.loop(count) as b:
            source, here = self.weight.block(self.weight.group(sixteen), first + b), self.block(b)
            for w in lanes.word_order(range(WORDS)):
                k.store(
                    self.words,
                    here.word_at(w),
                    source.signed(w) if self.is_signed else source.codes(w),
                )
            for side in range(self.sides):
                for sub in range(lanes.sub_blocks):
                    k.store(self.factors, here.factor_at(side, sub), source.factor(side, sub))
        k.barrier()

    def block(self, index: Val) -> Decoded:
        return Decoded(self, index)


@record
class Decoded:
    """32 columns of sixteen rows in a panel; read like a `Block` of the weight."""

    panel: Panel
    index: Val

    def word_at(self, w: int) -> Val:
        return self.index * (WORDS * LANES) + w * LANES + self.panel.k.lane()

    def factor_at(self, side: int, sub: int) -> Val:
        per, k = self.panel.weight.lanes.sub_blocks, self.panel.k
        return self.index * (self.panel.sides * per * LANES) + (side * per + sub) * LANES + k.lane()

    def codes(self, w: int) -> Val:
        return self.panel.k.load(self.panel.words, self.word_at(w))

    def signed(self, w: int) -> Val:
        """Whoever asks for these has them in the panel."""
        return self.codes(w)

    def factor(self, side: int, sub: int) -> Val:
        return self.panel.k.load(self.panel.factors, self.factor_at(side, sub))


class PanelSums:
    """Some rows of x times sixteen rows of a weight, panel by panel."""

    def __init__(self, frame: Frame, sums: Sums, plan: MatmulPlan) -> None:
        self.frame, self.k, self.sums = frame, frame.k, sums
        self.tile, self.rows, self.depth = plan.tile.rows, plan.rows, plan.depth
        self.blocks = sums.x.blocks
        self.parts = -(-self.blocks // self.depth)
        self.panel = Panel(frame, sums.weight, self.depth, sums.is_signed)
        self.totals = frame.private("totals", f32, (self.rows + self.tile) * LANES)

    def run(self, sixteen: Val, part: Val, total: Val, store: Store) -> None:
        """Chunk `part` of `total` rows; chunks are equally long."""
        k = self.k
        each = (
            ceil_quotient(ceil_quotient(total, ceil_quotient(total, self.rows)), self.tile)
            * self.tile
        )
        self.start, self.stop = part * each, k.min(part * each + each, total)
        with k.loop(self.stop, self.start) as row:
            k.store(self.totals, self.at(row), k.const(0.0, f32))
        with k.loop(self.parts, always=True) as p:
            first = p * self.depth
            k.barrier()
            self.panel.fill(sixteen, first, k.min(self.blocks - first, self.depth))
            self.walk_rows(first, k.min(self.blocks - first, self.depth))
        k.barrier()
        with k.loop(self.stop, self.start) as row:
            store(row, k.load(self.totals, self.at(row)))

    def at(self, row: Val) -> Val:
        """Where the sums of a row wait."""
        return (row - self.start) * LANES + self.k.lane()

    def walk_rows(self, first: Val, count: Val) -> None:
        k, tile = self.k, self.tile
        whole = self.start + (self.stop - self.start) // tile * tile
        with k.loop(whole, self.start, tile) as row:
            self.run_tile([row + t for t in range(tile)], first, count)
        with k.loop(self.stop, whole) as row:
            self.run_tile([row], first, count)

    def run_tile(self, rows: list[Val], first: Val, count: Val) -> None:
        k = self.k
        accs = [k.local(k.load(self.totals, self.at(row))) for row in rows]
        with k.loop(count) as b:
            self.sums.run_block(self.panel.block(b), first + b, [(row, 0) for row in rows], accs)
        for row, acc in zip(rows, accs, strict=True):
            k.store(self.totals, self.at(row), acc)


def ceil_quotient(a: Val, b: Val | int) -> Val:
    return (a + b - 1) // b
