"""graph.evaluate: NumPy's answer, Dims bound from shapes, results checked, memory given back."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from tests.graph.graphs import arg, close
from tetrad.core.dtypes import f32, i32
from tetrad.core.errors import BoundsError, CheckError, DtypeError, ShapeError
from tetrad.core.op import Op
from tetrad.core.sizes import Dim
from tetrad.graph.build import intern, make_call, make_constant, make_graph, make_item
from tetrad.graph.evaluate import evaluate, solve_dims
from tetrad.ops.arithmetic import add, multiply, negative
from tetrad.ops.gather import gather
from tetrad.ops.matmul.op import matmul
from tetrad.ops.movement import expand, reshape, slice_, transpose
from tetrad.ops.reduce import reduce_sum

seq, batch = Dim("seq", max=64), Dim("batch", max=8)
floats = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_ops_constants_and_several_outputs() -> None:
    x, y = arg(0, f32, 2, 3), arg(1, f32, 3, 2)
    two = expand(make_constant(np.float32(2)), shape=(2, 2))
    product, twice = evaluate(close(matmul(x, y), multiply(matmul(x, y), two)), [floats, floats.T])
    assert (product == floats @ floats.T).all() and (twice == 2 * product).all()


def test_scalars_stay_arrays() -> None:
    (result,) = evaluate(close(negative(arg(0, f32))), [np.float32(2)])
    assert isinstance(result, np.ndarray) and result.shape == () and result == -2


def test_calls_and_items() -> None:
    x = arg(0, f32, 2, 3)
    inner = make_graph("inner", [x], [negative(x), transpose(x, perm=(1, 0))])
    node = make_call(inner, [add(x, x)])
    flipped, same = evaluate(close(make_item(node, 1), make_item(node, 0)), [floats])
    assert (flipped == 2 * floats.T).all() and (same == -2 * floats).all()


def test_dims_are_bound_from_shapes() -> None:
    x = arg(0, f32, seq, 3)
    last = slice_(reshape(x, shape=(seq * 3,)), starts=(seq * 3 - 1,), sizes=(1,), steps=(1,))
    graph = close(expand(last, shape=(2, seq)))
    for n in (1, 2, 5):
        data = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        assert evaluate(graph, [data])[0].tolist() == [[3 * n - 1.0] * n] * 2


def test_dims_reach_the_graphs_that_are_called() -> None:
    """Inside, the input has the one axis batch*seq: the values come from the caller."""
    flat = arg(0, f32, batch * seq)
    inner = make_graph("inner", [flat], [reshape(flat, shape=(seq, batch))])
    x = arg(0, f32, batch, seq)
    graph = close(make_item(make_call(inner, [reshape(x, shape=(batch * seq,))]), 0))
    assert evaluate(graph, [floats])[0].shape == (3, 2)


def test_sizes_are_solved_one_after_the_other() -> None:
    assert solve_dims([(batch * seq + 1, 13), (2 * batch - 1, 5)], {}) == {"batch": 3, "seq": 4}
    assert solve_dims([(batch * seq, 12)], {}) == {}
    assert solve_dims([(2 * seq, 5)], {}) == {}
    assert solve_dims([(seq * seq, 9)], {}) == {}


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2, 3)], "takes 2 arrays, got 1"),
        ([(2, 3, 1), (2,)], r"input 0 is f32\[seq,3\], got shape \[2, 3, 1\]"),
        ([(2, 4), (2,)], r"input 0 is f32\[seq,3\], got shape \[2, 4\]"),
        ([(2, 3), (4,)], r"input 1 is f32\[seq\], got shape \[4\]\n  hint: seq is 2 here"),
        ([(65, 3), (65,)], "seq is 65, its max is 64"),
    ],
)
def test_wrong_shapes_are_told(shapes: list[tuple[int, ...]], message: str) -> None:
    graph = make_graph("g", [arg(0, f32, seq, 3), arg(1, f32, seq)], [arg(0, f32, seq, 3)])
    with pytest.raises(ShapeError, match=message):
        evaluate(graph, [np.zeros(s, np.float32) for s in shapes])


def test_wrong_dtypes_and_undetermined_dims_are_told() -> None:
    with pytest.raises(DtypeError, match=r"input 0 is f32\[2\], got an array of float64"):
        evaluate(close(arg(0, f32, 2)), [np.zeros(2)])
    with pytest.raises(ShapeError, match="axis 0 of size 6 does not determine"):
        evaluate(close(arg(0, f32, batch * seq)), [np.zeros(6, np.float32)])


@pytest.mark.parametrize("wrong", [lambda x: x.astype(np.float64), lambda x: x[:1]])
def test_a_reference_that_breaks_its_type_is_found(wrong: Any) -> None:
    x = arg(0, f32, 2)
    op = Op("wrong", "elementwise", wrong, lambda x: x)
    with pytest.raises(CheckError, match=r"wrong: the reference gave .* promised f32\[2\]"):
        evaluate(close(intern(op, (x,), (), (x.type,), None)), [np.zeros(2, np.float32)])


def test_errors_while_running_tell_the_users_line() -> None:
    graph = close(gather(arg(0, f32, 3), arg(1, i32, 1), axis=0))
    with pytest.raises(BoundsError, match=r"gather: index 7 .*\n  in test_errors_while_running"):
        evaluate(graph, [np.zeros(3, np.float32), np.array([7], np.int32)])


def test_sums_do_not_depend_on_the_layout_in_memory() -> None:
    data = np.random.default_rng(0).standard_normal((300, 200)).astype(np.float32)
    direct = evaluate(close(reduce_sum(arg(0, f32, 300, 200), axes=(0, 1))), [data])
    strided = evaluate(
        close(reduce_sum(arg(0, f32, 300, 200), axes=(0, 1))), [np.asfortranarray(data)]
    )
    assert direct[0].tobytes() == strided[0].tobytes()


def test_values_nobody_needs_are_given_back() -> None:
    value = x = arg(0, f32, 1 << 18)
    for _ in range(50):
        value = add(value, x)
    graph, data = close(value), np.ones(1 << 18, np.float32)
    tracemalloc.start()
    evaluate(graph, [data])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * data.nbytes
