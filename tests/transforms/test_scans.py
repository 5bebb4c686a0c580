"""Scans, differentiated and batched: published values, finite differences, and every strategy of
checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import UnsupportedError

F64 = td.float64
STRATEGIES: list[Any] = [
    None,
    "sqrt",
    "none",
    *[("every", k) for k in range(1, 8)],
    ("bisect", 2),
    ("bisect", 5),
]
STRATEGIES += [("binomial", s) for s in (1, 2, 3, 7)]
Function = Callable[..., Any]


def array(values: Any, dtype: Any = F64) -> td.Array:
    return td.asarray(np.asarray(values, np.float64), dtype=dtype)


def close(got: Any, want: Any, within: float = 1e-12) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=0, atol=within)


def ways(f: Function) -> list[Function]:
    """Eager and compiled."""
    return [f, td.jit(f)]


def differences(f: Function, x: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """The gradient of a number by central differences."""
    found = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        bump = np.zeros_like(x)
        bump[i] = step
        found[i] = (float(f(array(x + bump))) - float(f(array(x - bump)))) / (2 * step)
    return found


def driven(c: td.Array, x: td.Array) -> tuple[td.Array, None]:
    """A step that is not linear: recomputed states that are wrong show in the gradient."""
    return 0.9 * td.sin(c) + x, None


INIT = [0.2, -0.4]
XS = [[0.05 * (t + 1), -0.05 * (t + 1)] for t in range(7)]
D_INIT = [0.154610668443257, 0.099466173255124]


def final(strategy: Any = None, reverse: bool = False) -> Function:
    return lambda init, xs: td.sum(
        td.scan(driven, init, xs, checkpoint=strategy, reverse=reverse)[0]
    )


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_the_gradient_is_the_same_for_every_strategy(strategy: Any) -> None:
    d_init, d_xs = td.grad(final(strategy), argnums=(0, 1))(array(INIT), array(XS))
    close(d_init, D_INIT)
    close(d_xs[0], [0.175283634283309, 0.119989849752691])
    close(d_xs[5], [0.557864388746197, 0.524463898663026])
    close(d_xs[6], [1, 1])


@pytest.mark.parametrize("strategy", [None, "sqrt", ("bisect", 2), ("binomial", 3)], ids=str)
def test_compiled_gradients_with_checkpoints(strategy: Any) -> None:
    d_init, d_xs = td.jit(td.grad(final(strategy), argnums=(0, 1)))(array(INIT), array(XS))
    close(d_init, D_INIT)
    close(d_xs[5], [0.557864388746197, 0.524463898663026])


@pytest.mark.parametrize("strategy", [None, ("every", 3), ("binomial", 2)], ids=str)
def test_scans_from_the_last_row_to_the_first(strategy: Any) -> None:
    xs = np.asarray(XS)[::-1].copy()
    d_init, d_xs = td.grad(final(strategy, reverse=True), argnums=(0, 1))(array(INIT), array(xs))
    close(d_init, D_INIT)
    close(d_xs[1], [0.557864388746197, 0.524463898663026])


@pytest.mark.parametrize("strategy", [None, ("every", 3), ("binomial", 2)], ids=str)
def test_a_loss_of_the_whole_trajectory(strategy: Any) -> None:
    def loss(init: td.Array) -> td.Array:
        _, ys = td.scan(lambda c, x: (driven(c, x)[0],) * 2, init, array(XS), checkpoint=strategy)
        return td.sum(td.arange(1, 8, dtype=F64)[:, None] * ys)

    for f in ways(td.value_and_grad(loss)):
        value, d_init = f(array(INIT))
        close(value, -2.038384999203328, 1e-11)
        close(d_init, [11.420089832248225, 8.943019112166201], 1e-11)


def rnn(strategy: Any = None) -> Function:
    def loss(w: td.Array, c0: td.Array, xs: td.Array) -> td.Array:
        return td.sum(
            td.scan(lambda c, x: (td.tanh(w @ c + x), None), c0, xs, checkpoint=strategy)[0]
        )

    return loss


RNN = [[0.5, -0.2], [0.1, 0.8]], [1.0, -1.0], [[0.1, 0.2], [-0.3, 0.0], [0.2, -0.1]]


@pytest.mark.parametrize("strategy", [None, "none", ("every", 2), ("binomial", 2)], ids=str)
def test_the_gradient_of_what_a_body_captures(strategy: Any) -> None:
    args = [array(x) for x in RNN]
    for f in ways(td.grad(rnn(strategy), argnums=(0, 1, 2))):
        by_w, by_init, by_xs = f(*args)
        close(
            by_w, [[0.643226794481609, -0.689546137089516], [0.667046702364576, -0.721117017886786]]
        )
        close(by_init, [0.111133354310519, 0.146272676724596])
        close(by_xs[0], [0.176855751847514, 0.227054783867623])


def test_single_precision_agrees() -> None:
    args = [array(x, td.float32) for x in RNN]
    for f in ways(td.grad(rnn())):
        close(
            f(*args),
            [[0.643226794481609, -0.689546137089516], [0.667046702364576, -0.721117017886786]],
            1e-5,
        )


def test_forward_derivatives() -> None:
    for f in ways(lambda i, t: td.jvp(lambda i: td.scan(driven, i, array(XS))[0], (i,), (t,))):
        value, change = f(array(INIT), array([1.0, 0.0]))
        close(value, [1.056248769038808, -1.081394297899005])
        close(change, [D_INIT[0], 0.0])


def test_linear_bodies() -> None:
    for f in ways(
        td.value_and_grad(lambda c: td.sum(td.scan(lambda c, _: (1.1 * c, None), c, length=5)[0]))
    ):
        _, d_init = f(array([1.0, 2.0, 3.0]))
        close(d_init, [1.1**5] * 3)


def test_batches_of_initial_states() -> None:
    rows = array([[0.2, -0.4], [0.0, 0.0], [1.0, 2.0]])
    for f in ways(td.vmap(td.value_and_grad(lambda init: final()(init, array(XS))))):
        losses, by_init = f(rows)
        close(losses, [-0.0251455288602, 0.0, 0.355022259081847], 1e-8)
        wanted = [[0.15461067, 0.09946617], [0.21958954, 0.21958954], [0.02097882, -0.10330951]]
        close(by_init, wanted, 1e-8)


def test_batches_of_rows_and_states() -> None:
    init = array(np.arange(1.0, 7.0).reshape(3, 2))
    xs = array(0.1 * np.arange(24.0).reshape(3, 4, 2))
    for f in ways(td.vmap(lambda c, x: td.scan(lambda c, x: (c + x, None), c, x)[0])):
        close(f(init, xs), [[2.2, 3.6], [7.4, 8.8], [12.6, 14.0]])


def test_only_the_rows_are_batched() -> None:
    xs = np.random.default_rng(0).standard_normal((3, 5, 2))
    got, ys = td.vmap(
        lambda x: td.scan(lambda c, x: (td.sin(c) + x, c), array([0.5, 0.25]), x), in_axes=0
    )(array(xs))
    for row in range(3):
        want, want_ys = td.scan(lambda c, x: (td.sin(c) + x, c), array([0.5, 0.25]), array(xs[row]))
        close(got[row], want)
        close(ys[row], want_ys)


def test_gradients_of_batches_with_checkpoints() -> None:
    rows = array([[0.2, -0.4], [1.0, 2.0]])
    for strategy in (None, ("every", 3)):
        per_row = td.vmap(td.grad(final(strategy)), in_axes=(0, None))(rows, array(XS))
        whole = td.grad(
            lambda r, s=strategy: td.sum(td.vmap(final(s), in_axes=(0, None))(r, array(XS)))
        )(rows)
        close(per_row, whole)
        close(per_row[0], D_INIT)


def test_second_derivatives() -> None:
    def loss(init: td.Array) -> td.Array:
        return td.sum(td.scan(lambda c, x: (td.sin(c) * td.sum(c) + x, None), init, array(XS))[0])

    hessian = np.asarray(td.hessian(loss)(array(INIT)))
    for i in range(2):
        row = differences(lambda x, i=i: td.grad(loss)(x)[i], np.asarray(INIT))
        close(hessian[i], row, 1e-6)
    close(td.jit(td.hessian(loss))(array(INIT)), hessian, 1e-12)
    twice = td.grad(lambda x: td.sum(td.grad(loss)(x) ** 2))
    close(
        twice(array(INIT)),
        differences(lambda x: td.sum(td.grad(loss)(x) ** 2), np.asarray(INIT)),
        1e-5,
    )


def test_third_derivative_through_a_scan() -> None:
    def f(x: td.Array) -> td.Array:
        return td.scan(lambda c, _: (td.sin(c) * x, None), x, length=3)[0]

    third = td.grad(td.grad(td.grad(f)))
    at, step = 0.7, 1e-5
    second = td.grad(td.grad(f))
    slope = (float(second(array(at + step))) - float(second(array(at - step)))) / (2 * step)
    close(third(array(at)), slope, 1e-6)


def test_integer_carries_have_no_cotangent() -> None:
    def loss(x: td.Array) -> td.Array:
        (_, total), _ = td.scan(lambda c, _: ((c[0] + 1, c[1] * x + c[0]), None), (0, x), length=3)
        return total

    close(td.grad(loss)(array(2.0)), 4 * 8.0 + 1.0)


def test_scans_without_steps() -> None:
    def loss(init: td.Array, xs: td.Array) -> td.Array:
        return td.sum(td.scan(driven, init, xs, checkpoint="sqrt")[0])

    d_init, d_xs = td.grad(loss, argnums=(0, 1))(array(INIT), array(np.zeros((0, 2))))
    close(d_init, [1, 1])
    assert d_xs.shape == (0, 2)


def test_branches() -> None:
    def f(x: td.Array) -> td.Array:
        return td.cond(x > 1, lambda x: x * x, td.sin, x)

    def switch(i: td.Array, x: td.Array) -> td.Array:
        return td.switch(i, [lambda x: x, lambda x: x**2, lambda x: x**3], x)

    close(td.grad(f)(array(2.0)), 4.0)
    for g in ways(td.vmap(td.grad(f))):
        close(g(array([0.0, 2.0])), [1.0, 4.0])
    close(
        td.vmap(td.grad(switch, argnums=1))(td.asarray([-1, 0, 1, 2, 9]), array([2.0] * 5)),
        [1, 1, 4, 12, 12],
    )
    close(td.jit(td.grad(switch, argnums=1))(2, array(2.0)), 12)


def test_while_loops_go_forward_only() -> None:
    def f(x: td.Array) -> td.Array:
        return td.while_loop(lambda c: c < 100, lambda c: c * x, x)

    for g in ways(lambda x: td.jvp(f, (x,), (array(1.0),))):
        value, change = g(array(3.0))
        close(value, 243.0)
        close(change, 5 * 3.0**4)
    with pytest.raises(
        UnsupportedError,
        match=r"while_loop has no reverse derivative(.|\n)*test_scans(.|\n)*td\.scan",
    ):
        td.grad(f)(array(3.0))


def test_while_loops_that_no_gradient_goes_through() -> None:
    """A root found by halving, then one step of Newton that is differentiated: the loop itself
    needs no way back."""

    def root(a: td.Array) -> td.Array:
        def halved(s: Any) -> Any:
            middle = (s[0] + s[1]) / 2
            above = middle**3 + a * middle - 1 > 0
            return td.where(above, s[0], middle), td.where(above, middle, s[1])

        low, high = td.while_loop(lambda s: s[1] - s[0] > 1e-13, halved, (0 * a - 2, 0 * a + 2))
        x = td.stop_gradient((low + high) / 2)
        return x - (x**3 + a * x - 1) / td.stop_gradient(3 * x**2 + a)

    a = np.array([0.5, 1.0, 2.0])
    x = np.array([max(np.roots([1, 0, n, -1]).real) for n in a])
    for f in (
        root,
        td.checkpoint(root),
        lambda a: td.scan(lambda c, _: (c, root(c)), a, None, length=1)[1][0],
    ):
        for g in ways(td.vmap(td.grad(f))):
            close(g(array(a)), -x / (3 * x**2 + a), 1e-12)


def test_the_change_of_a_while_loop_is_a_function() -> None:
    def f(x: td.Array) -> td.Array:
        return td.while_loop(lambda c: c < 100, lambda c: c * x, x)

    for g in ways(lambda x, t: td.linearize(f, x)[1](t)):
        close(g(array(3.0), array(2.0)), 10 * 3.0**4)
    value, back = td.vjp(lambda x: (f(x), 2 * x)[1], array(3.0))
    close(back(value)[0], 12.0)


def test_rows_of_a_while_loop_end_by_themselves() -> None:
    def f(x: td.Array) -> td.Array:
        return td.while_loop(lambda c: c < 100, lambda c: c * 2, x)

    for g in ways(td.vmap(f)):
        close(g(array([3.0, 60.0, 500.0])), [192.0, 120.0, 500.0])


@pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_rows_that_choose_another_branch_give_no_nan(way: Any) -> None:
    """All branches are computed where each row chooses: 0 times the infinite slope of another must
    not remain."""

    def root(x: td.Array, s: td.Array, v: td.Array) -> td.Array:
        return td.cond(
            x > 0, lambda x: td.sqrt(x * s) + td.sum(td.log(v * x)), lambda x: x * 2 * s, x
        )

    x, s, v = array([-1.0, 0.0, 4.0]), array(1.0), array([1.0, 2.0])
    rows = td.vmap(root, in_axes=(0, None, None))
    close(way(rows)(x, s, v), [-2, 0, 2 + np.log(4) + np.log(8)])
    by_x, by_s, by_v = way(td.grad(lambda *args: td.sum(rows(*args)), argnums=(0, 1, 2)))(x, s, v)
    close(by_x, [2, 2, 0.25 + 2 / 4])
    close(by_s, -2 + 0 + 1)
    close(by_v, [1, 0.5])
    close(way(td.vmap(td.grad(root), in_axes=(0, None, None)))(x, s, v), by_x)
    close(way(lambda x: td.jvp(lambda x: rows(x, s, v), (x,), (td.ones_like(x),))[1])(x), by_x)


def test_rows_guard_every_branch_of_a_switch() -> None:
    def f(i: td.Array, x: td.Array) -> td.Array:
        return td.switch(i, [td.log, td.sqrt, lambda x: 1 / x, lambda x: 3 * x], x)

    i, x = td.asarray([-1, 1, 2, 9]), array([2.0, 4.0, 2.0, 0.0])
    got = td.grad(lambda x: td.sum(td.vmap(f)(i, x)))(x)
    close(got, [0.5, 0.25, -0.25, 3])
    second = td.grad(lambda x: td.sum(td.grad(lambda x: td.sum(td.vmap(f)(i, x)))(x)))(x)
    close(second, [-0.25, -1 / 32, 0.25, 0])


def test_a_second_call_gives_the_same_bits() -> None:
    f = td.jit(td.grad(final(("every", 3)), argnums=(0, 1)))
    first = [np.asarray(g).tobytes() for g in f(array(INIT), array(XS))]
    for _ in range(3):
        assert [np.asarray(g).tobytes() for g in f(array(INIT), array(XS))] == first


def test_products_of_columns_and_rows_are_one_product_after_the_loop() -> None:
    """The gradient of a captured matrix: the loop keeps the factors of every step, and adds nothing
    up."""
    rng = np.random.default_rng(1)
    w, c0, xs = (array(rng.standard_normal(shape) / 2) for shape in ((3, 3), (3,), (5, 3)))
    graph = td.trace(td.grad(rnn()))(w, c0, xs)
    sweeps = [n for n in graph.nodes() if n.op.name == "scan" and n.param("reverse")]
    assert [n.param("carries") for n in sweeps] == [1]
    found = td.grad(rnn())(w, c0, xs)
    close(found, differences(lambda w: rnn()(w, c0, xs), np.asarray(w)), 1e-8)
    close(td.vmap(td.grad(rnn()), in_axes=(None, 0, None))(w, td.stack([c0, c0]), xs)[1], found)
