"""Every instruction in every form compiles for every target, and gives the bits of the evaluator
where it can run."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.backends.llvm.case import Case, elementwise
from tests.backends.llvm.cases import FAMILIES, all_cases
from tests.backends.llvm.machine import assert_same_arrays, compiled, evaluated, host, run, runnable
from tests.modules import ROOT
from tetrad.backends.cpu import isa as targets
from tetrad.backends.cpu.isa import LEVELS, family_of, missing_features, select_target, x86_64
from tetrad.backends.cpu.isa.family import Family, Features
from tetrad.backends.llvm.rules import rules
from tetrad.backends.llvm.target import Target
from tetrad.core.dtypes import DType, bf16, f16, f32
from tetrad.core.errors import FlagError
from tetrad.kernel import nodes as n

TARGETS = pytest.mark.parametrize("target", runnable(), ids=lambda target: target.name)


@cache
def wanted(family: str) -> list[tuple[Case, dict[str, np.ndarray]]]:
    return [(c, evaluated(c.program, c.arrays, c.args, c.grid)) for c in FAMILIES[family]()]


def assert_family_agrees(family: str, target: Target, check: str) -> None:
    cases = wanted(family)
    addresses = compiled([case.program for case, _ in cases], target, check)
    for (case, want), address in zip(cases, addresses, strict=True):
        got = run(address, case.program, case.arrays, case.args, case.grid)
        assert_same_arrays(got, want, f"{case.name} on {target.name}, {check}")


@TARGETS
@pytest.mark.parametrize("family", FAMILIES)
def test_compiled_code_gives_the_bits_of_the_evaluator(family: str, target: Target) -> None:
    assert_family_agrees(family, target, "plain")


@pytest.mark.parametrize("check", ["mask", "trap"])
@pytest.mark.parametrize("family", ["memory", "lanes", "control", "lengths", "atomics", "returns"])
def test_checked_code_gives_the_same_bits(family: str, check: str) -> None:
    assert_family_agrees(family, host(), check)


def lacking() -> list[Any]:
    """Levels whose code this processor cannot run; what a wider level of the family has is in the
    slow tier."""
    names = [name for name, level in LEVELS.items() if missing_features(level)]
    widest = {name.partition("-")[0]: name for name in names}.values()
    return [pytest.param(n, marks=() if n in widest else pytest.mark.slow) for n in names]


@pytest.mark.parametrize("name", lacking())
def test_every_case_compiles_for_levels_this_processor_lacks(name: str) -> None:
    """A crash of LLVM names the programs it happened in."""
    command = [sys.executable, "-m", "tests.backends.llvm.compile_all", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    last = done.stdout.splitlines()[-1] if done.stdout else "nothing"
    assert done.returncode == 0, f"{last}: {done.stderr[-500:]}"
    assert last == f"compiled {len(list(all_cases()))}"


V3, V4 = x86_64.V3_FEATURES, x86_64.V3_FEATURES + x86_64.V4_FEATURES
REACHED = [
    ((), "x86-64"), (("avx2", "fma"), "x86-64"), (V3, "x86-64-v3"), ((*V3, "avxvnni"),
    "x86-64-v3-vnni"),
    ((*V3, "avx512f", "avx512vnni"), "x86-64-v3"), (V4, "x86-64-v4"), ((*V4, "avxvnni"),
    "x86-64-v4"),
    ((*V4, "avx512vnni", "avxvnni"), "x86-64-v4-vnni"),
    (("neon",), "aarch64"), (("neon", "i8mm"), "aarch64"), (("neon", "dotprod"), "aarch64-dotprod"),
    (("neon", "dotprod", "i8mm"), "aarch64-i8mm"),
]  # fmt: skip


@pytest.mark.parametrize(("features", "name"), REACHED)
def test_a_processor_is_of_the_level_whose_features_it_has(
    features: tuple[str, ...], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    level = LEVELS[name]
    known = (
        dict.fromkeys((*V4, "avxvnni", "avx512vnni"), False)
        if level.triple.startswith("x86")
        else {}
    )
    pretend(monkeypatch, family_of(level), level.cpu, known | dict.fromkeys(features, True))
    reached = targets.host_target()
    assert (reached.vector_bits, reached.dot4, reached.machine.f32_tile) == (
        level.vector_bits,
        level.dot4,
        level.machine.f32_tile,
    )
    assert missing_features(level) == ()
    assert all(f"{'+' if k in features else '-'}{k}" in reached.features.split(",") for k in known)


def test_a_processor_may_prefer_another_tile_than_its_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend(monkeypatch, x86_64.FAMILY, "znver4", dict.fromkeys((*V4, "avx512vnni"), True))
    assert (
        targets.host_target().machine.f32_tile
        == x86_64.PREFERRED["znver4"]["f32_tile"]
        != LEVELS["x86-64-v4"].machine.f32_tile
    )


def pretend(monkeypatch: pytest.MonkeyPatch, family: Family, cpu: str, features: Features) -> None:
    """Be on another processor, of any family."""
    monkeypatch.setattr(targets, "host_family", lambda: family)
    monkeypatch.setattr(targets, "host_cpu", lambda: cpu)
    monkeypatch.setattr(targets, "host_features", lambda: features)


def test_an_unknown_target_is_told_the_known_ones() -> None:
    with pytest.raises(FlagError, match="unknown target 'z80'") as caught:
        select_target("z80")
    assert "host, x86-64, " in str(caught.value) and "aarch64-dotprod" in str(caught.value)


def instructions(block: n.Block) -> set[type[n.Instr]]:
    found: set[type[n.Instr]] = set()
    for instr in block:
        found.add(type(instr))
        for name in ("body", "then", "orelse"):
            found |= instructions(getattr(instr, name, ()))
    return found


def test_the_cases_use_every_instruction() -> None:
    used = set().union(*(instructions(case.program.body) for case in all_cases()))
    # Traps end a launch: test_rules has them.
    assert used | {n.Arg, n.Trap} >= set(n.INSTRUCTIONS)


def test_every_instruction_has_a_rule_and_every_rule_an_instruction() -> None:
    assert set(rules.table) == {*n.INSTRUCTIONS}


# -- small floats: every pattern, every rounding ---------------------------------------------------


def agrees(case: Case, target: Target) -> None:
    (address,) = compiled([case.program], target)
    want = evaluated(case.program, case.arrays, case.args, case.grid)
    assert_same_arrays(
        run(address, case.program, case.arrays, case.args, case.grid),
        want,
        f"{case.name}, {target.name}",
    )


@TARGETS
@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_all_patterns_of_a_small_float_widen_exactly(
    dtype: DType, width: int, target: Target
) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint16).view(dtype.np)
    agrees(
        elementwise(f"widen {dtype}", width, lambda k, x: k.cast(x, f32), (dtype, patterns)), target
    )


@TARGETS
@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_f32_narrows_with_one_rounding_to_even(dtype: DType, width: int, target: Target) -> None:
    """Every small float, the middle to its neighbour and one f32 step to either side of both;
    overflow; NaN."""
    with np.errstate(invalid="ignore"):  # some processors tell NumPy of NaNs that signal
        patterns = np.arange(1 << 16, dtype=np.uint16).view(dtype.np).astype(np.float32)
    numbers = np.sort(patterns[np.isfinite(patterns)])
    middles = ((numbers[1:].astype(np.float64) + numbers[:-1]) / 2).astype(np.float32)
    around = np.concatenate([numbers, middles])
    steps = around.view(np.int32)[:, None] + np.array([-1, 0, 1], np.int32)
    special = np.array(
        [np.nan, np.inf, -np.inf, 65520, 65519.996, -65520, 3.4028235e38, 1e-45], np.float32
    )
    signalling = np.array([0x7F800001, 0xFF800001, 0x7FC00000, 0x7FFFFFFF], np.uint32).view(
        np.float32
    )
    values = np.concatenate([steps.ravel().view(np.float32), special, signalling])
    agrees(
        elementwise(f"narrow {dtype}", width, lambda k, x: k.cast(x, dtype), (f32, values)), target
    )
