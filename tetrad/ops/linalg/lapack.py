"""Linear algebra by LAPACK: a kernel whose workgroup prepares one matrix, calls the
routine and checks it.

Receives the ops of `ops.linalg.systems` (above `SMALL` rows, or complex), `factors` and `eigen`.
Matrices lie by rows here and by columns there, so LAPACK sees every matrix transposed; routines are
chosen so that little has to be turned around. Batches are spread over workers like any other
workgroups. Kernels see complex numbers as pairs of floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from tetrad.core import lapack
from tetrad.core.dtypes import DType, i32, i64, index
from tetrad.core.errors import TetradError, UnsupportedError
from tetrad.core.machine import LANES
from tetrad.core.sizes import Size, ceil_div, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import splat_value
from tetrad.ops.linalg.eigen import ROOM
from tetrad.ops.linalg.factors import convergence_error
from tetrad.ops.linalg.small_systems import trap_at
from tetrad.ops.linalg.systems import LETTERS, definite_error, finite_error, singular_error
from tetrad.schedule.nodes import Launch, Slot

COLUMNS = 64  # of a right side that one workgroup solves for
BLOCK = 64  # LAPACK's: work it may use is a multiple
Explain = Callable[[str, int, tuple[int, ...], int], TetradError]
Step = Callable[[], None] | tuple[str, str, str]


class Matrices:
    """One matrix for each workgroup, and the way to LAPACK."""

    def __init__(self, frame: Frame, group: Group, blocks: Size = 1) -> None:
        self.frame, self.k, self.group, self.node = frame, frame.k, group, group.root
        self.a = group.root.inputs[0]
        self.lead = self.a.type.shape[:-2]
        self.grid: tuple[Size, ...] = (product(self.lead), blocks)
        space = Space(frame.k, frame.sizes, self.grid, frame.k.group_id())
        self.system, self.block = space.span(0, 1), space.span(1, 2)
        dtype = self.a.type.dtype
        self.real, self.parts = dtype.real, 2 if dtype.is_complex else 1
        self.prefix = LETTERS[dtype.np.name]
        self.integer: DType = i64 if lapack.library().bits == 64 else i32

    def size(self, size: Size) -> Val:
        return self.frame.sizes.val(size)

    def start(self, *sizes: Size) -> Val:
        """Where the floats of this system begin among those of all, in an array with such a matrix
        for each."""
        return self.system * self.size(product(sizes) * self.parts)

    # -- memory ------------------------------------------------------------------------------------

    def output(self, slot: Slot, access: str = "write") -> Buffer:
        return self.frame.view(slot, slot.type.dtype.real, access)

    def input(self, node: Node) -> Buffer | None:
        """The memory of an operand, as floats; a constant of one value has none."""
        if node.type.dtype.is_complex:
            return self.frame.view(self.frame.memory.slots[node], self.real)
        return self.frame.reading.buffers.get(node)

    def scratch(self, name: str, count: Size) -> Buffer:
        """Room for numbers of the matrix's own type."""
        return self.frame.scratch(name, self.real, count * self.parts)

    def integers(self, name: str, count: Size = 1) -> Buffer:
        return self.frame.scratch(name, self.integer, count)

    def load(self, node: Node, source: Buffer | None, at: Val) -> Val:
        return (
            self.k.const(splat_value(node), self.real)
            if source is None
            else self.k.load(source, at)
        )

    # -- loops -------------------------------------------------------------------------------------

    def each(self, count: Val, body: Callable[[Val], None], start: object = 0) -> None:
        """body(i) for i from start, 16 lanes at a time."""
        k = self.k
        with k.loop(count, start, step=LANES) as i:
            position = i + k.lane()
            with k.when(position < count, guard=True):
                body(position)

    def copy(self, target: Buffer, begin: Val, node: Node, *sizes: Size) -> None:
        """target[begin ...] = this system's matrix of an operand, by rows."""
        k, source, first = self.k, self.input(node), self.start(*sizes)
        count = self.size(product(sizes) * self.parts)
        self.each(count, lambda e: k.store(target, begin + e, self.load(node, source, first + e)))

    def copy_turned(self, target: Buffer, node: Node, rows: Size, columns: Size) -> None:
        """The beginning of target = this system's matrix of an operand, by columns."""
        k, source, first = self.k, self.input(node), self.start(rows, columns)
        tall, wide = self.size(rows), self.size(columns)
        with k.loop(tall) as i, k.loop(wide) as j:
            for part in range(self.parts):
                value = self.load(node, source, first + (i * wide + j) * self.parts + part)
                k.store(target, (j * tall + i) * self.parts + part, value)

    def turn(
        self,
        target: Buffer,
        begin: Val,
        source: Buffer,
        rows: Val,
        columns: Val,
        conjugate: bool = False,
    ) -> None:
        """target[begin ...], by rows, = the matrix at the beginning of source, by columns."""
        k = self.k
        with k.loop(rows) as i:
            for part in range(self.parts):

                def move(j: Val, i: Val = i, part: int = part) -> None:
                    value = k.load(source, (j * rows + i) * self.parts + part)
                    k.store(
                        target,
                        begin + (i * columns + j) * self.parts + part,
                        -value if part and conjugate else value,
                    )

                self.each(columns, move)

    # -- calls -------------------------------------------------------------------------------------

    def call(self, routine: str, form: str, *operands: object) -> None:
        """`form` as in `core.lapack`, integers written `i`."""
        name = lapack.MARK + self.prefix + routine
        self.frame.sizes.formulas[name] = 0  # the address is looked up in the process that runs it
        self.k.foreign(self.k.arg(name), form.replace("i", lapack.integer()), *operands)

    def check(self, info: Buffer, explain: Explain, *, counts_rows: bool = False) -> None:
        """What LAPACK reports in `info` stops the program; some routines count rows in it, from
        1."""
        code = self.k.cast(self.k.load(info, 0), index)
        row = code - 1 if counts_rows else self.k.index(0)
        trap_at(self.frame, self.node, code.ne(0), self.system, row, explain)

    def check_finite(self, work: Buffer, rows: Size, columns: Size, *, lower: bool = False) -> None:
        """NaN or infinities at the beginning of work, by rows, stop the program: on them an
        iteration may never end."""
        k, n = self.k, self.size(columns * self.parts)
        k.barrier()
        with k.loop(self.size(rows)) as i:

            def look(j: Val) -> None:
                is_finite = k.abs(k.load(work, i * n + j)) < k.const(math.inf, self.real)
                trap_at(self.frame, self.node, ~is_finite, self.system, k.index(0), finite_error)

            self.each((i + 1) * self.parts if lower else n, look)

    def finish(self, flops: Size) -> Launch:
        return self.frame.finish(product(self.grid), self.group, flops=product(self.lead) * flops)


