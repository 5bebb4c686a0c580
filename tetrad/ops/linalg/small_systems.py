"""Kernels, small systems of equations: one system in each lane, so 16 of them advance together.

Receives the ops of `ops.linalg.systems` on matrices of at most `SMALL` rows; larger ones go to
`ops.linalg.lapack_systems`. Matrices are turned on their way into scratch, so that neighbouring
lanes are neighbours in memory. What a pivot decides differs between lanes, so exchanges are
selections. Lanes without a system repeat the last one and write nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tetrad.core.dtypes import DType, i32
from tetrad.core.errors import TetradError
from tetrad.core.machine import LANES
from tetrad.core.sizes import Size, ceil_div, plain, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.math.complex import hypot
from tetrad.kernel.math.exponential import log
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import FIRST_TRAP, splat_value
from tetrad.loopnest.transpose import turned
from tetrad.ops.linalg.systems import definite_error, singular_error
from tetrad.schedule.nodes import Launch, TrapSite

Vector = list[Val]
Matrix = Callable[[int, int], Val]
Explain = Callable[[str, int, tuple[int, ...], int], TetradError]


class SystemLanes:
    """16 systems of a batch. `system` is the lane's own; a single one is worked on by scalars."""

    def __init__(self, frame: Frame, count: Size) -> None:
        self.frame, self.k, self.count = frame, frame.k, count
        k = frame.k
        self.is_scalar = count == 1
        self.lane = k.index(0) if self.is_scalar else k.lane()
        self.first = k.index(0) if self.is_scalar else k.group_id() * LANES
        self.position, self.end = self.first + self.lane, frame.sizes.val(count)
        self.system = self.lane if self.is_scalar else k.min(self.position, self.end - 1)

    @property
    def groups(self) -> Size:
        return ceil_div(self.count, LANES)

    def place(self, element: object) -> Val:
        """Where scratch holds an element of this lane's system."""
        return self.k.index(element) * LANES + self.lane

    def meet(self) -> None:
        """A single system is changed by all lanes together: all have read before any writes."""
        if self.is_scalar:
            self.k.barrier()

    @contextmanager
    def own(self) -> Iterator[None]:
        """Only lanes that have a system."""
        if self.is_scalar:
            yield
            return
        with self.frame.within(self.position, self.end, self.count):
            yield

    def staged(self, name: str, node: Node, size: int) -> Buffer:
        """The `size` elements that each system has of a node, in scratch, the lanes' side by
        side."""
        k, make = self.k, self.frame.scratch if self.is_scalar else self.frame.private
        made = make(name, node.type.dtype, size * LANES)

        def one_by_one() -> None:
            with k.loop(size) as e:
                k.store(made, self.place(e), self.read(node, size, e))

        def by_tiles() -> None:
            with self.tiles(size) as (start, begin):
                rows = [begin + i * size + self.lane for i in range(LANES)]
                tile = [k.load(self.frame.reading.buffers[node], row) for row in rows]
                for i, vector in enumerate(turned(k, tile)):
                    k.store(made, self.place(start + i), vector)

        self.either(by_tiles, one_by_one, size if splat_value(node) is None else 0)
        return made

    def written(self, out: Buffer, source: Buffer, size: int) -> None:
        """The way back: `size` elements of each system, from scratch."""
        k = self.k

        def one_by_one() -> None:
            with self.own(), k.loop(size) as e:
                k.store(out, self.position * size + e, k.load(source, self.place(e)))

        def by_tiles() -> None:
            with self.tiles(size) as (start, begin):
                tile = [k.load(source, self.place(start + i)) for i in range(LANES)]
                for i, vector in enumerate(turned(k, tile)):
                    k.store(out, begin + i * size + self.lane, vector, "same")

        self.either(by_tiles, one_by_one, size)

    @contextmanager
    def tiles(self, size: int) -> Iterator[tuple[Val, Val]]:
        """The first of 16 elements, and where the first system has it; the last tile may overlap
        the one before."""
        k = self.k
        with k.loop(ceil_div(size, LANES)) as tile:
            start = (
                tile * LANES if size % LANES == 0 else k.min(tile * LANES, k.index(size - LANES))
            )
            yield start, self.first * size + start

    def either(
        self, by_tiles: Callable[[], None], one_by_one: Callable[[], None], size: int
    ) -> None:
        """By tiles where there are 16 systems of 16 elements or more."""
        if size < LANES or (isinstance(self.count, int) and self.count < LANES):
            one_by_one()
            return
        with self.k.when(self.first + LANES <= self.end):
            by_tiles()
        with self.k.otherwise():
            one_by_one()

    def read(self, node: Node, size: Size, element: object) -> Val:
        """One of the `size` elements that this lane's system has of a node."""
        value = splat_value(node)
        if value is not None:
            return self.k.const(value, node.type.dtype)
        at = self.system * self.frame.sizes.val(size) + self.k.index(element)
        return self.k.load(self.frame.reading.buffers[node], at)

    def write(self, out: Buffer, size: Size, element: object, value: Val) -> None:
        """Inside `own`."""
        self.k.store(out, self.position * self.frame.sizes.val(size) + self.k.index(element), value)


