"""What an op must give for given operands: its reference, and how far a result may be from it.

exact        everything whose op declares no `ulps`: bit for bit
declared     within `op.ulps` of the reference, which computes in f64; of a complex number each
             part, in units in the last place of the magnitude
transforms   Fourier transforms are compared line by line (tests/norms.py)
sums         float sums, products and contractions have an order of their own, so they are compared
             with a wider type under the bound n * eps * sum|x| (for products, n * eps * |x|), where
             nothing can overflow
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.compiled import difference, parts_of
from tests.norms import line_disagreement
from tetrad.core.dtypes import DType, as_dtype, f32, f64
from tetrad.core.op import Op
from tetrad.ops.fft.op import TRANSFORMS
from tetrad.ops.reduce import PROD, SUM

Array = np.ndarray
# half a unit in the last place of 1, a number below the largest, the smallest
LIMITS = {f32: (2.0**-24, 2.0**127, 2.0**-149), f64: (2.0**-53, 2.0**1023, 2.0**-1074)}
WIDER = np.longdouble  # 64 bits of significand on x86: eleven more than f64
WIDER_COMPLEX = np.clongdouble


def disagreement(
    op: Op, args: Sequence[Array], params: dict[str, Any], results: Sequence[Array]
) -> str | None:
    """Why these cannot be the results of op(*args, **params), or None."""
    with np.errstate(all="ignore"):
        if op in TRANSFORMS:
            return line_disagreement(op, args, params, results[0])
        if results[0].dtype.kind not in "biu" and has_own_order(op):
            return sum_disagreement(op, args, params, results[0])
        found = op.reference(*args, **params)
        wanted = [np.asarray(want) for want in (found if isinstance(found, tuple) else (found,))]
        limits = [allowed(op, args, want) for want in wanted]
        reasons = (too_far(*each) for each in zip(results, wanted, limits, strict=True))
        return next((reason for reason in reasons if reason is not None), None)


def allowed(op: Op, args: Sequence[Array], want: Array) -> float:
    """Units by the type of the result; a real result of complex operands has the error of those."""
    kinds = [want.dtype, *(a.dtype for a in args if a.dtype.kind == "c")]
    return max(op.ulps.get(as_dtype(kind), 0) for kind in kinds)


def is_exact(op: Op, dtypes: Sequence[DType]) -> bool:
    """Does the op give the same bits as its reference, whatever the operands?"""
    if not any(d.is_float or d.is_complex for d in dtypes):
        return True
    return not any(op.ulps.get(d) for d in dtypes) and not has_own_order(op)


def has_own_order(op: Op) -> bool:
    return op.monoid in (SUM, PROD) or op.name == "matmul"


# -- units in the last place -----------------------------------------------------------------------


def too_far(got: Array, want: Array, ulps: float) -> str | None:
    if ulps == 0 or got.dtype != want.dtype or got.shape != want.shape:
        return difference(got, want)
    apart = (parts_apart if got.dtype.kind == "c" else ulps_apart)(got, want)
    if got.size == 0 or (apart <= ulps).all():
        return None
    place = np.unravel_index(int(np.argmax(apart)), got.shape)
    shown = [int(i) for i in place]
    return (
        f"{apart[place]:.0f} ulps apart at {shown}, allowed {ulps}: got {got[place]!r}, want "
        f"{want[place]!r}"
    )


def ulps_apart(got: Array, want: Array) -> Array:
    """How many floats lie between; -0 and +0 are one apart, NaN is infinitely far from everything
    but NaN."""
    a, b = position(got), position(want)
    distance = np.where(a > b, a - b, b - a).astype(np.float64)
    nans = np.isnan(got), np.isnan(want)
    return np.where(nans[0] & nans[1], 0.0, np.where(nans[0] | nans[1], np.inf, distance))


def parts_apart(got: Array, want: Array) -> Array:
    """How far the parts of complex numbers are apart, in units in the last place of the magnitude.

    Infinities and NaN must be the same part by part; the sign of a zero is free.
    """
    a, b = parts_of(got), parts_of(want)
    info = np.finfo(b.dtype)
    size = np.hypot(*np.moveaxis(np.where(np.isfinite(b), b, 0).astype(WIDER), -1, 0))
    unit = np.spacing(np.clip(size, info.tiny, info.max).astype(b.dtype)).astype(WIDER)[..., None]
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    apart = np.where(np.isfinite(a) & np.isfinite(b), np.abs(a.astype(WIDER) - b) / unit, np.inf)
    return np.where(same, 0.0, apart).max(-1).astype(np.float64)


def position(x: Array) -> Array:
    """Floats in their order, as unsigned integers: the sign bit flipped, and all others too below
    zero."""
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    bits = np.ascontiguousarray(x).view(unsigned).reshape(x.shape).astype(np.uint64)
    sign = np.uint64(1 << (8 * x.dtype.itemsize - 1))
    every = np.uint64((1 << (8 * x.dtype.itemsize)) - 1)
    return np.where(bits & sign, every - bits, bits | sign)


# -- sums ------------------------------------------------------------------------------------------


def sum_disagreement(
    op: Op, args: Sequence[Array], params: dict[str, Any], got: Array
) -> str | None:
    is_complex = got.dtype.kind == "c"
    wide = [np.asarray(a).astype(WIDER_COMPLEX if is_complex else WIDER) for a in args]
    measure: Callable[..., tuple[Array, Array, Array]] = {"matmul": of_matmul}.get(
        op.name, of_reduction
    )
    exact, slack, known = measure(op, wide, params, accumulator(got.dtype))
    if got.shape != exact.shape:
        return f"got shape {list(got.shape)}, want {list(exact.shape)}"
    half, largest, least = limits(got.dtype)
    value = got.astype(exact.dtype)
    if is_complex:  # part by part: one may be infinite, and tells nothing of the other
        value, exact = parts_of(value), parts_of(exact)
        slack, known = 4 * slack[..., None], known[..., None]
    slack = slack + half * np.abs(exact) + least  # the last rounding
    unknown = ~known | (np.isfinite(exact) & (np.abs(exact) + slack >= largest))
    fine = (
        (np.abs(value - exact) <= slack)
        | (value == exact)
        | (np.isnan(value) & np.isnan(exact))
        | unknown
    )
    if fine.all():
        return None
    place = tuple(int(i) for i in np.argwhere(~fine)[0])
    return f"at {list(place)}: got {value[place]!r}, want {exact[place]!r} within {slack[place]!r}"


def accumulator(dtype: np.dtype) -> DType:
    return f64 if as_dtype(dtype).real is f64 else f32


def limits(dtype: np.dtype) -> tuple[float, float, float]:
    """Half a unit in the last place of 1, a number above which results may be infinite, and the
    smallest unit."""
    if as_dtype(dtype).real in LIMITS:
        return LIMITS[as_dtype(dtype).real]
    return (
        (2.0**-11, 65504.0, 2.0**-24)
        if as_dtype(dtype).short_name == "f16"
        else (2.0**-8, 2.0**127, 2.0**-133)
    )


def of_reduction(
    op: Op, wide: list[Array], params: dict[str, Any], kept: DType
) -> tuple[Array, Array, Array]:
    """(exact result, bound of the error, where the bound holds)."""
    (x,), axes = wide, params["axes"]
    eps, largest, least = LIMITS[kept]
    count = int(np.prod([x.shape[a] for a in axes]))
    if op.monoid is SUM:
        total = np.sum(np.abs(finite(x)), axes)
        return (
            np.asarray(np.sum(x, axes)),
            np.asarray(count * (eps * total + least)),
            np.asarray(total < largest),
        )
    exact = np.prod(x, axes)
    magnitude = np.where((x != 0) & np.isfinite(x), np.abs(np.log2(np.abs(x))), 0)
    # no order of factors overflows or becomes subnormal
    room = np.sum(magnitude, axes) < np.log2(largest)
    return np.asarray(exact), np.asarray(count * eps * np.abs(exact) * 2), np.asarray(room)


def finite(x: Array) -> Array:
    """What can overflow in one order and not in another; a NaN or an infinity decides a sum in
    every order."""
    return np.where(np.isfinite(x), x, 0)


def of_matmul(
    op: Op, wide: list[Array], params: dict[str, Any], kept: DType
) -> tuple[Array, Array, Array]:
    a, b = wide
    eps, largest, least = LIMITS[kept]
    total = np.matmul(np.abs(finite(a)), np.abs(finite(b)))
    return np.matmul(a, b), (a.shape[-1] + 1) * (eps * total + least), total < largest
