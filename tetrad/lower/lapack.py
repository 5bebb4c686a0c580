"""Lowering, linear algebra by LAPACK: a kernel whose workgroup prepares one matrix, calls the routine and checks it.

Receives the ops of `ops.systems` (above `SMALL` rows) and `ops.factors`. Matrices lie by rows here and by columns
there, so LAPACK sees every matrix transposed; routines are chosen so that little has to be turned around. Batches are
spread over workers like any other workgroups.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core import lapack
from tetrad.core.dtypes import DType, i32, i64, index
from tetrad.core.errors import UnsupportedError
from tetrad.core.sizes import Size, ceil_div, product
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.lower.frame import LANES, Frame
from tetrad.lower.index import Space
from tetrad.lower.launch import Launch
from tetrad.lower.systems import (
    lower_det,
    lower_small_cholesky,
    lower_small_lu,
    lower_small_solve,
    lower_small_triangular,
    trap_at,
)
from tetrad.ops.factors import convergence_error
from tetrad.ops.systems import SMALL, definite_error, singular_error
from tetrad.passes.fuse import Group

COLUMNS = 64  # of a right side that one workgroup solves for
BLOCK = 64  # LAPACK's: work it may use is a multiple
LETTERS = {"f32": "s", "f64": "d"}
Generator = Callable[[Frame, Group], Launch]


class Matrices:
    """One matrix for each workgroup, and the way to LAPACK."""

    def __init__(self, frame: Frame, group: Group, blocks: Size = 1) -> None:
        self.frame, self.k, self.group, self.node = frame, frame.k, group, group.root
        self.a = group.root.inputs[0]
        self.lead = self.a.type.shape[:-2]
        self.grid: tuple[Size, ...] = (product(self.lead), blocks)
        self.space = Space(frame.k, frame.sizes, self.grid, frame.k.group_id())
        self.system, self.block = self.space.span(0, 1), self.space.span(1, 2)
        self.dtype = self.a.type.dtype
        self.prefix = LETTERS[self.dtype.name]
        self.integer: DType = i64 if lapack.library().bits == 64 else i32

    def rows_of(self, size: Size) -> Val:
        return self.frame.sizes.val(size)

    def start(self, *sizes: Size) -> Val:
        """Where the matrix (vector, ...) of this system begins among those of all."""
        return self.system * self.frame.sizes.val(product(sizes))

    def scratch(self, name: str, count: Size, dtype: DType | None = None) -> Buffer:
        return self.frame.scratch(name, dtype or self.dtype, count)

    def integers(self, name: str, count: Size = 1) -> Buffer:
        return self.frame.scratch(name, self.integer, count)

    def call(self, routine: str, form: str, *operands: object) -> None:
        """`form` as in `core.lapack`, integers written `i`."""
        name = lapack.MARK + self.prefix + routine
        self.frame.sizes.formulas[name] = 0  # the address is looked up in the process that runs it
        self.k.foreign(self.k.arg(name), form.replace("i", lapack.integer()), *operands)

    def each(self, count: Val, body: Callable[[Val], None], start: object = 0) -> None:
        """body(i) for i from start, 16 lanes at a time."""
        k = self.k
        with k.loop(count, start, step=LANES) as i:
            position = i + k.lane()
            with k.when(position < count, guard=True):
                body(position)

    def matrix(self, target: Buffer, begin: Val, node: Node, rows: Size, columns: Size) -> None:
        """target[begin ...] = this system's matrix of a node, by rows."""
        k, wide = self.k, self.rows_of(columns)
        lead = self.space_of_lead()

        with k.loop(self.rows_of(rows)) as i:
            self.each(
                wide, lambda j: k.store(target, begin + i * wide + j, self.frame.reading.read(node, (*lead, i, j)))
            )

    def space_of_lead(self) -> tuple[Val, ...]:
        return Space(self.k, self.frame.sizes, self.lead, self.system).axes()

    def turned(self, target: Buffer, begin: Val, source: Buffer, at: Val, rows: Val, columns: Val) -> None:
        """target[begin ...], by rows, = source[at ...], by columns."""
        k = self.k
        with k.loop(rows) as i:
            self.each(columns, lambda j: k.store(target, begin + i * columns + j, k.load(source, at + j * rows + i)))

    def check(self, info: Buffer, error: Callable[..., Exception], pivot: bool = False) -> None:
        """What LAPACK reports in `info` stops the program; some routines count rows in it, from 1."""
        k = self.k
        code = k.cast(k.load(info, 0), i64)
        rows = self.rows_of(self.a.type.shape[-1])
        value = self.system * rows
        if pivot:
            value = value + k.cast(code, index) - 1
        trap_at(self.frame, self.node, code > 0, value, error)  # type: ignore[arg-type]

    def finish(self, flops: Size) -> Launch:
        return self.frame.finish(product(self.grid), self.group, flops=product(self.lead) * flops)


