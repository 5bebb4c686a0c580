"""Transforms of transforms: any order, any depth, jit inside and outside; closures, trees, names of
axes; networks.

Oracles are closed forms, difference quotients in double precision and NumPy loops.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiled import difference
from tetrad import nn
from tetrad.core.dtypes import ARRAY_DTYPES, DType, c64, f32, f64
from tetrad.core.errors import UnsupportedError

Function = Callable[..., Any]
RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Every test draws the same numbers, alone or among others."""
    RNG.bit_generator.state = np.random.default_rng(12).bit_generator.state


def wide(x: Any) -> td.Array:
    return td.asarray(np.asarray(x, np.float64))


def normal(*shape: int) -> td.Array:
    return wide(RNG.standard_normal(shape))


def near(got: Any, want: Any, within: float = 1e-12) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=within, atol=within)


def slope(f: Function, x: Any, step: float = 1e-3) -> np.ndarray:
    """All partial derivatives of a function that returns one number, by differences of four
    points."""
    x = np.asarray(x, np.float64)
    found = np.zeros(x.shape)
    for place in np.ndindex(*x.shape):
        values = []
        for n in (1, -1, 2, -2):
            moved = x.copy()
            moved[place] += n * step
            values.append(float(np.asarray(f(wide(moved)))))
        found[place] = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * step)
    return found


# -- the derivative of a function of one number, in many ways --------------------------------------


def one_like(x: td.Array) -> td.Array:
    return td.ones_like(x)


WAYS: dict[str, Callable[[Function], Function]] = {
    "grad": td.grad,
    "value_and_grad": lambda f: lambda x: td.value_and_grad(f)(x)[1],
    "jvp": lambda f: lambda x: td.jvp(f, (x,), (one_like(x),))[1],
    "vjp": lambda f: lambda x: td.vjp(f, x)[1](one_like(x))[0],
    "linearize": lambda f: lambda x: td.linearize(f, x)[1](one_like(x)),
    "jacfwd": td.jacfwd,
    "jacrev": td.jacrev,
    "jit outside": lambda f: td.jit(td.grad(f)),
    "jit inside": lambda f: td.grad(td.jit(f)),
    "vmap outside": lambda f: lambda x: td.vmap(td.grad(f))(td.stack([x, x + 1]))[0],
    "vmap inside": lambda f: td.grad(
        lambda x: td.sum(td.vmap(f)(td.stack([x, 2 * td.stop_gradient(x)])))
    ),
    "checkpoint": lambda f: td.grad(td.checkpoint(f)),
}


def wave(x: td.Array) -> td.Array:
    return td.exp(0.5 * x) * td.sin(x) + x**3


def wave_slope(order: int, x: float) -> float:
    """The derivative is the imaginary part of (1/2 + i)^n e^((1/2 + i) x), plus that of the
    cube."""
    power = (0.5 + 1j) ** order * np.exp((0.5 + 1j) * x)
    return float(power.imag + [x**3, 3 * x**2, 6 * x, 6.0, 0.0][order])


def test_the_oracle_itself() -> None:
    for order in range(3):
        near(
            slope(lambda x, n=order: wave_slope(n, float(x)), 0.7), wave_slope(order + 1, 0.7), 1e-9
        )


@pytest.mark.parametrize("pair", list(itertools.product(WAYS, WAYS)), ids=" of ".join)
def test_second_derivatives_in_every_order(pair: tuple[str, str]) -> None:
    outer, inner = (WAYS[name] for name in pair)
    near(outer(inner(wave))(wide(0.7)), wave_slope(2, 0.7))


THREE = list(itertools.product(WAYS, WAYS, WAYS))
EAGER = [names for names in THREE if not any("jit" in name for name in names)]


@pytest.mark.parametrize(
    "names", [*EAGER[::40], *[n for n in THREE if n not in EAGER][::60]], ids=" of ".join
)
def test_third_derivatives_in_many_orders(names: tuple[str, ...]) -> None:
    first, second, third = (WAYS[name] for name in names)
    near(first(second(third(wave)))(wide(0.7)), wave_slope(3, 0.7))


def test_fourth_derivative_compiled() -> None:
    near(td.jit(td.grad(td.grad(td.grad(td.grad(wave)))))(wide(0.7)), wave_slope(4, 0.7))


# -- many numbers ----------------------------------------------------------------------------------

A = normal(4, 4)


def bowl(x: td.Array) -> td.Array:
    return td.sum(nn.softmax(A @ x) * td.tanh(x)) + td.sum(x**4) / 4


def hessian_of(x: td.Array) -> np.ndarray:
    return np.stack([slope(lambda z, i=i: td.grad(bowl)(z)[i], x) for i in range(4)])


def test_products_with_second_derivatives_agree_in_every_order() -> None:
    x, v = normal(4), normal(4)
    whole = hessian_of(x)
    near(whole, whole.T, 1e-8)
    want = whole @ np.asarray(v)
    near(td.jvp(td.grad(bowl), (x,), (v,))[1], want, 1e-9)
    near(td.grad(lambda z: td.jvp(bowl, (z,), (v,))[1])(x), want, 1e-9)
    near(td.grad(lambda z: td.sum(td.grad(bowl)(z) * v))(x), want, 1e-9)
    near(td.hessian(bowl)(x) @ v, want, 1e-9)
    near(td.jacrev(td.jacfwd(bowl))(x) @ v, want, 1e-9)
    near(td.vjp(td.grad(bowl), x)[1](v)[0], want, 1e-9)
    near(td.jit(td.hessian(bowl))(x), td.hessian(bowl)(x))


