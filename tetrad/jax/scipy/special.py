"""JAX's names: `jax.scipy.special`."""

from __future__ import annotations

from tetrad.jax._shell import tables

TABLE = tables.within(
    "special",
    "bernoulli beta betainc betaln boxcox boxcox1p comb digamma entr erf erfc erfcx erfinv exp1 "
    "expi expit expn factorial gamma gammainc gammaincc gammaln gammasgn i0 i0e i1 i1e kl_div "
    "log_ndtr log_softmax loggamma logit logsumexp multigammaln ndtr ndtri poch polygamma psi "
    "rel_entr softmax spence sph_harm_y xlog1py xlogy zeta",
)
__getattr__, __dir__ = tables.offers(globals(), TABLE)
