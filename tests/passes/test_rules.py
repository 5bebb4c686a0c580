"""passes.layout, passes.algebra, passes.regroup, passes.fold: every rule fires on its examples,
keeps the meaning, and is on file."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from tests.graph.graphs import arg, assert_same_result, close, count, random_inputs
from tests.passes.examples import DIMS, EXAMPLES
from tetrad.core.dtypes import (
    ARRAY_DTYPES,
    COMPILED_DTYPES,
    DType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i32,
    u8,
)
from tetrad.graph.build import constant, make_constant, make_graph
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Graph, Node
from tetrad.graph.text import to_text
from tetrad.graph.verify import verify
from tetrad.ops.arithmetic import abs_, add, multiply, negative, pow_, subtract
from tetrad.ops.compare import equal, not_equal
from tetrad.ops.convert import cast
from tetrad.ops.gather import gather
from tetrad.ops.linalg.factors import svd
from tetrad.ops.matmul.op import matmul
from tetrad.ops.movement import concat, expand, pad, reshape, slice_, transpose
from tetrad.ops.quotients import divide
from tetrad.ops.reduce import reduce_sum
from tetrad.ops.sort.op import topk
from tetrad.ops.transcendental import exp
from tetrad.passes import algebra as algebra_rules
from tetrad.passes import fold as fold_rules
from tetrad.passes.algebra import algebra, holds
from tetrad.passes.fold import fold
from tetrad.passes.layout import layout
from tetrad.passes.regroup import regroup
from tetrad.passes.rewrite import Rule, RuleLog, Rules, full
from tetrad.passes.simplify import simplify

SETS = (layout, algebra, regroup, fold)
RULES = {rule.name: rule for rules in SETS for rule in rules.rules}
CASES = [(RULES[name], graph) for name, found in EXAMPLES.items() for graph in found]


def only(rule: Rule) -> Rules:
    """A set with this rule alone."""
    alone = Rules("alone")
    alone.rule(*rule.patterns, licence=rule.licence)(rule.action)
    return alone


def test_every_rule_has_an_example() -> None:
    assert EXAMPLES.keys() == RULES.keys()


def test_every_rule_says_what_it_does() -> None:
    assert [name for name, rule in RULES.items() if " -> " not in rule.sentence] == []


@pytest.mark.parametrize(
    ("rule", "before"), CASES, ids=[f"{r.name}-{i}" for i, (r, _) in enumerate(CASES)]
)
def test_the_rule_fires_and_keeps_the_meaning(rule: Rule, before: Graph) -> None:
    trace = RuleLog()
    after = only(rule).apply(before, trace)
    verify(after)
    assert trace.fired
    if rule.licence is None:
        for seed in range(3):
            assert_same_result(before, after, seed, DIMS)


@pytest.mark.parametrize(
    ("rule", "before"), CASES, ids=[f"{r.name}-{i}" for i, (r, _) in enumerate(CASES)]
)
def test_all_rules_together_do_no_more_work(rule: Rule, before: Graph) -> None:
    after = simplify.apply(before)
    work = [sum(n.op.kind in ("elementwise", "reduce") for n in g.nodes()) for g in (before, after)]
    assert work[1] <= work[0]
    assert simplify.apply(after) is after
    if rule.licence is None:
        assert_same_result(before, after, 0, DIMS)


@pytest.mark.parametrize("rules", SETS, ids=lambda r: r.name)
def test_before_and_after_are_on_file(rules: Rules, golden: Callable[[str, str], None]) -> None:
    parts = []
    for rule in rules.rules:
        licence = f"# licence: {rule.licence}\n" if rule.licence else ""
        for before in EXAMPLES[rule.name]:
            texts = (to_text(g, sources=False) for g in (before, simplify.apply(before)))
            parts.append(f"# {rule.name}: {rule.sentence}\n{licence}" + "# ->\n".join(texts))
    golden(rules.name, "\n".join(parts))


def test_the_square_is_within_the_error_of_pow() -> None:
    rng = np.random.default_rng(0)
    for dtype in (f32, f16, bf16):
        x = arg(0, dtype, 1000)
        before = close(pow_(x, full(2, x.type)))
        values = [rng.standard_normal(1000).astype(dtype.np)]
        old, new = evaluate(before, values)[0], evaluate(algebra.apply(before), values)[0]
        assert count(algebra.apply(before), pow_) == 0
        assert (
            np.abs(old.view(f"i{dtype.nbytes}") - new.view(f"i{dtype.nbytes}")).max()
            <= pow_.ulps[dtype]
        )


# -- what must stay --------------------------------------------------------------------------------


def untouched() -> list[Node]:
    x, y, n, u = arg(0, f32, 2, 3), arg(1, f32, 2, 3), arg(0, i32, 4), arg(0, u8, 4)
    joined = concat(arg(0, f32, 3), arg(1, f32, 4), axis=0)
    padded = pad(arg(0, f32, 3), low=(1,), high=(1,), value=0)
    return [
        add(x, full(0, x.type)),  # turns -0.0 into 0.0
        subtract(x, full(-0.0, x.type)),
        multiply(x, full(0, x.type)),
        subtract(x, x),
        subtract(full(0, x.type), x),
        equal(x, x),
        not_equal(x, x),
        divide(x, full(3, x.type)),
        divide(x, full(2.0**-149, x.type)),  # its inverse is not an f32
        divide(arg(0, f64, 2), full(2.0**-1074, arg(0, f64, 2).type)),
        divide(x, full(float("inf"), x.type)),
        abs_(negative(u)),
        transpose(x, perm=(1, 0)),
        add(transpose(x, perm=(1, 0)), transpose(y, perm=(1, 0))),
        add(x, expand(arg(1, f32, 3), shape=(2, 3))),
        add(expand(arg(0, f32, 2, 1), shape=(2, 3)), expand(arg(1, f32, 3), shape=(2, 3))),
        slice_(joined, starts=(2,), sizes=(2,), steps=(1,)),
        slice_(padded, starts=(0,), sizes=(4,), steps=(1,)),
        cast(cast(n, dtype=f32), dtype=i32),  # f32 holds no 2**24 + 1
        cast(cast(arg(0, i8, 4), dtype=f32), dtype=u8),  # saturates; i8 to u8 wraps
        cast(cast(x, dtype=i32), dtype=f32),
        # not exact: compiled code must say what it gives
        exp(make_constant(np.array([1, 2], np.float32))),
        reduce_sum(make_constant(np.array([1, 2], np.float32)), axes=(0,)),
        matmul(*(make_constant(np.eye(2, dtype=np.float32)) for _ in range(2))),
    ]


@pytest.mark.parametrize("node", untouched(), ids=lambda n: n.op.name)
def test_what_would_change_a_bit_stays(node: Node) -> None:
    trace = RuleLog()
    assert simplify.apply(node, trace) is node
    assert trace.fired == []


# -- casts -----------------------------------------------------------------------------------------


def test_holds_agrees_with_numpy() -> None:
    """np.can_cast in safe mode allows int64 to float64 and the like; for the rest it is an
    oracle."""
    for narrow in ARRAY_DTYPES:
        for wide in ARRAY_DTYPES:
            if narrow.is_integer and wide.real.is_float:
                continue
            if "bf16" not in (narrow.short_name, wide.short_name):
                assert holds(wide, narrow) == np.can_cast(narrow.np, wide.np), (wide, narrow)


@pytest.mark.parametrize("narrow", [d for d in ARRAY_DTYPES if d.is_integer], ids=str)
@pytest.mark.parametrize("wide", [d for d in ARRAY_DTYPES if d.is_float], ids=str)
def test_floats_hold_integers_when_the_extremes_survive(narrow: DType, wide: DType) -> None:
    info = np.iinfo(narrow.np)
    edges = [info.max, info.max - 1, info.min, info.min + 1, info.max // 2]
    with np.errstate(over="ignore"):
        back = [float(np.asarray(float(v)).astype(wide.np)) for v in edges]
    survive = all(np.isfinite(b) and int(b) == v for b, v in zip(back, edges, strict=True))
    assert holds(wide, narrow) == survive


@pytest.mark.parametrize("given", COMPILED_DTYPES, ids=str)
def test_all_chains_of_two_casts(given: DType) -> None:
    for via, dtype in itertools.product(COMPILED_DTYPES, COMPILED_DTYPES):
        if not all(
            b.is_complex or b is bool_ for a, b in ((given, via), (via, dtype)) if a.is_complex
        ):
            continue  # an error
        before = close(cast(cast(arg(0, given, 60), dtype=via), dtype=dtype))
        assert_same_result(before, algebra.apply(before), seed=1)


# -- folding ---------------------------------------------------------------------------------------


def test_broadcasts_of_constants_take_no_memory() -> None:
    row = make_constant(np.arange(4, dtype=np.float32))
    grid = expand(row, shape=(5000, 4))
    node = simplify.apply(transpose(multiply(grid, grid), perm=(1, 0)))
    assert max(int(n.type.nbytes) for n in close(node).nodes() if n.op is constant) == 16
    zeros = simplify.apply(make_constant(np.zeros((1000, 1000), np.float32)))
    assert zeros.op is expand and zeros.inputs[0].type.shape == ()


def test_large_results_are_left_to_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_rules, "MAX_BYTES", 100)
    small, large = (make_constant(np.arange(n, dtype=np.float32)) for n in (25, 26))
    assert fold.apply(negative(small)).op is constant
    assert fold.apply(negative(large)).op is negative


def test_an_error_in_constants_is_left_to_run_time() -> None:
    node = gather(make_constant(np.arange(3)), make_constant(np.array([7])), axis=0)
    assert fold.apply(node) is node


def test_integer_sums_of_constants_are_folded() -> None:
    node = reduce_sum(make_constant(np.arange(10, dtype=np.int32)), axes=(0,))
    assert fold.apply(node).param("value").array == 45


def test_truth_values_have_the_operands_shape() -> None:
    n = arg(0, i32, 4, 2)
    node = algebra_rules.truth(True, n)
    assert (node.type.dtype, node.type.shape) == (bool_, (4, 2))
    assert random_inputs(close(equal(n, n)), 0)[0].shape == (4, 2)


def test_reshape_of_a_transpose_that_moves_only_ones_is_one_reshape() -> None:
    x = arg(0, f32, 1, 4, 1, 6)
    after = layout.apply(close(reshape(transpose(x, perm=(1, 0, 3, 2)), shape=(2, 12))))
    assert [n.op for n in after.nodes()][1:] == [reshape]


@pytest.mark.parametrize(
    "made",
    [svd(make_constant(np.eye(3, dtype=np.complex64))), topk(make_constant(np.arange(5)), k=3)],
    ids=["complex factors", "the greatest integers"],
)
def test_ops_with_several_results_are_not_folded(made: tuple[Node, ...]) -> None:
    """A constant has one result; it was taken for all of them."""
    graph = make_graph("f", [], made)
    assert fold.apply(graph) is graph
