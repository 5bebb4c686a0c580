"""The fuzzer on every run of the tests: 2,000 programs from fixed seeds, and the programs that
failed once."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.check import check
from tests.fuzz.grow import grow
from tests.fuzz.program import Leaf, Program, Step, build, pruned, source
from tests.fuzz.shrink import shrink
from tetrad.core.dtypes import f32

PROGRAMS, SEED = 2000, 1
ROOT = Path(__file__).resolve().parents[2]
KEPT = sorted((Path(__file__).parent / "kept").glob("*.py"))


def fuzz(*arguments: str, seconds: float = 880) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the parent forks, and must not have threads."""
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds)


@pytest.mark.timeout(900)
def test_random_programs_agree_with_the_evaluators() -> None:
    done = fuzz("--generator", "programs", "--programs", str(PROGRAMS), "--seed", str(SEED))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{PROGRAMS} programs" in done.stdout


@pytest.mark.parametrize("path", KEPT, ids=lambda p: p.stem)
def test_a_program_that_failed_once(path: Path) -> None:
    assert check(runpy.run_path(str(path))["PROGRAM"]) is None


def test_a_seed_always_gives_the_same_program() -> None:
    for seed in range(30):
        assert str(build(grow(seed))) == str(build(grow(seed)))
        assert source(grow(seed), "") == source(grow(seed), "")


def test_a_printed_program_is_the_program(tmp_path: Path) -> None:
    for seed in range(60):
        program = grow(seed)
        path = tmp_path / "program.py"
        path.write_text(source(program, "why"))
        assert str(build(runpy.run_path(str(path))["PROGRAM"])) == str(build(program))


def test_shrinking_finds_the_one_step_that_matters() -> None:
    program = next(p for p in map(grow, range(1000)) if len(p.items) > 8 and uses_sum(p))
    small = shrink(program, uses_sum)
    assert [item.op for item in small.items if isinstance(item, Step)] == ["reduce_sum"]
    assert all(n in (0, 1) for item in small.items if isinstance(item, Leaf) for n in item.shape)


def uses_sum(program: Program) -> bool:
    return any(isinstance(item, Step) and item.op == "reduce_sum" for item in program.items)


def test_pruning_keeps_what_outputs_need() -> None:
    items = (Leaf(f32, (2,)), Leaf(f32, (3,)), Step("abs", (1,)), Step("square", (0,)))
    assert pruned(Program(items, (3,))).items == (Leaf(f32, (2,)), Step("square", (0,)))
