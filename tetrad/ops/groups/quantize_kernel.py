"""Kernels that quantise in groups: factors of each group, then codes of its elements.

Groups that are whole vectors of 32 are read twice by one workgroup, the second time from the
nearest cache. Of others one kernel finds the factors, a group in each lane, and another makes
bytes, whose two elements may belong to different groups. The same operations in the same order as
`quant.groups`.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.dtypes import DType, f32, i32, u8, u32
from tetrad.core.machine import LANES
from tetrad.core.record import record
from tetrad.core.sizes import plain, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.ops.groups.decode import nf4_code, nf4_midpoints
from tetrad.quant.groups import (
    LEVELS,
    MIDDLE,
    MIDPOINTS,
    STEPS,
    group_count,
    has_zeros,
    not_finite,
    range_error,
)
from tetrad.schedule.nodes import Launch, Slot

PAIR = 2 * LANES
EVEN, ODD = tuple(range(0, PAIR, 2)), tuple(range(1, PAIR, 2))
RUN = 8192  # elements of a workgroup, about
LARGEST = 1 << 16  # elements of a group that one workgroup takes
ROUNDER, ROUNDER_BITS = 1.5 * 2**23, 0x4B400000
INF = float("inf")


def lower_quantize(frame: Frame, group: Group) -> list[Launch]:
    job = Quantizer(group.root)
    if not job.n:
        return []
    if job.is_even:
        return [lower_vectors(frame, group, job)]
    slots = frame.memory.results(group.root)
    first = lower_factors(frame, group, job, slots)
    second = Frame(group.name + "_codes", frame.memory, inputs=frame.inputs)
    second.reads(frame.inputs)
    return [first, lower_codes(second, group, job, slots)]


@record
class Quantizer:
    """What is to be done: an op on an array of n elements, of which `each` lie below one place of
    the leading axes."""

    node: Node

    @property
    def scheme(self) -> str:
        return str(self.node.param("scheme"))

    @property
    def size(self) -> int:
        """Elements of a group."""
        return int(self.node.param("group"))

    @property
    def n(self) -> int:
        return plain(product(self.node.inputs[0].type.shape))

    @property
    def each(self) -> int:
        lead = dict(self.node.params).get("lead", 0)
        return plain(product(self.node.inputs[0].type.shape[lead:]))

    @property
    def groups(self) -> int:
        """In all."""
        return self.n // self.each * group_count(self.each, self.size)

    @property
    def dtype(self) -> DType:
        """Of the arithmetic."""
        return self.node.inputs[0].type.dtype.computing

    @property
    def is_even(self) -> bool:
        fits = self.size % PAIR == 0 and self.size <= LARGEST
        return fits and self.each % self.size == 0 and self.dtype is f32


# -- factors ---------------------------------------------------------------------------------------


@record
class Extremes:
    """Of the elements of a group seen so far: the least, the greatest, the greatest magnitude."""

    low: Val
    high: Val
    top: Val


def factors(frame: Frame, job: Quantizer, seen: Extremes, group: Val) -> tuple[Val, Val]:
    """The scale and the zero point; where there are none, the program stops."""
    k, dtype = frame.k, job.dtype
    none, one = k.const(0.0, dtype), k.const(1.0, dtype)
    refuse(frame, job, (seen.top < INF).eq(False), group, lambda at: not_finite(job.scheme, at))
    low, high = seen.low, seen.high
    if job.scheme == "int4":
        low, high = k.select(low < none, low, none), k.select(high > none, high, none)
    raw = {
        "nf4": lambda: seen.top,
        "int4_symmetric": lambda: seen.top / k.const(STEPS, dtype),
    }.get(job.scheme, lambda: (high - low) / k.const(LEVELS, dtype))()
    refuse(frame, job, (raw < INF).eq(False), group, lambda _: range_error(job.scheme))
    scale = k.select(raw.eq(none), one, raw)
    if not has_zeros(job.scheme):
        return scale, none
    zero = none - low / scale
    if job.scheme == "int4":
        zero = k.round_even(zero)
        zero = k.select(zero > LEVELS, k.const(LEVELS, dtype), zero)
    return scale, zero


def refuse(
    frame: Frame, job: Quantizer, bad: Val, group: Val, explain: Callable[[int], Exception]
) -> None:
    frame.reading.refuse(job.node, (bad, group, explain))  # type: ignore[arg-type]


def code_of(
    k: KernelBuilder, job: Quantizer, x: Val, scale: Val, zero: Val, midpoints: Val | None
) -> Val:
    """The code (u32). Adding 1.5 * 2**23 to an f32 leaves it rounded to even in the low bits."""
    ratio = x / scale
    if job.scheme == "nf4":
        return nf4_code(k, ratio, midpoints) if midpoints is not None else counted(k, job, ratio)
    shifted = ratio + zero if job.scheme == "int4_float" else ratio
    if job.dtype is f32:
        steps = k.bitcast(shifted + ROUNDER, i32) - ROUNDER_BITS
    else:
        steps = k.cast(k.round_even(shifted), i32)
    if job.scheme != "int4_float":
        steps = steps + (MIDDLE if job.scheme == "int4_symmetric" else k.cast(zero, i32))
    return k.bitcast(k.max(k.min(steps, LEVELS), 0), u32)


def counted(k: KernelBuilder, job: Quantizer, ratio: Val) -> Val:
    code = k.const(0, u32)
    for midpoint in MIDPOINTS:
        code = code + k.cast(ratio > k.const(midpoint, job.dtype), u32)
    return code


# -- whole vectors ---------------------------------------------------------------------------------


def lower_vectors(frame: Frame, group: Group, job: Quantizer) -> Launch:
    """Some groups a workgroup."""
    k, slots = frame.k, frame.memory.results(group.root)
    codes = frame.view(slots[0], u8, "write")
    outputs = [frame.output(slot) for slot in slots[1:]]
    x = frame.reading.buffers[group.root.inputs[0]]
    per = max(1, RUN // job.size)
    midpoints = nf4_midpoints(k) if job.scheme == "nf4" else None
    first = k.group_id() * per
    with k.loop(k.min(first + per, job.groups), first) as at:
        start = at * job.size
        seen = extremes_of_lanes(k, job, x, start)
        scale, zero = factors(frame, job, seen, at)
        for buffer, value in zip(outputs, (scale, zero), strict=True):
            k.store(buffer, at, value)
        with k.loop(job.size, 0, PAIR) as step:
            halves = [
                code_of(k, job, read(k, x, start + step + h * LANES), scale, zero, midpoints)
                for h in range(2)
            ]
            low, high = (k.shuffle(halves[0], halves[1], lanes) for lanes in (EVEN, ODD))
            where = (start + step) // 2 + k.lane()
            k.store(codes, where, k.cast(low | (high << 4), u8))
    return frame.finish(-(-job.groups // per), group, flops=job.n * 8)


def read(k: KernelBuilder, x: Buffer, at: Val) -> Val:
    return k.cast(k.load(x, at + k.lane()), f32)


def extremes_of_lanes(k: KernelBuilder, job: Quantizer, x: Buffer, start: Val) -> Extremes:
    """Magnitudes are compared as integers, which orders floats alike and puts NaN on top."""
    here = read(k, x, start)
    low, high = k.local(here), k.local(here)
    top = k.local(0, i32)
    with k.loop(job.size, 0, LANES) as step:
        here = read(k, x, start + step)
        top.set(k.max(top.get(), k.bitcast(k.abs(here), i32)))
        if has_zeros(job.scheme):
            low.set(k.select(here < low.get(), here, low.get()))
            high.set(k.select(here > high.get(), here, high.get()))
    greatest = k.bitcast(joined(k, top.get(), k.max), f32)
    if not has_zeros(job.scheme):
        return Extremes(greatest, greatest, greatest)
    return Extremes(
        joined(k, low.get(), lambda a, b: k.select(b < a, b, a)),
        joined(k, high.get(), lambda a, b: k.select(b > a, b, a)),
        greatest,
    )


def joined(k: KernelBuilder, x: Val, join: Callable[[Val, Val], Val]) -> Val:
    """Over all lanes."""
    for step in (8, 4, 2, 1):
        x = join(x, k.shuffle(x, x, tuple(i ^ step for i in range(LANES))))
    return k.broadcast(x)


# -- any groups ------------------------------------------------------------------------------------


def lower_factors(frame: Frame, group: Group, job: Quantizer, slots: tuple[Slot, ...]) -> Launch:
    """A group in each lane."""
    k, x = frame.k, frame.reading.buffers[group.root.inputs[0]]
    outputs = [frame.output(slot) for slot in slots[1:]]
    lane, per = k.group_id() * LANES + k.lane(), group_count(job.each, job.size)
    with frame.within(lane, k.index(job.groups), job.groups):
        base, within = lane // per * job.each, lane % per * job.size
        here = k.cast(k.load(x, base + within), job.dtype)
        low, high, top = k.local(here), k.local(here), k.local(k.abs(here))
        with k.loop(min(job.size, job.each)) as i, k.when(within + i < job.each):
            here = k.cast(k.load(x, base + within + i), job.dtype)
            low.set(k.min(low.get(), here))
            high.set(k.max(high.get(), here))
            top.set(k.max(top.get(), k.abs(here)))
        seen = Extremes(low.get(), high.get(), top.get())
        for buffer, value in zip(outputs, factors(frame, job, seen, lane), strict=True):
            k.store(buffer, lane, value)
    return frame.finish(-(-job.groups // LANES), group, flops=job.n * 3)


def lower_codes(frame: Frame, group: Group, job: Quantizer, slots: tuple[Slot, ...]) -> Launch:
    """A byte in each lane."""
    k, x = frame.k, frame.reading.buffers[group.root.inputs[0]]
    codes = frame.view(slots[0], u8, "write")
    found = [frame.input(slot) for slot in slots[1:]]
    count, per = -(-job.n // 2), group_count(job.each, job.size)
    byte = k.group_id() * LANES + k.lane()

    def code_at(at: Val) -> Val:
        where = at // job.each * per + at % job.each // job.size
        scale, zero = (k.load(buffer, where) for buffer in found)
        return code_of(k, job, k.cast(k.load(x, at), job.dtype), scale, zero, None)

    with frame.within(byte, k.index(count), count):
        low, high = code_at(byte * 2), k.local(0, u32)
        with k.when(byte * 2 + 1 < job.n):
            high.set(code_at(byte * 2 + 1))
        k.store(codes, byte, k.cast(low | (high.get() << 4), u8))
    return frame.finish(-(-count // LANES), group, flops=job.n * 4)
