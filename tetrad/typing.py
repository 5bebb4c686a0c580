"""Types to annotate with: what functions take for an array.

Receives nothing; `td.typing.ArrayLike` is what JAX calls so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.core.dtypes import DType
from tetrad.tracing.array import Array

ArrayLike = Array | np.ndarray | np.generic | bool | int | float | complex
DTypeLike = DType | np.dtype[Any] | str | type
Shape = tuple[int, ...]

__all__ = ["Array", "ArrayLike", "DTypeLike", "Shape"]


def __dir__() -> list[str]:
    return __all__
