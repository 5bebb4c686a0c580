"""A hundred thousand damaged safetensors files; the outcome is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.safetensors_mutants import campaign

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("count", [100_000])
def test_mutants_open_or_are_refused(
    count: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome = campaign(first=1_000_000, count=count, folder=tmp_path)
    with capfd.disabled():
        print(f"\n{outcome}")
    assert outcome.opened + outcome.refused == count
    assert outcome.slowest_seconds < 1 and outcome.peak_bytes < 1 << 20
