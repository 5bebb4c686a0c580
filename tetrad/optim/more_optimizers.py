"""Optim, more optimizers: further rows of steps under their usual names. Defaults are those of
optax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tetrad.core.dtypes import f32
from tetrad.optim.base import GradientTransformation, Tree, chain, masked
from tetrad.optim.moments import (
    scale_by_adadelta,
    scale_by_adamax,
    scale_by_adan,
    scale_by_amsgrad,
    scale_by_belief,
    scale_by_novograd,
    scale_by_optimistic_gradient,
    scale_by_radam,
    scale_by_rprop,
    scale_by_sm3,
    scale_by_yogi,
)
from tetrad.optim.norms import (
    add_noise,
    clip_by_block_rms,
    scale_by_factored_rms,
    scale_by_param_block_rms,
    scale_by_sign,
    scale_by_trust_ratio,
)
from tetrad.optim.optimizers import Mask, adam, adamw
from tetrad.optim.scaling import (
    Rate,
    add_decayed_weights,
    at_rate,
    scale,
    scale_by_adam,
    trace,
)
from tetrad.optim.wrappers import ema


def nadam(
    learning_rate: Rate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
    eps_root: float = 0.0, mu_dtype: Any = None,
) -> GradientTransformation:  # fmt: skip
    """Adam with Nesterov's momentum (Dozat 2016)."""
    return adam(learning_rate, b1, b2, eps, eps_root, mu_dtype, nesterov=True)


