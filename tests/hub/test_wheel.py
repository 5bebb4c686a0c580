"""Wheels: what pip fetches is followed while it comes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tetrad.hub.wheel import followed, size_of

# A stand-in for pip: a file that grows where temporary files are, until its second half has been
# seen.
SLOW = """
import os, sys, time
place = os.environ["TMPDIR"]
os.mkdir(f"{place}/unpack")
for _ in range(2):
    with open(f"{place}/unpack/half", "ab") as file:
        file.write(bytes(1000))
    time.sleep(0.6)
sys.exit("it broke" if len(sys.argv) > 1 else 0)
"""


def test_a_download_is_followed_as_it_grows(tmp_path: Path) -> None:
    seen: list[int] = []
    assert followed([sys.executable, "-c", SLOW], tmp_path, seen.append) == (0, "")
    assert seen == sorted(seen) and {1000, 2000} <= set(seen) and size_of(tmp_path) == 2000


def test_what_a_download_says_when_it_fails(tmp_path: Path) -> None:
    assert followed([sys.executable, "-c", SLOW, "fail"], tmp_path, lambda come: None) == (
        1,
        "it broke\n",
    )


def test_a_download_ends_with_whoever_follows_it(tmp_path: Path) -> None:
    def interrupted(come: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        followed([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, interrupted)
