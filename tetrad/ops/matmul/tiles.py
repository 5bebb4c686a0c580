"""Products by tiles: a[..., m, k] b[..., k, n] with the elementwise work on the result done before
it is stored.

A workgroup takes a block of rows and a block of columns. It walks k in blocks so short that a panel
of the right side (one block of k, the columns of one tile) stays in a near cache;
`plan.choose_depth` says in which. It packs its columns as panels [panel][k][width] (a constant
right side comes packed), stages a stretch of rows as tiles beside each other (short rows are read
where they lie), and for each panel walks the tiles of the stretch. A tile holds `rows` x `vectors`
accumulators; each step of k broadcasts one element of the left side per row. So the inner loop
reads the panel from that cache, the rows in one long run from the second.

Canonical order (docs/numerics.md): k ascends in chunks of 1024, one fma chain from zero per chunk,
chunk sums added in order. Nothing here changes it: not tiles, blocks, packing or threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from tetrad.core.dtypes import DType
from tetrad.core.machine import LANES
from tetrad.core.sizes import Shape, Size, ceil_div, is_below, is_multiple, product
from tetrad.core.types import ArrayType, row_strides
from tetrad.graph.group import Group
from tetrad.graph.nodes import Literal, Node
from tetrad.kernel.build import LocalVar, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space, offset
from tetrad.loopnest.transpose import exchanged_fours, turned_fours
from tetrad.ops.matmul.epilogue import (
    accumulator,
    multiply_add,
    operand_at,
    output_buffers,
    runs_along_k,
    store_result,
)
from tetrad.ops.matmul.op import CHUNK
from tetrad.ops.matmul.plan import MatmulPlan, MatmulSize, size_of
from tetrad.schedule.nodes import Launch, Slot

# columns packed at a time where the rows are one stretch: what is fetched ahead of them is little
PIECE = 64
LINE_BYTES = 64  # of a cache, which memory brings at once
TOGETHER = 4  # vectors packed in one go


class Matmul:
    """The kernel of one product."""

    def __init__(self, frame: Frame, group: Group, plan: MatmulPlan) -> None:
        self.group, self.node, self.frame, self.plan = group, group.root, frame, plan
        self.k, self.sizes = frame.k, frame.sizes
        self.a, self.b = self.node.inputs
        self.size, self.dtype = self.measure()
        self.tile, self.width = plan.tile, plan.tile.vectors * LANES
        self.rows, self.columns, self.depth = plan.rows, plan.columns, plan.depth
        self.packed = self.packed_slot()
        frame.reads(self.elements())
        self.piece = (
            min(PIECE, plan.columns) if plan.is_low and self.packed is None else plan.columns
        )
        panels = self.panel_pitch * self.piece
        self.panels = (
            self.packed_buffer(self.packed) if self.packed else self.private("panels", panels)
        )
        self.beside = [
            i
            for i in frame.reading.buffers
            if i.type.shape == self.node.type.shape and i not in (self.a, self.b)
        ]
        self.outputs = output_buffers(frame, group)
        self.staged = (
            frame.scratch("rows", self.dtype, plan.stretch * self.row_pitch)
            if plan.is_staged
            else None
        )

    def measure(self) -> tuple[MatmulSize, DType]:
        """The sizes of the product, k in steps, and the type that accumulates."""
        return size_of(self.node), accumulator(self.a.type.dtype)

    def elements(self) -> Iterator[Node]:
        """What is read from memory element by element."""
        for node in self.frame.inputs:
            if not (self.packed and is_only_right_side(self.group, node, self.b)):
                yield node

    def packed_buffer(self, slot: Slot) -> Buffer:
        return self.frame.input(slot)

    def packed_slot(self) -> Slot | None:
        """The right side, where it is packed before the kernel runs."""
        return pack_constant(self.b, self.dtype, self.width)

    def private(self, stem: str, count: int) -> Buffer:
        return self.frame.private(stem, self.dtype, count)

    @property
    def row_pitch(self) -> int:
        """Elements of scratch a staged row has. A vector more than its block of k: rows do not
        share the few places a cache has for addresses a power of two apart, and what `stage_turned`
        writes too much falls between tiles."""
        return self.depth + LANES

    @property
    def panel_pitch(self) -> int:
        """Elements of scratch a packed column has, one more than its block of k for the same
        reason."""
        return self.depth + 1

    def is_turned(self, side: Node) -> bool:
        """Is a side read in place from an array that lies the other way round?"""
        return runs_along_k(side) and side not in self.frame.reading.buffers

    # -- the workgroup -----------------------------------------------------------------------------

    def launch(self) -> Launch:
        size = self.size
        columns, rows = ceil_div(size.n, self.columns), ceil_div(size.m, self.rows)
        grid: Shape = (product(size.batch), columns, rows)
        position = Space(self.k, self.sizes, grid, self.k.group_id())
        self.batch = Space(self.k, self.sizes, size.batch, position.span(0, 1)).axes()
        column, row = position.span(1, 2), position.span(2, 3)
        if columns != 1 and rows != 1:
            column, row = self.by_threads(position.span(1, 3), columns, rows)
        self.n0 = column * self.columns
        self.here = self.k.min(self.sizes.val(size.n) - self.n0, self.columns)
        self.split_rows(row, rows)
        self.walk_blocks()
        flops = product((*size.batch, size.m, size.n, size.k)) * 2
        return self.frame.finish(product(grid), self.group, flops=flops)

    def by_threads(self, group: Val, columns: Size, rows: Size) -> tuple[Val, Val]:
        """Block of columns and block of rows of a workgroup, rows first. Each thread, which takes
        workgroups that follow each other, has rows of its own, as it has in most other kernels:
        what another one wrote is farther away."""
        k, share = self.k, self.sizes.val(ceil_div(rows, self.frame.memory.machine.parallel_groups))
        before = group // (self.sizes.val(columns) * share) * share
        high = k.min(share, self.sizes.val(rows) - before)
        rest = group - self.sizes.val(columns) * before
        return rest // high, before + rest % high

    def split_rows(self, block: Val, blocks: Size) -> None:
        """Whole tiles, as evenly as possible."""
        k, m, rows = self.k, self.sizes.val(self.size.m), self.tile.rows
        if blocks == 1:
            self.m0, self.m1 = k.index(0), m
            return
        tiles, count = self.sizes.val(ceil_div(self.size.m, rows)), self.sizes.val(blocks)
        self.m0 = (block * tiles) // count * rows
        self.m1 = k.min(((block + 1) * tiles) // count * rows, m)

    def walk_blocks(self) -> None:
        """Between blocks of k a tile's unfinished chain, and the sum of the chunks before it, wait
        in scratch."""
        k, depth = self.k, self.size.k
        self.block: Val | None = None
        if isinstance(depth, int) and depth <= self.depth:
            self.run_block(k.index(0), self.sizes.val(depth))
            return
        self.chains = self.private("chains", self.rows * self.columns)
        is_long = not (isinstance(depth, int) and depth <= CHUNK)
        self.sums = self.private("sums", self.rows * self.columns) if is_long else None
        # a Dim may be 0, a result is written
        self.blocks = k.max(self.sizes.val(ceil_div(depth, self.depth)), 1)
        with k.loop(self.blocks) as self.block:
            start = self.block * self.depth
            self.run_block(start, k.min(start + self.depth, self.sizes.val(depth)))

    def run_block(self, start: Val, stop: Val) -> None:
        """Pack the columns, then stretches of rows, each against every panel. Rows of one stretch
        are staged once."""
        k = self.k
        if self.plan.is_low and self.staged is not None:
            self.stage(self.m0, self.m1, start, stop)
        with self.each_piece() as end_of_piece:
            if self.packed is None:
                self.pack(end_of_piece - self.piece_from, start, stop)
            with k.loop(self.m1, self.m0, self.plan.stretch) as top:
                end = k.min(top + self.plan.stretch, self.m1)
                if self.staged is not None and not self.plan.is_low:
                    self.stage(top, end, start, stop)
                with (
                    k.loop(end_of_piece, self.piece_from, self.width) as column,
                    k.loop(end, top, self.tile.rows) as m,
                ):
                    self.run_tile(top, m, column, start, stop)

    @contextmanager
    def each_piece(self) -> Iterator[Val]:
        """Columns that are packed together: `piece_from` on, up to what is yielded; mostly all the
        workgroup has."""
        self.piece_from = self.k.index(0)
        if self.piece == self.columns:
            yield self.here
            return
        with self.k.loop(self.here, 0, self.piece) as self.piece_from:
            yield self.k.min(self.piece_from + self.piece, self.here)

    # -- fetching ahead ----------------------------------------------------------------------------

    @property
    def fetches_columns(self) -> bool:
        """Few rows use what is packed: memory would be most of the time, and is idle while tiles
        are computed."""
        is_several = self.piece < self.columns or self.block is not None
        is_packed_here = self.plan.is_low and self.packed is None
        return is_packed_here and is_several and self.held(self.b) is not None

    def held(self, side: Node) -> Node | None:
        """The array in memory that a side is, as it is or turned."""
        node = side.inputs[0] if self.is_turned(side) else side
        return node if node in self.frame.reading.buffers else None

    def fetch_columns(self, m: Val, column: Val, start: Val, step: Val) -> None:
        """Of the next piece or block of k, in the order in which they lie in memory, some lines for
        each tile, one every few steps: all at once would be more than a processor can wait for."""
        if not self.fetches_columns or self.size.k == 0:
            return
        line, is_turned = elements_of_line(self.b), self.is_turned(self.b)
        depth = min(self.depth, self.size.k) if isinstance(self.size.k, int) else self.depth
        rows = min(self.rows, self.size.m) if isinstance(self.size.m, int) else self.rows
        tiles, turns = -(-rows // self.tile.rows), max(depth // self.plan.unroll, 1)
        lines = -(-depth * self.width // line // tiles)
        times = min(lines, turns)
        each, every = -(-lines // times), self.plan.unroll << (turns // times).bit_length() - 1
        with self.k.when((step % every).eq(0) & (step < times * every)):
            panel, tile = (column - self.piece_from) // self.width, (m - self.m0) // self.tile.rows
            first = (panel * tiles + tile) * lines + step // every * each
            with self.k.loop(each, always=True) as i:
                self.fetch_column(first + i, start, max(depth if is_turned else self.piece, line))

    def fetch_column(self, number: Val, start: Val, run: int) -> None:
        """Line `number` of what is packed next; so many elements lie beside each other."""
        lines = run // elements_of_line(self.b)
        is_last = self.piece_from + self.piece >= self.here
        ahead = self.k.select(is_last, self.k.index(0), self.piece_from + self.piece)
        base = self.k.select(is_last, start + self.depth, start)
        outer, inner = number // lines, number % lines * elements_of_line(self.b)
        step, column = (inner, outer) if self.is_turned(self.b) else (outer, inner)
        self.fetch(self.b, base + step, self.n0 + ahead + column)

    def fetch_beside(self, m: Val, column: Val, step: Val) -> None:
        """What the epilogue reads beside the product: short pieces of rows far apart, which no
        processor foresees. Some lines every few steps of the last block of k: all at once would be
        more than a processor can wait for."""
        if not self.beside:
            return
        lines = self.tile.rows * self.tile.vectors
        steps = min(self.depth, self.size.k) if isinstance(self.size.k, int) else self.depth
        turns = steps // self.plan.unroll
        every = self.plan.unroll * max(1, 1 << (turns // lines).bit_length() >> 1)
        is_turn = (step % every).eq(0)
        with self.k.when(
            is_turn if self.block is None else is_turn & (self.block + 1).eq(self.blocks)
        ):
            self.fetch_lines(m, column, step // every, -(-lines // max(turns, 1)))

    def fetch_lines(self, m: Val, column: Val, turn: Val, count: int) -> None:
        """`count` of the lines that a tile has in each array beside it."""
        vectors, last = self.tile.vectors, self.tile.rows * self.tile.vectors - 1
        for line in (self.k.min(turn * count + i, last) for i in range(count)):
            for node in self.beside:
                self.fetch(node, m + line // vectors, self.n0 + column + line % vectors * LANES)

    def fetch(self, node: Node, row: Val, column: Val) -> None:
        """The line in which an element of an operand lies."""
        at = operand_at(self.k, node, self.batch, row, column)
        if self.is_turned(node):
            perm, node = node.param("perm"), node.inputs[0]
            at = tuple(at[perm.index(axis)] for axis in range(len(perm)))
        where = offset(self.sizes, at, node.type.shape, row_strides(node.type.shape))
        self.k.prefetch(self.frame.reading.buffers[node], where)

    # -- rows --------------------------------------------------------------------------------------

    def stage(self, top: Val, end: Val, start: Val, stop: Val) -> None:
        """Every lane reads what all lanes stage: after the last use of rows staged before, and
        until all are there."""
        self.k.barrier()
        with self.k.loop(end, top, self.tile.rows) as m:
            if self.is_turned(self.a):
                self.stage_turned(m, self.staged_at(top, m), start, stop)
            else:
                self.stage_rows(m, self.staged_at(top, m), start, stop)
        self.k.barrier()

    def staged_at(self, top: Val, m: Val) -> Val:
        return (m - top) * self.row_pitch

    def stage_rows(self, m: Val, at: Val, start: Val, stop: Val) -> None:
        """staged[row][k] = a[m + row, start + k]; rows past the last repeat it and are not stored
        in the end."""
        k, depth = self.k, stop - start
        with k.loop(self.tile.rows, always=True) as row:
            here, there = k.min(m + row, self.m1 - 1), at + row * self.row_pitch
            with k.loop(depth, 0, LANES) as step:
                lane = step + k.lane()
                with self.frame.within(lane, depth, self.size.k):
                    k.store(self.staged_rows, there + lane, self.left_at(here, start + lane))

    def stage_turned(self, m: Val, at: Val, start: Val, stop: Val) -> None:
        """staged[k][row] = a[m + row, start + k] of a left side that lies [k][m]: 16 rows are
        stored where the tile has fewer; the next step of k overwrites what is too much."""
        k, lane = self.k, self.k.lane()
        with k.loop(stop - start) as step:
            value = k.local(0, self.dtype)
            with k.when(m + lane < self.sizes.val(self.size.m), guard=True):
                value.set(self.left_at(m + lane, start + step))
            k.store(self.staged_rows, at + step * self.tile.rows + lane, value)
            k.barrier()

    @property
    def staged_rows(self) -> Buffer:
        if self.staged is None:
            raise TypeError("the left side is not staged")
        return self.staged

    def left(self, m: Val, row: int, depth: Val) -> Val:
        return self.left_at(self.k.min(m + row, self.m1 - 1) if row else m, depth)

    def left_at(self, m: Val, depth: Val) -> Val:
        at = operand_at(self.k, self.a, self.batch, m, depth)
        return self.k.cast(self.frame.reading.wide(self.a, at), self.dtype)

    # -- the tile ----------------------------------------------------------------------------------

    def run_tile(self, top: Val, m: Val, column: Val, start: Val, stop: Val) -> None:
        k, rows, vectors = self.k, self.tile.rows, self.tile.vectors
        accs = [[k.local(0, self.dtype) for _ in range(vectors)] for _ in range(rows)]
        flat = [acc for line in accs for acc in line]
        self.resume(flat, m, column)
        depth = stop - start
        whole = depth // self.plan.unroll * self.plan.unroll
        with k.loop(whole, 0, self.plan.unroll) as step:
            self.fetch_columns(m, column, start, step)
            self.fetch_beside(m, column, step)
            for u in range(self.plan.unroll):
                self.step(accs, top, m, column, start, step + u)
        if not is_multiple(self.size.k, self.plan.unroll):
            with k.loop(depth, whole) as step:
                self.step(accs, top, m, column, start, step)
        self.finish_tile(flat, m, column)

    def step(
        self, accs: list[list[LocalVar]], top: Val, m: Val, column: Val, start: Val, step: Val
    ) -> None:
        right = [self.right(column, v, start, step) for v in range(self.tile.vectors)]
        for row, chain in enumerate(accs):
            left = self.left_of_step(top, m, row, start, step)
            for v, acc in enumerate(chain):
                acc.set(self.multiply_add(left, right[v], acc.get()))

    def multiply_add(self, left: Val, right: Val, acc: Val) -> Val:
        return multiply_add(self.k, left, right, acc)

    def left_of_step(self, top: Val, m: Val, row: int, start: Val, step: Val) -> Val:
        if self.staged is None:
            return self.left(m, row, start + step)
        at = self.staged_at(top, m)
        if self.is_turned(self.a):
            return self.k.load(self.staged, at + step * self.tile.rows + row)
        return self.k.load(self.staged, at + step + row * self.row_pitch)

    def right(self, column: Val, v: int, start: Val, step: Val) -> Val:
        lane = self.k.lane() + v * LANES
        if self.packed is None:
            at = (column - self.piece_from) * self.panel_pitch
            return self.k.load(self.panels, at + step * self.width + lane)
        depth = self.sizes.val(self.size.k)
        return self.k.load(
            self.panels, (self.n0 + column) * depth + (start + step) * self.width + lane
        )

    def waiting_at(self, m: Val, column: Val, i: int) -> Val:
        """Where the i-th accumulator of a tile waits between blocks: [panel][row][column]."""
        return column * self.rows + (m - self.m0) * self.width + i * LANES + self.k.lane()

    def resume(self, accs: list[LocalVar], m: Val, column: Val) -> None:
        """A block that does not begin a chunk goes on where the one before stopped."""
        if self.block is not None:
            with self.k.when((self.block % (CHUNK // self.depth)).ne(0)):
                for i, acc in enumerate(accs):
                    acc.set(self.k.load(self.chains, self.waiting_at(m, column, i)))

    def finish_tile(self, accs: list[LocalVar], m: Val, column: Val) -> None:
        """After the last block run the epilogue and store; else keep the chain, or add it to the
        sum of chunks."""
        if self.block is None:
            self.store_tile(accs, m, column)
            return
        k, chunk = self.k, CHUNK // self.depth
        is_last = (self.block + 1).eq(self.blocks)
        closes = (self.block % chunk).eq(chunk - 1)
        if self.sums is not None:
            with k.when((closes | is_last) & (self.block >= chunk)):
                for i, acc in enumerate(accs):
                    acc.set(k.load(self.sums, self.waiting_at(m, column, i)) + acc.get())
        if self.sums is None:
            self.keep(self.chains, accs, m, column)
            with k.when(is_last):
                self.store_rows(self.chains, self.waiting_at(m, column, 0), m, column)
            return
        with k.when(is_last):
            self.store_tile(accs, m, column)
        with k.otherwise():
            with k.when(closes):
                self.keep(self.sums, accs, m, column)
            with k.otherwise():
                self.keep(self.chains, accs, m, column)

    def keep(self, buffer: Buffer, accs: list[LocalVar], m: Val, column: Val) -> None:
        for i, acc in enumerate(accs):
            self.k.store(buffer, self.waiting_at(m, column, i), acc)

    def store_tile(self, accs: list[LocalVar], m: Val, column: Val) -> None:
        """Straight from registers, or, when an epilogue follows or rows may be missing, row by row:
        its code is written once."""
        k, vectors = self.k, self.tile.vectors
        if len(self.group.members) == 1 and is_multiple(self.size.m, self.tile.rows):
            for i, acc in enumerate(accs):
                self.store_at(acc.get(), m + i // vectors, column + i % vectors * LANES)
            return
        area = self.private("tile", self.tile.rows * self.width)
        for i, acc in enumerate(accs):
            k.store(area, k.lane() + i * LANES, acc)
        self.store_rows(area, k.lane(), m, column)

    def store_rows(self, area: Buffer, at: Val, m: Val, column: Val) -> None:
        """From where the accumulators of a tile lie one after the other, from `at` on."""
        k, vectors = self.k, self.tile.vectors
        with k.loop(k.min(self.m1 - m, self.tile.rows) * vectors, always=True) as part:
            row, v = (part, k.index(0)) if vectors == 1 else (part // vectors, part % vectors)
            self.store_at(k.load(area, at + part * LANES), m + row, column + v * LANES)

    def store_at(self, total: Val, m: Val, column: Val) -> None:
        lane = self.n0 + column + self.k.lane()
        with self.frame.within(lane, self.sizes.val(self.size.n), self.size.n, self.width):
            store_result(self.frame, self.node, self.outputs, (*self.batch, m, lane), total)

    # -- packing -----------------------------------------------------------------------------------

    def panel_at(self, column: Val, step: Val) -> Val:
        """Where 16 columns of the piece stand in the panels at one step of k."""
        panel, rest = column // self.width, column % self.width
        return (panel * self.panel_pitch + step) * self.width + rest + self.k.lane()

    def pack(self, count: Val, start: Val, stop: Val) -> None:
        """panels[panel][k][column] = b[start + k, edge + panel, column], zero past the last
        column."""
        k, n, together = self.k, self.size.n, TOGETHER * LANES
        self.edge = self.n0 + self.piece_from  # the first column of the piece
        padded = (count + (self.width - 1)) // self.width * self.width
        if self.is_turned(self.b):
            self.pack_turned(count, padded, start, stop)
            return
        whole = count // together * together
        with k.loop(stop - start) as step:
            if not is_below(n, together):
                with k.loop(whole, 0, together) as column:
                    self.pack_together(column, start, step)
            if not is_multiple(n, together):
                with k.loop(padded, whole, LANES) as column:
                    self.pack_edge(column, start, step)

    def pack_together(self, column: Val, start: Val, step: Val) -> None:
        """Neighbouring vectors of columns, all of which are there."""
        lane, at = self.edge + column + self.k.lane(), self.panel_at(column, step)
        for v in range(TOGETHER):
            panel, rest = divmod(v * LANES, self.width)
            to = at + (panel * self.panel_pitch * self.width + rest)
            self.k.store(self.panels, to, self.element(start + step, lane + v * LANES))

    def pack_edge(self, column: Val, start: Val, step: Val) -> None:
        """16 columns that may not all be there."""
        k = self.k
        lane = self.edge + column + k.lane()
        if is_multiple(self.size.n, self.width):
            k.store(self.panels, self.panel_at(column, step), self.element(start + step, lane))
            return
        value = k.local(0, self.dtype)
        with k.when(lane < self.sizes.val(self.size.n), guard=True):
            value.set(self.element(start + step, lane))
        k.store(self.panels, self.panel_at(column, step), value)

    def element(self, depth: Val, column: Val) -> Val:
        at = operand_at(self.k, self.b, self.batch, depth, column)
        return self.k.cast(self.frame.reading.wide(self.b, at), self.dtype)

    def pack_turned(self, count: Val, padded: Val, start: Val, stop: Val) -> None:
        """A right side stored with k last: 16 columns x 16 steps of k at a time, then what is left
        over."""
        k, depth = self.k, stop - start
        whole, full = depth // LANES * LANES, count // LANES * LANES
        if not is_below(self.size.k, LANES):
            self.half_turned = self.private("turned", LANES * LANES)
            with k.loop(full, 0, LANES) as column, k.loop(whole, 0, LANES) as step:
                self.pack_tile(column, start, step)
        if is_multiple(self.size.n, self.width) and is_multiple(self.size.k, LANES):
            return
        with k.loop(padded, 0, LANES) as column:
            first = k.select(column < full, whole, k.index(0))
            with k.loop(depth, first) as step:
                self.pack_edge(column, start, step)

    def pack_tile(self, column: Val, start: Val, step: Val) -> None:
        """Read along k, turned in two loops of four rounds: in one piece it would be half of the
        kernel's code."""
        k, half = self.k, self.half_turned
        with k.loop(4, always=True) as four:
            rows = [
                self.element(start + step + k.lane(), self.edge + column + four * 4 + row)
                for row in range(4)
            ]
            for i, vector in enumerate(turned_fours(k, rows)):
                k.store(half, (i * 4 + four) * LANES + k.lane(), vector)
        with k.loop(4, always=True) as first:
            quads = [k.load(half, (first * 4 + i) * LANES + k.lane()) for i in range(4)]
            for i, vector in enumerate(exchanged_fours(k, quads)):
                k.store(self.panels, self.panel_at(column, step + first + i * 4), vector)


def elements_of_line(node: Node) -> int:
    return LINE_BYTES // node.type.dtype.nbytes


def is_only_right_side(group: Group, node: Node, b: Node) -> bool:
    """Is a constant read only as the (packed) right side of the product?"""
    return (
        node is b
        and not any(node in m.inputs for m in group.members[1:])
        and group.root.inputs[0] is not node
    )


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
    return Slot(
        "packed", ArrayType(dtype, tuple(packed.shape)), "constant", literal=Literal(packed)
    )
