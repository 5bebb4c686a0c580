"""Convolutions by tiles: sums over taps and channels in registers, with the elementwise work on the
result done before it is stored.

A workgroup takes a box of places of one image and some panels of outputs. It stages the part of x
that its places meet (`ops.conv.staging`), so nothing is copied once for each tap. For each panel,
which is packed (`ops.conv.packing`), it walks register tiles: `rows` neighbouring places times
`width` outputs; each step broadcasts one element of x per place. Sums wait in scratch until the
panel is done; then they are stored along the outputs where those lie beside each other, else turned
in registers and stored along the places.

Where x has holes, places fall into phases that meet different taps, and each phase is a convolution
of its own. The order of sums is that of `ops.conv.op`, whatever the box, the tile and the threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product as pairs
from math import prod

from tetrad.core.machine import LANES
from tetrad.core.sizes import Shape, product
from tetrad.graph.group import Group
from tetrad.kernel.build import LocalVar, Val
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import At
from tetrad.loopnest.transpose import turned
from tetrad.ops.conv.geometry import ConvGeometry, ConvPhase
from tetrad.ops.conv.packing import PackWeight
from tetrad.ops.conv.plan import ConvPlan, reach_of, three_axes
from tetrad.ops.conv.staging import Staged
from tetrad.ops.matmul.epilogue import accumulator, output_buffers, store_result
from tetrad.schedule.nodes import Launch

STRAIGHT = 48  # multiplications of a run that are written out without a loop
Phases = tuple[ConvPhase, ...]


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
        self.axes, self.tile, self.width = three_axes(form), plan.rows, plan.width

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
        self.sums = self.frame.private("sums", self.dtype, (prod(plan.box) + LANES) * self.width)
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
        """The part of x that the box meets; tiles past its end read zeros behind it."""
        reaches = [reach_of(a, b) for a, b in zip(self.axes, self.plan.box, strict=True)]
        width, count = self.axes[2], -(-self.plan.box[2] // self.axes[2].period)
        tiles = -(-count // self.tile) * self.tile
        sizes = (reaches[0][1], reaches[1][1], reach_of(width, tiles * width.period)[1])
        self.staged = Staged(
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
        channel = self.channels * self.form.inputs
        self.staged.stage(self.batch, channel, starts, margins)

    def plan_fetching(self, panels: int) -> None:
        """How many lines of the next box each tile asks for."""
        _, high, wide = self.axes
        self.next_rows = self.plan.box[1] * high.stride // high.holes
        tiles = -(-self.plan.box[2] // (wide.period * self.tile))
        tiles *= min(self.plan.panels, panels) * -(-self.plan.box[1] // high.period)
        lines = self.staged.lines_of(self.next_rows)
        is_plain = all(axis.period == 1 for axis in self.axes)
        self.lines = -(-lines // max(tiles, 1)) if is_plain else 0

    def run_panel(self, panel: Val) -> None:
        form = self.form
        depth = form.taps * form.inputs * self.width
        count = -(-form.outputs // self.width)
        self.panel_at = (self.channels * count + panel) * depth
        self.turn = (panel - self.panel0) * -(-self.plan.box[1] // self.axes[1].period)
        for phases in pairs(*(axis.phases() for axis in self.axes)):
            self.run_phases(phases)
        for v in range(self.plan.vectors):
            self.store_vector(panel * self.width + v * LANES, v)

    def run_phases(self, phases: Phases) -> None:
        """Tiles of the places of one phase along each axis."""
        k, staged = self.k, self.staged
        deep, high, wide = phases
        planes, rows, places = (
            (count - phase.first + (phase.period - 1)) // phase.period
            for count, phase in zip(self.counts, phases, strict=True)
        )
        base = sum(
            (phase.base - first) * step
            for phase, first, step in zip(
                phases, self.first, (staged.plane, staged.row, staged.pitch), strict=True
            )
        )
        tiles = -(-self.plan.box[2] // (wide.period * self.tile))
        with k.loop(planes) as plane, k.loop(rows) as row, k.loop(places, 0, self.tile) as place:
            self.number = (self.turn + row) * tiles + place // self.tile
            at = row * (high.stride * staged.row) + place * (wide.stride * staged.pitch) + base
            accs = self.run_tile(at + plane * (deep.stride * staged.plane), phases)
            line = (plane * deep.period + deep.first) * self.plan.box[1]
            line = (line + row * high.period + high.first) * self.plan.box[2]
            self.keep(accs, line + (place * wide.period + wide.first), places - place, wide.period)

    # -- the tile ----------------------------------------------------------------------------------

    def run_tile(self, at: Val, phases: Phases) -> list[list[LocalVar]]:
        k = self.k
        accs = [
            [k.local(0, self.dtype) for _ in range(self.plan.vectors)] for _ in range(self.tile)
        ]
        if all(phase.count for phase in phases) and self.form.inputs:
            with self.taps(at, phases) as (left, right, length):
                self.run(accs, left, right, length, phases[2].stride * self.staged.pitch)
        return accs

    @contextmanager
    def taps(self, at: Val, phases: Phases) -> Iterator[tuple[Val, Val, int]]:
        """For every run of a sum: where it begins in x and in the panel, and how long it is. Taps
        whose channels lie behind each other are one run."""
        k, staged, form = self.k, self.staged, self.form
        _, high, wide = self.axes
        deep, tall, broad = phases
        step, each = form.inputs * self.width, form.inputs
        is_run = broad.step * broad.reach == 1 and staged.pitch == form.inputs
        with (
            k.loop(deep.count, always=True) as d,
            k.loop(tall.count, always=True) as h,
            k.loop(1 if is_run else broad.count, always=True) as w,
        ):
            left = at + d * (deep.reach * staged.plane) + h * (tall.reach * staged.row)
            left = left + w * (broad.reach * staged.pitch)
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
            self.staged.fetch(self.number * self.lines + first + i, self.next_rows)

    def step(self, accs: list[list[LocalVar]], left: Val, right: Val, stride: int) -> None:
        k = self.k
        vectors = [k.load(self.panels, right + (v * LANES) + k.lane()) for v in range(len(accs[0]))]
        for row, chain in enumerate(accs):
            factor = k.load(self.staged.buffer, left + row * stride)
            for vector, acc in zip(vectors, chain, strict=True):
                acc.set(k.fma(factor, vector, acc.get()))

    def keep(self, accs: list[list[LocalVar]], at: Val, places: Val, period: int) -> None:
        """Sums of a tile, where the box has its places."""
        k, box = self.k, self.plan.box[2]
        if places.const is not None:
            self.keep_rows(accs[: int(places.const)], at, period, None)
            return
        if self.axes[2].y % box == 0 and box % (self.tile * period) == 0:
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
                self.store_run(output, v, at, count, self.flat_places)
                return
            with k.loop(self.counts[1]) as self.row:
                at = (self.plane * box[1] + self.row) * box[2]
                self.store_run(output, v, at, self.counts[2], self.row_places)

    def flat_places(self, place: Val) -> At:
        """Of whole rows, which lie behind each other."""
        _, high, wide = self.axes
        flat = self.starts[1] * wide.y + place
        return Space(self.k, self.sizes, (high.y, wide.y), flat).axes()

    def row_places(self, place: Val) -> At:
        return self.starts[1] + self.row, self.starts[2] + place

    def store_run(self, output: Val, v: int, at: Val, count: Val, places: object) -> None:
        if self.form.last:
            self.store_last(output, v, at, count, places)
        else:
            self.store_first(output, v, at, count, places)

    def store_last(self, output: Val, v: int, at: Val, count: Val, places: object) -> None:
        k, outputs = self.k, self.form.outputs
        lane = output + k.lane()
        with k.loop(count) as place, self.frame.within(lane, k.index(outputs), outputs, self.width):
            total = k.load(self.sums, (at + place) * self.width + v * LANES + k.lane())
            self.store(places(place), lane, total)  # type: ignore[operator]

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
        spatial = (self.starts[0] + self.plane, *places)[3 - len(self.form.axes) :]
        channel = self.channels * self.form.outputs + output
        at = (self.batch, *spatial, channel) if self.form.last else (self.batch, channel, *spatial)
        store_result(self.frame, self.node, self.outputs, at, total)
