"""Lowering, matmul: a[..., m, k] b[..., k, n] with the elementwise work on the result done before it is stored.

A workgroup takes one block of columns and one block of rows. For every 1024 of k it packs its part of the right side into
scratch as panels [k][16 lanes] (a constant right side comes packed), then walks its rows in register tiles: a tile holds
`rows` x `vectors` accumulators, each step broadcasts one element of the left side per row.

Canonical order (design D6): k ascends in chunks of 1024, one fma chain from zero per chunk, chunk sums added in order.
Nothing here changes it: not tiles, blocks, packing or threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tetrad.codegen.target import Tile
from tetrad.core.dtypes import DType, i8, i32
from tetrad.core.sizes import Shape, Size, ceil_div, product
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Literal, Node
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.kernel.nodes import Buffer
from tetrad.lower.frame import LANES, Frame, Memory
from tetrad.lower.index import Space
from tetrad.lower.launch import Launch, Slot
from tetrad.lower.reader import At, compute_dtype
from tetrad.lower.transpose import turned
from tetrad.passes.fuse import Group

CHUNK = 1024  # of k: part of the meaning, not a tuning knob
COLUMNS = 64  # of a workgroup
ROWS = 192  # of a workgroup, at most
UNROLL = 4  # steps of k written out


def lower_matmul(group: Group, inputs: list[Node], memory: Memory) -> Launch:
    return Matmul(group, inputs, memory).launch()


@dataclass(frozen=True, slots=True)
class Extent:
    """Sizes of a product: batch axes of the result, then m, n, k."""

    batch: Shape
    m: Size
    n: Size
    k: Size


class Matmul:
    """The kernel of one product."""

    def __init__(self, group: Group, inputs: list[Node], memory: Memory) -> None:
        self.group, self.memory, self.node = group, memory, group.root
        self.a, self.b = self.node.inputs
        shape = self.node.type.shape
        self.size = Extent(shape[:-2], shape[-2], shape[-1], self.a.type.shape[-1])
        self.dtype = accumulator(self.a.type.dtype)
        self.tile = choose_tile(memory, self.dtype, self.size.m)
        self.frame = Frame(group.name, memory)
        self.k, self.sizes = self.frame.k, self.frame.sizes
        self.packed = pack_constant(self.b, self.dtype)
        self.frame.reads(i for i in inputs if not (self.packed and is_only_right_side(group, i, self.b)))
        self.panels = self.frame.input(self.packed) if self.packed else self.scratch_panels()
        self.out = self.frame.output(memory.slots[group.outputs[0]])
        self.width = self.tile.vectors * LANES

    # -- the workgroup --------------------------------------------------------------------------------------------

    def launch(self) -> Launch:
        size = self.size
        columns, rows = ceil_div(size.n, COLUMNS), ceil_div(size.m, ROWS)
        grid: Shape = (product(size.batch), columns, rows)
        position = Space(self.k, self.sizes, grid, self.k.group_id())
        self.batch = Space(self.k, self.sizes, size.batch, position.span(0, 1)).axes()
        self.n0 = position.span(1, 2) * COLUMNS
        self.split_rows(position.span(2, 3), rows)
        self.walk_chunks()
        flops = product((*size.batch, size.m, size.n, size.k)) * 2
        return self.frame.finish(product(grid), self.group, flops=flops)

    def split_rows(self, block: Val, blocks: Size) -> None:
        """Rows as evenly as possible, so that every block has at least a tile."""
        k, m = self.k, self.sizes.val(self.size.m)
        if blocks == 1:
            self.m0, self.m1 = k.index(0), m
            return
        count = self.sizes.val(blocks)
        self.m0, self.m1 = (block * m) // count, ((block + 1) * m) // count

    def walk_chunks(self) -> None:
        k, depth = self.k, self.size.k
        if isinstance(depth, int) and depth <= CHUNK:
            self.sums: tuple[Buffer, ...] = ()
            self.run_chunk(k.index(0), self.sizes.val(depth), first=True, last=True)
            return
        area = ROWS * COLUMNS + COLUMNS
        self.sums = (self.frame.scratch("sums", self.dtype, 2 * area),)
        self.area = area
        chunks = self.sizes.val(ceil_div(depth, CHUNK))
        with k.loop(chunks) as chunk:
            self.chunk = chunk
            start = chunk * CHUNK
            stop = k.min(start + CHUNK, self.sizes.val(depth))
            final = (chunk + 1).eq(chunks)
            with k.when(final):
                self.run_chunk(start, stop, first=False, last=True)
            with k.otherwise():
                self.run_chunk(start, stop, first=False, last=False)

    def run_chunk(self, start: Val, stop: Val, *, first: bool, last: bool) -> None:
        if self.packed is None:
            self.pack(start, stop)
        for panel in range(COLUMNS // self.width):
            column = self.n0 + panel * self.width
            with self.k.when(column < self.sizes.val(self.size.n)):
                self.walk_rows(panel, start, stop, last=last)

    def walk_rows(self, panel: int, start: Val, stop: Val, *, last: bool) -> None:
        """Tiles from m0 to m1; the last one is moved up to end at m1 and computes some rows twice, alike."""
        k, rows = self.k, self.tile.rows
        if rows == 1 or (isinstance(self.size.m, int) and self.size.m >= rows):
            with k.loop(self.m1, self.m0, rows) as m:
                top = m if rows == 1 else k.min(m, self.m1 - rows)
                self.run_tile(top, rows, panel, start, stop, last=last)
            return
        with k.when(self.m1 - self.m0 >= rows):
            with k.loop(self.m1, self.m0, rows) as m:
                self.run_tile(k.min(m, self.m1 - rows), rows, panel, start, stop, last=last)
        with k.otherwise(), k.loop(self.m1, self.m0) as m:
            self.run_tile(m, 1, panel, start, stop, last=last)

    # -- the tile -------------------------------------------------------------------------------------------------

    def run_tile(self, m: Val, rows: int, panel: int, start: Val, stop: Val, *, last: bool) -> None:
        k, vectors = self.k, self.tile.vectors
        accs = [[k.local(0, self.dtype) for _ in range(vectors)] for _ in range(rows)]
        depth = stop - start
        whole = (depth // UNROLL) * UNROLL
        with k.loop(whole, 0, UNROLL) as step:
            for u in range(UNROLL):
                self.step(accs, m, panel, start, step + u)
        with k.loop(depth, whole) as step:
            self.step(accs, m, panel, start, step)
        for row in range(rows):
            for v in range(vectors):
                self.finish_vector(accs[row][v].get(), m + row, panel, v, last=last)

    def step(self, accs: list[list[LocalVar]], m: Val, panel: int, start: Val, step: Val) -> None:
        right = [self.right(panel, v, start, step) for v in range(self.tile.vectors)]
        for row, chain in enumerate(accs):
            left = self.left(m + row, start + step)
            for v, acc in enumerate(chain):
                acc.set(multiply_add(self.k, left, right[v], acc.get()))

    def left(self, m: Val, depth: Val) -> Val:
        return self.k.cast(self.frame.reading.wide(self.a, self.operand_at(self.a, m, depth)), self.dtype)

    def right(self, panel: int, v: int, start: Val, step: Val) -> Val:
        lane = self.k.lane()
        if self.packed is None:
            where = (step * (COLUMNS // LANES) + (panel * self.tile.vectors + v)) * LANES + lane
            return self.k.load(self.panels, where)
        block = self.n0 // COLUMNS
        where = (block * self.sizes.val(self.size.k) + start + step) * COLUMNS + (panel * self.tile.vectors + v) * LANES + lane
        return self.k.load(self.panels, where)

    def finish_vector(self, chain: Val, m: Val, panel: int, v: int, *, last: bool) -> None:
        """Add the chunk to the sum so far; after the last one run the epilogue and store."""
        k = self.k
        total = chain
        if self.sums:
            total = self.add_sum(chain, m, panel, v, last=last)
        if not last:
            return
        column = self.n0 + (panel * self.tile.vectors + v) * LANES + k.lane()
        with k.when(column < self.sizes.val(self.size.n), guard=True):
            at = (*self.batch, m, column)
            result = k.cast(total, self.node.type.dtype)
            self.frame.reading.provided[self.node] = lambda _: result
            output = self.group.outputs[0]
            self.frame.write(self.out, output, at, self.frame.reading.read(output, at))

    def add_sum(self, chain: Val, m: Val, panel: int, v: int, *, last: bool) -> Val:
        """Sums live twice, read from one copy and written to the other, so a row done twice adds its chunk once."""
        k, buffer = self.k, self.sums[0]
        where = (m - self.m0) * COLUMNS + (panel * self.tile.vectors + v) * LANES + k.lane()
        odd = self.chunk % 2
        before, after = where + odd * self.area, where + (1 - odd) * self.area
        total = k.local(chain)
        with k.when(self.chunk > 0):
            total.set(k.load(buffer, before) + chain)
        if not last:
            k.store(buffer, after, total)
        return total.get()

    # -- packing --------------------------------------------------------------------------------------------------

    def scratch_panels(self) -> Buffer:
        depth = self.size.k
        rows = min(depth, CHUNK) if isinstance(depth, int) else CHUNK
        return self.frame.scratch("panels", self.dtype, COLUMNS * rows)

    def pack(self, start: Val, stop: Val) -> None:
        """panels[k][column] = b[start + k, n0 + column], zero past the last column."""
        if runs_along_k(self.b):
            self.pack_turned(start, stop)
            return
        with self.k.loop(stop - start) as step:
            self.pack_row(start, step)

    def pack_row(self, start: Val, step: Val) -> None:
        k = self.k
        for v in range(COLUMNS // LANES):
            column = self.n0 + v * LANES + k.lane()
            where = (step * (COLUMNS // LANES) + v) * LANES + k.lane()
            value = k.local(0, self.dtype)
            with k.when(column < self.sizes.val(self.size.n), guard=True):
                value.set(self.element(start + step, column))
            k.store(self.panels, where, value)

    def element(self, depth: Val, column: Val) -> Val:
        return self.k.cast(self.frame.reading.wide(self.b, self.operand_at(self.b, depth, column)), self.dtype)

    def pack_turned(self, start: Val, stop: Val) -> None:
        """A right side stored with k last: 16 columns x 16 steps of k at a time, turned in registers."""
        k, n = self.k, self.sizes.val(self.size.n)
        depth = stop - start
        whole = (depth // LANES) * LANES
        for v in range(COLUMNS // LANES):
            column = self.n0 + v * LANES
            with k.when(column + LANES <= n):
                with k.loop(whole, 0, LANES) as step:
                    tile = [self.element(start + step + k.lane(), column + i) for i in range(LANES)]
                    for i, vector in enumerate(turned(k, tile)):
                        k.store(self.panels, ((step + i) * (COLUMNS // LANES) + v) * LANES + k.lane(), vector)
        with k.when(self.n0 + COLUMNS <= n):
            with k.loop(depth, whole) as step:
                self.pack_row(start, step)
        with k.otherwise(), k.loop(depth) as step:
            self.pack_row(start, step)

    def operand_at(self, operand: Node, row: Val, column: Val) -> At:
        """Index of an operand: batch axes of size 1 are shared."""
        shape = operand.type.shape[:-2]
        outer = tuple(self.k.index(0) if n == 1 else i for n, i in zip(shape, self.batch, strict=True))
        return (*outer, row, column)


def multiply_add(k: KernelBuilder, a: Val, b: Val, c: Val) -> Val:
    return k.fma(a, b, c) if a.dtype.is_float else a * b + c


def accumulator(dtype: DType) -> DType:
    return i32 if dtype is i8 else compute_dtype(dtype)


def choose_tile(memory: Memory, dtype: DType, m: Size) -> Tile:
    tile = memory.target.f64_tile if dtype.bits == 64 else memory.target.f32_tile
    return Tile(min(tile.rows, max(m, 1)), tile.vectors) if isinstance(m, int) else tile


def runs_along_k(b: Node) -> bool:
    """Is the right side the transpose of an array whose last axis is k?"""
    if b.op.name != "transpose":
        return False
    perm = b.param("perm")
    return len(perm) >= 2 and perm[-2] == len(perm) - 1


def is_only_right_side(group: Group, node: Node, b: Node) -> bool:
    """Is a constant read only as the (packed) right side of the product?"""
    return node is b and not any(node in m.inputs for m in group.members[1:]) and group.root.inputs[0] is not node


def pack_constant(b: Node, dtype: DType) -> Slot | None:
    """A constant right side packed once, as [block of columns][k][64 columns]; only matrices without batch axes."""
    if b.op.name != "constant" or any(n != 1 for n in b.type.shape[:-2]):
        return None
    matrix = b.param("value").array.reshape(b.type.shape[-2:]).astype(dtype.np)  # type: ignore[arg-type]
    depth, width = matrix.shape
    blocks = -(-width // COLUMNS)
    padded = np.zeros((depth, blocks * COLUMNS), dtype.np)
    padded[:, :width] = matrix
    packed = np.ascontiguousarray(padded.reshape(depth, blocks, COLUMNS).transpose(1, 0, 2))
    return Slot("packed", ArrayType(dtype, tuple(packed.shape)), "constant", literal=Literal(packed))