# -- systems ---------------------------------------------------------------------------------------


def lower_lu(frame: Frame, group: Group) -> Launch:
    m, k = Matrices(frame, group), frame.k
    rows = m.a.type.shape[-1]
    slots = frame.memory.results(m.node)
    factors, pivots = m.output(slots[0], "readwrite"), m.output(slots[1])
    own, info, n = m.integers("own", rows), m.integers("info"), m.size(rows)
    begin, first = m.start(rows, rows), m.system * n
    m.copy(factors, begin, m.a, rows, rows)
    m.call("getrf", "iimimm", n, n, (factors, begin), n, (own, 0), (info, 0))
    m.each(n, lambda i: k.store(pivots, first + i, k.cast(k.load(own, i) - 1, i32)))
    return m.finish(rows * rows * rows * m.parts)


def lower_linear_solve(frame: Frame, group: Group) -> Launch:
    _, factors, pivots, b = group.root.inputs
    rows, width = b.type.shape[-2:]
    m = Matrices(frame, group, ceil_div(width, COLUMNS))
    right = RightSide(m, factors, b)
    if dict(m.node.params).get("transposed", False):
        right.solve(lambda: right.exchange(pivots, reverse=False), ("L", "N", "U"), ("U", "N", "N"))
    else:
        right.solve(("U", "T", "N"), ("L", "T", "U"), lambda: right.exchange(pivots, reverse=True))
    return m.finish(rows * rows * width * 2 * m.parts)


