"""Tracing: what the graph holds, what is captured from outside, what happens to values that
escape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiler.engine import jit
from tetrad.core.errors import TraceError
from tetrad.graph.build import call, constant
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Graph
from tetrad.graph.verify import verify


def count(graph: Graph, op: Any) -> int:
    return sum(node.op is op for node in graph.nodes())


def test_arrays_and_specs_trace_alike() -> None:
    f = lambda x, y: {"sum": x + y, "parts": [x, -y]}  # noqa: E731
    spec = td.trace(f)(td.Spec((2, 3)), td.Spec((3,), "int32"))
    assert td.trace(f)(np.zeros((2, 3), np.float32), np.zeros(3, np.int32)) is spec
    verify(spec)
    x, y = np.ones((2, 3), np.float32), np.arange(3, dtype=np.int32)
    parts0, parts1, total = evaluate(spec, [x, y])
    np.testing.assert_array_equal(total, x + y)
    np.testing.assert_array_equal(parts1, -y)
    np.testing.assert_array_equal(parts0, x)


def test_shapes_without_running() -> None:
    def f(params: dict[str, Any], x: Any, *, power: int = 2) -> Any:
        y = x @ params["w"] + params["b"]
        return y**power, {"mean": td.mean(y), "best": td.argmax(y, axis=-1), "none": None}

    n = td.Dim("n", max=9)
    params = {"w": td.Spec((3, 4)), "b": np.zeros(4, np.float64)}
    y, more = td.eval_shape(f, params, td.Spec((n, 3)), power=3.0)
    assert isinstance(y, td.Spec) and y.shape == (n, 4) and y.dtype is td.float64
    assert repr(more) == "{'best': Spec(i32[n]), 'mean': Spec(f64[]), 'none': None}"
    assert repr(td.eval_shape(lambda x: x + 1, 2)) == "Spec(i32[])"
    again = td.eval_shape(
        td.grad(lambda p, x: td.sum(f(p, x)[0]), argnums=1), params, np.zeros((5, 3), np.float32)
    )
    assert again.shape == (5, 3) and again.dtype is td.float32
    inside = td.jit(lambda x: td.zeros(td.eval_shape(lambda x: x[1:], x).shape))(
        np.zeros(4, np.float32)
    )
    assert inside.shape == (3,)
    with pytest.raises(td.errors.ShapeError, match="matmul: inner sizes differ"):
        td.eval_shape(f, params, td.Spec((2, 2)))


def test_equal_functions_give_one_graph() -> None:
    def body(x: Any) -> Any:
        return td.exp(x) * td.exp(x)

    graph = td.trace(body)(td.Spec((4,)))
    assert td.trace(body)(td.Spec((4,))) is graph
    # common subexpressions are one node
    assert sum(node.op.name == "exp" for node in graph.nodes()) == 1


def test_nodes_know_the_users_line() -> None:
    graph = td.trace(lambda x: td.tanh(x))(td.Spec((4,)))
    source = graph.outputs[0].source
    assert source is not None and source.file == __file__


def test_static_arguments() -> None:
    def f(x: Any, n: int, *, flip: bool = False) -> Any:
        return [x] * n if not flip else td.flip(x)

    assert len(td.trace(f, static_argnums=1)(td.Spec((2,)), 3).outputs) == 3
    assert len(td.trace(f, static_argnums=-1)(td.Spec((2,)), n=2).outputs) == 2
    graph = td.trace(f, static_argnames=("n", "flip"))(td.Spec((2,)), 3, flip=True)
    assert len(graph.outputs) == 1


def test_a_captured_weight_is_one_constant() -> None:
    weight = td.asarray(np.ones((64, 64), np.float32))
    graph = td.trace(lambda x: (x @ weight) @ weight)(td.Spec((2, 64)))
    assert count(graph, constant) == 1


def test_work_on_constants_is_done_while_tracing() -> None:
    table = td.arange(4)
    graph = td.trace(lambda x: x + (table * 2 + 1))(td.Spec((4,), "int32"))
    assert [node.op.name for node in graph.nodes()] == ["parameter", "constant", "add"]


def test_repeated_values_are_not_stored() -> None:
    graph = td.trace(lambda x: x * 2 + td.zeros((1000, 1000)))(td.Spec((1000, 1000)))
    assert all(node.type.rank == 0 for node in graph.nodes() if node.op is constant)


# nested jit


def test_nested_jit_is_a_call_and_equal_layers_share_a_graph() -> None:
    layer = jit(lambda x, w: td.tanh(x @ w))
    weights = [np.full((3, 3), i, np.float32) for i in range(4)]

    def model(x: Any) -> Any:
        for weight in weights:
            x = layer(x, weight)
        return x

    graph = td.trace(model)(td.Spec((2, 3)))
    calls = [node for node in graph.nodes() if node.op is call]
    assert len(calls) == 4 and len({node.param("graph") for node in calls}) == 1
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(jit(model)(x), model(td.asarray(x)))


def test_captured_values_become_arguments_of_the_call() -> None:
    big = td.asarray(np.arange(2000, dtype=np.float32))

    def outer(x: Any) -> Any:
        doubled = x * 2

        @jit
        def inner(y: Any) -> Any:
            return y + doubled + big, x

        return inner(x + 1)

    x = np.arange(2000, dtype=np.float32)
    graph = td.trace(outer)(td.Spec((2000,)))
    verify(graph)
    (made,) = [node for node in graph.nodes() if node.op is call]
    assert len(made.inputs) == 4 and count(made.param("graph"), constant) == 0
    total, same = jit(outer)(x)
    np.testing.assert_array_equal(total, (x + 1) + 2 * x + np.asarray(big))
    np.testing.assert_array_equal(same, x)


def test_calls_nest_to_any_depth() -> None:
    @jit
    def one(x: Any) -> Any:
        return x + 1

    @jit
    def two(x: Any) -> Any:
        return one(one(x)), {"again": one(x)}

    def three(x: Any) -> Any:
        pair, rest = two(x)
        return pair + rest["again"]

    graph = td.trace(three)(td.Spec((), "int32"))
    verify(graph)
    assert int(jit(three)(5)) == 13


def test_a_call_without_traced_arguments_sees_captured_ones() -> None:
    def outer(x: Any) -> Any:
        inner = jit(lambda c: c + x)
        return inner(td.ones(3))

    assert jit(outer)(np.float32([1, 2, 3])).tolist() == [2, 3, 4]


# Python numbers


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
def test_python_numbers_take_the_dtype_they_meet(dtype: Any) -> None:
    f = lambda x, s: (x * s, td.maximum(s, x), s)  # noqa: E731
    x = np.array([1, 2, 3], dtype)
    for got, want in zip(jit(f)(x, 0.1), f(td.asarray(x), 0.1), strict=True):
        want = td.asarray(want)
        assert got.dtype is want.dtype
        np.testing.assert_array_equal(got, want)


# values that escape


def test_a_leaked_value_is_named() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(x * 2)
        return x

    td.trace(f)(td.Spec((2,)))
    for use in (
        lambda: kept[0] + 1,
        lambda: jit(lambda y: y + kept[0])(np.zeros(2)),
        lambda: jit(f)(kept[0]),
    ):
        with pytest.raises(
            TraceError, match=r"(?s)f32\[2\] was used after the tracing of f had ended.*return it"
        ):
            use()


def test_a_leaked_value_of_an_inner_function_is_named() -> None:
    kept: list[Any] = []

    @jit
    def inner(x: Any) -> Any:
        kept.append(x)
        return x

    with pytest.raises(TraceError, match="after the tracing of inner had ended"):
        td.trace(lambda x: inner(x) + kept[0])(td.Spec((2,)))


def test_an_error_while_tracing_ends_the_trace() -> None:
    def f(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        td.trace(f)(td.Spec((2,)))
    assert (td.zeros(2) + 1).tolist() == [1, 1]