# -- systems ----------------------------------------------------------------------------------------------------------


def lower_lu(frame: Frame, group: Group) -> Launch:
    rows = group.root.inputs[0].type.shape[-1]
    if isinstance(rows, int) and rows <= SMALL:
        return lower_small_lu(frame, group)
    m, k = Matrices(frame, group), frame.k
    slots = frame.memory.results(m.node)
    factors, pivots = frame.output(slots[0], "readwrite"), frame.output(slots[1])
    own, info, n = m.integers("own", rows), m.integers("info"), m.rows_of(rows)
    begin = m.start(rows, rows)
    m.matrix(factors, begin, m.a, rows, rows)
    m.call("getrf", "iimimm", n, n, (factors, begin), n, (own, 0), (info, 0))
    first = m.start(rows)
    m.each(n, lambda i: k.store(pivots, first + i, k.cast(k.load(own, i) - 1, i32)))
    return m.finish(rows * rows * rows)


def lower_linear_solve(frame: Frame, group: Group) -> Launch:
    """A P = L U by columns is P^T A^T = ... by rows: right sides are rows there, so triangles stand on the right."""
    _, factors, pivots, b = group.root.inputs
    rows, width = b.type.shape[-2:]
    if isinstance(rows, int) and rows <= SMALL:
        return lower_small_solve(frame, group)
    m = Matrices(frame, group, ceil_div(width, COLUMNS))
    right = RightSide(m, factors, b)
    order, first = frame.reading.buffers[pivots], m.start(rows)
    if dict(m.node.params).get("transposed", False):
        right.solve(lambda: right.exchange(order, first, reverse=False), ("L", "N", "U"), ("U", "N", "N"))
    else:
        right.solve(None, ("U", "T", "N"), ("L", "T", "U"), lambda: right.exchange(order, first, reverse=True))
    return m.finish(rows * rows * width * 2)


def lower_triangular_solve(frame: Frame, group: Group) -> Launch:
    a, b = group.root.inputs
    rows, width = b.type.shape[-2:]
    if isinstance(rows, int) and rows <= SMALL:
        return lower_small_triangular(frame, group)
    m = Matrices(frame, group, ceil_div(width, COLUMNS))
    params = dict(m.node.params)
    sides = ("U" if params.get("lower", True) else "L", "N" if params.get("transposed", False) else "T")
    RightSide(m, a, b).solve(None, (*sides, "U" if params.get("unit", False) else "N"))
    return m.finish(rows * rows * width)