def lower_triangular_solve(frame: Frame, group: Group) -> Launch:
    a, b = group.root.inputs
    rows, width = b.type.shape[-2:]
    m = Matrices(frame, group, ceil_div(width, COLUMNS))
    params = dict(m.node.params)
    sides = (
        "U" if params.get("lower", True) else "L",
        "N" if params.get("transposed", False) else "T",
    )
    RightSide(m, a, b).solve((*sides, "U" if params.get("unit", False) else "N"))
    return m.finish(rows * rows * width * m.parts)


class RightSide:
    """Up to 64 columns of a right side, solved in place in the output. Triangles are named as
    LAPACK sees them: what is lower by rows is upper (U) by columns, and to solve with it as it was
    means to solve with its transpose (T)."""

    def __init__(self, m: Matrices, triangles: Node, b: Node) -> None:
        self.m, self.b, self.k = m, b, m.k
        self.rows, self.width = b.type.shape[-2:]
        self.n, self.pitch = m.size(self.rows), m.size(self.width * m.parts)  # the pitch in floats
        self.out = m.output(m.frame.memory.slots[m.node], "readwrite")
        self.triangles, self.corner = self.memory_of(triangles)
        self.one = m.scratch("one", 1)
        # the first float of a row that is this workgroup's
        self.left = m.block * (COLUMNS * m.parts)
        self.count = m.k.min(self.pitch - self.left, COLUMNS * m.parts)
        self.begin = m.start(self.rows, self.width) + self.left

    def memory_of(self, node: Node) -> tuple[Buffer, Val]:
        """Where the triangles are; a constant of one value is in no memory, so it is written
        out."""
        m, k = self.m, self.k
        known = m.input(node)
        if known is not None:
            return known, m.start(self.rows, self.rows)
        made = m.scratch("triangles", self.rows * self.rows)
        m.copy(made, k.index(0), node, self.rows, self.rows)
        k.barrier()
        return made, k.index(0)

    def at(self, row: Val, column: Val) -> Val:
        return self.begin + row * self.pitch + column

    def solve(self, *steps: Step) -> None:
        params = dict(self.m.node.params)
        first = None if params.get("unit", False) else self.first_zero()
        policy = params.get("singular", "raise")
        if first is not None and policy == "raise":
            trap_at(self.m.frame, self.m.node, first < self.n, self.m.system, first, singular_error)
        self.fill_in()
        for step in steps:
            if callable(step):
                step()
            else:
                self.substitute(*step)
        if first is not None and policy == "nan":
            with self.k.when(first < self.n):
                self.mark()

    def first_zero(self) -> Val:
        """The first row with a zero on its diagonal, or the number of rows."""
        k, parts = self.k, self.m.parts
        found = k.local(self.n)
        with k.loop(self.n) as i:
            at = self.corner + (i * self.n + i) * parts
            is_zero = k.load(self.triangles, at).eq(0)
            if parts == 2:
                is_zero = is_zero & k.load(self.triangles, at + 1).eq(0)
            found.set(k.select(is_zero, k.min(found.get(), i), found))
        return found.get()

    def fill_in(self) -> None:
        """The right side where the solution shall be, and the number one that `trsm` multiplies
        with."""
        k, m = self.k, self.m
        source = m.input(self.b)
        with k.loop(self.n) as i:
            m.each(
                self.count,
                lambda j: k.store(self.out, self.at(i, j), m.load(self.b, source, self.at(i, j))),
            )
        for part in range(m.parts):
            k.store(self.one, part, k.const(1 - part, m.real))

    def mark(self) -> None:
        k = self.k
        with k.loop(self.n) as i:
            self.m.each(
                self.count,
                lambda j: k.store(self.out, self.at(i, j), k.const(float("nan"), self.m.real)),
            )

    def substitute(self, triangle: str, turn: str, unit: str) -> None:
        """A vector by trsv; several columns, rows by LAPACK's reading, by trsm with the triangle on
        their right."""
        memory = (self.triangles, self.corner)
        if self.width == 1:
            self.m.call(
                "trsv",
                f"{triangle}{turn}{unit}imimi",
                self.n,
                memory,
                self.n,
                (self.out, self.begin),
                1,
            )
            return
        form = f"R{triangle}{'N' if turn == 'T' else 'T'}{unit}iimmimi"
        columns, pitch = self.count // self.m.parts, self.m.size(self.width)
        self.m.call(
            "trsm",
            form,
            columns,
            self.n,
            (self.one, 0),
            memory,
            self.n,
            (self.out, self.begin),
            pitch,
        )

    def exchange(self, pivots: Node, *, reverse: bool) -> None:
        k, m = self.k, self.m
        order, first = m.frame.reading.buffers[pivots], m.system * self.n
        with k.loop(self.n) as step:
            row = self.n - 1 - step if reverse else step
            other = k.cast(k.load(order, first + row), index)

            def swap(j: Val, row: Val = row, other: Val = other) -> None:
                a, b = k.load(self.out, self.at(row, j)), k.load(self.out, self.at(other, j))
                k.store(self.out, self.at(row, j), b)
                k.store(self.out, self.at(other, j), a)

            m.each(self.count, swap)


