"""Ops, Fourier transforms along one axis: complex to complex, real to half a spectrum, half a
spectrum to real.

Everything else (several axes, cropping, hfft) is composed in `tetrad.fft`. All three are linear;
how they are computed when compiled is `ops.fft.kernel`. An error is measured against the root of
the mean square of a row's result.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, c64, c128, f32, f64
from tetrad.core.errors import ShapeError
from tetrad.core.op import Case, Op, op
from tetrad.core.sizes import Size
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_constant
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import batched_axis, run, spread
from tetrad.ops.cases import Rng, pick
from tetrad.ops.rules import Array, check_axis, check_dtype

COMPLEX: tuple[DType, ...] = (c64, c128)
REAL: tuple[DType, ...] = (f32, f64)
NORMS = ("none", "backward", "ortho", "forward")
ULPS = {f32: 4, f64: 4, c64: 4, c128: 4}  # of the root mean square of the row, see tests/oracle.py
LENGTHS = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    11,
    12,
    13,
    15,
    16,
    17,
    19,
    20,
    24,
    26,
    30,
    31,
    32,
    34,
    36,
    40,
)


def scale_of(norm: str, n: int, *, inverse: bool) -> float:
    """The factor a transform of length n carries."""
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if norm == ("backward" if inverse else "forward") else 1.0


def numpy_norm(norm: str, *, inverse: bool) -> Any:
    """NumPy's name: "none" is the one under which a direction has no factor."""
    return ("forward" if inverse else "backward") if norm == "none" else norm


def length_of(name: str, size: Size, x: ArrayType, *, least: int = 1) -> int:
    if not isinstance(size, int):
        raise ShapeError(
            f"{name}: the length of a transform must be a number, got {size} of {x}",
            hint="a Dim may size the other axes; pad to a fixed length along this one",
        )
    if size < least:
        raise ShapeError(f"{name}: a transform has at least {least} element, got {size} of {x}")
    return size


def check_norm(name: str, norm: str) -> None:
    if norm not in NORMS:
        raise ShapeError(f"{name}: unknown norm {norm!r}", hint=f"norms: {', '.join(NORMS)}")


def with_length(x: ArrayType, axis: int, n: int, dtype: DType) -> ArrayType:
    return ArrayType(dtype, (*x.shape[:axis], n, *x.shape[axis + 1 :]))


