"""blackjax's samplers on a Gaussian: the path of a chain, with the keys of threefry."""

from __future__ import annotations

from tests.jax.against_common import choose, told

choose()

import blackjax  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

START = jnp.asarray([1.0, -0.5, 0.3])
SCALES = jnp.asarray([1.0, 2.0, 0.5])


def logdensity(x):
    return -0.5 * jnp.sum((x / SCALES) ** 2)


def chain(sampler, steps=5):
    def path():
        state = sampler.init(START)

        def step(state, key):
            state, _ = sampler.step(key, state)
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(jax.random.key(7), steps))[1]

    return path


PARTS = {
    "hmc": chain(blackjax.hmc(logdensity, 0.1, jnp.ones(3), 5)),
    "nuts": chain(blackjax.nuts(logdensity, 0.2, jnp.ones(3)), 4),
    "mala": chain(blackjax.mala(logdensity, 0.05)),
    "random walk": chain(
        blackjax.additive_step_random_walk(
            logdensity, blackjax.mcmc.random_walk.normal(jnp.ones(3) * 0.3)
        )
    ),
}

if __name__ == "__main__":
    told(PARTS)
