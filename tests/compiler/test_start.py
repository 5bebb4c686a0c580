"""What a start loads: names cost what they need, and a first call only the kinds of kernels it
has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

START = """
import sys
import tetrad as td
for name in ("asarray", "jit", "nn", "tanh"):
    getattr(td, name)
print(*(m for m in sys.modules if m.startswith("tetrad.")))
x = td.asarray([[1.0, 2.0], [3.0, 4.0]])
td.jit(lambda x: td.tanh(x @ x))(x)
print(*(m for m in sys.modules if m.startswith("tetrad.")))
"""
# Files of these that a start may load; all others wait until they are used.
NN = {"tetrad.nn"}
OPS = {
    "activations", "arithmetic", "calculus", "cases", "compare", "convert", "matmul", "movement",
    "parts", "quantized", "quotients", "reduce", "rules", "signs", "transcendental",
}  # fmt: skip
LATER = (
    "tetrad.passes.groups", "tetrad.ops.groups", "tetrad.ops.float8", "tetrad.tracing.deferred",
    "tetrad.compiler.run_graphs", "tetrad.lower.row_reductions", "tetrad.lower.column_reductions",
    "tetrad.lower.scan_in_lanes", "tetrad.lower.scan_in_workgroup", "tetrad.kernel.merge",
    "tetrad.kernel.math.trigonometric", "tetrad.schedule.parse", "tetrad.models", "tetrad.formats",
    "tetrad.backends.cuda", "tetrad.explain",
)  # fmt: skip


def loaded(folder: Path) -> list[set[str]]:
    environment = {**os.environ, "TETRAD_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", START],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_names_and_a_first_call_load_what_they_need(tmp_path: Path) -> None:
    names, called = loaded(tmp_path)
    assert {m for m in names if m.startswith("tetrad.nn")} == NN
    assert {m.split(".")[2] for m in names if m.startswith("tetrad.ops.")} <= OPS
    found = {m for m in called for later in LATER if m == later or m.startswith(f"{later}.")}
    assert found == set()
