"""Ops: comparisons, truth values and the choice between two, element by element.

Operands arrive with one shape and dtype; comparisons give bool. With NaN every comparison but
`not_equal` is false.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tetrad.core.dtypes import bool_, f32, i32, i64
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import Case, op
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import zeros_like
from tetrad.ops.cases import Rng, pick, random_array, random_shape, same_shaped, unary
from tetrad.ops.rules import (
    ALL,
    EVERY,
    Array,
    bool_type,
    check_dtype,
    check_same,
    ieee,
    same_type,
)

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val

BOOL = (bool_,)


# -- comparisons -----------------------------------------------------------------------------------


def _ordered(k: KernelBuilder, x: Val) -> Val:
    """Booleans are compared as 0 and 1: the kernel language has no order of them."""
    return k.cast(x, i32) if x.dtype is bool_ else x


@op(type=bool_type("equal", EVERY), cases=same_shaped(2, EVERY), dtypes=EVERY, promote="numeric")
@ieee
def equal(x: Array, y: Array) -> Array:
    """Whether x == y; -0 equals +0, NaN equals nothing.

    >>> equal(np.array([0.0, np.nan]), np.array([-0.0, np.nan]))
    array([ True, False])
    """
    return np.equal(x, y)


@equal.lower
def equal_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return x.eq(y)


@op(
    type=bool_type("not_equal", EVERY), cases=same_shaped(2, EVERY), dtypes=EVERY, promote="numeric"
)
@ieee
def not_equal(x: Array, y: Array) -> Array:
    """Whether x != y.

    >>> not_equal(np.array([0.0, np.nan]), np.array([-0.0, np.nan]))
    array([False,  True])
    """
    return np.not_equal(x, y)


@not_equal.lower
def not_equal_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return x.ne(y)


@op(type=bool_type("less", ALL), cases=same_shaped(2, ALL), dtypes=ALL, promote="numeric")
@ieee
def less(x: Array, y: Array) -> Array:
    """Whether x < y; False < True.

    >>> less(np.array([1.0, 2.0, np.nan]), np.array([2.0, 2.0, 1.0]))
    array([ True, False, False])
    """
    return np.less(x, y)


@less.lower
def less_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return _ordered(k, x) < _ordered(k, y)


@op(type=bool_type("less_equal", ALL), cases=same_shaped(2, ALL), dtypes=ALL, promote="numeric")
@ieee
def less_equal(x: Array, y: Array) -> Array:
    """Whether x <= y.

    >>> less_equal(np.array([1, 2, 3]), np.array([2, 2, 2]))
    array([ True,  True, False])
    """
    return np.less_equal(x, y)


@less_equal.lower
def less_equal_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return _ordered(k, x) <= _ordered(k, y)


@op(type=bool_type("greater", ALL), cases=same_shaped(2, ALL), dtypes=ALL, promote="numeric")
@ieee
def greater(x: Array, y: Array) -> Array:
    """Whether x > y.

    >>> greater(np.array([1, 2, 3]), np.array([2, 2, 2]))
    array([False, False,  True])
    """
    return np.greater(x, y)


@greater.lower
def greater_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return _ordered(k, x) > _ordered(k, y)


@op(type=bool_type("greater_equal", ALL), cases=same_shaped(2, ALL), dtypes=ALL, promote="numeric")
@ieee
def greater_equal(x: Array, y: Array) -> Array:
    """Whether x >= y.

    >>> greater_equal(np.array([1, 2, 3]), np.array([2, 2, 2]))
    array([False,  True,  True])
    """
    return np.greater_equal(x, y)


@greater_equal.lower
def greater_equal_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return _ordered(k, x) >= _ordered(k, y)


# -- kinds of numbers ------------------------------------------------------------------------------


@op(
    type=bool_type("isnan", EVERY),
    cases=unary(EVERY),
    dtypes=EVERY,
    promote="numeric",
)
@ieee
def isnan(x: Array) -> Array:
    """Whether x is not a number; integers and booleans always are.

    >>> isnan(np.array([1.0, np.inf, np.nan]))
    array([False, False,  True])
    """
    return np.isnan(x)


@isnan.lower
def isnan_lower(k: KernelBuilder, x: Val) -> Val:
    return x.ne(x) if x.dtype.is_float else k.const(False, bool_)


@op(
    type=bool_type("isinf", EVERY),
    cases=unary(EVERY),
    dtypes=EVERY,
    promote="numeric",
)
@ieee
def isinf(x: Array) -> Array:
    """Whether x is infinite, of either sign.

    >>> isinf(np.array([1.0, -np.inf, np.nan]))
    array([False,  True, False])
    """
    return np.isinf(x)


@isinf.lower
def isinf_lower(k: KernelBuilder, x: Val) -> Val:
    return k.abs(x).eq(np.inf) if x.dtype.is_float else k.const(False, bool_)


@op(
    type=bool_type("isfinite", EVERY),
    cases=unary(EVERY),
    dtypes=EVERY,
    promote="numeric",
)
@ieee
def isfinite(x: Array) -> Array:
    """Whether x is a number and not infinite.

    >>> isfinite(np.array([1.0, -np.inf, np.nan]))
    array([ True, False, False])
    """
    return np.isfinite(x)


@isfinite.lower
def isfinite_lower(k: KernelBuilder, x: Val) -> Val:
    return k.abs(x) < np.inf if x.dtype.is_float else k.const(True, bool_)


@op(type=bool_type("signbit", ALL), cases=unary(ALL), dtypes=ALL, promote="numeric")
@ieee
def signbit(x: Array) -> Array:
    """Whether the sign bit of x is set, also of zeros; of integers, whether they are negative.

    >>> signbit(np.array([1.0, -0.0])), signbit(np.array([1, -1]))
    (array([False,  True]), array([False,  True]))
    """
    return np.signbit(x) if x.dtype.kind not in "biu" else np.asarray(x < 0)


@signbit.lower
def signbit_lower(k: KernelBuilder, x: Val) -> Val:
    if x.dtype.is_float:
        return k.bitcast(x, i32 if x.dtype is f32 else i64) < 0
    return x < 0 if x.dtype.is_signed else k.const(False, bool_)


# -- truth values ----------------------------------------------------------------------------------


@op(type=same_type("logical_and", BOOL), cases=same_shaped(2, BOOL), dtypes=BOOL, promote="bool")
def logical_and(x: Array, y: Array) -> Array:
    """Whether both hold.

    >>> logical_and(np.array([True, True]), np.array([True, False]))
    array([ True, False])
    """
    return np.logical_and(x, y)


@logical_and.lower
def logical_and_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return x & y


@op(type=same_type("logical_or", BOOL), cases=same_shaped(2, BOOL), dtypes=BOOL, promote="bool")
def logical_or(x: Array, y: Array) -> Array:
    """Whether at least one holds.

    >>> logical_or(np.array([False, True]), np.array([False, False]))
    array([False,  True])
    """
    return np.logical_or(x, y)


@logical_or.lower
def logical_or_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return x | y


@op(type=same_type("logical_xor", BOOL), cases=same_shaped(2, BOOL), dtypes=BOOL, promote="bool")
def logical_xor(x: Array, y: Array) -> Array:
    """Whether exactly one holds.

    >>> logical_xor(np.array([True, True]), np.array([True, False]))
    array([False,  True])
    """
    return np.logical_xor(x, y)


@logical_xor.lower
def logical_xor_lower(k: KernelBuilder, x: Val, y: Val) -> Val:
    return x ^ y


@op(type=same_type("logical_not", BOOL), cases=unary(BOOL), dtypes=BOOL, promote="bool")
def logical_not(x: Array) -> Array:
    """Whether x does not hold.

    >>> logical_not(np.array([True, False]))
    array([False,  True])
    """
    return np.logical_not(x)


@logical_not.lower
def logical_not_lower(k: KernelBuilder, x: Val) -> Val:
    return ~x


# -- choice ----------------------------------------------------------------------------------------


def where_type(cond: ArrayType, x: ArrayType, y: ArrayType) -> ArrayType:
    check_same("where", (x, y))
    check_dtype("where", x.dtype, EVERY)
    if cond.dtype is not bool_:
        raise DtypeError(
            f"where: the condition must be bool, got {cond}", hint="convert it with astype"
        )
    if cond.shape != x.shape:
        raise ShapeError(
            f"where: the condition {cond} and the choices {x} differ in shape",
            hint="broadcast them first",
        )
    return x


def _where_cases(rng: Rng) -> Case:
    dtype, shape = pick(rng, EVERY), random_shape(rng)
    x, y = random_array(rng, dtype, shape), random_array(rng, dtype, shape)
    return Case((random_array(rng, bool_, shape), x, y))


@op(type=where_type, cases=_where_cases, dtypes=EVERY, promote="where")
def where(cond: Array, x: Array, y: Array) -> Array:
    """x where the condition holds, else y; bit-exact, the other side never matters.

    >>> where(np.array([True, False]), np.array([1.0, np.nan]), np.array([np.nan, 2.0]))
    array([1., 2.])
    """
    return np.where(cond, x, y)


@where.lower
def where_lower(k: KernelBuilder, cond: Val, x: Val, y: Val) -> Val:
    return k.select(cond, x, y)


where.transpose(
    None,
    lambda ct, cond, x, y: where(cond, ct, zeros_like(ct)),
    lambda ct, cond, x, y: where(cond, zeros_like(ct), ct),
)


@where.jvp_of_all
def where_jvp(
    tangents: tuple[Node | None, ...], z: Node, cond: Node, x: Node, y: Node
) -> Node | None:
    _, dx, dy = tangents
    if dx is None and dy is None:
        return None
    result: Node = where(cond, *(zeros_like(z) if t is None else t for t in (dx, dy)))
    return result
