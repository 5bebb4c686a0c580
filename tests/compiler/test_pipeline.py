"""compiler.pipeline: the whole list keeps the meaning, comes to rest, shares nested graphs, and can
be watched."""

from __future__ import annotations

import sys
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tetrad as td
from tests.graph.graphs import arg, assert_same_result, close, count, graphs
from tetrad.compiler.driver import compile_graph
from tetrad.compiler.pipeline import PIPELINE, optimise
from tetrad.core.dtypes import f32, i32
from tetrad.core.errors import CompileError, FlagError
from tetrad.core.sizes import Dim
from tetrad.graph.build import call, make_call, make_constant, make_graph, make_item
from tetrad.graph.nodes import Graph
from tetrad.graph.verify import verify
from tetrad.ops.arithmetic import add, multiply, negative
from tetrad.ops.movement import expand, reshape, slice_, transpose
from tetrad.ops.quotients import divide
from tetrad.passes.fused import Fused, fuse_program, verify_fused
from tetrad.passes.rewrite import RuleLog


def S(*shape: int) -> Any:
    return td.Spec(shape)


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
def test_show_one_step(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TETRAD_SHOW", f"passes:{name}")
    compile_graph(close(arg(0, f32, 4), name="same")).bound()
    assert capsys.readouterr().err == f"pass {name}: graph same: nothing to do\n"


def shown(name: str, graph: Graph, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    """What `TETRAD_SHOW=passes:name` prints of a compilation."""
    monkeypatch.setenv("TETRAD_SHOW", f"passes:{name}")
    compile_graph(graph).bound()
    return str(capsys.readouterr().err)


def test_fuse_shows_which_nodes_share_a_kernel(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = td.trace(lambda x, w: td.nn.softmax(td.tanh(x @ w) + 1, axis=-1))(S(8, 16), S(16, 32))
    printed = shown("fuse", graph, monkeypatch, capsys)
    heads = [line for line in printed.splitlines() if "->" in line]
    assert heads[0].endswith("-> 2 groups") and heads[1].startswith("  0 matmul -> %")
    assert heads[2].startswith("  1 rows -> %")
    matmul, rows = printed.split("  1 rows")
    assert "= tanh(" in matmul and "= add(" in matmul and "= reduce_max(" in rows


def test_fuse_shows_how_a_scan_is_computed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = td.trace(lambda c, xs: td.scan(lambda c, x: (c * x, c + x), c, xs))(S(4), S(9, 4))
    assert "scan in_lanes -> " in shown("fuse", graph, monkeypatch, capsys)


def test_a_custom_rule_is_shown_as_it_is_inlined(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = td.trace(lambda x: td.stop_gradient(x) + 1)(S(4))
    assert "= stop_gradient(" in shown("inline_custom", graph, monkeypatch, capsys)


def test_equal_layers_are_shown_as_deduplicated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = td.trace(lambda x, w, v: td.tanh(td.tanh(x @ w) @ v))(S(8, 8), S(8, 8), S(8, 8))
    printed = shown("deduplicate", graph, monkeypatch, capsys)
    assert "1 of 2 groups look like one before" in printed and "matmul matmul_tanh" in printed


def test_merged_kernels_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = S(24, 784), S(784, 832), S(832, 768), S(768, 896)
    graph = td.trace(lambda x, *ws: reduce(lambda y, w: td.tanh(y @ w), ws, x))(*layers)
    assert "kernels -> 1" in shown("merge_kernels", graph, monkeypatch, capsys)


def test_the_plan_of_memory_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = td.trace(lambda x, w: td.sum(x @ w, axis=0) + 1)(S(8, 16), S(16, 32))
    assert "intermediates -> " in shown("plan_memory", graph, monkeypatch, capsys)


def test_every_step_is_timed() -> None:
    graph = td.trace(lambda x, w: td.sum(x @ w, axis=0) + 1)(S(8, 16), S(16, 32))
    compiled = compile_graph(graph)
    compiled.bound()
    assert set(compiled.clock.steps) >= {s.name for s in PIPELINE} - {"merge_kernels"}


def test_groups_out_of_order_are_found() -> None:
    graph = td.trace(lambda x: td.sum(td.tanh(td.sum(x, axis=0) @ x)))(S(8, 8))
    fused = fuse_program(optimise(graph))
    verify_fused(fused)
    turned = Fused(fused.graph, fused.groups[::-1], fused.loops, fused.inner)
    with pytest.raises(CompileError, match="before it is written"):
        verify_fused(turned)


def test_showing_an_unknown_pass_lists_the_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_SHOW", "passes:fold-everything")
    with pytest.raises(FlagError, match="passes: inline_custom, unroll, split, hoist, simplify, "):
        optimise(scaled(5))