def test_whole_matrices_of_derivatives() -> None:
    x = normal(2, 3)

    def function(x: td.Array) -> dict[str, td.Array]:
        return {"a": td.sin(x) @ td.ones((3, 2), dtype=f64), "b": td.sum(x**2)}

    forward, reverse = td.jacfwd(function)(x), td.jacrev(function)(x)
    assert forward["a"].shape == (2, 2, 2, 3) and forward["b"].shape == (2, 3)
    for key in "ab":
        near(forward[key], reverse[key])
    near(forward["b"], 2 * x)
    for i, j in itertools.product(range(2), range(2)):
        near(forward["a"][i, j], slope(lambda z, i=i, j=j: function(z)["a"][i, j], x), 1e-9)


def test_argnums_of_matrices() -> None:
    x, y = normal(2), normal(3)

    def function(x: td.Array, y: td.Array) -> td.Array:
        return td.sum(x) * y

    by_x, by_y = td.jacfwd(function, argnums=(0, 1))(x, y)
    near(by_x, np.repeat(np.asarray(y)[:, None], 2, axis=1))
    near(by_y, np.eye(3) * np.asarray(x).sum())
    for got, want in zip(td.jacrev(function, argnums=(0, 1))(x, y), (by_x, by_y), strict=True):
        near(got, want)
    mixed = td.hessian(lambda x, y: td.sum(function(x, y)), argnums=(0, 1))(x, y)
    near(mixed[0][1], np.ones((2, 3)))
    near(mixed[1][0], np.ones((3, 2)))
    near(mixed[0][0], np.zeros((2, 2)))


# -- closures --------------------------------------------------------------------------------------


def test_inner_and_outer_changes_are_not_confused() -> None:
    near(td.grad(lambda x: x * td.grad(lambda y: x + y)(1.0))(5.0), 1.0)
    near(td.grad(lambda x: x * td.grad(lambda y: x * y)(2.0))(5.0), 10.0)
    near(td.grad(lambda x: x * td.jvp(lambda y: x * y * y, (x,), (1.0,))[1])(3.0), 6 * 9.0)
    near(td.jvp(lambda x: x * td.grad(lambda y: y * x)(x), (4.0,), (1.0,))[1], 8.0)
    near(td.vmap(lambda x: td.grad(lambda y: x * y * y)(x))(wide([1.0, 2.0])), [2.0, 8.0])
    near(td.grad(lambda x: td.sum(td.vmap(lambda y: x * y)(wide([1.0, 2.0]))))(wide(3.0)), 3.0)


def test_a_pullback_is_used_in_another_transform() -> None:
    x = wide([1.0, 2.0])
    _, back = td.vjp(lambda x: x**3, x)
    near(td.vmap(back)(wide(np.eye(2)))[0], np.diag([3.0, 12.0]))
    near(td.jacfwd(lambda ct: back(ct)[0])(x), np.diag([3.0, 12.0]))
    near(td.jit(lambda ct: back(ct)[0])(x), [3.0, 24.0])

    def outer(x: td.Array) -> td.Array:
        _, back = td.vjp(lambda y: x * y**2, x)
        return td.sum(back(td.ones_like(x))[0])

    near(td.grad(outer)(x), [4.0, 8.0])


def test_python_may_ask_for_values_in_eager_derivatives() -> None:
    def steps(x: td.Array) -> td.Array:
        while x < 100:
            x = x * x
        return x if x.item() > 200 else 2 * x

    near(td.grad(steps)(wide(3.0)), 8 * 3.0**7)
    near(td.grad(td.grad(steps))(wide(3.0)), 56 * 3.0**6)
    near(td.jvp(steps, (wide(3.0),), (wide(1.0),))[1], 8 * 3.0**7)
    for transformed, x in (
        (td.jit(td.grad(steps)), wide(3.0)),
        (td.vmap(td.grad(steps)), wide([3.0])),
    ):
        with pytest.raises(td.errors.TraceError, match=r"has no values yet(.|\n)*td\.where"):
            transformed(x)
    with pytest.raises(td.errors.TraceError, match="has no values yet"):
        td.grad(td.jit(steps))(wide(3.0))


def test_what_numpy_asks_an_array_to_do_itself_is_differentiated() -> None:
    near(td.grad(lambda x: np.mean(x * x))(wide([1.0, 3.0])), np.array([1.0, 3.0]))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: td.sum(np.sin(x)),
        lambda x: td.sum(x) * float(x[0]),
        lambda x: float(td.sum(x)),
        lambda x: td.sum(x * np.asarray(x)),
        lambda x: td.grad(lambda y: td.sum(y * np.asarray(x)))(x)[0],  # of the outer function
        lambda x: td.sum(x) + complex(td.sum(x)).real,
    ],
)
def test_what_would_be_missing_in_a_derivative_is_refused(f: Any) -> None:
    """NumPy and Python's floats would make a constant of it, and the derivative would be wrong
    without a word."""
    x = wide([1.0, 2.0])
    tried = (
        lambda: td.grad(f)(x),
        lambda: td.jvp(f, (x,), (x,)),
        lambda: td.vjp(f, x),
        lambda: td.linearize(f, x),
    )
    for derivative in tried:
        with pytest.raises(
            td.errors.TraceError, match=r"being differentiated: f64(.|\n)*test_composition\.py"
        ):
            derivative()


