"""Ops, positions of extremes: `argmax` and `argmin` reduce one axis to where its first largest or
smallest element is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tetrad.core.dtypes import i64
from tetrad.core.errors import ShapeError
from tetrad.core.op import Case, op
from tetrad.core.types import ArrayType
from tetrad.ops.calculus import batched_axis
from tetrad.ops.cases import Rng, line_shape, pick, random_array
from tetrad.ops.rules import NUMBERS, Array, check_axis, check_dtype, ieee


def position_type(name: str) -> Callable[..., ArrayType]:
    def rule(x: ArrayType, *, axis: int) -> ArrayType:
        check_dtype(name, x.dtype, NUMBERS)
        check_axis(name, axis, x)
        if x.shape[axis] == 0:
            raise ShapeError(f"{name}: {x} has no elements along axis {axis}")
        return ArrayType(i64, (*x.shape[:axis], *x.shape[axis + 1 :]))

    return rule


def _position_cases(rng: Rng) -> Case:
    """Few different values, so that ties are common."""
    dtype = pick(rng, NUMBERS)
    shape = tuple(max(n, 1) for n in line_shape(rng))
    values = random_array(rng, dtype, (4,), special=0.3)
    return Case((rng.choice(values, shape),), {"axis": int(rng.integers(len(shape)))})


@op(
    type=position_type("argmax"),
    kind="special",
    cases=_position_cases,
    dtypes=NUMBERS,
    public=False,
)
@ieee
def argmax(x: Array, *, axis: int) -> Array:
    """Position of the largest along an axis, the first of equals; NaN counts as the largest.

    >>> argmax(np.array([[1.0, 5.0, 5.0], [7.0, np.nan, 9.0]]), axis=1)
    array([1, 1])
    """
    return np.argmax(x, axis).astype(np.int64)


@op(
    type=position_type("argmin"),
    kind="special",
    cases=_position_cases,
    dtypes=NUMBERS,
    public=False,
)
@ieee
def argmin(x: Array, *, axis: int) -> Array:
    """Position of the smallest along an axis, the first of equals; NaN counts as the smallest.

    >>> argmin(np.array([[1.0, 0.0, 0.0], [7.0, np.nan, 1.0]]), axis=1)
    array([1, 1])
    """
    return np.argmin(x, axis).astype(np.int64)


argmax.batch(batched_axis(argmax, axis=1))
argmin.batch(batched_axis(argmin, axis=1))
