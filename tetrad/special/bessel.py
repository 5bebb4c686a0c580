"""Special functions, Bessel: modified Bessel functions of the first kind, of order 0 and 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tetrad.arrays import functions as td
from tetrad.special.coefficients import I0E_FAR, I0E_NEAR, I1E_FAR, I1E_NEAR
from tetrad.special.wide import series, wide
from tetrad.tracing.array import Array
from tetrad.transforms.custom import custom_jvp

EDGE = 8.0


def _both(a: Array) -> tuple[Array, Array, Array]:
    """Whether a number is far out, and where it lies in [-1, 1] for either series."""
    is_far = a > EDGE
    return is_far, td.where(is_far, 0.0, a / 4.0 - 1.0), 16.0 / td.where(is_far, a, EDGE) - 1.0


@custom_jvp
def scaled_i0(x: Array) -> Array:
    a = td.abs(x)
    is_far, near, far = _both(a)
    root = td.sqrt(td.where(is_far, a, EDGE))
    return td.where(is_far, series(I0E_FAR, far) / root, series(I0E_NEAR, near))  # type: ignore[no-any-return]


@scaled_i0.defjvp
def _scaled_i0_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    value = scaled_i0(x)
    return value, (scaled_i1(x) - td.sign(x) * value) * dx


@custom_jvp
def scaled_i1(x: Array) -> Array:
    a = td.abs(x)
    is_far, near, far = _both(a)
    root = td.sqrt(td.where(is_far, a, EDGE))
    far = td.where(x < 0.0, -1.0, 1.0) * series(I1E_FAR, far) / root
    return td.where(is_far, far, x * series(I1E_NEAR, near))  # type: ignore[no-any-return]


@scaled_i1.defjvp
def _scaled_i1_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    value = scaled_i1(x)
    return value, (scaled_i0(x) - td.sign(x) * value - _over(value, x)) * dx


def _over(value: Array, x: Array) -> Array:
    """I1(x) / x, which is 1/2 at 0."""
    return td.where(x == 0.0, 0.5, value / td.where(x == 0.0, 1.0, x))  # type: ignore[no-any-return]


def _unscaled(scaled: Callable[[Array], Array], x: Array) -> Array:
    """In two steps, since exp(|x|) overflows before the product does."""
    near = td.clip(x, -1e3, 1e3)
    half = td.exp(0.5 * td.abs(near))
    return scaled(near) * half * half  # type: ignore[no-any-return]


@custom_jvp
def plain_i0(x: Array) -> Array:
    return _unscaled(scaled_i0, x)


@plain_i0.defjvp
def _plain_i0_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return plain_i0(x), plain_i1(x) * dx


@custom_jvp
def plain_i1(x: Array) -> Array:
    return _unscaled(scaled_i1, x)


@plain_i1.defjvp
def _plain_i1_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    value = plain_i1(x)
    return value, (plain_i0(x) - _over(value, x)) * dx


def i0(x: Any, /) -> Array:
    """The modified Bessel function of order 0.

    >>> import tetrad as td
    >>> td.special.i0(td.asarray([0.0, 1.0]))
    Array([1.       , 1.2660658], float32)
    """
    return wide("i0", plain_i0, x)


def i0e(x: Any, /) -> Array:
    """exp(-|x|) i0(x).

    >>> import tetrad as td
    >>> td.special.i0e(td.asarray([0.0, 1000.0]))
    Array([1.        , 0.01261724], float32)
    """
    return wide("i0e", scaled_i0, x)


def i1(x: Any, /) -> Array:
    """The modified Bessel function of order 1.

    >>> import tetrad as td
    >>> td.special.i1(td.asarray([0.0, 1.0]))
    Array([0.       , 0.5651591], float32)
    """
    return wide("i1", plain_i1, x)


def i1e(x: Any, /) -> Array:
    """exp(-|x|) i1(x).

    >>> import tetrad as td
    >>> td.special.i1e(td.asarray([0.0, 1000.0]))
    Array([0.        , 0.01261093], float32)
    """
    return wide("i1e", scaled_i1, x)
