"""JAX's names: `jax.scipy.fft`: cosine transforms of type 2 and their inverses, by Fourier
transforms of the same length (Makhoul 1980)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tetrad.core.errors import UnsupportedError
from tetrad.jax._shell.tables import td
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array


def dct(
    x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """Twice the sums of elements times cos(pi k (2 i + 1) / 2 n); "ortho" makes them orthonormal.

    >>> import tetrad.jax as jax
    >>> jax.scipy.fft.dct(np.ones(2, np.float32), norm="ortho").round(4)
    Array([1.4142, 0.    ], float32)
    """
    rows = along_last("dct", x, type, n, axis)
    size = rows.shape[-1]
    turned = td.concat([rows[..., ::2], rows[..., 1::2][..., ::-1]], axis=-1)
    cosines = 2.0 * td.real(td.fft.fft(turned) * turn(size, -1))
    if norm == "ortho":
        cosines = cosines * scales(size)
    return back(cosines, x, axis)


def idct(
    x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Array:
    """The inverse of `dct`."""
    rows = along_last("idct", x, type, n, axis)
    size = rows.shape[-1]
    if norm == "ortho":
        rows = rows / scales(size)
    # the spectrum of the turned elements, which are real
    mirrored = td.concat([td.zeros_like(rows[..., :1]), rows[..., :0:-1]], axis=-1)
    turned = td.real(td.fft.ifft((rows - 1j * mirrored) * turn(size, 1))) / 2.0
    half = (size + 1) // 2
    places = np.empty(size, np.int32)
    places[::2], places[1::2] = np.arange(half), np.arange(size - 1, half - 1, -1)
    return back(td.take(turned, places, axis=-1), x, axis)


def along_last(name: str, x: Any, type: int, n: int | None, axis: int) -> Any:
    """The elements as floats with this axis last, cut or filled up to n."""
    if type != 2:
        fail(UnsupportedError, f"{name}: type {type}", "type 2 is offered")
    given: Any = as_array(x)
    given = given if given.dtype.is_float else given.astype(float)
    rows = td.moveaxis(given, axis, -1)
    if n is None:
        return rows
    missing = max(0, n - rows.shape[-1])
    return td.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, missing)])[..., :n]


def turn(size: int, sign: int) -> Any:
    """exp(+-i pi k / 2 n)"""
    angles = np.arange(size) * (sign * math.pi / (2 * size))
    return td.asarray(np.exp(1j * angles).astype(np.complex64))


def scales(size: int) -> Any:
    """What makes the cosines orthonormal."""
    factors = np.full(size, math.sqrt(1 / (2 * size)), np.float32)
    factors[0] = math.sqrt(1 / (4 * size))
    return td.asarray(factors)


def back(rows: Any, x: Any, axis: int) -> Array:
    made: Array = td.moveaxis(rows, -1, axis)
    return made


def over_axes(one: Callable[..., Array]) -> Callable[..., Array]:
    """The transform along several axes, one after the other; `s` are their lengths."""

    def several(
        x: Any, type: int = 2, s: Sequence[int] | None = None, axes: Sequence[int] | None = None,
        norm: str | None = None,
    ) -> Array:  # fmt: skip
        given = as_array(x)
        count = given.ndim if s is None else len(s)
        chosen = range(-count, 0) if axes is None else axes
        lengths = [None] * len(chosen) if s is None else s
        for axis, n in zip(chosen, lengths, strict=True):
            given = one(given, type, n, axis, norm)
        return given

    return functools.wraps(one)(several)


dctn, idctn = over_axes(dct), over_axes(idct)
