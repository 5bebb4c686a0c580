"""Kernels of windows: lanes run along the last axis, a workgroup takes some rows of it.

Forward, an element of the result folds the taps of its window, which are read a stride apart. Back,
an element of the array folds the windows it lies in: along the last axis those with the same
remainder by the stride read neighbours, so a vector of each remainder is made and they are laid
into each other. Where a vector of the last axis is in range for every tap, nothing is tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial, reduce
from operator import and_

import numpy as np

from tetrad.core.dtypes import i32
from tetrad.core.machine import LANES
from tetrad.core.record import record
from tetrad.core.sizes import Size, ceil_div, product
from tetrad.core.types import row_strides
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import LocalVar, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space, offset
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
EDGES = 8  # vectors of the last axis that are written out
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

    def vectors(self, count: Size, is_plain: Callable[[int], bool], body: Each) -> None:
        """body(vector) over `count` positions of the last axis. Those that need no tests are a
        loop; others are written out, if they are few. The last begins earlier rather than reach
        beyond the end: some elements are stored twice, alike."""
        k = self.k
        if not isinstance(count, int) or count < LANES:
            with k.loop(self.frame.sizes.val(count), 0, LANES) as column:
                body(Vector(column + k.lane(), None, is_short=True))
            return
        whole, overlaps = count // LANES, count % LANES != 0
        firsts = [block * LANES for block in range(whole)]
        plain = [first for first in firsts if is_plain(first)]
        if whole - len(plain) > EDGES:
            with k.loop(whole * LANES, 0, LANES, always=True) as column:
                body(Vector(column + k.lane(), None, overlaps=overlaps))
            firsts, plain = [], []
        if plain:
            with k.loop(plain[-1] + LANES, plain[0], LANES, always=True) as column:
                body(Vector(column + k.lane(), None, True, overlaps=overlaps))
        edges = [first for first in firsts if first not in plain]
        for first in (*edges, count - LANES) if overlaps else edges:
            lane = k.index(first) + k.lane()
            body(Vector(lane, first, is_plain(first), overlaps=overlaps))

    # -- forward ---------------------------------------------------------------------------------

    def fold_window(self, at: At, vector: Vector, fold: Fold) -> None:
        """fold(tap, place) for every tap in range of the window `at`, in order."""
        self.fold_axis(0, self.k.index(0), (), at, vector, fold)

    def fold_axis(
        self, axis: int, number: Val, place: At, at: At, vector: Vector, fold: Fold
    ) -> None:
        if axis > self.last:
            fold(number, place)
            return
        count, stride, apart = self.window[axis], self.strides[axis], self.dilation[axis]

        def body(tap: Val) -> None:
            where = at[axis] * stride + tap * apart - self.padding[axis][0]
            then = (number * count + tap, (*place, where), at, vector, fold)
            if not self.may_miss(axis, tap, vector):
                self.fold_axis(axis + 1, *then)
                return
            with self.k.when((where >= 0) & (where < self.size(axis))):
                self.fold_axis(axis + 1, *then)

        if self.moves(axis):
            self.taps(count, body, self.unrolls)
        else:
            self.fold_axis(axis + 1, number, (*place, at[axis]), at, vector, fold)

    def size(self, axis: int) -> Val:
        return self.frame.sizes.val(self.inner[axis])

    def may_miss(self, axis: int, tap: Val, vector: Vector) -> bool:
        """May a tap of a window be padding?"""
        if not self.is_padded(axis) or (axis == self.last and vector.is_plain):
            return False
        if axis != self.last or vector.first is None or tap.const is None:
            return True
        return not self.is_inside(vector.first, int(tap.const))

    def is_inside(self, first: int, tap: int) -> bool:
        """Is the tap in range, for a vector of windows of the last axis?"""
        low, stride = self.padding[self.last][0], self.strides[self.last]
        place = first * stride + tap * self.dilation[self.last] - low
        return place >= 0 and place + (LANES - 1) * stride < self.inner[-1]  # type: ignore[operator]

    def reads_all(self, first: int) -> bool:
        """Are all taps of a vector of windows in range along the last axis?"""
        ends = (0, self.window[self.last] - 1)
        return not self.is_padded(self.last) or all(self.is_inside(first, tap) for tap in ends)

    def may_be_first(self, tap: Val) -> bool:
        """May a tap be the first of its window that is no padding? All before it are, then."""
        if tap.const is None:
            return True
        taps = np.unravel_index(int(tap.const), self.window)
        rest = zip(taps, self.dilation, self.padding, strict=True)
        return all(one == 0 or (one - 1) * apart < low for one, apart, (low, _) in rest)

    def windows(self, body: Callable[[At, Vector], None]) -> Size:
        """body(window, vector) for all windows."""

        def row(kept: At) -> None:
            def one(vector: Vector) -> None:
                at = (*kept, vector.lane)
                if not vector.is_short:
                    body(at, vector)
                    return
                with self.k.when(vector.lane < self.frame.sizes.val(self.outer[-1]), guard=True):
                    body(at, vector)

            self.vectors(self.outer[-1], self.reads_all, one)

        return self.rows(row)

    def store(self, out: Buffer, at: At, value: Val, vector: Vector) -> None:
        shape = self.node.type.shape
        where = offset(self.frame.sizes, at, shape, row_strides(shape))
        hint = "same" if vector.overlaps else ""
        self.k.store(out, where, self.k.cast(value, self.node.type.dtype), hint)


@record
class Vector:
    """Neighbours along the last axis: the position of each lane, and that of the first if it is
    known; whether nothing needs a test; whether some lanes are beyond the end; whether another
    vector stores some of the same."""

    lane: Val
    first: int | None
    is_plain: bool = False
    is_short: bool = False
    overlaps: bool = False


Each = Callable[[Vector], None]


# -- kernels forward -------------------------------------------------------------------------------


@window_sum.kernel
def lower_window_sum(frame: Frame, group: Group) -> Launch:
    node, k = group.root, frame.k
    (x,), dtype = node.inputs, node.type.dtype.computing

    def body(at: At, vector: Vector) -> None:
        total = k.local(0, dtype)
        geometry.fold_window(
            at, vector, lambda tap, place: total.set(total.get() + frame.reading.wide(x, place))
        )
        geometry.store(out, at, total.get(), vector)

    geometry, out = Geometry(frame, node, x, node), frame.output(frame.memory.slots[node])
    return finished(frame, group, geometry, geometry.windows(body))


@window_extreme.kernel
def lower_window_extreme(frame: Frame, group: Group) -> Launch:
    node, k = group.root, frame.k
    (x,), dtype = node.inputs, node.type.dtype.computing
    better = k.max if node.param("largest") else k.min
    least = outermost(node.type.dtype.np, node.param("largest"))

    def body(at: At, vector: Vector) -> None:
        found = k.local(least, dtype)
        geometry.fold_window(
            at,
            vector,
            lambda tap, place: found.set(better(found.get(), frame.reading.wide(x, place))),
        )
        geometry.store(out, at, found.get(), vector)

    geometry, out = Geometry(frame, node, x, node), frame.output(frame.memory.slots[node])
    return finished(frame, group, geometry, geometry.windows(body))


@window_position.kernel
def lower_window_position(frame: Frame, group: Group) -> Launch:
    node, k = group.root, frame.k
    (x,), kind = node.inputs, node.inputs[0].type.dtype
    how = "le" if node.param("largest") else "ge"
    least = outermost(kind.np, node.param("largest"))

    def body(at: At, vector: Vector) -> None:
        best, found = k.local(least, kind.computing), k.local(-1, i32)

        def fold(tap: Val, place: At) -> None:
            now, before = frame.reading.wide(x, place), best.get()
            wins = k.compare(how, now, before).eq(False)  # so NaN wins, and after it nothing
            wins = wins & before.eq(before) if kind.is_float else wins
            wins = wins | (found.get() < 0) if geometry.may_be_first(tap) else wins
            found.set(k.select(wins, k.cast(tap, i32), found.get()))
            best.set(k.select(wins, now, before))

        geometry.fold_window(at, vector, fold)
        geometry.store(out, at, found.get(), vector)

    geometry, out = Geometry(frame, node, x, node), frame.output(frame.memory.slots[node])
    return finished(frame, group, geometry, geometry.windows(body))


@window_pick.kernel
def lower_window_pick(frame: Frame, group: Group) -> Launch:
    node, k = group.root, frame.k
    (x, taps), dtype = node.inputs, node.type.dtype.computing

    def body(at: At, vector: Vector) -> None:
        found, chosen = k.local(0, dtype), frame.reading.read(taps, at)

        def fold(tap: Val, place: At) -> None:
            hit = chosen.eq(k.cast(tap, i32))
            found.set(k.select(hit, frame.reading.wide(x, place), found.get()))

        geometry.fold_window(at, vector, fold)
        geometry.store(out, at, found.get(), vector)

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
            self.g.vectors(self.size, lambda first: True, partial(self.same_column, kept))
        elif self.count <= NARROW and self.stride <= NARROW:
            begin = self.low // self.stride
            count = (self.size - 1 + self.low) // self.stride - begin + 1
            plain = lambda first: self.is_plain(begin + first)  # noqa: E731
            self.g.vectors(count, plain, partial(self.remainders, kept, begin))
        else:
            self.g.vectors(self.size, lambda first: True, partial(self.any_column, kept))

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

    # -- the last axis --

    def same_column(self, kept: At, vector: Vector) -> None:
        """No window moves along it."""

        def body() -> None:
            total = self.sum()
            self.over_rows(kept, lambda tap, place: self.add(total, tap, (*place, vector.lane)))
            self.g.store(self.out, (*kept, vector.lane), total.get(), vector)

        self.before_end(vector, body)

    def before_end(self, vector: Vector, body: Callable[[], None]) -> None:
        if not vector.is_short:
            body()
            return
        with self.k.when(vector.lane < self.frame.sizes.val(self.size), guard=True):
            body()

    def any_column(self, kept: At, vector: Vector) -> None:
        """Wide windows: every lane looks for its own."""

        def body() -> None:
            total = self.sum()

            def over_taps(number: Val, place: At) -> None:
                with self.k.loop(self.count, always=True) as tap:
                    found = self.window_at(self.g.last, vector.lane, tap * self.apart, self.stride)
                    with self.k.when(found[1]):
                        self.add(total, number * self.count + tap, (*place, found[0]))

            self.over_rows(kept, over_taps)
            self.g.store(self.out, (*kept, vector.lane), total.get(), vector)

        self.before_end(vector, body)

    def is_plain(self, first: int) -> bool:
        """Are all windows that the elements stride * first - low ... lie in there, and all those
        elements?"""
        begin, stop = first * self.stride - self.low, (first + LANES) * self.stride - self.low
        there = begin >= 0 and stop <= self.size  # type: ignore[operator]
        return there and all(self.is_inside(first, tap) for tap in (0, self.count - 1))

    def is_inside(self, first: int, tap: int) -> bool:
        """Are there windows whose tap is at stride * q + r - low, for a vector of q?"""
        window = first - tap * self.apart // self.stride
        return window >= 0 and window + LANES <= self.windows  # type: ignore[operator]

    def remainders(self, kept: At, begin: int, vector: Vector) -> None:
        """Elements stride * q + r - low for lanes q: those of each r read neighbours."""
        k, q = self.k, vector.lane + begin
        first = None if vector.first is None else vector.first + begin
        totals = [self.sum() for _ in range(self.stride)]

        def over_taps(number: Val, place: At) -> None:
            for tap in range(self.count):
                ahead, r = divmod(tap * self.apart, self.stride)
                window = q - ahead
                add = (totals[r], number * self.count + tap, (*place, window))
                if vector.is_plain or (first is not None and self.is_inside(first, tap)):
                    self.add(*add)
                    continue
                with k.when((window >= 0) & (window < k.index(self.windows))):
                    self.add(*add)

        self.over_rows(kept, over_taps)
        base = (q - k.lane()) * self.stride - self.low
        for start, value in self.laid_out(base, [total.get() for total in totals]):
            if vector.is_plain:
                self.g.store(self.out, (*kept, start), value, vector)
                continue
            with k.when((start >= 0) & (start < k.index(self.size))):
                self.g.store(self.out, (*kept, start), value, vector)

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
