"""Kernels, Fourier transforms, the ends: how a kernel reads its operand and writes its result,
position by position.

An end of complex numbers gives `pair`s; one of reals gives `one` at a time, or `two` neighbours as
a complex number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.ops.fft.butterfly import Pair


class End(Protocol):
    """Operand or result. Positions are i + off; `two` counts in pairs."""

    def pair(self, i: Val, off: int = 0) -> Pair: ...

    def one(self, i: Val, off: int = 0) -> Val: ...

    def two(self, i: Val, off: int = 0) -> Pair: ...

    def put_pair(self, i: Val, off: int, value: Pair) -> None: ...

    def put_one(self, i: Val, off: int, value: Val) -> None: ...

    def put_two(self, i: Val, off: int, value: Pair) -> None: ...


def turned(k: KernelBuilder, tile: list[Val]) -> list[Val]:
    """The transpose of as many vectors as they have lanes, by exchanging blocks of half the lanes,
    a quarter, ..."""
    lanes = len(tile)
    width = lanes // 2
    while width:
        done = list(tile)
        for i in range(lanes):
            if not i & width:
                a, b = tile[i], tile[i + width]
                done[i], done[i + width] = (
                    k.shuffle(a, b, exchange(lanes, width, start)) for start in (0, width)
                )
        tile = done
        width //= 2
    return tile


def exchange(lanes: int, width: int, start: int) -> tuple[int, ...]:
    """Blocks of `width` lanes, alternately from a and from b: the low blocks of both, or the high
    ones."""
    return tuple((i & ~width) + start + (lanes if i & width else 0) for i in range(lanes))


class NearLines:
    """Vectors lie in memory as they are: neighbours of one line (pitch 1), or neighbouring lines
    (pitch: how many)."""

    def __init__(
        self, frame: Frame, buffer: Buffer, start: Val, pitch: int, lanes: int, ahead: int = 0
    ) -> None:
        self.k, self.buffer, self.pitch, self.lanes, self.ahead = (
            frame.k,
            buffer,
            pitch,
            lanes,
            ahead,
        )
        self.start = start + frame.k.lane()

    def at(self, i: Val, off: int, width: int) -> Val:
        """The place of position i + off, numbers having `width` floats."""
        return i * (width * self.pitch) + self.start + off * (width * self.pitch)

    def one(self, i: Val, off: int = 0) -> Val:
        return self.k.load(self.buffer, self.at(i, off, 1))

    def pair(self, i: Val, off: int = 0) -> Pair:
        at = self.at(i, off, 2)
        low, high = self.k.load(self.buffer, at), self.k.load(self.buffer, at + self.lanes)
        if self.ahead:  # columns are read in an order no processor foresees
            self.k.prefetch(self.buffer, at + self.ahead)
        real, imag = (
            self.k.shuffle(low, high, tuple(range(part, 2 * self.lanes, 2))) for part in (0, 1)
        )
        return real, imag

    def two(self, i: Val, off: int = 0) -> Pair:
        return (
            self.pair(i, off)
            if self.pitch == 1
            else (self.one(i * 2, 2 * off), self.one(i * 2, 2 * off + 1))
        )

    def put_one(self, i: Val, off: int, value: Val) -> None:
        self.k.store(self.buffer, self.at(i, off, 1), value, "same")

    def put_pair(self, i: Val, off: int, value: Pair) -> None:
        at, half = self.at(i, off, 2), self.lanes // 2
        for side in (0, 1):
            order = tuple(
                part * self.lanes + side * half + j for j in range(half) for part in (0, 1)
            )
            self.k.store(self.buffer, at + side * self.lanes, self.k.shuffle(*value, order), "same")

    def put_two(self, i: Val, off: int, value: Pair) -> None:
        if self.pitch == 1:
            self.put_pair(i, off, value)
            return
        self.put_one(i * 2, 2 * off, value[0])
        self.put_one(i * 2, 2 * off + 1, value[1])


class Held:
    """Lines in memory one after the other, float by float side by side in scratch: fetched before,
    flushed after."""

    def __init__(
        self, frame: Frame, buffer: Buffer, first: Val, lines: Val, count: int, lanes: int
    ) -> None:
        self.k, self.buffer, self.first, self.lines = frame.k, buffer, first, lines
        self.count, self.lanes, self.lane = count, lanes, frame.k.lane()
        self.floats = frame.private("line", buffer.dtype, count * lanes)

    def float_at(self, i: Val, off: int) -> Val:
        return i * self.lanes + self.lane + off * self.lanes

    def one(self, i: Val, off: int = 0) -> Val:
        return self.k.load(self.floats, self.float_at(i, off))

    def two(self, i: Val, off: int = 0) -> Pair:
        return self.one(i * 2, 2 * off), self.one(i * 2, 2 * off + 1)

    pair = two

    def put_one(self, i: Val, off: int, value: Val) -> None:
        self.k.store(self.floats, self.float_at(i, off), value)

    def put_two(self, i: Val, off: int, value: Pair) -> None:
        self.put_one(i * 2, 2 * off, value[0])
        self.put_one(i * 2, 2 * off + 1, value[1])

    put_pair = put_two

    def fetch(self) -> None:
        """By tiles; a lane without a line gets the last one again. Lines shorter than a vector
        float by float."""
        k, last = self.k, self.lines - 1
        if self.count < self.lanes:
            line = k.min(self.first + self.lane, last)
            for i in range(self.count):
                self.put_one(k.index(i), 0, k.load(self.buffer, line * self.count + i))
            return
        with self.tiles() as column:
            lines = [k.min(self.first + i, last) for i in range(self.lanes)]
            tile = turned(
                k, [k.load(self.buffer, line * self.count + column + self.lane) for line in lines]
            )
            for i, vector in enumerate(tile):
                self.put_one(column, i, vector)

    def flush(self) -> None:
        k = self.k
        if self.count < self.lanes:
            with k.when(self.first + self.lane < self.lines, guard=True):
                for i in range(self.count):
                    at = (self.first + self.lane) * self.count + i
                    k.store(self.buffer, at, self.one(k.index(i)))
            return
        with self.tiles() as column:
            tile = turned(k, [self.one(column, i) for i in range(self.lanes)])
            for i, vector in enumerate(tile):
                with k.when(self.first + i < self.lines):
                    k.store(
                        self.buffer,
                        (self.first + i) * self.count + column + self.lane,
                        vector,
                        "same",
                    )

    @contextmanager
    def tiles(self) -> Iterator[Val]:
        """Where tiles start along a line; the last one not so late that it would reach over the
        end."""
        with self.k.loop(-(-self.count // self.lanes), always=True) as tile:
            yield self.k.min(tile * self.lanes, self.count - self.lanes)


class FarLines:
    """Lines whose neighbours are few or of unknown number: every lane finds its own."""

    def __init__(
        self,
        frame: Frame,
        buffer: Buffer,
        first: Val,
        lines: Val,
        inner: Val,
        count: int,
        width: int,
    ) -> None:
        self.k, self.buffer, self.inner, self.width = frame.k, buffer, inner, width
        self.has_line = first + frame.k.lane() < lines
        line = self.k.min(first + frame.k.lane(), lines - 1)
        self.start = (line // inner * inner * (count // width) + line % inner) * width

    def at(self, i: Val, off: int, part: int) -> Val:
        return self.start + (i + off) * self.inner * self.width + part

    def one(self, i: Val, off: int = 0) -> Val:
        return self.k.load(self.buffer, self.at(i, off, 0))

    def pair(self, i: Val, off: int = 0) -> Pair:
        return self.k.load(self.buffer, self.at(i, off, 0)), self.k.load(
            self.buffer, self.at(i, off, 1)
        )

    def two(self, i: Val, off: int = 0) -> Pair:
        return self.one(i * 2, 2 * off), self.one(i * 2, 2 * off + 1)

    def put(self, at: Val, value: Val) -> None:
        with self.k.when(self.has_line, guard=True):
            self.k.store(self.buffer, at, value)

    def put_one(self, i: Val, off: int, value: Val) -> None:
        self.put(self.at(i, off, 0), value)

    def put_pair(self, i: Val, off: int, value: Pair) -> None:
        self.put(self.at(i, off, 0), value[0])
        self.put(self.at(i, off, 1), value[1])

    def put_two(self, i: Val, off: int, value: Pair) -> None:
        self.put_one(i * 2, 2 * off, value[0])
        self.put_one(i * 2, 2 * off + 1, value[1])
