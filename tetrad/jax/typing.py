"""JAX's names: `jax.typing`."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tetrad.core.dtypes import DType
from tetrad.tracing.array import Array

ArrayLike: TypeAlias = Array | np.ndarray | np.bool_ | np.number | bool | int | float | complex
DTypeLike: TypeAlias = str | type[Any] | np.dtype | DType
