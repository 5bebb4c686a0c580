"""Handwritten digits: a small convolutional network with dropout, trained with AdamW
to more than 98 % of unseen digits. Forward, backward and update are one compiled program, in place.

The training is stopped in the middle, kept in a file and taken up again, as after a night. The
digits are those of scikit-learn: pip install scikit-learn
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import tetrad as td

BATCH, EPOCHS, CLASSES = 64, 24, 10
CHANNELS = (1, 32, 64)
Tree = dict[str, Any]


def make_params(key: td.Array) -> Tree:
    init = td.nn.initializers.he_normal(in_axis=1, out_axis=0)
    keys = td.random.split(key, 3)

    def conv(key: td.Array, inputs: int, outputs: int) -> Tree:
        return {"weight": init(key, (outputs, inputs, 3, 3)), "bias": td.zeros(outputs)}

    features = CHANNELS[2] * 4 * 4
    return {
        "first": conv(keys[0], CHANNELS[0], CHANNELS[1]),
        "second": conv(keys[1], CHANNELS[1], CHANNELS[2]),
        "dense": {
            "w": td.random.normal(keys[2], (features, CLASSES)) * features**-0.5,
            "b": td.zeros(CLASSES),
        },
    }


def logits(params: Tree, x: td.Array, key: td.Array | None = None) -> td.Array:
    """x [batch, 1, 8, 8]; with a key, a quarter of the features is dropped at random."""
    x = td.nn.relu(td.nn.conv2d(x, **params["first"], padding=1))
    x = td.nn.relu(td.nn.conv2d(x, **params["second"], padding=1))
    x = td.nn.max_pool2d(x, 2).reshape(x.shape[0], -1)
    if key is not None:
        x = td.nn.dropout(x, 0.25, key=key)
    return x @ params["dense"]["w"] + params["dense"]["b"]


def loss(params: Tree, x: td.Array, labels: td.Array, key: td.Array) -> td.Array:
    return td.nn.cross_entropy(logits(params, x, key), labels, label_smoothing=0.05)


optimiser = td.optim.adamw(td.optim.cosine_decay_schedule(3e-3, EPOCHS * 21), weight_decay=1e-3)


@td.jit(donate_argnums=(0, 1))
def train(
    params: Tree, state: Any, x: td.Array, labels: td.Array, key: td.Array
) -> tuple[Tree, Any, td.Array]:
    value, gradients = td.value_and_grad(loss)(params, x, labels, key)
    updates, state = optimiser.update(gradients, state, params)
    return td.optim.apply_updates(params, updates), state, value


@td.jit
def accuracy(params: Tree, x: td.Array, labels: td.Array) -> td.Array:
    return td.mean(td.astype(td.argmax(logits(params, x), axis=-1) == labels, td.float32))


def moved(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Digits moved by up to a pixel each way: there are more of them to learn from."""
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    down, right = rng.integers(0, 3, (2, len(x), 1, 1))
    rows, columns = np.arange(8)[:, None] + down, np.arange(8)[None, :] + right
    return wide[np.arange(len(x))[:, None, None], 0, rows, columns][:, None]


def epochs(run: Tree, first: int, last: int, x: np.ndarray, labels: np.ndarray) -> Tree:
    """A run after more epochs; a run is all there is to know: parameters, optimiser state, key."""
    params, state, key = run["params"], run["state"], run["key"]
    for epoch in range(first, last):
        rng = np.random.default_rng(epoch)
        order, losses = rng.permutation(len(x)), []
        for start in range(0, len(x) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            key, noise = td.random.split(key)
            params, state, value = train(params, state, moved(x[rows], rng), labels[rows], noise)
            losses.append(float(value))
        if epoch % 6 == 5:
            print(f"epoch {epoch + 1:2}: loss {np.mean(losses):.4f}")
    return {"params": params, "state": state, "key": key}


def main() -> None:
    digits, order = load_digits(), np.random.default_rng(0).permutation(1797)
    x = (digits.images[order, None] / 16).astype(np.float32)
    labels = digits.target[order].astype(np.int32)
    count = 3 * len(x) // 4  # three quarters to train, the rest to test
    params = make_params(td.random.key(0))
    run = {"params": params, "state": optimiser.init(params), "key": td.random.key(1)}
    run = epochs(run, 0, EPOCHS // 2, x[:count], labels[:count])
    kept = Path(tempfile.mkdtemp()) / "run.safetensors"
    td.save(kept, run, step=EPOCHS // 2)
    run, epoch = td.load_tree(kept, like=run)
    run = epochs(run, epoch, EPOCHS, x[:count], labels[:count])
    right = float(accuracy(run["params"], x[count:], labels[count:]))
    print(f"test accuracy {right:.2%}")
    assert right > 0.98, right


if __name__ == "__main__":
    main()
