"""Quantisation, panels: how a weight that many rows meet lies in memory.

A weight [outputs, inputs] in, an array [outputs / 16, inputs, 16] out: sixteen outputs of one input
are neighbours, and a kernel reads a panel of them in one run (`ops.panels`).
"""

from __future__ import annotations

import numpy as np

from tetrad.core.machine import LANES

Array = np.ndarray


def panels_of(weight: Array) -> Array:
    """
    >>> panels_of(np.arange(64).reshape(32, 2))[1, 0, :3]
    array([32, 34, 36])
    """
    return np.ascontiguousarray(weight.reshape(-1, LANES, weight.shape[1]).swapaxes(1, 2))


def weight_of(panels: Array) -> Array:
    """The weight that panels were made of."""
    return panels.swapaxes(1, 2).reshape(-1, panels.shape[1])
