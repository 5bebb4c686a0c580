"""The public namespace `td.optim`: gradients in, updates of parameters out, with the names and
defaults of optax.

An optimiser is a pair of pure functions on trees (`base.py`): a row of steps that change gradients
(`scaling.py`, `clipping.py`), many of them ready-made (`optimizers.py`), with a rate that may
follow the steps (`schedules.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tetrad.core import lazy
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
    exponential_decay,
    join_schedules,
    linear_schedule,
    piecewise_constant_schedule,
    polynomial_schedule,
    warmup_cosine_decay_schedule,
)  # fmt: skip

__all__ = [
    "GradientTransformation", "apply_updates", "chain", "identity", "masked",
    "adagrad", "adam", "adamw", "lion", "rmsprop", "sgd",
    "clip", "clip_by_global_norm", "global_norm",
    "add_decayed_weights", "scale", "scale_by_adam", "scale_by_learning_rate", "scale_by_lion",
    "scale_by_rms",
    "scale_by_rss", "scale_by_schedule", "scale_by_stddev", "trace",
    "constant_schedule", "cosine_decay_schedule", "exponential_decay", "join_schedules",
    "linear_schedule",
    "piecewise_constant_schedule", "polynomial_schedule", "warmup_cosine_decay_schedule",
    "AdamState", "EmptyState", "LionState", "MaskedState", "RmsState", "RssState", "ScheduleState",
    "StddevState",
    "TraceState",
]  # fmt: skip


if not TYPE_CHECKING:  # which would take any name for one of ours

    def __getattr__(name: str) -> Any:
        raise lazy.module("tetrad.arrays.suggestions").absent("optim", name)


def __dir__() -> list[str]:
    return __all__
