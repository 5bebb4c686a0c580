"""A small share of the files that change, and two defects that must be noticed."""

from __future__ import annotations

import pytest

from tests.fuzz.replaced import check
from tetrad.formats.gguf import Pin
from tetrad.models import load


@pytest.mark.parametrize("seed", range(8))
def test_models_are_those_of_their_files(seed: int) -> None:
    assert check(seed) is None


def test_a_change_that_is_not_looked_for_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pin, "check", lambda self: None)
    assert any(check(seed) for seed in range(20))


def test_a_model_remembered_by_its_path_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, object] = {}
    really = load.read_programs
    monkeypatch.setattr(
        load, "read_programs", lambda file, *rest: known.setdefault(file.path, really(file, *rest))
    )
    assert any(check(seed) for seed in range(20))
