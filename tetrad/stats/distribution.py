"""Stats, distributions: what one is, and how functions of a standard number become those of x, loc
and scale.

Receives functions of f64 arrays in standard form, gives objects whose attributes are what users
call. Support, parameters out of range and NaN are seen to here, so the functions themselves hold
inside only; where x is outside, they see a number from inside, so that no derivative is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from tetrad.arrays import functions as td
from tetrad.special.wide import INF, NAN, is_whole, wide
from tetrad.tracing.array import Array

Function = Callable[..., Array]
Bounds = Callable[..., tuple[Any, Any]]


class Distribution:
    """A distribution: its functions are attributes.

    >>> import tetrad as td
    >>> td.stats.norm.logpdf(td.asarray([0.0, 1.0]))
    Array([-0.9189385, -1.4189385], float32)
    >>> td.stats.norm
    <distribution norm(loc=0, scale=1): cdf isf logcdf logpdf logsf pdf ppf sf>
    """

    def __init__(self, name: str, settings: str, functions: Mapping[str, Function]) -> None:
        self._name, self._settings = name, settings
        self._functions = dict(sorted(functions.items()))

    if TYPE_CHECKING:  # every name that a distribution may have; __getattr__ would take any
        logpdf: Function
        pdf: Function
        logpmf: Function
        pmf: Function
        cdf: Function
        logcdf: Function
        sf: Function
        logsf: Function
        ppf: Function
        isf: Function
        entropy: Function

    else:

        def __getattr__(self, name: str) -> Function:
            functions = self.__dict__.get("_functions", {})
            if name not in functions:
                known = ", ".join(functions)
                raise AttributeError(f"td.stats.{self._name} has no {name!r}; it has {known}")
            return functions[name]

    def __dir__(self) -> list[str]:
        return list(self._functions)

    def __repr__(self) -> str:
        names = " ".join(self._functions)
        return f"<distribution {self._name}({self._settings}): {names}>"


def called(
    name: str, method: str, first: str, settings: Sequence[str], function: Function
) -> Function:
    """A function of x and settings, given by place or by name; loc is 0 and scale 1 if not
    given."""
    defaults = {"loc": 0, "scale": 1}
    kind = Parameter.POSITIONAL_OR_KEYWORD
    signature = Signature(
        [Parameter(first, kind)]
        + [Parameter(s, kind, default=defaults.get(s, Parameter.empty)) for s in settings]
    )

    def call(*args: Any, **named: Any) -> Array:
        try:
            bound = signature.bind(*args, **named)
        except TypeError as error:
            raise TypeError(f"{name}.{method}{signature}: {error}") from None
        bound.apply_defaults()
        return wide(f"{name}.{method}", function, *bound.arguments.values())

    call.__name__, call.__qualname__ = method, f"{name}.{method}"
    call.__doc__ = f"{DESCRIBED[method]} of the distribution `{name}`."
    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


DESCRIBED = {
    "logpdf": "The logarithm of the density",
    "pdf": "The density",
    "logpmf": "The logarithm of the probability",
    "pmf": "The probability",
    "cdf": "The probability of at most x",
    "logcdf": "The logarithm of the probability of at most x",
    "sf": "The probability of more than x",
    "logsf": "The logarithm of the probability of more than x",
    "ppf": "The number that is exceeded with probability 1 - q",
    "isf": "The number that is exceeded with probability q",
    "entropy": "The entropy",
}


def middle(low: Any, high: Any) -> Any:
    """A number inside."""
    if isinstance(low, float) and isinstance(high, float):
        if math.isinf(low):
            return 0.0 if math.isinf(high) else high - 1.0
        return low + 1.0 if math.isinf(high) else 0.5 * (low + high)
    least, most = td.clip(low, -1e6, 1e6), td.clip(high, -1e6, 1e6)
    return 0.5 * (least + most)


def real_line(*_: Array) -> tuple[float, float]:
    return -INF, INF


def always(*_: Array) -> bool:
    return True


# -- of real numbers -------------------------------------------------------------------------------


def continuous(
    name: str,
    shapes: Sequence[str] = (),
    *,
    logpdf: Function,
    support: Bounds = real_line,
    valid: Callable[..., Any] = always,
    **others: Function,
) -> Distribution:
    """A distribution of real numbers from functions of (z, *shapes), z = (x - loc) / scale.

    others   cdf, sf, logcdf, logsf (functions of z), ppf, isf (of a probability)
    """
    found = {"logpdf": _density(logpdf, support, valid)}
    found["pdf"] = lambda *args: td.exp(found["logpdf"](*args))
    for method, function in others.items():
        make = _quantile if method in ("ppf", "isf") else _probability
        found[method] = make(method, function, support, valid)
    settings = (*shapes, "loc", "scale")
    functions = {
        method: called(name, method, "q" if method in ("ppf", "isf") else "x", settings, function)
        for method, function in found.items()
    }
    return Distribution(name, ", ".join((*shapes, "loc=0", "scale=1")), functions)


def _is_good(valid: Callable[..., Any], shapes: Sequence[Array], loc: Array, scale: Array) -> Array:
    return (scale > 0.0) & valid(*shapes) & ~td.isnan(loc)  # type: ignore[no-any-return]


def _density(logpdf: Function, support: Bounds, valid: Callable[..., Any]) -> Function:
    def density(x: Array, *settings: Array) -> Array:
        *shapes, loc, scale = settings
        z, (low, high) = (x - loc) / scale, support(*shapes)
        is_out = (z < low) | (z > high) | td.isinf(z)
        inside = td.where(is_out, middle(low, high), z)
        value = td.where(is_out, -INF, logpdf(inside, *shapes) - td.log(scale))
        return td.where(_is_good(valid, shapes, loc, scale) & ~td.isnan(x), value, NAN)  # type: ignore[no-any-return]

    return density


ENDS = {"cdf": (0.0, 1.0), "sf": (1.0, 0.0), "logcdf": (-INF, 0.0), "logsf": (0.0, -INF)}


def _probability(
    method: str, function: Function, support: Bounds, valid: Callable[..., Any]
) -> Function:
    below, above = ENDS[method]

    def probability(x: Array, *settings: Array) -> Array:
        *shapes, loc, scale = settings
        z, (low, high) = (x - loc) / scale, support(*shapes)
        is_low, is_high = z <= low, z >= high
        inside = td.where(is_low | is_high, middle(low, high), z)
        value = td.where(is_low, below, td.where(is_high, above, function(inside, *shapes)))
        return td.where(_is_good(valid, shapes, loc, scale) & ~td.isnan(x), value, NAN)  # type: ignore[no-any-return]

    return probability


def _quantile(
    method: str, function: Function, support: Bounds, valid: Callable[..., Any]
) -> Function:
    def quantile(q: Array, *settings: Array) -> Array:
        *shapes, loc, scale = settings
        low, high = support(*shapes)
        first, last = (low, high) if method == "ppf" else (high, low)
        is_inside = (q > 0.0) & (q < 1.0)
        z = function(td.where(is_inside, q, 0.5), *shapes)
        z = td.where(is_inside, z, td.where(q == 0.0, first, last))
        is_good = (q >= 0.0) & (q <= 1.0) & _is_good(valid, shapes, loc, scale)
        return td.where(is_good, loc + scale * z, NAN)  # type: ignore[no-any-return]

    return quantile


# -- of whole numbers ------------------------------------------------------------------------------


def discrete(
    name: str,
    shapes: Sequence[str],
    *,
    logpmf: Function,
    support: Bounds,
    valid: Callable[..., Any],
    cdf: Function | None = None,
    ppf: Function | None = None,
) -> Distribution:
    """A distribution of whole numbers from functions of (k, *shapes), k = x - loc."""
    found = {"logpmf": _mass(logpmf, support, valid)}
    found["pmf"] = lambda *args: td.exp(found["logpmf"](*args))
    if cdf is not None:
        found["cdf"] = _steps(cdf, support, valid)
    settings = (*shapes, "loc")
    functions = {
        method: called(name, method, "k", settings, function) for method, function in found.items()
    }
    if ppf is not None:
        functions["ppf"] = called(name, "ppf", "q", settings, _least(ppf, valid))
    return Distribution(name, ", ".join((*shapes, "loc=0")), functions)


def _mass(logpmf: Function, support: Bounds, valid: Callable[..., Any]) -> Function:
    def mass(x: Array, *settings: Array) -> Array:
        *shapes, loc = settings
        k, (low, high) = x - loc, support(*shapes)
        is_out = (k < low) | (k > high) | td.isinf(k) | (~is_whole(k) & ~td.isnan(k))
        value = td.where(is_out, -INF, logpmf(td.where(is_out, low, k), *shapes))
        is_good = valid(*shapes) & ~td.isnan(loc) & ~td.isnan(x)
        return td.where(is_good, value, NAN)  # type: ignore[no-any-return]

    return mass


def _steps(cdf: Function, support: Bounds, valid: Callable[..., Any]) -> Function:
    def steps(x: Array, *settings: Array) -> Array:
        *shapes, loc = settings
        k, (low, high) = td.floor(x - loc), support(*shapes)
        is_low, is_high = k < low, k >= high
        value = cdf(td.where(is_low | is_high, low, k), *shapes)
        value = td.where(is_low, 0.0, td.where(is_high, 1.0, value))
        is_good = valid(*shapes) & ~td.isnan(loc) & ~td.isnan(x)
        return td.where(is_good, value, NAN)  # type: ignore[no-any-return]

    return steps


def _least(ppf: Function, valid: Callable[..., Any]) -> Function:
    def least(q: Array, *settings: Array) -> Array:
        *shapes, loc = settings
        is_good = (q >= 0.0) & (q <= 1.0) & valid(*shapes)
        return td.where(is_good, ppf(q, *shapes) + loc, NAN)  # type: ignore[no-any-return]

    return least
