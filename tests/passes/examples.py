"""One or more small graphs for every rule of the passes; the rule tests and the golden files walk
this table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.graph.graphs import arg, close
from tetrad.core.dtypes import bf16, bool_, f16, f32, f64, i8, i32, u8
from tetrad.core.sizes import Dim
from tetrad.graph.build import make_constant
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.arithmetic import abs_, add, maximum, multiply, negative, pow_, subtract
from tetrad.ops.compare import (
    equal,
    greater,
    less,
    logical_and,
    logical_not,
    logical_or,
    not_equal,
    where,
)
from tetrad.ops.convert import cast
from tetrad.ops.gather import gather
from tetrad.ops.matmul.op import matmul
from tetrad.ops.movement import (
    checkpoint_name,
    concat,
    expand,
    pad,
    reshape,
    slice_,
    stop_gradient,
    transpose,
)
from tetrad.ops.quotients import divide
from tetrad.ops.reduce import reduce_sum
from tetrad.passes.rewrite import full

EXAMPLES: dict[str, list[Graph]] = {}
seq = Dim("seq", max=64)
DIMS = {"seq": 5}


def example(rule: str) -> Callable[[Callable[[], tuple[Node, ...]]], None]:
    """The function's nodes, each as a graph of its own, are examples of the rule."""

    def add_examples(make: Callable[[], tuple[Node, ...]]) -> None:
        EXAMPLES.setdefault(rule, []).extend(
            close(node, name=rule.partition(".")[2]) for node in make()
        )

    return add_examples


def x(*shape: int) -> Node:
    return arg(0, f32, *(shape or (2, 3)))


def y(*shape: int) -> Node:
    return arg(1, f32, *(shape or (2, 3)))


def n() -> Node:
    return arg(0, i32, 4)


def t() -> Node:
    return arg(0, bool_, 4)


def like(node: Node, value: float) -> Node:
    return full(value, node.type)


# -- layout ----------------------------------------------------------------------------------------


@example("layout.nothing_to_stop")
def _() -> tuple[Node, ...]:
    return (stop_gradient(x()),)


@example("layout.nothing_to_name")
def _() -> tuple[Node, ...]:
    return (checkpoint_name(x(), called="kept"),)


@example("layout.compose_transposes")
def _() -> tuple[Node, ...]:
    back = transpose(transpose(x(2, 3, 4), perm=(1, 2, 0)), perm=(2, 0, 1))
    return back, transpose(transpose(x(2, 3, 4), perm=(1, 2, 0)), perm=(1, 2, 0))


@example("layout.transpose_in_order")
def _() -> tuple[Node, ...]:
    column = arg(0, f32, seq, 1)
    return (
        transpose(x(), perm=(0, 1)),
        transpose(x(2, 1, 3), perm=(1, 0, 2)),
        transpose(column, perm=(1, 0)),
    )


@example("layout.compose_reshapes")
def _() -> tuple[Node, ...]:
    return reshape(reshape(x(), shape=(6,)), shape=(3, 2)), reshape(
        reshape(x(), shape=(6,)), shape=(2, 3)
    )


@example("layout.reshape_to_itself")
def _() -> tuple[Node, ...]:
    return reshape(x(), shape=(2, 3)), reshape(arg(0, f32, seq, 3), shape=(seq, 3))


@example("layout.compose_expands")
def _() -> tuple[Node, ...]:
    return (expand(expand(x(1, 3), shape=(2, 3)), shape=(4, 2, 3)),)


@example("layout.expand_without_repeating")
def _() -> tuple[Node, ...]:
    return expand(x(), shape=(2, 3)), expand(x(), shape=(1, 2, 3))


@example("layout.move_repeated_element")
def _() -> tuple[Node, ...]:
    repeated = expand(arg(0, f32), shape=(2, 3))
    piece = slice_(repeated, starts=(0, 1), sizes=(2, 2), steps=(1, 1))
    return reshape(repeated, shape=(6,)), transpose(repeated, perm=(1, 0)), piece


@example("layout.regroup_before_repeating")
def _() -> tuple[Node, ...]:
    bias, values = expand(x(3), shape=(2, 4, 3)), expand(x(2, 4, 1), shape=(2, 4, 3))
    rows = expand(arg(0, f32, seq, 4, 1), shape=(seq, 4, 3))
    return (
        reshape(bias, shape=(8, 3)),
        reshape(values, shape=(8, 3)),
        reshape(rows, shape=(seq * 4, 3)),
    )


@example("layout.slice_everything")
def _() -> tuple[Node, ...]:
    return (slice_(x(), starts=(0, 0), sizes=(2, 3), steps=(1, 1)),)


