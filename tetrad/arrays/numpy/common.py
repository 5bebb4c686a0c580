"""Arrays, NumPy's names: what these files share.

Receives names of ops and loose operands, returns arrays.
"""

from __future__ import annotations

from typing import Any

from tetrad.arrays.creation import asarray
from tetrad.arrays.statistics import no_out as no_out
from tetrad.core.promotion import as_float
from tetrad.tracing.array import Array
from tetrad.tracing.operands import apply, as_floats, common, convert


def where(condition: Any, x: Any, y: Any) -> Array:
    return apply("where", condition, x, y)


def listed(x: Any) -> Any:
    """Nested lists as an array; what is an operand already stays."""
    return asarray(x) if isinstance(x, list | tuple) else x


def floats(*xs: Any) -> list[Array]:
    """The operands in the float dtype they have in common."""
    promoted = common([listed(x) for x in xs])
    return [convert(x, as_float(x.dtype)) for x in promoted]


def floating_one(x: Any) -> Array:
    """An array as floats (or complex numbers)."""
    return as_floats(listed(x))
