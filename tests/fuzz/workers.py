"""Running many programs in child processes, so that a crash or a hang names its seed and harms
nothing else.

A child takes a batch of seeds and tells the parent "start s" before and "done s" after each; memory
and time are limited. Failures are shrunk, in the child, or, when the child died, in children of
their own.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.check import Failure, check
from tests.fuzz.grow import grow
from tests.fuzz.program import Program, Step, source
from tests.fuzz.shrink import shrink

BATCH = 100  # programs of one child: machine code is never unloaded
ENOUGH = 2  # failures after which a child gives up its batch: they are rarely all different
SECONDS = 60  # for one program
MEMORY = 6 << 30  # bytes of address space beyond what the parent has
ROOT = Path(__file__).resolve().parents[2]
SAVED = ROOT / "build" / "fuzz"


@dataclass
class Report:
    """What a campaign found."""

    programs: int = 0
    steps: int = 0
    seconds: float = 0.0
    failures: list[dict[str, object]] = field(default_factory=list)

    @property
    def text(self) -> str:
        rate = self.programs / max(self.seconds, 1e-9)
        work = (
            f"{self.programs} programs, {self.steps} steps, {self.seconds:.1f} s, {rate:.1f} "
            "programs/s"
        )
        return f"{work}, {len(self.failures)} failures"


def campaign(
    seeds: Sequence[int], jobs: int, plant: Callable[[], None] | None = None, stop_at: int = 5
) -> Report:
    """Run the programs of these seeds in `jobs` processes; ends early after `stop_at` failures."""
    report, start = Report(), time.monotonic()
    batches = [list(seeds[i : i + BATCH]) for i in range(0, len(seeds), BATCH)]
    running: dict[int, Child] = {}
    watch = selectors.DefaultSelector()
    while batches or running:
        while batches and len(running) < jobs:
            child = Child(batches.pop(0), plant)
            running[child.pipe] = child
            watch.register(child.pipe, selectors.EVENT_READ)
        for key, _ in watch.select():
            child = running[key.fd]
            if child.listen(report):
                continue
            watch.unregister(child.pipe)
            del running[child.pipe]
            left = child.buried(report, plant)
            batches += [left] if left else []
        if len(report.failures) >= stop_at:
            break
    for child in running.values():
        child.stop()
    report.seconds = time.monotonic() - start
    return report


class Child:
    """A process working through a batch, as the parent sees it."""

    def __init__(self, seeds: list[int], plant: Callable[[], None] | None) -> None:
        self.seeds, self.current, self.buffer = seeds, -1, b""
        self.pipe, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            work(seeds, write, plant)
        os.close(write)

    def listen(self, report: Report) -> bool:
        """Take in what the child says; False when it has hung up."""
        piece = os.read(self.pipe, 1 << 16)
        self.buffer += piece
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            self.heard(json.loads(line), report)
        return bool(piece)

    def heard(self, message: dict[str, object], report: Report) -> None:
        if "start" in message:
            self.current = int(message["start"])  # type: ignore[call-overload]
            return
        report.programs += 1
        report.steps += int(message["steps"])  # type: ignore[call-overload]
        self.seeds.remove(message["done"])  # type: ignore[arg-type]
        self.current = -1
        if "why" in message:
            report.failures.append(message)
            print(f"\n{message['source']}\nsaved in {message['saved']}", flush=True)

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.pipe)
        os.waitpid(self.pid, 0)

    def buried(self, report: Report, plant: Callable[[], None] | None) -> list[int]:
        """The child is gone: what it left undone. A program that killed it is a failure."""
        os.close(self.pipe)
        _, status = os.waitpid(self.pid, 0)
        if self.current < 0:
            return [] if os.waitstatus_to_exitcode(status) == 0 else list(self.seeds)
        self.seeds.remove(self.current)
        code = os.waitstatus_to_exitcode(status)
        name = signal.Signals(-code).name if code < 0 else f"exit {code}"
        report.programs += 1
        small = shrink(grow(self.current), lambda p: dies(p, plant))
        found = saved(small, f"the process dies: {name}", self.current)
        report.failures.append({"done": self.current, **found})
        print(f"\n{found['source']}\nsaved in {found['saved']}", flush=True)
        return list(self.seeds)


def dies(program: Program, plant: Callable[[], None] | None) -> bool:
    """Does a child that checks the program end by a signal?"""
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        limit()
        signal.alarm(15)
        if plant is not None:
            plant()
        check(program)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0


def work(seeds: list[int], write: int, plant: Callable[[], None] | None) -> None:
    """The child: check every program, say so, and leave without running the parent's exit
    handlers."""
    code = 1
    try:
        limit()
        faulthandler.disable()
        if plant is not None:
            plant()
        for message in results(list(seeds)):
            os.write(write, json.dumps(message).encode() + b"\n")
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def results(seeds: list[int]) -> Iterator[dict[str, object]]:
    found = 0
    for seed in seeds:
        if found == ENOUGH:
            return
        yield {"start": seed}
        signal.alarm(SECONDS)
        program = grow(seed)
        failure = check(program)
        signal.alarm(0)
        message: dict[str, object] = {
            "done": seed,
            "steps": sum(isinstance(i, Step) for i in program.items),
        }
        if failure is not None:
            message |= shrunk(program, failure)
            found += 1
        yield message


def shrunk(program: Program, failure: Failure) -> dict[str, object]:
    def still_fails(p: Program) -> bool:
        found = check(p)
        return found is not None and found.kind == failure.kind

    signal.alarm(10 * SECONDS)
    small = shrink(program, still_fails)
    found = check(small) or failure
    signal.alarm(0)
    return saved(small, str(found), program.seed)


def saved(program: Program, why: str, seed: int) -> dict[str, object]:
    text = source(program, f"seed {seed}: {why}")
    SAVED.mkdir(parents=True, exist_ok=True)
    path = SAVED / f"seed_{seed}.py"
    path.write_text(text)
    return {"why": why, "source": text, "saved": str(path.relative_to(ROOT))}


def limit() -> None:
    pages = (
        int(Path("/proc/self/statm").read_text().split()[0])
        if Path("/proc/self/statm").exists()
        else 0
    )
    total = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (total, total))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