def nadamw(
    learning_rate: Rate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
    eps_root: float = 0.0, mu_dtype: Any = None, weight_decay: float = 1e-4, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """AdamW with Nesterov's momentum."""
    settings = (b1, b2, eps, eps_root, mu_dtype, weight_decay, mask)
    return adamw(learning_rate, *settings, nesterov=True)


def amsgrad(
    learning_rate: Rate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
    eps_root: float = 0.0, mu_dtype: Any = None,
    bias_correction_mu: bool = True, bias_correction_nu: bool = True,
) -> GradientTransformation:  # fmt: skip
    """Adam whose mean of squares never falls."""
    corrections = bias_correction_mu, bias_correction_nu
    moments = scale_by_amsgrad(b1, b2, eps, eps_root, mu_dtype, *corrections)
    return chain(moments, at_rate("amsgrad", learning_rate))


def adamax(
    learning_rate: Rate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> GradientTransformation:
    """Adam with the largest size in place of the mean of squares."""
    return chain(scale_by_adamax(b1, b2, eps), at_rate("adamax", learning_rate))


def adamaxw(
    learning_rate: Rate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
    weight_decay: float = 1e-4, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """Adamax with weight decay."""
    decay = add_decayed_weights(weight_decay, mask)
    return chain(scale_by_adamax(b1, b2, eps), decay, at_rate("adamaxw", learning_rate))


def adabelief(
    learning_rate: Rate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-16,
    eps_root: float = 1e-16, *, nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Large steps where gradients are as expected."""
    moments = scale_by_belief(b1, b2, eps, eps_root, nesterov=nesterov)
    return chain(moments, at_rate("adabelief", learning_rate))


def yogi(
    learning_rate: Rate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-3
) -> GradientTransformation:
    """Adam whose mean of squares changes slowly."""
    return chain(scale_by_yogi(b1, b2, eps), at_rate("yogi", learning_rate))


def radam(
    learning_rate: Rate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
    eps_root: float = 0.0, threshold: float = 5.0, *, nesterov: bool = False,
) -> GradientTransformation:  # fmt: skip
    """Adam that warms up by itself."""
    moments = scale_by_radam(b1, b2, eps, eps_root, threshold, nesterov=nesterov)
    return chain(moments, at_rate("radam", learning_rate))


def novograd(
    learning_rate: Rate, b1: float = 0.9, b2: float = 0.25, eps: float = 1e-6,
    eps_root: float = 0.0, weight_decay: float = 0.0,
) -> GradientTransformation:  # fmt: skip
    """Gradients over the length of their layer, with momentum."""
    moments = scale_by_novograd(b1, b2, eps, eps_root, weight_decay)
    return chain(moments, at_rate("novograd", learning_rate))


def adan(
    learning_rate: Rate, b1: float = 0.98, b2: float = 0.92, b3: float = 0.99, eps: float = 1e-8,
    eps_root: float = 1e-8, weight_decay: float = 0.0, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """Adam with Nesterov's momentum by changes of gradients."""
    moments = scale_by_adan(b1, b2, b3, eps, eps_root)
    return chain(moments, add_decayed_weights(weight_decay, mask), at_rate("adan", learning_rate))


def adadelta(
    learning_rate: Rate | None = None, rho: float = 0.9, eps: float = 1e-6,
    weight_decay: float = 0.0, weight_decay_mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """Steps of the size of those before."""
    rate = 1.0 if learning_rate is None else learning_rate
    decay = add_decayed_weights(weight_decay, weight_decay_mask)
    return chain(decay, scale_by_adadelta(rho, eps), at_rate("adadelta", rate))


def rprop(
    learning_rate: float, eta_minus: float = 0.5, eta_plus: float = 1.2,
    min_step_size: float = 1e-6, max_step_size: float = 50.0,
) -> GradientTransformation:  # fmt: skip
    """Steps by the signs of gradients alone; for whole batches."""
    settings = (learning_rate, eta_minus, eta_plus, min_step_size, max_step_size)
    return chain(scale_by_rprop(*settings), scale(-1.0))


def sm3(learning_rate: float, momentum: float = 0.9) -> GradientTransformation:
    """Adagrad with little memory."""
    return chain(scale_by_sm3(momentum), scale(-learning_rate))


def sign_sgd(learning_rate: Rate) -> GradientTransformation:
    """The signs of gradients."""
    return chain(scale_by_sign(), at_rate("sign_sgd", learning_rate))


def optimistic_gradient_descent(
    learning_rate: Rate, alpha: float = 1.0, beta: float = 1.0
) -> GradientTransformation:
    """Descent that looks where gradients are going; for games."""
    steps = scale_by_optimistic_gradient(alpha, beta)
    return chain(steps, at_rate("optimistic_gradient_descent", learning_rate))


def noisy_sgd(
    learning_rate: Rate, eta: float = 0.01, gamma: float = 0.55, key: Any = 0
) -> GradientTransformation:
    """Gradient descent with noise that fades."""
    return chain(add_noise(eta, gamma, key), at_rate("noisy_sgd", learning_rate))


def lamb(
    learning_rate: Rate, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-6,
    eps_root: float = 0.0, weight_decay: float = 0.0, mask: Mask = None,
) -> GradientTransformation:  # fmt: skip
    """Adam with steps as long as the parameters of each layer (You and others 2020)."""
    return chain(
        scale_by_adam(b1, b2, eps, eps_root),
        add_decayed_weights(weight_decay, mask),
        scale_by_trust_ratio(),
        at_rate("lamb", learning_rate),
    )


def lars(
    learning_rate: Rate,
    weight_decay: float = 0.0,
    weight_decay_mask: Tree | Callable[[Tree], Tree] = True,
    trust_coefficient: float = 0.001,
    eps: float = 0.0,
    trust_ratio_mask: Tree | Callable[[Tree], Tree] = True,
    momentum: float = 0.9,
    nesterov: bool = False,
) -> GradientTransformation:
    """Momentum with steps as long as the parameters of each layer (You and others 2017)."""
    ratio = scale_by_trust_ratio(trust_coefficient=trust_coefficient, eps=eps)
    return chain(
        add_decayed_weights(weight_decay, weight_decay_mask),
        masked(ratio, trust_ratio_mask),
        at_rate("lars", learning_rate),
        trace(momentum, nesterov),
    )


def fromage(learning_rate: float, min_norm: float = 1e-6) -> GradientTransformation:
    """Steps of a share of each layer's length (Bernstein and others 2020)."""
    share = 1 / (1 + learning_rate**2) ** 0.5
    return chain(
        scale_by_trust_ratio(min_norm),
        at_rate("fromage", learning_rate * share),
        add_shrinking(share - 1),
    )


def add_shrinking(amount: float) -> GradientTransformation:
    """Updates plus a multiple of the parameters, which may be negative."""
    return chain(scale(-1.0), add_decayed_weights(-amount), scale(-1.0))


def adafactor(
    learning_rate: Rate | None = None,
    min_dim_size_to_factor: int = 128,
    decay_rate: float = 0.8,
    decay_offset: int = 0,
    multiply_by_parameter_scale: bool = True,
    clipping_threshold: float | None = 1.0,
    momentum: float | None = None,
    dtype_momentum: Any = f32,
    weight_decay_rate: float | None = None,
    eps: float = 1e-30,
    factored: bool = True,
    weight_decay_mask: Mask = None,
) -> GradientTransformation:
    """Adam with moments of rows and columns (Shazeer and Stern 2018)."""
    settings = (factored, decay_rate, decay_offset, min_dim_size_to_factor, eps)
    steps = [scale_by_factored_rms(*settings)]
    if clipping_threshold is not None:
        steps.append(clip_by_block_rms(clipping_threshold))
    if learning_rate is not None:
        steps.append(at_rate("adafactor", learning_rate, 1))
    if multiply_by_parameter_scale:
        steps.append(scale_by_param_block_rms())
    if momentum is not None:
        steps.append(ema(momentum, debias=False, accumulator_dtype=dtype_momentum))
    if weight_decay_rate is not None:
        steps.append(add_decayed_weights(weight_decay_rate, weight_decay_mask))
    return chain(*steps, scale(-1.0))