def lower_cholesky(frame: Frame, group: Group) -> Launch:
    """By columns LAPACK sees conj(A), whose upper factor lies where L lies by rows."""
    m, k = Matrices(frame, group), frame.k
    rows = m.a.type.shape[-1]
    out, info, n = (
        m.output(frame.memory.slots[m.node], "readwrite"),
        m.integers("info"),
        m.size(rows),
    )
    begin = m.start(rows, rows)
    m.copy(out, begin, m.a, rows, rows)
    m.call("potrf", "Uimim", n, (out, begin), n, (info, 0))
    m.check(info, definite_error, counts_rows=True)
    pitch = m.size(rows * m.parts)
    with k.loop(n) as i:  # LAPACK lets NaN pass
        is_positive = k.load(out, begin + i * pitch + i * m.parts) > k.const(0, m.real)
        trap_at(frame, m.node, ~is_positive, m.system, i, definite_error)
    with k.loop(n) as i:
        m.each(
            pitch,
            lambda j: k.store(out, begin + i * pitch + j, k.const(0, m.real)),
            start=(i + 1) * m.parts,
        )
    return m.finish(rows * rows * rows * m.parts)


# -- orthogonal factors ----------------------------------------------------------------------------


def static_sizes(node: Node) -> tuple[int, int]:
    m, n = node.type.shape[-2:]
    if not isinstance(m, int) or not isinstance(n, int):
        raise UnsupportedError(
            "linalg: the sizes of a matrix must be known to compile this", source=node.source
        )
    return m, n


def lower_qr(frame: Frame, group: Group) -> Launch:
    m, k = Matrices(frame, group), frame.k
    tall, wide = static_sizes(m.a)
    least, inner = min(tall, wide), m.node.types[0].shape[-1]
    q, r = (m.output(slot) for slot in frame.memory.results(m.node))
    work, tau, info = (
        m.scratch("matrix", tall * max(wide, tall)),
        m.scratch("tau", least),
        m.integers("info"),
    )
    room = BLOCK * max(tall, wide)
    space, rows, columns, own = m.scratch("room", room), k.index(tall), k.index(wide), m.size(inner)
    m.copy_turned(work, m.a, tall, wide)
    m.call(
        "geqrf", "iimimmim", rows, columns, (work, 0), rows, (tau, 0), (space, 0), room, (info, 0)
    )
    upper(m, r, m.start(inner, wide), work, tall, own, columns)
    generate = "ungqr" if m.parts == 2 else "orgqr"
    m.call(
        generate,
        "iiimimmim",
        rows,
        own,
        least,
        (work, 0),
        rows,
        (tau, 0),
        (space, 0),
        room,
        (info, 0),
    )
    m.turn(q, m.start(tall, inner), work, rows, own)
    return m.finish(4 * tall * wide * least * m.parts)


