"""Twenty thousand damaged folders of models; the outcomes are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.folder_mutants import campaign

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("count", [20_000])
def test_folders_are_models_or_refused(
    count: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outcomes = campaign(first=1_000_000, count=count, folder=tmp_path)
    with capfd.disabled():
        print(f"\n{outcomes}")
    assert sum(outcomes.values()) == count
