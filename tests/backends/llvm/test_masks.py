"""Stores under a mask whose lanes LLVM can tell beforehand write those lanes and nothing beside
them.

In the LLVM of llvmlite 0.50, code for AVX-512 stores `trunc(x)` under a mask with one known lane as
wide as `x` was.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.llvm.machine import assert_same_as_evaluator
from tetrad.core.dtypes import DType, bf16, f32, i8, i16, i32, i64, u8, u16, u32
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder

NARROWED = [
    (i32, i8),
    (u32, u8),
    (i32, i16),
    (u32, u16),
    (i16, i8),
    (i64, i32),
    (i64, i8),
    (f32, bf16),
    (f32, i8),
]


def some_lanes(workgroup: int, wide: DType, narrow: DType, first: int, count: int) -> n.Program:
    """y[lane] = narrow(x[lane]) for `count` lanes from `first` on."""
    k = KernelBuilder("some_lanes", workgroup)
    x, y = k.buffer("x", wide), k.buffer("y", narrow, "write")
    lane = k.lane()
    with k.when((lane >= first) & (lane < first + count)):
        k.store(y, lane, k.cast(k.load(x, lane), narrow))
    return k.finish()


@pytest.mark.parametrize(("wide", "narrow"), NARROWED, ids=str)
def test_known_lanes_of_narrowed_numbers(wide: DType, narrow: DType) -> None:
    for workgroup in (4, 8, 16):
        x = np.arange(workgroup).astype(wide.np) + np.array(3, wide.np)
        for first, count in ((0, 1), (1, 1), (workgroup - 1, 1), (0, 2), (2, workgroup - 3)):
            program = some_lanes(workgroup, wide, narrow, first, count)
            arrays = {"x": x, "y": np.zeros(first + count, narrow.np)}
            assert_same_as_evaluator(program, arrays, {}, checks=("plain", "mask"))