def upper(
    m: Matrices, r: Buffer, begin: Val, work: Buffer, tall: int, rows: Val, columns: Val
) -> None:
    """The upper triangle of a matrix by columns, by rows, with zeros below."""
    k = m.k
    with k.loop(rows) as i:
        for part in range(m.parts):

            def entry(j: Val, i: Val = i, part: int = part) -> None:
                value = k.load(work, (j * tall + k.min(i, j)) * m.parts + part)
                kept = k.select(j < i, k.const(0, m.real), value)
                k.store(r, begin + (i * columns + j) * m.parts + part, kept)

            m.each(columns, entry)


def lower_eigh(frame: Frame, group: Group) -> Launch:
    """Of a complex matrix LAPACK sees the conjugate, with the same values and conjugate vectors."""
    m, k = Matrices(frame, group), frame.k
    rows = m.a.type.shape[-1]
    has_vectors, is_complex = m.node.op.name == "eigh", m.parts == 2
    slots = frame.memory.results(m.node) if has_vectors else (frame.memory.slots[m.node],)
    values = m.output(slots[0], "readwrite")
    work, info, n = m.scratch("matrix", rows * rows), m.integers("info"), m.size(rows)
    size: Size = 2 * rows * rows + (6 + BLOCK) * rows + 1
    room, more = m.scratch("room", size), m.integers("more", 5 * rows + 3)
    m.copy(work, k.index(0), m.a, rows, rows)
    m.check_finite(work, rows, rows, lower=True)
    reals = (m.frame.scratch("reals", m.real, 2 * rows * rows + 5 * rows + 1), 0)
    middle = (reals, m.size(2 * rows * rows + 5 * rows + 1)) if is_complex else ()
    form = f"{'V' if has_vectors else 'N'}Uimimmi{'mi' if is_complex else ''}mim"
    m.call(
        "heevd" if is_complex else "syevd", form, n, (work, 0), n, (values, m.system * n),
        (room, 0), m.size(size), *middle, (more, 0), m.size(5 * rows + 3), (info, 0),
    )  # fmt: skip
    m.check(info, convergence_error)
    if has_vectors:
        m.turn(m.output(slots[1]), m.start(rows, rows), work, n, n, conjugate=True)
    return m.finish(9 * rows * rows * rows * m.parts)


def lower_eig(frame: Frame, group: Group) -> Launch:
    """LAPACK gets the matrix by columns, as eager code hands it over. Of a real one the values come
    in two parts."""
    m, rows = Matrices(frame, group), group.root.inputs[0].type.shape[-1]
    has_vectors, is_complex, n = m.node.op.name == "eig", m.parts == 2, m.size(rows)
    slots = frame.memory.results(m.node) if has_vectors else (frame.memory.slots[m.node],)
    work, info, values = (
        m.scratch("matrix", rows * rows),
        m.integers("info"),
        m.output(slots[0], "readwrite"),
    )
    m.copy_turned(work, m.a, rows, rows)
    m.check_finite(work, rows, rows)
    size: Size = ROOM * rows
    parts, room, nothing = (
        frame.scratch("parts", m.real, 2 * rows),
        m.scratch("room", size),
        m.scratch("nothing", 1),
    )
    vectors, begin = (
        m.scratch("vectors", rows * rows if has_vectors else 1),
        m.system * m.size(2 * rows),
    )
    found, more = (
        (((values, begin),), ((parts, 0),)) if is_complex else (((parts, 0), (parts, n)), ())
    )
    m.call(
        "geev", f"N{'V' if has_vectors else 'N'}imi{'m' * len(found)}mimimi{'m' * len(more)}m",
        n, (work, 0), n, *found, (nothing, 0), 1, (vectors, 0), n, (room, 0), m.size(size), *more,
        (info, 0),
    )  # fmt: skip
    m.check(info, convergence_error)
    if not is_complex:
        join_values(m, values, begin, parts, n)
    if has_vectors:
        target, corner = m.output(slots[1]), begin * n
        (m.turn if is_complex else partial(join_vectors, m, parts))(target, corner, vectors, n, n)
    return m.finish(25 * rows * rows * rows * m.parts)


