"""Lowering, small systems of equations: one system in each lane, so 16 of them advance together.

Receives the ops of `ops.systems` on matrices of at most `SMALL` rows; larger ones go to `lower.lapack`. Rows and
columns are unrolled when the kernel is built. What a pivot decides differs between lanes, so exchanges are selections.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.dtypes import i32
from tetrad.core.errors import TetradError
from tetrad.core.sizes import Size, ceil_div, product
from tetrad.core.types import row_strides
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.kernel.math import log
from tetrad.kernel.nodes import Buffer
from tetrad.lower.frame import LANES, Frame
from tetrad.lower.index import Space, offset
from tetrad.lower.launch import Launch, TrapSite
from tetrad.lower.reader import FIRST_TRAP, At
from tetrad.ops.systems import definite_error, singular_error
from tetrad.passes.fuse import Group

Vector = list[Val]
Matrix = Callable[[int, int], Val]


class Lanes:
    """A lane for each of the leading axes' elements (and, of right sides, for each column)."""

    def __init__(self, frame: Frame, lead: tuple[Size, ...], columns: Size = 1) -> None:
        self.frame, self.lead, self.columns = frame, lead, columns
        self.count = product(lead) * columns
        self.is_scalar = self.count == 1
        self.lane = frame.k.index(0) if self.is_scalar else frame.k.lane()
        self.position = self.lane if self.is_scalar else frame.k.group_id() * LANES + self.lane
        self.space = Space(frame.k, frame.sizes, (*lead, columns), self.position)

    def run(self, body: Callable[[], None]) -> None:
        if self.is_scalar:
            body()
            return
        with self.frame.within(self.position, self.frame.sizes.val(self.count), self.count):
            body()

    @property
    def groups(self) -> Size:
        return ceil_div(self.count, LANES)

    @property
    def system(self) -> At:
        return self.space.axes()[:-1]

    @property
    def number(self) -> Val:
        """Of the system, counted over all leading axes."""
        return self.space.span(0, len(self.lead))

    @property
    def column(self) -> Val:
        return self.space.axes()[-1]

    def read(self, node: Node, *at: int | Val) -> Val:
        k = self.frame.k
        return self.frame.reading.read(node, (*self.system, *(k.index(i) if isinstance(i, int) else i for i in at)))

    def write(self, buffer: Buffer, node: Node, kind: int, value: Val, *at: int | Val) -> None:
        """One element of result `kind` of a node."""
        k, shape = self.frame.k, node.types[kind].shape
        full = (*self.system, *(k.index(i) if isinstance(i, int) else i for i in at))
        k.store(buffer, offset(self.frame.sizes, full, shape, row_strides(shape)), value)


def trap_first(
    frame: Frame,
    node: Node,
    bad: list[Val],
    number: Val,
    error: Callable[[str, int, tuple[int, ...], int], TetradError],
) -> None:
    """Stop the program where something is wrong with a row; the error names the system and the first such row."""
    k, rows = frame.k, len(bad)
    first = k.index(rows)
    for i in reversed(range(rows)):
        first = k.select(bad[i], k.index(i), first)
    trap_at(frame, node, first < rows, number * rows + first, error)


def trap_at(
    frame: Frame, node: Node, bad: Val, value: Val, error: Callable[[str, int, tuple[int, ...], int], TetradError]
) -> None:
    shape = node.inputs[0].type.shape
    batch = tuple(n if isinstance(n, int) else n.max for n in shape[:-2])
    rows = shape[-1] if isinstance(shape[-1], int) else shape[-1].max
    code, name = FIRST_TRAP + len(frame.reading.traps), node.op.name
    frame.reading.traps[code] = TrapSite(name, "", node.source, lambda value: error(name, value, batch, rows))
    frame.k.trap(bad, code, value)


# -- factors ----------------------------------------------------------------------------------------------------------


def lower_small_lu(frame: Frame, group: Group) -> Launch:
    """Step by step in scratch, the row that eliminates held in registers."""
    node, k = group.root, frame.k
    a, dtype = node.inputs[0], node.inputs[0].type.dtype
    rows: int = a.type.shape[-1]  # type: ignore[assignment]
    lanes = Lanes(frame, a.type.shape[:-2])
    factors, pivots = (frame.output(slot) for slot in frame.memory.results(node))
    work = frame.scratch("work", dtype, rows * rows * LANES)

    def body() -> None:
        with k.loop(rows) as i, k.loop(rows) as j:
            k.store(work, place(lanes, i * rows + j), lanes.read(a, i, j))
        for step in range(rows):
            pivot = eliminate(lanes, work, rows, step)
            lanes.write(pivots, node, 1, pivot, step)
        with k.loop(rows) as i, k.loop(rows) as j:
            lanes.write(factors, node, 0, k.load(work, place(lanes, i * rows + j)), i, j)

    lanes.run(body)
    return frame.finish(lanes.groups, group, flops=lanes.count * rows**3)


