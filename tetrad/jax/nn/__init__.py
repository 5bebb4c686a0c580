"""JAX's names: `jax.nn`."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell import tables
from tetrad.jax._shell.tables import td
from tetrad.tracing.operands import as_array

TABLE = tables.within(
    "nn",
    "celu dot_product_attention elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity "
    "leaky_relu log1mexp log_sigmoid log_softmax logmeanexp logsumexp mish relu relu6 selu sigmoid "
    "silu soft_sign softmax softplus sparse_plus sparse_sigmoid squareplus swish tanh",
)


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
