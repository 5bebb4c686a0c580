"""Linear algebra by LAPACK, the parts: kernels that have a workgroup for each matrix, and calls of
routines between them.

A generator prepares matrices where a routine wants them, calls it (`HostCall`), and looks at what
it reported; `lapack_systems` and `lapack_factors` hold the generators. Matrices lie by rows here
and by columns there, so LAPACK sees every matrix transposed; routines are chosen so that little has
to be turned around. Kernels see complex numbers as pairs of floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tetrad.core.dtypes import DType, i32, i64, index
from tetrad.core.errors import TetradError
from tetrad.core.machine import LANES
from tetrad.core.sizes import Size, ceil_div, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import splat_value
from tetrad.ops.linalg.small_systems import trap_at
from tetrad.ops.linalg.systems import LETTERS, finite_error
from tetrad.schedule import lapack
from tetrad.schedule.nodes import HostCall, HostMemory, HostRoom, Leaf, Slot

Explain = Callable[[str, int, tuple[int, ...], int], TetradError]


class Matrices:
    """The steps that one op takes for all matrices of its operand, in order. `most`: columns that a
    kernel or a call takes at a time, of an operand of that width."""

    def __init__(self, memory: Memory, group: Group, width: Size = 1, most: int = 1) -> None:
        self.memory, self.group, self.node = memory, group, group.root
        self.a = group.root.inputs[0]
        self.lead = self.a.type.shape[:-2]
        self.count = product(self.lead)
        self.most, self.blocks = most, ceil_div(width, most)
        self.dtype = self.a.type.dtype
        self.real, self.parts = self.dtype.real, 2 if self.dtype.is_complex else 1
        self.integer: DType = i64 if lapack.library().bits == 64 else i32
        self.steps: list[Leaf] = []

    # -- memory ------------------------------------------------------------------------------------

    def temp(self, name: str, dtype: DType, *shape: Size) -> Slot:
        """Memory that lives from one step to the next, a part for each system."""
        return self.memory.temp(name, dtype, *self.lead, *shape)

    def results(self) -> tuple[Slot, ...]:
        if len(self.node.types) > 1:
            return self.memory.results(self.node)
        return (self.memory.slots[self.node],)

    def room(self, dtype: DType, count: Size) -> HostRoom:
        return HostRoom(count * dtype.np.itemsize)

    def given(
        self, slot: Slot, access: str = "readwrite", offset: Size = 0, per_block: Size = 0
    ) -> HostMemory:
        """What a slot has for each system, from its element `offset` on."""
        each = product(slot.type.shape[len(self.lead) :])
        return HostMemory(slot, access, offset, each, per_block)

    # -- steps -------------------------------------------------------------------------------------

    def kernel(self, what: str) -> MatrixKernel:
        return MatrixKernel(self, f"{self.group.name}_{what}")

    def run(self, kernel: MatrixKernel) -> None:
        self.steps.append(
            kernel.frame.finish(
                self.count * kernel.blocks, self.group, updates=frozenset(kernel.updates)
            )
        )

    def call(
        self,
        routine: str,
        form: str,
        *operands: Size | HostMemory | HostRoom,
        flops: Size = 0,
        split: int | None = None,
    ) -> None:
        """`form` as in `schedule.lapack`, integers written `i`; flops are those of one system."""
        memory = tuple(x for x in operands if isinstance(x, HostMemory | HostRoom))
        numbers = tuple(x for x in operands if not isinstance(x, HostMemory | HostRoom))
        self.steps.append(
            HostCall(
                LETTERS[self.dtype.np.name] + routine,
                form.replace("i", lapack.integer()),
                numbers,
                memory,
                self.count,
                None if split is None else (split, self.most),
                self.count * flops * self.parts,
                self.node.source,
                self.group,
            )
        )

    def check(self, info: Slot, explain: Explain, *, counts_rows: bool = False) -> MatrixKernel:
        """A kernel that begins with what LAPACK reports in `info`, which stops the program; some
        routines count rows in it, from 1."""
        kernel = self.kernel("check")
        code = kernel.k.cast(kernel.k.load(kernel.input(info), kernel.system), index)
        kernel.trap(code.ne(0), code - 1 if counts_rows else kernel.k.index(0), explain)
        return kernel


class Policy:
    """What a matrix without an answer leads to, between the kernels of one op: an error where it is
    found, or a mark that makes its results NaN at the end."""

    def __init__(self, matrices: Matrices) -> None:
        self.m = matrices
        self.is_nan = dict(matrices.node.params).get("on_failure", "raise") == "nan"
        self.marks = matrices.temp("failed", matrices.integer, 1) if self.is_nan else None

    def prepare(
        self,
        kernel: MatrixKernel,
        target: Buffer,
        rows: Size,
        columns: Size,
        *,
        lower: bool = False,
        turned: bool = False,
    ) -> None:
        """The matrix where LAPACK wants it, finite numbers only: on others an iteration may never
        end, so marked matrices are zeros there."""
        if self.marks is None:
            kernel.check_finite(self.m.a, rows, columns, lower=lower)
        if turned:
            kernel.copy_turned(target, kernel.start(rows, columns), self.m.a, rows, columns)
        else:
            kernel.copy(target, self.m.a, rows, columns)
        if self.marks is not None:
            failed = kernel.is_not_finite(self.m.a, rows, columns, lower=lower)
            marks = kernel.output(self.marks)
            kernel.k.store(marks, kernel.system, kernel.k.cast(failed, self.m.integer))
            with kernel.k.when(failed):
                kernel.fill(target, 0.0, rows, columns, parts=kernel.parts)

    def check(self, info: Slot, explain: Explain, *, counts_rows: bool = False) -> MatrixKernel:
        """A kernel that begins with what LAPACK reports."""
        if self.marks is None:
            return self.m.check(info, explain, counts_rows=counts_rows)
        return self.m.kernel("check")

    def finish(self, kernel: MatrixKernel, info: Slot) -> None:
        """NaN for the results of marked matrices, and of those on which LAPACK gave up."""
        if self.marks is None:
            return
        k, lead = kernel.k, len(self.m.lead)
        marked, code = (k.load(kernel.input(slot), kernel.system) for slot in (self.marks, info))
        with k.when(marked.ne(0) | code.ne(0)):
            for slot in self.m.results():
                out = kernel.buffers.get(slot) or kernel.changed(slot)
                parts = 2 if slot.type.dtype.is_complex else 1
                kernel.fill(out, math.nan, *slot.type.shape[lead:], parts=parts)


def value_of(node: Node) -> float | None:
    """The number that all elements of a constant have: it is in no memory. Complex ones are."""
    found: float | None = None if node.type.dtype.is_complex else splat_value(node)
    return found


class MatrixKernel:
    """A kernel with a workgroup for each matrix, or for each block of its columns."""

    def __init__(self, matrices: Matrices, name: str) -> None:
        self.matrices = matrices
        self.blocks: Size = matrices.blocks
        self.frame = frame = Frame(name, matrices.memory)
        self.k, self.real, self.parts = frame.k, matrices.real, matrices.parts
        grid = (matrices.count, self.blocks)
        space = Space(frame.k, frame.sizes, grid, frame.k.group_id())
        self.system, self.block = space.span(0, 1), space.span(1, 2)
        self.buffers: dict[Slot, Buffer] = {}
        self.updates: set[Slot] = set()

    def size(self, size: Size) -> Val:
        return self.frame.sizes.val(size)

    def start(self, *sizes: Size) -> Val:
        """Where the floats of this system begin among those of all, in an array with such a matrix
        for each."""
        return self.system * self.size(product(sizes) * self.parts)

    def trap(self, bad: Val, row: Val, explain: Explain) -> None:
        trap_at(self.frame, self.matrices.node, bad, self.system, row, explain)

    # -- memory ------------------------------------------------------------------------------------

    def input(self, slot: Slot) -> Buffer:
        return self.buffer(slot, "read")

    def output(self, slot: Slot, access: str = "write") -> Buffer:
        return self.buffer(slot, access)

    def changed(self, slot: Slot) -> Buffer:
        """What an earlier step has written, to be changed in place."""
        self.updates.add(slot)
        return self.buffer(slot, "readwrite")

    def buffer(self, slot: Slot, access: str) -> Buffer:
        """The memory of a slot, as floats where its numbers are complex; one buffer for each."""
        if slot not in self.buffers:
            self.buffers[slot] = self.frame.view(slot, slot.type.dtype.real, access)
        return self.buffers[slot]

    def load(self, node: Node, at: Val) -> Val:
        """A float of an operand."""
        value = value_of(node)
        if value is not None:
            return self.k.const(value, self.real)
        return self.k.load(self.input(self.matrices.memory.slots[node]), at)

    # -- loops -------------------------------------------------------------------------------------

    def each(self, count: Val, body: Callable[[Val], None], start: object = 0) -> None:
        """body(i) for i from start, 16 lanes at a time."""
        k = self.k
        with k.loop(count, start, step=LANES) as i:
            position = i + k.lane()
            with k.when(position < count, guard=True):
                body(position)

    def copy(self, target: Buffer, node: Node, *sizes: Size) -> None:
        """This system's matrix in target = that of an operand, by rows."""
        k, first = self.k, self.start(*sizes)
        count = self.size(product(sizes) * self.parts)
        self.each(count, lambda e: k.store(target, first + e, self.load(node, first + e)))

    def copy_turned(
        self, target: Buffer, begin: Val, node: Node, rows: Size, columns: Size
    ) -> None:
        """target[begin ...], by columns, = this system's matrix of an operand."""
        k, first = self.k, self.start(rows, columns)
        tall, wide = self.size(rows), self.size(columns)
        with k.loop(tall) as i, k.loop(wide) as j:
            for part in range(self.parts):
                value = self.load(node, first + (i * wide + j) * self.parts + part)
                k.store(target, begin + (j * tall + i) * self.parts + part, value)

    def turn(
        self,
        target: Buffer,
        begin: Val,
        source: Buffer,
        origin: Val,
        rows: Val,
        columns: Val,
        conjugate: bool = False,
    ) -> None:
        """target[begin ...], by rows, = the matrix at source[origin ...], by columns."""
        k = self.k
        with k.loop(rows) as i:
            for part in range(self.parts):

                def move(j: Val, i: Val = i, part: int = part) -> None:
                    value = k.load(source, origin + (j * rows + i) * self.parts + part)
                    k.store(
                        target,
                        begin + (i * columns + j) * self.parts + part,
                        -value if part and conjugate else value,
                    )

                self.each(columns, move)

    def fill(self, target: Buffer, value: float, *sizes: Size, parts: int) -> None:
        """This system's floats of an array with such a matrix for each = value."""
        count, held = self.size(product(sizes) * parts), self.k.const(value, self.real)
        begin = self.system * count
        self.each(count, lambda e: self.k.store(target, begin + e, held))

    def is_not_finite(self, node: Node, rows: Size, columns: Size, *, lower: bool = False) -> Val:
        """Are there NaN or infinities in this system's matrix (in its lower triangle)?"""
        k, n, first = self.k, self.size(columns * self.parts), self.start(rows, columns)
        found = k.local(k.const(0, self.real))
        with k.loop(self.size(rows)) as i, k.loop((i + 1) * self.parts if lower else n) as j:
            value = k.abs(self.load(node, first + i * n + j))
            is_good = value < k.const(math.inf, self.real)
            found.set(k.select(is_good, found.get(), k.const(1, self.real)))
        return found.get().ne(0)

    def check_finite(self, node: Node, rows: Size, columns: Size, *, lower: bool = False) -> None:
        """NaN or infinities in this system's matrix stop the program: on them an iteration may
        never end."""
        k, n, first = self.k, self.size(columns * self.parts), self.start(rows, columns)
        with k.loop(self.size(rows)) as i:

            def look(j: Val) -> None:
                value = k.abs(self.load(node, first + i * n + j))
                self.trap(~(value < k.const(math.inf, self.real)), k.index(0), finite_error)

            self.each((i + 1) * self.parts if lower else n, look)