# -- errors ----------------------------------------------------------------------------------------


def trap_first(frame: Frame, node: Node, bad: list[Val], system: Val, explain: Explain) -> None:
    """Stop the program where something is wrong with a row; the error names the system and the
    first such row."""
    k, rows = frame.k, len(bad)
    first = k.index(rows)
    for i in reversed(range(rows)):
        first = k.select(bad[i], k.index(i), first)
    trap_at(frame, node, first < rows, system, first, explain)


def any_of(bad: list[Val]) -> Val:
    """Is one of them true?"""
    first, *others = bad
    for other in others:
        first = first | other
    return first


def trap_at(frame: Frame, node: Node, bad: Val, system: Val, row: Val, explain: Explain) -> None:
    """Stop the program at a row of a system. One number is reported: the row counted in arrays as
    large as Dims allow, and, where a Dim is the number of rows, this number."""
    *lead, _, count = node.inputs[0].type.shape
    batch, rows = tuple(limit(n) for n in lead), limit(count)
    value = position_within(frame, system, tuple(lead)) * rows + row
    code, name = FIRST_TRAP + len(frame.reading.traps), node.op.name

    def complain(value: int) -> TetradError:
        position, own = (value, rows) if isinstance(count, int) else divmod(value, rows + 1)
        which, row = divmod(position, max(rows, 1))
        return explain(name, which * own + row, batch, own)

    if not isinstance(count, int):
        value = value * (rows + 1) + frame.sizes.val(count)
    frame.reading.traps[code] = TrapSite(name, "", node.source, explain=complain)
    frame.k.trap(bad, code, value)


def limit(size: Size) -> int:
    return size if isinstance(size, int) else size.max


def position_within(frame: Frame, system: Val, lead: tuple[Size, ...]) -> Val:
    """The number of a system if each leading axis were as long as it can be."""
    if all(isinstance(n, int) for n in lead[1:]):
        return system
    space, value = Space(frame.k, frame.sizes, lead, system), frame.k.index(0)
    for axis, n in enumerate(lead):
        value = value * limit(n) + space.span(axis, axis + 1)
    return value


# -- factors ---------------------------------------------------------------------------------------


def known_rows(node: Node) -> int:
    return plain(node.type.shape[-2])  # small systems have no Dims


def lower_small_lu(frame: Frame, group: Group) -> Launch:
    """Step by step in scratch, the column that eliminates held in registers."""
    node, k = group.root, frame.k
    a, rows = node.inputs[0], known_rows(node.inputs[0])
    lanes = SystemLanes(frame, product(a.type.shape[:-2]))
    factors, pivots = (frame.output(slot) for slot in frame.memory.results(node))
    work = lanes.staged("work", a, rows * rows)
    with k.loop(rows) as step:
        pivot = eliminate(lanes, work, rows, step)
        with lanes.own():
            lanes.write(pivots, rows, step, pivot)
    lanes.written(factors, work, rows * rows)
    return frame.finish(lanes.groups, group, flops=lanes.count * rows**3)


