"""Ops, shared pieces: type rules, what floats mean in references, and index checks that op
definitions name.

A type rule receives operand types (and the op's settings) and returns the result type or raises the
error the user sees. A reference receives NumPy arrays and returns one. Test-case generators are in
`ops.cases`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.core.dtypes import (
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
)
from tetrad.core.errors import BoundsError, DtypeError, ShapeError
from tetrad.core.promotion import storage_hint
from tetrad.core.sizes import Shape, Size, SizeExpr, reach
from tetrad.core.types import ArrayType
from tetrad.kernel.math.ulps import COMPLEX_ULPS, ULPS

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val

Array = Any  # np.ndarray: NumPy's stubs give Any for arrays of any dtype
Reference = Callable[..., Array]

FLOATS: tuple[DType, ...] = (f32, f64, f16, bf16)
INTS: tuple[DType, ...] = (i32, i64, u8, u32, i8, i16, u16, u64)
INDICES = tuple(d for d in INTS if d is not u64)  # its largest are no addresses
NUMBERS = FLOATS + INTS
ALL = (*NUMBERS, bool_)  # what has an order
COMPLEX: tuple[DType, ...] = (c64, c128)
ANY_FLOATS = FLOATS + COMPLEX
ANY_NUMBERS = NUMBERS + COMPLEX
EVERY = ALL + COMPLEX
HALVES = (f16, bf16)


# -- types -----------------------------------------------------------------------------------------


def broadcast_sizes(a: Size, b: Size, name: str, types: tuple[ArrayType, ...]) -> Size:
    """A Dim never broadcasts as 1: only the literal size 1 does."""
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    shown = " and ".join(map(str, types))
    raise ShapeError(
        f"{name}: shapes do not broadcast: {shown}", hint="sizes must be equal, or one of them 1"
    )


def broadcast_shapes(name: str, *types: ArrayType) -> Shape:
    rank = max((t.rank for t in types), default=0)
    result: list[Size] = [1] * rank
    for t in types:
        for axis, size in enumerate(t.shape, rank - t.rank):
            result[axis] = broadcast_sizes(result[axis], size, name, types)
    return tuple(result)


def same_type(name: str, dtypes: tuple[DType, ...] = NUMBERS) -> Callable[..., ArrayType]:
    """All operands of one type and shape; the result as they are."""

    def rule(*types: ArrayType) -> ArrayType:
        check_same(name, types)
        check_dtype(name, types[0].dtype, dtypes)
        return types[0]

    return rule


def bool_type(name: str, dtypes: tuple[DType, ...]) -> Callable[..., ArrayType]:
    """All operands of one type and shape; the result is a truth value for each element."""
    operands = same_type(name, dtypes)
    return lambda *types: operands(*types).with_dtype(bool_)


def real_type(name: str, dtypes: tuple[DType, ...]) -> Callable[..., ArrayType]:
    """All operands of one type and shape; the result has the type of the parts of a complex
    number."""
    operands = same_type(name, dtypes)

    def rule(*types: ArrayType) -> ArrayType:
        kind = operands(*types)
        return kind.with_dtype(kind.dtype.real)

    return rule


def check_same(name: str, types: tuple[ArrayType, ...]) -> None:
    if any(t.dtype is not types[0].dtype for t in types):
        shown = ", ".join(map(str, types))
        raise DtypeError(
            f"{name}: operands have different dtypes: {shown}", hint="convert with astype"
        )
    if any(t.shape != types[0].shape for t in types):
        shown = ", ".join(map(str, types))
        raise ShapeError(
            f"{name}: operands have different shapes: {shown}",
            hint="broadcast them to one shape first",
        )


def check_dtype(name: str, dtype: DType, allowed: tuple[DType, ...]) -> None:
    if dtype not in allowed:
        hint = "convert with astype"
        if dtype.is_quantized:
            hint = storage_hint(dtype)
        elif dtype.is_complex:
            hint = (
                "complex numbers have no order and no such function here; apply it to td.real, "
                "td.imag or td.abs"
            )
        called = name.removeprefix("reduce_")  # what users call
        raise DtypeError(f"{called}: takes {', '.join(map(str, allowed))}, got {dtype}", hint=hint)


def check_axis(name: str, axis: int, x: ArrayType) -> None:
    if not 0 <= axis < x.rank:
        axes = f"axes 0 to {x.rank - 1}" if x.rank else "no axes"
        raise ShapeError(f"{name}: axis {axis} is out of range for {x}, which has {axes}")


def lowest(size: Size) -> int:
    """The smallest value a size can take, every Dim being at least 1 and at most its bound."""
    if isinstance(size, int):
        return size
    return sum(f if f > 0 or not m else -SizeExpr(((m, -f),)).max for m, f in size.terms)


# -- references ------------------------------------------------------------------------------------


Wider = Mapping[np.dtype[Any], np.dtype[Any]]
HALVES_IN_F32: Wider = {f16.np: f32.np, bf16.np: f32.np}
ALL_IN_F64: Wider = {f16.np: f64.np, bf16.np: f64.np, f32.np: f64.np, c64.np: c128.np}


def ieee(function: Reference) -> Reference:
    """Floats without warnings for infinities and NaN; f16 and bf16 are computed in f32 and rounded
    once."""
    return _computed(function, HALVES_IN_F32)


def precise(function: Reference) -> Reference:
    """As `ieee`, but f32 is computed in f64 as well, and c64 in c128: NumPy's own f32 functions are
    off by as much as ours may be."""
    return _computed(function, ALL_IN_F64)


def _computed(function: Reference, wider: Wider) -> Reference:
    @wraps(function)
    def reference(*args: Array, **params: Any) -> Array:
        arrays = [np.asarray(a) for a in args]
        narrow = next((a.dtype for a in arrays if a.dtype in wider), None)
        if narrow is None:
            return np.asarray(_quiet(function, arrays, params))
        wide = wider[narrow]
        result = np.asarray(
            _quiet(function, [a.astype(wide) if a.dtype == narrow else a for a in arrays], params)
        )
        with np.errstate(all="ignore"):
            return result.astype(narrow) if result.dtype == wide else result

    return reference


def _quiet(function: Reference, arrays: list[Array], params: dict[str, Any]) -> Array:
    """Integers keep their warnings: there is no infinity that tells of a division by zero."""
    if all(a.dtype.kind in "iu" for a in arrays):
        return function(*arrays, **params)
    with np.errstate(all="ignore"):
        return function(*arrays, **params)


def transcendental_dtypes(name: str) -> tuple[DType, ...]:
    """What a function of `kernel.math.exponential` and `kernel.math.complex` is compiled for;
    halves are computed in f32."""
    return tuple(d for d in FLOATS if d in ULPS[name] or d in HALVES) + (
        COMPLEX if name in COMPLEX_ULPS else ()
    )


def transcendental_ulps(name: str) -> dict[DType, float]:
    """Compiled against eager: NumPy's own f64 functions are within one unit themselves."""
    own = {d: ulps + 1 if d is f64 else ulps for d, ulps in ULPS[name].items()}
    return {**own, f16: 1, bf16: 1, **complex_ulps(name)}


