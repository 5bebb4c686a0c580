"""Fourier transforms: `td.fft`, the array API's extension with NumPy's settings, and two forms of
other systems.

Receives arrays and settings, returns arrays. Three ops do the work (`ops.fft.op`); lengths, several
axes and Hermitian forms are composed here, so every transform of functions applies to them. f32
gives complex64, f64 complex128.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.arrays import functions as td
from tetrad.arrays import namespaces
from tetrad.core.dtypes import DType, default_float, f32, f64
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.ops.fft.op import NORMS, opposite
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, axes_of, axis_of, convert, dtype_of, run

Norm = str | None  # None: backward
Axes = Sequence[int] | None


# -- one axis --------------------------------------------------------------------------------------


def fft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The discrete Fourier transform along an axis, cropped or padded with zeros to length n first.

    norm: backward (the inverse has the factor 1/n), forward, ortho (both 1/sqrt(n)) or none
    (neither has a factor).

    >>> import tetrad as td
    >>> td.fft.fft(td.asarray([1.0, 2.0, 3.0, 4.0]))
    Array([10.+0.j, -2.+2.j, -2.+0.j, -2.-2.j], complex64)
    """
    return _complex("fft", x, n, axis, norm, inverse=False)


def ifft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The inverse of `fft`.

    >>> import tetrad as td
    >>> td.fft.ifft(td.asarray([10, -2 + 2j, -2, -2 - 2j]))
    Array([1.+0.j, 2.+0.j, 3.+0.j, 4.+0.j], complex64)
    """
    return _complex("ifft", x, n, axis, norm, inverse=True)


def rfft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The first n // 2 + 1 numbers of the transform of real ones; the others are their conjugates.

    >>> import tetrad as td
    >>> td.fft.rfft(td.asarray([1.0, 2.0, 3.0, 4.0]))
    Array([10.+0.j, -2.+2.j, -2.+0.j], complex64)
    """
    return _of_reals("rfft", x, n, axis, _norm("rfft", norm))


def irfft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The inverse of `rfft`: n real numbers, by default 2 (m - 1) from m.

    >>> import tetrad as td
    >>> td.fft.irfft(td.asarray([10, -2 + 2j, -2]))
    Array([1., 2., 3., 4.], float32)
    """
    return _half("irfft", _as_complex("irfft", x), n, axis, _norm("irfft", norm))


def hfft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The transform, real numbers, of a signal of which only the first half is given; the rest are
    its conjugates.

    >>> import tetrad as td
    >>> td.fft.hfft(td.asarray([1.0, 2.0, 3.0]))
    Array([ 8., -2.,  0., -2.], float32)
    """
    return _half("hfft", td.conj(_as_complex("hfft", x)), n, axis, opposite(_norm("hfft", norm)))


