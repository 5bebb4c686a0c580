"""Linear algebra, iterative: systems of equations given as functions, solved by Krylov methods,
with the names and arguments of jax.scipy.sparse.linalg.

Receives A as a function of trees or a matrix, and a tree b; returns (x, None). All steps run inside
one loop; derivatives solve systems of the same kind (`_implicit.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tetrad.arrays import functions as td
from tetrad.core.dtypes import i32
from tetrad.core.errors import SettingError, ShapeError
from tetrad.core.tree import flatten, tree_map, unflatten
from tetrad.linalg import pinv
from tetrad.linalg._implicit import custom_linear_solve
from tetrad.tracing.array import Array, fail
from tetrad.tracing.loops import fori_loop, while_loop
from tetrad.tracing.operands import as_array, as_floats, convert

Tree = Any
Function = Callable[[Any], Any]


def cg(
    A: Any, b: Tree, x0: Tree = None, *, tol: float = 1e-5, atol: float = 0.0,
    maxiter: int | None = None, M: Any = None,
) -> tuple[Tree, None]:  # fmt: skip
    """x with A(x) = b by conjugate gradients, for hermitian positive definite A.

    A        a linear function of trees like b, or a matrix
    tol      how small the residual becomes: tol times the length of b, or atol
    M        an approximate inverse of A

    >>> import tetrad as td
    >>> x, _ = td.linalg.cg(td.asarray([[4.0, 1.0], [1.0, 3.0]]), td.asarray([1.0, 2.0]))
    >>> td.round(x, 4)
    Array([0.0909, 0.6364], float32)
    """
    return _krylov(_conjugate_gradients, A, b, x0, tol, atol, maxiter, M, symmetric=True)


def bicgstab(
    A: Any, b: Tree, x0: Tree = None, *, tol: float = 1e-5, atol: float = 0.0,
    maxiter: int | None = None, M: Any = None,
) -> tuple[Tree, None]:  # fmt: skip
    """x with A(x) = b by stabilised biconjugate gradients, for any A. Arguments as of `cg`."""
    return _krylov(_biconjugate_gradients, A, b, x0, tol, atol, maxiter, M)


def gmres(
    A: Any, b: Tree, x0: Tree = None, *, tol: float = 1e-5, atol: float = 0.0,
    restart: int = 20, maxiter: int | None = None, M: Any = None, solve_method: str = "batched",
) -> tuple[Tree, None]:  # fmt: skip
    """x with A(x) = b by generalised minimal residuals, for any A. Arguments as of `cg`.

    restart       how many directions are kept until it starts again from there
    solve_method  "batched" or "incremental": accepted for JAX's sake; there is one method
    """
    if solve_method not in ("batched", "incremental"):
        raise SettingError("gmres: solve_method", "'batched' or 'incremental'", solve_method)

    def run(*settings: Any) -> Array:
        return _minimal_residuals(*settings, restart=restart)

    return _krylov(run, A, b, x0, tol, atol, maxiter, M)


# -- trees as vectors ------------------------------------------------------------------------------


def _krylov(
    method: Callable[..., Array], A: Any, b: Tree, x0: Tree, tol: float, atol: float,
    maxiter: int | None, M: Any, *, symmetric: bool = False,
) -> tuple[Tree, None]:  # fmt: skip
    right = tree_map(as_floats, b)
    product, nearly = _function("A", A), _function("M", M)
    size = sum(int(x.size) for x in flatten(right)[0])
    most = 10 * size if maxiter is None else maxiter

    def solve(matvec: Function, v: Tree, start: Tree = None) -> Tree:
        vector, back = _as_vector(v)
        first = td.zeros_like(vector) if start is None else _as_vector(start)[0]

        def flat(f: Function) -> Function:
            return lambda x: convert(_as_vector(f(back(x)))[0], x.dtype)

        bound = td.maximum(tol * _length(vector), atol)
        return back(method(flat(matvec), vector, first, bound, most, flat(nearly)))

    start = None if x0 is None else tree_map(lambda x, v: convert(x, v.dtype), x0, right)
    found = custom_linear_solve(
        product, right, lambda f, v: solve(f, v, start), solve, symmetric=symmetric
    )
    return found, None


def _function(name: str, A: Any) -> Function:
    if A is None:
        return lambda x: x
    if callable(A):
        return A  # type: ignore[no-any-return]
    matrix = as_array(A)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        fail(ShapeError, f"{name} is a function or a square matrix, got {matrix.type}")
    return lambda x: td.matmul(matrix, x)


def _as_vector(tree: Tree) -> tuple[Array, Function]:
    """All numbers of a tree in a row, and the way back."""
    leaves, shape = flatten(tree)
    arrays = [as_array(x) for x in leaves]
    dtype = td.result_type(*arrays)
    vector = td.concat([td.reshape(td.astype(x, dtype), (-1,)) for x in arrays])

    def back(v: Array) -> Tree:
        parts, at = [], 0
        for x in arrays:
            size: Any = x.size
            parts.append(convert(td.reshape(v[at : at + size], x.shape), x.dtype))
            at += size
        return unflatten(shape, parts)

    return vector, back


def _dot(a: Array, b: Array) -> Array:
    return td.sum((td.conj(a) if a.dtype.is_complex else a) * b)


def _square(a: Array) -> Array:
    found = _dot(a, a)
    return td.real(found) if found.dtype.is_complex else found


def _length(a: Array) -> Array:
    return td.sqrt(_square(a))


def _ratio(a: Array, b: Array) -> Array:
    """a / b; 0 where there is nothing left to divide by."""
    is_none = b == 0
    return td.where(is_none, 0, a / td.where(is_none, 1, b))  # type: ignore[no-any-return]


# -- methods: from (A, b, x0, bound, most, M) to x -------------------------------------------------


def _conjugate_gradients(
    A: Function, b: Array, x0: Array, bound: Array, most: int, M: Function
) -> Array:
    r = b - A(x0)
    z = M(r)

    def step(state: Any) -> Any:
        count, x, r, p, gamma = state
        q = A(p)
        alpha = _ratio(gamma, _dot(p, q))
        x, r = x + alpha * p, r - alpha * q
        z = M(r)
        after = _dot(r, z)
        return count + 1, x, r, z + _ratio(after, gamma) * p, after

    def goes_on(state: Any) -> Any:
        return (_length(state[2]) > bound) & (state[0] < most)

    start = td.zeros((), dtype=i32), x0, r, z, _dot(r, z)
    return while_loop(goes_on, step, start)[1]  # type: ignore[no-any-return]


def _biconjugate_gradients(
    A: Function, b: Array, x0: Array, bound: Array, most: int, M: Function
) -> Array:
    shadow = r0 = b - A(x0)
    one = td.ones((), dtype=b.dtype)

    def step(state: Any) -> Any:
        count, x, r, p, q, alpha, omega, rho = state
        after = _dot(shadow, r)
        beta = _ratio(after, rho) * _ratio(alpha, omega)
        p = r + beta * (p - omega * q)
        near = M(p)
        q = A(near)
        alpha = _ratio(after, _dot(shadow, q))
        s = r - alpha * q
        also = M(s)
        t = A(also)
        omega = _ratio(_dot(t, s), _dot(t, t))
        return count + 1, x + alpha * near + omega * also, s - omega * t, p, q, alpha, omega, after

    def goes_on(state: Any) -> Any:
        is_stuck = (state[0] > 0) & ((state[6] == 0) | (state[7] == 0))
        return (_length(state[2]) > bound) & (state[0] < most) & ~is_stuck

    none = td.zeros_like(b)
    start = td.zeros((), dtype=i32), x0, r0, none, none, one, one, one
    return while_loop(goes_on, step, start)[1]  # type: ignore[no-any-return]


def _minimal_residuals(
    A: Function, b: Array, x0: Array, bound: Array, most: int, M: Function, *, restart: int
) -> Array:
    """Each round makes an orthonormal basis by Arnoldi's method, orthogonalised twice, and takes
    the best combination of it."""
    size = b.shape[0]
    count = max(1, min(restart, size if isinstance(size, int) else restart))

    def arnoldi(j: Any, state: Any) -> Any:
        basis, images = state
        w = M(A(basis[j]))
        images = td.where((td.arange(count) == j)[:, None], w, images)
        for _ in range(2):
            shares = td.matmul(td.conj(basis) if basis.dtype.is_complex else basis, w)
            w = w - td.matmul(shares, basis)
        length = _length(w)
        is_new = length > 1e-6 * _length(images[j])
        unit = td.where(is_new, w / td.where(is_new, length, 1), 0)
        return td.where((td.arange(count + 1) == j + 1)[:, None], unit, basis), images

    def round_(state: Any) -> Any:
        done, x, r = state
        length = _length(r)
        first = td.where(length > 0, r / td.where(length > 0, length, 1), 0)
        basis = td.concat([first[None], td.zeros((count, b.shape[0]), dtype=b.dtype)])
        images = td.zeros((count, b.shape[0]), dtype=b.dtype)
        basis, images = fori_loop(0, count, arnoldi, (basis, images))
        x = x + td.matmul(_least_squares(images, r), basis[:-1])
        return done + 1, x, M(b - A(x))

    def goes_on(state: Any) -> Any:
        return (_length(state[2]) > limit) & (state[0] < most)

    r = M(b - A(x0))
    scale = _length(M(b))
    limit = bound * _ratio(scale, _length(b))
    return while_loop(goes_on, round_, (td.zeros((), dtype=i32), x0, r))[1]  # type: ignore[no-any-return]


def _least_squares(rows: Array, r: Array) -> Array:
    """y for which y @ rows is nearest to r."""
    return td.matmul(r, pinv(rows))
