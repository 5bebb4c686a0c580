"""Chains of byte dot products: exact however long, whatever the target keeps in 16 bits on the
way."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tetrad.core.dtypes import i32, u32
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.nodes import Program

GROUPS, LANES = 3, 16


def chained(length: int, u_max: int, *, reads_middle: bool) -> Program:
    """One lane a row: `length` dots in a row, and, if asked for, the sum halfway too."""
    k = KernelBuilder("chain", LANES)
    u, s = k.buffer("u", u32), k.buffer("s", u32)
    out = k.buffer("out", i32, "write", count=2 * GROUPS * LANES)
    row = k.global_id()
    total = middle = k.const(7, i32)
    for step in range(length):
        at = row + step * GROUPS * LANES
        total = k.dot4(total, k.load(u, at), k.load(s, at), u_max)
        middle = total if step == length // 2 else middle
    k.store(out, row, total)
    k.store(out, row + GROUPS * LANES, middle if reads_middle else total)
    return k.finish()


@pytest.mark.parametrize("u_max", [1, 15, 63, 127, 128, 255])
@pytest.mark.parametrize("length", [1, 2, 8, 9, 20])
@pytest.mark.parametrize("extreme", [False, True], ids=["random", "extreme"])
def test_chains_are_exact(length: int, u_max: int, extreme: bool) -> None:
    rng = np.random.default_rng(length * 1000 + u_max)
    shape = (length, GROUPS * LANES, 4)
    u = (
        np.full(shape, u_max, np.uint8)
        if extreme
        else rng.integers(0, u_max + 1, shape, dtype=np.uint8)
    )
    s = np.full(shape, -128, np.int8) if extreme else rng.integers(-128, 128, shape, dtype=np.int8)
    products = (u.astype(np.int64) * s).sum(-1)
    program = chained(length, u_max, reads_middle=True)
    (raw,) = td.dispatch(program, [u.tobytes(), s.tobytes()], grid=(GROUPS, 1, 1))
    got = np.frombuffer(raw, np.int32).reshape(2, -1)
    np.testing.assert_array_equal(got[0], 7 + products.sum(0))
    np.testing.assert_array_equal(got[1], 7 + products[: length // 2 + 1].sum(0))
