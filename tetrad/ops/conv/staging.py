"""Kernels, convolutions: a box of x in scratch, [place][channel], with the zeros around x.

`Staged` copies what the places of a workgroup meet, from either order of axes. Channels that lie
far apart are turned in registers, sixteen by sixteen.
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.core.dtypes import DType
from tetrad.core.machine import LANES
from tetrad.core.types import row_strides
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space, offset
from tetrad.loopnest.reader import At
from tetrad.loopnest.transpose import turned
from tetrad.ops.conv.geometry import Ints

FEW = 4  # channels that are stored one by one
AHEAD = 2  # rows that are asked for before they are staged
TOGETHER = 4  # vectors copied in one go
LINE_BYTES = 64  # of a cache
CROWDED = 1 << 10  # bytes: places so far apart, or a multiple of it, meet in a cache


class Staged:
    """Scratch for `sizes` places along three axes, the last rounded up to whole vectors."""

    def __init__(
        self, frame: Frame, x: Node, dtype: DType, last: bool, channels: int, sizes: Ints,
        pitch: int = 0, most: int = 0,
    ) -> None:  # fmt: skip
        self.frame, self.k, self.x, self.dtype, self.last = frame, frame.k, x, dtype, last
        self.most = most  # channels that there are, where a block may reach past them
        self.channels, self.sizes = channels, sizes
        self.pitch = pitch or pitch_of(channels, dtype)
        self.across = -(-sizes[2] // LANES) * LANES
        self.row = self.across * self.pitch
        self.plane = sizes[1] * self.row
        self.make_buffer()
        shape = x.type.shape[1:-1] if last else x.type.shape[2:]
        self.ends: Ints = (1,) * (3 - len(shape)) + tuple(int(n) for n in shape)  # type: ignore[arg-type]
        self.rank = len(shape)
        self.left_over: Val | None = None  # the last channel of a block that there is

    def make_buffer(self) -> None:
        self.buffer: Buffer = self.frame.scratch(
            "box", self.dtype, self.sizes[0] * self.plane + LANES
        )

    def stage(
        self, batch: Val, channel: Val, starts: Sequence[Val], margins: Sequence[bool],
        first: Val | None = None,
    ) -> None:  # fmt: skip
        """From element `starts` of x on; `margins` says along which axes some may lie outside. With
        `first`, the first channel within its group, channels past the last are repeated."""
        k = self.k
        self.open(batch, channel, starts, margins)
        if first is not None and self.most % self.channels:
            self.left_over = self.most - 1 - first
        k.barrier()
        with k.loop(self.sizes[0], always=True) as d, k.loop(self.sizes[1], always=True) as h:
            place = (starts[0] + d, starts[1] + h)
            to = d * self.plane + h * self.row
            inside = self.inside(place)
            copy = self.copy_last if self.last else self.copy_first
            if inside is None:
                copy(to, place)
            else:
                with k.when(inside):
                    copy(to, place)
                with k.otherwise():
                    self.clear(to, k.index(0), k.index(self.row))
        k.barrier()

    def offset(self, row: int, column: int) -> int:
        """From one place to another, so many rows and columns on."""
        return row * self.row + column * self.pitch

    def open(
        self, batch: Val, channel: Val, starts: Sequence[Val], margins: Sequence[bool]
    ) -> None:
        self.batch, self.channel, self.starts, self.margins = batch, channel, starts, margins
        self.left_over = None

    # -- what comes next ---------------------------------------------------------------------------

    def lines_of(self, rows: int) -> int:
        """Lines of a cache that so many rows of x are, of the staged channels."""
        each = LINE_BYTES // self.x.type.dtype.nbytes
        if self.last:
            return rows * self.ends[2] * -(-self.channels // each)
        return self.channels * -(-rows * self.ends[2] // each)

    def fetch(self, number: Val, rows: int) -> None:
        """Ask for one line of the `rows` rows behind those that are staged, which are staged next:
        memory is idle while tiles are computed."""
        k, each = self.k, LINE_BYTES // self.x.type.dtype.nbytes
        if self.x not in self.frame.reading.buffers:
            return
        shape = self.x.type.shape
        row = self.starts[1] + self.sizes[1]
        if self.last:
            lines = -(-self.channels // each)
            place = row * self.ends[2] + number // lines
            inner, at = number % lines * each + self.channel, (self.batch, place)
        else:
            lines = -(-rows * self.ends[2] // each)
            at = (self.batch, self.channel + number // lines)
            inner = row * self.ends[2] + number % lines * each
        strides = row_strides(shape)
        first = strides[-2] if self.last else strides[1]
        where = at[0] * self.frame.sizes.val(strides[0]) + at[1] * first + inner
        k.prefetch(self.frame.reading.buffers[self.x], where)

    def inside(self, place: Sequence[Val]) -> Val | None:
        found: Val | None = None
        for i, end, margin in zip(place, self.ends, self.margins, strict=False):
            if margin:
                here = (i >= 0) & (i < end)
                found = here if found is None else found & here
        return found

    def clear(self, to: Val, start: Val, stop: Val) -> None:
        k = self.k
        with k.loop(stop, start, LANES) as i, k.when(i + k.lane() < stop, guard=True):
            k.store(self.buffer, to + i + k.lane(), 0.0)

    def at(self, place: Sequence[Val], w: Val, channel: Val) -> At:
        spatial = (*place, w)[3 - self.rank :]
        if self.left_over is not None and not self.last:
            channel = self.k.min(channel, self.left_over)
        channel = self.channel + channel
        if self.last:
            return (self.batch, *spatial, channel)
        return (self.batch, channel, *spatial)

    def element(self, place: Sequence[Val], w: Val, channel: Val) -> Val:
        at = self.at(place, w, channel)
        return self.k.cast(self.frame.reading.wide(self.x, at), self.dtype)

    # -- channels last -----------------------------------------------------------------------------

    def copy_last(self, to: Val, place: Sequence[Val]) -> None:
        """Zeros, elements of x, zeros."""
        k, start = self.k, self.starts[2]
        count = k.index(self.sizes[2])
        first, stop = k.index(0), count
        if self.margins[2]:
            first = k.min(k.max(0 - start, 0), count)
            stop = k.max(k.min(self.ends[2] - start, count), first)
            self.clear(to, k.index(0), first * self.pitch)
            self.clear(to, stop * self.pitch, count * self.pitch)
        if self.is_contiguous:
            self.copy_run(to, place, first * self.pitch, stop * self.pitch)
            return
        with k.loop(stop, first) as w:
            self.copy_place(to + w * self.pitch, place, start + w)

    @property
    def is_contiguous(self) -> bool:
        """Do places lie behind each other in x as they do here?"""
        is_all = self.most in (0, self.channels)
        return is_all and self.x.type.shape[-1] == self.channels == self.pitch

    def copy_run(self, to: Val, place: Sequence[Val], first: Val, stop: Val) -> None:
        """Elements of a row, several vectors at a time."""
        k, many = self.k, TOGETHER * LANES
        whole = first + (stop - first) // many * many
        with k.loop(whole, first, many) as i:
            for v in range(TOGETHER):
                at = i + (v * LANES) + k.lane()
                k.store(self.buffer, to + at, self.run_element(place, at))
        with k.loop(stop, whole, LANES) as i, k.when(i + k.lane() < stop, guard=True):
            at = i + k.lane()
            k.store(self.buffer, to + at, self.run_element(place, at))

    def run_element(self, place: Sequence[Val], at: Val) -> Val:
        """Number `at` of the elements of a row, as they are staged."""
        flat = self.starts[2] * self.channels + at
        axes = Space(self.k, self.frame.sizes, (self.ends[2], self.channels), flat).axes()
        index = (self.batch, *place[3 - self.rank :], *axes)
        return self.k.cast(self.frame.reading.wide(self.x, index), self.dtype)

    def copy_place(self, to: Val, place: Sequence[Val], w: Val) -> None:
        k = self.k
        with k.loop(self.channels, 0, LANES) as c:
            lane = c + k.lane()
            if self.left_over is not None:
                value = k.local(0, self.dtype)
                with k.when(lane <= self.left_over, guard=True):
                    value.set(self.element(place, w, lane))
                k.store(self.buffer, to + lane, value.get())
                return
            with self.frame.within(lane, k.index(self.channels), self.channels):
                k.store(self.buffer, to + lane, self.element(place, w, lane))

    # -- channels first ----------------------------------------------------------------------------

    def copy_first(self, to: Val, place: Sequence[Val]) -> None:
        k = self.k
        with k.loop(self.across, 0, LANES) as w:
            if self.channels <= FEW:
                self.copy_few(to, place, w)
            else:
                with k.loop(self.channels, 0, LANES) as c:
                    self.copy_square(to, place, w, c)

    def copy_few(self, to: Val, place: Sequence[Val], w: Val) -> None:
        for c in range(self.channels):
            value = self.vector(place, w, [self.k.index(c)])[0]
            self.k.store(self.buffer, to + (w + self.k.lane()) * self.pitch + c, value)

    def copy_square(self, to: Val, place: Sequence[Val], w: Val, c: Val) -> None:
        k = self.k
        rows = [k.min(c + i, self.channels - 1) for i in range(LANES)]
        if self.channels % LANES == 0:
            rows = [c + i for i in range(LANES)]
        square = turned(k, self.vector(place, w, rows))
        lane = c + k.lane()
        with self.frame.within(lane, k.index(self.channels), self.channels):
            for i, vector in enumerate(square):
                k.store(self.buffer, to + (w + i) * self.pitch + lane, vector)

    def vector(self, place: Sequence[Val], w: Val, channels: list[Val]) -> list[Val]:
        """Sixteen neighbours along the last axis, of each channel; zero outside x."""
        k = self.k
        lane = self.starts[2] + w + k.lane()
        if not self.margins[2] and self.across == self.ends[2]:
            return [self.element(place, lane, c) for c in channels]
        values = [k.local(0, self.dtype) for _ in channels]
        with k.when((lane >= 0) & (lane < self.ends[2])):
            for value, c in zip(values, channels, strict=True):
                value.set(self.element(place, lane, c))
        return [value.get() for value in values]


class StagedRing(Staged):
    """The rows of x that one row of places meets, of sixteen channels, [row modulo `rows`][place]
    [16]. A lane reads what it wrote itself."""

    def __init__(self, frame: Frame, x: Node, dtype: DType, sizes: Ints) -> None:
        super().__init__(frame, x, dtype, True, LANES, sizes, LANES)

    def make_buffer(self) -> None:
        self.row = self.sizes[2] * LANES
        self.plane = self.sizes[1] * self.row
        self.buffer = self.frame.private("rows", self.dtype, self.plane)

    def slot(self, row: Val) -> Val:
        """Where a row lies, counted from the first of the box."""
        return row % self.sizes[1] * self.row

    def stage_row(self, row: Val) -> None:
        place = (self.starts[0], self.starts[1] + row)
        to, inside = self.slot(row), self.inside(place)
        if inside is None:
            self.copy_last(to, place)
            return
        with self.k.when(inside):
            self.copy_last(to, place)
        with self.k.otherwise():
            self.clear(to, self.k.index(0), self.k.index(self.row))

    def copy_place(self, to: Val, place: Sequence[Val], w: Val) -> None:
        """And ask for the place as many rows on as will be staged soon."""
        lane = self.k.lane()
        if self.x in self.frame.reading.buffers:
            at = self.at((place[0], place[1] + AHEAD), w, self.k.index(0))
            shape = self.x.type.shape
            where = offset(self.frame.sizes, at, shape, row_strides(shape))
            self.k.prefetch(self.frame.reading.buffers[self.x], where)
        self.k.store(self.buffer, to + lane, self.element(place, w, lane))


class StagedPlane(Staged):
    """A box of one channel, [row][phase][place]: columns a stride apart lie beside each other, so
    that lanes along the places of a result read vectors."""

    def __init__(self, frame: Frame, x: Node, dtype: DType, sizes: Ints, stride: int) -> None:
        self.stride = stride
        used = -(-sizes[2] // stride)
        self.part = -(-used // LANES) * LANES + LANES  # columns of a phase
        super().__init__(frame, x, dtype, False, 1, sizes, 1)

    def make_buffer(self) -> None:
        self.row = self.part * self.stride
        self.plane = self.sizes[1] * self.row
        self.buffer = self.frame.scratch("plane", self.dtype, self.plane + LANES)

    def fetch(self, number: Val, rows: int) -> None:
        """Ask for one line of the same rows of the next channel."""
        if self.x not in self.frame.reading.buffers:
            return
        each, place = LINE_BYTES // self.x.type.dtype.nbytes, self.ends[1] * self.ends[2]
        plane = self.batch * self.frame.sizes.val(self.x.type.shape[1]) + self.channel + 1
        at = plane * place + self.starts[1] * self.ends[2] + number * each
        self.k.prefetch(self.frame.reading.buffers[self.x], at)

    def offset(self, row: int, column: int) -> int:
        return row * self.row + column % self.stride * self.part + column // self.stride

    def copy_first(self, to: Val, place: Sequence[Val]) -> None:
        k, used = self.k, -(-self.sizes[2] // self.stride)
        if self.stride == 2:
            self.copy_pairs(to, place, used)
            return
        for phase in range(self.stride):
            with k.loop(used, 0, LANES) as w:
                at = to + phase * self.part + w + k.lane()
                first = self.starts[2] + w * self.stride + phase
                last, lane = first + (LANES - 1) * self.stride, first + k.lane() * self.stride
                with k.when((first >= 0) & (last < self.ends[2])):
                    k.store(self.buffer, at, self.element(place, lane, k.index(0)))
                with k.otherwise():
                    k.store(self.buffer, at, self.masked(place, lane))

    def copy_pairs(self, to: Val, place: Sequence[Val], used: int) -> None:
        """Columns two apart: vectors as they lie, parted in registers."""
        k = self.k
        with k.loop(used, 0, LANES) as w:
            first = self.starts[2] + w * 2
            pair = [self.masked(place, first + half * LANES + k.lane()) for half in range(2)]
            for phase in range(2):
                lanes = tuple(range(phase, 2 * LANES, 2))
                at = to + phase * self.part + w + k.lane()
                k.store(self.buffer, at, k.shuffle(pair[0], pair[1], lanes))

    def masked(self, place: Sequence[Val], lane: Val) -> Val:
        """Zero outside x."""
        value = self.k.local(0, self.dtype)
        with self.k.when((lane >= 0) & (lane < self.ends[2])):
            value.set(self.element(place, lane, self.k.index(0)))
        return value.get()


def pitch_of(channels: int, dtype: DType) -> int:
    """Elements of a place: places do not share the few spots a cache has for addresses a power of
    two apart."""
    is_crowded = channels * dtype.nbytes % CROWDED == 0
    return channels + (LANES if is_crowded else 0)


def odd_lines(channels: int, dtype: DType) -> int:
    """Elements of a place that is an odd number of cache lines: vectors of one channel then lie in
    all of a cache."""
    line = LINE_BYTES // dtype.nbytes
    return (-(-channels // line) | 1) * line
