"""Bench, house: starting and calling, here against an earlier revision of Tetrad itself. ratio =
its time / our time.

    python bench/house.py --base REVISION [--only gelu] [--quick]

The revision is checked out for the time being. Both run the same programs (`start.py`) in fresh
processes, in turns, each with a cache directory of its own; the best of each counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import start
from common import Budget, Report, Row, Timing, options, undisturbed

HERE = Path(__file__).resolve().parents[1]
AT_LEAST = 0.98
ROUNDS, FEW_ROUNDS = 15, 4
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
MODEL = CACHE / "tetrad" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
CLOCKS = ("processor", "wall")

Sides = Mapping[str, Path]  # base and here: a source tree each
# row: what `start.py` calls it, in the first or the second process, and the clock that counts
STEPS = {
    "import": ("cold import", "processor"),
    "first call of a 12-layer MLP": ("cold first", "processor"),
    "first call, second process": ("warm first", "processor"),
    "second call": ("warm second", "wall"),
    "call x+1 on 16 floats": ("warm short", "wall"),
}


def main() -> int:
    chosen = options(__doc__ or "", needs_base=True)
    is_quick = chosen.budget.attempts == 1
    budget = Budget(0, FEW_ROUNDS if is_quick else ROUNDS, chosen.budget.attempts)
    report = Report(f"house against {chosen.base}")
    with checkout(chosen.base) as base:
        sides = {"base": base, "here": HERE}
        for activation in ("tanh", "gelu"):
            wanted = {f"{row}, {activation}": step for row, step in STEPS.items()}
            for row in layers(
                sides, activation, {n: s for n, s in wanted.items() if chosen.wants(n)}, budget
            ):
                report.add(row)
        if chosen.wants("load to the first token") and MODEL.exists():
            report.add(model(sides, budget))
    return report.finish(chosen)


def layers(
    sides: Sides, activation: str, wanted: Mapping[str, tuple[str, str]], budget: Budget
) -> Iterator[Row]:
    """An MLP in a process that finds nothing, then in one that finds what the first left on
    disk."""

    def one_round() -> dict[str, float]:
        found: dict[str, float] = {}
        for side, tree in sides.items():
            with tempfile.TemporaryDirectory() as folder:
                for state in ("cold", "warm"):
                    found |= started(f"{side} {state}", tree, activation, folder)
        return found

    if wanted:
        timing = measured(one_round, budget)
        for name, (step, clock) in wanted.items():
            yield versus(name, timing, step, clock)


def model(sides: Sides, budget: Budget) -> Row:
    """From the start to the first token, with what an earlier process left on disk."""
    with tempfile.TemporaryDirectory() as folder:

        def one_round() -> dict[str, float]:
            found: dict[str, float] = {}
            for side, tree in sides.items():
                found |= started(side, tree, str(MODEL), f"{folder}/{side}")
            return found

        return versus("load to the first token", measured(one_round, budget), "load", "processor")


def measured(one_round: Callable[[], dict[str, float]], budget: Budget) -> Timing:
    one_round()  # writes bytecode and fills the page cache
    return undisturbed(one_round, budget)


def versus(name: str, timing: Timing, step: str, clock: str) -> Row:
    ratios = {c: timing.best[f"base {step} {c}"] / timing.best[f"here {step} {c}"] for c in CLOCKS}
    ours, theirs = (timing.best[f"{side} {step} {clock}"] for side in ("here", "base"))
    told = ", ".join(f"{c} time {ratio:.2f}" for c, ratio in ratios.items())
    return Row(
        name, ours, "s", ratios[clock], AT_LEAST, "before", theirs, timing.foreign, bound=told
    )


# -- processes and revisions -----------------------------------------------------------------------


def started(name: str, tree: Path, what: str, cache: str) -> dict[str, float]:
    """What one process of a revision tells. It writes bytecode, as installed packages have it."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment = {**kept, "PYTHONPATH": str(tree), "TETRAD_CACHE_DIR": cache}
    command = [sys.executable, start.__file__, what]
    done = subprocess.run(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    told: dict[str, tuple[float, float]] = json.loads(done.stdout)
    return {
        f"{name} {step} {clock}": s
        for step, both in told.items()
        for clock, s in zip(CLOCKS, both, strict=True)
    }


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tetrad-house-") as folder:
        there = Path(folder) / "base"
        git("worktree", "add", "--quiet", "--detach", str(there), revision)
        try:
            yield there
        finally:
            git("worktree", "remove", "--force", str(there))


def git(*words: str) -> None:
    subprocess.run(["git", *words], cwd=HERE, check=True)


if __name__ == "__main__":
    sys.exit(main())