@example("layout.compose_slices")
def _() -> tuple[Node, ...]:
    backwards = slice_(x(10), starts=(9,), sizes=(5,), steps=(-2,))
    prefix = slice_(arg(0, f32, seq + 4), starts=(4,), sizes=(seq,), steps=(1,))
    return (
        slice_(backwards, starts=(1,), sizes=(2,), steps=(3,)),
        slice_(backwards, starts=(4,), sizes=(3,), steps=(-1,)),
        slice_(prefix, starts=(0,), sizes=(1,), steps=(1,)),
    )


@example("layout.slice_one_piece")
def _() -> tuple[Node, ...]:
    joined = concat(x(3, 2), y(4, 2), axis=0)
    return (
        slice_(concat(y(2, 2), x(4, 2), axis=0), starts=(2, 0), sizes=(2, 2), steps=(1, 1)),
        slice_(joined, starts=(6, 1), sizes=(2, 1), steps=(-3, 1)),
    )


@example("layout.slice_inside_padding")
def _() -> tuple[Node, ...]:
    padded = pad(x(3, 4), low=(1, 0), high=(2, 0), value=7)
    symbolic = pad(arg(0, f32, 3, seq), low=(1, 0), high=(2, 0), value=7)
    return (
        slice_(padded, starts=(1, 0), sizes=(2, 4), steps=(2, 1)),
        slice_(symbolic, starts=(1, 0), sizes=(3, seq), steps=(1, 1)),
    )


@example("layout.concat_what_is_there")
def _() -> tuple[Node, ...]:
    return concat(x(), axis=0), concat(x(0, 3), y(), axis=0), concat(x(), y(0, 3), x(), axis=0)


@example("layout.pad_with_nothing")
def _() -> tuple[Node, ...]:
    return (pad(x(), low=(0, 0), high=(0, 0), value=1),)


@example("layout.work_before_repeating")
def _() -> tuple[Node, ...]:
    column, row = expand(x(2, 1), shape=(4, 2, 3)), expand(y(2, 1), shape=(4, 2, 3))
    return (
        add(column, row),
        multiply(column, like(column, 2)),
        negative(expand(x(1, 3), shape=(5, 3))),
        where(expand(arg(0, bool_), shape=(2, 3)), expand(arg(1, f32), shape=(2, 3)), like(x(), 1)),
    )


# -- algebra ---------------------------------------------------------------------------------------


@example("algebra.neutral_element")
def _() -> tuple[Node, ...]:
    one, zero = like(x(), 1), like(x(), 0)
    return (
        multiply(x(), one), multiply(one, x()), divide(x(), one), subtract(x(), zero), add(x(),
        like(x(), -0.0)),
        add(like(x(), -0.0), x()), multiply(n(), like(n(), 1)),
    )  # fmt: skip


@example("algebra.add_zero")
def _() -> tuple[Node, ...]:
    return add(n(), like(n(), 0)), add(like(n(), 0), n())


@example("algebra.multiply_by_zero")
def _() -> tuple[Node, ...]:
    return multiply(n(), like(n(), 0)), multiply(like(n(), 0), n())


@example("algebra.subtract_itself")
def _() -> tuple[Node, ...]:
    return (subtract(n(), n()),)


@example("algebra.double_negative")
def _() -> tuple[Node, ...]:
    return negative(negative(x())), negative(negative(n()))


@example("algebra.negative_is_shorter")
def _() -> tuple[Node, ...]:
    minus = like(x(), -1)
    return (
        multiply(x(), minus),
        multiply(minus, x()),
        subtract(like(x(), -0.0), x()),
        subtract(like(n(), 0), n()),
    )


@example("algebra.add_negative")
def _() -> tuple[Node, ...]:
    return add(x(), negative(y())), add(negative(y()), x())


@example("algebra.subtract_negative")
def _() -> tuple[Node, ...]:
    return (subtract(x(), negative(y())),)


@example("algebra.multiply_negatives")
def _() -> tuple[Node, ...]:
    return multiply(negative(x()), negative(y())), multiply(
        negative(arg(0, u8, 9)), negative(arg(1, u8, 9))
    )


@example("algebra.magnitude_has_no_sign")
def _() -> tuple[Node, ...]:
    return (
        abs_(abs_(x())),
        abs_(negative(x())),
        abs_(negative(arg(0, i8, 9))),
        abs_(abs_(arg(0, u8, 9))),
    )


@example("algebra.divide_by_power_of_two")
def _() -> tuple[Node, ...]:
    half = arg(0, f16, 30)
    return (
        divide(x(5, 7), like(x(5, 7), 8)),
        divide(x(), like(x(), -0.25)),
        divide(half, like(half, 2.0**15)),
        divide(half, like(half, 2.0**-14)),
        divide(arg(0, bf16, 9), like(arg(0, bf16, 9), 2.0**100)),
    )


@example("algebra.second_power")
def _() -> tuple[Node, ...]:
    return pow_(x(), like(x(), 2)), pow_(n(), like(n(), 2))


@example("algebra.first_power")
def _() -> tuple[Node, ...]:
    return pow_(x(), like(x(), 1)), pow_(n(), like(n(), 1))


