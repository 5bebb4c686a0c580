"""Loops of the graph language: what they mean, what their builders refuse, and that they print and
parse."""

from __future__ import annotations

import numpy as np
import pytest

from tetrad.core.dtypes import bool_, f32, f64, i32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.sizes import Dim
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_constant, make_graph, make_parameter
from tetrad.graph.evaluate import evaluate
from tetrad.graph.loops import make_scan, make_switch, make_while
from tetrad.graph.nodes import Graph, Node
from tetrad.graph.text import parse, structural_hash, to_text
from tetrad.graph.verify import verify
from tetrad.ops.arithmetic import add, multiply
from tetrad.ops.compare import less


def param(dtype: object, shape: tuple[object, ...], index: int) -> Node:
    return make_parameter(ArrayType(dtype, shape), index)  # type: ignore[arg-type]


def recurrence(dtype: object = f64, shape: tuple[int, ...] = ()) -> Graph:
    """(factor, c, x) -> (factor * c + x, c)."""
    factor, c, x = (param(dtype, shape, i) for i in range(3))
    return make_graph("step", [factor, c, x], [add(multiply(factor, c), x), c])


def scanned(length: int, **settings: object) -> Graph:
    inputs = [param(f64, (), 0), param(f64, (), 1), param(f64, (length,), 2)]
    made = make_scan(recurrence(), inputs[:1], inputs[1:2], inputs[2:], length=length, **settings)  # type: ignore[arg-type]
    return make_graph("whole", inputs, made)


@pytest.mark.parametrize("length", [0, 1, 2, 7])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_a_loop(length: int, reverse: bool) -> None:
    xs = np.arange(length) * 0.5 + 1
    c, seen = 2.0, np.empty(length)
    for t in reversed(range(length)) if reverse else range(length):
        c, seen[t] = 0.9 * c + xs[t], c
    final, ys = evaluate(scanned(length, reverse=reverse), [np.float64(0.9), np.float64(2.0), xs])
    assert final == c and final.shape == ()
    np.testing.assert_array_equal(ys, seen)


def test_a_while_loop_runs_until_its_condition_fails() -> None:
    limit, c = param(f64, (), 0), param(f64, (), 1)
    condition = make_graph("below", [limit, c], [less(c, limit)])
    twice = param(f64, (), 0)
    body = make_graph("double", [twice], [add(twice, twice)])
    inputs = [param(f64, (), 0), param(f64, (), 1)]
    graph = make_graph("whole", inputs, make_while(condition, body, inputs[:1], [], inputs[1:]))
    assert evaluate(graph, [np.float64(100), np.float64(3)])[0] == 192
    assert evaluate(graph, [np.float64(1), np.float64(3)])[0] == 3
    verify(graph)
    assert parse(to_text(graph, sources=False)) is graph


def test_condition_and_body_of_a_while_loop_have_constants_of_their_own() -> None:
    limit, factor, c = (param(f64, (), i) for i in range(3))
    x, y = param(f64, (), 0), param(f64, (), 1)
    condition, body = (
        make_graph("below", [x, y], [less(y, x)]),
        make_graph("times", [x, y], [multiply(x, y)]),
    )
    graph = make_graph(
        "whole", [limit, factor, c], make_while(condition, body, [limit], [factor], [c])
    )
    assert evaluate(graph, [np.float64(100), np.float64(3), np.float64(2)])[0] == 162


@pytest.mark.parametrize("index, chosen", [(-5, 0), (0, 0), (1, 1), (9, 1)])
def test_a_switch_clamps_its_index(index: int, chosen: int) -> None:
    x = param(f64, (2,), 0)
    branches = [make_graph("more", [x], [add(x, x)]), make_graph("square", [x], [multiply(x, x)])]
    inputs = [param(i32, (), 0), param(f64, (2,), 1)]
    graph = make_graph("whole", inputs, make_switch(inputs[0], inputs[1:], branches))
    values = np.array([3.0, 5.0])
    np.testing.assert_array_equal(
        evaluate(graph, [np.int32(index), values])[0], [values + values, values * values][chosen]
    )
    verify(graph)
    assert parse(to_text(graph, sources=False)) is graph


