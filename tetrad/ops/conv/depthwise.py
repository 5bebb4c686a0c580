"""Depthwise convolutions: every channel for itself, so lanes run along channels where those lie
beside each other, else along the places of a row.

A workgroup stages the part of x that its places meet, with the zeros around it, and walks register
tiles: neighbouring places whose windows share most of what they load. `DepthwiseTiles` makes
results, `DepthwiseWeight` the gradient by the weight; orders of sums are those of `ops.conv.op`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product as pairs

from tetrad.core.machine import LANES
from tetrad.core.sizes import Shape, product
from tetrad.graph.group import Group
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import At
from tetrad.ops.conv.geometry import ConvAxis, ConvGeometry, ConvPhase, Ints
from tetrad.ops.conv.plan import DepthwisePlan, reach_of, three_axes
from tetrad.ops.conv.staging import Staged, StagedPlane, StagedRing
from tetrad.ops.matmul.epilogue import accumulator, output_buffers, store_result
from tetrad.schedule.nodes import Launch

MOST_SUMS = 24  # of taps that registers hold
Window = tuple[int, ...]  # a row and a column of staged x, counted from where a tile begins


class Depthwise:
    """What both kernels share: the walk over images, channels and boxes; x in scratch; taps."""

    def __init__(self, frame: Frame, group: Group, form: ConvGeometry, plan: DepthwisePlan) -> None:
        self.frame, self.group, self.node, self.form, self.plan = (
            frame, group, group.root, form, plan,
        )  # fmt: skip
        self.k = frame.k
        self.x = self.node.inputs[0]
        self.dtype = accumulator(self.x.type.dtype)
        _, self.high, self.wide = three_axes(form)
        self.open_phases((self.high.phase(0), self.wide.phase(0)))

    @property
    def is_plain(self) -> bool:
        """Has x no holes, so that all places are one phase?"""
        return self.high.holes == self.wide.holes == 1

    def open_phases(self, phases: tuple[ConvPhase, ConvPhase]) -> None:
        """From here on places and taps are those of one phase along each axis."""
        self.phases, self.loaded = phases, dict[Window, Val]()
        self.taps = list(pairs(*(range(phase.count) for phase in phases)))

    def tap_number(self, tap: Ints) -> int:
        """Among all taps."""
        row, column = (p.tap + t * p.step for p, t in zip(self.phases, tap, strict=True))
        return row * self.wide.taps + column

    def make_scratch(self) -> None:
        """Room for a box: channels beside each other, or planes of one channel."""
        form, plan = self.form, self.plan
        reaches = []
        for axis, box, tile in zip((self.high, self.wide), plan.box, plan.tile, strict=True):
            each = tile * axis.period
            reaches.append(reach_of(axis, -(-box // each) * each))
        self.first = [first for first, _ in reaches]
        sizes = (1, reaches[0][1], reaches[1][1])
        if form.last:
            self.staged: Staged = self.make_channels(sizes)
        else:
            self.staged = StagedPlane(self.frame, self.x, self.dtype, sizes, step_of(self.wide))
        self.margins = [False]
        for axis, box, (first, size) in zip((self.high, self.wide), plan.box, reaches, strict=True):
            final = (-(-axis.y // box) - 1) * box // axis.period * step_of(axis) + first + size
            self.margins.append(first < 0 or final > axis.x)

    def make_channels(self, sizes: Ints) -> Staged:
        """Sixteen channels of a box."""
        return Staged(self.frame, self.x, self.dtype, True, LANES, sizes, 0, self.form.groups)

    def starts_in_x(self, starts: list[Val]) -> list[Val]:
        """What the box from these places on meets first."""
        axes = zip(starts, (self.high, self.wide), self.first, strict=True)
        met = [start // axis.period * step_of(axis) + first for start, axis, first in axes]
        return [self.k.index(0), *met]

    def stage(self, image: Val, channel: Val, starts: list[Val]) -> None:
        """The part of x that the box from these places on meets."""
        first = channel if self.form.last else None
        self.staged.stage(image, channel, self.starts_in_x(starts), self.margins, first)

    def counts(self, starts: list[Val]) -> list[Val]:
        """Places of the box that there are."""
        each = zip(starts, (self.high, self.wide), self.plan.box, strict=True)
        return [
            self.k.min(axis.y - start, box) if axis.y % box else self.k.index(box)
            for start, axis, box in each
        ]

    def weight_at(self, channel: Val, tap: int) -> At:
        """The index of a tap, as x meets them."""
        form, k = self.form, self.k
        tap = form.taps - 1 - tap if form.flip else tap
        taps = [k.index(i) for i in divmod(tap, self.wide.taps)][2 - len(form.axes) :]
        none = k.index(0)
        return (*taps, none, channel) if form.weight[0] == "k" else (channel, none, *taps)

    def open_tile(self, row: Val, place: Val) -> None:
        """From here on `element` counts from this place of the box."""
        at = row * (self.phases[0].stride * self.staged.row)
        self.bases: list[Val] | None = None
        step = self.phases[1].stride * self.staged.pitch if self.form.last else 1
        self.at, self.loaded = at + place * step, {}

    def element(self, row: int, place: int, tap: Ints, lane: Val) -> Val:
        """What a place of the tile meets under a tap; loaded once."""
        each = zip((row, place), tap, self.phases, self.first, strict=True)
        window = tuple(
            i * phase.stride + t * phase.reach + phase.base - first for i, t, phase, first in each
        )
        if window not in self.loaded:
            at = self.at + self.staged.offset(*window)
            if self.bases is not None:  # rows lie in a ring
                at = self.at + self.bases[tap[0]] + self.staged.offset(0, window[1])
            self.loaded[window] = self.k.load(self.staged.buffer, at + lane)
        return self.loaded[window]


class DepthwiseTiles(Depthwise):
    """The kernel of one depthwise convolution."""

    def launch(self) -> Launch:
        form, plan, k = self.form, self.plan, self.k
        self.frame.reads(self.frame.inputs)
        self.outputs = output_buffers(self.frame, self.group)
        counts = [-(-a.y // b) for a, b in zip((self.high, self.wide), plan.box, strict=True)]
        grid: Shape = (form.batch, -(-form.groups // plan.channels), *counts)
        at = [Space(k, self.frame.sizes, grid, k.group_id()).span(i, i + 1) for i in range(4)]
        self.image, first = at[0], at[1] * plan.channels
        self.starts = [i * b for i, b in zip(at[2:], plan.box, strict=True)]
        self.make_scratch()
        self.area = (
            self.frame.private("tile", self.dtype, plan.tile[0] * plan.tile[1] * LANES)
            if len(self.group.members) > 1
            else None
        )
        stop = k.min(first + plan.channels, form.groups)
        if form.last:
            with k.loop(stop, first, LANES) as channel:
                self.run_vector(channel) if self.is_plain else self.run_holes(channel)
        else:
            with k.loop(stop, first) as channel:
                self.stage(self.image, channel, self.starts)
                self.run_channel(channel)
        flops = product((form.batch, form.groups * form.taps * 2 * form.places))
        return self.frame.finish(product(grid), self.group, flops=flops)

    def make_channels(self, sizes: Ints) -> Staged:
        """Of sixteen channels, the rows that one row of places meets; all of a box with holes."""
        if not self.is_plain:
            return super().make_channels(sizes)
        window = (self.high.taps - 1) * self.high.dilation + 1
        return StagedRing(self.frame, self.x, self.dtype, (1, window, sizes[2]))

    def run_vector(self, channel: Val) -> None:
        """Sixteen channels from `channel` on: rows of x enter the ring as rows of places need
        them."""
        k, ring, high = self.k, self.staged, self.high
        if not isinstance(ring, StagedRing):
            raise TypeError("channels that are last are staged in a ring")
        self.lane, self.channel = k.lane(), channel + k.lane()
        rows, places = self.counts(self.starts)
        ring.open(self.image, channel, self.starts_in_x(self.starts), self.margins)
        new = min(high.stride, ring.sizes[1])
        with self.inside_channels():
            weights = self.weights()
            with k.loop(ring.sizes[1] - new) as row:
                ring.stage_row(row)
            with k.loop(rows) as row:
                with k.loop(new) as i:
                    ring.stage_row(row * high.stride + (ring.sizes[1] - new) + i)
                met = [row * high.stride + tap * high.dilation for tap in range(high.taps)]
                bases = [ring.slot(at) for at in met]
                with k.loop(places, 0, self.plan.tile[1]) as place:
                    self.open_tile(k.index(0), place)
                    self.bases = bases
                    self.run_tile(weights, row, place, rows - row, places - place)

    def run_holes(self, channel: Val) -> None:
        """Sixteen channels from `channel` on, phase by phase."""
        k = self.k
        self.stage(self.image, channel, self.starts)
        self.lane, self.channel = k.lane(), channel + k.lane()
        with self.inside_channels():
            for phases in pairs(self.high.phases(), self.wide.phases()):
                self.open_phases(phases)
                rows, places = self.phase_counts()
                weights = self.weights()
                with k.loop(rows) as row, k.loop(places, 0, self.plan.tile[1]) as place:
                    self.open_tile(row, place)
                    self.run_tile(weights, row, place, rows - row, places - place)

    def phase_counts(self) -> list[Val]:
        """Places of the box that there are, of the open phases."""
        each = zip(self.counts(self.starts), self.phases, strict=True)
        return [(count - p.first + (p.period - 1)) // p.period for count, p in each]

    def run_channel(self, channel: Val) -> None:
        self.lane, self.channel = self.k.lane(), channel
        for phases in pairs(self.high.phases(), self.wide.phases()):
            self.open_phases(phases)
            self.run_plane()

    def run_plane(self) -> None:
        """One channel: all tiles of the box."""
        k = self.k
        rows, places = self.phase_counts()
        weights = self.weights()
        with k.loop(rows, 0, self.plan.tile[0]) as row, k.loop(places, 0, LANES) as place:
            self.open_tile(row, place)
            if self.is_plain:
                across = -(-self.plan.box[1] // LANES)
                self.fetch_ahead(row // self.plan.tile[0] * across + place // LANES)
            self.run_tile(weights, row, place, rows - row, places - place)

    def fetch_ahead(self, tile: Val) -> None:
        """The next channel, some lines for every tile."""
        rows = self.plan.box[0] * self.high.stride
        tiles = -(-self.plan.box[0] // self.plan.tile[0]) * -(-self.plan.box[1] // LANES)
        lines = -(-self.staged.lines_of(rows) // tiles)
        for i in range(lines):
            self.staged.fetch(tile * lines + i, rows)

    @contextmanager
    def inside_channels(self) -> Iterator[None]:
        if self.form.groups % LANES == 0:
            yield
            return
        with self.k.when(self.channel < self.form.groups, guard=True):
            yield

    def weights(self) -> list[Val]:
        """Of the taps of the open phases."""
        w = self.node.inputs[1]
        places = (self.weight_at(self.channel, self.tap_number(tap)) for tap in self.taps)
        return [self.k.cast(self.frame.reading.wide(w, at), self.dtype) for at in places]

    def run_tile(self, weights: list[Val], row: Val, place: Val, rows: Val, places: Val) -> None:
        k = self.k
        members = list(pairs(range(self.plan.tile[0]), range(self.plan.tile[1])))
        accs = [k.local(0, self.dtype) for _ in members]
        for tap, weight in zip(self.taps, weights, strict=True):
            for (r, p), acc in zip(members, accs, strict=True):
                acc.set(k.fma(self.element(r, p, tap, self.lane), weight, acc.get()))
        if self.area is None:
            for (r, p), acc in zip(members, accs, strict=True):
                self.store(acc.get(), row, place, k.index(r), k.index(p), rows, places)
            return
        for i, acc in enumerate(accs):
            k.store(self.area, i * LANES + k.lane(), acc)
        with k.loop(len(accs), always=True) as one:
            here = one // self.plan.tile[1], one % self.plan.tile[1]
            self.store(k.load(self.area, one * LANES + k.lane()), row, place, *here, rows, places)

    def store(
        self, total: Val, row: Val, place: Val, r: Val, p: Val, rows: Val, places: Val
    ) -> None:
        """The result of row r and place p of the tile, if the box has them."""
        k, (tall, broad), (high, wide) = self.k, self.plan.tile, self.phases
        is_row = self.starts[0] + (row + r) * high.period + high.first
        at = self.starts[1] + place * wide.period + wide.first
        checks = [] if self.is_whole(0, tall) else [r < rows]
        if self.form.last or self.wide.y == 1:  # a place of its own has no lanes along it
            checks += [] if self.is_whole(1, broad) else [p < places]
            total = total if self.form.last else k.broadcast(total)
            with conditions(k, checks):
                self.write(total, is_row, at + p * wide.period)
            return
        checks += [] if self.is_whole(1, LANES) else [k.lane() < places]
        with conditions(k, checks):
            self.write(total, is_row, at + k.lane() * wide.period)

    def is_whole(self, axis: int, tile: int) -> bool:
        """Are there no holes, and is every tile of every box full?"""
        found = (self.high, self.wide)[axis]
        return self.is_plain and is_whole(found.y, self.plan.box[axis], tile)

    def write(self, total: Val, row: Val, place: Val) -> None:
        spatial = (row, place)[2 - len(self.form.axes) :]
        at = (
            (self.image, *spatial, self.channel)
            if self.form.last
            else (self.image, self.channel, *spatial)
        )
        store_result(self.frame, self.node, self.outputs, at, total)


def step_of(axis: ConvAxis) -> int:
    """Elements of x from one place to the next of its phase."""
    return axis.period * axis.stride // axis.holes


def is_whole(size: int, box: int, tile: int) -> bool:
    """Is every tile of every box full?"""
    return size % box == 0 and box % tile == 0


@contextmanager
def conditions(k: KernelBuilder, checks: list[Val]) -> Iterator[None]:
    """Where all of them hold."""
    if not checks:
        yield
        return
    found = checks[0]
    for check in checks[1:]:
        found = found & check
    with k.when(found):
        yield


class DepthwiseWeight(Depthwise):
    """The kernel of one gradient by the weight: sums of all taps in registers."""

    def launch(self) -> Launch:
        form, plan, k = self.form, self.plan, self.k
        self.y = self.node.inputs[1]
        self.out = self.frame.output(self.frame.memory.slots[self.node])
        grid: Shape = (-(-form.groups // plan.channels),)
        first = k.group_id() * plan.channels
        self.make_scratch()
        self.totals = self.frame.private("totals", self.dtype, len(self.taps) * LANES)
        rows = max(MOST_SUMS // self.wide.taps, 1) * self.wide.taps
        self.chunks = [self.taps[i : i + rows] for i in range(0, len(self.taps), rows)]
        self.chains = self.frame.private("chains", self.dtype, len(self.taps) * LANES)
        stop = k.min(first + plan.channels, form.groups)
        with k.loop(stop, first, LANES if form.last else 1) as channel:
            self.run_channel(channel)
        flops = product((form.batch, form.groups * form.taps * 2 * form.places))
        return self.frame.finish(product(grid), self.group, flops=flops)

    def run_channel(self, channel: Val) -> None:
        """Sixteen channels from `channel` on, or one."""
        k, lane = self.k, self.k.lane()
        self.channel = channel + lane if self.form.last else channel
        self.clear(self.totals)
        with k.loop(self.frame.sizes.val(self.form.batch)) as self.image:
            self.clear(self.chains)
            counts = [
                -(-a.y // b) for a, b in zip((self.high, self.wide), self.plan.box, strict=True)
            ]
            with k.loop(counts[0]) as h, k.loop(counts[1]) as w:
                starts = [i * b for i, b in zip((h, w), self.plan.box, strict=True)]
                self.stage(self.image, channel, starts)
                self.run_chunks(starts)
            for tap in range(len(self.taps)):
                at = tap * LANES + lane
                k.store(self.totals, at, k.load(self.totals, at) + k.load(self.chains, at))
        self.store()

    def clear(self, sums: Buffer) -> None:
        for tap in range(len(self.taps)):
            self.k.store(sums, tap * LANES + self.k.lane(), 0.0)

    def run_chunks(self, starts: list[Val]) -> None:
        """As many taps at a time as registers hold sums; they go on where the box before
        stopped."""
        k, first = self.k, 0
        for chunk in self.chunks:
            self.chunk = chunk
            places = [(first + i) * LANES + k.lane() for i in range(len(self.chunk))]
            accs = [k.local(k.load(self.chains, at)) for at in places]
            self.run_box(accs, starts)
            for at, acc in zip(places, accs, strict=True):
                k.store(self.chains, at, acc)
            first += len(self.chunk)

    def run_box(self, accs: list[LocalVar], starts: list[Val]) -> None:
        k, tile = self.k, self.plan.tile[1] if self.form.last else LANES
        rows, places = self.counts(starts)
        whole = places // tile * tile
        step = self.add_last if self.form.last else self.add_first
        with k.loop(rows) as row:
            with k.loop(whole, 0, tile) as place:
                step(accs, row, place, starts, None)
            if not is_whole(self.wide.y, self.plan.box[1], tile):
                with k.loop(places, whole, 1 if self.form.last else LANES) as place:
                    step(accs, row, place, starts, places)

    def add_last(
        self, accs: list[LocalVar], row: Val, place: Val, starts: list[Val], end: Val | None
    ) -> None:
        """Neighbouring places of sixteen channels; one at a time where fewer are left."""
        k = self.k
        self.open_tile(row, place)
        is_all = self.form.groups % LANES == 0
        for p in range(1 if end is not None else self.plan.tile[1]):
            ct = k.local(0, self.dtype)
            with conditions(k, [] if is_all else [self.channel < self.form.groups]):
                ct.set(self.cotangent(starts[0] + row, starts[1] + place + p))
            value = ct.get()
            for tap, acc in zip(self.chunk, accs, strict=True):
                acc.set(k.fma(self.element(0, p, tap, k.lane()), value, acc.get()))

    def add_first(
        self, accs: list[LocalVar], row: Val, place: Val, starts: list[Val], end: Val | None
    ) -> None:
        """Sixteen places of a row, those that there are."""
        k, lane = self.k, self.k.lane()
        self.open_tile(row, place)
        with conditions(k, [] if end is None else [place + lane < end]):
            value = self.cotangent(starts[0] + row, starts[1] + place + lane)
            for tap, acc in zip(self.chunk, accs, strict=True):
                acc.set(k.fma(self.element(0, 0, tap, lane), value, acc.get()))

    def cotangent(self, row: Val, place: Val) -> Val:
        spatial = (row, place)[2 - len(self.form.axes) :]
        at = (
            (self.image, *spatial, self.channel)
            if self.form.last
            else (self.image, self.channel, *spatial)
        )
        return self.k.cast(self.frame.reading.wide(self.y, at), self.dtype)

    def store(self) -> None:
        """Each lane its channel, or the sum of all lanes."""
        k, form = self.k, self.form
        is_part = form.last and form.groups % LANES != 0
        for tap in range(len(self.taps)):
            total = k.load(self.totals, tap * LANES + k.lane())
            total = total if form.last else k.reduce_lanes("add", total)
            with conditions(k, [self.channel < form.groups] if is_part else []):
                at = self.weight_at(self.channel, tap)
                self.frame.write(self.out, self.node, at, k.cast(total, self.node.type.dtype))
