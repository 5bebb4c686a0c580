"""Derivatives as users call them: what goes wrong is said in their words, at their line. Laws are
in tests/transforms.

Results of every function on simple cases are in the docstrings of `transforms.derivatives`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import DtypeError, ShapeError, TetradError, TraceError, UnsupportedError
from tetrad.core.op import REGISTRY

X = td.asarray([1.0, 2.0, 3.0])
INTS = td.asarray([1, 2, 3])
WIDE = td.ones(3, dtype=td.float64)


def total(x: td.Array) -> td.Array:
    return td.sum(x * x)


def square(x: td.Array) -> td.Array:
    return x * x


def pair(x: td.Array) -> dict[str, Any]:
    return {"a": x, "b": (x, 2 * x)}


WRONG: list[tuple[Callable[[], Any], type[TetradError], str]] = [
    # what a gradient is of
    (
        lambda: td.grad(square)(X),
        ShapeError,
        r"square must return one number, it returns f32\[3\](.|\n)*td\.jacrev",
    ),
    (lambda: td.grad(pair)(X), TraceError, "grad: pair must return one number, it returns a dict"),
    (
        lambda: td.grad(lambda x: None)(X),
        TraceError,
        "must return one number, it returns a NoneType",
    ),
    (lambda: td.grad(lambda x: "no")(X), TraceError, "returns arrays and numbers, not a str"),
    (
        lambda: td.grad(lambda x: td.argmax(x))(X),
        DtypeError,
        r"must return a float, it returns i32\[\]",
    ),
    (
        lambda: td.grad(total, has_aux=True)(X),
        TraceError,
        "has_aux is set, so total must return a pair",
    ),
    (lambda: td.vjp(total, X, has_aux=True), TraceError, "vjp: has_aux is set"),
    (lambda: td.jvp(total, (X,), (X,), has_aux=True), TraceError, "jvp: has_aux is set"),
    (lambda: td.linearize(total, X, has_aux=True), TraceError, "linearize: has_aux is set"),
    # by what
    (
        lambda: td.grad(total)(INTS),
        DtypeError,
        r"grad: the argument x is i32\[3\], only floats(.|\n)*astype",
    ),
    (lambda: td.grad(total)(3), DtypeError, r"the argument x is i32\[\]"),
    (lambda: td.grad(lambda x: x)(True), DtypeError, r"the argument x is bool\[\]"),
    (
        lambda: td.grad(lambda p: p["w"][0])({"w": [INTS]}),
        DtypeError,
        r"the argument p\['w'\]\[0\] is i32",
    ),
    (
        lambda: td.grad(total, argnums=2)(X),
        ShapeError,
        "argnums has 2, total was called with 1 argument",
    ),
    (lambda: td.grad(total, argnums=-2)(X), ShapeError, "argnums has -2"),
    (
        lambda: td.grad(total)(x=X),
        ShapeError,
        r"called with 0 arguments(.|\n)*by name are not differentiated",
    ),
    (
        lambda: td.grad(total, argnums="x")(X),
        TraceError,
        "argnums must be an int or several, got 'x'",
    ),
    (
        lambda: td.grad(total, argnums=())(X),
        TraceError,
        r"argnums must be an int or several, got \(\)",
    ),
    (lambda: td.grad(total)("words"), TraceError, "the argument x is a str"),
    (lambda: td.jacfwd(square)(INTS), DtypeError, r"jacfwd: argument 0 is i32\[3\]"),
    (lambda: td.jacrev(square)(INTS), DtypeError, r"jacrev: argument 0 is i32\[3\]"),
    (lambda: td.jacrev(lambda x: td.argmax(x))(X), DtypeError, "jacrev: a result is i32"),
    (lambda: td.jacfwd(square, argnums=3)(X), ShapeError, "jacfwd: argnums has 3"),
    (lambda: td.hessian(total)(INTS), DtypeError, r"^hessian: argument 0 is i32\[3\](.|\n)*astype"),
    (lambda: td.hessian(total, argnums=1)(X), ShapeError, "^hessian: argnums has 1"),
    (lambda: td.hessian(lambda x: td.argmax(x))(X), DtypeError, "^hessian: a result is i32"),
    (lambda: td.hessian(total)(X * 1j), DtypeError, "^hessian: an argument is c64"),
    (lambda: td.hessian(X), TraceError, r"^hessian: expected a function, got f32\[3\]"),
    # tangents and cotangents
    (
        lambda: td.jvp(square, (X,), (td.ones(4),)),
        ShapeError,
        r"of square\[0\]: expected f32\[3\], got f32\[4\]",
    ),
    (
        lambda: td.jvp(square, (X,), (WIDE,)),
        DtypeError,
        r"expected f32\[3\], got f64\[3\](.|\n)*astype",
    ),
    (lambda: td.jvp(square, (X,), (INTS,)), DtypeError, r"expected f32\[3\], got i32\[3\]"),
    (lambda: td.jvp(square, (X,), (X, X)), TraceError, r"expected \(\*,\), got \(\*, \*\)"),
    (
        lambda: td.jvp(square, X, X),
        TraceError,
        "jvp: primals must be a tuple with one entry for each argument",
    ),
    (lambda: td.jvp(square, (X,), X), TraceError, "jvp: tangents must be a tuple"),
    (
        lambda: td.vjp(square, X)[1](td.ones(4)),
        ShapeError,
        r"cotangents of square: expected f32\[3\], got f32\[4\]",
    ),
    (lambda: td.vjp(square, X)[1](WIDE), DtypeError, r"expected f32\[3\], got f64\[3\]"),
    (lambda: td.vjp(pair, X)[1](X), TraceError, r"expected \{'a': \*, 'b': \(\*, \*\)\}, got \*"),
    (
        lambda: td.vjp(pair, X)[1]({"a": X, "b": [X, X]}),
        TraceError,
        r"got \{'a': \*, 'b': \[\*, \*\]\}",
    ),
    (lambda: td.linearize(square, X)[1](td.ones(2)), ShapeError, "linearize: tangents of square"),
    # complex numbers
    (
        lambda: td.grad(total, holomorphic=True)(X),
        DtypeError,
        "holomorphic needs complex arguments, x is f32",
    ),
    (
        lambda: td.grad(lambda x: td.sum(x * 1j))(X),
        DtypeError,
        r"must return a float, it returns c64(.|\n)*real part",
    ),
    (lambda: td.wirtinger(total)(X), DtypeError, "wirtinger: the argument must be complex"),
    # Python between the arrays
    (
        lambda: td.jit(td.grad(lambda x: x if x > 0 else -x))(1.0),
        TraceError,
        r"no values yet(.|\n)*td\.where",
    ),
    (lambda: td.jit(td.grad(lambda x: x * float(x)))(1.0), TraceError, "has no values yet"),
]


@pytest.mark.parametrize(("call", "kind", "words"), WRONG, ids=lambda v: None)
def test_wrong_calls_are_told_at_the_users_line(
    call: Callable[[], Any], kind: type[TetradError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        call()
    line = inspect.getsourcelines(call)[1]
    assert re.search(rf"in \S+, \S*test_derivatives\.py line {line}\b", str(caught.value)), str(
        caught.value
    )


@pytest.mark.parametrize("op", ["floor", "argmax", "sign"])
def test_flat_functions_have_zero_gradients_not_errors(op: str) -> None:
    gradient = td.grad(lambda x: td.sum(getattr(td, op)(x) * 1.0) + 0 * td.sum(x))(X)
    np.testing.assert_array_equal(np.asarray(gradient), np.zeros(3))


def test_an_op_without_derivative_says_why_and_where() -> None:
    w = td.quant.quantize(td.ones((16, 32)), "q8_0")
    matmul, codes = REGISTRY["matmul"], REGISTRY["quantize_rows"]
    with pytest.raises(
        UnsupportedError,
        match=r"quantize_rows is not differentiable: codes(.|\n)*test_deriv\w*\.py",
    ):
        td.grad(lambda x: td.sum(matmul(codes(x), w, transposed=True)))(td.ones((1, 32)))


def test_names_and_docstrings_of_transformed_functions() -> None:
    def loss(x: td.Array) -> td.Array:
        """How wrong it is."""
        return td.sum(x)

    assert td.grad(loss).__name__ == "grad(loss)" and td.grad(loss).__doc__ == "How wrong it is."
    assert td.hessian(loss).__name__ == "jacfwd(jacrev(loss))"


def test_settings_are_passed_on_as_they_are() -> None:
    """What is not differentiated and no array: a number of Python may choose the program, as
    anything else may."""

    def f(x: Any, n: int, how: Any, *, mode: str = "sum", scale: Any = 1.0) -> Any:
        assert type(n) is int and mode in ("sum", "mean") and callable(how)
        return getattr(td, mode)(how(x) ** n * scale)

    gradient = td.grad(f)(X, 2, td.sin, mode="mean", scale=td.asarray(3.0))
    np.testing.assert_allclose(np.asarray(gradient), np.sin(2 * np.asarray(X)), rtol=1e-6)
    by_both = td.grad(f, argnums=(0,))(X, 3, lambda x: x, scale=2.0)[0]
    np.testing.assert_allclose(np.asarray(by_both), 6 * np.asarray(X) ** 2, rtol=1e-6)
    static = td.jit(lambda x, n: td.sum(x**n), static_argnums=1)
    np.testing.assert_allclose(np.asarray(td.grad(static)(X, 3)), 3 * np.asarray(X) ** 2, rtol=1e-6)
    inside = td.jit(lambda x, y: td.grad(lambda x, y, k: td.sum(x * y) * k)(x, y, 2))
    np.testing.assert_allclose(np.asarray(inside(X, X)), 2 * np.asarray(X), rtol=1e-6)


def test_a_number_of_python_does_not_change_types() -> None:
    assert td.grad(lambda x, s: td.sum(x * s))(WIDE, 2.0).dtype is td.float64


def test_argnums_of_numpy_are_numbers_too() -> None:
    def f(a: Any, b: Any) -> Any:
        return td.sum(a * b * b)

    for number in (1, np.int64(1)):
        assert np.asarray(td.grad(f, argnums=number)(X, X)).shape == np.asarray(X).shape
        assert isinstance(td.jacrev(f, argnums=[number])(X, X), tuple)


@pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_derivatives_where_formulas_have_seams(run: Any) -> None:
    """log(exp(x) + exp(y)) is smooth where its operands are equal, and has slopes where they are
    infinite."""
    zero, inf = td.asarray(0.0, dtype=td.float64), np.inf
    assert run(td.grad(td.nn.softplus))(zero).item() == 0.5
    assert run(td.grad(td.grad(td.nn.softplus)))(zero).item() == 0.25
    assert run(td.grad(td.grad(td.logaddexp)))(zero, zero).item() == 0.25
    ends = np.float64([inf, -inf, 1, -inf]), np.float64([inf, 1, -inf, -inf])
    slopes = run(td.vmap(td.grad(td.logaddexp, argnums=(0, 1))))(*ends)
    np.testing.assert_array_equal(np.stack(slopes), [[0.5, 0, 1, 0.5], [0.5, 1, 0, 0.5]])
    sides = run(td.vmap(td.grad(td.hypot, argnums=(0, 1))))(np.float64([3, 0]), np.float64([4, 0]))
    np.testing.assert_allclose(np.stack(sides), [[0.6, 0], [0.8, 0]], rtol=1e-15)


@pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_running_products_with_zeros_have_derivatives(run: Any) -> None:
    x = np.float64([[2.0, 0.0, 3.0, 0.0], [1.0, -1.0, 4.0, 0.5]])
    matrix = np.asarray(run(td.jacrev(lambda x: td.cumulative_prod(x, axis=1)))(x))
    for i, j, k in np.ndindex(2, 4, 4):
        others = np.delete(x[i, : j + 1], k) if k <= j else [0.0]
        assert matrix[i, j, i, k] == np.prod(others)
    assert not matrix[0, :, 1].any()
    forward = run(td.jacfwd(td.jacrev(lambda x: td.cumulative_prod(x)[-1])))(td.asarray(x[1]))
    np.testing.assert_allclose(np.asarray(forward)[0, 1], 4 * 0.5)


def test_whole_matrices_name_the_argument_without_derivatives() -> None:
    x, n = td.ones(2), td.asarray([1, 2])
    for transform in (td.jacfwd, td.jacrev, td.hessian):
        message = (
            rf"^{transform.__name__}: argument 1\['n'\]\[0\] is i32\[2\], only floats(.|\n"
            r")*test_derivatives\.py"
        )
        with pytest.raises(DtypeError, match=message):
            transform(lambda x, d: td.sum(x * d["n"][0]), argnums=(0, 1))(x, {"n": [n]})


def test_a_column_for_a_complex_number_is_refused() -> None:
    """It would tell of one direction of two, and look like all."""
    z = td.asarray([1 + 2j, 3])
    for transform in (td.jacfwd, td.hessian):
        with pytest.raises(DtypeError, match=r"complex64|c64\[2\](.|\n)*holomorphic"):
            transform(lambda z: td.sum(td.real(z) ** 2))(z)
    found = td.jacfwd(lambda z: z * z, holomorphic=True)(z)
    np.testing.assert_allclose(np.asarray(found), np.diag(2 * np.asarray(z)))
