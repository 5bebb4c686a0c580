"""The fuzzer finds what it should: every defect planted in the compiler, within a bounded number of
programs."""

from __future__ import annotations

import pytest

from tests.fuzz.plants import PLANTS
from tests.fuzz.test_fuzz import fuzz

ENOUGH = 800


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_defect_is_found(name: str) -> None:
    done = fuzz("--programs", str(ENOUGH), "--seed", "0", "--stop-at", "1", "--plant", name)
    assert done.returncode == 1, (
        f"{name}: not found in {ENOUGH} programs\n{done.stdout}{done.stderr}"
    )
    assert "PROGRAM = Program(" in done.stdout


def test_without_a_defect_nothing_is_found() -> None:
    """The control: the same programs, the compiler as it is."""
    done = fuzz("--generator", "programs", "--programs", str(ENOUGH // 2), "--seed", "0")
    assert done.returncode == 0, done.stdout + done.stderr
