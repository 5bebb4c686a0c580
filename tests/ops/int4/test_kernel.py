"""Kernels of products with packed rows: sizes around vectors, chunks of words that are transposed,
tiles of rows and stacks, against the reference to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.test_conformance import conforms
from tetrad.core.op import Case
from tetrad.ops.int4.op import BLOCK, int4_dots, int4_matvec, int4_matvec_back, words_of

# rows and columns of the weight, leading axes of x, weights in the stack (0: none)
SIZES = [
    ((16, 128), (), 0), ((17, 129), (5,), 0), ((5, 300), (2, 3), 0), ((33, 256), (3,), 2),
    ((48, 160), (), 1), ((1, 1), (3,), 0), ((15, 33), (2, 3), 2),
]  # fmt: skip


def drawn(rows: int, columns: int, lead: tuple[int, ...], stack: int) -> tuple[np.ndarray, ...]:
    """x, words, and a cotangent of the product."""
    rng = np.random.default_rng(rows + columns)
    outer = (2, *lead) if stack else lead
    shape = (rows, words_of(columns))
    w = rng.integers(0, 1 << 32, (stack, *shape) if stack else shape, dtype=np.uint32)
    x, ct = (rng.standard_normal((*outer, n)).astype(np.float32) for n in (columns, rows))
    return x, w, ct


@pytest.mark.parametrize(("shape", "lead", "stack"), SIZES)
def test_products_of_floats(shape: tuple[int, int], lead: tuple[int, ...], stack: int) -> None:
    x, w, ct = drawn(*shape, lead, stack)
    conforms(int4_matvec, Case((x, w)))
    conforms(int4_matvec_back, Case((ct, w), {"columns": shape[1]}))


@pytest.mark.parametrize(("shape", "lead", "stack"), SIZES)
def test_products_of_codes(shape: tuple[int, int], lead: tuple[int, ...], stack: int) -> None:
    rng = np.random.default_rng(1)
    x, w, _ = drawn(*shape, lead, stack)
    words = w.shape[-1]
    codes = rng.integers(-128, 128, (*x.shape[:-1], words, 2, 4)).astype(np.int8)
    held = np.ascontiguousarray(codes).view(np.uint32)[..., 0]
    whole = codes.sum(axis=(-1, -2, -3), dtype=np.int32)[..., None]
    conforms(int4_dots, Case((held, w, whole)))
    blocks = (*x.shape[:-1], -(-words // BLOCK))
    sums = rng.integers(-4000, 4000, blocks).astype(np.int32)
    scales, factors = (rng.standard_normal(s).astype(np.float32) for s in (blocks, w.shape[:-1]))
    conforms(int4_dots, Case((held, w, sums, scales, x, factors)))
