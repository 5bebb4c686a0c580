"""Special functions, quadrature: integrals of exp(E(y)) from 0 on, where E falls without a bend
upwards.

Receives how far to go and E, returns sums over 32 nodes of Gauss and Legendre along a new last
axis. Where an incomplete gamma or beta function is scaled by its integrand at the bound, such an
integral is all that remains, and its derivatives have the same form.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tetrad.arrays import functions as td
from tetrad.special.wide import powers
from tetrad.tracing.array import Array
from tetrad.transforms.custom import stop_gradient

DEPTH = 38.0  # exp(-38) is below the rounding of f64
NODES = (
    (0.9972638618494816, 0.007018610009470096),
    (0.9856115115452684, 0.01627439473090567),
    (0.9647622555875064, 0.02539206530926206),
    (0.9349060759377397, 0.03427386291302143),
    (0.8963211557660521, 0.04283589802222668),
    (0.84936761373257, 0.050998059262376175),
    (0.7944837959679424, 0.058684093478535544),
    (0.7321821187402897, 0.06582222277636185),
    (0.6630442669302152, 0.0723457941088485),
    (0.5877157572407623, 0.07819389578707031),
    (0.5068999089322294, 0.08331192422694675),
    (0.42135127613063533, 0.08765209300440381),
    (0.33186860228212767, 0.09117387869576389),
    (0.23928736225213706, 0.09384439908080457),
    (0.1444719615827965, 0.09563872007927486),
    (0.04830766568773832, 0.0965400885147278),
)
PLACES = np.array([0.5 - 0.5 * x for x, _ in NODES] + [0.5 + 0.5 * x for x, _ in NODES])
WEIGHTS = np.array([0.5 * w for _, w in NODES] * 2)

Exponent = Callable[[Array], Array]
Factor = Callable[[Array], Array]


def integrals(reach: Array, exponent: Exponent, *factors: Factor) -> list[Array]:
    """The integrals of exp(exponent(y)), and of it times each factor, over y from 0 to `reach`.

    Functions see y with a new last axis. The reach is where nothing is left to add, so it has no
    derivative.
    """
    far = stop_gradient(reach)[..., None]
    y = far * td.asarray(PLACES)
    shares = td.exp(exponent(y)) * td.asarray(WEIGHTS) * far
    return [td.sum(shares, axis=-1), *(td.sum(shares * f(y), axis=-1) for f in factors)]


def expm1_less(y: Array) -> Array:
    """exp(y) - 1 - y, without their difference where y is small."""
    is_near = td.abs(y) < 0.5
    t = td.where(is_near, y, 0.0)
    near = t * t * powers(EXPM1_REST, t)
    return td.where(is_near, near, td.expm1(y) - y)  # type: ignore[no-any-return]


def _inverse_factorials(first: int, count: int) -> list[float]:
    found, value = [], 1.0
    for n in range(1, first + count):
        value /= n
        if n >= first:
            found.append(value)
    return found


EXPM1_REST = _inverse_factorials(2, 13)
