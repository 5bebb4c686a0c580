"""passes.pipeline: the whole list keeps the meaning, comes to rest, shares nested graphs, and can
be watched."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.graph.graphs import arg, assert_same_result, close, count, graphs
from tetrad.core.dtypes import f32, i32
from tetrad.core.errors import FlagError
from tetrad.core.sizes import Dim
from tetrad.graph.build import call, make_call, make_constant, make_graph, make_item
from tetrad.graph.nodes import Graph
from tetrad.graph.verify import verify
from tetrad.ops.arithmetic import add, multiply, negative
from tetrad.ops.movement import expand, reshape, slice_, transpose
from tetrad.ops.quotients import divide
from tetrad.passes.pipeline import PIPELINE, optimise
from tetrad.passes.rewrite import RuleLog


@pytest.fixture(autouse=True)
def verify_between_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_CHECK", "1")


@settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(graph=graphs(), seed=st.integers(0, 3))
def test_random_graphs_keep_their_meaning(graph: Graph, seed: int) -> None:
    after = optimise(graph)
    assert_same_result(graph, after, seed)
    assert optimise(after) is after


def scaled(shift: float) -> Graph:
    """x * 1 + shift, a graph to be called."""
    x = arg(0, f32, 13)
    one, other = (expand(make_constant(np.float32(v)), shape=(13,)) for v in (1, shift))
    return make_graph("scaled", [x], [add(multiply(x, one), other)])


def test_a_graph_called_often_is_optimised_once() -> None:
    x = arg(0, f32, 13)
    layer = scaled(2)
    value = x
    for _ in range(30):
        value = make_item(make_call(layer, [value]), 0)
    trace = RuleLog()
    after = optimise(close(value), trace)
    assert [str(f.rule.name) for f in trace.fired] == ["algebra.neutral_element"]
    assert len({node.param("graph") for node in after.nodes() if node.op is call}) == 1
    assert_same_result(close(value), after)


def test_graphs_inside_graphs_inside_graphs() -> None:
    x = arg(0, f32, 13)
    inner = scaled(3)
    middle = make_graph("middle", [x], [make_item(make_call(inner, [negative(negative(x))]), 0)])
    outer = close(make_item(make_call(middle, [x]), 0))
    after = optimise(outer)
    assert_same_result(outer, after)
    verify(after)
    assert optimise(after) is after
    assert "multiply" not in str(after) and "negative" not in str(after)


def test_the_users_line_is_kept() -> None:
    x = arg(0, f32, 2, 29)
    value = transpose(transpose(x, perm=(1, 0)), perm=(1, 0))
    two = expand(make_constant(np.float32(2)), shape=(2, 29))
    line = sys._getframe().f_lineno + 1
    halved = divide(add(x, value), two)
    after = optimise(close(halved))
    (node,) = [n for n in after.nodes() if n.op is multiply]
    assert node.source is not None and (node.source.line, node.source.file) == (line, __file__)


def test_symbolic_sizes() -> None:
    seq = Dim("seq", max=64)
    x = arg(0, f32, seq, 4)
    flat = reshape(x, shape=(seq * 4,))
    again = reshape(flat, shape=(seq, 4))
    part = slice_(again, starts=(0, 0), sizes=(seq, 4), steps=(1, 1))
    one = expand(make_constant(np.float32(1)), shape=(seq, 4))
    before = close(add(multiply(part, one), transpose(transpose(x, perm=(1, 0)), perm=(1, 0))))
    after = optimise(before)
    assert [n.op.name for n in after.nodes()] == ["parameter", "add"]
    assert_same_result(before, after, dims={"seq": 5})


def test_deep_graphs_do_not_exhaust_the_stack() -> None:
    x = arg(0, i32)
    value = x
    for _ in range(5000):
        value = negative(multiply(value, x))
    after = optimise(close(value))
    assert count(after, multiply) == 5000


def test_nothing_is_printed_unasked(capsys: pytest.CaptureFixture[str]) -> None:
    optimise(scaled(5))
    assert capsys.readouterr() == ("", "")


def test_show_graph_and_passes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TETRAD_SHOW", "graph,passes")
    optimise(scaled(5))
    printed = capsys.readouterr().err
    assert printed.startswith("graph scaled(%0: f32[13]):")
    assert "algebra.neutral_element: multiply f32[13] -> parameter   # test_pipeline.py:" in printed
    assert "-  %3: f32[13] = multiply(%0, %2)" in printed


@pytest.mark.parametrize("name", [step.name for step in PIPELINE])
def test_show_one_pass(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TETRAD_SHOW", f"passes:{name}")
    optimise(close(arg(0, f32, 4), name="same"))
    assert capsys.readouterr().err == f"pass {name}: graph same: nothing to do\n"


def test_showing_an_unknown_pass_lists_the_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_SHOW", "passes:fold-everything")
    with pytest.raises(FlagError, match="passes: unroll, split, hoist, simplify"):
        optimise(scaled(5))
