"""Kernels of windows: lanes run along the last axis, a workgroup takes some rows of it.

Forward, an element of the result folds the taps of its window, which are read a stride apart. Back,
an element of the array folds the windows it lies in: along the last axis those with the same
remainder by the stride read neighbours, so a vector of each remainder is made and they are laid
into each other. Where a vector of the last axis is in range for every tap, nothing is tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import reduce
from operator import and_

from tetrad.core.dtypes import i32
from tetrad.core.machine import LANES
from tetrad.core.sizes import Size, ceil_div, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import LocalVar, Val
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import At
from tetrad.ops.pool.op import (
    is_moving,
    outermost,
    window_extreme,
    window_pick,
    window_position,
    window_put,
    window_spread,
    window_sum,
)
from tetrad.schedule.nodes import Launch

ELEMENTS = 4096  # of the result, that a workgroup takes
UNROLLED = 64  # taps that are written out
NARROW = 16  # taps along the last axis up to which remainders are written out

Fold = Callable[[Val, At], None]  # takes in a tap: its number, and where it reads


class Geometry:
    """The settings of a node, and which way it goes: `inner` sizes are those of the array, `outer`
    ones those of its windows."""

    def __init__(self, frame: Frame, node: Node, array: Node, windows: Node) -> None:
        self.frame, self.k, self.node = frame, frame.k, node
        self.window: tuple[int, ...] = node.param("window")
        self.strides: tuple[int, ...] = node.param("strides")
        self.padding: tuple[tuple[int, int], ...] = node.param("padding")
        self.dilation: tuple[int, ...] = node.param("dilation")
        self.inner, self.outer = array.type.shape, windows.type.shape
        self.shape = node.type.shape
        self.last = len(self.shape) - 1
        self.unrolls = math.prod(self.window) <= UNROLLED

    def moves(self, axis: int) -> bool:
        return is_moving(self.window[axis], self.strides[axis], self.padding[axis])

    def is_padded(self, axis: int) -> bool:
        return self.padding[axis] != (0, 0)

    def taps(self, count: int, body: Callable[[Val], None], unrolls: bool) -> None:
        if unrolls:
            for number in range(count):
                body(self.k.index(number))
        else:
            with self.k.loop(count, always=True) as tap:
                body(tap)

    # -- the walk --------------------------------------------------------------------------------

    def rows(self, body: Callable[[At], None]) -> Size:
        """body(the index of a row) for the rows of a workgroup; the number of workgroups."""
        k, shape = self.k, self.shape[:-1]
        length, total = self.shape[-1], product(shape)
        each = max(1, ELEMENTS // length) if isinstance(length, int) and length else 1
        first = k.group_id() * each
        stop = k.min(first + each, self.frame.sizes.val(total))
        with k.loop(stop, first) as row:
            body(Space(k, self.frame.sizes, shape, row).axes())
        return ceil_div(total, each)

    def columns(self, count: Size, is_plain: Callable[[int], bool], body: Columns) -> None:
        """body(first of a vector, whether it must test) over `count` positions of the last axis."""
        k = self.k
        if not isinstance(count, int):
            with k.loop(self.frame.sizes.val(count), 0, LANES) as column:
                body(column, False, True)
            return
        for start, stop, is_safe in stretches(-(-count // LANES), is_plain):
            whole = min(stop, count // LANES)
            if start < whole:
                with k.loop(whole * LANES, start * LANES, LANES, always=True) as column:
                    body(column, not is_safe, False)
            if whole < stop:
                body(k.index((stop - 1) * LANES), not is_safe, True)

    # -- forward ---------------------------------------------------------------------------------

    def fold_window(self, at: At, tests: bool, fold: Fold) -> None:
        """fold(tap, place) for every tap in range of the window `at`, in order."""
        self.fold_axis(0, self.k.index(0), (), at, tests, fold)

    def fold_axis(self, axis: int, number: Val, place: At, at: At, tests: bool, fold: Fold) -> None:
        if axis > self.last:
            fold(number, place)
            return
        count, stride, apart = self.window[axis], self.strides[axis], self.dilation[axis]
        may_miss = self.is_padded(axis) and (tests or axis != self.last)

        def body(tap: Val) -> None:
            where = at[axis] * stride + tap * apart - self.padding[axis][0]
            then = (number * count + tap, (*place, where), at, tests, fold)
            if not may_miss:
                self.fold_axis(axis + 1, *then)
                return
            with self.k.when((where >= 0) & (where < self.size(axis))):
                self.fold_axis(axis + 1, *then)

        if self.moves(axis):
            self.taps(count, body, self.unrolls)
        else:
            self.fold_axis(axis + 1, number, (*place, at[axis]), at, tests, fold)

    def size(self, axis: int) -> Val:
        return self.frame.sizes.val(self.inner[axis])

    def reads_all(self, block: int) -> bool:
        """Are all taps of these windows in range along the last axis?"""
        axis, size = self.last, self.inner[-1]
        if not self.is_padded(axis) or not isinstance(size, int):
            return True
        low, stride = self.padding[axis][0], self.strides[axis]
        first = block * LANES * stride - low
        end = (block * LANES + LANES - 1) * stride - low
        return first >= 0 and end + (self.window[axis] - 1) * self.dilation[axis] < size

    def windows(self, body: Callable[[At, bool], None]) -> Size:
        """body(window, whether taps along the last axis must be tested) for all windows."""
        k = self.k

        def row(kept: At) -> None:
            def vector(column: Val, tests: bool, is_short: bool) -> None:
                at = (*kept, column + k.lane())
                if not is_short:
                    body(at, tests)
                    return
                with k.when(at[-1] < self.frame.sizes.val(self.outer[-1]), guard=True):
                    body(at, tests)

            self.columns(self.outer[-1], self.reads_all, vector)

        return self.rows(row)


Columns = Callable[[Val, bool, bool], None]


def stretches(count: int, is_plain: Callable[[int], bool]) -> Iterator[tuple[int, int, bool]]:
    """Runs of neighbours that are plain, or not.

    >>> list(stretches(5, lambda block: 1 <= block < 4))
    [(0, 1, False), (1, 4, True), (4, 5, False)]
    """
    start = 0
    for block in range(1, count + 1):
        if block == count or is_plain(block) != is_plain(start):
            yield start, block, is_plain(start)
            start = block


# -- kernels forward -------------------------------------------------------------------------------


@window_sum.kernel
def lower_window_sum(frame: Frame, group: Group) -> Launch:
    node, k = group.root, frame.k
    (x,), dtype = node.inputs, node.type.dtype.computing

    def body(at: At, tests: bool) -> None:
        total = k.local(0, dtype)
        geometry.fold_window(
            at, tests, lambda tap, place: total.set(total.get() + frame.reading.wide(x, place))
        )
        frame.write(out, node, at, k.cast(total.get(), node.type.dtype))

    geometry, out = Geometry(frame, node, x, node), frame.output(frame.memory.slots[node])
    return finished(frame, group, geometry, geometry.windows(body))


@window_extreme.kernel
def lower_window_extreme(frame: Frame, group: Group) -> Launch:
    node, k = group.root, frame.k
    (x,), dtype = node.inputs, node.type.dtype.computing
    better = k.max if node.param("largest") else k.min
    least = outermost(node.type.dtype.np, node.param("largest"))

    def body(at: At, tests: bool) -> None:
        found = k.local(least, dtype)
        geometry.fold_window(
            at,
            tests,
            lambda tap, place: found.set(better(found.get(), frame.reading.wide(x, place))),
        )
        frame.write(out, node, at, k.cast(found.get(), node.type.dtype))

    geometry, out = Geometry(frame, node, x, node), frame.output(frame.memory.slots[node])
    return finished(frame, group, geometry, geometry.windows(body))


@window_position.kernel
def lower_window_position(frame: Frame, group: Group) -> Launch:
    node, k = group.root, frame.k
    (x,), kind = node.inputs, node.inputs[0].type.dtype
    how = "gt" if node.param("largest") else "lt"
    least = outermost(kind.np, node.param("largest"))

    def body(at: At, tests: bool) -> None:
        best, found = k.local(least, kind.computing), k.local(-1, i32)

        def fold(tap: Val, place: At) -> None:
            now, before = frame.reading.wide(x, place), best.get()
            wins = k.compare(how, now, before) | (found.get() < 0)
            if kind.is_float:
                wins = wins | (now.ne(now) & before.eq(before))
            found.set(k.select(wins, k.cast(tap, i32), found.get()))
            best.set(k.select(wins, now, before))

        geometry.fold_window(at, tests, fold)
        frame.write(out, node, at, found.get())

    geometry, out = Geometry(frame, node, x, node), frame.output(frame.memory.slots[node])
    return finished(frame, group, geometry, geometry.windows(body))


@window_pick.kernel
def lower_window_pick(frame: Frame, group: Group) -> Launch:
    node, k = group.root, frame.k
    (x, taps), dtype = node.inputs, node.type.dtype.computing

    def body(at: At, tests: bool) -> None:
        found, chosen = k.local(0, dtype), frame.reading.read(taps, at)

        def fold(tap: Val, place: At) -> None:
            hit = chosen.eq(k.cast(tap, i32))
            found.set(k.select(hit, frame.reading.wide(x, place), found.get()))

        geometry.fold_window(at, tests, fold)
        frame.write(out, node, at, k.cast(found.get(), node.type.dtype))

    geometry, out = Geometry(frame, node, x, node), frame.output(frame.memory.slots[node])
    return finished(frame, group, geometry, geometry.windows(body))


def finished(frame: Frame, group: Group, geometry: Geometry, groups: Size) -> Launch:
    work = product(geometry.outer) * product(geometry.window)
    return frame.finish(groups, group, flops=work)


# -- kernels back ----------------------------------------------------------------------------------


@window_spread.kernel
@window_put.kernel
def lower_window_back(frame: Frame, group: Group) -> Launch:
    node = group.root
    geometry = Geometry(frame, node, node, node.inputs[0])
    back = Back(geometry, group)
    return finished(frame, group, geometry, geometry.rows(back.row))


class Back:
    """From windows to the array they moved over: each element folds the windows it lies in."""

    def __init__(self, geometry: Geometry, group: Group) -> None:
        self.g, self.frame, self.k = geometry, geometry.frame, geometry.k
        self.node = group.root
        self.y, *self.taps = self.node.inputs
        self.out = self.frame.output(self.frame.memory.slots[self.node])
        axis = geometry.last
        self.count, self.stride = geometry.window[axis], geometry.strides[axis]
        self.apart, self.low = geometry.dilation[axis], geometry.padding[axis][0]
        self.size, self.windows = geometry.inner[axis], geometry.outer[axis]

    def row(self, kept: At) -> None:
        if not self.g.moves(self.g.last):
            self.g.columns(self.size, lambda block: True, lambda *v: self.same_column(kept, *v))
        elif self.count <= NARROW and self.stride <= NARROW:
            first = self.low // self.stride
            count = (self.size - 1 + self.low) // self.stride - first + 1
            plain = lambda block: self.is_plain(first + block * LANES)  # noqa: E731
            self.g.columns(count, plain, lambda *v: self.remainders(kept, first, *v))
        else:
            self.g.columns(self.size, lambda block: True, lambda *v: self.any_column(kept, *v))

    # -- the other axes: which windows hold this row --

    def over_rows(self, kept: At, body: Callable[[Val, At], None]) -> None:
        """body(number of the taps so far, windows of the other axes), for the windows of a row."""
        self.over_axis(0, self.k.index(0), (), kept, body)

    def over_axis(
        self, axis: int, number: Val, place: At, kept: At, body: Callable[[Val, At], None]
    ) -> None:
        if axis == self.g.last:
            body(number, place)
            return
        if not self.g.moves(axis):
            self.over_axis(axis + 1, number, (*place, kept[axis]), kept, body)
            return
        count, stride, apart = self.g.window[axis], self.g.strides[axis], self.g.dilation[axis]

        def one(tap: Val) -> None:
            window, inside = self.window_at(axis, kept[axis], tap * apart, stride)
            with self.k.when(inside):
                self.over_axis(axis + 1, number * count + tap, (*place, window), kept, body)

        self.g.taps(count, one, self.g.unrolls)

    def window_at(self, axis: int, at: Val, ahead: Val, stride: int) -> tuple[Val, Val]:
        """The window whose tap, `ahead` elements in, is `at`; and whether there is one."""
        distance = at + self.g.padding[axis][0] - ahead
        window = self.k.max(distance, 0) // stride  # an index is not divided below 0
        tests = [distance >= 0, window < self.frame.sizes.val(self.g.outer[axis])]
        if stride > 1:
            tests.append((window * stride).eq(distance))
        return window, reduce(and_, tests)

    def add(self, total: LocalVar, tap: Val, place: At) -> None:
        value = self.frame.reading.wide(self.y, place)
        if self.taps:
            hit = self.frame.reading.read(self.taps[0], place).eq(self.k.cast(tap, i32))
            value = self.k.select(hit, value, self.k.const(0.0, value.dtype))
        total.set(total.get() + value)

    def sum(self) -> LocalVar:
        return self.k.local(0.0, self.node.type.dtype.computing)

    def store(self, at: At, value: Val) -> None:
        self.frame.write(self.out, self.node, at, self.k.cast(value, self.node.type.dtype))

    # -- the last axis --

    def same_column(self, kept: At, column: Val, tests: bool, is_short: bool) -> None:
        """No window moves along it."""
        lane = column + self.k.lane()

        def body() -> None:
            total = self.sum()
            self.over_rows(kept, lambda tap, place: self.add(total, tap, (*place, lane)))
            self.store((*kept, lane), total.get())

        self.before_end(lane, is_short, body)

    def before_end(self, lane: Val, is_short: bool, body: Callable[[], None]) -> None:
        if not is_short:
            body()
            return
        with self.k.when(lane < self.frame.sizes.val(self.size), guard=True):
            body()

    def any_column(self, kept: At, column: Val, tests: bool, is_short: bool) -> None:
        """Wide windows: every lane looks for its own."""
        lane, axis = column + self.k.lane(), self.g.last

        def body() -> None:
            total = self.sum()

            def over_taps(number: Val, place: At) -> None:
                with self.k.loop(self.count, always=True) as tap:
                    window, inside = self.window_at(axis, lane, tap * self.apart, self.stride)
                    with self.k.when(inside):
                        self.add(total, number * self.count + tap, (*place, window))

            self.over_rows(kept, over_taps)
            self.store((*kept, lane), total.get())

        self.before_end(lane, is_short, body)

    def is_plain(self, first: int) -> bool:
        """Are all windows that the elements stride * first - low ... lie in there, and all those
        elements?"""
        end = first + LANES - 1
        reach = (self.count - 1) * self.apart // self.stride
        inside = first - reach >= 0 and end < self.windows  # type: ignore[operator]
        begin, stop = first * self.stride - self.low, (end + 1) * self.stride - self.low
        return inside and begin >= 0 and stop <= self.size  # type: ignore[operator]

    def remainders(self, kept: At, first: int, column: Val, tests: bool, is_short: bool) -> None:
        """Elements stride * q + r - low for lanes q: those of each r read neighbours."""
        k, q = self.k, column + first + self.k.lane()
        totals = [self.sum() for _ in range(self.stride)]

        def over_taps(number: Val, place: At) -> None:
            for tap in range(self.count):
                ahead, r = divmod(tap * self.apart, self.stride)
                add = (totals[r], number * self.count + tap, (*place, q - ahead))
                if not tests and not is_short:
                    self.add(*add)
                    continue
                with k.when((q - ahead >= 0) & (q - ahead < k.index(self.windows))):
                    self.add(*add)

        self.over_rows(kept, over_taps)
        base = (column + first) * self.stride - self.low
        for start, value in self.laid_out(base, [total.get() for total in totals]):
            if not tests and not is_short:
                self.store((*kept, start), value)
                continue
            with k.when((start >= 0) & (start < k.index(self.size))):
                self.store((*kept, start), value)

    def laid_out(self, base: Val, values: list[Val]) -> Iterator[tuple[Val, Val]]:
        """Places of elements and vectors of them: two remainders are laid into each other, as
        neighbours are stored at once."""
        k = self.k
        if self.stride != 2:
            for r, value in enumerate(values):
                yield base + k.lane() * self.stride + r, value
            return
        for half in range(2):
            lanes = tuple(half * LANES // 2 + i // 2 + LANES * (i % 2) for i in range(LANES))
            yield base + half * LANES + k.lane(), k.shuffle(values[0], values[1], lanes)