class RightSide:
    """Up to 64 columns of a right side, solved in place in the output. Triangles are named as LAPACK sees them: what is
    lower by rows is upper (U) by columns, and to solve with it as it was means to solve with its transpose (T)."""

    def __init__(self, m: Matrices, triangles: Node, b: Node) -> None:
        self.m, self.b, self.k = m, b, m.k
        self.rows, self.width = b.type.shape[-2:]
        self.n, self.pitch = m.rows_of(self.rows), m.rows_of(self.width)
        self.out = m.frame.output(m.frame.memory.slots[m.node], "readwrite")
        self.triangles, self.corner = self.memory_of(triangles)
        self.one = m.scratch("one", 1)
        self.left = m.block * COLUMNS  # the first column of this workgroup
        self.count = m.k.min(self.pitch - self.left, COLUMNS)
        self.begin = m.start(self.rows, self.width) + self.left

    def memory_of(self, node: Node) -> tuple[Buffer, Val]:
        """Where the triangles are; a constant of one value is in no memory, so it is written out."""
        m, k = self.m, self.k
        if node in m.frame.reading.buffers:
            return m.frame.reading.buffers[node], m.start(self.rows, self.rows)
        made = m.scratch("triangles", self.rows * self.rows)
        m.matrix(made, k.index(0), node, self.rows, self.rows)
        return made, k.index(0)

    def at(self, row: Val, column: Val) -> Val:
        return self.begin + row * self.pitch + column

    def solve(self, *steps: Callable[[], None] | tuple[str, str, str] | None) -> None:
        k = self.k
        is_unit = dict(self.m.node.params).get("unit", False)
        first = k.index(0) if is_unit else self.first_zero()
        policy = dict(self.m.node.params).get("singular", "raise")
        if policy == "raise" and not is_unit:
            trap_at(self.m.frame, self.m.node, first < self.n, self.m.system * self.n + first, singular_error)
        self.copy()
        k.store(self.one, 0, k.const(1, self.m.dtype))
        for step in steps:
            if callable(step):
                step()
            elif step is not None:
                self.substitute(*step)
        if policy == "nan" and not is_unit:
            with k.when(first < self.n):
                self.fill()

    def first_zero(self) -> Val:
        """The first row with a zero on its diagonal, or the number of rows."""
        k = self.k
        found = k.local(self.n)
        with k.loop(self.n) as i:
            is_zero = k.load(self.triangles, self.corner + i * self.n + i).eq(0)
            found.set(k.select(is_zero, k.min(found.get(), i), found))
        return found.get()

    def copy(self) -> None:
        k, m = self.k, self.m
        lead = m.space_of_lead()
        with k.loop(self.n) as i:
            m.each(
                self.count,
                lambda j: k.store(self.out, self.at(i, j), m.frame.reading.read(self.b, (*lead, i, self.left + j))),
            )

    def fill(self) -> None:
        k = self.k
        with k.loop(self.n) as i:
            self.m.each(self.count, lambda j: k.store(self.out, self.at(i, j), k.const(float("nan"), self.m.dtype)))

    def substitute(self, triangle: str, turn: str, unit: str) -> None:
        """A vector by trsv; several columns, rows by LAPACK's reading, by trsm with the triangle on their right."""
        memory = (self.triangles, self.corner)
        if self.width == 1:
            self.m.call("trsv", f"{triangle}{turn}{unit}imimi", self.n, memory, self.n, (self.out, self.begin), 1)
            return
        other = "N" if turn == "T" else "T"
        self.m.call(
            "trsm", f"R{triangle}{other}{unit}iimmimi",
            self.count, self.n, (self.one, 0), memory, self.n, (self.out, self.begin), self.pitch,
        )  # fmt: skip

    def exchange(self, pivots: Buffer, first: Val, *, reverse: bool) -> None:
        k = self.k
        with k.loop(self.n) as step:
            row = self.n - 1 - step if reverse else step
            other = k.cast(k.load(pivots, first + row), index)

            def swap(j: Val, row: Val = row, other: Val = other) -> None:
                a, b = k.load(self.out, self.at(row, j)), k.load(self.out, self.at(other, j))
                k.store(self.out, self.at(row, j), b)
                k.store(self.out, self.at(other, j), a)

            self.m.each(self.count, swap)


def lower_cholesky(frame: Frame, group: Group) -> Launch:
    rows = group.root.inputs[0].type.shape[-1]
    if isinstance(rows, int) and rows <= SMALL:
        return lower_small_cholesky(frame, group)
    m, k = Matrices(frame, group), frame.k
    out, info, n = frame.output(frame.memory.slots[m.node], "readwrite"), m.integers("info"), m.rows_of(rows)
    begin = m.start(rows, rows)
    m.matrix(out, begin, m.a, rows, rows)
    m.call("potrf", "Uimim", n, (out, begin), n, (info, 0))
    m.check(info, definite_error, pivot=True)
    with k.loop(n) as i:
        m.each(n, lambda j: k.store(out, begin + i * n + j, k.const(0, m.dtype)), start=i + 1)
    return m.finish(rows * rows * rows)


# -- orthogonal factors -----------------------------------------------------------------------------------------------


def static_sizes(node: Node) -> tuple[int, int]:
    m, n = node.type.shape[-2:]
    if not isinstance(m, int) or not isinstance(n, int):
        raise UnsupportedError("linalg: the sizes of a matrix must be known to compile this", source=node.source)
    return m, n