@pytest.mark.parametrize("checkpoint", [None, "sqrt", ("every", 3)])
def test_text_and_hash_know_every_setting(checkpoint: object) -> None:
    graph = scanned(4, reverse=True, unroll=2, checkpoint=checkpoint)
    verify(graph)
    assert parse(to_text(graph, sources=False)) is graph
    assert structural_hash(graph) != structural_hash(scanned(4, unroll=2, checkpoint=checkpoint))


def test_the_length_may_be_a_dim() -> None:
    time = Dim("time", max=64)
    c, xs = param(f64, (), 0), param(f64, (time,), 1)
    inner, row = param(f64, (), 0), param(f64, (), 1)
    body = make_graph("step", [inner, row], [add(inner, row), inner])
    graph = make_graph("whole", [c, xs], make_scan(body, [], [c], [xs], length=time))
    verify(graph)
    final, ys = evaluate(graph, [np.float64(1), np.arange(5.0)])
    assert final == 11
    np.testing.assert_array_equal(ys, [1, 1, 2, 4, 7])


def test_loops_inside_loops() -> None:
    inner = scanned(3)  # (factor, c, xs[3]) -> (c, ys[3])
    factor, c, rows = param(f64, (), 0), param(f64, (), 1), param(f64, (4, 3), 2)
    graph = make_graph(
        "whole", [factor, c, rows], make_scan(inner, [factor], [c], [rows], length=4)
    )
    verify(graph)
    values = np.arange(12.0).reshape(4, 3)
    final, ys = evaluate(graph, [np.float64(0.5), np.float64(1), values])
    flat, flat_ys = evaluate(scanned(12), [np.float64(0.5), np.float64(1), values.reshape(12)])
    assert final == flat
    np.testing.assert_array_equal(ys.reshape(12), flat_ys)


def test_a_loop_that_gives_nothing_is_no_node() -> None:
    x = param(f64, (), 0)
    assert make_scan(make_graph("nothing", [x], []), [x], [], [], length=3) == ()


# -- refusals --------------------------------------------------------------------------------------


def test_the_body_must_keep_the_type_of_a_carry() -> None:
    c = param(f32, (3,), 0)
    body = make_graph("wider", [c], [make_constant(np.zeros(4, np.float32))])
    with pytest.raises(ShapeError, match=r"carry 0 is f32\[3\], the body gives f32\[4\]"):
        make_scan(body, [], [c], [], length=2)


def test_rows_must_be_as_many_as_steps() -> None:
    inputs = [param(f64, (), 0), param(f64, (), 1), param(f64, (5,), 2)]
    with pytest.raises(ShapeError, match=r"xs f64\[5\] has no leading axis of the length 4"):
        make_scan(recurrence(), inputs[:1], inputs[1:2], inputs[2:], length=4)


def test_the_body_must_take_what_it_is_given() -> None:
    inputs = [param(f32, (), 0), param(f64, (), 1), param(f64, (5,), 2)]
    with pytest.raises(
        ShapeError, match=r"step takes f64\[\], f64\[\], f64\[\], it is given f32\[\]"
    ):
        make_scan(recurrence(), inputs[:1], inputs[1:2], inputs[2:], length=5)


def test_a_condition_gives_one_bool() -> None:
    c = param(f64, (), 0)
    same = make_graph("same", [c], [c])
    with pytest.raises(DtypeError, match=r"must give one bool\[\], it gives f64\[\]"):
        make_while(same, same, [], [], [c])


def test_branches_agree() -> None:
    x, index = param(f64, (2,), 0), param(i32, (), 1)
    one, other = make_graph("one", [x], [x]), make_graph("other", [x], [less(x, x)])
    with pytest.raises(ShapeError, match=r"branch 0 gives f64\[2\], branch 1 gives bool\[2\]"):
        make_switch(index, [x], [one, other])
    with pytest.raises(DtypeError, match=r"index must be i32\[\], it is bool\[\]"):
        make_switch(param(bool_, (), 1), [x], [one])
