"""Bench, common: functions in, rows of a table out, each with a verdict and the reason it may not
count.

Contestants alternate in one run and the best time of each counts. Beside every row stands the share
of the processor that others used meanwhile: above 5 % the row is void. Nothing here knows what is
measured.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from picture import bars

THREADS = 2
VOID_ABOVE = 0.05  # share of processor time used by others
NEAR = 0.6  # share of a roof from which the roof is what bounds us
SAMPLE_SECONDS = 2e-4  # shorter calls are timed several at a time: the clock costs 50 ns
BURST_SECONDS = 0.05
BURST_SAMPLES = (2, 100)
SETTLE_SECONDS = 0.15  # OpenBLAS keeps its threads turning for 2**28 ticks after a call
RESULTS = Path(__file__).parent / "results"
PINNED = "BENCH_PINNED"

Function = Callable[[], object]


# -- the same cores and threads for everyone -------------------------------------------------------


def restart_pinned() -> None:
    """Start this program again on two cores with two threads for every library: they read both when
    they load."""
    if PINNED in os.environ:
        return
    cores = separate_cores(THREADS)
    os.sched_setaffinity(0, cores)
    limits = dict.fromkeys(
        ("TETRAD_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), str(len(cores))
    )
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **limits, PINNED: "1"})


def separate_cores(count: int) -> set[int]:
    """Processors that share no core, as far as there are."""
    chosen: dict[str, int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        chosen.setdefault(path.read_text() if path.exists() else str(cpu), cpu)
    return set(itertools.islice(chosen.values(), count))


# -- who used the processor ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Ticks since boot on the processors we may use: all, those not idle, and ours with those of
    ended children."""

    total: int
    busy: int
    own: int


def cpu_times() -> CpuTimes:
    ours = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
    total = idle = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name in ours:
            ticks = [int(f) for f in fields[:8]]  # user nice system idle iowait irq softirq steal
            total += sum(ticks)
            idle += ticks[3] + ticks[4]
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return CpuTimes(total, total - idle, sum(int(f) for f in after_name[11:15]))


def foreign_share(before: CpuTimes, after: CpuTimes) -> float:
    """The part of all processor time that others used; time stolen by the host counts as theirs."""
    others = (after.busy - before.busy) - (after.own - before.own)
    return max(0, others) / max(1, after.total - before.total)


# -- timing ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a row may take: seconds of one attempt, rounds it has at least, attempts while it is
    void."""

    seconds: float = 4.0
    rounds: int = 4
    attempts: int = 4


QUICK = Budget(0.3, 2, 1)


@dataclass(frozen=True, slots=True)
class Timing:
    best: Mapping[str, float]  # seconds of one call
    foreign: float


def measure(functions: Mapping[str, Function], budget: Budget) -> Timing:
    """The best time of each function, in turns; repeated while others use the processor."""
    repeats = {name: repeats_of(f) for name, f in functions.items()}

    def one_round() -> dict[str, float]:
        return {name: burst(f, repeats[name]) for name, f in functions.items()}

    return undisturbed(one_round, budget)


def undisturbed(one_round: Callable[[], dict[str, float]], budget: Budget) -> Timing:
    """Rounds until the budget is spent; the attempt with the least foreign use counts."""
    best = attempt(one_round, budget)
    for _ in range(budget.attempts - 1):
        if best.foreign <= VOID_ABOVE:
            break
        best = min(best, attempt(one_round, budget), key=lambda timing: timing.foreign)
    return best


def attempt(one_round: Callable[[], dict[str, float]], budget: Budget) -> Timing:
    before, end = cpu_times(), time.perf_counter() + budget.seconds
    best = one_round()
    for number in itertools.count(1):
        if number >= budget.rounds and time.perf_counter() > end:
            break
        best = {name: min(seconds, best[name]) for name, seconds in one_round().items()}
    return Timing(best, foreign_share(before, cpu_times()))


def repeats_of(function: Function) -> int:
    """Calls that make one sample long enough for the clock."""
    function()
    return max(1, math.ceil(SAMPLE_SECONDS / max(1e-8, min(sample(function, 1) for _ in range(3)))))


def burst(function: Function, repeats: int) -> float:
    """Let other thread pools fall asleep, wake ours with a call that does not count, then take
    samples."""
    time.sleep(SETTLE_SECONDS)
    function()
    best = sample(function, repeats)
    fewest, most = BURST_SAMPLES
    count = min(most, max(fewest, int(BURST_SECONDS / (best * repeats))))
    return min(best, *(sample(function, repeats) for _ in range(count - 1)))


def sample(function: Function, repeats: int) -> float:
    start = time.perf_counter()
    for _ in itertools.repeat(None, repeats):
        function()
    return (time.perf_counter() - start) / repeats


# -- rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table. `ratio` grows with our merit; without `at_least` the row only
    informs."""

    name: str
    ours: float
    unit: str
    ratio: float | None = None
    at_least: float | None = None
    peer: str = ""
    theirs: float | None = None
    foreign: float = 0.0
    is_right: bool = True
    # what keeps us from being faster, as a share of a roof measured in the same run
    bound: str = ""
    # the ratio of a program that did nothing but what the nearest roof does
    most: float | None = None
    verdict: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "verdict", verdict_of(self))


