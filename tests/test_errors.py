"""Errors a user meets: what went wrong, at which line of theirs, and the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiler.engine import jit
from tetrad.core.errors import BoundsError, DtypeError, ShapeError, TetradError, TraceError

X = td.ones((2, 3))
Q = td.quant.quantize(td.ones((3, 32)), "q4_0")
ONE: Any = td.asarray(1.0)
RAGGED = (td.ones(2), td.ones(3))
HUGE = td.Spec((1 << 24, 1)), td.Spec((1, 1 << 25))

CASES: list[tuple[Callable[[], Any], type[TetradError], str]] = [
    # shapes
    (
        lambda: td.add(X, td.ones(4)),
        ShapeError,
        r"add: shapes do not broadcast: f32\[2,3\] and f32\[4\]",
    ),
    (
        lambda: X @ X,
        ShapeError,
        r"inner sizes differ: lhs f32\[2,3\] contracts 3, rhs f32\[2,3\] contracts 2",
    ),
    (lambda: X @ td.asarray(1.0), ShapeError, "operands need axes"),
    (lambda: td.reshape(X, (4, 2)), ShapeError, r"f32\[2,3\] has 6 elements"),
    (lambda: td.reshape(X, (4, -1)), ShapeError, "does not divide"),
    (
        lambda: td.reshape(X, (-1, -1)),
        ShapeError,
        r"shape \[-1, -1\] leaves more than one size open",
    ),
    (lambda: td.reshape(X, (-2, -3)), ShapeError, "negative size"),
    (lambda: td.repeat(X, 1 << 60), ShapeError, "elements exceed the limit"),
    (lambda: td.reshape(X, (2.0, 3)), ShapeError, "a shape holds ints and Dims"),
    (lambda: td.zeros(2.5), ShapeError, "a shape holds ints and Dims, got .2.5"),  # type: ignore[arg-type]
    (lambda: td.permute_dims(X, (0, 0)), ShapeError, "not a permutation"),
    (lambda: td.concat([X, td.ones((3, 3))], axis=1), ShapeError, "differ beside axis 1"),
    (lambda: td.concat([]), ShapeError, "at least one array"),
    (lambda: td.stack([X, td.ones(3)]), ShapeError, "shapes differ"),
    (lambda: td.sum(X, axis=2), ShapeError, "axis 2 is out of range for an array with 2 axes"),
    (lambda: td.sum(X, axis=(0, 0)), ShapeError, "names an axis twice"),
    (lambda: td.squeeze(X, 0), ShapeError, "has not size 1"),
    (lambda: td.broadcast_to(X, (3, 2)), ShapeError, "does not broadcast"),
    (lambda: td.zeros((2, -1)), ShapeError, "negative size"),
    (lambda: td.pad(X, [(1, 1)] * 3), ShapeError, "does not describe the 2 axes"),
    (lambda: td.argmax(td.zeros(0)), ShapeError, "no elements"),
    (lambda: td.max(td.zeros(0, dtype=td.int32)), ShapeError, "no elements"),
    (
        lambda: td.asarray([[1, 2], [3]]),
        ShapeError,
        "asarray: parts of a nested list differ in length",
    ),
    (lambda: td.stack([]), ShapeError, "stack: needs at least one array"),
    (lambda: td.concat([]), ShapeError, "concat: needs at least one array"),
    (lambda: td.Dim("two words"), ShapeError, r"Dim: the name 'two words' is not an identifier"),
    (lambda: td.repeat(X, -1), ShapeError, "at least 0"),
    (lambda: td.tril(td.ones(3)), ShapeError, "at least two axes"),
    # sizes no machine has
    (
        lambda: td.zeros((1 << 30, 1 << 30)),
        ShapeError,
        r"zeros|full: \d+ elements exceed the limit",
    ),
    (
        lambda: td.trace(td.matmul)(*HUGE),
        ShapeError,
        r"matmul: \d+ elements exceed .* f32\[16777216,33554432\]",
    ),
    (
        lambda: td.trace(lambda x, y: td.sum(x * y))(*HUGE),
        ShapeError,
        r"expand: \d+ elements exceed the limit",
    ),
    (
        lambda: td.trace(lambda x, y: td.pad(x, (1 << 50, 0)))(*HUGE),
        ShapeError,
        r"pad: \d+ elements exceed the limit",
    ),
    (lambda: td.arange(1 << 60), ShapeError, "exceed the limit"),
    (lambda: td.eye(1 << 25), ShapeError, "exceed the limit"),
    (lambda: td.linspace(0, 1, 1 << 60), ShapeError, "exceed the limit"),
    (
        lambda: td.broadcast_to(td.ones((1, 1)), (1 << 40, 1 << 40)).size,
        ShapeError,
        "exceed the limit",
    ),
    # dtypes
    (lambda: td.asarray(["text"]), DtypeError, "cannot make an array of a str"),
    (lambda: td.asarray(np.zeros(2, "datetime64[s]")), DtypeError, "no dtype for dtype"),
    (lambda: td.asarray(object()), DtypeError, "cannot make an array of an object"),
    (lambda: td.zeros(2, dtype="float99"), DtypeError, "known dtypes: "),
    (lambda: td.add(td.asarray(np.uint8([1])), 300), DtypeError, "the number 300 does not fit u8"),
    (lambda: td.asarray([300], dtype="uint8"), DtypeError, "asarray: .*out of bounds"),
    (lambda: td.asarray(1j, dtype="float32"), DtypeError, "asarray: .*not 'complex'"),
    (lambda: td.bitwise_and(X, X), DtypeError, "bitwise_and: takes .* got f32"),
    (lambda: td.add(np.uint64([1]), np.int64([1])), DtypeError, "no integer dtype holds both"),
    (lambda: td.add([1, 2], X), DtypeError, "convert with td.asarray"),
    (lambda: td.finfo(td.int8), DtypeError, "not a float dtype"),
    (lambda: td.isdtype(td.int8, "number"), DtypeError, "kinds: bool"),
    (lambda: td.take(X, td.asarray([0.5])), DtypeError, "indices are integers"),
    # indices
    (lambda: td.take(X, td.asarray([3]), axis=1), BoundsError, "3"),
    (
        lambda: X[2],
        BoundsError,
        r"(?s)index: 2 is out of range for an axis of size 2.*hint: indices go from -2 to 1",
    ),
    (lambda: td.scatter_add(td.ones(2), td.asarray([0, 5]), 3), BoundsError, "5"),
    (lambda: td.einsum("ij,jk", X), ShapeError, "2 operands, got 1"),
]

# mistakes of the first day: each error says what to do
HINTS: list[tuple[Callable[[], Any], type[TetradError], str, str]] = [
    (
        lambda: td.jit(lambda x, i: x[i])(X, 9),
        BoundsError,
        "index 9 is out of range",
        "indices go from -2 to 1",
    ),
    (
        lambda: jit(lambda n: td.zeros(n))(3),
        ShapeError,
        "^zeros: a shape holds ints and Dims",
        "static_argnums",
    ),
    (
        lambda: jit(lambda n: td.arange(n))(3),
        ShapeError,
        r"arange: .* 0 to Traced<i32\[\]>",
        "static_argnums",
    ),
    (
        lambda: jit(lambda x, a: td.sum(x, axis=a))(X, 1),
        ShapeError,
        "the axis must be an int",
        "static_argnums",
    ),
    (
        lambda: jit(lambda x, y: x, static_argnums=1)(X, X),
        TraceError,
        "which has no hash",
        "pass arrays as",
    ),
    (lambda: jit(lambda x: object())(X), TraceError, "not an object", "td.tree.register"),
    (lambda: td.sum(X, axis=2), ShapeError, "axis 2 is out of range", "axes go from -2 to 1"),
    (lambda: td.sum(td.asarray(1.0), axis=0), ShapeError, "axis 0 is out of range", "leave it out"),
    (
        lambda: td.reshape(X, (5, 5)),
        ShapeError,
        r"f32\[2,3\] has 6 elements, shape \[5, 5\] has 25",
        "may be -1",
    ),
    (lambda: td.concat([X, td.ones((2, 4))]), ShapeError, "differ beside axis 0", "another axis"),
    (
        lambda: td.concat(X, X),
        ShapeError,
        r"concat: expected a list of arrays, got f32.* and f32",
        "concat([x, y])",
    ),
    (
        lambda: td.stack(X, X),
        ShapeError,
        r"^stack: expected a list of arrays, got f32\[2,3\] and f32",
        "stack([x, y])",
    ),
    (
        lambda: td.stack(ONE, ONE),
        ShapeError,
        r"expected a list of arrays, got f32\[\] and f32\[\]",
        "stack([x, y])",
    ),
    (lambda: td.stack(1.0), ShapeError, "expected a list of arrays, got a float", "stack([x, y])"),
    (lambda: td.stack(RAGGED), ShapeError, r"shapes differ: f32\[2\], f32\[3\]", "td.pad"),
    (lambda: td.asarray("text"), DtypeError, "cannot make an array of a str", "it takes numbers"),
    (
        lambda: td.asarray(300, dtype=td.uint8),
        DtypeError,
        "300 out of bounds for uint8",
        "name a dtype that holds it",
    ),
    (lambda: X[1.0], DtypeError, r"an index is an int, .* got f32\[\]", "astype"),
    (lambda: X["w"], DtypeError, "an index is an int, .* got a str", "entries of a dict"),
    (lambda: len(td.asarray(1.0)), DtypeError, "has no length", "x.item()"),
    (
        lambda: td.random.normal((2, 3)),
        DtypeError,
        "^normal: expected a key, .* got a tuple",
        "td.random.key",
    ),
    (
        lambda: td.vmap(td.add)(*RAGGED),
        ShapeError,
        "batches of different sizes: x: 2, y: 3|: 2, .*: 3",
        "in_axes=None",
    ),
    (lambda: td.vmap(td.exp)(1.0), ShapeError, "no axis 0 to batch over", "in_axes=None"),
    (
        lambda: td.grad(lambda x: None)(1.0),
        TraceError,
        "it returns a NoneType",
        "does it end with a return",
    ),
    (
        lambda: td.grad(lambda x: {"loss": x})(1.0),
        TraceError,
        "it returns a dict",
        "one of its numbers",
    ),
    (
        lambda: td.grad(td.argmax)(td.ones(2)),
        DtypeError,
        "must return a float, it returns i32",
        "whole numbers jump",
    ),
    (
        lambda: td.cond(True, lambda x: x, td.sum, X),
        ShapeError,
        r"f32\[\] in false_fun",
        "one shape",
    ),
    (
        lambda: td.while_loop(lambda s: s, lambda s: s, 0.0),
        DtypeError,
        r"one bool .* it returns f32\[\]",
        "x > 0",
    ),
    (
        lambda: Q + 1,
        DtypeError,
        "quantised arrays are not computed with, got q4_0",
        "x.dequantize()",
    ),
    (
        lambda: td.matmul(X, Q),
        DtypeError,
        "quantised arrays are not computed with, got q4_0",
        "x.dequantize()",
    ),
    (lambda: td.sum(Q), DtypeError, "got q4_0", "x.dequantize()"),
    (
        lambda: td.jit(lambda x, n: x, static_argnums=2),
        TraceError,
        "has 2, there are 2",
        "from 0: 0 is x, 1 is n",
    ),
    (
        lambda: jit(lambda x: x, dims=({2: td.Dim("n")},))(X),
        ShapeError,
        "it has no axis 2",
        "one for each argument",
    ),
    (lambda: td.nn.one_hot(X, 3), DtypeError, "classes are integers", "astype"),
    (lambda: td.explain(3), TraceError, "explain: expected a function, got an int", ""),  # type: ignore[arg-type]
    (lambda: td.bisect(3), TraceError, "bisect: expected a function, got an int", ""),
    (
        lambda: td.trace(td.ones((2, 2))),
        TraceError,
        "trace: expected a function, got f32",
        "td.linalg.trace",
    ),
    (lambda: td.zeros(2.5), ShapeError, "a shape holds ints and Dims, got", "int()"),
    (
        lambda: td.tree.map(max, {"a": 1}, {"b": 1}),
        TraceError,
        r"first tree has {'a': \*}, another has {'b': \*}",
        "same keys",
    ),
]


@pytest.mark.parametrize(("run", "error", "text", "hint"), HINTS, ids=range(len(HINTS)))
def test_mistakes_of_the_first_day(
    run: Callable[[], Any], error: type[TetradError], text: str, hint: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        run()
    assert caught.value.source is not None and caught.value.source.file == __file__
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(("run", "error", "text"), CASES, ids=range(len(CASES)))
def test_eager_errors(run: Callable[[], Any], error: type[TetradError], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        run()
    assert caught.value.source is not None and caught.value.source.file == __file__


CONTROL_FLOW: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: x if x.sum() > 0 else -x, "td.where.*td.while_loop"),
    (
        lambda x: [x for _ in range(x[0])],
        r"argument x of <lambda>.*(.|\n)*td.fori_loop.*static_argnames",
    ),
    (lambda x: float(x[0]) + x, "static_argnames='x'"),
    (lambda x: int(x[0]) + x, "static_argnames='x'"),
    (lambda x: x.reshape(x[0]), "a traced value cannot be a size"),
    (lambda x: np.sin(x), "td function in place of NumPy"),
    (lambda x: x + np.asarray(x), "td function in place of NumPy"),
    (lambda x: x.item() and x, "one element"),
    (lambda x: td.nonzero(x), "say how many at most"),
    (lambda x: x.sum().item(), "td.debug.print shows it"),
]


@pytest.mark.parametrize(("function", "hint"), CONTROL_FLOW, ids=range(len(CONTROL_FLOW)))
def test_python_control_flow_on_traced_values(function: Callable[[Any], Any], hint: str) -> None:
    with pytest.raises((TraceError, ShapeError), match=hint) as caught:
        jit(function)(td.ones(3, dtype=td.int32))
    assert caught.value.source is not None and caught.value.source.file == __file__


def test_iteration_over_a_static_axis_unrolls() -> None:
    assert jit(lambda x: [row * 2 for row in x][-1])(td.ones((3, 2))).tolist() == [2, 2]


def test_iteration_over_a_symbolic_axis_is_refused() -> None:
    with pytest.raises(
        TraceError, match=r"leading axis of f32\[n\] is only known when the program runs"
    ):
        jit(lambda x: [row for row in x], dims=({0: td.Dim("n")},))(td.ones(3))


def test_errors_in_a_trace_name_the_users_line() -> None:
    def wrong(x: Any) -> Any:
        return td.exp(x) @ x

    with pytest.raises(ShapeError, match=r"in wrong, .*test_errors.py line \d+"):
        jit(wrong)(td.ones((2, 3)))


def test_static_arguments_need_a_hash() -> None:
    f = jit(lambda x, sizes: x, static_argnames="sizes")
    with pytest.raises(TraceError, match="the static argument sizes is a list, which has no hash"):
        f(td.ones(2), [1, 2])


def test_unknown_static_arguments() -> None:
    with pytest.raises(TraceError, match="static_argnames has 'size', the parameters are x, sizes"):
        jit(lambda x, sizes: x, static_argnames="size")
    with pytest.raises(TraceError, match="static_argnums has 2, there are 2 positional parameters"):
        jit(lambda x, sizes: x, static_argnums=2)


def test_arguments_that_are_no_arrays() -> None:
    with pytest.raises(TraceError, match=r"(?s)the argument p\['mode'\] is a str.*static_argnums"):
        jit(lambda p: p)({"mode": "fast", "w": td.ones(2)})
    with pytest.raises(TraceError, match="returns arrays and numbers, not a str"):
        jit(lambda x: "done")(td.ones(2))
