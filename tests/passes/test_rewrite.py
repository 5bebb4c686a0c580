"""passes.rewrite: patterns match what they say, rules run to rest, and what never rests is
named."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from tests.graph.graphs import arg, close, count
from tetrad.core.dtypes import bf16, f32, i32
from tetrad.core.errors import CompileError
from tetrad.graph.build import make_constant
from tetrad.graph.nodes import Node
from tetrad.ops.arithmetic import add, multiply, negative, subtract
from tetrad.ops.movement import expand, transpose
from tetrad.ops.quotients import divide
from tetrad.ops.reduce import reduce_sum
from tetrad.passes.rewrite import RuleLog, Rules, constant_value, full, match, var

x, y, p = var("x"), var("y"), var("p")
# Sizes no other test uses: an equal node that is alive elsewhere would bring its own source line.
a, b = arg(0, f32, 7, 11), arg(1, f32, 7, 11)


def test_variables_bind_nodes_and_params() -> None:
    assert match(transpose(x, perm=p), transpose(a, perm=(1, 0))) == {"x": a, "p": (1, 0)}
    assert match(transpose(x, perm=(0, 1)), transpose(a, perm=(1, 0))) is None
    assert match(add(x, y), multiply(a, b)) is None


def test_all_params_must_be_named() -> None:
    assert match(reduce_sum(x), reduce_sum(a, axes=(0,))) is None


def test_a_variable_used_twice_is_one_thing() -> None:
    assert match(x + x, add(a, a)) == {"x": a}
    assert match(x + x, add(a, b)) is None
    twice = transpose(transpose(x, perm=p), perm=p)
    assert match(twice, transpose(transpose(a, perm=(1, 0)), perm=(1, 0))) is not None
    assert match(twice, transpose(transpose(a, perm=(0, 1)), perm=(1, 0))) is None


def test_operators_build_patterns() -> None:
    for pattern, node in [
        (x + y, add(a, b)),
        (x - y, subtract(a, b)),
        (x * y, multiply(a, b)),
        (x / y, divide(a, b)),
        (2 + x, add(full(2, a.type), a)),
        (2 - x, subtract(full(2, a.type), a)),
        (2 * x, multiply(full(2, a.type), a)),
        (2 / x, divide(full(2, a.type), a)),
    ]:
        assert match(pattern, node) is not None
    assert match(-x, negative(a)) == {"x": a}


def test_numbers_match_constants_of_that_value() -> None:
    assert match(x + 0, add(a, full(0, a.type))) is not None
    assert match(x + 0, add(a, full(-0.0, a.type))) is None
    assert match(x + -0.0, add(a, full(-0.0, a.type))) is not None
    assert match(x + 0, add(a, b)) is None


def test_where_and_ops_narrow_a_variable() -> None:
    assert match(var("n", where=lambda n: n.type.rank == 1), a) is None
    assert match(var("n", ops=(add, multiply)), multiply(a, b)) is not None
    assert match(var("n", ops=(add,)), multiply(a, b)) is None
    assert match(transpose(x, perm=var("p", ops=(add,))), transpose(a, perm=(1, 0))) is None


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (np.float32(2.5), 2.5),
        (np.full((2, 3), 7, np.int32), 7),
        (np.array([True, True]), True),
        (np.full(3, 1.5, bf16.np), 1.5),
        (np.array([0.0, -0.0], np.float32), None),
        (np.array([1, 2], np.int32), None),
        (np.zeros(0, np.float32), None),
        (np.concatenate([np.zeros(5000), np.ones(1)]).astype(np.float32), None),
    ],
)
def test_constant_value(array: np.ndarray, value: object) -> None:
    node = make_constant(np.asarray(array))
    assert constant_value(node) == value
    assert constant_value(expand(node, shape=(4, *node.type.shape))) == value
    assert type(constant_value(node)) is type(value)


def test_only_constants_have_a_value() -> None:
    assert constant_value(a) is None


def swap_add() -> Rules:
    rules = Rules("swap")

    @rules.rule(x + y)
    def to_multiply(x: Node, y: Node) -> Node:
        """x + y  ->  x * y."""
        return multiply(x, y)

    return rules


def test_every_place_is_rewritten_and_logged() -> None:
    trace = RuleLog()
    after = swap_add().apply(close(add(add(a, b), negative(add(b, a)))), trace)
    assert count(after, add) == 0
    assert [f.rule.name for f in trace.fired] == ["swap.to_multiply"] * 3
    assert str(trace.fired[0]).startswith(
        "swap.to_multiply: add f32[7,11] -> multiply   # test_rewrite.py:"
    )


def test_a_node_can_be_rewritten_alone() -> None:
    assert swap_add().apply(add(a, b)) is multiply(a, b)


def test_rules_may_decline_and_the_first_that_fits_fires() -> None:
    rules = Rules("choice")

    @rules.rule(x + y)
    def declines(x: Node, y: Node) -> Node | None:
        return None

    @rules.rule(x + y)
    def accepts(x: Node, y: Node) -> Node | None:
        return subtract(x, y)

    assert rules.apply(add(a, b)) is subtract(a, b)


def test_sets_of_rules_join() -> None:
    rules = Rules("undo")

    @rules.rule(x * y)
    def to_subtract(x: Node, y: Node) -> Node:
        return subtract(x, y)

    joined = Rules("both", swap_add(), rules)
    assert joined.apply(add(a, b)) is subtract(a, b)
    assert [r.name for r in joined.rules] == ["swap.to_multiply", "undo.to_subtract"]


def test_rules_that_undo_each_other_are_named() -> None:
    rules = Rules("undo")

    @rules.rule(x * y)
    def to_add(x: Node, y: Node) -> Node:
        return add(x, y)

    with pytest.raises(CompileError, match=r"do not come to rest: swap\.to_multiply, undo\.to_add"):
        Rules("both", swap_add(), rules).apply(add(a, b))


def test_rules_that_grow_for_ever_are_named() -> None:
    rules = Rules("growth")

    @rules.rule(negative(x))
    def deeper(x: Node) -> Node:
        return negative(add(x, x))

    with pytest.raises(CompileError, match=r"growth\.deeper"):
        rules.apply(negative(a))


def test_a_rule_that_changes_the_type_is_a_defect() -> None:
    rules = Rules("wrong")

    @rules.rule(negative(x))
    def other_type(x: Node) -> Node:
        return transpose(x, perm=(1, 0))

    with pytest.raises(CompileError, match=r"wrong\.other_type turned"):
        rules.apply(negative(a))


def test_what_a_rule_builds_stands_for_the_users_line() -> None:
    line = sys._getframe().f_lineno + 1
    after = swap_add().apply(add(arg(0, f32, 77), arg(1, f32, 77)))
    assert after.source is not None and after.source.line == line


def test_time_is_linear() -> None:
    value = arg(0, i32)
    for _ in range(10_000):
        value = add(value, arg(0, i32))
    start = time.perf_counter()
    after = swap_add().apply(close(value))
    assert count(after, multiply) == 10_000
    assert time.perf_counter() - start < 10  # a quadratic engine takes minutes
