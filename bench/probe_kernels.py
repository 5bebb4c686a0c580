"""Bench, kernels of the probes: their generators, in the kernel language, with the layouts they
read.

Receives tile sizes from the target's table, returns programs. Each is the plainest way to say what
the library's own generators will say: if the emitter does well here, it can do well there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from tetrad.core.dtypes import f16, f32, i32, u32
from tetrad.core.machine import RegisterTile
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.kernel.math import exponential as math
from tetrad.kernel.nodes import Buffer, Program

LANES = 16
UNROLL = 4  # steps of k written out

# A block of a low-bit weight: 16 rows x 32 columns as 80 words. 16 f16 scales, 16 f16 minimums,
# then 4 x 16 words. A word holds eight columns of its row: the low nibbles are four of them, the
# high nibbles the next four.
BLOCK = 32
BLOCK_WORDS = 80
NIBBLES = 0x0F0F0F0F

KEYS = 256  # of an attention block: part of the meaning, not a tuning knob


# -- low-bit products ------------------------------------------------------------------------------


def lowbit(tokens: int) -> Program:
    """y[token, row] = sum of w[row, :] x[token, :], `tokens` at a time; a lane is a weight row.

    Per block an exact dot, then acc = fma(sw*sx, dot, acc), then acc = fma(mw, sumx, acc); blocks
    ascend (docs/numerics.md).
    """
    k = KernelBuilder(f"lowbit_{tokens}")
    words, halves = k.buffer("words", u32), k.buffer("halves", f16)  # the same memory
    x, xs, y = k.buffer("x", u32), k.buffer("xs", f32), k.buffer("y", f32, "write")
    blocks, rows = k.arg("blocks"), k.arg("rows")
    with k.loop(k.arg("count"), 0, tokens) as first:
        accs = [k.local(0.0, f32) for _ in range(tokens)]
        with k.loop(blocks) as b:
            start = (k.group_id() * blocks + b) * BLOCK_WORDS
            inputs = [(first + t) * blocks + b for t in range(tokens)]
            dots = block_dots(k, words, x, start, inputs)
            scale = k.load(halves, start * 2 + k.lane()).cast(f32)
            low = k.load(halves, start * 2 + LANES + k.lane()).cast(f32)
            for acc, dot, at in zip(accs, dots, inputs, strict=True):
                scaled = k.fma(scale * k.load(xs, at * 2), dot.cast(f32), acc)
                acc.set(k.fma(low, k.load(xs, at * 2 + 1), scaled))
        for t, acc in enumerate(accs):
            k.store(y, (first + t) * rows + k.group_id() * LANES + k.lane(), acc)
    return k.finish()


def block_dots(
    k: KernelBuilder, words: Buffer, x: Buffer, start: Val, inputs: list[Val]
) -> list[Val]:
    """The exact integer dot of one weight block with each token."""
    dots = [k.const(0, i32) for _ in inputs]
    for j in range(4):
        word = k.load(words, start + LANES * (1 + j) + k.lane())
        for half, nibbles in enumerate((word & NIBBLES, (word >> 4) & NIBBLES)):
            for t, at in enumerate(inputs):
                dots[t] = k.dot4(dots[t], nibbles, k.load(x, at * 8 + (2 * j + half)), u_max=15)
    return dots


# -- float products --------------------------------------------------------------------------------


def matmul(tile: RegisterTile) -> Program:
    """c[m, n] of a[m, depth] and b in panels [panel][depth][tile columns]; a workgroup is one tile
    of rows."""
    k = KernelBuilder(f"matmul_{tile.rows}x{tile.vectors}")
    a, b, c = k.buffer("a", f32), k.buffer("b", f32), k.buffer("c", f32, "write")
    depth, panels, width = k.arg("depth"), k.arg("panels"), tile.vectors * LANES
    with k.loop(panels) as panel:
        accs = [[k.local(0.0, f32) for _ in range(tile.vectors)] for _ in range(tile.rows)]
        with k.loop(depth, 0, UNROLL) as step:
            for u in range(UNROLL):
                left = [
                    k.load(a, (k.group_id() * depth + step + u) * tile.rows + r)
                    for r in range(tile.rows)
                ]
                at = (panel * depth + step + u) * width
                right = [k.load(b, at + LANES * v + k.lane()) for v in range(tile.vectors)]
                multiply_add(k, accs, left, right)
        for r, row in enumerate(accs):
            for v, acc in enumerate(row):
                column = panel * width + LANES * v + k.lane()
                k.store(c, (k.group_id() * tile.rows + r) * (panels * width) + column, acc)
    return k.finish()


def multiply_add(
    k: KernelBuilder, accs: list[list[LocalVar]], left: list[Val], right: list[Val]
) -> None:
    """accs[r][v] += left[r] * right[v]"""
    for row, x in zip(accs, left, strict=True):
        for acc, y in zip(row, right, strict=True):
            acc.set(k.fma(x, y, acc))


# -- attention -------------------------------------------------------------------------------------


class Attention:
    """softmax(q k^T) v for `tile.rows` queries a workgroup, in key blocks of 256 merged in order
    (docs/attention.md).

    Keys are f16 [keys / 16][channel][16 keys], values f16 [key][channel]; a lane is a key, then a
    channel.
    """

    def __init__(self, tile: RegisterTile, channels: int) -> None:
        self.rows, self.vectors, self.channels = tile.rows, tile.vectors, channels
        self.k = k = KernelBuilder(f"attention_{tile.rows}x{tile.vectors}")
        self.q, self.keys, self.values = (
            k.buffer("q", f32),
            k.buffer("keys", f16),
            k.buffer("values", f16),
        )
        self.out = k.buffer("out", f32, "readwrite")
        self.p = k.scratch("p", f32, tile.rows * KEYS)
        self.first = k.group_id() * tile.rows

    def program(self) -> Program:
        k = self.k
        tops = [k.local(-float("inf"), f32) for _ in range(self.rows)]
        sums = [k.local(0.0, f32) for _ in range(self.rows)]
        self.each_output(lambda at, _: k.store(self.out, at, k.const(0.0, f32)))
        with k.loop(k.arg("blocks")) as block:
            self.scores(block)
            k.barrier()
            merge = [self.softmax(row, tops[row], sums[row]) for row in range(self.rows)]
            k.barrier()
            self.weigh(block, merge)
            k.barrier()
        inverse = [1.0 / total.get() for total in sums]
        self.each_output(lambda at, row: k.store(self.out, at, k.load(self.out, at) * inverse[row]))
        return k.finish()

    def each_output(self, visit: Callable[[Val, int], None]) -> None:
        for row in range(self.rows):
            for v in range(self.channels // LANES):
                visit(self.output(row, v), row)

    def output(self, row: int, vector: int | Val) -> Val:
        return (self.first + row) * self.channels + vector * LANES + self.k.lane()

    def tile(self, vectors: int) -> list[list[LocalVar]]:
        return [[self.k.local(0.0, f32) for _ in range(vectors)] for _ in range(self.rows)]

    def scores(self, block: Val) -> None:
        """p[row][key] = q[row, :] k[key, :]"""
        k, channels, vectors = self.k, self.channels, divisor(KEYS // LANES, self.vectors)
        with k.loop(KEYS // LANES, 0, vectors) as group:
            accs = self.tile(vectors)
            at = [(block * (KEYS // LANES) + group + v) * channels for v in range(vectors)]
            with k.loop(channels, 0, UNROLL) as step:
                for u in range(UNROLL):
                    left = [
                        k.load(self.q, (self.first + r) * channels + step + u)
                        for r in range(self.rows)
                    ]
                    right = [
                        k.load(self.keys, (start + step + u) * LANES + k.lane()).cast(f32)
                        for start in at
                    ]
                    multiply_add(k, accs, left, right)
            for r, row in enumerate(accs):
                for v, acc in enumerate(row):
                    k.store(self.p, r * KEYS + (group + v) * LANES + k.lane(), acc)

    def softmax(self, row: int, top: LocalVar, total: LocalVar) -> tuple[Val, Val]:
        """p = exp(p - max) in one block; how much the result so far and this block weigh after
        it."""
        k = self.k
        chunks = [row * KEYS + LANES * i + k.lane() for i in range(KEYS // LANES)]
        here = k.reduce_lanes("max", interleaved([k.load(self.p, at) for at in chunks], k.max))
        powers = []
        for at in chunks:
            powers.append(math.exp(k, k.load(self.p, at) - here))
            k.store(self.p, at, powers[-1])
        mine = k.reduce_lanes("add", interleaved(powers, lambda a, b: a + b))
        before = top.get()
        after = k.max(before, here)
        keep, add = math.exp(k, before - after), math.exp(k, here - after)
        total.set(k.fma(total, keep, mine * add))
        top.set(after)
        return keep, add

    def weigh(self, block: Val, merge: list[tuple[Val, Val]]) -> None:
        """out = out * keep + (p v) * add"""
        k, channels, vectors = self.k, self.channels, divisor(self.channels // LANES, self.vectors)
        with k.loop(channels // LANES, 0, vectors) as group:
            accs = self.tile(vectors)
            with k.loop(KEYS, 0, UNROLL) as key:
                for u in range(UNROLL):
                    left = [k.load(self.p, r * KEYS + key + u) for r in range(self.rows)]
                    at = (block * KEYS + key + u) * channels
                    right = [
                        k.load(self.values, at + (group + v) * LANES + k.lane()).cast(f32)
                        for v in range(vectors)
                    ]
                    multiply_add(k, accs, left, right)
            for r, (row, (keep, add)) in enumerate(zip(accs, merge, strict=True)):
                for v, acc in enumerate(row):
                    at = self.output(r, group + v)
                    k.store(self.out, at, k.fma(acc, add, k.load(self.out, at) * keep))


def interleaved(values: list[Val], join: Callable[[Val, Val], Val]) -> Val:
    """Vector i goes to partial i modulo 4; partials meet in a halving tree."""
    p, q, r, s = (reduce(join, values[i::4]) for i in range(4))
    return join(join(p, r), join(q, s))


def divisor(count: int, most: int) -> int:
    """The largest number up to `most` that divides `count`."""
    return max(n for n in range(1, most + 1) if count % n == 0)
