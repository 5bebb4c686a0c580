"""Kernels of Fourier transforms, the distribution of lines over lanes, workgroups and launches: a
job in, launches out. All distributions give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tetrad.core.record import record
from tetrad.core.sizes import ceil_div
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.ops.fft.butterfly import Pair
from tetrad.ops.fft.io import FarLines, Held, NearLines
from tetrad.ops.fft.plan import split
from tetrad.ops.fft.stages import (
    Slots,
    Stage,
    Sweep,
    Transform,
    TransformJob,
    TransformKernel,
    columns,
    flops_of,
    passes,
    rows,
)
from tetrad.schedule.nodes import Launch, Slot


@record
class Phase:
    """A part of a stage whose blocks of positions do not wait for each other."""

    name: str
    count: int
    flops: int  # of one line
    body: Callable[[TransformKernel, Val], None]


def phases(stage: Stage) -> Iterator[Phase]:
    if isinstance(stage, Sweep):
        yield Phase("sweep", stage.count, flops_of(stage), stage.body)
        return
    a, b = split(stage.n) or (stage.n, 1)
    flops = flops_of(stage) // 2
    yield Phase("columns", b, flops, lambda walk, start: columns(walk, stage, start))
    yield Phase("rows", a, flops, lambda walk, start: rows(walk, stage, start))


def run(walk: TransformKernel, stage: Stage) -> None:
    """A stage inside a kernel, block after block."""
    if isinstance(stage, Transform) and split(stage.n) is None:
        run_whole(walk, stage)
        return
    for phase in phases(stage):
        with walk.each(phase.count) as start:
            phase.body(walk, start)
        if walk.is_row:
            walk.k.barrier()  # the next phase reads what all lanes have written


def run_whole(walk: TransformKernel, stage: Transform) -> None:
    """A transform too short to be split, or without factors for it: every lane has a line."""

    def load(i: Val, off: int) -> Pair:
        return stage.load(walk, i, off)

    def store(i: Val, off: int, value: Pair) -> None:
        stage.store(walk, i, off, value)

    passes(walk, stage.n, load, store)


# -- a line in a lane ------------------------------------------------------------------------------


def in_lanes(job: TransformJob) -> Launch:
    """Lines side by side, however they lie in memory."""
    if job.inner == 1:
        return by_rows(job)
    return (
        by_columns(job, job.inner)
        if isinstance(job.inner, int) and job.inner >= job.lanes
        else by_lines(job)
    )


def by_rows(job: TransformJob) -> Launch:
    """Line after line in memory: turned on the way in and out."""
    walk = TransformKernel(job, is_row=False)
    first, lines = walk.k.group_id() * job.lanes, walk.frame.sizes.val(job.lines)
    fetched = Held(walk.frame, walk.view_source(), first, lines, job.taken, job.lanes)
    flushed = Held(walk.frame, walk.view_target(), first, lines, job.given, job.lanes)
    walk.make_source, walk.make_target = lambda: fetched, lambda: flushed
    fetched.fetch()
    for stage in job.stages:
        run(walk, stage)
    flushed.flush()
    return walk.finish(ceil_div(job.lines, job.lanes), flops=job.flops)


def by_columns(job: TransformJob, inner: int) -> Launch:
    """The axis is not the last: neighbouring lines are neighbours in memory."""
    walk = TransformKernel(job, is_row=False)
    k, lanes, across = walk.k, job.lanes, -(-inner // job.lanes)
    outer, block = k.group_id() // across, k.group_id() % across
    column = block * lanes if inner % lanes == 0 else k.min(block * lanes, inner - lanes)

    def end(buffer: Buffer, slot: Slot, count: int) -> NearLines:
        return NearLines(
            walk.frame, buffer, outer * (inner * count) + column * job.width(slot), inner, lanes
        )

    walk.make_source = lambda: end(walk.view_source(), job.source, job.taken)
    walk.make_target = lambda: end(walk.view_target(), job.target, job.given)
    for stage in job.stages:
        run(walk, stage)
    return walk.finish(job.outer * across, flops=job.flops)


def by_lines(job: TransformJob) -> Launch:
    """The axis is not the last, and those after it are short or of unknown size."""
    walk = TransformKernel(job, is_row=False)
    sizes, first = walk.frame.sizes, walk.k.group_id() * job.lanes
    lines, inner = sizes.val(job.lines), sizes.val(job.inner)

    def end(buffer: Buffer, slot: Slot, count: int) -> FarLines:
        return FarLines(walk.frame, buffer, first, lines, inner, count, job.width(slot))

    walk.make_source = lambda: end(walk.view_source(), job.source, job.taken)
    walk.make_target = lambda: end(walk.view_target(), job.target, job.given)
    for stage in job.stages:
        run(walk, stage)
    return walk.finish(ceil_div(job.lines, job.lanes), flops=job.flops)


# -- a line in a workgroup, or in many -------------------------------------------------------------


def in_row(job: TransformJob) -> Launch:
    """A line in a workgroup."""
    walk = TransformKernel(job, is_row=True)
    contiguous(walk, walk.k.group_id(), ahead=job.taken)
    for stage in job.stages:
        run(walk, stage)
    return walk.finish(job.lines, flops=job.flops)


def in_launches(job: TransformJob) -> list[Launch]:
    """A long line by many workgroups: every phase of a stage is a launch."""
    slots = {
        name: (temporary(job, name, n), temporary(job, name, n)) for name, n in job.planes.items()
    }
    launches: list[Launch] = []
    for stage in job.stages:
        for phase in phases(stage):
            written = frozenset(slot for launch in launches for slot in launch.writes)
            launches.append(launch_of(job, phase, slots, written))
    return launches


def temporary(job: TransformJob, name: str, count: int) -> Slot:
    return job.memory.temp(name, job.dtype, job.lines, count)


def launch_of(job: TransformJob, phase: Phase, slots: Slots, written: frozenset[Slot]) -> Launch:
    """A workgroup for each block of each line. Memory that an earlier launch wrote keeps what is
    not written now."""
    walk = TransformKernel(job, f"_{phase.name}", is_row=True, slots=slots)
    blocks = walk.blocks(phase.count)
    walk.line = walk.k.group_id() // blocks
    contiguous(walk, walk.line)
    phase.body(walk, walk.start(walk.k.group_id() % blocks, phase.count))
    return walk.finish(
        job.lines * blocks,
        flops=job.lines * phase.flops,
        updates=frozenset(walk.frame.writes) & written,
    )


def contiguous(walk: TransformKernel, line: Val, ahead: int = 0) -> None:
    """Operand and result lie in memory line by line; that far `ahead` will be read next."""
    job = walk.job
    walk.make_source = lambda: NearLines(
        walk.frame, walk.view_source(), line * job.taken, 1, job.lanes, ahead
    )
    walk.make_target = lambda: NearLines(
        walk.frame, walk.view_target(), line * job.given, 1, job.lanes
    )