def test_what_is_constant_in_a_derivative_may_become_a_number() -> None:
    x, data = wide([1.0, 2.0]), wide([3.0, 4.0])
    near(td.grad(lambda x, d: td.sum(x * np.sin(d)) * float(d[0]))(x, data), 3 * np.sin([3.0, 4.0]))
    near(td.grad(lambda x: td.sum(x * np.asarray(td.stop_gradient(x))))(x), [1.0, 2.0])
    near(td.grad(lambda x: td.sum(x * np.asarray(td.argsort(x))))(x), [0.0, 1.0])
    near(td.grad(lambda x: td.sum(x * x[0].item()))(x), [1.0, 1.0])
    near(td.grad(lambda x: td.sum(x) * len(f"{td.sum(x):.2f}"))(x), [4.0, 4.0])


def test_stopped_gradients() -> None:
    x = wide([1.0, 2.0, 3.0])
    value, gradient = td.value_and_grad(lambda x: td.sum(x * td.stop_gradient(x)))(x)
    near(value, 14.0)
    near(gradient, [1.0, 2.0, 3.0])
    near(td.jit(td.grad(lambda x: td.sum(x * td.stop_gradient(x))))(x), [1.0, 2.0, 3.0])
    near(td.jvp(lambda x: x * td.stop_gradient(x), (x,), (td.ones_like(x),))[1], x)
    near(td.vmap(td.grad(lambda x: x * td.stop_gradient(x)))(x), x)
    near(td.grad(lambda x: td.sum(td.stop_gradient({"a": x, "b": 2 * x})["b"] * x))(x), 2 * x)
    # the same expression with and without: neither is taken for the other
    near(
        td.grad(lambda x: td.sum(td.sin(x) * td.stop_gradient(td.sin(x))))(x), np.cos(x) * np.sin(x)
    )


@pytest.mark.parametrize(
    "dtype", [d for d in ARRAY_DTYPES if not d.is_quantized and not d.storage_only], ids=str
)
def test_copies_move_whole_elements_of_every_type(dtype: DType) -> None:
    """A reference moved four bytes for each element of stop_gradient, reshape and concat, whatever
    the type."""
    x = td.asarray(np.arange(7) % 2 == 0).astype(dtype)

    def copies(x: td.Array) -> td.Array:
        return td.concat([td.reshape(td.stop_gradient(x), (1, 7)), td.reshape(x, (1, 7))])

    want = np.stack([np.asarray(x)] * 2)
    assert difference(np.asarray(copies(x)), want) is None
    assert difference(np.asarray(td.jit(copies)(x)), want) is None


# -- what goes in and comes out --------------------------------------------------------------------


def test_trees_go_in_and_come_out() -> None:
    weights = {"w": normal(3), "b": (wide(0.5), None), "rest": []}

    def loss(p: Any, x: td.Array) -> td.Array:
        return td.sum(p["w"] * x) ** 2 + p["b"][0] * td.sum(x)

    x = normal(3)
    gradient = td.grad(loss)(weights, x)
    assert (
        set(gradient) == {"w", "b", "rest"} and gradient["b"][1] is None and gradient["rest"] == []
    )
    inner = float(td.sum(weights["w"] * x))
    near(gradient["w"], 2 * inner * x)
    near(gradient["b"][0], td.sum(x))
    by_both = td.grad(loss, argnums=(0, 1))(weights, x)
    near(by_both[1], 2 * inner * weights["w"] + 0.5)
    value, back = td.vjp(loss, weights, x)
    near(back(td.ones_like(value))[0]["w"], gradient["w"])
    tangents = {"w": td.ones(3, dtype=f64), "b": (wide(0.0), None), "rest": []}
    near(td.jvp(lambda p: loss(p, x), (weights,), (tangents,))[1], 2 * inner * td.sum(x))


def test_something_beside_the_value() -> None:
    def loss(x: td.Array, scale: float = 1.0) -> Any:
        y = x * scale
        return td.sum(y**2), {"y": y, "n": 3}

    x = wide([1.0, 2.0])
    (value, aux), gradient = td.value_and_grad(loss, has_aux=True)(x, scale=2.0)
    near(value, 20.0)
    near(aux["y"], [2.0, 4.0])
    near(gradient, [8.0, 16.0])
    assert int(aux["n"]) == 3
    gradient, aux = td.jit(td.grad(loss, has_aux=True))(x)
    near(gradient, [2.0, 4.0])
    near(aux["y"], x)
    y, back, aux = td.vjp(lambda x: loss(x), x, has_aux=True)
    near(back(td.ones_like(y))[0], [2.0, 4.0])
    near(aux["y"], x)
    _, change, aux = td.jvp(lambda x: loss(x), (x,), (x,), has_aux=True)
    near(change, 10.0)
    near(aux["y"], x)
    matrix, aux = td.jacrev(lambda x: (x**2, x.shape[0]), has_aux=True)(x)
    near(matrix, np.diag([2.0, 4.0]))


def test_arguments_by_number_and_by_name() -> None:
    def f(x: td.Array, y: td.Array, *, z: float) -> td.Array:
        return x * y**2 * z

    x, y = wide(3.0), wide(5.0)
    near(td.grad(f, argnums=1)(x, y, z=2.0), 60.0)
    near(td.grad(f, argnums=-1)(x, y, z=2.0), 60.0)
    near(td.grad(f, argnums=(1, 0))(x, y, z=2.0), [60.0, 50.0])
    assert isinstance(td.grad(f, argnums=(0,))(x, y, z=2.0), tuple)


