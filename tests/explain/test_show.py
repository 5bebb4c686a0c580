"""Every flag that shows, saves or times, seen from outside: a fresh process, its stderr, its
files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import numpy as np
import tetrad as td

@td.jit
def layer(x, w):
    return td.tanh(x @ w)

@td.jit
def program(x, w):
    return td.sum(layer(x, w) * 1 + x, axis=-1)

program(np.ones((4, 4), np.float32), np.ones((4, 4), np.float32))
"""


def stderr_of(**flags: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | flags,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == ""
    return run.stderr


def test_nothing_is_printed_unasked() -> None:
    assert stderr_of() == ""


@pytest.mark.parametrize(
    ("station", "lines"),
    [
        (
            "graph",
            [
                "graph program(%0: f32[4,4], %1: f32[4,4]):",
                "graph layer(",
                "= call(%0, %1, graph=@layer)",
            ],
        ),
        ("passes", ["pass simplify: graph program:", "algebra.neutral_element: multiply f32[4,4]"]),
        ("kernel", ['kernel "matmul_tanh"', "--- kernel: ", "store("]),
        ("llvm", ["--- llvm: host", "define void @k_", "target triple"]),
        ("asm", ["--- asm: host", "retq"]),
        (
            "schedule",
            [
                "--- schedule: program",
                "schedule layer(%0, %1):",
                "\n  call @layer(",
                "# table layer: 1 entries",
                "#     0 call layer(in0, in1, arena+",
                "groups",
            ],
        ),
    ],
)
def test_show(station: str, lines: list[str]) -> None:
    printed = stderr_of(TETRAD_SHOW=station)
    for line in lines:
        assert line in printed
    others = {"kernel": '\nkernel "', "llvm": "define void", "schedule": "schedule program("}
    assert [name for name, text in others.items() if name != station and text in printed] == []
    assert printed.count("graph program(%0") <= 1


def test_a_schedule_names_its_words() -> None:
    printed = stderr_of(TETRAD_SHOW="schedule")
    assert (
        "=in0" in printed and "=out0" in printed and "=arena+" in printed and "grid.x=" in printed
    )
    assert "intermediates" in printed and "bytes moved" in printed


def test_time_lists_stages_and_kernels_of_every_call(tmp_path: Path) -> None:
    compiling, recalling = (
        stderr_of(TETRAD_TIME="1", TETRAD_CACHE_DIR=str(tmp_path / "new")) for _ in range(2)
    )
    for stage in ("passes", "lower", "codegen", "schedule"):
        assert f"tetrad: {stage:10} " in compiling and f"tetrad: {stage:10} " not in recalling
    assert "tetrad: recall " in recalling
    assert "tetrad:   simplify  " in compiling and "tetrad:   fuse  " in compiling
    for printed in (compiling, recalling):
        assert "tetrad: run of program, " in printed
        assert "1 x  layer" in printed and "1 x  matmul_tanh" in printed


def test_dump_saves_every_station(tmp_path: Path) -> None:
    assert stderr_of(TETRAD_DUMP=str(tmp_path / "new")) == ""
    saved = {
        path.name.split("-")[1]: path.read_text() for path in sorted((tmp_path / "new").iterdir())
    }
    assert set(saved) == {"graph", "passes", "kernel", "llvm", "asm", "schedule"}
    assert "multiply" in saved["graph"] and "multiply" not in saved["passes"]
    assert saved["llvm"].startswith("target triple")
