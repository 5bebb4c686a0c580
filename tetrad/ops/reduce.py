"""Ops: reductions. `monoid` says how two elements become one; lowering folds it over `axes` in the
canonical order.

`axes` is a sorted, non-empty tuple of axes counted from 0; the result drops them and keeps the
dtype. Which dtype a sum of integers should have, means and negative axes are the business of the
public functions. The arguments of extremes (`argmax`, `argmin`) reduce one axis and have a
generator of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tetrad.core.dtypes import DType, bool_
from tetrad.core.errors import ShapeError, UnsupportedError
from tetrad.core.op import Case, Cases, op
from tetrad.core.record import record
from tetrad.core.types import ArrayType
from tetrad.graph.build import filled
from tetrad.graph.nodes import Node
from tetrad.ops import signs
from tetrad.ops.calculus import batched_axis, cast, reshape, run, sliced, spread, transpose
from tetrad.ops.calculus import reduce_sum as summed
from tetrad.ops.cases import (
    Rng,
    exact_array,
    line_shape,
    pick,
    random_array,
    random_axes,
    unit_array,
)
from tetrad.ops.rules import ANY_NUMBERS, NUMBERS, Array, check_axis, check_dtype, ieee

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val

Axes = tuple[int, ...]
BOOL = (bool_,)


@record
class Monoid:
    """How to fold elements: `combine` is associative up to rounding and commutative, `init` is its
    neutral element."""

    init: Callable[[DType], bool | int | float]  # of the type that accumulates
    combine: Callable[[KernelBuilder, Val, Val], Val]

    def accumulate(self, dtype: DType) -> DType:
        """The type partial results are held in: in f16, 2048 + 1 == 2048."""
        return dtype.computing


def lowest_number(dtype: DType) -> float:
    return -np.inf if dtype.is_float else int(np.iinfo(dtype.np).min)


def highest_number(dtype: DType) -> float:
    return np.inf if dtype.is_float else int(np.iinfo(dtype.np).max)


SUM = Monoid(lambda dtype: 0, lambda k, a, b: a + b)
PROD = Monoid(lambda dtype: 1, lambda k, a, b: a * b)
MAX = Monoid(lowest_number, lambda k, a, b: k.max(a, b))
MIN = Monoid(highest_number, lambda k, a, b: k.min(a, b))
ANY = Monoid(lambda dtype: False, lambda k, a, b: a | b)
ALL = Monoid(lambda dtype: True, lambda k, a, b: a & b)


# -- types and cases -------------------------------------------------------------------------------


def reduced_type(
    name: str, dtypes: tuple[DType, ...], *, has_neutral: bool = True
) -> Callable[..., ArrayType]:
    """The operand's type without the axes. Integers have no largest number, so an empty max of them
    is an error."""

    def rule(x: ArrayType, *, axes: Axes) -> ArrayType:
        check_dtype(name, x.dtype, dtypes)
        _check_axes(name, x, axes)
        if not has_neutral and not x.dtype.is_float and any(x.shape[a] == 0 for a in axes):
            raise ShapeError(
                f"{name}: {x} has no elements along axes {list(axes)}",
                hint="integers have no infinity",
            )
        return x.with_shape(tuple(n for axis, n in enumerate(x.shape) if axis not in axes))

    return rule


def _check_axes(name: str, x: ArrayType, axes: Axes) -> None:
    for axis in axes:
        check_axis(name, axis, x)
    if not axes or list(axes) != sorted(set(axes)):
        raise ShapeError(
            f"{name}: axes must be one or more, different and ascending, got {list(axes)} for {x}"
        )


def _cases(
    dtypes: tuple[DType, ...],
    draw: Callable[[Rng, DType, tuple[int, ...]], Array],
    smallest: int = 0,
) -> Cases:
    def cases(rng: Rng) -> Case:
        dtype = pick(rng, dtypes)
        shape = tuple(max(n, 0 if dtype.is_float else smallest) for n in line_shape(rng))
        return Case((draw(rng, dtype, shape),), {"axes": random_axes(rng, len(shape))})

    return cases


# -- folds -----------------------------------------------------------------------------------------


@op(
    type=reduced_type("reduce_sum", ANY_NUMBERS),
    kind="reduce",
    cases=_cases(ANY_NUMBERS, exact_array),
    dtypes=ANY_NUMBERS,
    monoid=SUM,
    public=False,
    sign=signs.of_total,
)
@ieee
def reduce_sum(x: Array, *, axes: Axes) -> Array:
    """Sum over axes; integers wrap, nothing sums to 0.

    >>> reduce_sum(np.array([[1, 2, 3], [4, 5, 6]]), axes=(0,))
    array([5, 7, 9])
    """
    # the sum starts from +0, so it is never -0
    return np.sum(x, axes, dtype=x.dtype) + x.dtype.type(0)


@op(
    type=reduced_type("reduce_prod", ANY_NUMBERS),
    kind="reduce",
    cases=_cases(ANY_NUMBERS, unit_array),
    dtypes=ANY_NUMBERS,
    monoid=PROD,
    public=False,
)
@ieee
def reduce_prod(x: Array, *, axes: Axes) -> Array:
    """Product over axes; integers wrap, the product of nothing is 1.

    >>> reduce_prod(np.array([[1, 2, 3], [4, 5, 6]]), axes=(0, 1))
    array(720)
    """
    return np.prod(x, axes, dtype=x.dtype)


@op(
    type=reduced_type("reduce_max", NUMBERS, has_neutral=False),
    kind="reduce",
    cases=_cases(NUMBERS, random_array, smallest=1),
    dtypes=NUMBERS,
    monoid=MAX,
    public=False,
)
@ieee
def reduce_max(x: Array, *, axes: Axes) -> Array:
    """The largest over axes; NaN propagates, +0 is above -0, the largest of no floats is -inf.

    >>> reduce_max(np.array([[1.0, 5.0], [7.0, np.nan]]), axes=(1,))
    array([ 5., nan])
    """
    if x.dtype.kind != "f":
        return np.max(x, axes)
    top = np.max(x, axes, initial=-np.inf)
    zero = np.where(np.any((x == 0) & ~np.signbit(x), axes), x.dtype.type(0), x.dtype.type(-0.0))
    return np.where(top == 0, zero, top)


@op(
    type=reduced_type("reduce_min", NUMBERS, has_neutral=False),
    kind="reduce",
    cases=_cases(NUMBERS, random_array, smallest=1),
    dtypes=NUMBERS,
    monoid=MIN,
    public=False,
)
@ieee
def reduce_min(x: Array, *, axes: Axes) -> Array:
    """The smallest over axes; NaN propagates, -0 is below +0, the smallest of no floats is +inf.

    >>> reduce_min(np.array([[1.0, 5.0], [7.0, np.nan]]), axes=(1,))
    array([ 1., nan])
    """
    if x.dtype.kind != "f":
        return np.min(x, axes)
    low = np.min(x, axes, initial=np.inf)
    zero = np.where(np.any((x == 0) & np.signbit(x), axes), x.dtype.type(-0.0), x.dtype.type(0))
    return np.where(low == 0, zero, low)


@op(
    type=reduced_type("reduce_any", BOOL),
    kind="reduce",
    cases=_cases(BOOL, random_array),
    dtypes=BOOL,
    monoid=ANY,
    public=False,
)
def reduce_any(x: Array, *, axes: Axes) -> Array:
    """Whether one element over the axes holds.

    >>> reduce_any(np.array([[True, False], [False, False]]), axes=(1,))
    array([ True, False])
    """
    return np.asarray(np.any(x, axes))


@op(
    type=reduced_type("reduce_all", BOOL),
    kind="reduce",
    cases=_cases(BOOL, random_array),
    dtypes=BOOL,
    monoid=ALL,
    public=False,
)
def reduce_all(x: Array, *, axes: Axes) -> Array:
    """Whether every element over the axes holds.

    >>> reduce_all(np.array([[True, False], [True, True]]), axes=(1,))
    array([False,  True])
    """
    return np.asarray(np.all(x, axes))


# -- derivatives and batching ----------------------------------------------------------------------


def _share_of_extreme(t: Node, y: Node, x: Node, *, axes: Axes) -> Node:
    """The change of the extreme element; of several equal ones, the mean of their changes; of none,
    no change."""
    if any(x.type.shape[a] == 0 for a in axes):
        return filled(0, y.type)
    wins = cast(run("equal", x, spread(y, axes, x.type.shape)), x.type.dtype)
    result: Node = summed(t * wins, axes) / summed(wins, axes)
    return result


def _prod_change(t: Node, y: Node, x: Node, *, axes: Axes) -> Node:
    """Products and their changes, joined in pairs: exact where elements are 0."""
    kept = [a for a in range(x.type.rank) if a not in axes]
    count = x.type.with_shape(tuple(x.type.shape[a] for a in axes)).size
    if not isinstance(count, int):
        message = f"reduce_prod: {x.type} has no derivative over axes of symbolic size"
        raise UnsupportedError(message, hint="fix the size, or multiply in td.scan")
    lines = (*(x.type.shape[a] for a in kept), count)
    value, change = (reshape(transpose(v, (*kept, *axes)), lines) for v in (x, t))
    axis = len(kept)
    while count > 1:
        half = count // 2
        values, changes = (
            [sliced(v, axis, i * half, half) for i in (0, 1)] for v in (value, change)
        )
        rest = [sliced(v, axis, 2 * half, count % 2) for v in (value, change)]
        joined = values[0] * values[1], changes[0] * values[1] + values[0] * changes[1]
        value, change = (
            run("concat", a, b, axis=axis) if count % 2 else a
            for a, b in zip(joined, rest, strict=True)
        )
        count = half + count % 2
    return reshape(change, y.type.shape) if count else filled(0, y.type)


reduce_sum.transpose(lambda ct, x, *, axes: spread(ct, axes, x.type.shape))
reduce_prod.jvp(_prod_change)
reduce_max.jvp(_share_of_extreme)
reduce_min.jvp(_share_of_extreme)
for _fold in (reduce_sum, reduce_prod, reduce_max, reduce_min, reduce_any, reduce_all):
    _fold.batch(batched_axis(_fold, axes=1))
