"""Special functions, harmonics: spherical harmonics, by the recurrence of normalised Legendre
functions in their degree."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tetrad.arrays import functions as td
from tetrad.core.dtypes import f32, f64
from tetrad.core.errors import DtypeError
from tetrad.special.wide import floats
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.operands import as_array, broadcast, convert, run


def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, *, n_max: int | None = None) -> Array:
    """The spherical harmonic of degree n and order m at the polar angle theta and the azimuth phi;
    complex.

    n_max   the largest degree; needed where n is not known while a function is traced

    >>> import tetrad as td
    >>> td.special.sph_harm_y(1, 0, td.asarray(0.0), td.asarray(0.0))
    Array(0.48860252+0.j, complex64)
    """
    most = _largest(n) if n_max is None else n_max
    given = floats("sph_harm_y", theta, phi)
    degree, order, polar, azimuth = broadcast(
        "sph_harm_y", [as_array(n), as_array(m), *(convert(x, f64) for x in given)]
    )
    size = td.abs(order)
    part = _legendre(degree, size, polar, most)
    real, imag = part * td.cos(order * azimuth), part * td.sin(order * azimuth)
    # of negative orders the conjugate, with the sign of (-1)^m
    sign = td.where((order < 0) & (order % 2 != 0), -1.0, 1.0)
    wanted = given[0].dtype if given[0].dtype.bits >= 32 else f32
    return run("complex", *(convert(sign * x, wanted) for x in (real, imag)))


def _legendre(n: Array, m: Array, polar: Array, most: int) -> Array:
    """Associated Legendre functions of cos(polar), normalised: degree by degree from m on; 0 where
    the order is above the degree."""
    cosine, sine = td.cos(polar), td.where(m == 0, 1.0, td.sin(polar))
    order = convert(m, f64)
    starts = td.take(td.asarray(_diagonal(most)), td.clip(m, 0, most)) * td.pow(sine, order)
    before, now = 0.0 * starts, td.where(m == 0, starts, 0.0)
    found = td.where(n == 0, now, 0.0)
    for l in range(1, most + 1):  # noqa: E741  (the degree's own letter)
        is_above = m < l
        square = td.where(is_above, order * order, 0.0)
        lead = td.sqrt((4.0 * l * l - 1.0) / (l * l - square))
        back = td.sqrt(
            td.maximum((l - 1.0) ** 2 - square, 0.0) / max(4.0 * (l - 1.0) ** 2 - 1.0, 1.0)
        )
        after = td.where(is_above, lead * (cosine * now - back * before), 0.0)
        before, now = now, td.where(m == l, starts, after)
        found = td.where(n == l, now, found)
    return found  # type: ignore[no-any-return]


def _diagonal(most: int) -> np.ndarray:
    """Of degree and order m, without the power of the sine."""
    found, product = [], 1.0
    for m in range(most + 1):
        product *= (2 * m - 1) / (2 * m) if m else 1.0
        found.append((-1) ** m * math.sqrt((2 * m + 1) / (4 * math.pi) * product))
    return np.array(found)


def _largest(n: Any) -> int:
    given = as_array(n)
    if isinstance(given, TracedArray):
        fail(
            DtypeError,
            "sph_harm_y: the largest degree must be known while a function is traced",
            "pass n_max",
        )
    return int(np.max(np.asarray(given), initial=0))