def place(lanes: Lanes, element: Val) -> Val:
    return element * LANES + lanes.lane


def eliminate(lanes: Lanes, work: Buffer, rows: int, step: int) -> Val:
    """One step on the matrix in `work`: find the largest entry of row `step`, exchange its column with column `step`,
    divide the rest of the row by it, and take multiples of the column from the columns after. The column it was in."""
    k = lanes.frame.k

    def entry(i: int, j: Val) -> Val:
        return place(lanes, k.index(i * rows) + j)

    here = k.index(step)
    best, pivot = k.local(k.abs(k.load(work, entry(step, here)))), k.local(step, i32)
    with k.loop(rows, step + 1) as j:
        size = k.abs(k.load(work, entry(step, j)))
        wins = size > best.get()
        best.set(k.select(wins, size, best))
        pivot.set(k.select(wins, k.cast(j, i32), pivot))
    chosen = pivot.get()
    old = [k.load(work, entry(i, here)) for i in range(rows)]
    new = [k.local(value) for value in old]
    with k.loop(rows, step + 1) as j:
        is_it = chosen.eq(k.cast(j, i32))
        for i in range(rows):
            new[i].set(k.select(is_it, k.load(work, entry(i, j)), new[i]))
    column = [value.get() for value in new]
    divisor = k.select(column[step].eq(0), 1, column[step])
    with k.loop(rows, step + 1) as j:
        is_it = chosen.eq(k.cast(j, i32))
        values = [k.select(is_it, old[i], k.load(work, entry(i, j))) for i in range(rows)]
        values[step] = values[step] / divisor
        for i in range(step + 1, rows):
            values[i] = k.fma(-values[step], column[i], values[i])
        for i, value in enumerate(values):
            k.store(work, entry(i, j), value)
    for i, value in enumerate(column):
        k.store(work, entry(i, here), value)
    return chosen


def lower_small_cholesky(frame: Frame, group: Group) -> Launch:
    """Column by column, everything in registers."""
    node, k = group.root, frame.k
    a = node.inputs[0]
    rows: int = a.type.shape[-1]  # type: ignore[assignment]
    lanes = Lanes(frame, a.type.shape[:-2])
    out = frame.output(frame.memory.slots[node])

    def body() -> None:
        lower: dict[tuple[int, int], Val] = {}
        bad = []
        for j in range(rows):
            for i in range(j, rows):
                value = lanes.read(a, i, j)
                for c in range(j):
                    value = k.fma(-lower[i, c], lower[j, c], value)
                if i == j:
                    bad.append(~(value > 0))
                lower[i, j] = k.sqrt(value) if i == j else value / lower[j, j]
        trap_first(frame, node, bad, lanes.number, definite_error)
        zero = k.const(0, a.type.dtype)
        for i in range(rows):
            for j in range(rows):
                lanes.write(out, node, 0, lower.get((i, j), zero), i, j)

    lanes.run(body)
    return frame.finish(lanes.groups, group, flops=lanes.count * rows**3)


def lower_det(frame: Frame, group: Group) -> Launch:
    """The product of the diagonal, and for every exchange another sign."""
    node, k = group.root, frame.k
    _, factors, pivots = node.inputs
    rows, dtype = factors.type.shape[-1], factors.type.dtype
    lanes = Lanes(frame, factors.type.shape[:-2])
    outs = [frame.output(slot) for slot in frame.memory.results(node)]

    def body() -> None:
        det, sign, size = k.local(1, dtype), k.local(1, dtype), k.local(0, dtype)
        with k.loop(frame.sizes.val(rows)) as i:
            entry = lanes.read(factors, i, i)
            is_moved = lanes.read(pivots, i).ne(k.cast(i, i32))
            turn = k.select(is_moved, k.const(-1, dtype), k.const(1, dtype))
            det.set(det.get() * turn * entry)
            direction = k.select(entry.eq(0), k.const(0, dtype), k.copysign(k.const(1, dtype), entry))
            sign.set(sign.get() * turn * k.select(entry.eq(entry), direction, entry))
            size.set(size.get() + log(k, k.abs(entry)))
        for which, value in enumerate((det, sign, size)):
            lanes.write(outs[which], node, which, value.get())

    lanes.run(body)
    return frame.finish(lanes.groups, group, flops=lanes.count * rows * 30)