def test_what_the_value_does_not_depend_on_has_zero_gradient() -> None:
    x, y = normal(3), normal(2, 2)
    by_x, by_y = td.grad(lambda x, y: td.sum(x), argnums=(0, 1))(x, y)
    near(by_x, np.ones(3))
    near(by_y, np.zeros((2, 2)))
    near(td.grad(lambda x: 3.0)(x), np.zeros(3))
    near(td.jvp(lambda x: (x, wide(1.0)), (x,), (x,))[1][1], 0.0)
    assert td.grad(lambda x: 3.0)(x).dtype is f64


def test_an_input_may_have_any_name() -> None:
    """A reference knew seeds by the names of inputs, so that a user's input could be taken for
    one."""

    def f(d_output: td.Array, tangent_x: td.Array, x: td.Array) -> td.Array:
        return td.sum(d_output * tangent_x**2 * x)

    a, b, c = normal(2), normal(2), normal(2)
    for got, want in zip(
        td.grad(f, argnums=(0, 1, 2))(a, b, c), (b**2 * c, 2 * a * b * c, a * b**2), strict=True
    ):
        near(got, want)
    twice = td.grad(lambda t: td.sum(td.grad(f)(a, t, c)))(b)
    near(twice, 2 * b * c)


def test_integer_arguments_take_no_part() -> None:
    x, i = normal(4), td.asarray([2, 0, 2])
    y, back = td.vjp(lambda x, i: td.take(x, i), x, i)
    by_x, by_i = back(td.ones_like(y))
    near(by_x, [1.0, 0.0, 2.0, 0.0])
    near(by_i, [0, 0, 0])
    near(
        td.grad(lambda x, i: td.sum(td.take(x, i)), argnums=(0, 1), allow_int=True)(x, i)[1],
        [0, 0, 0],
    )


# -- batches ---------------------------------------------------------------------------------------


def test_vector_times_matrix_in_batches() -> None:
    w, b, xs = normal(3, 3), normal(3), normal(4, 3)

    def loss(x: td.Array) -> td.Array:
        return td.sum(td.reshape(x, (1, 3)) @ w + b)

    near(td.vmap(loss)(xs), [loss(xs[i]) for i in range(4)])


@pytest.mark.parametrize(
    ("left", "right"), [(0, 0), (0, None), (None, 0), (1, 2), (2, None), (None, 1)]
)
def test_products_with_either_side_in_batches(left: int | None, right: int | None) -> None:
    """A reference computed only the first slice of a matrix times a batch of matrices."""
    a, b = normal(3, 3, 3), normal(3, 3, 3)
    a, b = a if left is not None else a[0], b if right is not None else b[0]
    sides = ((a, left), (b, right))
    lefts, rights = (
        [x if axis is None else np.take(x, i, axis) for i in range(3)] for x, axis in sides
    )
    rows = [np.asarray(x) @ np.asarray(y) for x, y in zip(lefts, rights, strict=True)]
    product = td.vmap(lambda a, b: a @ b, in_axes=(left, right))
    near(product(a, b), np.stack(rows))
    near(td.jit(product)(a, b), np.stack(rows))
    near(
        td.grad(lambda a: td.sum(td.sin(product(a, b))))(a),
        slope(lambda a: td.sum(td.sin(product(a, b))), a),
        1e-8,
    )


def test_gradients_of_a_shared_parameter_come_row_by_row() -> None:
    w, xs = normal(3), normal(5, 3)

    def loss(w: td.Array, x: td.Array) -> td.Array:
        return td.tanh(td.sum(w * x)) ** 2

    rows = td.vmap(td.grad(loss), in_axes=(None, 0))(w, xs)
    assert rows.shape == (5, 3)
    near(rows, [td.grad(loss)(w, xs[i]) for i in range(5)])
    together = td.grad(lambda w: td.sum(td.vmap(loss, in_axes=(None, 0))(w, xs)))(w)
    near(td.sum(rows, axis=0), together)
    near(td.jit(td.vmap(td.grad(loss), in_axes=(None, 0)))(w, xs), rows)


def test_batches_of_batches() -> None:
    a, b = normal(2, 3, 4), normal(5, 4)
    # [j,k], [l,k]
    pairs = td.vmap(td.vmap(lambda x, y: td.sum(x * y), in_axes=(None, 0)), in_axes=(0, None))
    blocks = td.vmap(pairs, in_axes=(0, None), out_axes=-1)
    near(blocks(a, b), np.einsum("ijk,lk->jli", a, b))
    near(td.jit(blocks)(a, b), blocks(a, b))


def test_trees_of_axes() -> None:
    tree = {"a": normal(2, 3), "b": [normal(3, 4), normal(5)]}

    def f(t: Any, *, k: td.Array) -> Any:
        return {"sum": t["a"] + k, "rest": (td.sum(t["b"][0]), t["b"][1])}

    out = td.vmap(f, in_axes=({"a": 1, "b": [0, None]},), out_axes={"sum": -1, "rest": (0, None)})(
        tree, k=normal(3)
    )
    assert (
        out["sum"].shape == (2, 3) and out["rest"][0].shape == (3,) and out["rest"][1].shape == (5,)
    )
    near(out["rest"][0], td.sum(tree["b"][0], axis=1))
    near(out["rest"][1], tree["b"][1])


