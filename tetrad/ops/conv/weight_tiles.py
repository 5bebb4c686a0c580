"""Sums over places by tiles: what each tap of a weight meets, in registers.

A workgroup takes some inputs and some panels of outputs of a group. It walks images and boxes of
their places. Of each box it stages both sides (`ops.conv.staging`), places behind each other, then
for each tap and `rows` inputs times `width` outputs walks the places of the box, with sums in
registers; between boxes they wait in scratch. Sums of images are added in order. In the end they
are turned to the order in which the weight lies.

The order of sums is that of `ops.conv.op`, whatever the box, the tile and the threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product as pairs

from tetrad.core.machine import LANES
from tetrad.core.record import record
from tetrad.core.sizes import Shape, product
from tetrad.graph.group import Group
from tetrad.kernel.build import LocalVar, Val
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.loopnest.transpose import turned
from tetrad.ops.conv.geometry import ConvGeometry, ConvPhase
from tetrad.ops.conv.in_place import InPlace
from tetrad.ops.conv.plan import WeightPlan, reach_of, three_axes
from tetrad.ops.conv.staging import Staged, odd_lines
from tetrad.ops.conv.weight_order import WeightOrder, WeightWalk, along_outputs
from tetrad.ops.matmul.epilogue import accumulator
from tetrad.schedule.nodes import Launch

Phases = tuple[ConvPhase, ...]


@record
class SumRows:
    """SumRows of a tile: where each begins in the staged x, from `at` on, and which sums it has."""

    at: Val
    offsets: Sequence[int]
    sums: Sequence[Val]  # tap * inputs + input


class WeightTiles:
    """The kernel of one gradient by the weight."""

    def __init__(self, frame: Frame, group: Group, form: ConvGeometry, plan: WeightPlan) -> None:
        self.frame, self.group, self.node, self.form, self.plan = (
            frame,
            group,
            group.root,
            form,
            plan,
        )
        self.k = frame.k
        self.x, self.y = self.node.inputs
        self.dtype = accumulator(self.x.type.dtype)
        self.axes, self.width = three_axes(form), plan.vectors * LANES
        self.out = frame.output(frame.memory.slots[self.node])

    # -- the workgroup -----------------------------------------------------------------------------

    def launch(self) -> Launch:
        form, plan, k = self.form, self.plan, self.k
        blocks, panels = form.inputs // max(plan.inputs, 1), -(-form.outputs // self.width)
        shares = -(-panels // plan.panels)
        grid: Shape = (form.groups, blocks, shares)
        at = [Space(k, self.frame.sizes, grid, k.group_id()).span(i, i + 1) for i in range(3)]
        self.channels, self.first = at[0], at[1] * plan.inputs
        self.output = at[2] * (plan.panels * self.width)
        self.make_scratch()
        self.plan_fetching()
        self.clear(self.totals)
        self.walk_boxes()
        self.store()
        flops = product((form.batch, form.groups * form.inputs * form.outputs * form.taps)) * (
            2 * form.places
        )
        return self.frame.finish(product(grid), self.group, flops=flops)

    def make_scratch(self) -> None:
        form, plan, frame = self.form, self.plan, self.frame
        self.reaches = [reach_of(a, b) for a, b in zip(self.axes, plan.box, strict=True)]
        sizes = tuple(size for _, size in self.reaches)
        pitch = plan.inputs if plan.is_small else odd_lines(plan.inputs, self.dtype)
        self.left: Staged | InPlace = (
            InPlace(frame, self.x, form, tuple(axis.x for axis in self.axes))
            if plan.in_place
            else Staged(frame, self.x, self.dtype, form.last, plan.inputs, sizes, pitch)
        )
        columns = plan.panels * self.width
        self.right = Staged(
            frame, self.y, self.dtype, form.last, columns, plan.box,
            odd_lines(columns, self.dtype), form.outputs,
        )  # fmt: skip
        self.columns, count = columns, form.taps * plan.inputs * columns
        self.totals = frame.private("totals", self.dtype, count)
        boxes = [-(-axis.y // box) for axis, box in zip(self.axes, plan.box, strict=True)]
        self.boxes = boxes
        is_several = any(n > 1 for n in boxes)
        self.chains = frame.private("chains", self.dtype, count) if is_several else None

    def clear(self, buffer: object) -> None:
        k, count = self.k, self.form.taps * self.plan.inputs * self.columns
        with k.loop(count, 0, LANES) as i:
            k.store(buffer, i + k.lane(), 0.0)  # type: ignore[arg-type]

    def walk_boxes(self) -> None:
        k, (deep, high, wide) = self.k, self.boxes
        with k.loop(self.frame.sizes.val(self.form.batch)) as self.image:
            if self.chains is not None:
                self.clear(self.chains)
            with k.loop(deep) as d, k.loop(high) as h, k.loop(wide) as w:
                self.run_box((d, h, w))
            if self.chains is not None:
                self.add_chains()

    def add_chains(self) -> None:
        k, count = self.k, self.form.taps * self.plan.inputs * self.columns
        chains = self.chains
        with k.loop(count, 0, LANES) as i:
            at = i + k.lane()
            k.store(self.totals, at, k.load(self.totals, at) + k.load(chains, at))  # type: ignore[arg-type]

    def run_box(self, number: Sequence[Val]) -> None:
        k, form, plan = self.k, self.form, self.plan
        starts = [i * b for i, b in zip(number, plan.box, strict=True)]
        self.counts = [
            k.min(axis.y - start, box) if axis.y % box else k.index(box)
            for start, box, axis in zip(starts, plan.box, self.axes, strict=True)
        ]
        met, margins = [], []
        for axis, start, (first, size), box in zip(
            self.axes, starts, self.reaches, plan.box, strict=True
        ):
            each = axis.period * axis.stride // axis.holes
            met.append(start // axis.period * each + first)
            final = (-(-axis.y // box) - 1) * box // axis.period * each + first + size
            margins.append(first < 0 or final > axis.x)
        channel = self.channels * form.inputs + self.first
        if isinstance(self.left, InPlace):
            self.begin = self.left.open(self.image, channel, met)
        else:
            self.begin = k.index(0)
            self.left.stage(self.image, channel, met, margins)
        past = [axis.y % box != 0 for axis, box in zip(self.axes, plan.box, strict=True)]
        self.right.stage(self.image, self.channels * form.outputs + self.output, starts, past,
                         self.output)  # fmt: skip
        with k.loop(plan.panels) as panel:
            self.panel, self.panel_number = panel * self.width, panel
            for phases in pairs(*(axis.phases() for axis in self.axes)):
                if all(phase.count for phase in phases):
                    self.run_phases(phases)

    def fetch_ahead(self, row: Val) -> None:
        """Lines of both sides of the next box, some for every row of every tile."""
        if not self.lines:
            return
        left, right = self.lines
        first = self.tile_number * self.plan.box[1] + row
        for side, count, rows in (
            (self.left, left, self.ahead),
            (self.right, right, self.plan.box[1]),
        ):
            for i in range(count):
                side.fetch(first * count + i, rows)

    def plan_fetching(self) -> None:
        """How many lines of the next box each row of a tile asks for."""
        plan, high = self.plan, self.axes[1]
        self.lines: tuple[int, ...] = ()
        tiles = plan.panels * -(-plan.inputs // plan.rows) * self.form.taps
        if plan.is_small or any(axis.period > 1 for axis in self.axes):
            return
        each = tiles * plan.box[1]
        self.ahead = plan.box[1] * high.stride * (self.axes[2].x if plan.in_place else 1)
        left = self.left.lines_of(self.ahead)
        self.lines = -(-left // each), -(-self.right.lines_of(plan.box[1]) // each)

    def run_phases(self, phases: Phases) -> None:
        if self.plan.is_small:
            for rows in self.small_rows(phases):
                self.run_tile(rows, phases)
            return
        inputs, most = self.plan.inputs, self.plan.rows
        whole = inputs // most * most
        for start, stop, count in ((0, whole, most), (whole, inputs, inputs - whole)):
            if count:
                with self.rows(phases, start, stop, count) as rows:
                    self.run_tile(rows, phases)

    def base(self, phases: Phases) -> int:
        steps = (self.left.plane, self.left.row, self.left.pitch)
        each = zip(phases, self.reaches, steps, strict=True)
        return sum((phase.base - first) * step for phase, (first, _), step in each)

    @contextmanager
    def rows(self, phases: Phases, start: int, stop: int, count: int) -> Iterator[SumRows]:
        """For every tap of the phases, inputs in tiles of so many."""
        k, left, plan = self.k, self.left, self.plan
        deep, high, wide = phases
        with (
            k.loop(stop, start, count, always=True) as c,
            k.loop(deep.count, always=True) as d,
            k.loop(high.count, always=True) as h,
            k.loop(wide.count, always=True) as w,
        ):
            at = d * (deep.reach * left.plane) + h * (high.reach * left.row)
            at = at + w * (wide.reach * left.pitch) + (self.begin + self.base(phases))
            step = left.channel if isinstance(left, InPlace) else 1
            tap = (d * deep.step + deep.tap) * self.axes[1].taps + h * high.step + high.tap
            tap = tap * self.axes[2].taps + w * wide.step + wide.tap
            tiles = -(-plan.inputs // plan.rows)
            turn = (self.panel_number * tiles + c // plan.rows) * self.form.taps
            self.tile_number = turn + tap
            sums = [tap * plan.inputs + c + i for i in range(count)]
            yield SumRows(at + c * step, range(0, count * step, step), sums)

    def small_rows(self, phases: Phases) -> list[SumRows]:
        """Of few inputs: taps and inputs together, written out."""
        left, k, plan, (_, high, wide) = self.left, self.k, self.plan, self.axes
        steps = (left.plane, left.row, left.pitch)
        offsets, sums = [], []
        for counts in pairs(*(range(phase.count) for phase in phases)):
            at = sum(t * p.reach * s for t, p, s in zip(counts, phases, steps, strict=True))
            taps = [t * p.step + p.tap for t, p in zip(counts, phases, strict=True)]
            tap = (taps[0] * high.taps + taps[1]) * wide.taps + taps[2]
            offsets += [at + c for c in range(plan.inputs)]
            sums += [tap * plan.inputs + c for c in range(plan.inputs)]
        each = -(-len(offsets) // -(-len(offsets) // plan.rows))
        return [
            SumRows(k.index(self.base(phases)), offsets[i : i + each],
                 [k.index(s) for s in sums[i : i + each]])
            for i in range(0, len(offsets), each)
        ]  # fmt: skip

    # -- the tile ----------------------------------------------------------------------------------

    def run_tile(self, rows: SumRows, phases: Phases) -> None:
        k, vectors = self.k, self.plan.vectors
        buffer = self.totals if self.chains is None else self.chains
        accs = [[k.local(0, self.dtype) for _ in range(vectors)] for _ in rows.offsets]
        if self.chains is not None:
            for chain, row in zip(accs, rows.sums, strict=True):
                for v, acc in enumerate(chain):
                    acc.set(k.load(buffer, self.sum_at(row, v)))
        self.walk_places(accs, rows, phases)
        for chain, row in zip(accs, rows.sums, strict=True):
            for v, acc in enumerate(chain):
                at, value = self.sum_at(row, v), acc.get()
                total = k.load(buffer, at) + value if self.chains is None else value
                k.store(buffer, at, total)

    def sum_at(self, row: Val, v: int) -> Val:
        return row * self.columns + self.panel + v * LANES + self.k.lane()

    def walk_places(self, accs: list[list[LocalVar]], rows: SumRows, phases: Phases) -> None:
        """All places of the phases, row by row."""
        k, left, right, unroll = self.k, self.left, self.right, self.plan.unroll
        deep, high, wide = phases
        planes, lines, places = (
            (count - phase.first + (phase.period - 1)) // phase.period
            for count, phase in zip(self.counts, phases, strict=True)
        )
        with k.loop(planes) as d, k.loop(lines) as h:
            self.fetch_ahead(h)
            at = rows.at + d * (deep.stride * left.plane) + h * (high.stride * left.row)
            to = (d * deep.period + deep.first) * right.plane
            to = to + (h * high.period + high.first) * right.row + wide.first * right.pitch
            to, step = to + self.panel, (wide.stride * left.pitch, wide.period * right.pitch)
            whole = places // unroll * unroll
            with k.loop(whole, 0, unroll) as w:
                for u in range(unroll):
                    self.step(accs, rows.offsets, at + (w + u) * step[0], to + (w + u) * step[1])
            if places.const is None or int(places.const) % unroll:
                with k.loop(places, whole) as w:
                    self.step(accs, rows.offsets, at + w * step[0], to + w * step[1])

    def step(
        self, accs: list[list[LocalVar]], offsets: Sequence[int], left: Val, right: Val
    ) -> None:
        k = self.k
        vectors = [
            k.load(self.right.buffer, right + v * LANES + k.lane()) for v in range(len(accs[0]))
        ]
        for offset, chain in zip(offsets, accs, strict=True):
            factor = k.load(self.left.buffer, left + offset)
            for vector, acc in zip(vectors, chain, strict=True):
                acc.set(k.fma(factor, vector, acc.get()))

    # -- results -----------------------------------------------------------------------------------

    def store(self) -> None:
        form, plan, k = self.form, self.plan, self.k
        order = WeightOrder(k, self.frame.sizes, form, self.channels, self.first, plan.inputs)
        with k.loop(k.min(form.outputs - self.output, self.columns), 0, LANES) as column:
            output = self.output + column
            if along_outputs(form):
                lane = output + k.lane()
                with (
                    k.loop(form.taps) as tap,
                    k.loop(plan.inputs) as c,
                    self.frame.within(lane, k.index(form.outputs), form.outputs),
                ):
                    self.write(order.at(lane, c, tap), self.total(order.met(tap), c, column))
            else:
                with order.walks() as walk:
                    self.store_turned(walk, output, column)

    def store_turned(self, walk: WeightWalk, output: Val, column: Val) -> None:
        """Sixteen outputs, sixteen steps along memory at a time."""
        k = self.k
        with k.loop(walk.length, 0, LANES) as step:
            rows = [
                self.total(*walk.where(k.min(step + i, walk.length - 1)), column)
                for i in range(LANES)
            ]
            lane = step + k.lane()
            for i, vector in enumerate(turned(k, rows)):
                with k.when(output + i < self.form.outputs):
                    self.store_row(walk, output + i, lane, vector)

    def store_row(self, walk: WeightWalk, output: Val, lane: Val, vector: Val) -> None:
        if walk.length == 1:  # no axis is left for the lanes
            self.write(walk.at(output, self.k.index(0)), self.k.broadcast(vector))
            return
        with self.frame.within(lane, self.k.index(walk.length), walk.length):
            self.write(walk.at(output, lane), vector)

    def total(self, tap: Val, c: Val, column: Val) -> Val:
        row = tap * self.plan.inputs + c
        return self.k.load(self.totals, row * self.columns + column + self.k.lane())

    def write(self, at: tuple[Val, ...], value: Val) -> None:
        self.frame.write(self.out, self.node, at, self.k.cast(value, self.node.type.dtype))
