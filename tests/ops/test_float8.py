"""Floats of eight bits: conversion both ways, eager and compiled, against ml_dtypes; they are moved
as bytes, never computed with. The ops are
`unpack_float8` and `pack_float8`, with bit operations between."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tetrad as td
from tetrad.core.dtypes import FLOAT8, FLOAT8_NAMES
from tetrad.core.errors import DtypeError
from tetrad.ops.convert import odd_f32

CODES = np.arange(256, dtype=np.uint8)
NAMES = pytest.mark.parametrize("name", FLOAT8_NAMES)
RUNS = pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "compiled"])
Run = Callable[[Callable[..., Any]], Callable[..., Any]]


def peer(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name))


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal numbers, zeros of the same sign, NaN where NaN is wanted."""
    a, b = got.astype(np.float32), want.astype(np.float32)
    np.testing.assert_array_equal(a, b)
    is_number = ~np.isnan(b)
    np.testing.assert_array_equal(np.signbit(a)[is_number], np.signbit(b)[is_number])


def numbers(name: str) -> np.ndarray:
    """All numbers of the format, what lies between two of them and beside that, and f32 of every
    size."""
    values = CODES.view(peer(name)).astype(np.float32)
    finite = np.sort(values[np.isfinite(values)])
    between = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    beside = [np.nextafter(between, np.float32(end)) for end in (np.inf, -np.inf)]
    every = np.arange(0, 1 << 32, 99991, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ends = np.float32([448, 464, 464.1, 57344, 61440, 61441, np.inf, -np.inf, np.nan, 0.0, -0.0])
    return np.concatenate([finite, between, *beside, every, ends])


@NAMES
@RUNS
def test_all_codes_are_the_numbers_of_ml_dtypes(name: str, run: Run) -> None:
    x = td.asarray(CODES.view(peer(name)))
    for dtype in (td.float32, td.float64, td.float16, td.int32):
        found = run(lambda x, dtype=dtype: x.astype(dtype))(x)
        want = CODES.view(peer(name)).astype(np.float32)
        same(np.asarray(found), np.asarray(td.asarray(want).astype(dtype)))


@NAMES
@RUNS
def test_numbers_are_rounded_once_to_nearest_even(name: str, run: Run) -> None:
    convert = run(lambda x: x.astype(name))
    x = numbers(name)
    with np.errstate(all="ignore"):
        same(np.asarray(convert(td.asarray(x))), x.astype(peer(name)))
        wide = np.concatenate([np.nextafter(x.astype(np.float64), end) for end in (9e9, -9e9)])
        want = odd_f32(wide).astype(peer(name))  # ml_dtypes itself rounds to f32 first
        same(np.asarray(convert(td.asarray(wide))), want)


def test_between_two_numbers_the_nearer_one_is_taken_where_f32_cannot_tell() -> None:
    below, above = np.nextafter(432.0, 0), np.nextafter(432.0, 999)
    assert td.asarray([below, above], dtype=td.float64).astype("float8_e4m3fn").tolist() == [
        416,
        448,
    ]


@NAMES
@RUNS
def test_they_are_moved_as_they_are(name: str, run: Run) -> None:
    x = CODES.view(peer(name)).reshape(16, 16)
    moves: list[Callable[..., td.Array]] = [
        lambda x: x.T, lambda x: x[3:9:2, ::-1], lambda x: td.concat([x, x], axis=1),
        lambda x: td.take(x, td.asarray([5, 5, 0]), axis=0), lambda x: td.reshape(x, (4, -1)),
    ]  # fmt: skip
    want = [x.T, x[3:9:2, ::-1], np.concatenate([x, x], 1), x[[5, 5, 0]], x.reshape(4, -1)]
    for move, wanted in zip(moves, want, strict=True):
        found = run(move)(td.asarray(x))
        assert found.dtype == name and found.nbytes == wanted.nbytes
        same(np.asarray(found), wanted)


@NAMES
def test_making_and_showing_them(name: str) -> None:
    dtype: Any = getattr(td, name)
    x = td.asarray([1.0, -2.5, 1e9], dtype=dtype)
    want = np.array([1.0, -2.5, 1e9]).astype(peer(name))
    assert x.dtype is dtype and x.dtype == peer(name) == dtype and x.dtype == name
    assert hash(dtype) == hash(peer(name)) and td.asarray(want).dtype is dtype
    assert np.zeros(2, dtype).dtype == peer(name) and x.itemsize == 1
    assert str(x) == str(want) and name in repr(x) and x[1].item() == float(want[1])
    same(np.asarray(pickle.loads(pickle.dumps(x))), want)
    assert td.full((2,), 0.5, dtype=name).tolist() == [0.5, 0.5]
    assert td.zeros((2, 1), dtype=dtype).tolist() == [[0.0], [0.0]]
    assert td.finfo(dtype).max == float(ml_dtypes.finfo(peer(name)).max)  # type: ignore[no-untyped-call]


@NAMES
def test_loops_and_batches_take_them(name: str) -> None:
    x = td.asarray([1.0, 2.0, 0.5], dtype=name)
    total, rows = td.scan(lambda c, v: (c + v.astype(td.float32), v), td.asarray(0.0), x)
    assert total.item() == 3.5 and rows.dtype == name and rows.tolist() == [1.0, 2.0, 0.5]
    assert td.vmap(lambda v: v.astype(td.float32) * 2)(x).tolist() == [2.0, 4.0, 1.0]
    assert td.sum(x).item() == 3.5


def test_what_is_changed_afterwards_does_not_change_them() -> None:
    given = np.array([1.0, 2.0]).astype(peer("float8_e5m2"))
    x = td.asarray(given)
    given[:] = 0
    assert x.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_they_are_not_computed_with(dtype: Any) -> None:
    x = td.asarray([1.0, 2.0], dtype=dtype)
    refused: list[Callable[[], Any]] = [
        lambda: x + x, lambda: x * 2, lambda: x @ x, lambda: td.max(x), lambda: -x,
        lambda: td.jit(lambda x: x * 2)(x),
    ]  # fmt: skip
    for run in refused:
        with pytest.raises(DtypeError) as caught:
            run()
        assert caught.value.hint is not None and "astype" in caught.value.hint
        assert caught.value.source is not None


def test_dlpack_has_a_type_for_them() -> None:
    x = td.asarray([1.0, -2.0], dtype=td.float8_e5m2)
    back = td.from_dlpack(x)
    assert back.dtype == td.float8_e5m2 and back.tolist() == [1, -2]
