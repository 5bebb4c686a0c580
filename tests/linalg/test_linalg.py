"""td.linalg against NumPy, SciPy and finite differences; the vectors of spec/transforms 3.6 and
8.1; errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tetrad as td
from tetrad import linalg
from tetrad.compiler.pipeline import optimise
from tetrad.core.errors import FactorError, SettingError, ShapeError, SingularError

A3 = [[2.0, 1, 0], [1, 3, 1], [0, 1, 2]]
B3 = [[1.0, 4], [2, -1], [3, 2]]
DTYPES = pytest.mark.parametrize("dtype", ["float32", "float64"])
HOW = pytest.mark.parametrize("how", [lambda f: f, td.jit], ids=["eager", "jit"])
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


def array(values: Any, dtype: str = "float64") -> td.Array:
    return td.asarray(np.asarray(values, dtype))


def close(got: Any, want: Any, tolerance: float) -> None:
    np.testing.assert_allclose(np.asarray(got), want, atol=tolerance, rtol=tolerance)


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def posed(seed: int, *shape: int) -> np.ndarray:
    return draw(seed, *shape) + 3 * np.eye(shape[-1])


# -- vectors of the specification ------------------------------------------------------------------


@HOW
@DTYPES
@pytest.mark.parametrize(
    ("a", "b", "x"),
    [
        ([[2.0, 1], [1, 3]], [5.0, 10], [1.0, 3]),
        (
            2 * np.eye(5) - np.eye(5, k=1) - np.eye(5, k=-1),
            [1.0, 2, 3, 4, 5],
            np.array([35, 64, 81, 80, 55]) / 6,
        ),
        (A3, [1.0, 2, 3], [0.5, 0, 1.5]),
        (A3, B3, [[0.5, 3], [0, -2], [1.5, 2]]),
        (np.transpose(A3), [1.0, 1, 1], [0.5, 0, 0.5]),
        ([[0.0, 1], [1, 0]], [2.0, 3], [3.0, 2]),
    ],
)
def test_vectors(a: Any, b: Any, x: Any, dtype: str, how: Callable[..., Any]) -> None:
    close(how(linalg.solve)(array(a, dtype), array(b, dtype)), x, TOLERANCE[dtype])


@HOW
@DTYPES
def test_hello_resistor(dtype: str, how: Callable[..., Any]) -> None:
    f = how(td.value_and_grad(lambda a, b: td.sum(linalg.solve(a, b)), argnums=(0, 1)))
    loss, (da, db) = f(array(A3, dtype), array([1, 2, 3], dtype))
    close(loss, 2, TOLERANCE[dtype])
    close(da, [[-0.25, 0, -0.75], [0, 0, 0], [-0.25, 0, -0.75]], TOLERANCE[dtype])
    close(db, [0.5, 0, 0.5], TOLERANCE[dtype])


@HOW
@DTYPES
def test_gradient_of_many_right_sides(dtype: str, how: Callable[..., Any]) -> None:
    f = how(td.grad(lambda a, b: td.sum(linalg.solve(a, b)), argnums=(0, 1)))
    da, db = f(array(A3, dtype), array(B3, dtype))
    close(da, [[-1.75, 1, -1.75], [0, 0, 0], [-1.75, 1, -1.75]], TOLERANCE[dtype])
    close(db, [[0.5, 0.5], [0, 0], [0.5, 0.5]], TOLERANCE[dtype])


@HOW
@DTYPES
def test_tangents(dtype: str, how: Callable[..., Any]) -> None:
    a, b = array(A3, dtype), array([1, 2, 3], dtype)

    def push(f: Callable[..., Any], at: td.Array, along: Any) -> Any:
        return how(lambda x, t: td.jvp(f, (x,), (t,)))(at, array(along, dtype))

    x, t = push(lambda y: linalg.solve(a, y), b, [0.5, -0.25, 1])
    close(x, [0.5, 0, 1.5], TOLERANCE[dtype])
    close(t, [0.5, -0.5, 0.75], TOLERANCE[dtype])
    _, t = push(lambda y: linalg.solve(a, y), array(B3, dtype), [[0.5, 0], [-0.25, 1], [1, -0.5]])
    close(t, [[0.5, -0.3125], [-0.5, 0.625], [0.75, -0.5625]], TOLERANCE[dtype])
    _, t = push(
        lambda m: linalg.solve(m, b),
        a,
        [[0.1, -0.05, 0.02], [0.03, 0.2, -0.04], [-0.01, 0.07, 0.15]],
    )
    close(t, [-0.08875, 0.0975, -0.15875], TOLERANCE[dtype])


@HOW
@DTYPES
def test_batched_gradient(dtype: str, how: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    a, b = 0.1 * rng.random((4, 3, 3)) + 4 * np.eye(3), rng.random((4, 3))
    f = how(td.grad(lambda a, b: td.sum(td.vmap(linalg.solve)(a, b)), argnums=(0, 1)))
    da, db = f(array(a, dtype), array(b, dtype))
    back = np.linalg.solve(np.swapaxes(a, 1, 2), np.ones((4, 3, 1)))
    close(db, back[..., 0], TOLERANCE[dtype])
    close(da, -back @ np.swapaxes(np.linalg.solve(a, b[..., None]), 1, 2), TOLERANCE[dtype])


# -- derivatives -----------------------------------------------------------------------------------


def definite(x: Any) -> Any:
    return x @ td.matrix_transpose(x) + array(np.eye(x.shape[-1]))


def symmetric(x: Any) -> Any:
    return x + td.matrix_transpose(x)


def crossed(x: Any) -> Any:
    """A matrix with complex eigenvalues."""
    return x - 2 * td.matrix_transpose(x)


def parts(x: Any) -> Any:
    return td.concat([td.real(x), td.imag(x)], axis=-1)


SQUARE: dict[str, Callable[[Any], Any]] = {
    "solve": lambda a: linalg.solve(a, a[..., :2] * a[..., :2]),
    "inv": linalg.inv,
    "det": linalg.det,
    "slogdet": lambda a: linalg.slogdet(a).logabsdet,
    "lower": lambda a: linalg.triangular_solve(a, a * a),
    "upper": lambda a: linalg.triangular_solve(
        a, a[..., :1], lower=False, unit_diagonal=True, transpose=True
    ),
    "right": lambda a: linalg.triangular_solve(a, a * a, left_side=False),
    "cholesky": lambda a: linalg.cholesky(definite(a)),
    "cholesky upper": lambda a: linalg.cholesky(definite(a), upper=True),
    "qr": lambda a: td.concat(list(linalg.qr(a)), axis=-1),
    "eigh": lambda a: td.square(linalg.eigh(symmetric(a)).eigenvectors),
    "eigvalsh": lambda a: linalg.eigvalsh(symmetric(a)),
    "eig": lambda a: parts(linalg.eig(crossed(a)).eigenvectors),
    "eig, real values": lambda a: parts(linalg.eig(a).eigenvectors),
    "eigvals": lambda a: parts(linalg.eigvals(crossed(a))),
    "svd": lambda a: td.square(td.concat([linalg.svd(a).U, linalg.svd(a).Vh], axis=-1)),
    "svdvals": linalg.svdvals,
    "pinv": linalg.pinv,
    "power": lambda a: linalg.matrix_power(a, -3),
    "nuclear": lambda a: linalg.matrix_norm(a, ord="nuc"),
    "spectral": lambda a: linalg.matrix_norm(a, ord=2),
    "trace": lambda a: linalg.trace(a @ a, offset=1),
}
OTHER: dict[str, Callable[[Any], Any]] = {
    "tall qr": lambda a: td.concat(list(linalg.qr(a)), axis=-2),
    "wide qr": lambda a: (
        linalg.qr(td.matrix_transpose(a)).R @ a @ linalg.qr(td.matrix_transpose(a)).Q
    ),
    "tall svd": lambda a: (
        td.square(linalg.svd(a, full_matrices=False).U) @ linalg.svd(a, full_matrices=False).Vh
    ),
    "wide svd": lambda a: td.square(linalg.svd(td.matrix_transpose(a), full_matrices=False).Vh),
    "pinv": linalg.pinv,
    "norm": lambda a: linalg.vector_norm(a, axis=0, ord=3),
}


def check_derivatives(f: Callable[[Any], Any], x: np.ndarray, *, jit: bool) -> None:
    """Forward against finite differences; reverse against forward; the second derivative in the
    same direction too."""
    run = td.jit if jit else lambda g: g
    t, w = draw(7, *x.shape), draw(8, *np.shape(f(array(x))))

    def weighted(x: Any) -> Any:
        return td.sum(f(x) * array(w))

    def along(x: Any, t: Any) -> Any:
        return td.jvp(weighted, (x,), (t,))[1]

    h = 1e-5
    forward = float(run(along)(array(x), array(t)))
    central = (float(weighted(array(x + h * t))) - float(weighted(array(x - h * t)))) / (2 * h)
    close(forward, central, 1e-6 * max(1, abs(central)))
    gradient = np.asarray(run(td.grad(weighted))(array(x)))
    close((gradient * t).sum(), forward, 1e-10 * max(1, np.abs(gradient).sum()))
    second = float(
        run(lambda x, t: td.jvp(lambda x: along(x, t), (x,), (t,))[1])(array(x), array(t))
    )
    central = (
        float(along(array(x + h * t), array(t))) - float(along(array(x - h * t), array(t)))
    ) / (2 * h)
    close(second, central, 1e-5 * max(1, abs(central)))


@pytest.mark.parametrize("name", SQUARE)
def test_derivatives(name: str) -> None:
    check_derivatives(SQUARE[name], posed(1, 4, 4), jit=False)
    check_derivatives(SQUARE[name], posed(2, 2, 3, 3), jit=False)


@pytest.mark.parametrize("name", ["solve", "cholesky", "qr", "eigh", "eig", "eigvals", "svd"])
def test_compiled_derivatives(name: str) -> None:
    check_derivatives(SQUARE[name], posed(3, 3, 3), jit=True)


# -- complex numbers -------------------------------------------------------------------------------


def complex_matrices(seed: int, *shape: int) -> np.ndarray:
    return posed(seed, *shape) + 1j * draw(seed + 1, *shape)


def hermitian(x: Any) -> Any:
    return x + td.matrix_transpose(td.conj(x)) + 20 * td.eye(x.shape[-1], dtype=x.dtype)


COMPLEX: dict[str, Callable[[Any], Any]] = {
    "solve": lambda a: linalg.solve(a, a[..., :2] * a[..., :2]),
    "inv": linalg.inv,
    "det": linalg.det,
    "sign": lambda a: linalg.slogdet(a).sign,
    "slogdet": lambda a: linalg.slogdet(a).logabsdet,
    "triangle": lambda a: linalg.triangular_solve(a, a * a, lower=False, transpose=True),
    "cholesky": lambda a: linalg.cholesky(hermitian(a)),
    "eigvalsh": lambda a: linalg.eigvalsh(hermitian(a)),
    "eigh": lambda a: td.abs(linalg.eigh(hermitian(a)).eigenvectors),
    "eigvals": linalg.eigvals,
    "eig": lambda a: linalg.eig(a).eigenvectors,
    "svdvals": linalg.svdvals,
    "svd": lambda a: td.abs(linalg.svd(a).U) + td.abs(linalg.svd(a).Vh),
    "qr": lambda a: td.concat(list(linalg.qr(a)), axis=-1),
    "pinv": linalg.pinv,
}


@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_matrices_compiled_as_eager(name: str, dtype: str) -> None:
    for shape in ((3, 3), (2, 19, 19)):
        x = array(complex_matrices(1, *shape), dtype)
        eager = np.asarray(COMPLEX[name](x))
        tolerance = (1e-3 if dtype == "complex64" else 1e-11) * max(1, np.abs(eager).max())
        close(td.jit(COMPLEX[name])(x), eager, tolerance)


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_derivatives(name: str) -> None:
    x, t = complex_matrices(3, 3, 3), complex_matrices(5, 3, 3)
    w = draw(8, *np.shape(COMPLEX[name](array(x, "complex128"))))

    def weighted(x: Any) -> Any:
        y = COMPLEX[name](x)
        return td.sum((td.real(y) + 2 * td.imag(y) if y.dtype.is_complex else y) * array(w))

    h = 1e-5
    ends = [float(weighted(array(x + s * h * t, "complex128"))) for s in (1, -1)]
    _, forward = td.jvp(weighted, (array(x, "complex128"),), (array(t, "complex128"),))
    close(forward, (ends[0] - ends[1]) / (2 * h), 1e-6 * max(1, abs(float(forward))))
    gradient = np.asarray(td.grad(weighted)(array(x, "complex128")))
    close((gradient * t).sum().real, float(forward), 1e-10 * max(1, np.abs(gradient).sum()))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 6, 17])
@pytest.mark.parametrize("rank", [0, 1, 2, 3, 5])
def test_determinants_are_differentiable_everywhere(rows: int, rank: int) -> None:
    a = draw(1, rows, rank) @ draw(2, rank, rows)
    inner = [[np.delete(np.delete(a, i, 0), j, 1) for j in range(rows)] for i in range(rows)]
    signs = (-1.0) ** np.add.outer(np.arange(rows), np.arange(rows))
    close(td.grad(linalg.det)(array(a)), signs * np.linalg.det(np.array(inner)), 1e-11)
    close(linalg.det(array(a)), np.linalg.det(a), 1e-11)


@pytest.mark.parametrize("rows", [4, 5, 20])
@pytest.mark.parametrize("how", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_determinants_with_pivots_of_zero_have_a_derivative(
    rows: int, how: Callable[..., Any]
) -> None:
    """By elements: d det is the determinant with a row in exchange for a unit vector."""
    a = np.diag(np.arange(rows, dtype=float) / 4)
    a[0, 1], a[2, 0] = 1, 2
    b = a.copy()
    b[1, 1] = 0  # rank n - 2: all cofactors are 0 but those of the rows that are gone
    many = np.stack([a, b, np.zeros((rows, rows)), a + np.eye(rows)])
    wanted = np.empty_like(many)
    for k, i, j in np.ndindex(many.shape):
        changed = many[k].copy()
        changed[i] = np.eye(rows)[j]
        wanted[k, i, j] = np.linalg.det(changed)
    found = how(td.vmap(td.grad(linalg.det)))(array(many))
    close(found, wanted, 1e-13 * np.abs(wanted).max())
    close(
        how(td.grad(lambda a: td.sum(linalg.det(a))))(array(many)),
        wanted,
        1e-13 * np.abs(wanted).max(),
    )
    _, forward = td.jvp(linalg.det, (array(a),), (array(np.ones_like(a)),))
    close(forward, wanted[0].sum(), 1e-12 * np.abs(wanted).max())
    assert np.isnan(np.asarray(td.hessian(linalg.det)(array(a)))).any()


def test_second_derivatives_of_determinants() -> None:
    a = draw(3, 5, 5)
    slope = td.grad(linalg.det)
    h, t = 1e-6, draw(4, 5, 5)
    quotient = (np.asarray(slope(array(a + h * t))) - np.asarray(slope(array(a - h * t)))) / (2 * h)
    close(td.jvp(slope, (array(a),), (array(t),))[1], quotient, 1e-7)
    close(td.grad(lambda a: td.sum(slope(a) * array(t)))(array(a)), quotient, 1e-7)


def test_equal_singular_values_do_not_disturb_the_pseudo_inverse() -> None:
    check_derivatives(linalg.pinv, 2 * np.eye(4)[:, :3], jit=False)
    check_derivatives(lambda a: linalg.pinv(td.matrix_transpose(a) @ a), np.eye(3)[:2], jit=True)


@pytest.mark.parametrize("name", OTHER)
def test_derivatives_of_rectangles(name: str) -> None:
    check_derivatives(OTHER[name], draw(4, 5, 3), jit=False)


@pytest.mark.parametrize("name", SQUARE)
def test_vmap_is_a_loop(name: str) -> None:
    x = posed(5, 3, 3, 3)
    rows = [np.asarray(SQUARE[name](array(one))) for one in x]
    close(td.vmap(SQUARE[name])(array(x)), np.stack(rows), 1e-9)


@HOW
def test_one_matrix_for_many_right_sides_is_factored_once(how: Callable[..., Any]) -> None:
    a, b = posed(6, 3, 3), draw(7, 5, 3)
    f = td.vmap(linalg.solve, in_axes=(None, 0))
    close(how(f)(array(a), array(b)), np.linalg.solve(a, b.T).T, 1e-10)
    text = str(td.trace(f)(array(a), array(b)))
    assert "lu(" in text and "f64[3,5] = linear_solve" in text


def test_the_factors_of_the_forward_solve_serve_the_backward_one() -> None:
    graph = td.trace(td.value_and_grad(lambda a, b: td.sum(linalg.solve(a, b) ** 2)))(
        array(A3), array([1, 2, 3])
    )
    assert str(graph).count(" = lu(") == 1
    assert str(graph).count(" = linear_solve(") == 2


def euler(a: Any, xs: Any) -> Any:
    """Backward Euler, the matrix the same in every step."""
    return td.scan(lambda c, x: (linalg.solve(a, c + x), None), xs[0] * 0, xs)[0]


@pytest.mark.parametrize("rows", [3, 20])
def test_a_matrix_that_a_loop_does_not_change_is_factored_before_it(rows: int) -> None:
    a = np.eye(rows) * 1.2 - 0.1 * np.eye(rows, k=1) - 0.1 * np.eye(rows, k=-1)
    xs = np.zeros((4, rows))
    xs[0, 0] = 1
    got = td.jit(euler)(array(a), array(xs))
    close(
        got[:3],
        [0.517426643152104, 0.172361678867289, 0.035173556732351],
        1e-3 if rows > 3 else 1e-12,
    )
    graph = optimise(td.trace(euler)(array(a), array(xs)))
    body, outer = str(graph).split("\n\n")[:2]
    assert "lu(" in outer and "lu(" not in body and "linear_solve(" in body
    f = td.grad(lambda a, xs: td.sum(euler(a, xs)), argnums=(0, 1))
    for one, other in zip(td.jit(f)(array(a), array(xs)), f(array(a), array(xs)), strict=True):
        close(one, np.asarray(other), 1e-12)


def test_the_factors_of_a_constant_are_a_constant() -> None:
    a = array(posed(1, 20, 20))
    assert "lu(" not in str(td.trace(lambda b: linalg.solve(a, b))(array(draw(2, 20))))


# -- functions -------------------------------------------------------------------------------------


@HOW
@pytest.mark.parametrize(
    ("a", "b"),
    [((2, 1, 3, 3), (4, 3, 2)), ((3, 3), (2, 4, 3, 1)), ((4, 3, 3), (3,)), ((0, 3, 3), (3, 2))],
)
def test_leading_axes_broadcast(
    a: tuple[int, ...], b: tuple[int, ...], how: Callable[..., Any]
) -> None:
    x, y = posed(1, *a), draw(2, *b)
    close(how(linalg.solve)(array(x), array(y)), np.linalg.solve(x, y), 1e-10)


@HOW
@pytest.mark.parametrize("rows", [0, 1, 20])
def test_sizes(rows: int, how: Callable[..., Any]) -> None:
    a, b = posed(1, 2, rows, rows), draw(2, 2, rows, 3)
    close(how(linalg.solve)(array(a), array(b)), np.linalg.solve(a, b), 1e-10)
    close(how(linalg.det)(array(a)), np.linalg.det(a), 1e-10)
    close(how(linalg.inv)(array(a)), np.linalg.inv(a), 1e-10)
    close(how(linalg.eigvalsh)(array(a)), np.linalg.eigvalsh(a), 1e-10)
    values, vectors = how(linalg.eig)(array(a))
    assert values.dtype is vectors.dtype is how(linalg.eigvals)(array(a)).dtype is td.complex128
    close(a @ np.asarray(vectors), np.asarray(vectors) * np.asarray(values)[..., None, :], 1e-10)
    close(np.sort_complex(values), np.sort_complex(np.linalg.eigvals(a)), 1e-10)
    close(np.sort_complex(how(linalg.eigvals)(array(a))), np.sort_complex(values), 1e-10)
    close(
        how(linalg.cholesky)(array(a @ np.swapaxes(a, 1, 2))),
        np.linalg.cholesky(a @ np.swapaxes(a, 1, 2)),
        1e-10,
    )
    for full in (False, True):
        shapes = [x.shape for x in how(lambda x, f=full: linalg.svd(x, full_matrices=f))(array(a))]
        assert shapes == [x.shape for x in np.linalg.svd(a, full_matrices=full)]


@pytest.mark.parametrize("rows", [3, 20])
def test_batches_of_any_size_are_one_program(rows: int) -> None:
    batch = td.Dim("batch", max=100)
    f = td.jit(lambda a, b: (linalg.solve(a, b), linalg.det(a)), dims=({0: batch}, {0: batch}))
    for count in (1, 3, 17, 40):
        a, b = posed(count, count, rows, rows), draw(count + 1, count, rows, 2)
        x, det = f(array(a), array(b))
        close(x, np.linalg.solve(a, b), 1e-8)
        close(det, np.linalg.det(a), 1e-8)


@pytest.mark.parametrize("rows", [5, 20])
@pytest.mark.parametrize("lead", [(), (3,)], ids=str)
def test_right_sides_of_any_number_are_one_program(rows: int, lead: tuple[int, ...]) -> None:
    columns = td.Dim("columns", max=100)
    f = td.jit(linalg.solve, dims=(None, {len(lead) + 1: columns}))
    a = posed(rows, *lead, rows, rows)
    for count in (1, 3, 40):
        b = draw(count, *lead, rows, count)
        close(f(array(a), array(b)), np.linalg.solve(a, b), 1e-8)
    assert f.compiles == 1


def test_matrices_of_any_size_are_one_program() -> None:
    n = td.Dim("n", max=100)
    f = td.jit(linalg.solve, dims=({0: n, 1: n}, {0: n}))
    for rows in (1, 5, 30):
        a, b = posed(rows, rows, rows), draw(rows + 1, rows)
        close(f(array(a), array(b)), np.linalg.solve(a, b), 1e-8)


@HOW
@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0), (2, 1)], ids=str)
def test_either_side_may_be_shared(
    axes: tuple[int | None, int | None], how: Callable[..., Any]
) -> None:
    a, b = posed(1, 4, 3, 3), draw(2, 4, 3)
    left, right = a if axes[0] is not None else a[0], b if axes[1] is not None else b[0]
    want = [
        np.linalg.solve(a[i if axes[0] is not None else 0], b[i if axes[1] is not None else 0])
        for i in range(4)
    ]
    given = [
        np.moveaxis(x, 0, axis) if axis else x for x, axis in zip((left, right), axes, strict=True)
    ]
    close(how(td.vmap(linalg.solve, in_axes=axes))(*map(array, given)), np.stack(want), 1e-10)


@HOW
def test_triangular_solve_is_scipys(how: Callable[..., Any]) -> None:
    a, b = posed(1, 4, 4), draw(2, 4, 3)
    for lower in (False, True):
        for unit in (False, True):
            for turn in (False, True):
                settings = {"lower": lower, "unit_diagonal": unit}
                want = scipy.linalg.solve_triangular(a, b, trans="T" if turn else "N", **settings)
                got = how(
                    lambda x, y, s=settings, t=turn: linalg.triangular_solve(x, y, transpose=t, **s)
                )
                close(got(array(a), array(b)), want, 1e-10)
                right = how(
                    lambda x, y, s=settings, t=turn: linalg.triangular_solve(
                        x, y, transpose=t, left_side=False, **s
                    )
                )
                want = scipy.linalg.solve_triangular(a, b, trans="N" if turn else "T", **settings).T
                close(right(array(a), array(b.T)), want, 1e-10)


@HOW
@DTYPES
def test_functions_are_numpys(how: Callable[..., Any], dtype: str) -> None:
    a, v, w = (
        draw(1, 2, 4, 3).astype(dtype),
        draw(2, 5, 3).astype(dtype),
        draw(3, 5, 3).astype(dtype),
    )
    x, tolerance = array(a, dtype), 10 * TOLERANCE[dtype]
    close(how(linalg.pinv)(x), np.linalg.pinv(a), tolerance)
    close(how(linalg.matrix_rank)(x), np.linalg.matrix_rank(a), 0)
    close(how(linalg.svdvals)(x), np.linalg.svd(a, compute_uv=False), tolerance)
    for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        close(
            how(lambda y, o=ord: linalg.matrix_norm(y, ord=o))(x),
            np.linalg.matrix_norm(a, ord=ord),
            tolerance,
        )
    for ord in (0, 1, 2, 3, 0.5, np.inf, -np.inf):
        got = how(lambda y, o=ord: linalg.vector_norm(y, axis=(0, 2), ord=o, keepdims=True))(x)
        close(got, np.linalg.vector_norm(a, axis=(0, 2), ord=ord, keepdims=True), tolerance)
    close(how(linalg.cross)(array(v, dtype), array(w, dtype)), np.cross(v, w), tolerance)
    close(
        how(linalg.outer)(array(v[0], dtype), array(w[1], dtype)), np.outer(v[0], w[1]), tolerance
    )
    for offset in (-5, -2, 0, 1, 4):
        close(
            how(lambda y, k=offset: linalg.diagonal(y, offset=k))(x),
            np.linalg.diagonal(a, offset=offset),
            0,
        )
        close(
            how(lambda y, k=offset: linalg.trace(y, offset=k))(x),
            np.linalg.trace(a, offset=offset),
            tolerance,
        )
    square = a[:, :3]
    for n in (-2, 0, 1, 5):
        power = how(lambda y, k=n: linalg.matrix_power(y, k))(array(square, dtype))
        close(power, np.linalg.matrix_power(square.astype(np.float64), n), 20 * tolerance)


def test_the_namespace_is_that_of_the_array_api() -> None:
    names = (
        "cholesky cross det diagonal eig eigvals eigh eigvalsh inv matmul matrix_norm matrix_power "
        "matrix_rank matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace "
        "vecdot vector_norm"
    )
    assert set(names.split()) <= set(dir(td.linalg))


@HOW
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_vectors_of_any_matrix_are_normal(dtype: str, how: Callable[..., Any]) -> None:
    for rows in (1, 2, 6, 20):
        v = np.asarray(how(linalg.eig)(array(draw(rows, 3, rows, rows), dtype)).eigenvectors)
        close(np.linalg.norm(v, axis=-2), np.ones((3, rows)), TOLERANCE.get(dtype, 1e-5))
        sizes = np.abs(v)
        is_greatest = sizes >= sizes.max(axis=-2, keepdims=True) * (1 - 1e-5)
        assert (is_greatest & (v.imag == 0)).any(axis=-2).all()


@HOW
def test_a_matrix_with_too_few_vectors_has_values_and_no_derivative(
    how: Callable[..., Any],
) -> None:
    a = array([[1.0, 1.0], [0.0, 1.0]])
    values, changes = how(lambda a: td.jvp(linalg.eigvals, (a,), (td.ones_like(a),)))(a)
    assert np.asarray(values).tolist() == [1, 1]
    assert not np.isfinite(np.asarray(changes)).any() or np.abs(np.asarray(changes)).max() > 1e6


def test_halves_and_integers() -> None:
    assert linalg.eig(array(A3, "float16")).eigenvectors.dtype is td.complex64
    assert linalg.eigvals(td.asarray([[1, 2], [3, 4]])).dtype is td.complex64
    assert linalg.solve(array(A3, "float16"), array([1, 2, 3], "float16")).dtype is td.float16
    close(linalg.solve(array(A3, "float16"), array([1, 2, 3], "float16")), [0.5, 0, 1.5], 1e-3)
    assert td.jit(linalg.inv)(array(A3, "float16")).dtype is td.float16
    assert linalg.det(td.asarray([[1, 2], [3, 4]])).dtype is td.float32


@pytest.mark.parametrize("rows", [3, 20])
def test_every_station_gives_the_same_answer(rows: int) -> None:
    f = td.bisect(
        lambda a: linalg.cholesky(a @ a.mT + td.eye(rows, dtype=a.dtype)) * linalg.solve(a, a * a)
    )
    assert "every station gives the same answer" in str(f(array(posed(1, rows, rows))))


def test_powers_may_be_numpys_integers() -> None:
    a = array([[2, 1], [0, 2]])
    for n in (np.int64(3), np.int8(-128), np.uint8(0)):
        np.testing.assert_allclose(
            linalg.matrix_power(a, n), np.linalg.matrix_power(np.asarray(a), int(n))
        )


def test_results_have_names() -> None:
    close(td.jit(linalg.slogdet)(array(A3)).logabsdet, np.log(8), 1e-12)
    assert linalg.eigh(array(A3)).eigenvalues.shape == (3,)
    assert td.jit(linalg.svd)(array(B3)).Vh.shape == (2, 2)


# -- errors ----------------------------------------------------------------------------------------


@HOW
@pytest.mark.parametrize("rows", [3, 20])
def test_a_singular_matrix_is_named(rows: int, how: Callable[..., Any]) -> None:
    a = np.broadcast_to(np.eye(rows), (2, 3, rows, rows)).copy()
    a[1, 2, 2, 2] = 0
    with pytest.raises(
        SingularError, match=r"matrix \[1, 2\] of the batch is singular: pivot \d+ of"
    ) as caught:
        how(linalg.solve)(array(a), array(np.ones((rows, 1))))
    assert (caught.value.batch, caught.value.rcond) == ((1, 2), 0)
    assert caught.value.pivot == 2
    x = np.asarray(
        how(lambda a, b: linalg.solve(a, b, singular="nan"))(array(a), array(np.ones((rows, 1))))
    )
    assert np.isnan(x[1, 2]).all() and (np.delete(x.reshape(6, -1), 5, axis=0) == 1).all()


@pytest.mark.parametrize("rows", [3, 20])
def test_the_singular_matrix_of_a_batch_of_any_size_is_named(rows: int) -> None:
    n, batch = td.Dim("n", max=40), td.Dim("batch", max=9)
    a = np.broadcast_to(np.eye(rows), (2, 4, rows, rows)).copy()
    a[1, 2, 1, 1] = 0
    for inner in ({}, {2: n, 3: n}):
        f = td.jit(linalg.inv, dims=({1: batch, **inner},))
        with pytest.raises(
            SingularError, match=rf"matrix \[1, 2\] of the batch is singular: pivot 1 of {rows}"
        ):
            f(array(a))
    g = td.jit(linalg.cholesky, dims=({0: batch, 1: n, 2: n},))
    with pytest.raises(
        FactorError, match=r"matrix \[2\] of the batch is not positive definite: .* of 2 rows"
    ):
        g(array(a[1]))


@HOW
def test_a_singular_matrix_in_a_later_step_of_a_loop_is_named(how: Callable[..., Any]) -> None:
    """The first step of a loop outside `jit` is evaluated in another way than those after it."""
    a = np.broadcast_to(np.eye(3), (4, 2, 3, 3)).copy()
    a[2, 1, 2, 2] = 0

    def step(carry: Any, a: Any) -> Any:
        return carry, linalg.solve(a, td.ones((3, 1)))

    with pytest.raises(SingularError, match=r"matrix \[1\] of the batch(.|\n)*in step, ") as caught:
        how(lambda a: td.scan(step, td.zeros(()), a))(array(a))
    assert (caught.value.batch, caught.value.pivot) == ((1,), 2)


@HOW
def test_the_singular_matrix_of_the_specification(how: Callable[..., Any]) -> None:
    with pytest.raises(
        SingularError,
        match=r"pivot 1 of 2 is zero(.|\n)*in test_the_singular(.|\n)*hint: on_failure=",
    ):
        how(linalg.solve)(array([[1, 2], [2, 4]]), array([1, 2]))
    assert float(how(linalg.det)(array([[1, 2], [2, 4]]))) == 0
    assert [float(v) for v in how(linalg.slogdet)(array([[1, 2], [2, 4]]))] == [0, -np.inf]


@HOW
@pytest.mark.parametrize("rows", [3, 20])
def test_an_indefinite_matrix_is_named(rows: int, how: Callable[..., Any]) -> None:
    a = np.broadcast_to(np.eye(rows), (4, rows, rows)).copy()
    a[3, 1, 1] = -1
    with pytest.raises(
        FactorError, match=r"matrix \[3\] of the batch is not positive definite: .* of 2 rows"
    ) as caught:
        how(linalg.cholesky)(array(a))
    assert (caught.value.batch, caught.value.pivot) == ((3,), 1)


@HOW
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1j * np.inf], ids=str)
@pytest.mark.parametrize("name", ["svd", "svdvals", "eig", "eigvals", "eigh", "eigvalsh"])
def test_what_is_not_finite_is_named_before_lapack_iterates_on_it(
    name: str, bad: complex, how: Callable[..., Any]
) -> None:
    """With an infinity of a 3 x 3 matrix, LAPACK's gesdd does not return."""
    a = np.broadcast_to(np.eye(3, dtype=type(bad)), (2, 3, 3)).copy()
    a[1, 1, 0], a[1, 0, 1] = bad, np.conj(bad)
    with pytest.raises(
        FactorError, match=rf"{name}: matrix \[1\] of the batch holds NaN or infinities"
    ) as caught:
        how(getattr(linalg, name))(td.asarray(a))
    assert caught.value.batch == (1,)


