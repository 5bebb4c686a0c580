"""Convolutions by tiles: sums over taps and channels in registers, with the elementwise work on the
result done before it is stored.

A workgroup takes a box of places of one image and some panels of outputs. It stages the part of x
that its places meet (`ops.conv.staging`), so nothing is copied once for each tap. For each panel,
which is packed (`ops.conv.packing`), it walks register tiles: `rows` neighbouring places times
`width` outputs; each step broadcasts one element of x per place. Where outputs lie beside each
other a tile is stored when it is done; else sums wait in scratch until the panel is done, and are
turned in registers and stored along the places. Windows of one element with channels last are read
where they lie (`ops.conv.in_place`).

Where x has holes, places fall into phases that meet different taps, and each phase is a convolution
of its own. The order of sums is that of `ops.conv.op`, whatever the box, the tile and the threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product as pairs
from math import prod

from tetrad.core.machine import LANES
from tetrad.core.record import record
from tetrad.core.sizes import Shape, product
from tetrad.graph.group import Group
from tetrad.kernel.build import LocalVar, Val
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import At
from tetrad.loopnest.transpose import turned
from tetrad.ops.conv.geometry import ConvGeometry, ConvPhase
from tetrad.ops.conv.in_place import InPlace
from tetrad.ops.conv.packing import PackWeight
from tetrad.ops.conv.plan import ConvPlan, axes_of, reach_of
from tetrad.ops.conv.staging import Staged
from tetrad.ops.matmul.epilogue import accumulator, output_buffers, store_result
from tetrad.schedule.nodes import Launch

STRAIGHT = 48  # multiplications of a run that are written out without a loop
Phases = tuple[ConvPhase, ...]


@record
class TilePlaces:
    """Where the results of a register tile are: row `start` to `stop` of it are stored."""

    line: tuple[Val, Val]  # plane and row of the box
    first: Val  # of the phase, the place of row 0
    start: Val
    stop: Val
    phase: ConvPhase  # along the last axis


class ConvTiles:
    """The kernels of one convolution."""

    def __init__(self, frame: Frame, group: Group, form: ConvGeometry, plan: ConvPlan) -> None:
        self.frame, self.group, self.node, self.form, self.plan = (
            frame,
            group,
            group.root,
            form,
            plan,
        )
        self.k, self.sizes = frame.k, frame.sizes
        self.x, self.w = self.node.inputs
        self.dtype = accumulator(self.x.type.dtype)
        self.axes, self.tile, self.width = axes_of(form, plan.in_place), plan.rows, plan.width

    def launches(self) -> list[Launch]:
        packing = PackWeight(self.form, self.w, self.dtype, self.width)
        slot, packs = packing.known(), []
        if slot is None:
            slot, pack = packing.launch(self.group, self.frame.memory)
            packs = [pack]
        used = {i for member in self.group.members[1:] for i in member.inputs} | {self.x}
        self.frame.reads(i for i in self.frame.inputs if i is not self.w or i in used)
        self.panels = self.frame.input(slot)
        self.outputs = output_buffers(self.frame, self.group)
        return [*packs, self.launch()]

    # -- the workgroup -----------------------------------------------------------------------------

    def launch(self) -> Launch:
        form, plan, k = self.form, self.plan, self.k
        counts = tuple(-(-a.y // b) for a, b in zip(self.axes, plan.box, strict=True))
        panels = -(-form.outputs // self.width)
        grid: Shape = (form.batch, form.groups, -(-panels // plan.panels), *counts)
        at = [Space(k, self.sizes, grid, k.group_id()).span(i, i + 1) for i in range(len(grid))]
        self.batch, self.channels = at[0], at[1]
        self.starts = [i * b for i, b in zip(at[3:], plan.box, strict=True)]
        ends = zip(self.starts, plan.box, self.axes, strict=True)
        self.counts = [k.min(axis.y - start, box) if axis.y % box else k.index(box)
                       for start, box, axis in ends]  # fmt: skip
        self.stage()
        # large results go around the cache, in whole lines
        self.frame.is_light = form.last
        count = self.tile if form.last else prod(plan.box) + LANES
        self.sums = self.frame.private("sums", self.dtype, count * self.width)
        self.turning = None if form.last else self.frame.private("turned", self.dtype, LANES**2)
        self.panel0 = first = at[2] * plan.panels
        self.plan_fetching(panels)
        with k.loop(k.min(first + plan.panels, panels), first) as panel:
            self.run_panel(panel)
        flops = product((form.batch, form.groups * form.inputs * form.outputs * form.taps)) * (
            2 * form.places
        )
        return self.frame.finish(product(grid), self.group, flops=flops)

    def stage(self) -> None:
        """The part of x that the box meets; tiles past its end read zeros behind it. Or where it
        begins in x itself."""
        if self.plan.in_place:
            self.find_in_place()
            return
        reaches = [reach_of(a, b) for a, b in zip(self.axes, self.plan.box, strict=True)]
        width, count = self.axes[2], -(-self.plan.box[2] // self.axes[2].period)
        tiles = -(-count // self.tile) * self.tile
        sizes = (reaches[0][1], reaches[1][1], reach_of(width, tiles * width.period)[1])
        self.source: Staged | InPlace = Staged(
            self.frame, self.x, self.dtype, self.form.last, self.form.inputs, sizes
        )
        starts, margins = [], []
        for axis, start, (first, _), size, box in zip(
            self.axes, self.starts, reaches, sizes, self.plan.box, strict=True
        ):
            starts.append(start // axis.period * (axis.period * axis.stride // axis.holes) + first)
            final = (-(-axis.y // box) - 1) * box // axis.period
            final = final * (axis.period * axis.stride // axis.holes) + first + size
            margins.append(first < 0 or final > axis.x)
        self.first = [first for first, _ in reaches]
        self.begin = self.k.index(0)
        channel = self.channels * self.form.inputs
        self.source.stage(self.batch, channel, starts, margins)

    def find_in_place(self) -> None:
        sizes = tuple(axis.x for axis in self.axes)
        self.source = InPlace(self.frame, self.x, self.form, sizes)
        self.first = [0, 0, 0]
        starts = [start * axis.stride for axis, start in zip(self.axes, self.starts, strict=True)]
        self.begin = self.source.open(self.batch, self.channels * self.form.inputs, starts)

    def plan_fetching(self, panels: int) -> None:
        """How many lines of the next box each tile asks for: of its rows, or, where places were
        joined, of its places."""
        _, high, wide = self.axes
        is_plain = all(axis.period == 1 for axis in self.axes)
        self.ahead = self.plan.box[1] * high.stride // high.holes
        if self.plan.in_place:
            is_plain, self.ahead = high.y == 1, self.plan.box[2] * wide.stride
        tiles = -(-self.plan.box[2] // (wide.period * self.tile))
        tiles *= min(self.plan.panels, panels) * -(-self.plan.box[1] // high.period)
        lines = self.source.lines_of(self.ahead)
        self.lines = -(-lines // max(tiles, 1)) if is_plain else 0

    def run_panel(self, panel: Val) -> None:
        form = self.form
        depth = form.taps * form.inputs * self.width
        count = -(-form.outputs // self.width)
        self.panel_at = (self.channels * count + panel) * depth
        self.turn = (panel - self.panel0) * -(-self.plan.box[1] // self.axes[1].period)
        for phases in pairs(*(axis.phases() for axis in self.axes)):
            self.run_phases(panel * self.width, phases)
        if not form.last:
            for v in range(self.plan.vectors):
                self.store_vector(panel * self.width + v * LANES, v)

    def run_phases(self, output: Val, phases: Phases) -> None:
        """Tiles of the places of one phase along each axis."""
        k, source = self.k, self.source
        deep, high, wide = phases
        planes, rows, places = (
            (count - phase.first + (phase.period - 1)) // phase.period
            for count, phase in zip(self.counts, phases, strict=True)
        )
        base = sum(
            (phase.base - first) * step
            for phase, first, step in zip(
                phases, self.first, (source.plane, source.row, source.pitch), strict=True
            )
        )
        tiles = -(-self.plan.box[2] // (wide.period * self.tile))
        with k.loop(planes) as plane, k.loop(rows) as row, k.loop(places, 0, self.tile) as place:
            self.number = (self.turn + row) * tiles + place // self.tile
            back = self.back(place, places)
            left = (place - back) * (wide.stride * source.pitch) + (self.begin + base)
            left = left + row * (high.stride * source.row) + plane * (deep.stride * source.plane)
            accs = self.run_tile(left, phases)
            line = (plane * deep.period + deep.first, row * high.period + high.first)
            if self.form.last:
                stop = k.min(places - place + back, self.tile)
                self.store_tile(accs, output, TilePlaces(line, place - back, back, stop, wide))
            else:
                at = (line[0] * self.plan.box[1] + line[1]) * self.plan.box[2]
                at = at + (place * wide.period + wide.first)
                self.keep(accs, at, places - place, wide.period)

    def back(self, place: Val, places: Val) -> Val:
        """How many places earlier than its first one a tile begins: of x itself nothing past the
        end may be read."""
        k = self.k
        if not self.plan.in_place or self.has_whole_tiles(1):
            return k.index(0)
        return k.max(place + self.tile - places, 0)

    def has_whole_tiles(self, period: int) -> bool:
        """Are no places missing in any tile of a phase?"""
        box = self.plan.box[2]
        return self.axes[2].y % box == 0 and box % (self.tile * period) == 0

    # -- the tile ----------------------------------------------------------------------------------

    def run_tile(self, at: Val, phases: Phases) -> list[list[LocalVar]]:
        k = self.k
        accs = [
            [k.local(0, self.dtype) for _ in range(self.plan.vectors)] for _ in range(self.tile)
        ]
        if all(phase.count for phase in phases) and self.form.inputs:
            with self.taps(at, phases) as (left, right, length):
                self.run(accs, left, right, length, phases[2].stride * self.source.pitch)
        return accs

    @contextmanager
    def taps(self, at: Val, phases: Phases) -> Iterator[tuple[Val, Val, int]]:
        """For every run of a sum: where it begins in x and in the panel, and how long it is. Taps
        whose channels lie behind each other are one run."""
        k, source, form = self.k, self.source, self.form
        _, high, wide = self.axes
        deep, tall, broad = phases
        step, each = form.inputs * self.width, form.inputs
        is_run = broad.step * broad.reach == 1 and source.pitch == form.inputs
        with (
            k.loop(deep.count, always=True) as d,
            k.loop(tall.count, always=True) as h,
            k.loop(1 if is_run else broad.count, always=True) as w,
        ):
            left = at + d * (deep.reach * source.plane) + h * (tall.reach * source.row)
            left = left + w * (broad.reach * source.pitch)
            tap = (d * deep.step + deep.tap) * high.taps + h * tall.step + tall.tap
            tap = tap * wide.taps + w * broad.step + broad.tap
            self.run_number = (d * tall.count + h) * (1 if is_run else broad.count) + w
            self.runs = deep.count * tall.count * (1 if is_run else broad.count)
            yield left, self.panel_at + tap * step, broad.count * each if is_run else each

    def run(
        self, accs: list[list[LocalVar]], left: Val, right: Val, length: int, stride: int
    ) -> None:
        k, held = self.k, self.tile * self.plan.vectors
        unroll = length if length * held <= STRAIGHT else self.plan.unroll
        whole = length // unroll * unroll
        with k.loop(whole, 0, unroll, always=True) as step:
            self.fetch_ahead(step, whole, unroll)
            for u in range(unroll):
                self.step(accs, left + step + u, right + (step + u) * self.width, stride)
        for i in range(whole, length):
            self.step(accs, left + i, right + i * self.width, stride)

    def fetch_ahead(self, step: Val, steps: int, unroll: int) -> None:
        """Some lines of the next box, every few steps: all at once would be more than a processor
        can wait for."""
        k, here = self.k, -(-self.lines // self.runs)
        if not here:
            return
        turns = min(here, max(steps // unroll, 1))
        every = unroll << max((steps // unroll // turns).bit_length() - 1, 0)
        each = -(-here // turns)
        if step.const is not None:
            self.fetch_lines(self.run_number * here, here)
            return
        with k.when((step % every).eq(0)):
            self.fetch_lines(self.run_number * here + step // every * each, each)

    def fetch_lines(self, first: Val, count: int) -> None:
        for i in range(count):
            self.source.fetch(self.number * self.lines + first + i, self.ahead)

    def step(self, accs: list[list[LocalVar]], left: Val, right: Val, stride: int) -> None:
        k = self.k
        vectors = [k.load(self.panels, right + (v * LANES) + k.lane()) for v in range(len(accs[0]))]
        for row, chain in enumerate(accs):
            factor = k.load(self.source.buffer, left + row * stride)
            for vector, acc in zip(vectors, chain, strict=True):
                acc.set(k.fma(factor, vector, acc.get()))

    def keep(self, accs: list[list[LocalVar]], at: Val, places: Val, period: int) -> None:
        """Sums of a tile, where the box has its places."""
        k = self.k
        if places.const is not None:
            self.keep_rows(accs[: int(places.const)], at, period, None)
            return
        if self.has_whole_tiles(period):
            self.keep_rows(accs, at, period, None)
            return
        with k.when(places >= self.tile):
            self.keep_rows(accs, at, period, None)
        with k.otherwise():
            self.keep_rows(accs, at, period, places)

    def keep_rows(
        self, accs: list[list[LocalVar]], at: Val, period: int, places: Val | None
    ) -> None:
        for row, chain in enumerate(accs):
            if places is None:
                self.keep_row(chain, at + row * period)
                continue
            with self.k.when(places > row):
                self.keep_row(chain, at + row * period)

    def keep_row(self, chain: list[LocalVar], at: Val) -> None:
        for v, acc in enumerate(chain):
            self.k.store(self.sums, at * self.width + v * LANES + self.k.lane(), acc)

    # -- results -----------------------------------------------------------------------------------

    def store_vector(self, output: Val, v: int) -> None:
        """Sixteen outputs from `output` on, vector `v` of the panel, at every place of the box."""
        k, box = self.k, self.plan.box
        with k.loop(self.counts[0]) as self.plane:
            if box[2] == self.axes[2].y:
                at, count = self.plane * (box[1] * box[2]), self.counts[1] * box[2]
                self.store_first(output, v, at, count, self.flat_places)
                return
            with k.loop(self.counts[1]) as self.row:
                at = (self.plane * box[1] + self.row) * box[2]
                self.store_first(output, v, at, self.counts[2], self.row_places)

    def flat_places(self, place: Val) -> At:
        """Of whole rows, which lie behind each other."""
        _, high, wide = self.axes
        flat = self.starts[1] * wide.y + place
        return Space(self.k, self.sizes, (high.y, wide.y), flat).axes()

    def row_places(self, place: Val) -> At:
        return self.starts[1] + self.row, self.starts[2] + place

    def store_first(self, output: Val, v: int, at: Val, count: Val, places: object) -> None:
        k = self.k
        if self.turning is None:
            raise TypeError("sums are turned only where channels come first")
        with k.loop(count, 0, LANES) as place:
            sums = [
                k.load(self.sums, (at + place + i) * self.width + v * LANES + k.lane())
                for i in range(LANES)
            ]
            for i, vector in enumerate(turned(k, sums)):
                k.store(self.turning, i * LANES + k.lane(), vector)
            lane, is_one = place + k.lane(), self.axes[1].y * self.axes[2].y == 1
            with k.loop(k.min(self.form.outputs - output, LANES)) as o:
                total = k.load(self.turning, o * LANES + k.lane())
                with self.frame.within(lane, count, LANES if is_one else 1):
                    total = k.broadcast(total) if is_one else total
                    self.store(places(lane), output + o, total)  # type: ignore[operator]

    def store(self, places: At, output: Val, total: Val) -> None:
        self.store_at((self.starts[0] + self.plane, *places), output, total)

    def store_at(self, place: At, output: Val, total: Val) -> None:
        """The result at a place along the three axes, or the one that `axes_of` joined."""
        form = self.form
        spatial = place[3 - len(form.axes) :]
        if self.plan.in_place and self.axes[2].y != form.axes[-1].y:
            shape = tuple(axis.y for axis in form.axes)
            spatial = Space(self.k, self.sizes, shape, place[2]).axes()
        channel = self.channels * form.outputs + output
        at = (self.batch, *spatial, channel) if form.last else (self.batch, channel, *spatial)
        store_result(self.frame, self.node, self.outputs, at, total)

    # -- results, outputs beside each other --------------------------------------------------------

    def store_tile(self, accs: list[list[LocalVar]], output: Val, tile: TilePlaces) -> None:
        """Straight from registers, or, when an epilogue follows or places may be missing, one after
        the other: its code is written once."""
        if len(self.group.members) > 1:
            self.store_waiting(accs, output, tile)
            return
        if self.has_whole_tiles(tile.phase.period):
            self.store_straight(accs, output, tile)
            return
        with self.k.when((tile.stop - tile.start).eq(self.tile)):
            self.store_straight(accs, output, tile)
        with self.k.otherwise():
            self.store_waiting(accs, output, tile)

    def store_straight(self, accs: list[list[LocalVar]], output: Val, tile: TilePlaces) -> None:
        for row, chain in enumerate(accs):
            for v, acc in enumerate(chain):
                self.store_vector_at(tile, row, output + v * LANES, acc.get())

    def store_waiting(self, accs: list[list[LocalVar]], output: Val, tile: TilePlaces) -> None:
        k, vectors = self.k, self.plan.vectors
        flat = [acc for chain in accs for acc in chain]
        for i, acc in enumerate(flat):
            k.store(self.sums, i * LANES + k.lane(), acc)
        with k.loop(tile.stop * vectors, tile.start * vectors) as part:
            row, v = (part, k.index(0)) if vectors == 1 else (part // vectors, part % vectors)
            total = k.load(self.sums, part * LANES + k.lane())
            self.store_vector_at(tile, row, output + v * LANES, total)

    def store_vector_at(self, tile: TilePlaces, row: int | Val, output: Val, total: Val) -> None:
        lane, outputs = output + self.k.lane(), self.form.outputs
        wide = (tile.first + row) * tile.phase.period + tile.phase.first
        starts = zip(self.starts, (*tile.line, wide), strict=True)
        with self.frame.within(lane, self.k.index(outputs), outputs, self.width):
            self.store_at(tuple(start + i for start, i in starts), lane, total)
