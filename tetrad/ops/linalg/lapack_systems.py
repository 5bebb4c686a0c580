"""Linear algebra by LAPACK, systems: the steps of `lu`, `cholesky` and of solving with triangles.

Receives the ops of `ops.linalg.systems` above `SMALL` rows, or complex. Right sides are solved in
place, in the output, in blocks of columns.
"""

from __future__ import annotations

import math

import numpy as np

from tetrad.core.dtypes import i32, index
from tetrad.core.sizes import Size
from tetrad.core.types import ArrayType
from tetrad.graph.group import Group
from tetrad.graph.nodes import Literal, Node
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import TABLE, Frame
from tetrad.ops.linalg.lapack import Matrices, MatrixKernel, value_of
from tetrad.ops.linalg.systems import definite_error, singular_error
from tetrad.schedule.build import constant_slot
from tetrad.schedule.nodes import HostMemory, Leaf, Slot

COLUMNS = 64  # of a right side that one workgroup prepares and one call solves for


def lower_lu(frame: Frame, group: Group) -> list[Leaf]:
    m = Matrices(frame.memory, group)
    rows = m.a.type.shape[-1]
    factors, pivots = m.results()
    own, info = m.temp("own", m.integer, rows), m.temp("info", m.integer, 1)
    prepare = m.kernel("copy")
    prepare.copy(prepare.output(factors), m.a, rows, rows)
    m.run(prepare)
    m.call(
        "getrf", "iimimm", rows, rows, m.given(factors), rows, m.given(own, "write"),
        m.given(info, "write"), flops=rows * rows * rows,
    )  # fmt: skip
    finish = m.kernel("pivots")
    k, first, n = finish.k, finish.system * finish.size(rows), finish.size(rows)
    source, target = finish.input(own), finish.output(pivots)
    finish.each(n, lambda i: k.store(target, first + i, k.cast(k.load(source, first + i) - 1, i32)))
    m.run(finish)
    return m.steps


def lower_cholesky(frame: Frame, group: Group) -> list[Leaf]:
    """By columns LAPACK sees conj(A), whose upper factor lies where L lies by rows."""
    m = Matrices(frame.memory, group)
    rows = m.a.type.shape[-1]
    (factor,) = m.results()
    info = m.temp("info", m.integer, 1)
    prepare = m.kernel("copy")
    prepare.copy(prepare.output(factor), m.a, rows, rows)
    m.run(prepare)
    operands = (rows, m.given(factor), rows, m.given(info, "write"))
    m.call("potrf", "Uimim", *operands, flops=rows * rows * rows)
    if dict(group.root.params).get("on_failure", "raise") == "nan":
        finish = m.kernel("check")
        factors_or_nan(finish, finish.changed(factor), info, rows)
    else:
        finish = m.check(info, definite_error, counts_rows=True)
        check_diagonal(finish, finish.changed(factor), rows)
    keep_lower(finish, finish.changed(factor), rows)
    m.run(finish)
    return m.steps


def check_diagonal(kernel: MatrixKernel, out: Buffer, rows: Size) -> None:
    """LAPACK lets NaN pass."""
    with kernel.k.loop(kernel.size(rows)) as i:
        kernel.trap(~is_positive(kernel, out, rows, i), i, definite_error)


def is_positive(kernel: MatrixKernel, out: Buffer, rows: Size, i: Val) -> Val:
    pitch = kernel.size(rows * kernel.parts)
    entry = kernel.k.load(out, kernel.start(rows, rows) + i * pitch + i * kernel.parts)
    return entry > kernel.k.const(0, kernel.real)


def factors_or_nan(kernel: MatrixKernel, out: Buffer, info: Slot, rows: Size) -> None:
    """NaN all over, if LAPACK gave up or has let NaN pass."""
    k = kernel.k
    good = k.local(k.const(1, kernel.real))
    with k.loop(kernel.size(rows)) as i:
        good.set(k.select(is_positive(kernel, out, rows, i), good.get(), k.const(0, kernel.real)))
    code = k.load(kernel.input(info), kernel.system)
    with k.when(code.ne(0) | good.get().eq(0)):
        kernel.fill(out, math.nan, rows, rows, parts=kernel.parts)