@HOW
def test_values_of_hermitian_matrices_do_not_depend_on_what_is_not_read(
    how: Callable[..., Any],
) -> None:
    a = np.array([[2.0, np.nan], [1.0, 2.0]])
    np.testing.assert_allclose(
        np.asarray(how(linalg.eigh)(array(a)).eigenvalues), [1, 3], rtol=1e-6
    )


@HOW
@pytest.mark.parametrize("rows", [3, 20])
def test_what_is_not_a_number_is_not_positive(rows: int, how: Callable[..., Any]) -> None:
    a = np.broadcast_to(np.eye(rows), (2, rows, rows)).copy()
    a[1, 2, 1] = np.nan
    with pytest.raises(
        FactorError, match=r"matrix \[1\] of the batch is not positive definite"
    ) as caught:
        how(linalg.cholesky)(array(a))
    assert caught.value.pivot == 2


@HOW
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 0, 3)], ids=str)
def test_norms_of_nothing_are_zero(shape: tuple[int, ...], how: Callable[..., Any]) -> None:
    for order in (1, 2, np.inf, "fro", "nuc"):
        got = np.asarray(
            how(lambda x, order=order: linalg.matrix_norm(x, ord=order))(td.zeros(shape))
        )
        np.testing.assert_array_equal(got, np.zeros(shape[:-2]))
    for order in (0, 1, 2, 3, np.inf):
        assert (
            float(how(lambda x, order=order: linalg.vector_norm(x, ord=order))(td.zeros(shape)))
            == 0
        )


@HOW
def test_not_a_number_spreads(how: Callable[..., Any]) -> None:
    a = np.stack([np.full((3, 3), np.nan), np.eye(3)])
    x = np.asarray(how(linalg.solve)(array(a), array(np.ones((3, 1)))))
    assert np.isnan(x[0]).all() and (x[1] == 1).all()
    assert np.isnan(float(how(linalg.det)(array(a[0]))))


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ShapeError, match="solve: expected square matrices, got f64"):
        linalg.solve(array(np.ones((2, 3))), array([1, 2]))
    with pytest.raises(
        ShapeError, match=r"have 3 rows, the right side f64.4,3. has 4(.|\n)*None. makes columns"
    ):
        linalg.solve(array(posed(1, 4, 3, 3)), array(draw(2, 4, 3)))
    with pytest.raises(SettingError, match="on_failure"):
        linalg.solve(array(A3), array([1, 2, 3]), singular="ignore")
    with pytest.raises(SettingError, match="vector_norm: ord"):
        linalg.vector_norm(td.eye(2), ord="fro")
    with pytest.raises(SettingError, match="qr: mode"):
        linalg.qr(array(A3), mode="economic")
