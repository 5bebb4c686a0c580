"""Every optimiser of optax on a small problem: the path of the parameters."""

from __future__ import annotations

from tests.jax.against_common import choose, told

choose()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402

RNG = np.random.default_rng(3)
X = jnp.asarray(RNG.normal(size=(16, 3)).astype(np.float32))
Y = jnp.asarray(RNG.normal(size=16).astype(np.float32))
START = {"w": jnp.asarray([0.3, -0.2, 0.5]), "m": jnp.ones((3, 2)) * 0.4, "b": jnp.asarray(0.1)}


def loss(p):
    hidden = jnp.tanh(X @ p["m"])
    return jnp.mean((X @ p["w"] + hidden.sum(1) + p["b"] - Y) ** 2)


def path(optimizer, steps=8):
    def trajectory():
        params, state = START, optimizer.init(START)

        @jax.jit
        def step(params, state):
            value, grad = jax.value_and_grad(loss)(params)
            updates, state = optimizer.update(grad, state, params)
            return optax.apply_updates(params, updates), state, value

        values = []
        for _ in range(steps):
            params, state, value = step(params, state)
            values.append(value)
        return params, values

    return trajectory


def with_line_search(optimizer, steps=6):
    def trajectory():
        params, state = START, optimizer.init(START)
        value_and_grad = optax.value_and_grad_from_state(loss)
        for _ in range(steps):
            value, grad = value_and_grad(params, state=state)
            updates, state = optimizer.update(
                grad, state, params, value=value, grad=grad, value_fn=loss
            )
            params = optax.apply_updates(params, updates)
        return params

    return trajectory


def sam():
    inner = optax.contrib.sam(optax.sgd(0.05), optax.sgd(0.02), sync_period=2)
    return path(inner)()


NAMES = """
    adabelief adadelta adafactor adagrad adam adamax adamaxw adamw adan amsgrad fromage lamb lars
    lion nadam nadamw noisy_sgd novograd optimistic_adam polyak_sgd radam rmsprop rprop sgd
    sign_sgd yogi
""".split()  # noqa: SIM905


def made(name):
    make = getattr(optax, name)
    settings = {"key": 0} if name == "noisy_sgd" else {}
    return make(learning_rate=0.05, **settings)


def polyak():
    optimizer = optax.polyak_sgd(max_learning_rate=0.1)
    params, state = START, optimizer.init(START)
    for _ in range(5):
        value, grad = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grad, state, params, value=value)
        params = optax.apply_updates(params, updates)
    return params


SCHEDULE = optax.warmup_cosine_decay_schedule(0.0, 0.1, 3, 8)
PARTS = {name: path(made(name)) for name in NAMES if hasattr(optax, name) and name != "polyak_sgd"}
PARTS |= {
    "polyak_sgd": polyak,
    "sgd momentum": path(optax.sgd(0.05, momentum=0.9, nesterov=True)),
    "adam schedule": path(optax.adam(SCHEDULE)),
    "clipped": path(optax.chain(optax.clip_by_global_norm(0.5), optax.adam(0.1))),
    "adaptive clip": path(optax.chain(optax.adaptive_grad_clip(0.1), optax.sgd(0.1))),
    "multi steps": path(optax.MultiSteps(optax.adam(0.1), 2)),
    "masked": path(optax.masked(optax.sgd(0.1), {"w": True, "m": False, "b": True})),
    "partition": path(
        optax.partition(
            {"a": optax.adam(0.1), "s": optax.sgd(0.1)}, {"w": "a", "m": "s", "b": "a"}
        )
    ),
    "inject": path(optax.inject_hyperparams(optax.adam)(learning_rate=SCHEDULE)),
    "lookahead": lambda: optax.lookahead(optax.sgd(0.1), 2, 0.5).init(
        optax.LookaheadParams.init_synced(START)
    ),
    "apply_if_finite": path(optax.apply_if_finite(optax.sgd(0.1), 2)),
    "lbfgs": with_line_search(optax.lbfgs()),
    "ema": path(optax.chain(optax.sgd(0.1), optax.ema(0.9))),
    "centralize": path(optax.chain(optax.centralize(), optax.sgd(0.1))),
    "sam": lambda: sam() if hasattr(optax, "contrib") else START,
    "losses": lambda: [
        optax.softmax_cross_entropy_with_integer_labels(X, jnp.arange(16) % 3),
        optax.huber_loss(Y), optax.l2_loss(Y), optax.sigmoid_binary_cross_entropy(Y, Y > 0),
        optax.ctc_loss(X[None], jnp.zeros((1, 16)), jnp.asarray([[1, 2]]), jnp.zeros((1, 2))),
    ],
    "schedules": lambda: [
        [schedule(i) for i in range(0, 12, 3)]
        for schedule in (
            SCHEDULE, optax.exponential_decay(0.1, 4, 0.5), optax.cosine_decay_schedule(0.1, 9),
            optax.piecewise_constant_schedule(0.1, {3: 0.5}), optax.polynomial_schedule(1, 0, 2, 9),
            optax.linear_onecycle_schedule(10, 0.5), optax.sgdr_schedule([
                {"init_value": 0.1, "peak_value": 1.0, "decay_steps": 8, "warmup_steps": 2,
                 "end_value": 0.0}
            ]),
        )
    ],
    "projections": lambda: [
        optax.projections.projection_simplex(Y), optax.projections.projection_l2_ball(Y, 1.0)
    ],
    "tree norms": lambda: [optax.tree.norm(START), optax.global_norm(START)],
}  # fmt: skip

if __name__ == "__main__":
    told(PARTS)
