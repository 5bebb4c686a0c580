"""A hundred thousand damaged GGUF files, and twenty thousand damaged models; the outcomes are
printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats import model_mutants
from tests.formats.gguf_mutants import campaign

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("count", [100_000])
def test_mutants_open_or_are_refused(
    count: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome = campaign(first=1_000_000, count=count, folder=tmp_path)
    with capfd.disabled():
        print(f"\n{outcome}")
    assert outcome.opened + outcome.refused == count
    assert outcome.slowest_seconds < 1 and outcome.peak_bytes < 50 << 20


def test_damaged_models_give_numbers_or_our_errors(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Through loading, one step, `show`, `inspect` and `list`."""
    outcomes = model_mutants.campaign(first=1_000_000, count=20_000, folder=tmp_path)
    with capfd.disabled():
        print(f"\n{dict(outcomes)}")
    refused = outcomes["FileFormatError"] + outcomes["FileTooShortError"]
    assert sum(outcomes.values()) == 20_000 and outcomes["ran"] > 1000 and refused > 5000
