"""Promotion: the array API's table, and what we decided where it is silent."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tetrad.core.dtypes import (
    ARRAY_DTYPES,
    DType,
    bf16,
    bool_,
    c64,
    c128,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)  # fmt: skip
from tetrad.core.errors import DtypeError
from tetrad.core.promotion import can_cast, operand_dtypes, promote, result_dtype

FORBIDDEN = {frozenset({u64, signed}) for signed in (i8, i16, i32, i64)}
SAME_KIND = [
    (a, b)
    for a, b in itertools.product(ARRAY_DTYPES, repeat=2)
    if bf16 not in (a, b) and a.is_integer == b.is_integer and (a is bool_) == (b is bool_)
]


@pytest.mark.parametrize(("a", "b"), SAME_KIND, ids=str)
def test_dtypes_of_one_kind_promote_as_in_numpy(a: DType, b: DType) -> None:
    if frozenset({a, b}) in FORBIDDEN:
        with pytest.raises(DtypeError, match="no integer dtype holds both"):
            promote(a, b)
    else:
        assert promote(a, b).np == np.promote_types(a.np, b.np)


@pytest.mark.parametrize(("a", "b"), list(itertools.combinations(ARRAY_DTYPES, 2)), ids=str)
def test_promotion_is_symmetric(a: DType, b: DType) -> None:
    if frozenset({a, b}) not in FORBIDDEN:
        assert promote(a, b) is promote(b, a)


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        (i64, f16, f16), (u8, bf16, bf16), (bool_, f32, f32), (bool_, u8, u8), (f16, bf16, f32),
        (i64, c64, c64), (bool_, c128, c128), (bf16, c64, c64),
    ],
    ids=str,
)  # fmt: skip
def test_what_the_standard_leaves_open(a: DType, b: DType, want: DType) -> None:
    assert promote(a, b) is want


@pytest.mark.parametrize(
    ("kinds", "want"),
    [
        ([f16, float], f16), ([f16, int], f16), ([u8, int], u8), ([u8, bool], u8), ([i64, float],
        f32),
        ([bool_, int], i32), ([bool_, float], f32), ([f64, float], f64), ([int], i32), ([float,
        int], f32),
        ([bool], bool_), ([u16, u32, int], u32), ([complex], c64), ([f32, complex], c64),
        ([f64, complex], c128),
        ([i64, complex], c64), ([bool_, complex], c64), ([c128, complex], c128), ([c64, float],
        c64),
        ([f64, c64, int], c128),
    ],
)  # fmt: skip
def test_python_numbers_are_weak(kinds: list[DType | type], want: DType) -> None:
    assert result_dtype(kinds) is want


@pytest.mark.parametrize(
    ("style", "kinds", "want"),
    [
        ("none", [f16, i32, float], (f16, i32, f16)),
        ("numeric", [u8, i8], (i16, i16)),
        ("float", [i32, i32], (f32, f32)),
        ("float", [f16, int], (f16, f16)),
        ("float", [c64, int], (c64, c64)),
        ("parts", [i32, f16], (f32, f32)),
        ("parts", [f64, float], (f64, f64)),
        ("bool", [f32, int], (bool_, bool_)),
        ("where", [i32, f16, float], (bool_, f16, f16)),
    ],
)
def test_styles_of_ops(style: str, kinds: list[DType | type], want: tuple[DType, ...]) -> None:
    assert operand_dtypes(style, kinds) == want


def test_an_unknown_style_lists_the_styles() -> None:
    with pytest.raises(DtypeError, match="styles: none, numeric"):
        operand_dtypes("other", [f32])


def test_can_cast() -> None:
    assert can_cast(i8, i32) and not can_cast(i32, i8) and not can_cast(u64, i64)
