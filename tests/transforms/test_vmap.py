"""vmap as users call it: wrong axes, sizes and names are told at their line. Laws are in
tests/transforms."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import BoundsError, DtypeError, ShapeError, TetradError, TraceError

X = td.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
Y = td.ones((4, 3))


def total(a: Any, b: Any = 0.0) -> Any:
    return td.sum(a) + b


def twice(a: Any) -> Any:
    return a, 2 * a


WRONG: list[tuple[Callable[[], Any], type[TetradError], str]] = [
    # settings
    (
        lambda: td.vmap(total, axis_size=-2),
        ShapeError,
        "axis_size is -2, it must be an int of at least 0",
    ),
    (lambda: td.vmap(total, axis_size=2.5), ShapeError, "axis_size is 2.5, it must be an int"),
    (
        lambda: td.vmap(total, axis_name=["i"]),
        TraceError,
        r"axis_name is \['i'\], it must have a hash",
    ),
    # sizes
    (
        lambda: td.vmap(lambda a, b: a + b)(X, Y),
        ShapeError,
        "batches of different sizes: a: 2, b: 4",
    ),
    (lambda: td.vmap(lambda a, b: a + b)(X, b=Y), ShapeError, "a: 2, b: 4"),
    (
        lambda: td.vmap(lambda p: p["u"])({"u": X, "v": [Y]}),
        ShapeError,
        r"p\['u'\]: 2, p\['v'\]\[0\]: 4",
    ),
    (lambda: td.vmap(total, in_axes=1, axis_size=5)(X), ShapeError, "axis_size: 5, a: 3"),
    (
        lambda: td.vmap(total, in_axes=None)(X),
        ShapeError,
        r"no argument of total has a batch axis(.|\n)*axis_size",
    ),
    (lambda: td.vmap(lambda: 1.0)(), ShapeError, "no argument of <lambda> has a batch axis"),
    # in_axes
    (
        lambda: td.vmap(total, in_axes=(0,))(X, Y),
        TraceError,
        "in_axes has 1 entries, total was called with 2",
    ),
    (
        lambda: td.vmap(total, in_axes=2)(X),
        ShapeError,
        r"a is f32\[2,3\], it has no axis 2 to batch over",
    ),
    (lambda: td.vmap(total, in_axes=-3)(X), ShapeError, "it has no axis -3"),
    (lambda: td.vmap(total)(2.0), ShapeError, r"a is f32\[\], it has no axis 0"),
    (
        lambda: td.vmap(total, in_axes="a")(X),
        TraceError,
        "in_axes of total: 'a' does not fit a tuple of 1",
    ),
    (
        lambda: td.vmap(total, in_axes=(0.5,))(X),
        TraceError,
        "expected an int or None for an array, got 0.5",
    ),
    (
        lambda: td.vmap(total, in_axes=({"u": 0},))({"u": X, "v": X}),
        TraceError,
        r"\{'u': 0\} does not fit a dict of 2",
    ),
    (
        lambda: td.vmap(total, in_axes=((0, 0),))(X),
        TraceError,
        r"expected an int or None for an array, got \(0, 0\)",
    ),
    # out_axes
    (
        lambda: td.vmap(total, out_axes=1)(X),
        ShapeError,
        r"out_axes has 1 for a result of total, which is f32\[2\]",
    ),
    (
        lambda: td.vmap(twice, out_axes=(0, 0, 0))(X),
        TraceError,
        r"\(0, 0, 0\) does not fit a tuple of 2",
    ),
    (
        lambda: td.vmap(total, out_axes=None)(X),
        ShapeError,
        "out_axes is None for a result of total that differs",
    ),
    # names
    (
        lambda: td.vmap(lambda a: td.psum(a, "rows"))(X),
        TraceError,
        "no axis named 'rows' here, bound are: none",
    ),
    (
        lambda: td.vmap(lambda a: td.pmax(a, "j"), axis_name="i")(X),
        TraceError,
        "'j' here, bound are: 'i'",
    ),
    (
        lambda: td.vmap(lambda a: td.all_gather(a, "j"), axis_name="i")(X),
        TraceError,
        "all_gather: there is no axis",
    ),
    (lambda: td.psum(X, "i"), TraceError, r"psum: there is no axis named 'i' here(.|\n)*axis_name"),
    (lambda: td.axis_index("i"), TraceError, "axis_index: there is no axis"),
    # what is passed
    (lambda: td.vmap(total)("words"), TraceError, "the argument a is a str"),
    (
        lambda: td.vmap(lambda q: q)(td.quant.quantize(td.ones((2, 32)), "q4_0")),
        DtypeError,
        "cannot be batched over",
    ),
    (
        lambda: td.vmap(lambda a: a if a > 0 else -a)(X[0]),
        TraceError,
        r"no values yet(.|\n)*td\.where",
    ),
]


@pytest.mark.parametrize(("call", "kind", "words"), WRONG, ids=lambda v: None)
def test_wrong_calls_are_told_at_the_users_line(
    call: Callable[[], Any], kind: type[TetradError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        call()
    line = inspect.getsourcelines(call)[1]
    assert re.search(rf"in \S+, \S*test_vmap\.py line {line}\b", str(caught.value)), str(
        caught.value
    )


def test_an_error_inside_names_the_line_inside() -> None:
    with pytest.raises(ShapeError, match=r"matmul(.|\n)*in inner, \S*test_vmap.py"):
        td.vmap(inner)(X)


def inner(a: Any) -> Any:
    return td.reshape(a, (3, 1)) @ td.ones((2, 2))


def test_an_index_out_of_range_in_one_row_is_an_error_not_the_next_row() -> None:
    """Batched tables lie one after the other; no index of a row may reach into its neighbour's."""
    rows, bad = td.ones((2, 3)), td.asarray([0, 3])
    for f in (td.vmap(lambda x, i: td.take(x, i)), td.jit(td.vmap(lambda x, i: td.take(x, i)))):
        with pytest.raises(BoundsError, match="out of range"):
            f(rows, bad)
    np.testing.assert_array_equal(
        np.asarray(td.vmap(lambda x, i: td.take(x, i))(X, td.asarray([-1, -3]))), [3.0, 4.0]
    )


