"""A variational autoencoder of handwritten digits: it learns eight numbers that describe a digit,
and draws new digits from random ones.

The noise comes from a key that is an argument of the step, so a run is repeated exactly. The digits
are those of scikit-learn: pip install scikit-learn
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import tetrad as td

PIXELS, HIDDEN, CODE = 64, 128, 8
BATCH, EPOCHS = 128, 60
SHADES = " .:-=+*#%@"
Tree = dict[str, Any]


def make_params(key: td.Array) -> Tree:
    init = td.nn.initializers.he_normal()

    def layer(key: td.Array, rows: int, columns: int) -> Tree:
        return {"w": init(key, (rows, columns)), "b": td.zeros(columns)}

    keys = td.random.split(key, 4)
    return {
        "read": layer(keys[0], PIXELS, HIDDEN), "code": layer(keys[1], HIDDEN, 2 * CODE),
        "write": layer(keys[2], CODE, HIDDEN), "pixels": layer(keys[3], HIDDEN, PIXELS),
    }  # fmt: skip


def dense(layer: Tree, x: td.Array) -> td.Array:
    return x @ layer["w"] + layer["b"]


def encode(params: Tree, x: td.Array) -> tuple[td.Array, td.Array]:
    """Mean and logarithm of the variance of the code of each digit."""
    found = dense(params["code"], td.nn.gelu(dense(params["read"], x)))
    return found[:, :CODE], found[:, CODE:]


def decode(params: Tree, code: td.Array) -> td.Array:
    """The logits of the pixels."""
    return dense(params["pixels"], td.nn.gelu(dense(params["write"], code)))


def loss(params: Tree, x: td.Array, key: td.Array) -> td.Array:
    """What it takes to describe a digit: its code, as far as that differs from a normal number, and
    the pixels, given the code."""
    mean, log_variance = encode(params, x)
    code = mean + td.exp(0.5 * log_variance) * td.random.normal(key, mean.shape)
    pixels = td.nn.binary_cross_entropy_with_logits(decode(params, code), x, reduction="none")
    apart = 0.5 * (td.exp(log_variance) + td.square(mean) - 1 - log_variance)
    return td.mean(td.sum(pixels, axis=-1) + td.sum(apart, axis=-1))


optimiser = td.optim.adam(3e-3)


@td.jit(donate_argnums=(0, 1))
def train(params: Tree, state: Any, x: td.Array, key: td.Array) -> tuple[Tree, Any, td.Array]:
    value, gradients = td.value_and_grad(loss)(params, x, key)
    updates, state = optimiser.update(gradients, state, params)
    return td.optim.apply_updates(params, updates), state, value


def drawn(pixels: np.ndarray) -> str:
    """Digits side by side, as text."""
    shades = (pixels.reshape(-1, 8, 8) * (len(SHADES) - 1)).round().astype(int)
    return "\n".join(
        "  ".join("".join(SHADES[p] for p in digit[row]) for digit in shades) for row in range(8)
    )


def main() -> None:
    rng = np.random.default_rng(0)
    x = (load_digits().data / 16).astype(np.float32)
    params = make_params(td.random.key(0))
    state, key = optimiser.init(params), td.random.key(1)
    means = []
    for epoch in range(EPOCHS):
        order, losses = rng.permutation(len(x)), []
        for start in range(0, len(x) - BATCH + 1, BATCH):
            key, noise = td.random.split(key)
            params, state, value = train(params, state, x[order[start : start + BATCH]], noise)
            losses.append(float(value))
        means.append(float(np.mean(losses)))
        if epoch % 20 == 19:
            print(f"epoch {epoch + 1}: {means[-1]:.2f} nats a digit")
    made = td.sigmoid(decode(params, td.random.normal(key, (6, CODE))))
    print(drawn(np.asarray(made)))
    assert means[-1] < 0.8 * means[0], means


if __name__ == "__main__":
    main()