def eliminate(lanes: SystemLanes, work: Buffer, rows: int, step: Val) -> Val:
    """One step on the matrix in `work`: find the largest entry of row `step`, exchange its column
    with column `step`, divide the rest of the row by it, and take multiples of the column from the
    columns after. The column it was in."""
    k = lanes.k

    def entry(i: int | Val, j: Val) -> Val:
        return lanes.place(k.index(i) * rows + j)

    top = k.load(work, entry(step, step))
    best, pivot = k.local(top), k.local(k.cast(step, i32))
    with k.loop(rows, step + 1) as j:
        value = k.load(work, entry(step, j))
        wins = k.abs(value) > k.abs(best.get())
        best.set(k.select(wins, value, best))
        pivot.set(k.select(wins, k.cast(j, i32), pivot))
    chosen, found = pivot.get(), best.get()
    old = [k.load(work, entry(i, step)) for i in range(rows)]
    new = [k.local(value) for value in old]
    with k.loop(rows, step + 1) as j:
        is_it = chosen.eq(k.cast(j, i32))
        for i in range(rows):
            new[i].set(k.select(is_it, k.load(work, entry(i, j)), new[i]))
    column = [value.get() for value in new]
    taken = [k.select(step < i, value, k.const(0, value.dtype)) for i, value in enumerate(column)]
    divisor = k.select(found.eq(0), 1, found)
    with k.loop(rows, step + 1) as j:
        is_it = chosen.eq(k.cast(j, i32))
        factor = k.select(is_it, top, k.load(work, entry(step, j))) / divisor
        for i in range(rows):
            value = k.select(is_it, old[i], k.load(work, entry(i, j)))
            lanes.meet()
            k.store(work, entry(i, j), k.fma(-factor, taken[i], value))
        lanes.meet()
        k.store(work, entry(step, j), factor)
    lanes.meet()
    for i, value in enumerate(column):
        k.store(work, entry(i, step), value)
    return chosen


def lower_small_cholesky(frame: Frame, group: Group) -> Launch:
    """Column by column, everything in registers."""
    node, k = group.root, frame.k
    a, rows = node.inputs[0], known_rows(node.inputs[0])
    lanes = SystemLanes(frame, product(a.type.shape[:-2]))
    out = frame.output(frame.memory.slots[node])
    work = lanes.staged("work", a, rows * rows)
    lower: dict[tuple[int, int], Val] = {}
    bad = []
    for j in range(rows):
        for i in range(j, rows):
            value = k.load(work, lanes.place(i * rows + j))
            for c in range(j):
                value = k.fma(-lower[i, c], lower[j, c], value)
            if i == j:
                bad.append(~(value > 0))
            lower[i, j] = k.sqrt(value) if i == j else value / lower[j, j]
    if dict(node.params).get("on_failure", "raise") == "raise":
        trap_first(frame, node, bad, lanes.system, definite_error)
    else:
        failed, nan = any_of(bad), k.const(float("nan"), a.type.dtype)
        lower = {place: k.select(failed, nan, value) for place, value in lower.items()}
    zero = k.const(0, a.type.dtype)
    lanes.meet()
    for i in range(rows):
        for j in range(rows):
            k.store(work, lanes.place(i * rows + j), lower.get((i, j), zero))
    lanes.written(out, work, rows * rows)
    return frame.finish(lanes.groups, group, flops=lanes.count * rows**3)


def lower_det(frame: Frame, group: Group) -> Launch:
    """The product of the diagonal, and for every exchange another sign. Complex numbers are pairs
    of floats."""
    node, k = group.root, frame.k
    _, factors, pivots = node.inputs
    rows, real = factors.type.shape[-1], factors.type.dtype.real
    lanes = SystemLanes(frame, product(factors.type.shape[:-2]))
    outs = [frame.view(slot, real, "write") for slot in frame.memory.results(node)]
    parts = 2 if factors.type.dtype.is_complex else 1
    known = (
        frame.view(frame.memory.slots[factors], real)
        if parts == 2
        else frame.reading.buffers.get(factors)
    )
    n, zero, one = frame.sizes.val(rows), k.const(0, real), k.const(1, real)
    det, sign = PendingProduct(k, real, parts), PendingProduct(k, real, parts)
    size = k.local(0, real)
    with k.loop(n) as i:
        entry = diagonal_entry(lanes, factors, known, i, n, parts)
        turn = k.select(lanes.read(pivots, rows, i).ne(k.cast(i, i32)), -one, one)
        magnitude = k.abs(entry[0]) if parts == 1 else hypot(k, *entry)
        det.multiply([value * turn for value in entry])
        sign.multiply(
            [k.select(magnitude.eq(0), zero, value / magnitude * turn) for value in entry]
        )
        size.set(size.get() + log(k, magnitude))
    with lanes.own():
        for part in range(parts):
            lanes.write(outs[0], parts, part, det.held[part].get())
            lanes.write(outs[1], parts, part, sign.held[part].get())
        lanes.write(outs[2], 1, 0, size.get())
    return frame.finish(lanes.groups, group, flops=lanes.count * rows * 30)


