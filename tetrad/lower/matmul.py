"""Lowering, matmul: a[..., m, k] b[..., k, n] with the elementwise work on the result done before it is stored.

A workgroup takes one block of columns and one block of rows. For every 512 of k it packs its part of the right side
into scratch as panels [panel][k][width of a tile] (a constant right side comes packed), then walks its rows in register
tiles: a tile holds `rows` x `vectors` accumulators, each step broadcasts one element of the left side per row. The rows
of a tile are staged in scratch first: rows a power of two apart would share the few places a cache has for them, and
elementwise work on the left side is done once.

Canonical order (design D6): k ascends in chunks of 1024, one fma chain from zero per chunk, chunk sums added in order.
Nothing here changes it: not tiles, blocks, packing or threads.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import DType
from tetrad.core.record import record
from tetrad.core.sizes import Shape, Size, ceil_div, product
from tetrad.core.target import Tile
from tetrad.core.types import ArrayType, row_strides
from tetrad.graph.nodes import Literal, Node
from tetrad.kernel.build import LocalVar, Val
from tetrad.kernel.nodes import Buffer
from tetrad.lower.frame import LANES, Frame, Memory
from tetrad.lower.index import Space, offset
from tetrad.lower.launch import Launch, Slot
from tetrad.lower.product import accumulator, multiply_add, operand_at, output_buffers, runs_along_k, store_result
from tetrad.lower.thin import is_thin, lower_thin
from tetrad.lower.transpose import turned
from tetrad.passes.fuse import Group

BLOCK = 512  # of k, packed and walked at a time; two make a chunk of 1024, which is part of the meaning
COLUMNS = 128  # of a workgroup
ROWS, FEW_ROWS = 384, 192  # of a workgroup, at most; fewer where that leaves more workgroups to share
PITCH = BLOCK + LANES  # between staged rows
STAGING_COLUMNS = 64
UNROLL = 4  # steps of k written out


def lower_matmul(group: Group, inputs: list[Node], memory: Memory) -> Launch:
    return lower_thin(group, inputs, memory) if is_thin(group.root) else Matmul(group, inputs, memory).launch()


@record
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
        self.width = self.tile.vectors * LANES
        self.columns = max(self.width, COLUMNS // self.width * self.width)
        self.packed = pack_constant(self.b, self.dtype, self.width)
        self.frame.reads(i for i in inputs if not (self.packed and is_only_right_side(group, i, self.b)))
        self.panels = self.frame.input(self.packed) if self.packed else self.scratch_panels()
        self.beside = [i for i in self.frame.reading.buffers if i.type.shape == shape and i not in (self.a, self.b)]
        self.outputs = output_buffers(self.frame, group)
        self.rows = FEW_ROWS if isinstance(self.size.m, int) and self.size.m < 2 * ROWS else ROWS
        rows = self.tile.rows
        self.staged = self.frame.scratch("rows", self.dtype, rows * PITCH) if self.is_worth_staging() else None
        self.tile_area = self.frame.scratch("tile", self.dtype, rows * self.width)

    def is_turned(self, side: Node) -> bool:
        """Is a side read in place from an array that lies the other way round?"""
        return runs_along_k(side) and side not in self.frame.reading.buffers

    def is_worth_staging(self) -> bool:
        """Rows of the left side lie along k, and enough columns follow to pay for copying them."""
        return not self.is_turned(self.a) and not (isinstance(self.size.n, int) and self.size.n < STAGING_COLUMNS)

    # -- the workgroup --------------------------------------------------------------------------------------------

    def launch(self) -> Launch:
        size = self.size
        columns, rows = ceil_div(size.n, self.columns), ceil_div(size.m, self.rows)
        grid: Shape = (product(size.batch), columns, rows)
        position = Space(self.k, self.sizes, grid, self.k.group_id())
        self.batch = Space(self.k, self.sizes, size.batch, position.span(0, 1)).axes()
        self.n0 = position.span(1, 2) * self.columns
        self.split_rows(position.span(2, 3), rows)
        self.walk_blocks()
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

    def walk_blocks(self) -> None:
        """k in blocks of 512: two make a chunk. Between blocks a tile's unfinished chain, and the sum of the chunks
        before it, wait in scratch."""
        k, depth = self.k, self.size.k
        self.block: Val | None = None
        if isinstance(depth, int) and depth <= BLOCK:
            self.run_block(k.index(0), self.sizes.val(depth))
            return
        self.area = (self.rows + 1) * self.columns
        self.chains = self.frame.scratch("chains", self.dtype, self.area)
        self.sums = self.frame.scratch("sums", self.dtype, 2 * self.area)
        self.blocks = k.max(self.sizes.val(ceil_div(depth, BLOCK)), 1)  # a Dim may be 0, a result is written
        with k.loop(self.blocks) as self.block:
            start = self.block * BLOCK
            self.run_block(start, k.min(start + BLOCK, self.sizes.val(depth)))

    def run_block(self, start: Val, stop: Val) -> None:
        """Pack, then tiles from m0 to m1; the last one is moved up to end at m1 and computes some rows twice, alike."""
        if self.packed is None:
            self.pack(start, stop)
        k, rows = self.k, self.tile.rows
        if isinstance(self.size.m, int):  # at least a tile, by the choice of the tile
            with k.loop(self.m1, self.m0, rows) as m:
                self.walk_columns(k.min(m, self.m1 - rows), rows, start, stop)
            return
        with k.when(self.m1 - self.m0 >= rows), k.loop(self.m1, self.m0, rows) as m:
            self.walk_columns(k.min(m, self.m1 - rows), rows, start, stop)
        with k.otherwise(), k.loop(self.m1, self.m0) as m:
            self.walk_columns(m, 1, start, stop)

    def walk_columns(self, m: Val, rows: int, start: Val, stop: Val) -> None:
        """One tile of rows against every panel: the rows stay in the nearest cache, the panels come from the next."""
        if self.staged is not None:
            self.stage(m, rows, start, stop)
        left = self.sizes.val(self.size.n) - self.n0
        with self.k.loop(self.k.min(left, self.columns), 0, self.width) as column:
            self.run_tile(m, rows, column, start, stop)

    def stage(self, m: Val, rows: int, start: Val, stop: Val) -> None:
        """rows[row][k] = a[m + row, start + k]"""
        k, depth = self.k, stop - start
        with k.loop(depth, 0, LANES) as step:
            lane = step + k.lane()
            with self.frame.within(lane, depth, self.size.k):
                for row in range(rows):
                    k.store(self.staged_rows, lane + row * PITCH, self.left(m + row, start + lane))

    @property
    def staged_rows(self) -> Buffer:
        if self.staged is None:
            raise TypeError("the left side is not staged")
        return self.staged

    # -- the tile -------------------------------------------------------------------------------------------------

    def run_tile(self, m: Val, rows: int, column: Val, start: Val, stop: Val) -> None:
        k, vectors = self.k, self.tile.vectors
        accs = [[k.local(0, self.dtype) for _ in range(vectors)] for _ in range(rows)]
        tile = [(acc, m + row, column + v * LANES) for row, line in enumerate(accs) for v, acc in enumerate(line)]
        self.fetch_ahead(tile)
        self.resume(tile)
        depth = stop - start
        whole = (depth // UNROLL) * UNROLL
        with k.loop(whole, 0, UNROLL) as step:
            for u in range(UNROLL):
                self.step(accs, m, column, start, step + u)
        if not isinstance(self.size.k, int) or self.size.k % UNROLL:
            with k.loop(depth, whole) as step:
                self.step(accs, m, column, start, step)
        self.finish_tile(tile)

    def fetch_ahead(self, tile: list[tuple[LocalVar, Val, Val]]) -> None:
        """What the epilogue reads beside the product comes while the product is computed: it is short pieces of rows
        far apart, which no processor foresees."""
        for node in self.beside:
            strides = row_strides(node.type.shape)
            for _, m, column in tile:
                at = offset(self.sizes, (*self.batch, m, self.n0 + column), node.type.shape, strides)
                self.k.prefetch(self.frame.reading.buffers[node], at)

    def resume(self, tile: list[tuple[LocalVar, Val, Val]]) -> None:
        """The second block of a chunk goes on where the first stopped."""
        if self.block is not None:
            with self.k.when((self.block % 2).eq(1)):
                for acc, m, column in tile:
                    acc.set(self.k.load(self.chains, self.sum_at(m, column)))

    def finish_tile(self, tile: list[tuple[LocalVar, Val, Val]]) -> None:
        """After the last block run the epilogue and store; else keep the chain, or add it to the sum of chunks.

        Sums live twice, read from one copy and written to the other, so a row done twice adds its chunk once.
        """
        if self.block is None:
            self.store_tile(tile)
            return
        k, block = self.k, self.block
        odd = (block // 2) % 2
        closes = (block % 2).eq(1) | (block + 1).eq(self.blocks)
        with k.when(closes & (block > 1)):
            for acc, m, column in tile:
                acc.set(k.load(self.sums, self.sum_at(m, column) + odd * self.area) + acc.get())
        with k.when((block + 1).eq(self.blocks)):
            self.store_tile(tile)
        with k.otherwise(), k.when(closes):
            for acc, m, column in tile:
                k.store(self.sums, self.sum_at(m, column) + (1 - odd) * self.area, acc)
        with k.when((block % 2).eq(0)):
            for acc, m, column in tile:
                k.store(self.chains, self.sum_at(m, column), acc)

    def sum_at(self, m: Val, column: Val) -> Val:
        return (m - self.m0) * self.columns + column + self.k.lane()

    def store_tile(self, tile: list[tuple[LocalVar, Val, Val]]) -> None:
        """Straight from registers, or, when an epilogue follows, row by row: its code is written once."""
        k = self.k
        if len(self.group.members) == 1:
            for acc, m, column in tile:
                self.store_vector(acc.get(), m, column)
            return
        for i, (acc, _, _) in enumerate(tile):
            k.store(self.tile_area, k.lane() + i * LANES, acc)
        (_, top, left), vectors = tile[0], self.tile.vectors
        with k.loop(len(tile), always=True) as part:
            row, v = (part, k.index(0)) if vectors == 1 else (part // vectors, part % vectors)
            self.store_vector(k.load(self.tile_area, k.lane() + part * LANES), top + row, left + v * LANES)

    def store_vector(self, total: Val, m: Val, column: Val) -> None:
        lane = self.n0 + column + self.k.lane()
        with self.frame.within(lane, self.sizes.val(self.size.n), self.size.n, self.width):
            store_result(self.frame, self.node, self.outputs, (*self.batch, m, lane), total)

    def step(self, accs: list[list[LocalVar]], m: Val, column: Val, start: Val, step: Val) -> None:
        right = [self.right(column, v, start, step) for v in range(self.tile.vectors)]
        for row, chain in enumerate(accs):
            staged = self.staged is not None
            left = self.k.load(self.staged_rows, step + row * PITCH) if staged else self.left(m + row, start + step)
            for v, acc in enumerate(chain):
                acc.set(multiply_add(self.k, left, right[v], acc.get()))

    def left(self, m: Val, depth: Val) -> Val:
        at = operand_at(self.k, self.a, self.batch, m, depth)
        return self.k.cast(self.frame.reading.wide(self.a, at), self.dtype)

    def right(self, column: Val, v: int, start: Val, step: Val) -> Val:
        lane = self.k.lane() + v * LANES
        if self.packed is None:
            depth = self.k.index(self.panel_depth)
            return self.k.load(self.panels, column * depth + step * self.width + lane)
        depth = self.sizes.val(self.size.k)
        return self.k.load(self.panels, (self.n0 + column) * depth + (start + step) * self.width + lane)

    # -- packing --------------------------------------------------------------------------------------------------

    @property
    def panel_depth(self) -> int:
        return min(self.size.k, BLOCK) if isinstance(self.size.k, int) else BLOCK

    def scratch_panels(self) -> Buffer:
        return self.frame.scratch("panels", self.dtype, self.columns * self.panel_depth)

    def panel_at(self, column: Val, step: Val) -> Val:
        """Where 16 columns of the block stand in the panels at one step of k."""
        panel, rest = column // self.width, column % self.width
        return (panel * self.panel_depth + step) * self.width + rest + self.k.lane()

    def pack(self, start: Val, stop: Val) -> None:
        """panels[panel][k][column] = b[start + k, n0 + panel, column], zero past the last column."""
        if self.is_turned(self.b):
            self.pack_turned(start, stop)
            return
        k, n = self.k, self.size.n
        if isinstance(n, int) and n % self.columns == 0:
            self.pack_whole(start, stop)
            return
        with k.when(self.n0 + self.columns <= self.sizes.val(n)):
            self.pack_whole(start, stop)
        with k.otherwise(), k.loop(stop - start) as step:
            self.pack_row(start, step)

    def pack_whole(self, start: Val, stop: Val) -> None:
        """Every column of the block is there."""
        k = self.k
        with k.loop(stop - start) as step:
            for v in range(self.columns // LANES):
                column = self.n0 + v * LANES + k.lane()
                k.store(self.panels, self.panel_at(k.index(v * LANES), step), self.element(start + step, column))

    def pack_row(self, start: Val, step: Val) -> None:
        """One step of k of a block that may end early."""
        k = self.k
        with k.loop(self.columns, 0, LANES, always=True) as column:
            lane = self.n0 + column + k.lane()
            value = k.local(0, self.dtype)
            with k.when(lane < self.sizes.val(self.size.n), guard=True):
                value.set(self.element(start + step, lane))
            k.store(self.panels, self.panel_at(column, step), value)

    def element(self, depth: Val, column: Val) -> Val:
        at = operand_at(self.k, self.b, self.batch, depth, column)
        return self.k.cast(self.frame.reading.wide(self.b, at), self.dtype)

    def pack_turned(self, start: Val, stop: Val) -> None:
        """A right side stored with k last: 16 columns x 16 steps of k at a time, turned in registers."""
        k, n = self.k, self.sizes.val(self.size.n)
        depth = stop - start
        whole = (depth // LANES) * LANES
        first = k.select(self.n0 + self.columns <= n, whole, k.index(0))  # a block that ends early is packed by rows
        with k.loop(self.columns, 0, LANES, always=True) as column, k.loop(first, 0, LANES) as step:
            tile = [self.element(start + step + k.lane(), self.n0 + column + i) for i in range(LANES)]
            for i, vector in enumerate(turned(k, tile)):
                k.store(self.panels, self.panel_at(column, step + i), vector)
        with k.loop(depth, first) as step:
            self.pack_row(start, step)


def choose_tile(memory: Memory, dtype: DType, m: Size) -> Tile:
    tile = memory.target.f64_tile if dtype.bits == 64 else memory.target.f32_tile
    return Tile(min(tile.rows, max(m, 1)), tile.vectors) if isinstance(m, int) else tile


def is_only_right_side(group: Group, node: Node, b: Node) -> bool:
    """Is a constant read only as the (packed) right side of the product?"""
    return node is b and not any(node in m.inputs for m in group.members[1:]) and group.root.inputs[0] is not node


def pack_constant(b: Node, dtype: DType, width: int) -> Slot | None:
    """A constant right side packed once, as [panel][k][width]; only matrices without batch axes."""
    if b.op.name != "constant" or any(n != 1 for n in b.type.shape[:-2]):
        return None
    matrix = b.param("value").array.reshape(b.type.shape[-2:]).astype(dtype.np)
    depth, columns = matrix.shape
    panels = -(-columns // width)
    padded = np.zeros((depth, panels * width), dtype.np)
    padded[:, :columns] = matrix
    packed = np.ascontiguousarray(padded.reshape(depth, panels, width).transpose(1, 0, 2))
    return Slot("packed", ArrayType(dtype, tuple(packed.shape)), "constant", literal=Literal(packed))
