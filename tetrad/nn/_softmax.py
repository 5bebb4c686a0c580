"""Softmax with a rule for its derivative, y (t - sum y t): in f32 it keeps more digits than the
rule of each step.

Receives an array of at least 32 bits and axes; `td.nn.softmax` calls it, and loads this module when
it is first used.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tetrad.arrays import functions as td
from tetrad.tracing.array import Array
from tetrad.transforms.custom import custom_jvp


@partial(custom_jvp, nondiff_argnums=(1,))
def softmax(x: Array, axis: Any) -> Array:
    exps = td.exp(x - td.max(x, axis=axis, keepdims=True))
    scale = td.reciprocal(td.sum(exps, axis=axis, keepdims=True))  # one division a row
    return exps * scale  # type: ignore[no-any-return]


@softmax.defjvp
def softmax_jvp(axis: Any, primals: Any, tangents: Any) -> tuple[Array, Array]:
    y, (t,) = softmax(primals[0], axis), tangents
    return y, y * (t - td.sum(y * t, axis=axis, keepdims=True))
