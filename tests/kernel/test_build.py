"""The builder: what it leaves out because it is known while it is written."""

from __future__ import annotations

import numpy as np
import pytest

from tetrad.core.dtypes import f32
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.nodes import Program

SIZE, LANES = 64, 16


def ones(stop: int, start: int = 0, step: int = 1) -> Program:
    """y[i + lane] = 1 for every trip i of a loop."""
    k = KernelBuilder("ones")
    y = k.buffer("y", f32, "write", SIZE)
    with k.loop(stop, start, step) as i:
        k.store(y, i + k.lane(), k.const(1.0, f32))
    return k.finish()


def written(program: Program) -> list[int]:
    y = np.zeros(SIZE, np.float32)
    evaluate(program, {"y": y}, {}, (1, 1, 1))
    return [int(i) for i in y.nonzero()[0]]


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(0, 16, 16), (3, 4, 1), (0, 10, 16), (7, 8, 3)]
)
def test_one_trip_is_no_loop(start: int, stop: int, step: int) -> None:
    program = ones(stop, start, step)
    assert "for " not in str(program) and written(program) == list(range(start, start + LANES))


@pytest.mark.parametrize(("start", "stop", "trips"), [(0, 17, 2), (3, 3, 0), (5, 3, 0)])
def test_two_trips_or_none_are_a_loop(start: int, stop: int, trips: int) -> None:
    program = ones(stop, start, LANES)
    assert "for " in str(program) and written(program) == list(range(start, start + trips * LANES))
