"""Trajectories of optax's optimisers and values of its schedules: writes golden.json beside this
file. Run where optax is installed: python -m tests.optim.golden

The same programs run on Tetrad in test_more_optimizers.py; `lib` is optax or td.optim.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("golden.json")
STEPS = 9


def parameters() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {"b": rng.normal(size=3),
            "w": rng.normal(size=(4, 3))}  # fmt: skip


def gradients(step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(100 + step)
    return {"b": (0.5 * rng.normal(size=3)),
            "w": rng.normal(size=(4, 3))}  # fmt: skip


def everything(_: Any) -> dict[str, bool]:
    return {"b": False, "w": True}


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda lib: lib.sgd(0.1, momentum=0.9, nesterov=True),
    "amsgrad": lambda lib: lib.amsgrad(0.1),
    "amsgrad plain": lambda lib: lib.amsgrad(0.1, bias_correction_nu=False),
    "adamax": lambda lib: lib.adamax(0.1),
    "adamaxw": lambda lib: lib.adamaxw(0.1, weight_decay=0.01, mask=everything),
    "nadam": lambda lib: lib.nadam(0.1),
    "nadamw": lambda lib: lib.nadamw(0.1, weight_decay=0.1),
    "radam": lambda lib: lib.radam(0.1),
    "radam nesterov": lambda lib: lib.radam(0.1, nesterov=True, threshold=2.0),
    "adabelief": lambda lib: lib.adabelief(0.1, eps=1e-8),
    "yogi": lambda lib: lib.yogi(0.1),
    "novograd": lambda lib: lib.novograd(0.1, weight_decay=0.01),
    "adan": lambda lib: lib.adan(0.1, weight_decay=0.01),
    "adadelta": lambda lib: lib.adadelta(1.0, weight_decay=0.01),
    "rprop": lambda lib: lib.rprop(0.1),
    "sm3": lambda lib: lib.sm3(0.1),
    "sign_sgd": lambda lib: lib.sign_sgd(0.1),
    "optimistic": lambda lib: lib.optimistic_gradient_descent(0.1),
    "lamb": lambda lib: lib.lamb(0.1, weight_decay=0.01),
    "lars": lambda lib: lib.lars(1.0, weight_decay=0.01, trust_ratio_mask=everything),
    "fromage": lambda lib: lib.fromage(0.1),
    "adafactor": lambda lib: lib.adafactor(0.1, min_dim_size_to_factor=2),
    "adafactor plain": lambda lib: lib.adafactor(
        0.1, momentum=0.9, weight_decay_rate=0.01, multiply_by_parameter_scale=False
    ),
    "noiseless": lambda lib: lib.noisy_sgd(0.1, eta=0.0, key=0),
    "ema": lambda lib: lib.chain(lib.ema(0.9), lib.scale(-0.1)),
    "apply_every": lambda lib: lib.chain(lib.apply_every(3), lib.scale(-0.1)),
    "centralize": lambda lib: lib.chain(lib.centralize(), lib.scale(-0.1)),
    "normalize": lambda lib: lib.chain(lib.normalize_by_update_norm(), lib.scale(-0.1)),
    "block rms": lambda lib: lib.chain(lib.clip_by_block_rms(0.3), lib.scale(-0.1)),
    "adaptive clip": lambda lib: lib.chain(lib.adaptive_grad_clip(0.1), lib.scale(-0.1)),
    "block norm": lambda lib: lib.chain(lib.scale_by_param_block_norm(), lib.scale(-0.01)),
    "nonnegative": lambda lib: lib.chain(lib.scale(-0.1), lib.keep_params_nonnegative()),
    "partition": lambda lib: lib.partition(
        {"a": lib.adam(0.1), "s": lib.sgd(0.5)}, {"b": "s", "w": "a"}
    ),
    "frozen": lambda lib: lib.multi_transform(
        {"a": lib.adam(0.1), "z": lib.set_to_zero()}, {"b": "z", "w": "a"}
    ),
    "injected": lambda lib: lib.inject_hyperparams(lib.adam)(
        learning_rate=lib.linear_schedule(0.1, 0.0, 6), b1=0.8
    ),
    "multi steps": lambda lib: lib.MultiSteps(lib.adam(0.1), 3).gradient_transformation(),
    "multi steps, sums": lambda lib: lib.MultiSteps(
        lib.adam(0.1), lambda step: 2, use_grad_mean=False
    ).gradient_transformation(),
    "if finite": lambda lib: lib.apply_if_finite(lib.adam(0.1), 2),
}

SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "linear_onecycle": lambda lib: lib.linear_onecycle_schedule(20, 0.5),
    "cosine_onecycle": lambda lib: lib.cosine_onecycle_schedule(20, 0.5),
    "warmup_constant": lambda lib: lib.warmup_constant_schedule(0.0, 1.0, 5),
    "warmup_exponential": lambda lib: lib.warmup_exponential_decay_schedule(
        0.0, 1.0, 4, 3, 0.5, end_value=0.1
    ),
    "sgdr": lambda lib: lib.sgdr_schedule(
        [{"init_value": 0.1, "peak_value": p, "warmup_steps": 2, "decay_steps": 8,
          "end_value": 0.05} for p in (1.0, 0.5)]
    ),
    "interpolated": lambda lib: lib.piecewise_interpolate_schedule("linear", 1.0, {4: 0.5, 9: 2.0}),
}  # fmt: skip


def trajectory(lib: Any, name: str, array: Callable[[Any], Any], jit: Any) -> list[float]:
    """Parameters after each step, all numbers in a row."""
    optimiser = OPTIMIZERS[name](lib)
    params = {key: array(x) for key, x in parameters().items()}
    state = optimiser.init(params)
    update = jit(optimiser.update)
    found: list[float] = []
    for step in range(STEPS):
        given = {key: array(x) for key, x in gradients(step).items()}
        if name == "if finite" and step in (1, 5, 6, 7):
            given["b"] = array(np.array([1, np.nan, 2.0]))
        updates, state = update(given, state, params)
        params = lib.apply_updates(params, updates)
        found += [float(x) for key in ("b", "w") for x in np.asarray(params[key]).ravel()]
    return found


def main() -> None:
    import jax
    import optax

    jax.config.update("jax_enable_x64", True)
    paths = {name: trajectory(optax, name, jax.numpy.asarray, jax.jit) for name in OPTIMIZERS}
    schedules = {
        name: [float(make(optax)(step)) for step in range(25)] for name, make in SCHEDULES.items()
    }
    rounded = {
        "paths": {n: [float(f"{x:.12g}") for x in p] for n, p in paths.items()},
        "schedules": {n: [float(f"{x:.12g}") for x in p] for n, p in schedules.items()},
    }
    FILE.write_text(json.dumps(rounded) + "\n")


if __name__ == "__main__":
    main()
