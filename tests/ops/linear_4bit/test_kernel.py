"""Kernels of the 4-bit linear layer: tiles of rows, vectors of outputs, groups of any size and
stacks, against the reference to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.test_conformance import conforms
from tetrad.core.op import Case
from tetrad.ops.linear_4bit.int8 import block_count, linear_4bit_int8
from tetrad.ops.linear_4bit.op import group_count, linear_4bit, linear_4bit_back

# inputs, outputs and group size, leading axes of x, weights in the stack (none: no stack)
SIZES = [
    ((64, 64, 16), (), ()), ((64, 65, 24), (9,), ()), ((72, 130, 10), (2, 5), ()),
    ((8, 200, 100), (), (2,)), ((40, 48, 1), (3,), (1,)), ((64, 16, 64), (9,), (2,)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "lead", "stack"), SIZES)
def test_products(
    shape: tuple[int, int, int], lead: tuple[int, ...], stack: tuple[int, ...]
) -> None:
    (inputs, outputs, size), rng = shape, np.random.default_rng(2)
    outer = (2, *lead) if stack else lead
    w = rng.integers(0, 1 << 32, (*stack, inputs // 8, outputs), dtype=np.uint32)
    x, ct = (rng.standard_normal((*outer, n)).astype(np.float32) for n in (inputs, outputs))
    groups = group_count(inputs, size)
    scale, zero = (rng.standard_normal((*stack, groups, outputs)).astype("f4") for _ in range(2))
    bias = rng.standard_normal((*stack, outputs)).astype(np.float32)
    conforms(linear_4bit, Case((x, w, scale, zero, bias), {"group_size": size}))
    conforms(linear_4bit, Case((x, w)))
    conforms(linear_4bit_back, Case((ct, w, scale, zero), {"group_size": size}))


@pytest.mark.parametrize(("inputs", "outputs", "block"), [(64, 65, 2), (40, 130, 4), (48, 16, 3)])
def test_products_of_codes(inputs: int, outputs: int, block: int) -> None:
    rng = np.random.default_rng(3)
    words, blocks = inputs // 8, block_count(inputs // 8, block)
    w = rng.integers(0, 1 << 32, (words, outputs), dtype=np.uint32)
    codes = rng.integers(0, 1 << 32, (5, words, 2), dtype=np.uint32)
    sums = rng.integers(-1000, 1000, (5, blocks)).astype(np.int32)
    scales = rng.standard_normal((5, blocks)).astype(np.float32)
    groups = group_count(inputs, 8 * block)
    affine = [rng.standard_normal((groups, outputs)).astype(np.float32) for _ in range(2)]
    settings = {"block": block, "group_size": 8 * block}
    x = rng.standard_normal((5, inputs)).astype(np.float32)
    conforms(linear_4bit_int8, Case((codes, w, sums, scales, x, *affine), settings))
