"""Arrays, NumPy's names: windows for signals, as arrays of the default float.

Receives a number of points, returns an array: NumPy computes it, in f64.
"""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from tetrad.arrays.creation import asarray
from tetrad.core.dtypes import default_float
from tetrad.tracing.array import Array


def bartlett(M: int) -> Array:
    """A triangle from 0 to 1 and back.

    >>> import tetrad as td
    >>> td.bartlett(5)
    Array([0. , 0.5, 1. , 0.5, 0. ], float32)
    """
    return _made(np.bartlett(index(M)))


def blackman(M: int) -> Array:
    """Blackman's window: a sum of three cosines."""
    return _made(np.blackman(index(M)))


def hamming(M: int) -> Array:
    """Hamming's window: a raised cosine that does not reach 0."""
    return _made(np.hamming(index(M)))


def hanning(M: int) -> Array:
    """Hann's window: a raised cosine."""
    return _made(np.hanning(index(M)))


def kaiser(M: int, beta: float) -> Array:
    """Kaiser's window: a Bessel function of a half circle, the narrower the larger beta."""
    return _made(np.kaiser(index(M), float(beta)))


def _made(values: Any) -> Array:
    return asarray(values, default_float())
