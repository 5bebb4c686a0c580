"""Files made to cost much: opened or refused at once, in little more memory than the file. The
whole size is slow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.formats.gguf_hostile import KINDS
from tests.modules import ROOT

SMALL = (
    "empty_strings",
    "strings_of_zeros",
    "equal_tokens",
    "arrays_in_arrays",
    "long_names",
    "overlapping_tensors",
)
SPARE = 64 << 20  # bytes above the size of the file
SECONDS = 2.0  # of processor time


def check(folder: Path, megabytes: int, *names: str) -> None:
    words = [
        sys.executable,
        "-m",
        "tests.formats.gguf_hostile",
        str(folder),
        str(megabytes),
        *names,
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["kind"] for one in found} == set(names or KINDS)
    assert not [
        one for one in found if one["seconds"] > SECONDS or one["peak"] > one["bytes"] + SPARE
    ]


def test_some_kinds_of_16_mb(tmp_path: Path) -> None:
    check(tmp_path, 16, *SMALL)


@pytest.mark.slow
def test_every_kind_of_128_mb(tmp_path: Path) -> None:
    check(tmp_path, 128)