def _array(rng: Rng, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Normal numbers: a NaN or an infinity makes its whole row unknown."""
    parts = rng.standard_normal((*shape, 2))
    values = parts[..., 0] + 1j * parts[..., 1] if dtype.is_complex else parts[..., 0]
    return values.astype(dtype.np)


def _case_shape(rng: Rng) -> tuple[tuple[int, ...], int]:
    outer = [pick(rng, (1, 2, 3)) for _ in range(int(rng.integers(0, 2)))]
    inner = [pick(rng, (1, 2, 5, 17)) for _ in range(int(rng.integers(0, 2)))]
    return (*outer, pick(rng, LENGTHS), *inner), len(outer)


# -- complex to complex ----------------------------------------------------------------------------


def fft_type(x: ArrayType, *, axis: int, inverse: bool, norm: str) -> ArrayType:
    check_dtype("fft", x.dtype, COMPLEX)
    check_axis("fft", axis, x)
    check_norm("fft", norm)
    length_of("fft", x.shape[axis], x)
    return x


def _fft_cases(rng: Rng) -> Case:
    shape, axis = _case_shape(rng)
    settings = {"axis": axis, "inverse": bool(rng.integers(2)), "norm": pick(rng, NORMS)}
    return Case((_array(rng, pick(rng, COMPLEX), shape),), settings)


@op(type=fft_type, kind="special", cases=_fft_cases, dtypes=COMPLEX, ulps=ULPS, public=False)
def fft(x: Array, *, axis: int, inverse: bool, norm: str) -> Array:
    """Sums over j of x[j] e^(-2 pi i j k / n), for every k; with + in the exponent when inverse.

    >>> fft(np.array([1, 2, 3, 4], np.complex64), axis=0, inverse=False, norm="none")
    array([10.+0.j, -2.+2.j, -2.+0.j, -2.-2.j], dtype=complex64)
    """
    function = np.fft.ifft if inverse else np.fft.fft
    with np.errstate(all="ignore"):
        return np.asarray(function(x, axis=axis, norm=numpy_norm(norm, inverse=inverse)))


@fft.transpose
def fft_transpose(cotangent: Node, x: Node, *, axis: int, inverse: bool, norm: str) -> Node:
    """The matrix of the transform is symmetric; nothing is conjugated."""
    result: Node = fft(cotangent, axis=axis, inverse=inverse, norm=norm)
    return result


# -- real to half a spectrum -----------------------------------------------------------------------


def rfft_type(x: ArrayType, *, axis: int, norm: str) -> ArrayType:
    check_dtype("rfft", x.dtype, REAL)
    check_axis("rfft", axis, x)
    check_norm("rfft", norm)
    n = length_of("rfft", x.shape[axis], x)
    return with_length(x, axis, n // 2 + 1, x.dtype.complex)


def _rfft_cases(rng: Rng) -> Case:
    shape, axis = _case_shape(rng)
    return Case((_array(rng, pick(rng, REAL), shape),), {"axis": axis, "norm": pick(rng, NORMS)})


@op(type=rfft_type, kind="special", cases=_rfft_cases, dtypes=REAL, ulps=ULPS, public=False)
def rfft(x: Array, *, axis: int, norm: str) -> Array:
    """The first half of the spectrum of real numbers; the other half is its conjugate.

    >>> rfft(np.array([1, 2, 3, 4], np.float32), axis=0, norm="none")
    array([10.+0.j, -2.+2.j, -2.+0.j], dtype=complex64)
    """
    with np.errstate(all="ignore"):
        return np.asarray(np.fft.rfft(x, axis=axis, norm=numpy_norm(norm, inverse=False)))


# -- half a spectrum to real -----------------------------------------------------------------------


def irfft_type(x: ArrayType, *, axis: int, n: int, norm: str) -> ArrayType:
    check_dtype("irfft", x.dtype, COMPLEX)
    check_axis("irfft", axis, x)
    check_norm("irfft", norm)
    length_of("irfft", n, x)
    if length_of("irfft", x.shape[axis], x) != n // 2 + 1:
        raise ShapeError(
            f"irfft: {n} real numbers have {n // 2 + 1} frequencies, got {x.shape[axis]} of {x}"
        )
    return with_length(x, axis, n, x.dtype.real)


def _irfft_cases(rng: Rng) -> Case:
    shape, axis = _case_shape(rng)
    n = shape[axis]
    half = (*shape[:axis], n // 2 + 1, *shape[axis + 1 :])
    return Case(
        (_array(rng, pick(rng, COMPLEX), half),), {"axis": axis, "n": n, "norm": pick(rng, NORMS)}
    )


@op(type=irfft_type, kind="special", cases=_irfft_cases, dtypes=COMPLEX, ulps=ULPS, public=False)
def irfft(x: Array, *, axis: int, n: int, norm: str) -> Array:
    """Real numbers from the first half of their spectrum; imaginary parts that they cannot have are
    not read.

    >>> irfft(np.array([10, -2 + 2j, -2], np.complex64), axis=0, n=4, norm="backward")
    array([1., 2., 3., 4.], dtype=float32)
    """
    with np.errstate(all="ignore"):
        return np.asarray(np.fft.irfft(x, n, axis=axis, norm=numpy_norm(norm, inverse=True)))


# -- derivatives -----------------------------------------------------------------------------------


def opposite(norm: str) -> str:
    """The norm under which the other direction has the same factor."""
    return {"backward": "forward", "forward": "backward"}.get(norm, norm)


def weighted(x: Node, axis: int, n: int, inner: float) -> Node:
    """Half a spectrum times `inner`, but for the one or two frequencies that are their own
    conjugates."""
    weights = np.full(n // 2 + 1, inner, x.type.dtype.np)
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    shape = x.type.shape
    others = [a for a in range(len(shape)) if a != axis]
    result: Node = run("multiply", x, spread(make_constant(weights), others, shape))
    return result


@rfft.transpose
def rfft_transpose(cotangent: Node, x: Node, *, axis: int, norm: str) -> Node:
    """The real part of the cotangent's transform: a sum whose terms, but for the ends, irfft takes
    twice."""
    n = length_of("rfft", x.type.shape[axis], x.type)
    half = weighted(run("conj", cotangent), axis, n, 0.5)
    result: Node = irfft(half, axis=axis, n=n, norm=opposite(norm))
    return result


@irfft.transpose
def irfft_transpose(cotangent: Node, x: Node, *, axis: int, n: int, norm: str) -> Node:
    """Every frequency but the ends counts twice in the result."""
    spectrum = run("conj", rfft(cotangent, axis=axis, norm=opposite(norm)))
    return weighted(spectrum, axis, n, 2.0)


TRANSFORMS: tuple[Op, ...] = (fft, rfft, irfft)
for _op in TRANSFORMS:
    _op.batch(batched_axis(_op, axis=True))