VERDICTS = ("pass", "FAIL", "roof", "void", "WRONG")


def verdict_of(row: Row) -> str:
    """`roof`: short of the figure, as any program would be on this machine."""
    if not row.is_right:
        return "WRONG"
    if row.at_least is None or row.ratio is None:
        return ""
    if row.foreign > VOID_ABOVE:
        return "void"
    if row.ratio >= row.at_least:
        return "pass"
    return "roof" if row.most is not None and row.most < row.at_least else "FAIL"


def bound_by(needed: Mapping[str, float], ours: float) -> str:
    """The nearest of the roofs (name: seconds it needs for this work), or, far below all of them,
    the kernel itself."""
    if not needed:
        return ""
    name = max(needed, key=lambda n: needed[n])
    if needed[name] < NEAR * ours:
        return f"the kernel: {name} alone would take {needed[name] / ours:.0%} of the time"
    return f"{name}: {needed[name] / ours:.0%} of its roof"


def show(value: float | None, unit: str) -> str:
    """Three digits with a prefix.

    >>> show(0.00123, "s"), show(8.1e10, "flop/s"), show(16.0, "")
    ('1.23 ms', '81 Gflop/s', '16')
    """
    if value is None:
        return ""
    if not unit or value == 0:
        return f"{value:.3g}"
    power = min(4, max(-3, math.floor(math.log10(abs(value)) / 3)))
    return f"{float(f'{value / 1000**power:.3g}'):g} {'num kMGT'[power + 3].strip()}{unit}"


COLUMNS = ("", "ours", "peer", "", "ratio", "at least", "verdict", "others", "bound by")
WIDTHS = (38, 13, 11, 13, 7, 8, 7, 6, 0)


def line(cells: Sequence[str]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def cells(row: Row) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    goal = "" if row.at_least is None else f"{row.at_least:g}"
    shown = show(row.ours, row.unit), row.peer, show(row.theirs, row.unit)
    bound = row.bound if row.verdict != "void" else ""  # under foreign load a roof is none
    if row.verdict in ("FAIL", "roof") and row.most is not None:
        bound += f"; at the roof itself the ratio is {row.most:.2f}"
    return (row.name, *shown, ratio, goal, row.verdict, f"{row.foreign:.0%}", bound)


class Report:
    """Rows as they come, printed at once, then kept as JSON and as a picture."""

    def __init__(self, title: str) -> None:
        self.title, self.rows = title, list[Row]()
        print(f"{title}: {machine()}")
        print(line(COLUMNS))

    def add(self, row: Row) -> None:
        self.rows.append(row)
        print(line(cells(row)), flush=True)

    def finish(self, chosen: Options) -> int:
        """The exit status: 1 when a figure was not reached or a result was wrong. Results of some
        rows are not kept."""
        if not chosen.only:
            self.write(chosen.picture)
        verdicts = [r.verdict for r in self.rows]
        print(", ".join(f"{verdicts.count(v)} {v}" for v in VERDICTS))
        return int(not {"FAIL", "roof", "WRONG"}.isdisjoint(verdicts))

    def write(self, picture: Path | None) -> None:
        RESULTS.mkdir(exist_ok=True)
        name = self.title.split()[0]
        about = {
            "title": self.title,
            "machine": machine(),
            "date": time.strftime("%Y-%m-%d"),
            "rows": [asdict(r) for r in self.rows],
        }
        (RESULTS / f"{name}.json").write_text(json.dumps(about, indent=1) + "\n")
        svg = bars(
            self.title,
            machine(),
            [r for r in self.rows if r.ratio is not None and r.at_least is not None],
        )
        for path in (RESULTS / f"{name}.svg", picture):
            if path is not None:
                path.write_text(svg)


def machine() -> str:
    model = next(
        (
            ln.partition(":")[2].strip()
            for ln in Path("/proc/cpuinfo").read_text().splitlines()
            if ln.startswith("model name")
        ),
        "",
    )
    return (
        f"{model or platform.machine()}, {len(os.sched_getaffinity(0))} threads, Python "
        f"{platform.python_version()}"
    )


# -- the command line ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Options:
    only: str
    budget: Budget
    picture: Path | None
    base: str = ""  # the revision to compare with

    def wants(self, name: str) -> bool:
        return self.only in name


def options(about: str, needs_base: bool = False) -> Options:
    parser = argparse.ArgumentParser(description=about)
    if needs_base:
        parser.add_argument(
            "--base", required=True, metavar="REVISION", help="compare with this revision"
        )
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument(
        "--quick", action="store_true", help="a fifth of the time, no second attempts"
    )
    parser.add_argument("--picture", type=Path, help="also write the picture here")
    given = parser.parse_args()
    restart_pinned()
    base = given.base if needs_base else ""
    return Options(given.only, QUICK if given.quick else Budget(), given.picture, base)
