"""core.dtypes: one object per element type, found by any of its names."""

from __future__ import annotations

import copy
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import tetrad as td
import tetrad.quant.lanes
from tests.modules import ROOT
from tetrad.core import dtypes as d
from tetrad.core.errors import DtypeError

EVERY = pytest.mark.parametrize("dtype", d.DTYPES, ids=repr)
ARRAYS = pytest.mark.parametrize("dtype", d.ARRAY_DTYPES, ids=repr)


@EVERY
def test_either_name_gives_the_one_object(dtype: d.DType) -> None:
    assert d.named(dtype.short_name) is dtype
    assert d.named(dtype.name) is dtype


@EVERY
def test_a_copy_is_the_same_object(dtype: d.DType) -> None:
    assert copy.copy(dtype) is dtype
    assert copy.deepcopy([dtype])[0] is dtype


@EVERY
def test_size_agrees_with_numpy(dtype: d.DType) -> None:
    assert dtype.nbytes == dtype.np.itemsize


@EVERY
def test_prints_as_the_ir_does(dtype: d.DType) -> None:
    assert repr(dtype) == str(dtype) == dtype.short_name


@ARRAYS
def test_found_from_numpy(dtype: d.DType) -> None:
    assert d.as_dtype(dtype) is dtype
    assert d.as_dtype(dtype.np) is dtype
    assert d.as_dtype(dtype.np.type) is dtype
    assert d.as_dtype(dtype.name) is dtype


@ARRAYS
def test_long_name_is_numpys(dtype: d.DType) -> None:
    assert dtype.name == dtype.np.name


@EVERY
def test_exactly_one_kind(dtype: d.DType) -> None:
    assert [dtype.is_float, dtype.is_complex, dtype.is_integer, dtype is d.bool_].count(True) == 1


def test_signed_means_signed_integer() -> None:
    signed = {dtype for dtype in d.DTYPES if dtype.is_signed}
    assert signed == {d.i8, d.i16, d.i32, d.i64, d.index}


def test_python_types_are_narrow() -> None:
    assert [d.as_dtype(t) for t in (bool, int, float, complex)] == [d.bool_, d.i32, d.f32, d.c64]


def test_complex_types_and_their_parts() -> None:
    assert [t.real for t in (d.c64, d.c128, d.f16, d.i32)] == [d.f32, d.f64, d.f16, d.i32]
    assert [t.complex for t in (d.f32, d.f64, d.bf16, d.c64, d.c128)] == [
        d.c64,
        d.c128,
        d.c64,
        d.c64,
        d.c128,
    ]
    assert [t for t in d.ARRAY_DTYPES if t not in d.REAL_DTYPES] == [d.c64, d.c128]


def test_bfloat16_is_ml_dtypes() -> None:
    assert d.bf16.np == np.dtype(ml_dtypes.bfloat16)


def test_index_is_no_array_dtype() -> None:
    assert d.index not in d.ARRAY_DTYPES
    assert d.as_dtype(np.int64) is d.i64


def test_compiled_dtypes_are_array_dtypes() -> None:
    assert set(d.COMPILED_DTYPES) <= set(d.ARRAY_DTYPES)


NOT_DTYPES = ["float33", "", np.clongdouble, object, ">f4", np.dtype(">f4"), [("a", "f4")], 3]


@pytest.mark.parametrize("like", NOT_DTYPES, ids=repr)
def test_what_is_no_dtype_is_refused_with_the_known_ones(like: object) -> None:
    with pytest.raises(DtypeError, match="hint: known dtypes: float16, bfloat16, float32"):
        d.as_dtype(like)


@pytest.mark.parametrize("dtype", d.ARRAY_DTYPES, ids=repr)
def test_letters_of_numpy_mean_what_they_mean_there(dtype: d.DType) -> None:
    if dtype is d.bf16:
        return
    for letters in (dtype.np.str, "=" + dtype.np.str[1:], dtype.np.char):
        assert d.as_dtype(letters) is dtype, letters
    if dtype.np.str[1:] not in d.TWO_MEANINGS:
        assert d.as_dtype(dtype.np.str[1:]) is dtype


