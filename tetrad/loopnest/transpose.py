"""Loop nests, transpose: 16 x 16 tiles transposed in registers, so that both operand and result are
accessed in rows.

A tile spans the last axis of the operand and the last axis of the result; scalars walk all other
axes.
"""

from __future__ import annotations

from tetrad.core.machine import LANES
from tetrad.core.sizes import Shape, ceil_div, is_below, is_multiple, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import At
from tetrad.schedule.nodes import Launch

BAND = 4  # tiles per workgroup along the operand's last axis: whole cache lines of the result


def lower_transpose(group: Group, inputs: list[Node], memory: Memory) -> Launch:
    """Workgroup: (index of the other axes, sixteen rows, a band of columns)."""
    node = group.root
    frame = Frame(group.name, memory)
    frame.is_light = True
    frame.reads(inputs)
    out = frame.output(memory.slots[node])
    shape, lane_in, lane_out = node.inputs[0].type.shape, *lane_axes(node)
    others = tuple(n if a not in (lane_in, lane_out) else 1 for a, n in enumerate(shape))
    across, along = ceil_div(shape[lane_out], LANES), ceil_div(shape[lane_in], LANES * BAND)
    grid: Shape = (product(others), across, along)
    position = Space(frame.k, frame.sizes, grid, frame.k.group_id())
    rest = Space(frame.k, frame.sizes, others, position.span(0, 1)).axes()
    Band(
        frame, node, out, rest, position.span(1, 2) * LANES, position.span(2, 3) * (LANES * BAND)
    ).write()
    return frame.finish(product(grid), group)


def lane_axes(node: Node) -> tuple[int, int]:
    """The axes that are last in the operand and last in the result, as numbered in the operand;
    axes of size 1 do not count."""
    shape, perm = node.inputs[0].type.shape, node.param("perm")
    wide = [axis for axis, n in enumerate(shape) if n != 1]
    return wide[-1], [p for p in perm if shape[p] != 1][-1]


class Band:
    """What one workgroup copies: rows from `row0` and columns from `col0`, at index `rest` of the
    other axes."""

    def __init__(
        self, frame: Frame, node: Node, out: Buffer, rest: At, row0: Val, col0: Val
    ) -> None:
        self.frame, self.node, self.out = frame, node, out
        self.rest, self.row0, self.col0 = rest, row0, col0
        self.lane_in, self.lane_out = lane_axes(node)
        self.shape: Shape = node.inputs[0].type.shape
        self.rows, self.cols = (
            frame.sizes.val(self.shape[axis]) for axis in (self.lane_out, self.lane_in)
        )

    def write(self) -> None:
        """By whole tiles if sizes allow only those, by columns if they allow none, else decided at
        run time."""
        k, end = self.frame.k, self.col0 + LANES * BAND
        rows, cols = self.shape[self.lane_out], self.shape[self.lane_in]
        if is_multiple(rows, LANES) and is_multiple(cols, LANES):
            self.by_tiles(k.min(end, self.cols))
        elif is_below(rows, LANES) or is_below(cols, LANES * BAND):
            self.by_columns()
        else:
            with k.when((self.row0 + LANES <= self.rows) & (end <= self.cols)):
                self.by_tiles(end)
            with k.otherwise():
                self.by_columns()

    def by_tiles(self, stop: Val) -> None:
        k = self.frame.k
        # a loop: unrolled, it takes long to compile
        with k.loop(stop, self.col0, LANES, always=True) as column:
            tile = [self.element(self.row0 + i, column + k.lane()) for i in range(LANES)]
            for i, vector in enumerate(turned(k, tile)):
                self.put(self.row0 + k.lane(), column + i, vector)

    def by_columns(self) -> None:
        k = self.frame.k
        with k.loop(k.min(self.col0 + LANES * BAND, self.cols), self.col0) as col:
            row = self.row0 + k.lane()
            with k.when(row < self.rows, guard=True):
                self.put(row, col, self.element(row, col))

    def element(self, row: Val, col: Val) -> Val:
        return self.frame.reading.read(self.node.inputs[0], self.source_at(row, col))

    def put(self, row: Val, col: Val, value: Val) -> None:
        source = self.source_at(row, col)
        self.frame.write(
            self.out, self.node, tuple(source[p] for p in self.node.param("perm")), value
        )

    def source_at(self, row: Val, col: Val) -> At:
        return replaced(self.rest, {self.lane_out: row, self.lane_in: col})


def replaced(at: At, changes: dict[int, Val]) -> At:
    return tuple(changes.get(axis, i) for axis, i in enumerate(at))


def turned(k: KernelBuilder, tile: list[Val]) -> list[Val]:
    """The transpose of 16 vectors of 16 lanes: 4 x 4 blocks within every four lanes, then whole
    blocks.

    Each of the four rounds uses a lane pattern that processors have one instruction for. The
    textbook exchange of blocks of 8, 4, 2 and 1 takes more instructions (a 1024 x 1024 transpose
    takes a tenth longer).
    """
    quads = [turned_fours(k, tile[i : i + 4]) for i in range(0, LANES, 4)]
    columns = [exchanged_fours(k, [quad[c] for quad in quads]) for c in range(4)]
    return [columns[i % 4][i // 4] for i in range(LANES)]


def turned_fours(k: KernelBuilder, rows: list[Val]) -> list[Val]:
    """From four rows: columns c, c + 4, c + 8, c + 12 of all four, adjacent, for c from 0 to 3."""
    first, second, third, fourth = rows
    low, high = k.shuffle(first, second, LOW_ONES), k.shuffle(first, second, HIGH_ONES)
    low_below, high_below = k.shuffle(third, fourth, LOW_ONES), k.shuffle(third, fourth, HIGH_ONES)
    pairs = ((low, low_below), (high, high_below))
    return [
        k.shuffle(above, below, mask) for above, below in pairs for mask in (LOW_TWOS, HIGH_TWOS)
    ]


def exchanged_fours(k: KernelBuilder, quads: list[Val]) -> list[Val]:
    """Columns c, c + 4, c + 8, c + 12 of all rows, from the output of `turned_fours`."""
    a, b, d, e = quads
    parts = [(k.shuffle(a, b, mask), k.shuffle(d, e, mask)) for mask in (EVEN_FOURS, ODD_FOURS)]
    return [
        k.shuffle(first, second, mask)
        for mask in (LOW_HALVES, HIGH_HALVES)
        for first, second in parts
    ]


def _by_fours(pattern: tuple[int, int, int, int]) -> tuple[int, ...]:
    """The same pattern in every four lanes; 16 and above index the second vector."""
    return tuple(p + four for four in range(0, LANES, 4) for p in pattern)


def _blocks(*starts: int) -> tuple[int, ...]:
    """Whole runs of four lanes, starting at these."""
    width = LANES // len(starts)
    return tuple(start + i for start in starts for i in range(width))


LOW_ONES, HIGH_ONES = _by_fours((0, 16, 1, 17)), _by_fours((2, 18, 3, 19))
LOW_TWOS, HIGH_TWOS = _by_fours((0, 1, 16, 17)), _by_fours((2, 3, 18, 19))
EVEN_FOURS, ODD_FOURS = _blocks(0, 16, 8, 24), _blocks(4, 20, 12, 28)
LOW_HALVES, HIGH_HALVES = _blocks(0, 16), _blocks(8, 24)
