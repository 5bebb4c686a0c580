"""Ops, running sums and products along an axis, from left to right, and the product of complex
numbers, whose parts are multiplied in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tetrad.core.dtypes import f32, f64
from tetrad.core.op import Case, op
from tetrad.core.types import ArrayType
from tetrad.graph.build import filled, make_graph, make_parameter
from tetrad.graph.loops import make_scan
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import batched_axis, full_like, moved, run, sliced, zeros_like
from tetrad.ops.cases import Rng, exact_array, line_shape, pick, unit_array
from tetrad.ops.movement import flipped
from tetrad.ops.rules import ANY_NUMBERS, Array, check_axis, check_dtype, check_same, ieee

# -- running sum -----------------------------------------------------------------------------------


WIDE = {np.dtype(np.float32): np.float64}
WIDE_SUMS = WIDE | {np.dtype(np.complex64): np.complex128}  # the sums of both parts


def held_wide(
    function: Callable[..., Array], x: Array, axis: int, wide: Mapping[Any, Any] = WIDE
) -> Array:
    """A running sum or product; of f32 in f64, where the error does not grow with the length."""
    return function(x, axis, dtype=wide.get(x.dtype, x.dtype)).astype(x.dtype)


def cumsum_type(x: ArrayType, *, axis: int, exclusive: bool = False) -> ArrayType:
    check_dtype("cumsum", x.dtype, ANY_NUMBERS)
    check_axis("cumsum", axis, x)
    return x


def _cumsum_cases(rng: Rng) -> Case:
    shape = line_shape(rng)
    settings = {"axis": int(rng.integers(len(shape))), "exclusive": bool(rng.integers(2))}
    return Case((exact_array(rng, pick(rng, ANY_NUMBERS), shape),), settings)


@op(type=cumsum_type, kind="special", cases=_cumsum_cases, dtypes=ANY_NUMBERS, public=False)
@ieee
def cumsum(x: Array, *, axis: int, exclusive: bool = False) -> Array:
    """Sums of everything up to each element along an axis, from left to right; without the element
    when exclusive. Those of f32 and of halves are held as f64; each is rounded as it is written.

    >>> cumsum(np.array([[1, 2, 3, 4]]), axis=1)
    array([[ 1,  3,  6, 10]])
    >>> cumsum(np.array([[1, 2, 3, 4]]), axis=1, exclusive=True)
    array([[0, 1, 3, 6]])
    """
    # sums start from +0, so none is -0
    sums = held_wide(np.cumsum, x, axis, WIDE_SUMS) + x.dtype.type(0)
    if not exclusive or not x.shape[axis]:
        return sums
    first = np.zeros_like(np.take(sums, [0], axis))
    return np.concatenate([first, np.delete(sums, -1, axis)], axis)


def _cumsum_back(ct: Node, x: Node, *, axis: int, exclusive: bool = False) -> Node:
    """Sums from the other end."""
    return flipped(cumsum(flipped(ct, axis), axis=axis, exclusive=exclusive), axis)


cumsum.transpose(_cumsum_back)
cumsum.batch(batched_axis(cumsum, axis=1))


# -- running product -------------------------------------------------------------------------------


def cumprod_type(x: ArrayType, *, axis: int) -> ArrayType:
    check_dtype("cumprod", x.dtype, ANY_NUMBERS)
    check_axis("cumprod", axis, x)
    return x


def _cumprod_cases(rng: Rng) -> Case:
    shape = line_shape(rng)
    return Case(
        (unit_array(rng, pick(rng, ANY_NUMBERS), shape),), {"axis": int(rng.integers(len(shape)))}
    )


@op(type=cumprod_type, kind="special", cases=_cumprod_cases, dtypes=ANY_NUMBERS, public=False)
@ieee
def cumprod(x: Array, *, axis: int) -> Array:
    """Products of everything up to each element along an axis, from left to right; integers wrap,
    and those of f32 and of halves are held as f64.

    >>> cumprod(np.array([[1, 2, 3, 4]]), axis=1)
    array([[ 1,  2,  6, 24]])
    """
    return held_wide(np.cumprod, x, axis)


@cumprod.jvp
def cumprod_jvp(t: Node, y: Node, x: Node, *, axis: int) -> Node:
    """Row by row, c becomes c * x + (the product before) * t: no quotients, so elements may be
    0."""
    length = x.type.shape[axis]
    if length == 0:
        return zeros_like(y)
    before = run(
        "concat", full_like(sliced(y, axis, 0, 1), 1), sliced(y, axis, 0, length - 1), axis=axis
    )
    rows = [moved(v, axis, 0) for v in (x, before, t)]
    kind = x.type.with_shape(rows[0].type.shape[1:])
    c, factor, product, change = inputs = [make_parameter(kind, i) for i in range(4)]
    after = c * factor + product * change
    body = make_graph("cumprod_jvp", inputs, [after, after])
    _, changes = make_scan(body, [], [filled(0, kind)], rows, length=length)
    return moved(changes, 0, axis)


cumprod.batch(batched_axis(cumprod, axis=1))


def cumprod_parts_type(re: ArrayType, im: ArrayType) -> tuple[ArrayType, ArrayType]:
    check_same("cumprod_parts", (re, im))
    check_dtype("cumprod_parts", re.dtype, (f32, f64))
    check_axis("cumprod_parts", 0, re)
    return re, im


@op(type=cumprod_parts_type, kind="special", public=False)
def cumprod_parts(re: Array, im: Array) -> tuple[Array, Array]:
    """The parts of the products of complex numbers up to each along the first axis.

    >>> cumprod_parts(np.array([0.0, 3.0]), np.array([1.0, 4.0]))
    (array([ 0., -4.]), array([1., 3.]))
    """
    reals, imags = re.copy(), im.copy()
    for i in range(1, len(re)):
        a, b, c, d = reals[i - 1], imags[i - 1], re[i], im[i]
        reals[i], imags[i] = a * c - b * d, a * d + b * c
    return reals, imags


cumprod_parts.not_differentiable("compiling puts it in, after derivatives were taken")


# -- product of complex numbers --------------------------------------------------------------------


def product_parts_type(re: ArrayType, im: ArrayType) -> tuple[ArrayType, ArrayType]:
    check_same("product_parts", (re, im))
    check_dtype("product_parts", re.dtype, (f32, f64))
    check_axis("product_parts", 0, re)
    kind = re.with_shape(re.shape[1:])
    return kind, kind


@op(type=product_parts_type, kind="special", public=False)
def product_parts(re: Array, im: Array) -> tuple[Array, Array]:
    """The parts of the product of complex numbers along the first axis, in order; of none it is 1.

    >>> product_parts(np.array([0.0, 3.0]), np.array([1.0, 4.0]))
    (array(-4.), array(3.))
    """
    a, b = np.ones(re.shape[1:], re.dtype), np.zeros(re.shape[1:], re.dtype)
    for c, d in zip(re, im, strict=True):
        a, b = a * c - b * d, a * d + b * c
    return np.asarray(a), np.asarray(b)


product_parts.not_differentiable("compiling puts it in, after derivatives were taken")
