"""The constants of a predator-prey model from noisy observations: gradients through 2,000 steps of
an integrator.

The scan keeps 45 states for the way back and computes the others again: the same gradient, to the
bit, in less memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tetrad as td

STEPS, DT = 2000, 0.01
TRUE = np.array([1.1, 0.4, 0.1, 0.4])  # growth, predation, breeding, death
START = np.array([5.0, 2.0])  # prey, predators


def slope(state: td.Array, k: td.Array) -> td.Array:
    """Lotka and Volterra: prey grow and are eaten, predators breed by eating and die."""
    prey, predators = state[0], state[1]
    meals = prey * predators
    return td.stack([k[0] * prey - k[1] * meals, k[2] * meals - k[3] * predators])


def path(k: td.Array, checkpoint: Any = None) -> td.Array:
    """States after each step of Runge and Kutta's method of fourth order."""

    def step(y: td.Array, _: None) -> tuple[td.Array, td.Array]:
        a = slope(y, k)
        b = slope(y + DT / 2 * a, k)
        c = slope(y + DT / 2 * b, k)
        d = slope(y + DT * c, k)
        y = y + DT / 6 * (a + 2 * b + 2 * c + d)
        return y, y

    return td.scan(step, td.asarray(START), length=STEPS, checkpoint=checkpoint)[1]


def loss(log_k: td.Array, seen: td.Array, checkpoint: Any = ("every", 45)) -> td.Array:
    """Constants are positive, so their logarithms are fitted; counts vary by orders of magnitude:
    so do errors."""
    return td.mean(td.square(td.log(path(td.exp(log_k), checkpoint)) - td.log(seen)))


optimiser = td.optim.adam(td.optim.cosine_decay_schedule(0.05, 200))


@td.jit(donate_argnums=(0, 1))
def train(log_k: td.Array, state: Any, seen: td.Array) -> tuple[td.Array, Any, td.Array]:
    value, gradient = td.value_and_grad(loss)(log_k, seen)
    updates, state = optimiser.update(gradient, state, log_k)
    return td.optim.apply_updates(log_k, updates), state, value


def main() -> None:
    rng = np.random.default_rng(0)
    exact = np.asarray(td.jit(path)(td.asarray(TRUE)))
    seen = exact * np.exp(0.05 * rng.standard_normal(exact.shape))
    log_k = td.asarray(np.log(TRUE * [0.8, 1.2, 1.2, 0.8]))

    plain, checkpointed = (
        td.jit(td.grad(lambda k, c=c: loss(k, seen, c)))(log_k) for c in (None, ("every", 45))
    )
    assert np.asarray(plain).tobytes() == np.asarray(checkpointed).tobytes()  # the same bits

    state = optimiser.init(log_k)
    for i in range(200):
        log_k, state, value = train(log_k, state, seen)
        if i % 50 == 49:
            print(
                f"step {i + 1:3}: loss {float(value):.5f}, constants "
                f"{np.exp(np.asarray(log_k)).round(3)}"
            )
    error = np.abs(np.exp(np.asarray(log_k)) / TRUE - 1).max()
    assert error < 0.01, error
    print(f"largest error of a constant: {error:.2%}")


if __name__ == "__main__":
    main()