def test_a_batch_axis_is_not_taken_for_an_axis_of_the_other_operand() -> None:
    """Aligned from the right, [B, n] beside [m, n] would be another sum."""
    x, y = normal(4, 3), normal(4, 3)
    near(td.vmap(lambda x: x + y)(x), np.asarray(x)[:, None] + np.asarray(y))
    chosen = np.where(np.asarray(y) > 0, np.asarray(x)[:, None], np.asarray(y))
    near(td.vmap(lambda x: td.where(y > 0, x, y))(x), chosen)


def test_results_that_do_not_depend_on_the_batch() -> None:
    y = normal(2)
    near(td.vmap(lambda x: y * 2)(normal(3)), np.stack([np.asarray(y) * 2] * 3))
    near(td.vmap(lambda x: (x, y), out_axes=(0, None))(normal(3))[1], y)
    near(td.vmap(lambda: y, axis_size=2)(), np.stack([y, y]))


def test_empty_batches() -> None:
    f = td.vmap(lambda x: nn.softmax(x) @ A)
    assert f(td.zeros((0, 4), dtype=f64)).shape == (0, 4)
    assert td.jit(f)(td.zeros((0, 4), dtype=f64)).shape == (0, 4)
    assert td.vmap(td.grad(bowl))(td.zeros((0, 4), dtype=f64)).shape == (0, 4)


def test_symbolic_sizes() -> None:
    """One program for every size, of gradients and batches too."""
    rows = td.Dim("rows", max=64)
    gradient = td.jit(
        td.grad(lambda x, w: td.sum(nn.softmax(x @ w) ** 2), argnums=(0, 1)), dims={"x": {0: rows}}
    )
    batch = td.jit(td.vmap(lambda x: td.sum(td.cumulative_sum(x) * x)), dims={"x": {0: rows}})
    w = normal(3, 4)
    for count in (1, 5, 33):
        x = normal(count, 3)
        eager = td.grad(lambda x, w: td.sum(nn.softmax(x @ w) ** 2), argnums=(0, 1))(x, w)
        for got, want in zip(gradient(x, w), eager, strict=True):
            near(got, want)
        near(batch(x), td.vmap(lambda x: td.sum(td.cumulative_sum(x) * x))(x))


FLAT: dict[str, Callable[..., Any]] = {
    "a sum": td.grad(td.sum),
    "a mean": td.grad(td.mean),
    "a sum in a function": td.grad(td.jit(lambda x: td.sum(x))),
    "a row": lambda x: td.vjp(lambda x: 2 * x[0], x)[1](td.ones(3)),
    "no change": lambda x: td.jvp(td.ones_like, (x,), (x,)),
    "stopped": td.grad(lambda x: td.sum(td.stop_gradient(x))),
    "not needed": lambda x: td.grad(lambda x, y: td.sum(x), argnums=(0, 1))(x, 2 * x),
    "integers": lambda x: td.grad(lambda n: td.sum(x * n), allow_int=True)(td.astype(x, td.int32)),
    "rows": td.vmap(td.grad(lambda row: td.sum(row))),
    "twice": lambda x: td.jvp(td.grad(td.sum), (x,), (x,)),
    "by a number": lambda x: td.grad(lambda s: td.sum(s * td.ones_like(x)))(2.0),
    "of numbers": lambda x: td.vmap(lambda s: td.sum(s * td.ones_like(x)))(td.ones(2)),
    "none for zeros": lambda x: td.grad(lambda x: td.sum(without_second()(x, x)))(x),
    "sorted": td.grad(lambda x: td.sum(td.sort(x, axis=0) ** 2)),
    "turned around": lambda x: td.linear_transpose(lambda x: td.sum(x, axis=0), x)(td.ones(3)),
    "grid": lambda x: td.meshgrid(x[:, 0], td.arange(2)),
}


def without_second() -> Any:
    f = td.custom_vjp(lambda x, y: x * y)
    f.defvjp(lambda x, y: (x * y, None), lambda _, ct: (ct, None))
    return f


@pytest.mark.parametrize("name", FLAT)
def test_results_of_symbolic_size_that_depend_on_no_values(name: str) -> None:
    """Only the size of what comes out is unknown while tracing; it was once asked for."""
    compiled = td.jit(FLAT[name], dims=({0: td.Dim("rows", max=16)},))
    for rows in (2, 5):
        x = td.asarray(np.arange(3.0 * rows).reshape(rows, 3).astype(np.float32))
        for got, want in zip(
            td.tree.leaves(compiled(x)), td.tree.leaves(FLAT[name](x)), strict=True
        ):
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_what_needs_a_known_size_is_told_at_the_users_line() -> None:
    dims = ({0: td.Dim("rows", max=16)},)
    with pytest.raises(
        UnsupportedError, match=r"reduce_prod(.|\n)*symbolic size(.|\n)*test_composition.py line"
    ):
        td.jit(td.grad(lambda x: td.sum(td.prod(x, axis=0))), dims=dims)(td.ones((2, 3)))
    with pytest.raises(
        UnsupportedError,
        match=r"linspace(.|\n)*got rows(.|\n)*test_composition.py line(.|\n)*arange",
    ):
        td.jit(lambda x: td.linspace(0, 1, x.shape[0]), dims=dims)(td.ones((2, 3)))


