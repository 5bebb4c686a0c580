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


def loops(x: Any, rows: Any) -> Any:
    """A scan, a while loop and a switch, none of which fits into one kernel."""
    x, ys = td.scan(lambda c, r: ((n := softmax(c + r)), (n, td.sum(c))), x, rows)
    x = td.while_loop(lambda x: td.sum(x) < 9, lambda x: x * 1.5 + td.max(x), x)
    return td.cond(td.sum(x) > 10, lambda x: softmax(x), lambda x: td.cumulative_sum(x), x), ys


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def mix_arguments() -> list[np.ndarray]:
    return arrays((5, 8), (8, 6), (8, 6))
