"""The reference with activations in 8 bits: what a model with low-bit weights computes, sums aside.

`activations_in_eight_bits()` makes `reference` round the rows that enter a product with a low-bit
weight, 32 columns to a scale; before an output matrix of 8 bits, what that lost is rounded once
more. What is left between it and the package is the order of f32 sums, and single codes that this
order tips over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np

from tests.models import reference
from tests.models.reference import Array, Config, Layer, Tensors

BLOCK = 32
FLOAT = ("ffn_gate_inp",)  # the router stays in floats


def rounded(x: Array) -> Array:
    """x [..., columns] as codes -127 ... 127 times the scale of their block of 32."""
    blocks = x.reshape(*x.shape[:-1], -1, BLOCK)
    scale = np.abs(blocks).max(axis=-1, keepdims=True) / 127
    codes = np.rint(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0))
    return (codes * scale).reshape(x.shape)


@contextmanager
def activations_in_eight_bits(head_format: str) -> Iterator[None]:
    plain_linear, plain_head = Layer.linear, reference.output_head

    def linear(layer: Layer, name: str, x: Array) -> Array:
        return plain_linear(layer, name, x if name in FLOAT else rounded(x))

    def head(weights: Tensors, x: Array) -> Array:
        once = rounded(x)
        return plain_head(weights, once + rounded(x - once) if head_format == "q8_0" else once)

    with (
        mock.patch.object(Layer, "linear", linear),
        mock.patch.object(reference, "output_head", head),
        mock.patch.object(reference, "mixture", mixture),
    ):
        yield


def mixture(config: Config, layer: Layer, x: Array) -> Array:
    """As in the reference, with two roundings."""
    chosen, shares = reference.route(layer.linear("ffn_gate_inp", x), config.experts_used)
    gate, up, down = (layer[f"ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
    y, x = np.zeros_like(x), rounded(x)
    for t, e in np.ndindex(chosen.shape):
        expert = chosen[t, e]
        hidden = reference.silu(gate[expert] @ x[t]) * (up[expert] @ x[t])
        y[t] += shares[t, e] * (down[expert] @ rounded(hidden))
    return y
