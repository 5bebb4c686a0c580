"""Explain, the story of one call: what was compiled, what it touches, how long each kernel takes
and what bounds it.

Receives a function and arguments, runs the compiled program a few times with every kernel timed,
and returns an `Explanation`: plain data that prints as a report (`explain.report`) and draws itself
as a page (`explain.page`).
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tetrad.backends.cpu.encode import moved_bytes, running, times_of
from tetrad.backends.cpu.encode_loops import inner_tables
from tetrad.backends.cpu.executable import Executable
from tetrad.backends.cpu.isa import current_target
from tetrad.backends.cpu.pool import Outcome
from tetrad.backends.cpu.table import Entry, Table, encode
from tetrad.backends.llvm.target import Target
from tetrad.core.record import record
from tetrad.core.sizes import bind
from tetrad.explain.call import PreparedCall, prepare
from tetrad.explain.fusions import fusions_of
from tetrad.explain.notebook import html_table
from tetrad.explain.page import write_page
from tetrad.explain.parts import GraphPart, parts_of
from tetrad.explain.pressure import PressureReport, pressure_of
from tetrad.explain.recompile import why_compiled
from tetrad.explain.report import report
from tetrad.explain.roofs import Roofs, measure_roofs
from tetrad.graph.nodes import Graph
from tetrad.passes.fusions import FusionOutcome
from tetrad.schedule.nodes import Callback, Control, Launch, Leaf, Loop, Schedule, Step
from tetrad.schedule.plan import Life, Plan
from tetrad.tracing.signature import check_function

BUDGET_SECONDS = 0.3  # of running to measure
FEWEST, MOST = 3, 100  # runs
# more often than this a process leaves its processors to others only where there are others
PUSHED_A_SECOND = 20
SHORT_NS = 500  # a kernel that the roofs allow so little time is bound by being started


@record(eq=False)
class KernelStory:
    """One launch of the program, or calls of a routine or a function: its size, its best time, and
    the least time the roofs allow it."""

    launch: Leaf
    path: tuple[str, ...]  # names of the calls it is inside of
    groups: int
    threads: int
    nbytes: int
    flops: int
    ns: int
    memory_ns: float
    arithmetic_ns: float

    @property
    def name(self) -> str:
        return self.launch.name

    @property
    def text(self) -> str:
        """The program of a kernel, or how a routine is called."""
        if isinstance(self.launch, Launch):
            return str(self.launch.program)
        if isinstance(self.launch, Callback):
            return f"{self.launch.name}, a function of Python's"
        return f"{self.launch.routine} {self.launch.form}"

    @property
    def bound(self) -> str:
        """What keeps it from being faster, as far as the roofs can tell."""
        if max(self.memory_ns, self.arithmetic_ns) < SHORT_NS:
            return "starting"
        return "memory" if self.memory_ns >= self.arithmetic_ns else "arithmetic"

    @property
    def limit(self) -> str:
        """What bounds it and how near it comes, in words."""
        if not self.ns:
            return "not run, or too short to time"
        return (
            self.bound
            if self.bound == "starting"
            else f"{self.bound}, at {self.share:.0%} of the roof"
        )

    @property
    def rates(self) -> tuple[str, str]:
        """Bytes and operations a nanosecond."""
        return (
            (f"{self.nbytes / self.ns:.1f}", f"{self.flops / self.ns:.1f}")
            if self.ns
            else ("-", "-")
        )

    @property
    def share(self) -> float:
        """Of the roof that bounds it: 1 is as fast as the machine can. A kernel that is quicker
        than the roof was when measured has shown that it is higher."""
        return min(1.0, max(self.memory_ns, self.arithmetic_ns) / max(self.ns, 1))


@record(eq=False)
class Explanation:
    """The story of one call; `print` it, or `.html(path)` for a page with pictures."""

    name: str
    signature: str
    why: tuple[str, ...]  # it was compiled
    is_new: bool
    origins: Mapping[str, int]  # kernels compiled, from disk, already in the process
    stages: Mapping[str, float]  # seconds
    pipeline: Mapping[str, float]  # seconds of each of its steps
    traced: Graph
    parts: tuple[GraphPart, ...]  # the optimised graph and those it calls, outermost first
    kernels: tuple[KernelStory, ...]
    lives: tuple[Life, ...]
    plan: Plan
    scratch_bytes: int  # of each thread
    steps: tuple[Step, ...]  # what the lives count in
    wall_ns: int
    runs: int
    threads: int
    one: Roofs
    all: Roofs
    target: Target
    dims: Mapping[str, int]
    is_busy: bool  # other work took processors away while it was measured

    @property
    def graph(self) -> Graph:
        return self.parts[0].graph

    @property
    def arena_bytes(self) -> int:
        return self.plan.total

    @property
    def fusions(self) -> tuple[FusionOutcome, ...]:
        """Named fusions: which fired and what they save, which nearly did and why not.

        >>> import tetrad as td
        >>> x, w, b = td.ones((8, 16)), td.ones((16, 32)), td.ones(32)
        >>> story = explain(lambda x, w, b: td.nn.relu(x @ w + b))(x, w, b)
        >>> [(fusion.name, fusion.fired, fusion.nbytes) for fusion in story.fusions]
        [('bias_activation', True, 4096)]
        """
        return fusions_of(self.traced, self.parts)

    @property
    def intermediate_bytes(self) -> int:
        """What the intermediates would take without sharing."""
        return sum(life.nbytes for life in self.lives)

    @property
    def programs(self) -> int:
        """Different kernels: launches of one program count once."""
        return len({k.launch.program for k in self.kernels if isinstance(k.launch, Launch)})

    def __str__(self) -> str:
        return report(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self)

    def pressure(self, threshold: float | None = None) -> PressureReport:
        """What launches hand on to the next: the chains, their ranks and their fusion pressure;
        with a threshold also whether the geometric mean of the ranks is at most that.

        >>> import tetrad as td
        >>> told = explain(lambda x: td.sort(td.sort(x + 1, descending=True)))(td.zeros(100))
        >>> [chain.ranks for chain in told.pressure().chains]
        [(100, 100)]
        """
        return pressure_of(self, threshold)

    def html(self, path: str | Path) -> Path:
        """Write the page (one file, nothing loaded from elsewhere) and return its path."""
        return write_page(self, path)


def explain(function: Callable[..., Any]) -> Callable[..., Explanation]:
    """The story of one call: kernels, bytes, time against the machine's roofs, memory, time per
    stage, why it compiled.

    >>> import tetrad as td
    >>> story = explain(lambda x: td.tanh(x) * 2 + 1)(td.zeros(1000))
    >>> len(story.kernels), story.kernels[0].nbytes
    (1, 8000)
    """

    check_function("explain", function)

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        return tell(prepare(function, args, kwargs))

    return explained


def tell(call: PreparedCall) -> Explanation:
    pushed = Pushed()
    outcomes, wall_ns = measure(call)
    encoded, signatures = call.bound.encoded, call.jitted.signatures
    one, every = measure_roofs(1), measure_roofs()
    return Explanation(
        call.jitted.signature.name, call.signature, tuple(why_compiled(signatures, call.signature)),
        call.is_new,
        dict(call.executable.clock.counts), stages(call, wall_ns), call.executable.clock.steps,
        call.graph,
        parts_of(call.executable.schedule),
        tuple(kernels(call, outcomes, one, every)), encoded.lives, encoded.plan,
        encoded.table.scratch_bytes,
        call.executable.schedule.steps, wall_ns, len(outcomes), outcomes[0].threads, one, every,
        current_target(),
        call.dims, pushed.often(),
    )  # fmt: skip


class Pushed:
    """How often this process had to leave a processor to others since."""

    def __init__(self) -> None:
        self.times, self.since = pushed_aside(), time.perf_counter()

    def often(self) -> bool:
        return pushed_aside() - self.times > PUSHED_A_SECOND * (time.perf_counter() - self.since)


def pushed_aside() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def measure(call: PreparedCall) -> tuple[list[Outcome], int]:
    """Several runs with every entry timed, and the best wall time of as many runs without."""
    outcomes: list[Outcome] = []
    walls: list[int] = []
    deadline = time.perf_counter() + BUDGET_SECONDS
    while len(outcomes) < FEWEST or (len(outcomes) < MOST and time.perf_counter() < deadline):
        call.bound.run(call.storages(), profile=True)
        outcomes.append(call.bound.last_outcome)
        storages = call.storages()
        start = time.perf_counter_ns()
        call.bound.run(storages)
        walls.append(time.perf_counter_ns() - start)
    return outcomes, min(walls)


def stages(call: PreparedCall, wall_ns: int) -> dict[str, float]:
    """Seconds per stage, in order. The time to trace is what is left of finding a new program.

    Emitting, LLVM and loading are the seconds of all threads that worked for it, beside the others
    and each other.
    """
    spent = dict(call.executable.clock.stages)
    codegen = spent.pop("codegen", 0.0)
    compiling = sum(spent.get(stage, 0.0) for stage in ("start", "passes", "lower")) + codegen
    if call.is_new:
        spent["trace"] = max(0.0, call.seconds - compiling)
    spent["run"] = wall_ns / 1e9
    return {name: spent[name] for name in STAGES if name in spent}


STAGES = ("trace", "start", "passes", "lower", "emit", "llvm", "load", "schedule", "run")


def kernels(
    call: PreparedCall, outcomes: Sequence[Outcome], one: Roofs, every: Roofs
) -> Iterator[KernelStory]:
    best = best_times([outcome.entry_ns for outcome in outcomes])
    heavy = call.bound.table.heavy
    for ns, (step, path, runs) in zip(
        best, walk(call.executable.schedule, call.bound.table, call.dims), strict=True
    ):
        if isinstance(step, Leaf):
            groups = times_of(step, call.dims)
            threads = min(outcomes[0].threads, groups) if heavy else 1
            roofs = every if threads > 1 else one
            nbytes, flops = moved_bytes(step, call.dims), runs * bind(step.flops, call.dims)
            memory_ns = runs * nbytes / roofs.bandwidth_for(nbytes)
            yield KernelStory(
                step,
                path,
                groups,
                threads,
                runs * nbytes,
                flops,
                ns,
                memory_ns,
                flops / roofs.flops,
            )


def best_times(runs: Sequence[Sequence[int]]) -> list[int]:
    """The best time of each entry, of the quarter of the runs that were quickest as a whole: in
    those nothing was held up for long."""
    quickest = sorted(runs, key=sum)[: max(1, len(runs) // 4)]
    return [min(times) for times in zip(*quickest, strict=True)]


# a step, the calls it is inside of, how often a call runs it
Place = tuple[Step | None, tuple[str, ...], int]


def walk(
    lowered: Schedule,
    table: Table,
    dims: Mapping[str, int],
    path: tuple[str, ...] = (),
    runs: int = 1,
) -> Iterator[Place]:
    """The steps in the order of a table's profile slots: a call, then what is inside it; None for
    entries between."""
    for step, entry in zip(running(lowered, dims), table.entries, strict=True):
        yield step, path, runs
        if isinstance(step, Control):
            bodies = {id(inner): body for body, inner in inner_tables(step, entry)}
            again = runs * bind(step.length, dims) if isinstance(step, Loop) else runs
            yield from inside(entry, bodies, dims, path, again)


def totals(executable: Executable, dims: tuple[int, ...]) -> tuple[int, int]:
    """Operations on floats, and bytes read and written, in one call at these sizes."""
    sizes = dict(zip(executable.dims, dims, strict=True))
    flops = moved = 0
    table = executable.bound(dims).table
    for step, _, runs in walk(executable.schedule, table, sizes):
        if isinstance(step, Leaf):
            flops += runs * bind(step.flops, sizes)
            moved += runs * moved_bytes(step, sizes)
    return flops, moved


def inside(
    entry: Entry,
    bodies: Mapping[int, Schedule],
    dims: Mapping[str, int],
    path: tuple[str, ...],
    runs: int,
) -> Iterator[Place]:
    """The slots below an entry. Its tables are those of sub-graphs, or hold entries that lead to
    them."""
    for table in encode(entry).inner:
        if id(table) in bodies:
            body = bodies[id(table)]
            yield from walk(body, table, dims, (*path, body.graph.name), runs)
            continue
        for between in table.entries:
            yield None, path, runs
            yield from inside(between, bodies, dims, path, runs)
