"""A small share of metadata of wrong types, and defects that must be noticed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.metadata import check
from tetrad.hub.describe import Description
from tetrad.models.config import Metadata


@pytest.mark.parametrize("seed", range(16))
def test_wrong_metadata_is_a_result_or_an_error_of_ours(seed: int) -> None:
    assert check(seed) is None


def test_a_number_that_is_not_checked_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Description, "count", lambda self, key, value: int(value))  # type: ignore[call-overload]
    assert any(check(seed) for seed in range(60))


def test_nan_that_is_passed_on_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rope of no speed at all: were NaN let through, every logit would be NaN."""
    monkeypatch.setattr(Metadata, "positive", lambda self, name, default=None, above=0.0: np.nan)
    monkeypatch.setattr(
        "tetrad.models.model.are_wrong", lambda rows: np.zeros(rows.shape, np.bool_)
    )
    assert any("passed on" in (check(seed) or "") for seed in range(40))