def test_batches_of_indices_into_tables_of_symbolic_size() -> None:
    rows, width = td.Dim("rows", max=16), td.Dim("width", max=64)

    def picked(x: td.Array, i: td.Array) -> td.Array:
        return td.grad(lambda x: td.sum(td.take(x, i) ** 3))(x)

    compiled = td.jit(td.vmap(picked), dims={"x": {0: rows, 1: width}, "i": {0: rows}})
    for count, size in ((1, 5), (3, 2), (7, 33)):
        x, i = normal(count, size), RNG.integers(-size, size, (count, 4))
        found = compiled(x, td.asarray(i))
        near(found, [picked(x[n], td.asarray(i[n])) for n in range(count)])


# -- names of axes ---------------------------------------------------------------------------------


def test_sums_means_and_extremes_over_the_batch() -> None:
    x = normal(4, 3)
    values = np.asarray(x)
    near(td.vmap(lambda x: td.psum(x, "i"), axis_name="i")(x), np.stack([values.sum(0)] * 4))
    near(td.vmap(lambda x: td.pmean(x, "i"), axis_name="i")(x), np.stack([values.mean(0)] * 4))
    near(td.vmap(lambda x: td.pmax(x, "i"), axis_name="i", out_axes=None)(x), values.max(0))
    near(td.vmap(lambda x: td.pmin(x, "i"), axis_name="i", out_axes=None)(x), values.min(0))
    near(td.vmap(lambda x: td.all_gather(x, "i"), axis_name="i")(x)[2], values)
    near(
        td.vmap(lambda x: td.axis_index("i") * x, axis_name="i")(x), np.arange(4)[:, None] * values
    )
    near(td.vmap(lambda x: x * td.axis_size("i"), axis_name="i")(x), 4 * values)
    near(td.vmap(lambda x: td.psum(1, "i") * x, axis_name="i")(x), 4 * values)
    near(td.jit(td.vmap(lambda x: x / td.psum(x, "i"), axis_name="i"))(x), values / values.sum(0))


def test_nested_names_of_axes() -> None:
    x = normal(2, 3)
    values = np.asarray(x)

    def nested(f: Function) -> td.Array:
        return td.vmap(td.vmap(f, axis_name="inner"), axis_name="outer")(x)

    near(nested(lambda x: td.psum(x, "outer")), np.broadcast_to(values.sum(0), (2, 3)))
    near(nested(lambda x: td.psum(x, "inner")), np.broadcast_to(values.sum(1)[:, None], (2, 3)))
    near(nested(lambda x: td.psum(x, ("outer", "inner"))), np.full((2, 3), values.sum()))
    counted = nested(lambda x: td.psum(x * td.axis_index("inner"), "outer"))
    near(counted, np.broadcast_to(values.sum(0) * np.arange(3), (2, 3)))
    near(
        nested(lambda x: td.psum(td.psum(x, "inner") ** 2, "outer")),
        np.full((2, 3), (values.sum(1) ** 2).sum()),
    )


