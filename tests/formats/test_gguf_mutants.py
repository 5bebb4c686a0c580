"""Damaged files: only our own error, little memory, no waiting. `tests/slow` runs a hundred
thousand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats import model_mutants
from tests.formats.gguf_bytes import small_file
from tests.formats.gguf_mutants import campaign
from tetrad.core.errors import FileFormatError
from tetrad.formats import gguf


def test_five_thousand_mutants_open_or_are_refused(tmp_path: Path) -> None:
    outcome = campaign(first=0, count=5000, folder=tmp_path)
    assert outcome.opened > 200 and outcome.refused > 2000  # both sides are reached
    assert outcome.peak_bytes < 2 << 20


def test_a_file_cut_at_any_byte_is_refused(tmp_path: Path) -> None:
    data, path = bytes(small_file().data), tmp_path / "cut.gguf"
    for end in range(len(data)):
        path.write_bytes(data[:end])
        with pytest.raises(FileFormatError):
            gguf.open_file(path)


def test_damaged_models_give_numbers_or_our_errors(tmp_path: Path) -> None:
    outcomes = model_mutants.campaign(first=0, count=60, folder=tmp_path)
    refused = outcomes["FileFormatError"] + outcomes["FileTooShortError"]
    assert outcomes["ran"] > 3 and refused > 20