def ihfft(x: Any, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Array:
    """The inverse of `hfft`: the first half of a signal."""
    half: Array = td.conj(_of_reals("ihfft", x, n, axis, opposite(_norm("ihfft", norm))))
    return half


# -- several axes ----------------------------------------------------------------------------------


def fftn(
    x: Any, /, s: Sequence[int] | None = None, axes: Axes = None, norm: Norm = "backward"
) -> Array:
    """`fft` along several axes, the last of them first; `s` holds their lengths (-1: as it is).

    >>> import tetrad as td
    >>> td.fft.fftn(td.asarray([[1.0, 2.0], [3.0, 4.0]]))
    Array([[10.+0.j, -2.+0.j],
           [-4.+0.j,  0.+0.j]], complex64)
    """
    value = _as_complex("fftn", x)
    for axis, n in _sides("fftn", value, s, axes):
        value = _complex("fftn", value, n, axis, norm, inverse=False)
    return value


def ifftn(
    x: Any, /, s: Sequence[int] | None = None, axes: Axes = None, norm: Norm = "backward"
) -> Array:
    """The inverse of `fftn`."""
    value = _as_complex("ifftn", x)
    for axis, n in _sides("ifftn", value, s, axes):
        value = _complex("ifftn", value, n, axis, norm, inverse=True)
    return value


def rfftn(
    x: Any, /, s: Sequence[int] | None = None, axes: Axes = None, norm: Norm = "backward"
) -> Array:
    """`rfft` along the last of the axes, `fft` along the others."""
    value = _real("rfftn", x)
    (last, length), *others = _sides("rfftn", value, s, axes)
    value = rfft(value, length, last, norm)
    for axis, n in others:
        value = _complex("rfftn", value, n, axis, norm, inverse=False)
    return value


def irfftn(
    x: Any, /, s: Sequence[int] | None = None, axes: Axes = None, norm: Norm = "backward"
) -> Array:
    """The inverse of `rfftn`."""
    value = _as_complex("irfftn", x)
    (last, length), *others = _sides("irfftn", value, s, axes)
    for axis, n in reversed(others):
        value = _complex("irfftn", value, n, axis, norm, inverse=True)
    return irfft(value, length, last, norm)


def fft2(
    x: Any, /, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: Norm = "backward"
) -> Array:
    """`fftn` along two axes."""
    return fftn(x, s, axes, norm)


def ifft2(
    x: Any, /, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: Norm = "backward"
) -> Array:
    """The inverse of `fft2`."""
    return ifftn(x, s, axes, norm)


def rfft2(
    x: Any, /, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: Norm = "backward"
) -> Array:
    """`rfftn` along two axes."""
    return rfftn(x, s, axes, norm)


def irfft2(
    x: Any, /, s: Sequence[int] | None = None, axes: Axes = (-2, -1), norm: Norm = "backward"
) -> Array:
    """The inverse of `rfft2`."""
    return irfftn(x, s, axes, norm)


# -- frequencies -----------------------------------------------------------------------------------


def fftfreq(n: int, /, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """The frequency of each number of a transform of length n of samples at a distance d.

    >>> import tetrad as td
    >>> td.fft.fftfreq(4, d=0.5)
    Array([ 0. ,  0.5, -1. , -0.5], float32)
    """
    return _frequencies("fftfreq", np.fft.fftfreq, n, d, dtype, device)


def rfftfreq(n: int, /, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """The same for `rfft`.

    >>> import tetrad as td
    >>> td.fft.rfftfreq(4, d=0.5)
    Array([0. , 0.5, 1. ], float32)
    """
    return _frequencies("rfftfreq", np.fft.rfftfreq, n, d, dtype, device)


def _frequencies(
    name: str, function: Callable[..., Any], n: int, d: float, dtype: Any, device: Any
) -> Array:
    wanted = default_float() if dtype is None else dtype_of(dtype)
    if not wanted.is_float:
        fail(DtypeError, f"{name}: frequencies are real floats, got {wanted}")
    if d == 0:
        fail(
            ShapeError,
            f"{name}: samples at a distance of 0 have no frequencies",
            "d is the time between them",
        )
    return td.asarray(function(_count(name, n), d), dtype=wanted, device=device)


def fftshift(x: Any, /, axes: int | Axes = None) -> Array:
    """Frequency zero in the middle.

    >>> import tetrad as td
    >>> td.fft.fftshift(td.asarray([0, 1, 2, -2, -1]))
    Array([-2, -1,  0,  1,  2], int32)
    """
    return _shifted("fftshift", x, axes, forward=True)


def ifftshift(x: Any, /, axes: int | Axes = None) -> Array:
    """The inverse of `fftshift`."""
    return _shifted("ifftshift", x, axes, forward=False)


# -- forms of other systems ------------------------------------------------------------------------


def real_block(x: Any, /, *, inverse: bool = False, norm: Norm = "none") -> Array:
    """`fft` of complex numbers given as reals: the last axis holds all real parts, then all
    imaginary parts.

    >>> import tetrad as td
    >>> td.fft.real_block(td.asarray([1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]))
    Array([10., -2., -2., -2.,  0.,  2.,  0., -2.], float32)
    """
    x = _real("real_block", x)
    if x.ndim < 1 or not isinstance(x.shape[-1], int) or x.shape[-1] % 2:
        fail(
            ShapeError,
            "real_block: the last axis holds real, then imaginary parts: an even number, got "
            f"{x.type}",
        )
    half = x.shape[-1] // 2
    value = _complex(
        "real_block", td.complex(x[..., :half], x[..., half:]), None, -1, norm, inverse=inverse
    )
    return td.concat([td.real(value), td.imag(value)], axis=-1)


def butterfly_stage(
    state: Any, gate: Any, rev: Any, tw_re: Any, tw_im: Any, /, *, stage: int, n_fft: int
) -> Array:
    """One stage of a transform by radix 2, whose butterflies can be left out (gate 0) or reversed
    (rev at least 0.5).

    state     real [batch, n_fft, 2], real and imaginary parts side by side
    gate ...  one number for each of the n_fft / 2 butterflies; tw_re, tw_im are the factors of the
              lower inputs

    Butterfly f takes the numbers i0 = f // s * 2 s + f % s and i0 + s, where s = 2**stage. Nothing
    is sorted or scaled.
    """
    state, *vectors = (as_array(x) for x in (state, gate, rev, tw_re, tw_im))
    _check_stage(state, vectors, stage, n_fft)
    s = 1 << stage
    blocks = n_fft // (2 * s)
    gate, rev, real, imag = (td.reshape(v, (blocks, s)) for v in vectors)
    parts = td.reshape(state, (state.shape[0], blocks, 2, s, 2))
    top, low = parts[:, :, 0], parts[:, :, 1]
    low_re, low_im = low[..., 0], low[..., 1]
    turned = td.stack([low_re * real - low_im * imag, low_re * imag + low_im * real], axis=-1)
    is_off, is_reversed = (td.expand_dims(flag, axis=-1) for flag in (gate == 0, rev >= 0.5))
    total, difference = top + turned, top - turned
    first = td.where(is_off, top, td.where(is_reversed, difference, total))
    second = td.where(is_off, low, td.where(is_reversed, total, difference))
    return td.reshape(td.stack([first, second], axis=2), state.shape)


def _check_stage(state: Array, vectors: list[Array], stage: int, n_fft: int) -> None:
    if n_fft < 2 or n_fft & (n_fft - 1):
        fail(ShapeError, f"butterfly_stage: n_fft is a power of two, at least 2, got {n_fft}")
    if not 0 <= stage < n_fft.bit_length() - 1:
        fail(
            ShapeError,
            f"butterfly_stage: {n_fft} numbers have stages 0 to {n_fft.bit_length() - 2}, got "
            f"{stage}",
        )
    if state.ndim != 3 or state.shape[1:] != (n_fft, 2):
        fail(ShapeError, f"butterfly_stage: the state is [batch, {n_fft}, 2], got {state.type}")
    if any(v.shape != (n_fft // 2,) for v in vectors):
        shown = ", ".join(str(v.type) for v in vectors)
        fail(
            ShapeError,
            f"butterfly_stage: gate, rev, tw_re and tw_im have {n_fft // 2} numbers each, got "
            f"{shown}",
        )
    if any(x.dtype is not state.dtype or not x.dtype.is_float for x in (state, *vectors)):
        shown = ", ".join(str(v.type) for v in (state, *vectors))
        fail(DtypeError, f"butterfly_stage: state and vectors are of one float dtype, got {shown}")


# -- inside ----------------------------------------------------------------------------------------


def _complex(name: str, x: Any, n: int | None, axis: int, norm: Norm, *, inverse: bool) -> Array:
    x = _as_complex(name, x)
    at = axis_of(name, axis, x.ndim)
    return run("fft", _sized(name, x, n, at), axis=at, inverse=inverse, norm=_norm(name, norm))


def _of_reals(name: str, x: Any, n: int | None, axis: int, norm: str) -> Array:
    x = _real(name, x)
    at = axis_of(name, axis, x.ndim)
    return run("rfft", _sized(name, x, n, at), axis=at, norm=norm)


def _half(name: str, x: Array, n: int | None, axis: int, norm: str) -> Array:
    at = axis_of(name, axis, x.ndim)
    length = 2 * (_static(name, x, at) - 1) if n is None else _count(name, n)
    if length < 1:
        count = "one number" if length == 0 else "no numbers"
        fail(
            ShapeError,
            f"{name}: {x.type} has {count} along axis {at}: how long the result is must be said",
            "n=1",
        )
    return run("irfft", _sized(name, x, length // 2 + 1, at), axis=at, n=length, norm=norm)


def _as_complex(name: str, x: Any) -> Array:
    x = as_array(x)
    return x if x.dtype.is_complex else convert(x, _float(name, x).complex)


def _real(name: str, x: Any) -> Array:
    x = as_array(x)
    if x.dtype.is_complex:
        fail(
            DtypeError,
            f"{name}: takes real numbers, got {x.type}",
            "take the real part, or use fft",
        )
    return convert(x, _float(name, x))


def _float(name: str, x: Array) -> DType:
    """The float dtype a real array is transformed in."""
    if x.dtype.is_quantized:
        fail(DtypeError, f"{name}: takes numbers, got {x.type}", "dequantize first")
    return f64 if x.dtype is f64 else f32


def _norm(name: str, norm: Norm) -> str:
    if norm is None:
        return "backward"
    if norm not in NORMS:
        fail(ShapeError, f"{name}: unknown norm {norm!r}", f"norms: {', '.join(NORMS)}")
    return norm


def _count(name: str, n: Any) -> int:
    if not isinstance(n, int | np.integer) or isinstance(n, bool | np.bool_) or n < 1:
        fail(ShapeError, f"{name}: the length of a transform is an int, at least 1, got {n!r}")
    return int(n)


def _static(name: str, x: Array, axis: int) -> int:
    size = x.shape[axis]
    if not isinstance(size, int):
        fail(ShapeError, f"{name}: axis {axis} of {x.type} has no fixed length", "give n=")
    return size


def _sized(name: str, x: Array, n: int | None, axis: int) -> Array:
    """Cropped or padded with zeros to n."""
    if n is None:
        return x
    count, size = _count(name, n), _static(name, x, axis)
    if count <= size:
        return x if count == size else x[(slice(None),) * axis + (slice(0, count),)]
    return td.pad(x, [(0, count - size if a == axis else 0) for a in range(x.ndim)])


def _sides(
    name: str, x: Array, s: Sequence[int] | None, axes: Axes
) -> list[tuple[int, int | None]]:
    """(axis, length), the last axis first; None is the usual length."""
    for setting, given in (("s", s), ("axes", axes)):
        if given is not None and not isinstance(given, Sequence):
            fail(
                ShapeError,
                f"{name}: {setting} is a sequence of ints, one for each axis, got {given!r}",
            )
    if s is not None and axes is not None and len(s) != len(axes):
        fail(
            ShapeError, f"{name}: {len(s)} lengths for {len(axes)} axes", "one length for each axis"
        )
    if s is not None and len(s) > x.ndim:
        fail(ShapeError, f"{name}: {len(s)} lengths for an array with {x.ndim} axes")
    default = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    chosen = [axis_of(name, a, x.ndim) for a in (default if axes is None else axes)]
    if not chosen:
        fail(ShapeError, f"{name}: needs at least one axis, got {x.type}")
    lengths: list[int | None] = [
        None if s is None or s[i] == -1 else s[i] for i in range(len(chosen))
    ]
    return list(zip(reversed(chosen), reversed(lengths), strict=True))


def _shifted(name: str, x: Any, axes: int | Axes, *, forward: bool) -> Array:
    x = as_array(x)
    chosen = axes_of(name, list(axes) if isinstance(axes, Sequence) else axes, x.ndim)
    half = [_static(name, x, a) // 2 for a in chosen]
    return td.roll(x, half if forward else [-h for h in half], axis=chosen)


__all__ = [
    "butterfly_stage", "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2",
    "ifftn", "ifftshift",
    "ihfft", "irfft", "irfft2", "irfftn", "real_block", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

if not TYPE_CHECKING:  # which would take any name for one of ours
    __getattr__, __dir__ = namespaces.offers(globals(), {})
