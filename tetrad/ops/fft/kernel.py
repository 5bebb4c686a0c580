"""Kernels, Fourier transforms: the ops as stages, each a transform of a smooth length or a sweep
over numbers.

Stages are written once and run in three ways (`ops.fft.distribution`): short lines together, one in
each lane; a long line in one workgroup; a very long one in several launches. The way depends on
sizes, the arithmetic on the length alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tetrad.core.op import Op
from tetrad.core.sizes import product
from tetrad.core.types import ArrayType
from tetrad.graph.group import Group
from tetrad.graph.nodes import Literal, Node
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import TABLE, Frame
from tetrad.ops.fft.butterfly import (
    Pair,
    conjugate,
    minus,
    plus,
    scaled,
    swapped,
    times,
    turned_back,
    turned_on,
)
from tetrad.ops.fft.distribution import in_lanes, in_launches, in_row
from tetrad.ops.fft.op import fft, irfft, length_of, rfft, scale_of
from tetrad.ops.fft.plan import (
    Tables,
    chirp,
    chirp_spectrum,
    convolution_length,
    radices,
    roots,
    split,
)
from tetrad.ops.fft.stages import (
    Load,
    Stage,
    Store,
    Sweep,
    Transform,
    TransformJob,
    TransformKernel,
    row_pitch,
)
from tetrad.schedule.nodes import Launch, Slot

# a line of complex numbers up to this size stays in the scratch of one workgroup
KEPT_BYTES = 1 << 18


class Stages:
    """The stages of one op, with the memory between them and the constants they need."""

    def __init__(self, node: Node) -> None:
        self.n: int = (
            node.param("n") if node.op is irfft else node.inputs[0].type.shape[node.param("axis")]
        )
        self.inverse = node.op is irfft or (node.op is fft and node.param("inverse"))
        self.scale = scale_of(node.param("norm"), self.n, inverse=self.inverse)
        self.dtype = node.type.dtype.real
        self.tables = Tables(self.dtype)
        self.stages: list[Stage] = []
        self.planes: dict[str, int] = {}

    def sweep(self, count: int, body: Callable[[TransformKernel, Val], None]) -> None:
        if count:
            self.stages.append(Sweep(count, body))

    def smooth(self, n: int, load: Load, store: Store) -> None:
        self.tables.add_transform(n)
        factors = split(n)
        if factors is not None:
            self.planes[f"split{n}"] = factors[0] * row_pitch(True, factors[1])
        self.stages.append(Transform(n, load, store))

    def transform(self, n: int, load: Load, store: Store) -> None:
        """Of any length: by radices, or by a convolution with a chirp (Bluestein)."""
        if radices(n) is not None:
            self.smooth(n, load, store)
            return
        m = convolution_length(n)
        turns = self.tables.add(("chirp", n), lambda: chirp(n))
        spectrum = self.tables.add(("wave", n), lambda: chirp_spectrum(n, m))
        self.planes |= {"padded": m, "filtered": m}

        def filtered(walk: TransformKernel, i: Val, off: int, value: Pair) -> None:
            walk.store("filtered", i, off, times(walk.k, value, walk.factor(spectrum, i, off)))

        def back(walk: TransformKernel, i: Val, off: int, value: Pair) -> None:
            walk.store("padded", i, off, swapped(value))

        self.sweep(
            n, lambda w, i: w.store("padded", i, 0, times(w.k, load(w, i, 0), w.factor(turns, i)))
        )
        self.sweep(m - n, lambda w, i: w.store("padded", i, n, (w.zero, w.zero)))
        self.smooth(m, lambda w, i, off: w.load("padded", i, off), filtered)
        self.smooth(m, lambda w, i, off: swapped(w.load("filtered", i, off)), back)
        self.sweep(
            n, lambda w, i: store(w, i, 0, times(w.k, w.load("padded", i), w.factor(turns, i)))
        )


# -- the ops ---------------------------------------------------------------------------------------


def fft_stages(made: Stages) -> None:
    def turn(value: Pair) -> Pair:
        return swapped(value) if made.inverse else value

    def load(walk: TransformKernel, i: Val, off: int) -> Pair:
        return turn(walk.source.pair(i, off))

    def store(walk: TransformKernel, i: Val, off: int, value: Pair) -> None:
        walk.target.put_pair(i, off, scaled(turn(value), made.scale))

    made.transform(made.n, load, store)


def rfft_stages(made: Stages) -> None:
    """An even number of reals are half as many complex numbers, whose spectrum is taken apart
    afterwards."""
    if made.n % 2:
        rfft_of_odd(made)
        return
    half = made.n // 2
    made.planes["whole"] = half + 1
    table = made.tables.add(("half", made.n), lambda: roots(made.n, np.arange(half // 2 + 1)))

    def store(walk: TransformKernel, i: Val, off: int, value: Pair) -> None:
        walk.store("whole", i, off, value)
        if off == 0:
            walk.close("whole", i, value, half)

    def parted(walk: TransformKernel, i: Val) -> None:
        """Even numbers have the sum of a frequency and its opposite, odd ones the difference."""
        here = walk.load("whole", i)
        there = conjugate(walk.backward(lambda at: walk.load("whole", at), half - i))
        even = plus(here, there)
        odd = times(walk.k, turned_back(minus(here, there)), walk.factor(table, i))
        first, last = (
            scaled(value, made.scale / 2)
            for value in (plus(even, odd), conjugate(minus(even, odd)))
        )
        walk.target.put_pair(i, 0, first)
        walk.put_backward(lambda at, value: walk.target.put_pair(at, 0, value), half - i, last)

    made.transform(half, lambda walk, i, off: walk.source.two(i, off), store)
    made.sweep(half // 2 + 1, parted)


def rfft_of_odd(made: Stages) -> None:
    made.planes["whole"] = made.n

    def store(walk: TransformKernel, i: Val, off: int, value: Pair) -> None:
        walk.store("whole", i, off, value)

    made.transform(made.n, lambda walk, i, off: (walk.source.one(i, off), walk.zero), store)
    made.sweep(
        made.n // 2 + 1,
        lambda w, i: w.target.put_pair(i, 0, scaled(w.load("whole", i), made.scale)),
    )


def irfft_stages(made: Stages) -> None:
    """The same backwards: complex numbers whose parts are the even and the odd reals."""
    if made.n % 2:
        irfft_to_odd(made)
        return
    half = made.n // 2
    made.planes["whole"] = half + 1  # the last is never read
    table = made.tables.add(("half", made.n), lambda: roots(made.n, np.arange(half // 2 + 1)))

    def joined(walk: TransformKernel, i: Val) -> None:
        here = without_first(walk, i, walk.source.pair(i))
        there = conjugate(without_first(walk, i, walk.backward(walk.source.pair, half - i)))
        even = plus(here, there)
        odd = turned_on(times(walk.k, minus(here, there), conjugate(walk.factor(table, i))))
        walk.store("whole", i, 0, plus(even, odd))
        last = conjugate(minus(even, odd))
        walk.put_backward(lambda at, value: walk.store("whole", at, 0, value), half - i, last)

    def store(walk: TransformKernel, i: Val, off: int, value: Pair) -> None:
        walk.target.put_two(i, off, scaled(swapped(value), made.scale))

    made.sweep(half // 2 + 1, joined)
    made.transform(half, lambda walk, i, off: swapped(walk.load("whole", i, off)), store)


def irfft_to_odd(made: Stages) -> None:
    n, half = made.n, made.n // 2
    made.planes["whole"] = n

    def mirrored(walk: TransformKernel, i: Val) -> None:
        opposite = conjugate(walk.source.pair(i, 1))
        walk.put_backward(lambda at, value: walk.store("whole", at, 0, value), n - 1 - i, opposite)

    def store(walk: TransformKernel, i: Val, off: int, value: Pair) -> None:
        walk.target.put_one(i, off, scaled(swapped(value), made.scale)[0])

    made.sweep(
        half + 1,
        lambda walk, i: walk.store("whole", i, 0, without_first(walk, i, walk.source.pair(i))),
    )
    made.sweep(half, mirrored)
    made.transform(n, lambda walk, i, off: swapped(walk.load("whole", i, off)), store)


def without_first(walk: TransformKernel, i: Val, value: Pair) -> Pair:
    """The first number of a spectrum, and the middle one, are real, whatever their imaginary parts
    say."""
    return value[0], walk.without_first(i, value[1])


STAGES: dict[Op, Callable[[Stages], None]] = {
    fft: fft_stages,
    rfft: rfft_stages,
    irfft: irfft_stages,
}


@fft.kernel
@rfft.kernel
@irfft.kernel
def lower_fft(frame: Frame, group: Group) -> list[Launch]:
    """A transform along an axis."""
    node = group.root
    job = job_of(frame, group, node)
    longest = max(stage.n for stage in job.stages if isinstance(stage, Transform))
    if job.inner != 1 or split(longest) is None:
        return [in_lanes(job)]
    return [in_row(job)] if longest * 2 * job.dtype.nbytes <= KEPT_BYTES else in_launches(job)


def job_of(frame: Frame, group: Group, node: Node) -> TransformJob:
    """What is to be done, whichever way it is done: the stages of the op, its tables, how lines lie
    in memory."""
    made = Stages(node)
    STAGES[node.op](made)
    operand, axis, memory = node.inputs[0], node.param("axis"), frame.memory
    table = made.tables.array()
    return TransformJob(
        group=group,
        memory=memory,
        dtype=made.dtype,
        stages=tuple(made.stages),
        planes=made.planes,
        tables=made.tables,
        table=Slot(TABLE, ArrayType(made.dtype, (table.size,)), "constant", literal=Literal(table)),
        source=memory.slots[operand],
        target=memory.slots[node],
        taken=floats_of(operand.type, axis),
        given=floats_of(node.type, axis),
        outer=product(operand.type.shape[:axis]),
        inner=product(operand.type.shape[axis + 1 :]),
    )


def floats_of(kind: ArrayType, axis: int) -> int:
    """Of one line."""
    return length_of("fft", kind.shape[axis], kind) * (2 if kind.dtype.is_complex else 1)
