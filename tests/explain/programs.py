"""Small functions to explain and bisect."""

from __future__ import annotations

from typing import Any

import numpy as np

import tetrad as td


def softmax(x: Any) -> Any:
    e = td.exp(x - td.max(x, axis=-1, keepdims=True))
    return e / td.sum(e, axis=-1, keepdims=True)


def mix(x: Any, w: Any, v: Any) -> Any:
    """Two products that are alive at the same time, then more work on both."""
    a, b = x @ w, x @ v
    return softmax(a) @ td.matrix_transpose(softmax(b)), td.argmax(a, axis=-1)


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def mix_arguments() -> list[np.ndarray]:
    return arrays((5, 8), (8, 6), (8, 6))
