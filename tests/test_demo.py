"""The demonstration runs end to end, in a folder of its own, and says what it did."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.modules import ROOT


def test_the_demonstration(tmp_path: Path) -> None:
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-m", "tetrad.demo"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    for text in (
        "the graph as traced",
        "after the passes",
        "kernels",
        "NumPy",
        "largest error",
        "arena",
    ):
        assert text in run.stdout
    assert (tmp_path / "tetrad-demo.html").read_text().startswith("<!doctype html>")
    assert str(tmp_path / "tetrad-demo.html") in run.stdout
