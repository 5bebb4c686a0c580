"""The public namespace `td.special`: special functions with the names and arguments of
scipy.special.

Receives arrays of real numbers, returns arrays of their float dtype. All are compositions that are
computed in f64 (`wide.py`), each with its own derivative, so every transform applies; how precise
they are stands in docs/special.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tetrad.core import lazy
from tetrad.special.bessel import i0, i0e, i1, i1e
from tetrad.special.errors import erf, erfc, erfcinv, erfcx, erfinv, log_ndtr, ndtr, ndtri
from tetrad.special.gamma import (
    bernoulli,
    beta,
    betaln,
    comb,
    digamma,
    factorial,
    gamma,
    gammaln,
    gammasgn,
    loggamma,
    multigammaln,
    poch,
    polygamma,
    psi,
    zeta,
)  # fmt: skip
from tetrad.special.harmonics import sph_harm_y
from tetrad.special.incomplete import gammainc, gammaincc
from tetrad.special.incomplete_beta import betainc
from tetrad.special.integrals import exp1, expi, expn, spence
from tetrad.special.logs import (
    boxcox,
    boxcox1p,
    entr,
    expit,
    kl_div,
    logit,
    rel_entr,
    xlog1py,
    xlogy,
)  # fmt: skip

if TYPE_CHECKING:
    from tetrad.special.later import *  # noqa: F403

OF_NN = ("log_softmax", "logsumexp", "softmax")  # the same functions

__all__ = [
    "bernoulli", "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "digamma", "entr",
    "erf", "erfc", "erfcinv", "erfcx", "erfinv", "exp1", "expi", "expit", "expn", "factorial",
    "gamma", "gammainc", "gammaincc", "gammaln", "gammasgn", "i0", "i0e", "i1", "i1e", "kl_div",
    "log_ndtr", *OF_NN, "loggamma", "logit", "multigammaln", "ndtr", "ndtri", "poch",
    "polygamma", "psi", "rel_entr", "spence", "sph_harm_y", "xlog1py", "xlogy", "zeta",
]  # fmt: skip


if not TYPE_CHECKING:  # which would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name in OF_NN:
            return getattr(lazy.provided("the public namespace").nn, name)
        raise lazy.module("tetrad.arrays.suggestions").absent("special", name)


def __dir__() -> list[str]:
    return __all__