def join_values(m: Matrices, values: Buffer, begin: Val, parts: Buffer, n: Val) -> None:
    """Real parts and behind them imaginary ones, side by side."""
    k = m.k

    def join(j: Val) -> None:
        for part in (0, 1):
            k.store(values, begin + j * 2 + part, k.load(parts, n * part + j))

    m.each(n, join)


def join_vectors(
    m: Matrices, parts: Buffer, target: Buffer, begin: Val, source: Buffer, n: Val, _: Val
) -> None:
    """Of two conjugate values LAPACK gives real and imaginary part of one vector, as two
    columns."""
    k, zero = m.k, m.k.const(0, m.real)
    with k.loop(n) as i:

        def join(j: Val, i: Val = i) -> None:
            imag = k.load(parts, n + j)
            first, second = k.select(imag < zero, j - 1, j), k.select(imag > zero, j + 1, j)
            other = k.load(source, second * n + i)
            k.store(target, begin + (i * n + j) * 2, k.load(source, first * n + i))
            signed = k.select(imag < zero, -other, other)
            k.store(target, begin + (i * n + j) * 2 + 1, k.select(imag.eq(0), zero, signed))

        m.each(n, join)


def lower_svd(frame: Frame, group: Group) -> Launch:
    """LAPACK sees A^T = conj(V) S U^T by columns: its left vectors are V^H by rows, its right ones
    U."""
    m, k = Matrices(frame, group), frame.k
    tall, wide = static_sizes(m.a)
    least, most = min(tall, wide), max(tall, wide)
    has_vectors, is_complex = m.node.op.name == "svd", m.parts == 2
    slots = frame.memory.results(m.node) if has_vectors else (frame.memory.slots[m.node],)
    values = m.output(slots[1 if has_vectors else 0], "readwrite")
    full = dict(m.node.params).get("full", False)
    left, right = (tall, wide) if full else (least, least)
    work, info, more = (
        m.scratch("matrix", tall * wide),
        m.integers("info"),
        m.integers("more", 8 * least),
    )
    room = 4 * least * least + 7 * least + BLOCK * (tall + wide)
    space, nothing = m.scratch("room", room), m.scratch("nothing", 1)
    u = (
        (m.output(slots[0], "readwrite"), m.start(tall, left))
        if has_vectors
        else (nothing, k.index(0))
    )
    vh = (
        (m.output(slots[2], "readwrite"), m.start(right, wide))
        if has_vectors
        else (nothing, k.index(0))
    )
    m.copy(work, k.index(0), m.a, tall, wide)
    m.check_finite(work, tall, wide)
    reals = m.frame.scratch(
        "reals", m.real, least * (5 * least + 2 * most + 7) if is_complex else 1
    )
    job = ("A" if full else "S") if has_vectors else "N"
    m.call(
        "gesdd", f"{job}iimimmimimi{'m' if is_complex else ''}mm",
        wide, tall, (work, 0), wide, (values, m.system * least), vh, wide, u, left,
        (space, 0), room, *([(reals, 0)] if is_complex else []), (more, 0), (info, 0),
    )  # fmt: skip
    m.check(info, convergence_error)
    return m.finish(12 * tall * wide * least * m.parts)
