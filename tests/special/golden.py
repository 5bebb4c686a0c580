"""Exact values of special functions, found with mpmath at 40 digits: writes golden.csv beside this
file. Run where mpmath is installed: python -m tests.special.golden

Arguments are f32 numbers, so that they mean the same to f32 and f64.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("golden.csv")
POINTS = 32

Draw = Callable[[np.random.Generator], float]


def between(low: float, high: float) -> Draw:
    return lambda rng: float(np.float32(rng.uniform(low, high)))


def sized(low: float, high: float, sign: float = 1.0) -> Draw:
    """Numbers of any magnitude, as powers of ten."""
    return lambda rng: float(np.float32(sign * 10 ** rng.uniform(low, high)))


def about(middle: float) -> Draw:
    return lambda rng: float(np.float32(middle + rng.choice([-1, 1]) * 10 ** rng.uniform(-7, -1)))


def whole(low: int, high: int) -> Draw:
    return lambda rng: float(rng.integers(low, high))


def either(*draws: Draw) -> Draw:
    return lambda rng: draws[rng.integers(len(draws))](rng)


positive = either(between(0.01, 3), between(3, 30), sized(-30, 30), about(1), about(2))
anywhere = either(positive, between(-8, 0))
chance = either(between(0.001, 0.999), sized(-30, -1), about(0.5))
shape = sized(-3, 3)
DRAWS: dict[str, tuple[Draw, ...]] = {
    "gammaln": (positive,),
    "gamma": (either(between(0.01, 30), between(-10, 0), sized(-30, -1)),),
    "digamma": (positive,),
    "polygamma": (whole(1, 8), sized(-2, 3)),
    "betaln": (shape, shape),
    "beta": (between(0.1, 20), between(0.1, 20)),
    "poch": (between(0.1, 20), between(0.1, 10)),
    "erf": (either(between(-4, 4), sized(-30, -1)),),
    "erfc": (between(-5, 9),),
    "erfcx": (either(between(-5, 30), sized(0, 30)),),
    "ndtr": (between(-12, 6),),
    "log_ndtr": (either(between(-30, 6), sized(0, 4, -1.0)),),
    "ndtri": (chance,),
    "erfinv": (either(between(-0.999, 0.999), sized(-30, -1)),),
    "erfcinv": (either(chance, between(1, 1.99)),),
    "logit": (chance,),
    "expit": (between(-80, 30),),
    "xlogy": (sized(-3, 3), positive),
    "xlog1py": (sized(-3, 3), either(sized(-20, 20), between(-0.9, 1))),
    "entr": (positive,),
    "rel_entr": (between(0.1, 5), between(0.1, 5)),
    "i0": (between(-30, 30),),
    "i0e": (either(between(-30, 30), sized(-20, 20)),),
    "i1": (either(between(-30, 30), sized(-20, 0)),),
    "i1e": (either(between(-30, 30), sized(-20, 20)),),
}


def formulas() -> dict[str, Callable[..., Any]]:
    import mpmath as mp

    mp.mp.dps = 40

    def quantile(p: Any) -> Any:
        return mp.findroot(lambda z: mp.log(mp.ncdf(z)) - mp.log(p), _start(float(p)))

    return {
        "gammaln": mp.loggamma,
        "gamma": mp.gamma,
        "digamma": mp.digamma,
        "polygamma": lambda n, x: mp.polygamma(int(n), x),
        "betaln": lambda a, b: mp.loggamma(a) + mp.loggamma(b) - mp.loggamma(a + b),
        "beta": mp.beta,
        "poch": mp.rf,
        "erf": mp.erf,
        "erfc": mp.erfc,
        "erfcx": lambda x: (
            mp.quad(
                lambda t: mp.exp(-t * t / 4 / max(x, 1) ** 2 - x * t / max(x, 1)),
                [0, 5, 20, 100, 400],
            )
            / mp.sqrt(mp.pi)
            / max(x, 1)
        ),
        "ndtr": mp.ncdf,
        "log_ndtr": lambda x: mp.log(mp.ncdf(x)) if x < 2 else mp.log1p(-mp.ncdf(-x)),
        "ndtri": quantile,
        "erfinv": lambda y: mp.erfinv(y) if abs(y) > 1e-9 else y * mp.sqrt(mp.pi) / 2,
        "erfcinv": lambda y: -quantile(y / 2) / mp.sqrt(2),
        "logit": lambda p: mp.log(p / (1 - p)),
        "expit": lambda x: 1 / (1 + mp.exp(-x)),
        "xlogy": lambda x, y: x * mp.log(y),
        "xlog1py": lambda x, y: x * mp.log1p(y),
        "entr": lambda x: -x * mp.log(x),
        "rel_entr": lambda p, q: p * mp.log(p / q),
        "i0": lambda x: mp.besseli(0, x),
        "i0e": lambda x: mp.besseli(0, x) * mp.exp(-abs(x)),
        "i1": lambda x: mp.besseli(1, x),
        "i1e": lambda x: mp.besseli(1, x) * mp.exp(-abs(x)),
    }


def _start(p: float) -> float:
    from scipy import special

    return float(special.ndtri(p))


def rows() -> Iterator[list[str]]:
    import mpmath as mp

    for name, function in formulas().items():
        rng = np.random.default_rng(len(name))
        for _ in range(POINTS):
            args = [draw(rng) for draw in DRAWS[name]]
            value = float(mp.re(function(*(mp.mpf(x) for x in args))))
            yield [name, *(repr(x) for x in args), repr(value)]


def main() -> None:
    with FILE.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows())


if __name__ == "__main__":
    main()
