"""Linear algebra, operands: arrays as matrices of floats, and the ops of `ops.linalg` on them.

Receives what users pass; gives arrays of one float type, checked, and results of ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tetrad.arrays.indexing import reshaped
from tetrad.arrays.manipulation import (
    moveaxis,
)
from tetrad.core.config import config
from tetrad.core.dtypes import DType, bf16, f16, f32
from tetrad.core.errors import ShapeError, TetradError
from tetrad.core.op import REGISTRY
from tetrad.core.promotion import as_float
from tetrad.core.sizes import Shape, product
from tetrad.ops.rules import broadcast_shapes
from tetrad.tracing.array import Array, fail, located
from tetrad.tracing.operands import common, convert, expand


def run_op(name: str, *args: Array, **params: Any) -> Any:
    """An op; its complaints name the user's line."""
    try:
        return REGISTRY[name](*args, **params)
    except TetradError as error:
        raise located(error) from None


def numbers(*args: Any) -> tuple[list[Array], DType]:
    """The operands as arrays of one float (or complex) type LAPACK knows, and the type the result
    shall have."""
    arrays = common(args)
    dtype = as_float(arrays[0].dtype)
    wide = f32 if dtype in (f16, bf16) else dtype
    return [convert(x, wide) for x in arrays], dtype


def policy(on_failure: str | None, singular: str | None = None) -> str:
    """What a matrix without an answer leads to: what is asked for, or the setting."""
    asked = singular if on_failure is None else on_failure
    return str(config.linalg_failure) if asked is None else asked


def matrix_operand(name: str, x: Any) -> tuple[Array, DType]:
    (a,), dtype = numbers(x)
    if a.ndim < 2:
        fail(ShapeError, f"{name}: expected a matrix, or matrices along leading axes, got {a.type}")
    return a, dtype


def square_operand(name: str, x: Any) -> tuple[Array, DType]:
    a, dtype = matrix_operand(name, x)
    if a.shape[-1] != a.shape[-2]:
        fail(ShapeError, f"{name}: expected square matrices, got {a.type}")
    return a, dtype


def sides(name: str, x1: Any, x2: Any) -> tuple[Array, Array, DType]:
    """A matrix and a right side of at least two axes, whose sizes fit."""
    (a, b), dtype = numbers(x1, x2)
    square_operand(name, a)
    if not b.ndim:
        fail(ShapeError, f"{name}: the right side needs axes, got {b.type}")
    rows = b.shape[0 if b.ndim == 1 else -2]
    if rows != a.shape[-1]:
        message = (
            f"{name}: matrices {a.type} have {a.shape[-1]} rows, the right side {b.type} has {rows}"
        )
        fail(
            ShapeError,
            message,
            "a right side with more than one axis holds matrices; b[..., None] makes columns",
        )
    return a, reshaped(b, (*b.shape, 1)) if b.ndim == 1 else b, dtype


def common_lead(name: str, a: Array, b: Array) -> Shape:
    try:
        return broadcast_shapes(
            name, a.type.with_shape(a.shape[:-2]), b.type.with_shape(b.shape[:-2])
        )
    except TetradError as error:
        raise located(error) from None


def solved(name: str, a: Array, b: Array, fixed: Sequence[Array], **params: Any) -> Array:
    """An op on matrices (`fixed`: they, or their factors) and right sides, leading axes broadcast.

    One matrix for many right sides: these become more columns.
    """
    if a.ndim == 2 and b.ndim > 2:
        rows, count = b.shape[-2], product(b.shape[:-2])
        wide = moveaxis(reshaped(b, (count, *b.shape[-2:])), 0, 1)
        x = run_op(name, *fixed, reshaped(wide, (rows, count * b.shape[-1])), **params)
        return reshaped(moveaxis(reshaped(x, (rows, count, b.shape[-1])), 0, 1), b.shape)
    lead, own = common_lead(name, a, b), a.ndim - 2
    result: Array = run_op(
        name,
        *(expand(x, (*lead, *x.shape[own:])) for x in fixed),
        expand(b, (*lead, *b.shape[-2:])),
        **params,
    )
    return result
