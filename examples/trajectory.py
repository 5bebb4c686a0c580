"""Where did it fly? The scales of a Kalman filter are learned from noisy positions alone, through
its likelihood.

The filter is a scan of small systems of equations; `grad`, `hessian` and `vmap` give Newton's
method over all tracks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tetrad as td

MOVE = np.array([[1.0, 0.1], [0.0, 1.0]])  # position and speed, a tenth of a second later
SEEN = np.array([[1.0, 0.0]])  # the position alone
PUSH = np.array([[2.5e-5, 5e-4], [5e-4, 1e-2]])  # what a random acceleration does in that time


def filtered(log_scales: td.Array, seen: td.Array) -> tuple[td.Array, td.Array]:
    """The logarithm of the likelihood of a track, and the state after each observation."""
    push, noise = td.exp(log_scales[0]) * PUSH, td.exp(log_scales[1]) * td.eye(1, dtype=td.float64)

    def step(state: Any, y: td.Array) -> tuple[Any, tuple[td.Array, td.Array]]:
        mean, cov = MOVE @ state[0], MOVE @ state[1] @ MOVE.T + push
        spread = SEEN @ cov @ SEEN.T + noise
        gain = td.linalg.solve(spread, SEEN @ cov).T
        surprise = y - SEEN @ mean
        likelihood = (
            surprise @ td.linalg.solve(spread, surprise) + td.linalg.slogdet(2 * td.pi * spread)[1]
        )
        mean = mean + gain @ surprise
        return (mean, cov - gain @ SEEN @ cov), (-likelihood / 2, mean)

    start = td.zeros(2, dtype=td.float64), 10 * td.eye(2, dtype=td.float64)
    _, (likelihoods, states) = td.scan(step, start, seen[:, None])
    return td.sum(likelihoods), states


def loss(log_scales: td.Array, tracks: td.Array) -> td.Array:
    return -td.mean(td.vmap(lambda seen: filtered(log_scales, seen)[0])(tracks))


def main() -> None:
    rng = np.random.default_rng(0)
    state = np.zeros((8, 2))
    flown = np.stack(
        [
            (state := state @ MOVE.T + rng.multivariate_normal([0, 0], 4 * PUSH, 8))
            for _ in range(200)
        ],
        1,
    )
    tracks = td.asarray(flown[..., 0] + 0.5 * rng.standard_normal((8, 200)))

    newton = td.jit(
        lambda s: s - td.linalg.solve(td.hessian(loss)(s, tracks), td.grad(loss)(s, tracks))
    )
    log_scales = td.asarray(np.log([2.0, 0.2]))
    for _ in range(8):
        log_scales = newton(log_scales)
    push, noise = np.exp(np.asarray(log_scales))
    print(f"acceleration {push:.2f} (4 was used), noise of positions {noise:.3f} (0.25)")
    _, states = td.jit(td.vmap(filtered, in_axes=(None, 0)))(log_scales, tracks)
    raw, better = (np.abs(np.asarray(x) - flown[..., 0]).mean() for x in (tracks, states[..., 0]))
    print(f"error of positions {raw:.3f} as seen, {better:.3f} filtered")
    assert abs(noise / 0.25 - 1) < 0.15 and abs(push / 4 - 1) < 0.5 and better < 0.6 * raw


if __name__ == "__main__":
    main()