@example("algebra.choice_is_known")
def _() -> tuple[Node, ...]:
    true, false = (full(value, x().type.with_dtype(bool_)) for value in (True, False))
    return (
        where(less(x(), y()), x(), x()),
        where(true, x(), like(x(), 1)),
        where(false, like(x(), 1), x()),
    )


@example("algebra.choice_of_the_other")
def _() -> tuple[Node, ...]:
    return (where(logical_not(less(x(), y())), x(), y()),)


@example("algebra.same_operand_twice")
def _() -> tuple[Node, ...]:
    return maximum(x(), x()), logical_and(t(), t()), logical_or(t(), t())


@example("algebra.never_holds")
def _() -> tuple[Node, ...]:
    return less(x(), x()), greater(x(), x()), not_equal(n(), n())


@example("algebra.always_holds")
def _() -> tuple[Node, ...]:
    return (equal(n(), n()),)


@example("algebra.double_not")
def _() -> tuple[Node, ...]:
    return (logical_not(logical_not(t())),)


@example("algebra.neutral_truth")
def _() -> tuple[Node, ...]:
    true, false = like(t(), True), like(t(), False)
    return (
        logical_and(t(), true),
        logical_and(true, t()),
        logical_or(t(), false),
        logical_or(false, t()),
    )


@example("algebra.and_false")
def _() -> tuple[Node, ...]:
    return logical_and(t(), like(t(), False)), logical_and(like(t(), False), t())


@example("algebra.or_true")
def _() -> tuple[Node, ...]:
    return logical_or(t(), like(t(), True)), logical_or(like(t(), True), t())


@example("algebra.cast_to_itself")
def _() -> tuple[Node, ...]:
    return (cast(x(), dtype=f32),)


@example("algebra.cast_through_wider")
def _() -> tuple[Node, ...]:
    half, small = arg(0, f16, 30), arg(0, i8, 30)
    return (
        cast(cast(half, dtype=f32), dtype=f16),
        cast(cast(half, dtype=f64), dtype=i8),
        cast(cast(small, dtype=i32), dtype=u8),
        cast(cast(small, dtype=f32), dtype=i32),
    )


# -- fold ------------------------------------------------------------------------------------------


@example("fold.one_value_is_broadcast")
def _() -> tuple[Node, ...]:
    return (
        add(x(), make_constant(np.full((2, 3), 2, np.float32))),
        make_constant(np.full(5, np.nan, np.float16)),
    )


@example("fold.same_bytes")
def _() -> tuple[Node, ...]:
    return (
        multiply(x(3, 2), reshape(make_constant(np.arange(6, dtype=np.float32)), shape=(3, 2))),
    )


@example("fold.compute_now")
def _() -> tuple[Node, ...]:
    weights = make_constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    table, where_ = (
        make_constant(np.array([10, 20, 30], np.int32)),
        make_constant(np.array([2, 0], np.int32)),
    )
    return (
        add(x(3, 2), transpose(weights, perm=(1, 0))),
        multiply(weights, like(weights, 3)),
        gather(table, where_, axis=0),
        add(make_constant(np.int32(2)), make_constant(np.int32(3))),
    )


# -- regroup ---------------------------------------------------------------------------------------


def product_in_groups() -> Node:
    """[2, 3, 8]: a product of six rows."""
    return reshape(matmul(x(6, 4), y(4, 8)), shape=(2, 3, 8))


@example("regroup.work_before_regrouping")
def _() -> tuple[Node, ...]:
    bias = expand(arg(2, f32, 8), shape=(2, 3, 8))
    rows = reshape(matmul(arg(0, f32, seq * 2, 4), y(4, 8)), shape=(seq, 2, 8))
    more = expand(arg(2, f32, 1, 1, 8), shape=(seq, 2, 8))
    return (
        add(product_in_groups(), bias),
        multiply(arg(2, f32, 2, 3, 8), product_in_groups()),
        negative(add(rows, more)),
        multiply(product_in_groups(), expand(arg(2, f32, 2, 3, 1), shape=(2, 3, 8))),
        negative(reshape(abs_(reduce_sum(matmul(x(6, 5), y(5, 3)), axes=(1,))), shape=(2, 3, 1))),
    )


@example("regroup.reduce_before_regrouping")
def _() -> tuple[Node, ...]:
    return (reduce_sum(product_in_groups(), axes=(2,)),)


@example("regroup.regroup_before_slicing")
def _() -> tuple[Node, ...]:
    part = slice_(product_in_groups(), starts=(0, 0, 4), sizes=(2, 3, 4), steps=(1, 1, 1))
    tokens = slice_(arg(0, f32, seq, 12), starts=(0, 4), sizes=(seq, 8), steps=(1, 1))
    return reshape(part, shape=(2, 3, 2, 2)), reshape(tokens, shape=(seq, 2, 4))
