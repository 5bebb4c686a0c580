"""Handwritten digits: an MLP trained with Adam. Forward, backward and update are one compiled
program, in place.

The digits are those of scikit-learn: pip install scikit-learn
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import tetrad as td

SIZES = (64, 128, 64, 10)
BATCH, EPOCHS = 128, 25
STEPS = EPOCHS * 10  # ten whole batches an epoch
Params = list[dict[str, td.Array]]


def make_params(rng: np.random.Generator) -> Params:
    def layer(rows: int, columns: int) -> dict[str, td.Array]:
        weights = rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(
            (2 / rows) ** 0.5
        )
        return {"w": td.asarray(weights), "b": td.zeros(columns)}

    return [layer(rows, columns) for rows, columns in pairwise(SIZES)]


def logits(params: Params, x: td.Array) -> td.Array:
    *hidden, last = params
    for layer in hidden:
        x = td.nn.relu(x @ layer["w"] + layer["b"])
    return x @ last["w"] + last["b"]


def loss(params: Params, x: td.Array, labels: td.Array) -> td.Array:
    """The mean of minus the log-probability of the right class."""
    right = td.nn.log_softmax(logits(params, x)) * td.nn.one_hot(labels, SIZES[-1])
    return -td.mean(td.sum(right, axis=-1))


optimiser = td.optim.adam(td.optim.warmup_cosine_decay_schedule(0.0, 5e-3, 20, STEPS))


@td.jit(donate_argnums=(0, 1))
def train(
    params: Params, state: Any, x: td.Array, labels: td.Array
) -> tuple[Params, Any, td.Array]:
    value, gradients = td.value_and_grad(loss)(params, x, labels)
    updates, state = optimiser.update(gradients, state, params)
    return td.optim.apply_updates(params, updates), state, value


@td.jit
def accuracy(params: Params, x: td.Array, labels: td.Array) -> td.Array:
    found = td.argmax(logits(params, x), axis=-1)
    return td.mean(td.astype(found == labels, td.float32))


def main() -> None:
    rng = np.random.default_rng(0)
    digits = load_digits()
    order = rng.permutation(len(digits.target))
    x, labels = (digits.data[order] / 16).astype(np.float32), digits.target[order].astype(np.int32)
    count = 3 * len(x) // 4  # three quarters to train, the rest to test
    params = make_params(rng)
    state = optimiser.init(params)
    for epoch in range(EPOCHS):
        shuffled = rng.permutation(count)
        batches = [shuffled[i : i + BATCH] for i in range(0, count - BATCH + 1, BATCH)]
        losses = []
        for rows in batches:
            params, state, value = train(params, state, x[rows], labels[rows])
            losses.append(float(value))
        if epoch % 5 == 4:
            right = float(accuracy(params, x[count:], labels[count:]))
            print(f"epoch {epoch + 1:2}: loss {np.mean(losses):.4f}, test accuracy {right:.1%}")
    assert right > 0.95, right
    print(f"{train.compiles} compilation for {int(state[0].count)} steps")


if __name__ == "__main__":
    main()