def keep_lower(kernel: MatrixKernel, out: Buffer, rows: Size) -> None:
    """Zeros above the diagonal."""
    k, n, zero = kernel.k, kernel.size(rows), kernel.k.const(0, kernel.real)
    begin, pitch = kernel.start(rows, rows), kernel.size(rows * kernel.parts)
    with k.loop(n) as i:
        kernel.each(
            pitch,
            lambda j: k.store(out, begin + i * pitch + j, zero),
            start=(i + 1) * kernel.parts,
        )


# -- right sides -----------------------------------------------------------------------------------


def lower_linear_solve(frame: Frame, group: Group) -> list[Leaf]:
    _, factors, pivots, b = group.root.inputs
    side = RightSide(frame, group, factors, b)
    if dict(group.root.params).get("transposed", False):
        side.prepare(pivots)
        side.substitute("L", "N", "U")
        side.substitute("U", "N", "N")
        return side.finish()
    side.prepare()
    side.substitute("U", "T", "N")
    side.substitute("L", "T", "U")
    return side.finish(pivots)


def lower_triangular_solve(frame: Frame, group: Group) -> list[Leaf]:
    a, b = group.root.inputs
    params = dict(group.root.params)
    side = RightSide(frame, group, a, b)
    side.prepare()
    side.substitute(
        "U" if params.get("lower", True) else "L",
        "N" if params.get("transposed", False) else "T",
        "U" if params.get("unit", False) else "N",
    )
    return side.finish()


class RightSide:
    """Right sides, solved in place in the output, up to 64 columns at a time. Triangles are named
    as LAPACK sees them: what is lower by rows is upper (U) by columns, and to solve with it as it
    was means to solve with its transpose (T)."""

    def __init__(self, frame: Frame, group: Group, triangles: Node, b: Node) -> None:
        self.rows, self.width = b.type.shape[-2:]
        self.m = Matrices(frame.memory, group, self.width, COLUMNS)
        self.b, self.params = b, dict(group.root.params)
        (self.out,) = self.m.results()
        self.triangles = self.memory_of(triangles)

    def memory_of(self, node: Node) -> HostMemory:
        """Where the triangles are; a constant of one value is in no memory, so it is written out,
        once for all systems."""
        value = value_of(node)
        if value is None:
            return self.m.given(self.m.memory.slots[node], "read")
        made = self.m.memory.temp("triangles", self.m.dtype, self.rows, self.rows)
        frame = Frame(f"{self.m.group.name}_constant", self.m.memory)
        target = frame.view(made, self.m.real, "write")
        with frame.k.loop(frame.sizes.val(self.rows * self.rows)) as i:
            frame.k.store(target, i, frame.k.const(value, self.m.real))
        self.m.steps.append(frame.finish(1, self.m.group))
        return HostMemory(made, "read")

    @property
    def policy(self) -> str | None:
        """What a zero on the diagonal leads to."""
        return None if self.params.get("unit", False) else self.params.get("on_failure", "raise")

    def prepare(self, pivots: Node | None = None) -> None:
        """The right side where the solution shall be, its rows exchanged before it is solved."""
        part = ColumnBlock(self, "fill")
        if self.policy == "raise":
            first = part.first_zero()
            part.kernel.trap(first < part.n, first, singular_error)
        out = part.kernel.output(self.out, "write" if pivots is None else "readwrite")
        part.each(lambda at: part.k.store(out, at, part.kernel.load(self.b, at)))
        if pivots is not None:
            part.exchange(out, pivots, reverse=False)
        self.m.run(part.kernel)

    def finish(self, pivots: Node | None = None) -> list[Leaf]:
        """Rows exchanged after they were solved; NaN for a singular system, if that is wanted."""
        if pivots is None and self.policy != "nan":
            return self.m.steps
        part = ColumnBlock(self, "finish")
        out = part.kernel.changed(self.out)
        if pivots is not None:
            part.exchange(out, pivots, reverse=True)
        if self.policy == "nan":
            nan = part.k.const(float("nan"), self.m.real)
            with part.k.when(part.first_zero() < part.n):
                part.each(lambda at: part.k.store(out, at, nan))
        self.m.run(part.kernel)
        return self.m.steps

    def substitute(self, triangle: str, turn: str, unit: str) -> None:
        """A vector by trsv; several columns, rows by LAPACK's reading, by trsm with the triangle on
        their right."""
        m, n, flops = self.m, self.rows, self.rows * self.rows * self.width
        if self.width == 1:
            operands = (n, self.triangles, n, m.given(self.out), 1)
            m.call("trsv", f"{triangle}{turn}{unit}imimi", *operands, flops=flops)
            return
        form = f"R{triangle}{'N' if turn == 'T' else 'T'}{unit}iimmimi"
        out = m.given(self.out, per_block=COLUMNS)
        m.call(
            "trsm", form, self.width, n, HostMemory(self.one(), "read"), self.triangles, n, out,
            self.width, flops=flops, split=0,
        )  # fmt: skip

    def one(self) -> Slot:
        """The number that `trsm` multiplies with."""
        held = np.ones(1, self.m.dtype.np)
        return constant_slot(TABLE, ArrayType(self.m.dtype, (1,)), Literal(held))


