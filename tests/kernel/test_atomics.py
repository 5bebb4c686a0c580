"""Atomics: one invocation after the other, in the order of workgroups and lanes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tetrad as td
from tests.kernel.programs import edges
from tetrad.core.dtypes import DType, i32, index, u32
from tetrad.core.errors import BoundsError
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.merge import merged
from tetrad.kernel.verify import verify

SIZE, LANES = 24, 8
ORACLE: dict[str, Callable[[int, int], int]] = {
    "add": lambda old, v: old + v,
    "min": min,
    "max": max,
    "and": lambda old, v: old & v,
    "or": lambda old, v: old | v,
    "xor": lambda old, v: old ^ v,
    "exchange": lambda old, v: v,
    "compare_exchange": lambda old, v: v if old == 7 else old,
}


def changing(op: str, dtype: DType, odd_only: bool) -> n.Program:
    """y[i] = what s[at[i]] held before x[i] came."""
    k = KernelBuilder(op, LANES)
    x, at = k.buffer("x", dtype), k.buffer("at", i32)
    s, y = k.buffer("s", dtype, "readwrite"), k.buffer("y", dtype, "write")
    i = k.global_id()
    where, expected = k.load(at, i), 7 if op == "compare_exchange" else None
    with k.when((where % 2).eq(1) if odd_only else where >= 0):
        k.store(y, i, k.atomic(op, s, k.cast(where, index), k.load(x, i), expected))
    return k.finish()


def in_order(
    op: str, x: list[int], at: list[int], s: list[int], dtype: DType, odd_only: bool
) -> tuple[list[int], list[int]]:
    s, y = list(s), [0] * len(x)
    for i, (value, where) in enumerate(zip(x, at, strict=True)):
        if not odd_only or where % 2:
            y[i] = s[where]
            s[where] = int(np.array(ORACLE[op](s[where], value) % 2**32, "u4").view(dtype.np))
    return s, y


@pytest.mark.parametrize("odd_only", [False, True])
@pytest.mark.parametrize("dtype", [u32, i32], ids=str)
@pytest.mark.parametrize("op", ORACLE)
def test_each_finds_what_the_one_before_left(op: str, dtype: DType, odd_only: bool) -> None:
    rng = np.random.default_rng(len(op))
    x, s = rng.choice([*edges(dtype), 7], SIZE).tolist(), [7, 0, edges(dtype)[-1], 1]
    for at in (rng.integers(0, 4, SIZE).tolist(), [1] * SIZE, list(range(4)) * (SIZE // 4)):
        program = changing(op, dtype, odd_only)
        verify(program)
        arrays = {"x": np.array(x, dtype.np), "at": np.array(at, "i4"), "s": np.array(s, dtype.np)}
        arrays["y"] = np.zeros(SIZE, dtype.np)
        evaluate(program, arrays, {}, (SIZE // LANES, 1, 1), races=True)
        want = in_order(op, x, at, s, dtype, odd_only)
        assert (arrays["s"].tolist(), arrays["y"].tolist()) == want


def test_every_operator_has_an_oracle() -> None:
    assert {f"atomic_{op}" for op in ORACLE} == set(n.ATOMIC)


def counting(shift: int) -> n.Program:
    k = KernelBuilder("count", LANES)
    s, y = k.buffer("s", u32, "readwrite", 4), k.buffer("y", u32, "write", LANES)
    k.store(y, k.lane(), k.atomic("add", s, k.lane() + shift, 5))
    return k.finish()


@pytest.mark.parametrize("shift", [0, -2, 1 << 40])
def test_out_of_range_nothing_happens_and_the_result_is_0(shift: int) -> None:
    held, old = td.dispatch(counting(shift), [np.arange(1, 5, dtype="u4").tobytes()])
    inside = [0 <= lane + shift < 4 for lane in range(LANES)]
    want = np.arange(1, 5, dtype="u4")
    at = np.arange(LANES)[inside] + shift
    assert np.frombuffer(old, "u4")[inside].tolist() == want[at].tolist()
    assert not np.frombuffer(old, "u4")[np.logical_not(inside)].any()
    want[at] += 5
    assert np.frombuffer(held, "u4").tolist() == want.tolist()


def test_the_evaluator_says_where_it_is_out_of_range() -> None:
    arrays = {"s": np.zeros(4, np.uint32), "y": np.zeros(LANES, np.uint32)}
    with pytest.raises(BoundsError, match=r"buffer s has 4 elements, index 4(.|\n)*invocation"):
        evaluate(counting(0), arrays, {})


def test_workgroups_on_several_threads_lose_nothing() -> None:
    k = KernelBuilder("histogram")
    x, counts = k.buffer("x", i32), k.buffer("counts", u32, "readwrite", 3)
    k.atomic("add", counts, k.cast(k.load(x, k.global_id()), index), 1)
    data = np.random.default_rng(5).integers(0, 3, 1 << 18).astype(np.int32)
    (got,) = td.dispatch(k.finish(), [data.tobytes(), bytes(12)], grid=(data.size // 16, 1, 1))
    assert np.frombuffer(got, "u4").tolist() == np.bincount(data).tolist()


def test_kernels_with_atomics_and_returns_are_merged() -> None:
    def kernel(size: int) -> n.Program:
        k = KernelBuilder("some")
        s = k.buffer("s", u32, "readwrite")
        with k.when(k.global_id() >= k.min(k.length(s), size)):
            k.return_()
        k.atomic("add", s, k.global_id(), size)
        return k.finish()

    found = merged([kernel(5), kernel(9)])
    assert found is not None and len(found.program.args) == 2
    for size, numbers in zip((5, 9), found.numbers, strict=True):
        got, want = np.arange(20, dtype="u4"), np.arange(20, dtype="u4")
        evaluate(found.program, {"s": got}, numbers, (2, 1, 1))
        evaluate(kernel(size), {"s": want}, {}, (2, 1, 1))
        assert got.tolist() == want.tolist() != list(range(20))


def test_the_grid_of_atomics_is_not_guessed() -> None:
    k = KernelBuilder("count")
    k.atomic("add", k.buffer("s", u32, "readwrite", 16), k.global_id(), 1)
    with pytest.raises(td.errors.BadInputs, match="grid cannot be told"):
        td.dispatch(k.finish(), [bytes(64)])
