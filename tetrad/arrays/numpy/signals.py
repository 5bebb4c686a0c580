"""Arrays, NumPy's names: one line slid over another.

Receives vectors, returns vectors: floats by the op `conv`, other numbers by a product with windows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.arrays.creation import asarray
from tetrad.arrays.indexing import take_axis
from tetrad.arrays.linear import matmul
from tetrad.arrays.manipulation import flip, pad, reshape
from tetrad.core.errors import SettingError, ShapeError
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, common, convert, run


def convolve(
    a: Any, v: Any, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None
) -> Array:
    """Sums of products of one vector and the other turned round, at every overlap ("full"), as many
    as the longer one has ("same"), or where the shorter one lies inside ("valid").

    >>> import tetrad as td
    >>> td.convolve(td.asarray([1.0, 2.0, 3.0]), td.asarray([0.0, 1.0]))
    Array([0., 1., 2., 3.], float32)
    """
    x, y = _vectors("convolve", a, v)
    if x.shape[0] < y.shape[0]:
        x, y = y, x
    return _slid("convolve", x, flip(y), mode)


def correlate(
    a: Any,
    v: Any,
    mode: str = "valid",
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """Sums of products of one vector and the other, conjugated, at every shift; modes as in
    `convolve`.

    >>> import tetrad as td
    >>> td.correlate(td.asarray([1.0, 2.0, 3.0]), td.asarray([0.0, 1.0]))
    Array([2., 3.], float32)
    """
    x, y = _vectors("correlate", a, v)
    if x.shape[0] >= y.shape[0]:
        return _slid("correlate", x, apply("conj", y), mode)
    return flip(_slid("correlate", apply("conj", y), x, mode))


def _vectors(name: str, a: Any, v: Any) -> list[Array]:
    found = common((asarray(a), asarray(v)))
    found = [reshape(x, (1,)) if x.ndim == 0 else x for x in found]
    for x in found:
        if x.ndim != 1 or x.shape[0] == 0:
            fail(ShapeError, f"{name}: expected vectors with elements, got {x.type}")
    return found


def _slid(name: str, x: Array, y: Array, mode: str) -> Array:
    """Products of y with each window of x, which is at least as long."""
    size, taps = x.shape[0], y.shape[0]
    border = {"full": taps - 1, "same": taps // 2, "valid": 0}.get(mode)
    if border is None:
        raise SettingError(f"{name}: mode", "'full', 'same' or 'valid'", mode)
    count = {"full": size + taps - 1, "same": size, "valid": size - taps + 1}[mode]
    if x.dtype.is_float:
        return _by_convolution(x, y, border, count)
    wide = pad(x, (border, max(count + taps - 1 - size - border, 0)))
    places = np.arange(count)[:, None] + np.arange(taps)
    return matmul(take_axis(wide, as_array(places.astype(np.int32)), 0), y)


def _by_convolution(x: Array, y: Array, border: int, count: int) -> Array:
    found = run(
        "conv",
        reshape(x, (1, 1, -1)),
        reshape(y, (1, 1, -1)),
        stride=(1,), low=(border,), dilation=(1,), holes=(1,), size=(count,),
        groups=1, last=False, weight="oik", flip=False,
    )  # fmt: skip
    return convert(reshape(found, (count,)), x.dtype)
