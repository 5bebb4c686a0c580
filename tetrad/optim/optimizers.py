"""Optim, optimizers: the usual rows of steps under their usual names. Defaults are those of optax.

`learning_rate` is a number, an array (also one that is being traced), or a schedule: a function of
the step count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tetrad.optim.base import GradientTransformation, Tree, chain
from tetrad.optim.scaling import (
    Rate,
    add_decayed_weights,
    at_rate,
    scale_by_adam,
    scale_by_lion,
    scale_by_rms,
    scale_by_rss,
    scale_by_stddev,
    trace,
)  # fmt: skip

Mask = Tree | Callable[[Tree], Tree] | None


def sgd(
    learning_rate: Rate,
    momentum: float | None = None,
    nesterov: bool = False,
    accumulator_dtype: Any = None,
) -> GradientTransformation:
    """Gradient descent, with momentum if asked.

    >>> import tetrad as td
    >>> optimiser = sgd(0.5)
    >>> optimiser.update(td.asarray([2.0]), optimiser.init(td.asarray([1.0])))[0]
    Array([-1.], float32)
    """
    descent = at_rate("sgd", learning_rate)
    return (
        chain(descent)
        if momentum is None
        else chain(trace(momentum, nesterov, accumulator_dtype), descent)
    )


def adam(
    learning_rate: Rate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Adam (Kingma and Ba 2015): the first step has the size of the learning rate.

    >>> import tetrad as td
    >>> optimiser = adam(0.5)
    >>> optimiser.update(td.asarray([20.0]), optimiser.init(td.asarray([1.0])))[0]
    Array([-0.5], float32)
    """
    moments = scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return chain(moments, at_rate("adam", learning_rate))


def adamw(
    learning_rate: Rate,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    weight_decay: float | Any = 1e-4,
    mask: Mask = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Adam, and weights that decay apart from it (Loshchilov and Hutter 2019); `mask` chooses
    which, as in `masked`."""
    moments = scale_by_adam(b1, b2, eps, eps_root, mu_dtype, nesterov=nesterov)
    return chain(moments, add_decayed_weights(weight_decay, mask), at_rate("adamw", learning_rate))


def lion(
    learning_rate: Rate,
    b1: float = 0.9,
    b2: float = 0.99,
    mu_dtype: Any = None,
    weight_decay: float | Any = 1e-3,
    mask: Mask = None,
) -> GradientTransformation:
    """Lion (Chen and others 2023): only the sign of the gradient counts."""
    signs = scale_by_lion(b1, b2, mu_dtype)
    return chain(signs, add_decayed_weights(weight_decay, mask), at_rate("lion", learning_rate))


def rmsprop(
    learning_rate: Rate,
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    eps_in_sqrt: bool = True,
    centered: bool = False,
    momentum: float | None = None,
    nesterov: bool = False,
    bias_correction: bool = False,
) -> GradientTransformation:
    """Gradients over their running root mean square, or, if centred, standard deviation; momentum
    comes last."""
    by = scale_by_stddev if centered else scale_by_rms
    steps = [
        by(decay, eps, initial_scale, eps_in_sqrt, bias_correction),
        at_rate("rmsprop", learning_rate),
    ]
    return chain(*steps) if momentum is None else chain(*steps, trace(momentum, nesterov))


def adagrad(
    learning_rate: Rate, initial_accumulator_value: float = 0.1, eps: float = 1e-7
) -> GradientTransformation:
    """Adagrad (Duchi and others 2011): gradients over the root of the sum of all their squares."""
    return chain(scale_by_rss(initial_accumulator_value, eps), at_rate("adagrad", learning_rate))
