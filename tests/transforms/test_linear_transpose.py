"""linear_transpose: <ct, f(x)> = <f^T(ct), x> for functions of every kind, and refusals of what is
not linear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import DtypeError, ShapeError, TraceError

RNG = np.random.default_rng(5)
M = RNG.standard_normal((4, 3))
W = td.asarray(M)
LINEAR: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "product": (lambda x: W @ x, [(3,)]),
    "trees": (lambda x, y: {"a": W @ x + y, "b": (x[::-1], None)}, [(3,), (4,)]),
    "scan": (lambda x: td.scan(lambda c, e: (c * 0.5 + e, c), x[0], x), [(5,)]),
    "fori_loop": (lambda x: td.fori_loop(0, 3, lambda i, c: td.cos(W.T @ W) @ c, x), [(3,)]),
    "jit": (lambda x: td.jit(lambda x: td.sin(W) @ x)(x), [(3,)]),
    "cond": (lambda x: td.cond(W[0, 0] > 0, lambda x: 2 * x, lambda x: -x, x), [(3,)]),
    "checkpoint": (
        td.checkpoint(lambda x: td.cond(W[0, 0] > 0, lambda x: td.exp(W) @ x, lambda x: W @ x, x)),
        [(3,)],
    ),
    "vmap": (lambda x: td.vmap(lambda row: W @ row)(x), [(2, 3)]),
    "solve": (lambda x: td.linalg.solve(W.T @ W, x), [(3,)]),
    "elements": (lambda x: x.at[1].add(x[0]).at[2].set(0.0)[td.asarray([0, 2, 2, 1])], [(3,)]),
    "a change": (lambda x: td.jvp(td.sin, (W[0],), (x,))[1], [(3,)]),
    "not needed": (lambda x, y: 2 * x, [(3,), (2,)]),
    "itself": (
        lambda x: td.linear_transpose(lambda z: W @ z, td.Spec((3,), td.float64))(x)[0],
        [(4,)],
    ),
}


def inner(a: Any, b: Any) -> float:
    pairs = zip(td.tree.leaves(a), td.tree.leaves(b), strict=True)
    return sum(float(np.sum(np.asarray(x) * np.asarray(y))) for x, y in pairs)


@pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", LINEAR)
def test_both_ways_give_the_same_product(name: str, way: Any) -> None:
    f, shapes = LINEAR[name]
    xs = tuple(td.asarray(RNG.standard_normal(shape)) for shape in shapes)
    ct = td.tree.map(lambda y: td.asarray(RNG.standard_normal(y.shape)), f(*xs))
    specs = [td.Spec(x.shape, x.dtype) for x in xs]
    for found in (
        way(lambda ct: td.linear_transpose(f, *specs)(ct))(ct),
        td.linear_transpose(f, *xs)(ct),
    ):
        assert isinstance(found, tuple)
        assert [x.shape for x in found] == shapes
        assert np.isclose(inner(ct, f(*xs)), inner(found, xs), rtol=1e-12)


@pytest.mark.parametrize(
    "f",
    [td.sin, lambda x: x * x, td.abs, td.floor, td.argmax, td.checkpoint(td.exp),
    td.jit(lambda x: x * td.sum(x)),
     lambda x: td.cond(x[0] > 0, lambda x: x, lambda x: -x, x), lambda x: td.where(x > 0, x, 0.0)],
)  # fmt: skip
def test_what_is_not_linear_is_refused(f: Any) -> None:
    with pytest.raises(TraceError, match=r"is not linear(.|\n)*in test_what_is(.|\n)*td\.vjp"):
        td.linear_transpose(f, td.ones(3))


def test_the_transpose_is_differentiated_and_batched() -> None:
    def loss(w: Any) -> Any:
        back = td.linear_transpose(lambda x: td.sin(w) @ x, td.Spec((3,), td.float64))
        return td.sum(back(td.ones(4, dtype=w.dtype))[0])

    np.testing.assert_allclose(np.asarray(td.jit(td.grad(loss))(W)), np.cos(M), rtol=1e-12)
    rows = td.vmap(td.linear_transpose(lambda x: W @ x, td.Spec((3,), td.float64)))(W @ W.T)[0]
    np.testing.assert_allclose(np.asarray(rows), M @ M.T @ M, rtol=1e-12)


def test_a_constant_beside_takes_no_part() -> None:
    (found,) = td.linear_transpose(lambda x: (2 * x + 1, td.ones(2)), td.ones(3))(
        (td.ones(3), td.ones(2))
    )
    assert found.tolist() == [2, 2, 2]


def test_wrong_arguments() -> None:
    with pytest.raises(
        DtypeError, match=r"the argument x is i32\[3\], only floats can be turned around"
    ):
        td.linear_transpose(lambda x: 2 * x, td.asarray([1, 2, 3]))
    with pytest.raises(
        ShapeError, match=r"cotangents of <lambda>: expected f32\[3\], got f32\[2\]"
    ):
        td.linear_transpose(lambda x: 2 * x, td.ones(3))(td.ones(2))
    with pytest.raises(TraceError, match="linear_transpose: expected a function, got an int"):
        td.linear_transpose(3, td.ones(3))  # type: ignore[arg-type]