def diagonal_entry(
    lanes: SystemLanes, node: Node, known: Buffer | None, i: Val, n: Val, parts: int
) -> Vector:
    k = lanes.k
    if known is None:
        return [k.const(splat_value(node), node.type.dtype)]
    begin = (lanes.system * n * n + i * n + i) * parts
    return [k.load(known, begin + part) for part in range(parts)]


class PendingProduct:
    """A product under way, of floats or of pairs of them."""

    def __init__(self, k: KernelBuilder, dtype: DType, parts: int) -> None:
        self.k, self.held = k, [k.local(1 - part, dtype) for part in range(parts)]

    def multiply(self, by: Vector) -> None:
        a = [local.get() for local in self.held]
        if len(a) == 1:
            self.held[0].set(a[0] * by[0])
            return
        self.held[0].set(a[0] * by[0] - a[1] * by[1])
        self.held[1].set(a[0] * by[1] + a[1] * by[0])


# -- solving ---------------------------------------------------------------------------------------


class Solving:
    """A kernel that solves small systems: lanes take systems and walk over their right sides, or,
    where these are many, take right sides of one system. `triangles` holds factors or a triangle,
    `work` says what to do with a column."""

    def __init__(
        self,
        frame: Frame,
        group: Group,
        triangles: Node,
        work: Callable[[Solving, Vector], None],
        pivots: Node | None = None,
    ) -> None:
        self.frame, self.k, self.group, self.node = frame, frame.k, group, group.root
        self.triangles, self.pivots, self.work, self.b = (
            triangles,
            pivots,
            work,
            group.root.inputs[-1],
        )
        self.rows, self.width = known_rows(self.b), self.b.type.shape[-1]
        self.systems = product(self.b.type.shape[:-2])
        self.out = frame.output(frame.memory.slots[self.node])

    def launch(self) -> Launch:
        has_many = not isinstance(self.width, int) or self.width >= LANES
        return self.by_columns() if has_many or self.systems == 1 else self.by_systems()

    def by_systems(self) -> Launch:
        """What is read and written goes through scratch in loops: gathers in a row would be a lot
        of code."""
        lanes, k = SystemLanes(self.frame, self.systems), self.k
        held = lanes.staged("held", self.triangles, self.rows * self.rows)
        order = None if self.pivots is None else lanes.staged("order", self.pivots, self.rows)
        self.system = lanes.system
        self.entry: Matrix = lambda i, j: k.load(held, lanes.place(i * self.rows + j))
        self.pivot: Callable[[int], Val] = lambda i: k.load(order, lanes.place(i))  # type: ignore[arg-type]
        bad = self.check()
        if self.width == 1:
            line = lanes.staged("line", self.b, self.rows)
            self.worked(lanes, line, bad)
            lanes.written(self.out, line, self.rows)
            return self.finish(lanes.groups)
        line, size = (
            self.frame.private("line", self.b.type.dtype, self.rows * LANES),
            self.rows * self.width,
        )
        with k.loop(self.frame.sizes.val(self.width)) as c:
            with k.loop(self.rows) as i:
                k.store(line, lanes.place(i), lanes.read(self.b, size, i * self.width + c))
            self.worked(lanes, line, bad)
            with lanes.own(), k.loop(self.rows) as i:
                lanes.write(self.out, size, i * self.width + c, k.load(line, lanes.place(i)))
        return self.finish(lanes.groups)

    def worked(self, lanes: SystemLanes, line: Buffer, bad: Val | None) -> None:
        """One column in scratch, solved in registers."""
        x = [self.k.load(line, lanes.place(i)) for i in range(self.rows)]
        self.work(self, x)
        for i, value in enumerate(x):
            self.k.store(line, lanes.place(i), self.marked(bad, value))

    def by_columns(self) -> Launch:
        frame, k = self.frame, self.k
        space = Space(k, frame.sizes, (self.systems, ceil_div(self.width, LANES)), k.group_id())
        self.system, lane = space.span(0, 1), k.index(0) if self.width == 1 else k.lane()
        pitch = frame.sizes.val(self.width)
        column, one = space.span(1, 2) * LANES + lane, SystemLanes(frame, 1)
        one.system = self.system
        self.entry = lambda i, j: one.read(self.triangles, self.rows * self.rows, i * self.rows + j)
        self.pivot = lambda i: one.read(self.pivots, self.rows, i)  # type: ignore[arg-type]
        bad = self.check()
        begin = self.system * (pitch * self.rows) + (
            column if self.width == 1 else k.min(column, pitch - 1)
        )
        x = [self.right_side(begin + pitch * i) for i in range(self.rows)]
        self.work(self, x)
        with SystemLanes.own(one) if self.width == 1 else frame.within(column, pitch, self.width):
            begin = self.system * (pitch * self.rows) + column
            for i, value in enumerate(x):
                k.store(self.out, begin + pitch * i, self.marked(bad, value))
        return self.finish(product(space.shape))

    def right_side(self, at: Val) -> Val:
        value = splat_value(self.b)
        known = self.frame.reading.buffers
        return (
            self.k.load(known[self.b], at)
            if value is None
            else self.k.const(value, self.b.type.dtype)
        )

    def finish(self, groups: Size) -> Launch:
        return self.frame.finish(
            groups, self.group, flops=2 * self.systems * self.width * self.rows**2
        )

    def check(self) -> Val | None:
        """Zeros on the diagonal stop the program, or mark the solution."""
        params = dict(self.node.params)
        if params.get("unit", False):
            return None
        zero = [self.entry(i, i).eq(0) for i in range(self.rows)]
        if params.get("on_failure", "raise") == "raise":
            trap_first(self.frame, self.node, zero, self.system, singular_error)
            return None
        return any_of(zero)

    def marked(self, bad: Val | None, value: Val) -> Val:
        return (
            value
            if bad is None
            else self.k.select(bad, self.k.const(float("nan"), value.dtype), value)
        )

    def substitute(self, x: Vector, *, lower: bool, unit: bool, transposed: bool) -> None:
        """x <- T^-1 x, T a triangle of the matrix."""
        k, ascending = self.k, lower != transposed
        for i in range(self.rows) if ascending else range(self.rows - 1, -1, -1):
            for j in range(i) if ascending else range(i + 1, self.rows):
                x[i] = k.fma(-(self.entry(j, i) if transposed else self.entry(i, j)), x[j], x[i])
            if not unit:
                x[i] = x[i] / self.entry(i, i)

    def exchange(self, x: Vector, steps: range) -> None:
        """x[step] and x[pivots[step]], one pair after the other; each lane has its own."""
        k = self.k
        for step in steps:
            before, other = x[step], self.pivot(step)
            for i in range(step + 1, self.rows):
                is_it = other.eq(i)
                x[step], x[i] = k.select(is_it, x[i], x[step]), k.select(is_it, before, x[i])


def lower_small_solve(frame: Frame, group: Group) -> Launch:
    _, factors, pivots, _ = group.root.inputs

    def forward(s: Solving, x: Vector) -> None:
        s.substitute(x, lower=True, unit=False, transposed=False)
        s.substitute(x, lower=False, unit=True, transposed=False)
        s.exchange(x, range(s.rows - 1, -1, -1))

    def backward(s: Solving, x: Vector) -> None:
        s.exchange(x, range(s.rows))
        s.substitute(x, lower=False, unit=True, transposed=True)
        s.substitute(x, lower=True, unit=False, transposed=True)

    work = backward if dict(group.root.params).get("transposed", False) else forward
    return Solving(frame, group, factors, work, pivots).launch()


def lower_small_triangular(frame: Frame, group: Group) -> Launch:
    params = dict(group.root.params)
    lower, unit = params.get("lower", True), params.get("unit", False)
    transposed = params.get("transposed", False)

    def work(s: Solving, x: Vector) -> None:
        s.substitute(x, lower=lower, unit=unit, transposed=transposed)

    return Solving(frame, group, group.root.inputs[0], work).launch()