def complex_ulps(name: str) -> dict[DType, float]:
    """The same for complex operands, of each part in units of the magnitude: NumPy's own are within
    four there."""
    own = COMPLEX_ULPS.get(name, {})
    return {d.complex: ulps + 4 if d is f64 else ulps for d, ulps in own.items()}


# -- indices ---------------------------------------------------------------------------------------


def check_index_dtype(name: str, indices: ArrayType) -> None:
    if indices.dtype not in INDICES:
        listed = ", ".join(map(str, INDICES))
        raise DtypeError(
            f"{name}: indices must be integers ({listed}), got {indices}",
            hint="convert with astype",
        )


def wrapped_indices(name: str, indices: Array, axis: int, size: int) -> Array:
    """Indices counted from the start; negative ones counted from the end."""
    given = np.asarray(indices)
    wide = given.astype(np.int64)
    bad = (wide < -size) | (wide >= size)
    if bad.any():
        # Compiled code says the same: it knows the index, and not where among the others it stood.
        message = (
            f"{name}: index {given[bad].flat[0]} is out of range for axis {axis} of size {size}"
        )
        raise BoundsError(message, hint=reach(size))
    return np.where(wide < 0, wide + size, wide)


def wrapped_index(k: KernelBuilder, given: Val, size: Val) -> tuple[Val, Val]:
    """The same for one index in a kernel: where to read, and whether the index was out of range
    (then it is 0)."""
    i = k.select(given < 0, given + size, given)
    bad = k.binary("or", i < 0, i >= size)
    return k.select(bad, 0, i), bad
