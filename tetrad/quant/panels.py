"""Quantisation, panels: how a weight that many rows meet lies in memory.

A weight [outputs, inputs] in, an array [outputs / 16, inputs, 16] out: sixteen outputs of one input
are neighbours, and a kernel reads a panel of them in one run (`ops.panels`). Where an instruction
multiplies several inputs at once, those of an output lie together: [outputs / 16, inputs / 4, 64]
for bytes, [outputs / 16, inputs / 2, 32] for bf16 that meets rows of bf16.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.machine import LANES

Array = np.ndarray
BYTES, HALVES = 4, 2  # inputs of a weight in 8 bits, or of bf16, that are multiplied at once
TOP = 127  # the largest code
ZERO = 128  # the code of rows that stands for 0


def panels_of(weight: Array, together: int = 1) -> Array:
    """
    >>> panels_of(np.arange(64).reshape(32, 2))[1, 0, :3]
    array([32, 34, 36])
    >>> panels_of(np.arange(64).reshape(16, 4), together=2)[0, 1, :4]
    array([2, 3, 6, 7])
    """
    lines = weight.shape[1] // together
    parts = weight.reshape(-1, LANES, lines, together).swapaxes(1, 2)
    return np.ascontiguousarray(parts).reshape(-1, lines, LANES * together)


def weight_of(panels: Array) -> Array:
    """The weight that panels were made of."""
    count, lines, width = panels.shape
    parts = panels.reshape(count, lines, LANES, width // LANES).swapaxes(1, 2)
    return parts.reshape(count * LANES, -1)


def in_bytes(weight: Array) -> tuple[Array, Array, Array]:
    """A weight in 8 bits: its panels, of each output the scale, and what codes of rows that count
    from 128 add to its sums too much, negative.

    >>> panels, scale, offset = in_bytes(np.tile(np.float32([1, -2, 0, 2]), (16, 1)))
    >>> panels[0, 0, :4], float(scale[0] * 127), int(offset[0])
    (array([  64, -127,    0,  127], dtype=int8), 2.0, -8192)
    """
    wide = weight.astype(np.float32)
    top = np.abs(wide).max(axis=1)
    inverse = np.where(top > 0, np.float32(TOP) / np.maximum(top, np.float32(1e-30)), 0)
    codes = np.rint(wide * inverse[:, None].astype(np.float32)).astype(np.int8)
    offset = -ZERO * codes.sum(axis=1, dtype=np.int32)
    return panels_of(codes, BYTES), (top / np.float32(TOP)).astype(np.float32), offset
