"""Ops on complex numbers, in terms of their parts: the rule of each op that `passes.split` applies.

A complex operand arrives as a pair of nodes (real part, imaginary part), a real one as a node; a
complex result leaves as a pair. What moves elements moves both parts alike; functions have one part
each in `kernel.math.complex`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tetrad.core import lazy
from tetrad.core.dtypes import DType, bool_
from tetrad.core.op import REGISTRY, Op
from tetrad.core.sizes import product
from tetrad.graph.nodes import Node
from tetrad.ops.arithmetic import abs_, add, multiply, negative, round_, square, subtract
from tetrad.ops.calculus import cast as cast_to
from tetrad.ops.calculus import moved, zeros_like
from tetrad.ops.compare import (
    equal,
    isfinite,
    isinf,
    isnan,
    logical_and,
    logical_or,
    not_equal,
    where,
)
from tetrad.ops.complex import angle, complex_, conj, function_part, imag, join, part, real
from tetrad.ops.convert import cast
from tetrad.ops.dynamic.op import dynamic_slice, dynamic_update_slice
from tetrad.ops.gather import gather
from tetrad.ops.matmul.op import matmul
from tetrad.ops.movement import (
    checkpoint_name,
    concat,
    copy,
    expand,
    pad,
    reshape,
    slice_,
    stop_gradient,
    transpose,
)
from tetrad.ops.reduce import reduce_prod, reduce_sum
from tetrad.ops.running.op import cumprod, cumprod_parts, cumsum, product_parts
from tetrad.ops.scatter.op import scatter_add
from tetrad.ops.scatter.update import add_at, set_at
from tetrad.ops.transcendental import atan2

if TYPE_CHECKING:
    from tetrad.kernel.math import complex as kc
else:
    kc = lazy.later("tetrad.kernel.math.complex")

Pair = tuple[Node, Node]


# -- alike for both parts --------------------------------------------------------------------------


def each_part(op: Op) -> None:
    """The op on the real parts and on the imaginary parts; operands that are real belong to
    both."""

    def rule(*operands: Pair | Node, **params: Any) -> Pair:
        reals, imags = ([x[i] if isinstance(x, tuple) else x for x in operands] for i in (0, 1))
        return op(*reals, **params), op(*imags, **params)

    op.split(rule)


for alike in (add, subtract, negative, round_, where, reduce_sum, cumsum):
    each_part(alike)
for placed in (scatter_add, add_at, set_at):
    each_part(placed)
for movement in (transpose, reshape, expand, slice_, concat, copy, gather):
    each_part(movement)
for same in (stop_gradient, checkpoint_name):
    each_part(same)
for dynamic in (dynamic_slice, dynamic_update_slice):
    each_part(dynamic)


@pad.split
def pad_split(x: Pair, *, value: complex, **widths: Any) -> Pair:
    given = complex(value)
    return pad(x[0], value=given.real, **widths), pad(x[1], value=given.imag, **widths)


# -- products --------------------------------------------------------------------------------------


@multiply.split
def multiply_split(x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    return a * c - b * d, a * d + b * c


@square.split
def square_split(x: Pair) -> Pair:
    a, b = x
    return a * a - b * b, a * b + b * a


@matmul.split
def matmul_split(x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    return matmul(a, c) - matmul(b, d), matmul(a, d) + matmul(b, c)


@reduce_prod.split
def reduce_prod_split(x: Pair, *, axes: tuple[int, ...]) -> Pair:
    """The reduced axes become one, the first, which is walked in order."""
    shape = x[0].type.shape
    kept = tuple(i for i in range(len(shape)) if i not in axes)
    flat = (product(shape[i] for i in axes), *(shape[i] for i in kept))
    re, im = (reshape(transpose(p, perm=axes + kept), shape=flat) for p in x)
    result: Pair = product_parts(re, im)
    return result


@cumprod.split
def cumprod_split(x: Pair, *, axis: int) -> Pair:
    """Running products, the axis in front."""
    re, im = cumprod_parts(*(moved(p, axis, 0) for p in x))
    return moved(re, 0, axis), moved(im, 0, axis)


# -- comparisons, conversions, parts ---------------------------------------------------------------


def both(op: Op, join_: Op) -> None:
    """A question that is answered by the answers for the parts."""
    op.split(lambda *operands: join_(*(op(*(x[i] for x in operands)) for i in (0, 1))))


both(equal, logical_and)
both(isfinite, logical_and)
both(not_equal, logical_or)
both(isinf, logical_or)
both(isnan, logical_or)


@cast.split
def cast_split(x: Pair | Node, *, dtype: DType) -> Pair | Node:
    if not isinstance(x, tuple):
        made = cast_to(x, dtype.real)
        return made, zeros_like(made)
    if dtype is bool_:
        result: Node = logical_or(*(not_equal(p, zeros_like(p)) for p in x))
        return result
    return cast_to(x[0], dtype.real), cast_to(x[1], dtype.real)


complex_.split(lambda re, im: (re, im))
join.split(lambda re, im: (re, im))
part.split(lambda x, *, which: x[which])
real.split(lambda x: x[0])
imag.split(lambda x: x[1])
conj.split(lambda x: (x[0], -x[1]))
angle.split(lambda x: atan2(x[1], x[0]))
abs_.split(lambda x: function_part(*x, function="abs", which=0))


# -- functions -------------------------------------------------------------------------------------


def of_function(name: str) -> Callable[..., Pair]:
    def rule(*operands: Pair) -> Pair:
        parts = [p for pair in operands for p in pair]
        return function_part(*parts, function=name, which=0), function_part(
            *parts, function=name, which=1
        )

    return rule


for function in kc.FUNCTIONS:
    if REGISTRY[function].split_rule is None:
        REGISTRY[function].split(of_function(function))
