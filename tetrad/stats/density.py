"""Stats, density: a density estimated from samples, as a sum of normal ones around them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tetrad.arrays import functions as td
from tetrad.core.dtypes import f64
from tetrad.core.errors import SettingError, ShapeError, UnsupportedError
from tetrad.core.promotion import as_float
from tetrad.core.tree import register
from tetrad.linalg import cholesky, diagonal, triangular_solve
from tetrad.nn import logsumexp
from tetrad.random import choice, multivariate_normal, split
from tetrad.special.errors import normal_below
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, convert

LOG_TAU = math.log(2.0 * math.pi)
Bandwidth = str | float | Callable[["gaussian_kde"], Any] | None


class gaussian_kde:
    """The density of samples [d, n] (or [n]): normal densities around them, whose covariance is
    that of the samples times a factor squared.

    bw_method   the factor: "scott" (the default), "silverman", a number, or a function of this
                object
    weights     of the samples; equal where not given

    >>> import tetrad as td
    >>> density = td.stats.gaussian_kde(td.asarray([-1.0, 0.0, 1.0]))
    >>> density(td.asarray([0.0]))
    Array([0.3181562], float32)
    """

    dataset: Array
    weights: Array
    covariance: Array
    inv_cov: Array
    neff: Array

    def __init__(self, dataset: Any, bw_method: Bandwidth = None, weights: Any = None) -> None:
        given = as_array(dataset)
        if given.dtype.is_complex:
            message = f"gaussian_kde: expected real samples, got {given.type}"
            fail(UnsupportedError, message)
        samples = td.atleast_2d(given) if hasattr(td, "atleast_2d") else _two_axes(given)
        if samples.shape[-1] == 0 or math.prod(samples.shape) < 2:
            fail(ShapeError, f"gaussian_kde: expected several samples, got {given.type}")
        self.dataset = convert(samples, as_float(samples.dtype))
        self.weights = self._shares(weights)
        self.neff = 1.0 / td.sum(self.weights * self.weights)
        self._spread(_factor(self, bw_method))

    def _shares(self, weights: Any) -> Array:
        n, dtype = self.dataset.shape[1], self.dataset.dtype
        if weights is None:
            return td.full((n,), 1.0 / n, dtype=dtype)
        given = convert(weights, dtype)
        if given.shape != (n,):
            fail(ShapeError, f"gaussian_kde: {n} samples have as many weights, got {given.type}")
        return given / td.sum(given)  # type: ignore[no-any-return]

    def _spread(self, factor: Any) -> None:
        points, shares = convert(self.dataset, f64), convert(self.weights, f64)
        away = points - td.sum(points * shares, axis=-1, keepdims=True)
        whole = (away * shares) @ td.matrix_transpose(away) / (1.0 - td.sum(shares * shares))
        inverse = triangular_solve(cholesky(whole), td.eye(self.d, dtype=f64))
        precision = td.matrix_transpose(inverse) @ inverse
        square = convert(factor, f64) ** 2
        self.covariance = convert(whole * square, self.dataset.dtype)
        self.inv_cov = convert(precision / square, self.dataset.dtype)

    @property
    def d(self) -> int:
        """How many numbers a sample has."""
        return int(self.dataset.shape[0])

    @property
    def n(self) -> int:
        """How many samples there are."""
        return int(self.dataset.shape[1])

    # -- densities ---------------------------------------------------------------------------------

    def evaluate(self, points: Any) -> Array:
        """The density at points [d, m]."""
        return td.exp(self.logpdf(points))

    __call__ = pdf = evaluate

    def logpdf(self, x: Any) -> Array:
        """The logarithm of the density at points [d, m]."""
        points = self._points("logpdf", x)
        root = cholesky(convert(self.covariance, f64))
        logs = _log_normals(root, convert(self.dataset, f64), convert(points, f64))
        total = logsumexp(logs + td.log(convert(self.weights, f64))[:, None], axis=0)
        return convert(total, self.dataset.dtype)

    def _points(self, name: str, x: Any) -> Array:
        points = _two_axes(convert(x, self.dataset.dtype))
        if points.shape[0] != self.d and points.shape == (1, self.d):
            points = td.reshape(points, (self.d, 1))  # one point
        if points.shape[0] != self.d:
            message = f"gaussian_kde.{name}: points of {self.d} numbers have them along axis 0"
            fail(ShapeError, f"{message}, got {points.type}")
        return points

    # -- integrals ---------------------------------------------------------------------------------

    def integrate_gaussian(self, mean: Any, cov: Any) -> Array:
        """The integral of the density times a normal one."""
        middle = td.reshape(convert(mean, f64), (-1,))
        spread = _two_axes(convert(cov, f64))
        if middle.shape != (self.d,) or spread.shape != (self.d, self.d):
            message = f"gaussian_kde: expected a mean of {self.d} numbers and their covariance"
            fail(ShapeError, f"{message}, got {middle.type} and {spread.type}")
        root = cholesky(convert(self.covariance, f64) + spread)
        logs = _log_normals(root, convert(self.dataset, f64), middle[:, None])[:, 0]
        return convert(td.sum(td.exp(logs) * self.weights), self.dataset.dtype)

    def integrate_box_1d(self, low: Any, high: Any) -> Array:
        """The probability of a number between low and high."""
        if self.d != 1:
            message = f"integrate_box_1d: samples are single numbers, here {self.d}"
            fail(ShapeError, message)
        width = td.sqrt(convert(self.covariance, f64)[0, 0])
        above, below = ((convert(b, f64) - self.dataset[0]) / width for b in (high, low))
        share = (normal_below(above) - normal_below(below)) * self.weights
        return convert(td.sum(share), self.dataset.dtype)

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """The integral of the product of two such densities."""
        if other.d != self.d:
            fail(ShapeError, f"integrate_kde: samples of {self.d} and of {other.d} numbers")
        root = cholesky(convert(self.covariance, f64) + convert(other.covariance, f64))
        logs = _log_normals(root, convert(self.dataset, f64), convert(other.dataset, f64))
        weights = convert(self.weights, f64)[:, None] * convert(other.weights, f64)
        return convert(td.sum(td.exp(logs) * weights), self.dataset.dtype)

    # -- draws -------------------------------------------------------------------------------------

    def resample(self, key: Any, shape: Any = ()) -> Array:
        """Numbers [d, *shape] that have this density."""
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        first, second = split(key)
        dtype = self.dataset.dtype
        chosen = choice(first, self.n, sizes, p=self.weights)
        noise = multivariate_normal(
            second, td.zeros((self.d,), dtype=dtype), self.covariance, sizes, dtype=dtype
        )
        return td.moveaxis(noise, -1, 0) + td.take(self.dataset, chosen, axis=1)  # type: ignore[no-any-return]

    def set_bandwidth(self, bw_method: Bandwidth = None) -> None:
        """An object does not change here."""
        message = "gaussian_kde.set_bandwidth: the object does not change"
        fail(UnsupportedError, message, "make a new one with bw_method=")


def _two_axes(x: Array) -> Array:
    return td.reshape(x, (1, -1)) if x.ndim < 2 else x


def _log_normals(root: Array, centres: Array, points: Array) -> Array:
    """[n, m]: logarithms of the normal density of points [d, m] around centres [d, n]."""
    d = centres.shape[0]
    a, b = triangular_solve(root, centres), triangular_solve(root, points)
    away = a[:, :, None] - b[:, None, :]
    squares = td.sum(away * away, axis=0)
    constant = 0.5 * d * LOG_TAU + td.sum(td.log(diagonal(root)))
    return -0.5 * squares - constant  # type: ignore[no-any-return]


def _factor(density: gaussian_kde, method: Bandwidth) -> Any:
    power = -1.0 / (density.d + 4)
    if method is None or method == "scott":
        return density.neff**power
    if isinstance(method, str):
        if method != "silverman":
            expected = "'scott', 'silverman', a number or a function"
            raise SettingError("gaussian_kde: bw_method", expected, method)
        return (density.neff * (density.d + 2) / 4.0) ** power
    return method(density) if callable(method) else method


FIELDS = ("dataset", "weights", "covariance", "inv_cov", "neff")


def _parts(density: gaussian_kde) -> tuple[list[Any], None]:
    return [getattr(density, name) for name in FIELDS], None


def _from_parts(data: Any, parts: Any) -> gaussian_kde:
    made = gaussian_kde.__new__(gaussian_kde)
    for name, part in zip(FIELDS, parts, strict=True):
        setattr(made, name, part)
    return made


register(gaussian_kde, _parts, _from_parts)
