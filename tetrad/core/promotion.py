"""Core: type promotion, which dtype results when dtypes meet.

Receives the dtypes of arrays and the types of Python scalars; returns the common dtype. Scalars are
weak: they take the dtype of the array they meet. The rules are the array API's table. Where that
table is silent: bool gives way to anything, an integer to the float or complex it meets; a Python
float beside integers gives the default float; f16 beside bf16 gives f32; f64 beside c64 gives c128,
whose parts are f64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from tetrad.core.dtypes import (
    DType,
    bf16,
    bool_,
    canonical,
    default_float,
    f16,
    f32,
    named,
    python_dtypes,
)
from tetrad.core.errors import DtypeError

DEQUANTIZE = "x.dequantize() gives floats; a product with them reads the blocks as they lie"
WIDEN = "integers of four bits are stored only: convert with astype, to int8 or uint8 for instance"
WIDEN_FLOAT = "floats of eight bits are stored only: convert with astype, to float32 for instance"
KIND_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}

Kind = DType | type  # the dtype of an array, or the type of a Python scalar


def promote(a: DType, b: DType) -> DType:
    """The dtype that holds both.

    >>> from tetrad.core.dtypes import i8, u8, i64
    >>> promote(i8, u8), promote(i64, f16), promote(f16, bf16)
    (i16, f16, f32)
    """
    if a is b:
        return a
    if {a.kind, b.kind} == {"f", "c"}:
        return promote(a.complex, b.complex)
    if KIND_RANK[a.kind] != KIND_RANK[b.kind]:
        return a if KIND_RANK[a.kind] > KIND_RANK[b.kind] else b
    if a.kind != b.kind:
        return _mixed_signs(a, b)
    if {a, b} == {f16, bf16}:
        return f32
    return a if a.bits > b.bits else b


def _mixed_signs(a: DType, b: DType) -> DType:
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    if unsigned.bits == 64:
        raise DtypeError(
            f"no integer dtype holds both {a} and {b}", hint="convert one of them with astype"
        )
    return canonical(named(f"i{2 * unsigned.bits}"))


def result_dtype(kinds: Iterable[Kind]) -> DType:
    """The common dtype of arrays (by dtype) and Python scalars (by type).

    >>> from tetrad.core.dtypes import u8
    >>> result_dtype([u8, int]), result_dtype([u8, float]), result_dtype([f16, float])
    (u8, f32, f16)
    >>> result_dtype([int, bool])
    i32
    """
    kinds = tuple(kinds)
    strong = [k for k in kinds if isinstance(k, DType)]
    numbers = [k for k in kinds if not isinstance(k, DType)]
    defaults = python_dtypes() if numbers else {}
    weak = [defaults[k] for k in numbers]
    if not strong:
        return reduce(promote, weak)
    if strong[0].is_narrow and len({*strong}) == 1 and not weak:
        return strong[0]  # to be moved, not computed with
    for dtype in strong:
        if dtype.is_quantized:
            raise DtypeError(
                f"quantised arrays are not computed with, got {dtype}", hint=storage_hint(dtype)
            )
    base = reduce(promote, strong)
    if base.is_float and complex in numbers:
        return base.complex
    # max gives the first of equal ranks: the dtype of the arrays
    return max([base, *weak], key=lambda d: KIND_RANK[d.kind])


def storage_hint(dtype: DType) -> str:
    """What to do with an array of a quantised type."""
    if dtype.is_float8:
        return WIDEN_FLOAT
    return WIDEN if dtype.is_nibble else DEQUANTIZE


def as_float(dtype: DType) -> DType:
    """The dtype a float function computes in: floats and complex numbers keep theirs, others take
    the default float."""
    return dtype if dtype.is_float or dtype.is_complex else default_float()


def operand_dtypes(style: str, kinds: Sequence[Kind]) -> tuple[DType, ...]:
    """What to convert each operand of an op to, by the op's `promote` style.

    none     arrays keep their dtypes        numeric  all take the common dtype
    float    the common dtype, as a float    bool     all become bool
    where    the first becomes bool, the others take their common dtype
    parts    all take the common float dtype that is a part of a complex number
    """
    if style == "where":
        return (bool_, *operand_dtypes("numeric", kinds[1:]))
    if style == "bool":
        return (bool_,) * len(kinds)
    common = result_dtype(kinds)
    if style == "none":
        return tuple(k if isinstance(k, DType) else common for k in kinds)
    if style == "parts":
        common = as_float(common)
        return (common if common.is_complex else common.complex.real,) * len(kinds)
    if style not in ("numeric", "float"):
        raise DtypeError(
            f"unknown promotion style {style!r}",
            hint="styles: none, numeric, float, bool, where, parts",
        )
    return (as_float(common) if style == "float" else common,) * len(kinds)


def can_cast(source: DType, target: DType) -> bool:
    """Whether promotion may turn `source` into `target`.

    >>> from tetrad.core.dtypes import f64, i8
    >>> can_cast(f32, f64), can_cast(f64, f32), can_cast(i8, f16)
    (True, False, True)
    """
    if source.is_quantized or target.is_quantized:
        return source is target
    try:
        return promote(source, target) is target
    except DtypeError:
        return False