# -- solving ----------------------------------------------------------------------------------------------------------


def lower_small_solve(frame: Frame, group: Group) -> Launch:
    node = group.root
    _, factors, pivots, b = node.inputs
    params = dict(node.params)
    rows: int = b.type.shape[-2]  # type: ignore[assignment]
    transposed = params.get("transposed", False)
    lanes = Lanes(frame, b.type.shape[:-2], b.type.shape[-1])
    out = frame.output(frame.memory.slots[node])

    def entry(i: int, j: int) -> Val:
        return lanes.read(factors, i, j)

    def body() -> None:
        x = [lanes.read(b, i, lanes.column) for i in range(rows)]
        order = [lanes.read(pivots, i) for i in range(rows)]
        if transposed:
            exchange(frame, x, order, range(len(x)))
            substitute(frame, entry, x, lower=False, unit=True, transposed=True)
            substitute(frame, entry, x, lower=True, unit=False, transposed=True)
        else:
            substitute(frame, entry, x, lower=True, unit=False, transposed=False)
            substitute(frame, entry, x, lower=False, unit=True, transposed=False)
            exchange(frame, x, order, range(len(x) - 1, -1, -1))
        x = checked(frame, node, [entry(i, i) for i in range(len(x))], x, lanes.number)
        for i, value in enumerate(x):
            lanes.write(out, node, 0, value, i, lanes.column)

    lanes.run(body)
    return frame.finish(lanes.groups, group, flops=lanes.count * 2 * rows * rows)


def lower_small_triangular(frame: Frame, group: Group) -> Launch:
    node = group.root
    a, b = node.inputs
    params = dict(node.params)
    rows: int = b.type.shape[-2]  # type: ignore[assignment]
    unit = params.get("unit", False)
    lanes = Lanes(frame, b.type.shape[:-2], b.type.shape[-1])
    out = frame.output(frame.memory.slots[node])

    def entry(i: int, j: int) -> Val:
        return lanes.read(a, i, j)

    def body() -> None:
        x = [lanes.read(b, i, lanes.column) for i in range(rows)]
        sides = {"lower": params.get("lower", True), "transposed": params.get("transposed", False)}
        substitute(frame, entry, x, unit=unit, **sides)
        if not unit:
            x = checked(frame, node, [entry(i, i) for i in range(len(x))], x, lanes.number)
        for i, value in enumerate(x):
            lanes.write(out, node, 0, value, i, lanes.column)

    lanes.run(body)
    return frame.finish(lanes.groups, group, flops=lanes.count * rows * rows)


def checked(frame: Frame, node: Node, diagonal: Vector, x: Vector, number: Val) -> Vector:
    """Zeros on the diagonal stop the program, or turn the solution to NaN."""
    k, zero = frame.k, [value.eq(0) for value in diagonal]
    if dict(node.params).get("singular", "raise") == "raise":
        trap_first(frame, node, zero, number, singular_error)
        return x
    bad = zero[0]
    for other in zero[1:]:
        bad = bad | other
    return [k.select(bad, k.const(float("nan"), value.dtype), value) for value in x]


def substitute(frame: Frame, entry: Matrix, x: Vector, *, lower: bool, unit: bool, transposed: bool) -> None:
    """x <- T^-1 x, T a triangle of the matrix."""
    k, rows = frame.k, len(x)
    ascending = lower != transposed
    for i in range(rows) if ascending else range(rows - 1, -1, -1):
        for j in range(i) if ascending else range(i + 1, rows):
            x[i] = k.fma(-entry(j, i) if transposed else -entry(i, j), x[j], x[i])
        if not unit:
            x[i] = x[i] / entry(i, i)


def exchange(frame: Frame, x: Vector, pivots: Vector, steps: range) -> None:
    """x[step] and x[pivots[step]], one pair after the other; each lane has its own."""
    k = frame.k
    for step in steps:
        before = x[step]
        for i in range(step + 1, len(x)):
            is_it = pivots[step].eq(i)
            x[step], x[i] = k.select(is_it, x[i], x[step]), k.select(is_it, before, x[i])
