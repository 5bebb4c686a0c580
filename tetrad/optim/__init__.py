"""The public namespace `td.optim`: gradients in, updates of parameters out, with the names and
defaults of optax.

An optimiser is a pair of pure functions on trees (`base.py`): a row of steps that change gradients
(`scaling.py`, `clipping.py`), many of them ready-made (`optimizers.py`), with a rate that may
follow the steps (`schedules.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tetrad.arrays import namespaces
from tetrad.optim.base import (
    EmptyState,
    GradientTransformation,
    MaskedState,
    apply_updates,
    chain,
    identity,
    masked,
)  # fmt: skip
from tetrad.optim.clipping import clip, clip_by_global_norm, global_norm
from tetrad.optim.optimizers import adagrad, adam, adamw, lion, rmsprop, sgd
from tetrad.optim.scaling import (
    AdamState,
    LionState,
    RmsState,
    RssState,
    ScheduleState,
    StddevState,
    TraceState,
    add_decayed_weights,
    scale,
    scale_by_adam,
    scale_by_learning_rate,
    scale_by_lion,
    scale_by_rms,
    scale_by_rss,
    scale_by_schedule,
    scale_by_stddev,
    trace,
)  # fmt: skip
from tetrad.optim.schedules import (
    constant_schedule,
    cosine_decay_schedule,
    cosine_onecycle_schedule,
    exponential_decay,
    join_schedules,
    linear_onecycle_schedule,
    linear_schedule,
    piecewise_constant_schedule,
    piecewise_interpolate_schedule,
    polynomial_schedule,
    sgdr_schedule,
    warmup_constant_schedule,
    warmup_cosine_decay_schedule,
    warmup_exponential_decay_schedule,
)  # fmt: skip

if TYPE_CHECKING:
    from tetrad.optim.later import *  # noqa: F403

__all__ = [
    "GradientTransformation", "apply_updates", "chain", "identity", "masked",
    "adagrad", "adam", "adamw", "lion", "rmsprop", "sgd",
    "clip", "clip_by_global_norm", "global_norm",
    "add_decayed_weights", "scale", "scale_by_adam", "scale_by_learning_rate", "scale_by_lion",
    "scale_by_rms",
    "scale_by_rss", "scale_by_schedule", "scale_by_stddev", "trace",
    "constant_schedule", "cosine_decay_schedule", "exponential_decay", "join_schedules",
    "linear_schedule",
    "cosine_onecycle_schedule", "linear_onecycle_schedule",
    "piecewise_constant_schedule", "piecewise_interpolate_schedule", "polynomial_schedule",
    "sgdr_schedule", "warmup_constant_schedule", "warmup_cosine_decay_schedule",
    "warmup_exponential_decay_schedule",
    "AdamState", "EmptyState", "LionState", "MaskedState", "RmsState", "RssState", "ScheduleState",
    "StddevState",
    "TraceState",
]  # fmt: skip


LATER = {  # in further files, which are loaded when one of them is used
    "more_optimizers": (
        "adabelief", "adadelta", "adafactor", "adamax", "adamaxw", "adan", "amsgrad", "fromage",
        "lamb", "lars", "nadam", "nadamw", "noisy_sgd", "novograd", "optimistic_gradient_descent",
        "radam", "rprop", "sign_sgd", "sm3", "yogi",
    ),
    "moments": (
        "scale_by_adadelta", "scale_by_adamax", "scale_by_adan", "scale_by_amsgrad",
        "scale_by_belief", "scale_by_novograd", "scale_by_optimistic_gradient", "scale_by_radam",
        "scale_by_rprop", "scale_by_sm3", "scale_by_yogi",
    ),
    "norms": (
        "adaptive_grad_clip", "add_noise", "centralize", "clip_by_block_rms",
        "keep_params_nonnegative", "normalize_by_update_norm", "scale_by_factored_rms",
        "scale_by_param_block_norm", "scale_by_param_block_rms", "scale_by_sign",
        "scale_by_trust_ratio", "set_to_zero", "zero_nans",
    ),
    "wrappers": (
        "LookaheadParams", "MultiSteps", "MultiStepsState", "InjectHyperparamsState",
        "apply_every", "apply_if_finite", "ema", "incremental_update", "inject_hyperparams",
        "lookahead", "multi_transform", "partition", "periodic_update",
    ),
}  # fmt: skip
__all__ += [name for names in LATER.values() for name in names]

if not TYPE_CHECKING:  # which would take any name for one of ours
    __getattr__, __dir__ = namespaces.offers(globals(), LATER)