def test_a_failed_call_leaves_no_name_bound() -> None:
    with pytest.raises(ShapeError):
        td.vmap(inner, axis_name="i")(X)
    with pytest.raises(TraceError, match="bound are: none"):
        td.psum(X, "i")


def test_shared_settings_are_passed_on_as_they_are() -> None:
    def f(a: Any, n: int, how: Any, table: Any) -> Any:
        assert type(n) is int
        return how(a) ** n + table["c"]

    mapped = td.vmap(f, in_axes=(0, None, None, {"c": 0, "name": None}))
    found = mapped(X, 2, td.sin, {"c": td.asarray([1.0, 2.0]), "name": "offsets"})
    np.testing.assert_allclose(
        np.asarray(found), np.sin(np.asarray(X)) ** 2 + [[1.0], [2.0]], rtol=1e-6
    )
    gradient = td.vmap(
        td.grad(lambda a, mode: td.sum(a**2) if mode == "square" else a[0]), in_axes=(0, None)
    )
    np.testing.assert_allclose(np.asarray(gradient(X, "square")), 2 * np.asarray(X), rtol=1e-6)


@td.tree.register_dataclass
@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any


def test_axes_in_a_class_of_the_users() -> None:
    rows = td.vmap(lambda p: p.weight + p.bias, in_axes=(Layer(0, None),))(Layer(X, X[0]))
    np.testing.assert_array_equal(np.asarray(rows), np.asarray(X) + np.asarray(X)[0])
    made = td.vmap(lambda a: Layer(a, td.sum(a)), out_axes=Layer(1, 0))(X)
    assert (made.weight.shape, made.bias.shape) == ((3, 2), (2,))


WAYS = pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])


@WAYS
def test_several_names_together(way: Any) -> None:
    def f(a: Any) -> Any:
        assert td.axis_size(("i", "j")) == 6
        return td.axis_index(("i", "j")), td.all_gather(a, ("j", "i")), td.psum(a, ("i", "j"))

    index, gathered, total = way(td.vmap(td.vmap(f, axis_name="j"), axis_name="i"))(X)
    np.testing.assert_array_equal(np.asarray(index), np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(np.asarray(gathered[1, 2]), np.asarray(X).T.ravel())
    np.testing.assert_array_equal(np.asarray(total), np.full((2, 3), 21.0))


@WAYS
def test_the_sum_of_a_number_is_known_while_tracing(way: Any) -> None:
    """JAX programs ask for the size of an axis in this way."""

    def f(a: Any) -> Any:
        assert td.psum(1, "i") == 2
        return a * td.ones(td.psum(1, "i")) + td.psum(0.5, "i")

    np.testing.assert_array_equal(
        np.asarray(way(td.vmap(f, axis_name="i"))(X[:, 0])), [[2.0, 2.0], [5.0, 5.0]]
    )


def test_a_size_may_be_an_integer_of_numpy() -> None:
    assert td.vmap(lambda: td.ones(2), axis_size=np.int64(3))().shape == (3, 2)


def test_the_name_of_a_mesh_axis_changes_nothing() -> None:
    np.testing.assert_array_equal(np.asarray(td.vmap(total, spmd_axis_name="data")(X)), [6.0, 15.0])


def test_a_compiled_function_inside_knows_the_axes_of_each_call() -> None:
    """It once kept what it had recorded for another size, and for a name that was no longer
    there."""
    inner = td.jit(lambda a: td.all_gather(a, "i") * td.psum(1, "i"))
    for row in (X[0], X[0, :2]):
        found = td.vmap(inner, axis_name="i")(row)
        np.testing.assert_array_equal(
            np.asarray(found), np.tile(np.asarray(row) * len(row), (len(row), 1))
        )
    with pytest.raises(
        TraceError, match=r"no axis named 'i' here, bound are: 'j'(.|\n)*test_vmap.py line"
    ):
        td.vmap(inner, axis_name="j")(X[0])


@WAYS
def test_rules_of_custom_functions_use_names_of_axes(way: Any) -> None:
    """A rule is traced when a derivative asks for it, which may be outside the vmap."""
    f = td.custom_jvp(lambda a: a * td.psum(a, "i"))
    f.defjvp(lambda primals, tangents: (f(*primals), 10 * td.psum(primals[0], "i") * tangents[0]))
    g = td.custom_vjp(lambda a: a * td.psum(a, "i"))
    g.defvjp(
        lambda a: (g(a), td.psum(a, "i")),
        lambda total, ct: (10 * total * ct + 0 * td.psum(ct, "i"),),
    )
    for function in (f, g):
        slope = way(
            td.grad(lambda x, function=function: td.sum(td.vmap(function, axis_name="i")(x)))
        )(X[0])
        np.testing.assert_array_equal(np.asarray(slope), [60.0, 60.0, 60.0])