def lower_qr(frame: Frame, group: Group) -> Launch:
    m, k = Matrices(frame, group), frame.k
    tall, wide = static_sizes(m.a)
    least = min(tall, wide)
    inner = m.node.types[0].shape[-1]
    q, r = (frame.output(slot) for slot in frame.memory.results(m.node))
    work, tau, info = m.scratch("matrix", tall * max(wide, tall)), m.scratch("tau", least), m.integers("info")
    room = BLOCK * max(tall, wide)
    space = m.scratch("room", room)
    rows, columns, zero = k.index(tall), k.index(wide), k.index(0)
    lead = m.space_of_lead()
    with k.loop(rows) as i:
        m.each(columns, lambda j: k.store(work, j * tall + i, frame.reading.read(m.a, (*lead, i, j))))
    m.call("geqrf", "iimimmim", rows, columns, (work, 0), rows, (tau, 0), (space, 0), room, (info, 0))
    begin = m.start(inner, wide)
    with k.loop(m.rows_of(inner)) as i:

        def entry(j: Val, i: Val = i) -> None:
            value = k.select(j < i, k.const(0, m.dtype), k.load(work, j * tall + k.min(i, j)))
            k.store(r, begin + i * wide + j, value)

        m.each(columns, entry)
    own = m.rows_of(inner)
    m.call("orgqr", "iiimimmim", rows, own, least, (work, 0), rows, (tau, 0), (space, 0), room, (info, 0))
    m.turned(q, m.start(tall, inner), work, zero, rows, own)
    return m.finish(4 * tall * wide * least)


def lower_eigh(frame: Frame, group: Group) -> Launch:
    m, k = Matrices(frame, group), frame.k
    rows = m.a.type.shape[-1]
    has_vectors = m.node.op.name == "eigh"
    slots = frame.memory.results(m.node) if has_vectors else (frame.memory.slots[m.node],)
    values = frame.output(slots[0], "readwrite")
    work, info, n = m.scratch("matrix", rows * rows), m.integers("info"), m.rows_of(rows)
    size, integers = (2 * rows * rows + 6 * rows + 1, 5 * rows + 3) if has_vectors else (BLOCK * rows + 3 * rows, 1)
    room, more = m.scratch("room", size), m.integers("more", integers)
    m.matrix(work, k.index(0), m.a, rows, rows)
    m.call(
        "syevd", f"{'V' if has_vectors else 'N'}Uimimmimim",
        n, (work, 0), n, (values, m.start(rows)), (room, 0), m.rows_of(size), (more, 0), m.rows_of(integers), (info, 0),
    )  # fmt: skip
    m.check(info, convergence_error)
    if has_vectors:
        m.turned(frame.output(slots[1]), m.start(rows, rows), work, k.index(0), n, n)
    return m.finish(9 * rows * rows * rows)


def lower_svd(frame: Frame, group: Group) -> Launch:
    """LAPACK sees A^T = V S U^T by columns: its left vectors are V^T by rows, its right ones U."""
    m, k = Matrices(frame, group), frame.k
    tall, wide = static_sizes(m.a)
    least = min(tall, wide)
    has_vectors = m.node.op.name == "svd"
    slots = frame.memory.results(m.node) if has_vectors else (frame.memory.slots[m.node],)
    values = frame.output(slots[1 if has_vectors else 0], "readwrite")
    full = dict(m.node.params).get("full", False)
    job = ("A" if full else "S") if has_vectors else "N"
    left, right = (tall, wide) if full else (least, least)
    work, info, more = m.scratch("matrix", tall * wide), m.integers("info"), m.integers("more", 8 * least)
    room = 4 * least * least + 7 * least + BLOCK * (tall + wide)
    space = m.scratch("room", room)
    nothing = m.scratch("nothing", 1)
    u = (frame.output(slots[0], "readwrite"), m.start(tall, left)) if has_vectors else (nothing, k.index(0))
    vh = (frame.output(slots[2], "readwrite"), m.start(right, wide)) if has_vectors else (nothing, k.index(0))
    m.matrix(work, k.index(0), m.a, tall, wide)
    m.call(
        "gesdd", f"{job}iimimmimimimm",
        wide, tall, (work, 0), wide, (values, m.start(least)), vh, wide, u, left,
        (space, 0), room, (more, 0), (info, 0),
    )  # fmt: skip
    m.check(info, convergence_error)
    return m.finish(12 * tall * wide * least)


LAPACK_GENERATORS: dict[str, Generator] = {
    "lu": lower_lu,
    "linear_solve": lower_linear_solve,
    "triangular_solve": lower_triangular_solve,
    "cholesky": lower_cholesky,
    "qr": lower_qr,
    "eigh": lower_eigh,
    "eigvalsh": lower_eigh,
    "svd": lower_svd,
    "svdvals": lower_svd,
    "lu_det": lower_det,
}