@pytest.mark.parametrize(
    ("name", "numpys", "ours"), [("i8", "int64", "int8"), ("u8", "uint64", "uint8")]
)
def test_a_name_with_two_meanings_is_refused(name: str, numpys: str, ours: str) -> None:
    assert np.dtype(name).name == numpys and d.named(name).name == ours
    with pytest.raises(DtypeError, match=f"{numpys} in NumPy, {ours} as graphs print it"):
        d.as_dtype(name)


def test_an_array_is_no_dtype() -> None:
    with pytest.raises(DtypeError, match="expected a dtype, got an array"):
        d.as_dtype(td.ones(3))


def test_what_knows_bf16_is_loaded_when_it_is_met() -> None:
    script = """
import sys
from tetrad.core.dtypes import as_dtype
names = [as_dtype(name).name for name in ("bfloat16", "float32")], "ml_dtypes" in sys.modules
import ml_dtypes
print(names, as_dtype(ml_dtypes.bfloat16), as_dtype(ml_dtypes.bfloat16).np)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "(['bfloat16', 'float32'], False) bf16 bfloat16"


@ARRAYS
def test_numpy_takes_it_for_its_own(dtype: d.DType) -> None:
    assert np.zeros(3, dtype).dtype == dtype.np  # type: ignore[call-overload]


# -- what NumPy says, and names --------------------------------------------------------------------


@ARRAYS
def test_equal_to_what_numpy_has_for_it_either_way_round_and_with_its_hash(dtype: d.DType) -> None:
    for other in (dtype.np, dtype.np.type, dtype.name, dtype.short_name):
        assert dtype == other and other == dtype and (dtype != other) is False
    assert hash(dtype) == hash(dtype.np)
    assert {dtype: 1}[dtype.np] == {dtype.np: 1}[dtype] == 1  # type: ignore[index]
    assert len({dtype, dtype.np}) == 1
    for other in d.ARRAY_DTYPES:
        if other is not dtype:
            assert dtype not in (other, other.np, other.np.type, other.name)


def test_other_spellings_of_numpy() -> None:
    assert [d.i64, d.bool_] == [np.longlong, bool]
    assert [d.f32, d.f32, d.f64, d.i32] == [
        "<f4",
        "single",
        "double",
        "int_" if np.int_ is np.int32 else "i4",
    ]
    assert d.i8 == "i8" != d.i64  # type: ignore[comparison-overlap]  # ours before NumPy's, to whom it is int64


UNLIKE = [None, 3, 1.5, float, int, complex, object, [], {}, (), "nonsense", "", np.floating,
np.generic, np.str_,
          np.dtype(">f4"), np.dtype([("a", "f4")]), np.ones(3), ml_dtypes.int4,
          ml_dtypes.float8_e4m3fn,
          ml_dtypes.float8_e5m2, np.datetime64]  # fmt: skip


@pytest.mark.parametrize("other", UNLIKE, ids=lambda o: str(o)[:30])
@EVERY
def test_unequal_to_anything_else_without_an_error(dtype: d.DType, other: object) -> None:
    assert (dtype == other) is False and (dtype != other) is True


def test_index_and_quantised_types_are_nothing_of_numpys() -> None:
    quantised = d.named("q8_0x16")
    assert np.int64 != d.index and quantised not in (np.uint8, "uint8") and quantised == "q8_0x16"
    assert len({d.index, d.i64, quantised, d.u8}) == 4


@ARRAYS
def test_it_says_of_itself_what_numpys_does(dtype: d.DType) -> None:
    for name in ("name", "itemsize", "type", "char"):
        assert getattr(dtype, name) == getattr(dtype.np, name)
    table = {dtype.np: 1}
    assert table[dtype] == 1 and {dtype: 2}[dtype.np] == 2
    assert np.dtype(dtype) == dtype.np
    made = dtype(1)
    assert made.dtype is dtype and made.shape == ()
    assert dtype([0, 1]).tolist() == np.asarray([0, 1], dtype.np).tolist()
