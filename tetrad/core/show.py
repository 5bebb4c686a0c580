"""Core: what a compilation prints, saves and times (TETRAD_SHOW, TETRAD_DUMP, TETRAD_TIME).

Receives the text of programs and the durations of stages; prints to stderr or writes files. Changes
nothing.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from tetrad.core.errors import FlagError
from tetrad.core.flags import flag, flag_words

_dumped = itertools.count()


class Clock:
    """Seconds per stage and origins of kernels of one compilation; `explain` reads it."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self.steps: dict[str, float] = {}  # of the pipeline, in the order in which they first ran
        self.counts: dict[str, int] = {}

    def add(self, stage: str, seconds: float) -> None:
        self.stages[stage] = self.stages.get(stage, 0.0) + seconds


# Per thread: two threads that compile at the same time have separate clocks.
_clocks: ContextVar[tuple[Clock, ...]] = ContextVar("clocks", default=())


@contextmanager
def recording(clock: Clock) -> Iterator[Clock]:
    token = _clocks.set((*_clocks.get(), clock))
    try:
        yield clock
    finally:
        _clocks.reset(token)


@contextmanager
def timed(stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    add(stage, time.perf_counter() - start)


def add(stage: str, seconds: float) -> None:
    for clock in _clocks.get():
        clock.add(stage, seconds)
    if flag("TETRAD_TIME") == "1":
        print(f"tetrad: {stage:10} {seconds * 1e3:9.3f} ms", file=sys.stderr)


def spend(step: str, seconds: float) -> None:
    """Count the time of a step of the pipeline, which may run once for every graph."""
    for clock in _clocks.get():
        clock.steps[step] = clock.steps.get(step, 0.0) + seconds


@contextmanager
def spending(step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    spend(step, time.perf_counter() - start)


def tell_steps(clock: Clock) -> None:
    """Print the time of every step of the pipeline when TETRAD_TIME asks for it."""
    if flag("TETRAD_TIME") == "1":
        for step, seconds in clock.steps.items():
            print(f"tetrad:   {step:18} {seconds * 1e3:9.3f} ms", file=sys.stderr)


class Spent:
    """Seconds per stage of work in another thread; the thread that asked for it adds them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - start


def count(what: str, number: int) -> None:
    """Count kernels by origin: `compiled` now, loaded from `disk`, or already in the `process`."""
    for clock in _clocks.get():
        clock.counts[what] = clock.counts.get(what, 0) + number


def wants(*names: str) -> bool:
    return any(name in flag_words("TETRAD_SHOW") for name in names) or bool(flag("TETRAD_DUMP"))


def are_watched() -> bool:
    """Do flags ask to watch a compilation, or to run something else than the compiled program?"""
    return wants("graph", "passes", "kernel", "llvm", "asm", "schedule") or (
        flag("TETRAD_INTERPRET") == "1" or "1" in flag_words("TETRAD_CHECK")
    )


def show(station: str, title: str, text: str) -> None:
    """Print a station when asked for, and save it when a dump directory is set."""
    if station in flag_words("TETRAD_SHOW"):
        print(f"--- {station}: {title}\n{text}", file=sys.stderr)
    save(station, title, text)


def save(station: str, title: str, text: str) -> None:
    folder = flag("TETRAD_DUMP")
    if folder:
        name = f"{next(_dumped):04}-{station}-{file_name(title)}.txt"
        try:
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        except OSError as error:
            raise FlagError(
                f"TETRAD_DUMP={folder!r}: {error.strerror}", hint="name a directory to write to"
            ) from None


def file_name(title: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in title[:40])


def show_times(title: str, names: Sequence[str], nanoseconds: Sequence[int], threads: int) -> None:
    """Print the entries of one run, slowest first, equal names together; the time of a call
    includes its entries."""
    spent: dict[str, list[int]] = {}
    for name, ns in zip(names, nanoseconds, strict=True):
        spent.setdefault(name, []).append(ns)
    rows = sorted(spent.items(), key=lambda row: -sum(row[1]))
    lines = [f"tetrad: run of {title}, {threads} thread{'s' if threads > 1 else ''}"]
    lines += [f"tetrad:   {sum(ns) / 1e3:11.1f} us  {len(ns):4} x  {name}" for name, ns in rows]
    print("\n".join(lines), file=sys.stderr)
