"""JAX's names: `jax.nn`."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell import tables
from tetrad.jax._shell.tables import td
from tetrad.tracing.operands import as_array

TABLE = tables.within(
    "nn",
    "celu dot_product_attention elu glu hard_sigmoid hard_silu hard_swish hard_tanh identity "
    "leaky_relu log1mexp log_sigmoid logmeanexp logsumexp mish relu relu6 selu sigmoid silu "
    "soft_sign softplus sparse_plus sparse_sigmoid squareplus swish tanh",
)


def gelu(x: Any, approximate: bool = True) -> Any:
    """x times the probability of a normal number below it; by tanh unless `approximate` is off."""
    return td.nn.gelu(x, approximate=approximate)


def softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """Shares of exp(x) along axes; of those that `where` chooses."""
    if where is None:
        return td.nn.softmax(x, axis=axis)
    chosen = td.where(where, x, -td.inf)
    return td.where(where, td.nn.softmax(chosen, axis=axis), 0)


def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Any:
    """Logarithms of the shares of exp(x) along axes."""
    if where is None:
        return td.nn.log_softmax(x, axis=axis)
    return td.where(where, td.nn.log_softmax(td.where(where, x, -td.inf), axis=axis), -td.inf)


def standardize(
    x: Any, axis: Any = -1, mean: Any = None, variance: Any = None, epsilon: Any = 1e-5,
    where: Any = None,
) -> Any:  # fmt: skip
    """x with mean 0 and variance 1 along axes."""
    if mean is None and variance is None and where is None:
        return td.nn.standardize(x, axis=axis, eps=epsilon)
    chosen = {} if where is None else {"where": where}
    middle = td.mean(x, axis=axis, keepdims=True, **chosen) if mean is None else mean
    if variance is None:
        variance = td.mean(td.square(x), axis=axis, keepdims=True, **chosen) - td.square(middle)
    return (x - middle) * td.rsqrt(variance + epsilon)


def one_hot(x: Any, num_classes: int, *, dtype: Any = float, axis: int = -1, **_: Any) -> Any:
    """A new axis with 1 at the class and 0 elsewhere."""
    given = as_array(x)
    classes = given if given.dtype.is_integer else given.astype(int)
    return td.nn.one_hot(classes, num_classes, dtype=dtype, axis=axis)


__getattr__, __dir__ = tables.offers(globals(), TABLE, ["initializers"])
