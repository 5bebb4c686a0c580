"""The driver, stations: what a compilation shows, saves and times on its way (TETRAD_SHOW, TETRAD_DUMP, TETRAD_TIME).

Receives programs as they pass, prints to stderr or writes files; never changes anything.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tetrad.codegen.llvm import assembly
from tetrad.codegen.target import Target
from tetrad.core.flags import flag, flag_words

_dumped = itertools.count()


class Clock:
    """Seconds per stage, innermost compilation last; `explain` reads it."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}

    def add(self, stage: str, seconds: float) -> None:
        self.stages[stage] = self.stages.get(stage, 0.0) + seconds


_clocks: list[Clock] = []


@contextmanager
def recording(clock: Clock) -> Iterator[Clock]:
    _clocks.append(clock)
    try:
        yield clock
    finally:
        _clocks.remove(clock)


@contextmanager
def timed(stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    spent = time.perf_counter() - start
    for clock in _clocks:
        clock.add(stage, spent)
    if flag("TETRAD_TIME") == "1":
        print(f"tetrad: {stage:10} {spent * 1e3:9.3f} ms", file=sys.stderr)


def wants(*names: str) -> bool:
    return any(name in flag_words("TETRAD_SHOW") for name in names) or bool(flag("TETRAD_DUMP"))


def show(station: str, title: str, text: str) -> None:
    """Print a station when asked for, and save it when a dump directory is set."""
    if station in flag_words("TETRAD_SHOW"):
        print(f"--- {station}: {title}\n{text}", file=sys.stderr)
    folder = flag("TETRAD_DUMP")
    if folder:
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{next(_dumped):04}-{station}-{title[:40].replace('/', '_')}.txt").write_text(text)


def show_llvm(text: str, target: Target) -> None:
    if wants("llvm"):
        show("llvm", target.name, text)
    if wants("asm"):
        show("asm", target.name, assembly(text, target))
