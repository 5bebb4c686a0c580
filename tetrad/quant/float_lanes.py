"""Block formats, float lanes: float weights in the layout of the low-bit ones, sixteen rows side by side.

    sixteen rows:  column 0 of the 16 rows, column 1 of the 16 rows, ...
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import DType, bf16, declare_quantized, f16, f32
from tetrad.quant.fields import U8
from tetrad.quant.lanes import ROWS

ELEMENTS: dict[str, DType] = {kind.name: kind for kind in (f32, f16, bf16)}
FLOAT_DTYPES: dict[str, DType] = {
    name: declare_quantized(f"{name}x{ROWS}", 1, kind.nbytes, ROWS) for name, kind in ELEMENTS.items()
}


def element_of(dtype: DType) -> DType | None:
    """The float type an interleaved type holds, or None where it holds blocks of codes."""
    return ELEMENTS.get(dtype.name.removesuffix(f"x{ROWS}"))


def interleave_floats(values: np.ndarray) -> U8:
    """[n, k] of a float type into u8[n rounded up to 16, bytes of a row]; rows that are not there are zero."""
    n, k = values.shape
    whole = np.zeros((-(-n // ROWS) * ROWS, k), values.dtype)
    whole[:n] = values
    turned = np.ascontiguousarray(whole.reshape(-1, ROWS, k).transpose(0, 2, 1))
    return turned.view(np.uint8).reshape(len(whole), -1)


def separate_floats(packed: U8, element: DType, rows: int) -> np.ndarray:
    """The inverse of `interleave_floats`: [rows, k]."""
    turned = np.ascontiguousarray(packed).view(element.np).reshape(len(packed) // ROWS, -1, ROWS)
    return np.ascontiguousarray(turned.transpose(0, 2, 1)).reshape(len(packed), -1)[:rows]