class ColumnBlock:
    """A kernel whose workgroup has up to 64 columns of a right side."""

    def __init__(self, side: RightSide, what: str) -> None:
        self.side, self.kernel = side, side.m.kernel(what)
        self.k, parts = self.kernel.k, side.m.parts
        self.n = self.kernel.size(side.rows)
        self.pitch = self.kernel.size(side.width * parts)  # in floats
        # the first float of a row that is this workgroup's
        left = self.kernel.block * (COLUMNS * parts)
        self.count = self.k.min(self.pitch - left, COLUMNS * parts)
        self.begin = self.kernel.start(side.rows, side.width) + left

    def at(self, row: Val, column: Val) -> Val:
        return self.begin + row * self.pitch + column

    def each(self, body: object) -> None:
        """body(at) for every float of the block."""
        with self.k.loop(self.n) as i:
            self.kernel.each(self.count, lambda j: body(self.at(i, j)))  # type: ignore[operator]

    def first_zero(self) -> Val:
        """The first row with a zero on its diagonal, or the number of rows."""
        k, kernel, parts = self.k, self.kernel, self.side.m.parts
        place = self.side.triangles
        memory = kernel.input(place.slot)
        corner = kernel.system * kernel.size(place.per_system * parts)
        found = k.local(self.n)
        with k.loop(self.n) as i:
            at = corner + (i * self.n + i) * parts
            is_zero = k.load(memory, at).eq(0)
            if parts == 2:
                is_zero = is_zero & k.load(memory, at + 1).eq(0)
            found.set(k.select(is_zero, k.min(found.get(), i), found))
        return found.get()

    def exchange(self, out: Buffer, pivots: Node, *, reverse: bool) -> None:
        k, kernel = self.k, self.kernel
        order = kernel.input(self.side.m.memory.slots[pivots])
        first = kernel.system * self.n
        with k.loop(self.n) as step:
            row = self.n - 1 - step if reverse else step
            other = k.cast(k.load(order, first + row), index)

            def swap(j: Val, row: Val = row, other: Val = other) -> None:
                a, b = k.load(out, self.at(row, j)), k.load(out, self.at(other, j))
                k.store(out, self.at(row, j), b)
                k.store(out, self.at(other, j), a)

            kernel.each(self.count, swap)
