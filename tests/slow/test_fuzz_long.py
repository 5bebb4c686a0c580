"""A long campaign of random programs, from seeds never used before; the seed is printed, so any
failure comes back."""

from __future__ import annotations

import pytest

from tests.fuzz.test_fuzz import fuzz

pytestmark = pytest.mark.slow


@pytest.mark.timeout(3600)
def test_twenty_thousand_fresh_programs(capfd: pytest.CaptureFixture[str]) -> None:
    done = fuzz("--generator", "programs", "--programs", "20000", seconds=3500)
    with capfd.disabled():
        print(done.stdout.splitlines()[0], done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
