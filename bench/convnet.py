"""Bench, convnet: a small convolutional network and its training step in Tetrad and JAX.

Two convolutions of 3x3 (32 and 64 channels), each with relu, a pooling of 2x2 and a dense layer, on
64 pictures of 28x28; value, gradients and Adam in one program. JAX is given both layouts that it
knows, and the better counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gpt import RATE, MakeStep, Step, jax_step

BATCH, SIDE, CHANNELS, CLASSES = 64, 28, (1, 32, 64), 10
FEATURES = CHANNELS[2] * (SIDE // 2) ** 2
Tree = dict[str, Any]


def values(layout: str) -> Tree:
    """Parameters as NumPy arrays; weights of convolutions [outputs, inputs, 3, 3], for NHWC [3, 3,
    inputs, outputs]."""
    rng = np.random.default_rng(0)

    def normal(*shape: int, inputs: int) -> np.ndarray:
        return (rng.standard_normal(shape) * (2 / inputs) ** 0.5).astype(np.float32)

    def taps(inputs: int, outputs: int) -> np.ndarray:
        found = normal(outputs, inputs, 3, 3, inputs=9 * inputs)
        return found if layout == "NCHW" else np.ascontiguousarray(found.transpose(2, 3, 1, 0))

    first, second = (taps(*pair) for pair in ((CHANNELS[0], CHANNELS[1]), CHANNELS[1:]))
    dense = normal(CHANNELS[2], SIDE // 2, SIDE // 2, CLASSES, inputs=FEATURES)
    dense = dense if layout == "NCHW" else dense.transpose(1, 2, 0, 3)
    return {
        "first": first, "first bias": np.zeros(CHANNELS[1], np.float32),
        "second": second, "second bias": np.zeros(CHANNELS[2], np.float32),
        "dense": np.ascontiguousarray(dense).reshape(FEATURES, CLASSES),
        "dense bias": np.zeros(CLASSES, np.float32),
    }  # fmt: skip


def batch(layout: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((BATCH, 1, SIDE, SIDE)).astype(np.float32)
    labels = rng.integers(0, CLASSES, BATCH).astype(np.int32)
    return (x if layout == "NCHW" else x.reshape(BATCH, SIDE, SIDE, 1)), labels


def flops() -> int:
    """Of the products: forward, and twice that backward; the pictures have no gradient."""
    first, second = (9 * a * b * SIDE**2 for a, b in (CHANNELS[:2], CHANNELS[1:]))
    return 2 * BATCH * (2 * first + 3 * second + 3 * FEATURES * CLASSES)


def loss(nn: Any, params: Tree, x: Any, labels: Any) -> Any:
    x = nn.relu(nn.conv(x, params["first"], params["first bias"]))
    x = nn.relu(nn.conv(x, params["second"], params["second bias"]))
    x = nn.pool(x).reshape(BATCH, FEATURES)
    return nn.cross_entropy(x @ params["dense"] + params["dense bias"], labels)


def with_tetrad() -> Step:
    import tetrad as td

    class Functions:
        relu = staticmethod(td.nn.relu)
        cross_entropy = staticmethod(td.nn.cross_entropy)
        pool = staticmethod(lambda x: td.nn.max_pool2d(x, 2))

        @staticmethod
        def conv(x: Any, weight: Any, bias: Any) -> Any:
            return td.nn.conv2d(x, weight, bias, padding=1)

    optimiser = td.optim.adam(RATE)

    @td.jit(donate_argnums=(0, 1))
    def step(params: Any, state: Any, x: Any, labels: Any) -> Any:
        value, found = td.value_and_grad(lambda p: loss(Functions, p, x, labels))(params)
        updates, state = optimiser.update(found, state, params)
        return td.optim.apply_updates(params, updates), state, value

    params = td.tree.map(td.asarray, values("NCHW"))
    kept = [params, optimiser.init(params)]
    given = [td.asarray(each) for each in batch("NCHW")]

    def call() -> Any:
        kept[0], kept[1], value = step(*kept, *given)
        return value

    return call


def with_jax(layout: str) -> MakeStep:
    def make() -> Step:
        import jax

        channels = 1 if layout == "NCHW" else 3
        kernel = "OIHW" if layout == "NCHW" else "HWIO"
        window = tuple(1 if axis in (0, channels) else 2 for axis in range(4))

        class Functions:
            relu = staticmethod(jax.nn.relu)

            @staticmethod
            def conv(x: Any, weight: Any, bias: Any) -> Any:
                numbers = (layout, kernel, layout)
                found = jax.lax.conv_general_dilated(
                    x, weight, (1, 1), "SAME", dimension_numbers=numbers
                )
                return found + (bias[:, None, None] if channels == 1 else bias)

            @staticmethod
            def pool(x: Any) -> Any:
                return jax.lax.reduce_window(x, -np.inf, jax.lax.max, window, window, "VALID")

            @staticmethod
            def cross_entropy(logits: Any, labels: Any) -> Any:
                logs = jax.nn.log_softmax(logits)
                return -jax.numpy.take_along_axis(logs, labels[:, None], axis=-1).mean()

        return jax_step(
            lambda params, *given: loss(Functions, params, *given), values(layout), batch(layout)
        )

    return make


STEPS: dict[str, Callable[[], Step]] = {
    "tetrad": with_tetrad, "jax": with_jax("NCHW"), "jax, NHWC": with_jax("NHWC")
}  # fmt: skip