COLLECTIVES: dict[str, Function] = {
    "psum": lambda x: td.sin(x) * td.psum(x**2, "i"),
    "pmean": lambda x: td.sin(x) * td.pmean(x**2, "i"),
    "pmax": lambda x: x * td.pmax(td.sin(x), "i"),
    "pmin": lambda x: x * td.pmin(td.sin(x), "i"),
    "all_gather": lambda x: td.sum(td.all_gather(x, "i") ** 2) * x,
    "tiled": lambda x: td.sum(td.all_gather(td.reshape(x, (1,)), "i", tiled=True) ** 3) * x,
    "axis_index": lambda x: x**2 * td.axis_index("i"),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_derivatives_through_collectives(name: str) -> None:
    """Outside the batch, where rows depend on one another; and second derivatives."""
    x = wide([0.3, -0.8, 1.1])

    def loss(x: td.Array) -> td.Array:
        return td.sum(td.vmap(COLLECTIVES[name], axis_name="i")(x) ** 2)

    near(td.grad(loss)(x), slope(loss, x), 1e-9)
    near(td.jit(td.grad(loss))(x), slope(loss, x), 1e-9)
    second = td.jvp(td.grad(loss), (x,), (td.ones_like(x),))[1]
    near(second, slope(lambda z: td.sum(td.grad(loss)(z)), x), 1e-7)


def test_derivatives_inside_a_named_batch() -> None:
    """As in JAX: the gradient of a row by itself flows through sums over rows into every row."""
    x = wide([1.0, 2.0, 3.0])
    inside = td.vmap(td.grad(lambda x: td.psum(x**2, "i")), axis_name="i")(x)
    near(inside, 3 * 2 * np.asarray(x))
    change = td.vmap(
        lambda x: td.jvp(lambda x: td.psum(x**2, "i"), (x,), (td.ones_like(x),))[1], axis_name="i"
    )(x)
    near(change, np.full(3, 12.0))


# -- the same bits ---------------------------------------------------------------------------------


def test_cotangents_are_added_in_a_fixed_order() -> None:
    """The graph is the same each time, so the order of every sum is."""

    def f(x: td.Array) -> td.Array:
        parts = [x * 0.1 * i + td.sin(x * i) for i in range(1, 6)]
        return sum((td.sum(p * x) for p in parts), start=td.sum(x))

    x = td.asarray(RNG.standard_normal(50).astype(np.float32))
    assert str(td.trace(td.grad(f))(x)) == str(td.trace(td.grad(f))(x))
    first = np.asarray(td.grad(f)(x))
    assert difference(np.asarray(td.grad(f)(x)), first) is None
    compiled = [np.asarray(td.jit(td.grad(f))(x)) for _ in range(2)]
    assert difference(*compiled) is None


def test_a_row_of_a_compiled_batch_has_the_bits_it_has_alone() -> None:
    f = td.jit(td.grad(lambda x: td.sum(nn.softmax(x) * td.exp(x) @ td.ones(7))))
    many = td.jit(td.vmap(td.grad(lambda x: td.sum(nn.softmax(x) * td.exp(x) @ td.ones(7)))))
    xs = td.asarray(RNG.standard_normal((5, 7)).astype(np.float32))
    rows = np.asarray(many(xs))
    for i in range(5):
        assert difference(np.asarray(f(xs[i])), rows[i]) is None


# -- quantised weights -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["q4_0", "q8_0", "q4_k"])
def test_gradients_pass_through_quantised_weights(name: str) -> None:
    w = td.quant.quantize(td.asarray(RNG.standard_normal((48, 256)).astype(np.float32)), name)
    x = td.asarray(RNG.standard_normal((3, 256)).astype(np.float32) / 16)

    def loss(x: td.Array, w: td.Array) -> td.Array:
        return td.sum(td.sin(x @ w.dequantize().T))

    numbers = np.asarray(w.dequantize(), np.float64)
    want = np.cos(np.asarray(x, np.float64) @ numbers.T) @ numbers
    near(td.grad(loss)(x, w), want, 1e-5)
    near(td.jit(td.grad(loss))(x, w), want, 1e-5)
    near(td.jvp(lambda x: loss(x, w), (x,), (x,))[1], np.sum(want * np.asarray(x)), 1e-4)
    rows = td.vmap(td.grad(loss), in_axes=(0, None))(td.reshape(x, (3, 1, 256)), w)
    near(td.reshape(rows, (3, 256)), want, 1e-5)


# -- networks --------------------------------------------------------------------------------------

ROWS = RNG.standard_normal((4, 5))
LABELS = np.arange(4) % 5


def cross_entropy(logits: td.Array, labels: Any) -> td.Array:
    """logsumexp - logit of the label, of every row."""
    picked = td.take_along_axis(logits, td.asarray(labels)[:, None], axis=1)
    return nn.logsumexp(logits, axis=1) - picked[:, 0]


def test_relu_backward() -> None:
    x = td.asarray([-2, -0.1, 0, 0.1, 1, 3, -5], dtype=f32)
    (found,) = td.vjp(nn.relu, x)[1](td.asarray([0.5, 1.5, 2.5, -0.7, 4, -1, 9], dtype=f32))
    near(found, np.float32([0, 0, 0, -0.7, 4, -1, 0]), 1e-6)


def test_cross_entropy_forward() -> None:
    logits = td.asarray([[1, 2, 3], [-1, 0, 4], [5, 5, 5]], dtype=f32)
    near(cross_entropy(logits, [2, 0, 1]), np.float32([0.407606, 5.024745, 1.098612]), 1e-5)


ACTIVATIONS: dict[str, Function] = {
    "sigmoid": nn.sigmoid, "tanh": td.tanh, "silu": nn.silu, "gelu": lambda x: nn.gelu(x,
    approximate=False),
    "gelu tanh": nn.gelu, "exp": td.exp, "log": lambda x: td.log(td.abs(x) + 0.5), "relu": nn.relu,
    "sqrt": lambda x: td.sqrt(td.abs(x) + 0.5), "rsqrt": lambda x: (td.abs(x) + 0.5) ** -0.5,
    "neg": lambda x: -x,
    "softplus": nn.softplus, "elu": nn.elu, "leaky relu": nn.leaky_relu,
    "log_softmax": nn.log_softmax,
    "softmax": nn.softmax, "layer_norm": nn.layer_norm, "rms_norm": nn.rms_norm,
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_activations(name: str, dtype: DType) -> None:
    x, dy = (RNG.standard_normal(32) for _ in range(2))
    x = np.where(np.abs(x) < 0.01, 0.5, x)  # away from kinks
    want = slope(lambda x: td.sum(ACTIVATIONS[name](x) * wide(dy)), x, 1e-4)
    (found,) = td.vjp(ACTIVATIONS[name], td.asarray(x).astype(dtype))[1](
        td.asarray(dy).astype(dtype)
    )
    assert found.dtype is dtype
    near(found, want, 1e-4 if dtype is f32 else 1e-7)


def mean(x: td.Array) -> td.Array:
    return td.mean(x)


NETWORKS: dict[str, tuple[Function, list[np.ndarray]]] = {
    "cross entropy": (
        lambda x: td.sum(cross_entropy(x, LABELS) * wide([0.3, -1, 2, 0.7]).astype(x.dtype)),
        [ROWS],
    ),
    "batched product": (
        lambda a, b: td.sum(a @ b),
        [RNG.standard_normal((2, 3, 4)), RNG.standard_normal((2, 4, 5))],
    ),
    "softmax of rows": (lambda x: td.sum(nn.softmax(x)), [RNG.standard_normal((3, 5))]),
    "layer norm": (
        lambda x, g, b: td.sum(td.sin(nn.layer_norm(x, g, b, eps=1e-5))),
        [RNG.standard_normal((3, 6)), np.abs(RNG.standard_normal(6)) + 0.5, RNG.standard_normal(6)],
    ),
    "dense, cross entropy, sum": (
        lambda x, w, b: td.sum(cross_entropy(x @ w + b, LABELS)),
        [RNG.standard_normal((4, 3)), RNG.standard_normal((3, 5)), RNG.standard_normal(5)],
    ),
    "dense, cross entropy, mean": (
        lambda x, w: mean(cross_entropy(x @ w, [1, 3, 0])),
        [RNG.standard_normal((3, 2)), RNG.standard_normal((2, 4))],
    ),
    "mean, max and min of f64": (
        lambda x: td.mean(x**2) + td.max(td.sin(x)) * td.min(x, axis=0)[1] + td.std(x),
        [RNG.standard_normal((3, 4))],
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_gradients_of_networks(name: str, dtype: DType) -> None:
    """A reference ran reductions of f64 other than sums with the code of f32."""
    f, arguments = NETWORKS[name]
    given = [td.asarray(a).astype(dtype) for a in arguments]
    value, gradients = td.value_and_grad(f, argnums=tuple(range(len(given))))(*given)
    near(value, f(*given), 1e-6)
    for i, found in enumerate(gradients):
        others = [wide(a) for a in arguments]
        want = slope(lambda z, i=i, o=others: f(*o[:i], z, *o[i + 1 :]), arguments[i])
        near(found, want, 1e-4 if dtype is f32 else 1e-8)
    for found, want in zip(
        td.jit(td.grad(f, argnums=tuple(range(len(given)))))(*given), gradients, strict=True
    ):
        near(found, want, 1e-5 if dtype is f32 else 1e-12)


def test_losses_in_batches_fold_into_rows() -> None:
    """A reference compiled nothing for a loss of a rank it did not know, and left the output as it
    was."""
    logits, labels = normal(6, 4, 5), np.arange(24).reshape(6, 4) % 5
    found = td.vmap(cross_entropy)(logits, td.asarray(labels))
    near(found, [cross_entropy(logits[i], labels[i]) for i in range(6)])
    gradients = td.jit(td.vmap(td.grad(lambda x, n: td.sum(cross_entropy(x, n)))))(
        logits, td.asarray(labels)
    )
    near(
        gradients,
        [td.grad(lambda x, i=i: td.sum(cross_entropy(x, labels[i])))(logits[i]) for i in range(6)],
    )


def test_a_slice_with_two_readers_keeps_its_values() -> None:
    """A reference fused a slice into one of its readers and left the other with stale memory."""
    x = normal(6, 5)

    def f(x: td.Array) -> td.Array:
        part = x[1:4]
        return td.sum(part @ td.ones((5, 2), dtype=f64)) * td.sum(
            td.cumulative_sum(part, axis=0) * part
        )

    near(td.jit(td.grad(f))(x), slope(f, x), 1e-8)
    near(td.grad(f)(x), slope(f, x), 1e-8)


def test_complex_numbers_have_no_largest() -> None:
    z = td.asarray(np.array([1 + 1j, 2j], np.complex64))
    for function in (td.max, nn.relu, lambda z: td.maximum(z, z)):
        with pytest.raises(td.errors.DtypeError, match=r"c64|complex"):
            function(z)
    assert z.dtype is c64


def apply_all(functions: Sequence[Function], x: Any) -> Any:
    for function in functions:
        x = function(x)
    return x


def test_nested_calls_are_derived_once_for_each_pattern() -> None:
    """Thirty equal layers: the graph of the gradient holds one derived layer, called thirty
    times."""
    layer = td.jit(lambda x: td.tanh(x @ A) / 10 + x)

    def deep(x: td.Array) -> td.Array:
        return td.sum(apply_all([layer] * 30, x))

    graph = td.trace(td.grad(deep))(td.Spec((4,), f64))
    calls = [node for node in graph.nodes() if node.op.name == "call"]
    assert len(calls) == 60 and len({node.param("graph") for node in calls}) == 2
    x = normal(4) / 10
    near(td.grad(deep)(x), slope(deep, x), 1e-7)
    near(td.jit(td.grad(deep))(x), td.grad(deep)(x), 1e-11)


def test_a_rule_may_compute_value_and_change_in_one_call() -> None:
    f = td.custom_jvp(lambda x: td.sin(x))
    both = td.jit(lambda x, t: (td.sin(x), 3 * td.cos(x) * t))
    f.defjvp(lambda primals, tangents: both(*primals, *tangents))
    near(td.grad(f)(wide(0.5)), 3 * np.cos(0.5))
    near(td.grad(td.grad(f))(wide(0.5)), -3 * np.sin(0.5))
    near(td.jit(td.grad(f))(wide(0.5)), 3 * np.cos(0.5))


def test_a_rule_that_mixes_values_and_changes_in_a_loop_is_refused() -> None:
    def step(carry: Any, _: Any) -> Any:
        return (td.sin(carry[0]), td.cos(carry[0]) * carry[1]), None

    f = td.custom_jvp(lambda x: td.sin(td.sin(x)))
    f.defjvp(lambda primals, tangents: td.scan(step, (*primals, *tangents), None, length=2)[0])
    near(td.jvp(f, (wide(0.5),), (wide(1.0),))[1], np.cos(np.sin(0.5)) * np.cos(0.5))
    with pytest.raises(td.errors.UnsupportedError, match="computes values and changes in one loop"):
        td.grad(f)(wide(0.5))
