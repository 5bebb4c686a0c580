"""Linear algebra, matrices: factors with their solvers, functions of matrices, and matrices made of
parts, with the names and arguments of scipy.linalg and numpy.linalg as JAX has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tetrad.arrays import functions as td
from tetrad.core.dtypes import f32, f64, i32
from tetrad.core.errors import SettingError, ShapeError
from tetrad.linalg import (
    _adjoint,
    cholesky,
    inv,
    norm,
    solve,
    svd,
    svdvals,
    triangular_solve,
)
from tetrad.linalg._operands import matrix_operand, numbers, run_op, square_operand
from tetrad.tracing.array import Array, fail
from tetrad.tracing.loops import fori_loop, scan
from tetrad.tracing.operands import as_array, common, convert
from tetrad.transforms.custom import custom_jvp


class LstsqResult(NamedTuple):
    x: Array
    residuals: Array
    rank: Array
    s: Array


# -- triangles and their products ------------------------------------------------------------------


@custom_jvp
def _lu(a: Array) -> tuple[Array, Array]:
    """The factors of square matrices in one array, L with ones on its diagonal, and the row that
    was exchanged with each. The op takes rows for columns."""
    factors, pivots = run_op("lu", td.matrix_transpose(a))
    return td.matrix_transpose(factors), pivots


@_lu.defjvp
def _lu_jvp(primals: Any, tangents: Any) -> Any:
    """With X = L^-1 (P dA) U^-1: dL = L tril(X, -1), dU = triu(X) U."""
    (a,), (t,) = primals, tangents
    both, pivots = _lu(a)
    lower, upper = _halves(both)
    moved = td.take_along_axis(t, _order(pivots)[..., None], axis=-2)
    x = triangular_solve(lower, moved, unit_diagonal=True)
    x = triangular_solve(upper, x, lower=False, left_side=False, on_failure="nan")
    change = td.matmul(lower, td.tril(x, k=-1)) + td.matmul(td.triu(x), upper)
    return (both, pivots), (change, td.zeros_like(pivots))


def _halves(both: Array) -> tuple[Array, Array]:
    return td.tril(both, k=-1) + td.eye(both.shape[-1], dtype=both.dtype), td.triu(both)


def _order(pivots: Array) -> Array:
    """Exchanges, one after the other, as the order of rows they lead to."""
    size = pivots.shape[-1]
    places = td.arange(size, dtype=i32)
    start = td.broadcast_to(places, pivots.shape)

    def exchange(k: Any, order: Array) -> Array:
        other = td.take(pivots, td.reshape(td.asarray(k), (1,)), axis=-1)
        here = td.take(order, td.reshape(td.asarray(k), (1,)), axis=-1)
        there = td.take_along_axis(order, other, axis=-1)
        moved = td.where(places == other, here, order)
        return td.where(places == k, there, moved)  # type: ignore[no-any-return]

    return fori_loop(0, size, exchange, start)  # type: ignore[no-any-return]


def _whole_lu(name: str, x: Any) -> tuple[Array, Array, Any]:
    """Of matrices that are not square, with zeros around: they are chosen last."""
    a, dtype = matrix_operand(name, x)
    m, n = a.shape[-2:]
    size = max(m, n)
    padding = [(0, 0)] * (a.ndim - 2) + [(0, size - m), (0, size - n)]
    both, pivots = _lu(td.pad(a, padding) if m != n else a)
    return both, pivots, dtype


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    """The factors L and U of matrices with exchanged rows in one array, and which row was exchanged
    with each, for `lu_solve`.

    >>> import tetrad as td
    >>> td.linalg.lu_factor(td.asarray([[1.0, 2.0], [2.0, 8.0]]))
    (Array([[ 2. ,  8. ],
           [ 0.5, -2. ]], float32), Array([1, 1], int32))
    """
    both, pivots, dtype = _whole_lu("lu_factor", a)
    m, n = as_array(a).shape[-2:]
    return convert(both[..., :m, :n], dtype), pivots[..., : min(m, n)]


def lu_solve(
    lu_and_piv: tuple[Any, Any], b: Any, trans: int = 0, overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:  # fmt: skip
    """x with A x = b, from `lu_factor(A)`; trans=1 for the transpose of A, 2 for its adjoint."""
    both, pivots = lu_and_piv
    (factors, right), dtype = numbers(both, b)
    if trans not in (0, 1, 2):
        raise SettingError("lu_solve: trans", "0, 1 or 2", trans)
    is_vector = right.ndim == 1
    right = right[:, None] if is_vector else right
    order = _order(as_array(pivots))[..., None]
    if trans == 0:
        y = triangular_solve(factors, td.take_along_axis(right, order, axis=-2), unit_diagonal=True)
        x = triangular_solve(factors, y, lower=False)
    else:
        side = td.conj(right) if trans == 2 and right.dtype.is_complex else right
        y = triangular_solve(factors, side, lower=False, transpose=True)
        z = triangular_solve(factors, y, transpose=True, unit_diagonal=True)
        x = td.take_along_axis(z, td.argsort(order, axis=-2), axis=-2)
        x = td.conj(x) if trans == 2 and right.dtype.is_complex else x
    return convert(x[:, 0] if is_vector else x, dtype)


def lu(
    a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, ...]:
    """P, L and U with a = P L U, or P L and U.

    >>> import tetrad as td
    >>> p, l, u = td.linalg.lu(td.asarray([[1.0, 2.0], [2.0, 8.0]]))
    >>> p @ l @ u
    Array([[1., 2.],
           [2., 8.]], float32)
    """
    both, pivots, dtype = _whole_lu("lu", a)
    m, n = as_array(a).shape[-2:]
    least = min(m, n)
    lower, upper = _halves(both)
    places = td.argsort(_order(pivots), axis=-1)[..., :m]
    p = convert(places[..., :, None] == td.arange(m, dtype=places.dtype), dtype)
    lower = convert(lower[..., :m, :least], dtype)
    upper = convert(upper[..., :least, :n], dtype)
    return (td.matmul(p, lower), upper) if permute_l else (p, lower, upper)


def cho_factor(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True,
    *, on_failure: str | None = None,
) -> tuple[Array, bool]:  # fmt: skip
    """The Cholesky factor of a matrix, and whether it is the lower one, for `cho_solve`; of the
    matrix that triangle is read."""
    given = a if lower else _adjoint(as_array(a))
    return cholesky(given, upper=not lower, on_failure=on_failure), lower


def cho_solve(
    c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """x with A x = b, from `cho_factor(A)`.

    >>> import tetrad as td
    >>> factor = td.linalg.cho_factor(td.asarray([[4.0, 0.0], [0.0, 9.0]]))
    >>> td.linalg.cho_solve(factor, td.asarray([4.0, 18.0]))
    Array([1., 2.], float32)
    """
    c, lower = c_and_lower
    return solve_triangular(c, solve_triangular(c, b, 2 if not lower else 0, lower),
                            0 if not lower else 2, lower)  # fmt: skip


TRANSPOSES: dict[Any, int] = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}


def solve_triangular(
    a: Any, b: Any, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False,
    overwrite_b: bool = False, debug: Any = None, check_finite: bool = True,
) -> Array:  # fmt: skip
    """x with T x = b, T the upper (or lower) triangle of a, its transpose (trans=1, "T") or its
    adjoint (2, "C"); infinities where T is singular.

    >>> import tetrad as td
    >>> td.linalg.solve_triangular(td.asarray([[2.0, 1.0], [9.0, 4.0]]), td.asarray([5.0, 4.0]))
    Array([2., 1.], float32)
    """
    if trans not in TRANSPOSES:
        raise SettingError("solve_triangular: trans", "0, 1, 2, 'N', 'T' or 'C'", trans)
    kind, matrix = TRANSPOSES[trans], as_array(a)
    if kind == 2 and matrix.dtype.is_complex:
        matrix = td.conj(matrix)
    return triangular_solve(
        matrix, b, lower=lower, unit_diagonal=unit_diagonal, transpose=kind != 0, on_failure="nan"
    )


# -- least squares and conditions ------------------------------------------------------------------


def lstsq(
    a: Any, b: Any, rcond: float | None = None, *, on_failure: str | None = None
) -> LstsqResult:
    """The shortest x for which a x is nearest to b, with the squared distances, the rank of a and
    its singular values. Singular values up to rcond times the largest count as zero.

    >>> import tetrad as td
    >>> a, b = td.asarray([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), td.asarray([1.0, 3.0, 5.0])
    >>> td.round(td.linalg.lstsq(a, b).x, 4)
    Array([1., 2.], float32)
    """
    (matrix, right), dtype = numbers(a, b)
    if matrix.ndim != 2 or right.ndim not in (1, 2) or right.shape[0] != matrix.shape[0]:
        message = "lstsq: expected a matrix and as many right sides as rows"
        fail(ShapeError, f"{message}, got {matrix.type} and {right.type}")
    m, n = (int(size) for size in matrix.shape)
    is_vector = right.ndim == 1
    columns = right[:, None] if is_vector else right
    eps = 2.0**-23 if matrix.dtype.real is f32 else 2.0**-52
    share = eps * max(m, n) if rcond is None else max(rcond, eps) if rcond >= 0 else eps
    u, s, vh = svd(matrix, full_matrices=False, on_failure=on_failure)
    is_kept = (s > share * s[:1]) if min(m, n) else s > 0
    over = td.where(is_kept, 1.0 / td.where(is_kept, s, 1.0), 0.0)
    parts = td.matmul(_adjoint(u), columns) * convert(over, matrix.dtype)[:, None]
    x = td.matmul(_adjoint(vh), parts)
    rank = td.sum(convert(is_kept, i32))
    away = td.abs(columns - td.matmul(matrix, x))
    residuals = td.sum(away * away, axis=0)
    if m <= n:
        residuals = residuals[:0]
    x = x[:, 0] if is_vector else x
    return LstsqResult(convert(x, dtype), convert(residuals, dtype.real), convert(rank, i32),
                       convert(s, dtype.real))  # fmt: skip


def cond(x: Any, p: Any = None) -> Array:
    """The condition of matrices: the norm of order p (2 by default) times that of the inverse.

    >>> import tetrad as td
    >>> td.linalg.cond(td.asarray([[4.0, 0.0], [0.0, 2.0]]))
    Array(2., float32)
    """
    a = as_array(x)
    if p in (None, 2, -2):
        s = svdvals(a)
        first, last = s[..., 0], s[..., -1]
        return first / last if p != -2 else last / first  # type: ignore[no-any-return]
    matrix, _ = square_operand("cond", a)
    own = norm(matrix, ord=p, axis=(-2, -1))
    return own * norm(inv(matrix, on_failure="nan"), ord=p, axis=(-2, -1))  # type: ignore[no-any-return]


# -- functions of matrices -------------------------------------------------------------------------

PADE = [
    math.factorial(26 - k) * math.factorial(13)
    / (math.factorial(26) * math.factorial(k) * math.factorial(13 - k))
    for k in range(14)
]  # fmt: skip
REACH = 5.371920351148152  # of the approximation above in f64: a norm


def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """The exponential of square matrices, by Padé's approximation of a part of it, squared again
    (Higham 2005); NaN where that would be more than `max_squarings` times.

    >>> import tetrad as td
    >>> td.linalg.expm(td.zeros((2, 2)))
    Array([[1., 0.],
           [0., 1.]], float32)
    """
    given, dtype = square_operand("expm", A)
    wide = f64 if not given.dtype.is_complex else given.dtype
    a = convert(given, wide)
    if 0 in a.shape:
        return convert(a, dtype)
    size = td.max(td.sum(td.abs(a), axis=-2), axis=-1)
    ratio = td.where(size > REACH, size / REACH, 1.0)
    count = td.ceil(td.log2(ratio))
    # a number of steps has no derivative
    from_count = convert(td.pow(2.0, -td.clip(count, 0.0, 1000.0)), a.dtype.real)
    result = _pade(a * from_count[..., None, None])

    def square(x: Array, step: Array) -> tuple[Array, None]:
        goes_on = (step < count)[..., None, None]
        return td.where(goes_on, td.matmul(x, x), x), None

    result, _ = scan(square, result, td.asarray(np.arange(float(max_squarings))))
    is_good = (count <= max_squarings)[..., None, None]
    return convert(td.where(is_good, result, math.nan), dtype)


def _pade(a: Array) -> Array:
    one = td.eye(a.shape[-1], dtype=a.dtype)
    a2 = td.matmul(a, a)
    a4 = td.matmul(a2, a2)
    a6 = td.matmul(a4, a2)
    powers = (one, a2, a4, a6)

    def combined(first: int, last: int) -> Array:
        low, high = (
            sum((PADE[k] * x for k, x in zip(ks, xs, strict=True)), 0.0 * a)
            for ks, xs in (
                (range(first, first + 8, 2), powers),
                (range(first + 8, last, 2), powers[1:]),
            )
        )
        return low + td.matmul(a6, high)  # type: ignore[no-any-return]

    odd, even = td.matmul(a, combined(1, 15)), combined(0, 14)
    return solve(even - odd, even + odd, on_failure="nan")


def polar(a: Any, side: str = "right") -> tuple[Array, Array]:
    """U and P with a = U P (or P U, for side="left"): U unitary, P positive semidefinite."""
    if side not in ("right", "left"):
        raise SettingError("polar: side", "'right' or 'left'", side)
    matrix, dtype = matrix_operand("polar", a)
    u, s, vh = svd(matrix, full_matrices=False)
    unitary = td.matmul(u, vh)
    v = _adjoint(vh) if side == "right" else u
    p = td.matmul(v * convert(s, v.dtype)[..., None, :], _adjoint(v))
    return convert(unitary, dtype), convert(p, dtype)


# -- made of parts ---------------------------------------------------------------------------------


def block_diag(*arrs: Any) -> Array:
    """Matrices along the diagonal, zeros elsewhere.

    >>> import tetrad as td
    >>> td.linalg.block_diag(td.asarray([[1, 2]]), 3)
    Array([[1, 2, 0],
           [0, 0, 3]], int32)
    """
    blocks = common(arrs) if arrs else [td.zeros((1, 0))]
    shaped = [td.reshape(b, (1, -1)) if b.ndim < 2 else b for b in blocks]
    for b in shaped:
        if b.ndim != 2:
            fail(ShapeError, f"block_diag: expected matrices, got {b.type}")
    width, at, rows = sum(int(b.shape[1]) for b in shaped), 0, []
    for b in shaped:
        n = int(b.shape[1])
        rows.append(td.pad(b, [(0, 0), (at, width - at - n)]))
        at += n
    return td.concat(rows, axis=0)


def toeplitz(c: Any, r: Any = None) -> Array:
    """The matrix with the first column c and the first row r (by default that of a hermitian one),
    constant along diagonals.

    >>> import tetrad as td
    >>> td.linalg.toeplitz(td.asarray([1, 2, 3]))
    Array([[1, 2, 3],
           [2, 1, 2],
           [3, 2, 1]], int32)
    """
    column = as_array(c)
    row = (td.conj(column) if column.dtype.is_complex else column) if r is None else as_array(r)
    column, row = common((td.atleast_1d(column), td.atleast_1d(row)))
    m, n = (int(x.shape[-1]) for x in (column, row))
    if m == 0 or n == 0:
        return td.zeros((*column.shape[:-1], m, n), dtype=column.dtype)
    line = td.concat([td.flip(column, axis=-1), row[..., 1:]], axis=-1)
    places = np.arange(n)[None, :] - np.arange(m)[:, None] + m - 1
    return td.take(line, td.asarray(places), axis=-1)


def multi_dot(arrays: Sequence[Any], *, precision: Any = None) -> Array:
    """The product of matrices in the order that takes the fewest multiplications; the first and the
    last may be vectors.

    >>> import tetrad as td
    >>> td.linalg.multi_dot([td.ones((2, 3)), td.ones((3, 4)), td.ones(4)])
    Array([12., 12.], float32)
    """
    parts = [as_array(x) for x in arrays]
    if len(parts) < 2:
        fail(ShapeError, f"multi_dot: expected two or more arrays, got {len(parts)}")
    is_row, is_column = parts[0].ndim == 1, parts[-1].ndim == 1
    parts[0] = parts[0][None, :] if is_row else parts[0]
    parts[-1] = parts[-1][:, None] if is_column else parts[-1]
    sizes = [int(parts[0].shape[0]), *(int(x.shape[1]) for x in parts)]
    result = _multiplied(parts, _best_cuts(sizes), 0, len(parts) - 1)
    result = result[0] if is_row else result
    return result[..., 0] if is_column else result


def _best_cuts(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to part each run of matrices: the cheapest way for every length in turn."""
    count = len(sizes) - 1
    cost, cuts = {(i, i): 0 for i in range(count)}, {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            ways = [
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            ]
            cost[i, j], cuts[i, j] = min(ways)
    return cuts


def _multiplied(parts: list[Array], cuts: dict[tuple[int, int], int], i: int, j: int) -> Array:
    if i == j:
        return parts[i]
    k = cuts[i, j]
    return td.matmul(_multiplied(parts, cuts, i, k), _multiplied(parts, cuts, k + 1, j))


def tensorinv(a: Any, ind: int = 2) -> Array:
    """The inverse of `tensordot` with a, whose first `ind` axes are those of results."""
    tensor = as_array(a)
    first, last = tensor.shape[:ind], tensor.shape[ind:]
    rows = math.prod(int(n) for n in first)
    if ind <= 0 or rows != math.prod(int(n) for n in last):
        fail(ShapeError, f"tensorinv: {tensor.type} parted at axis {ind} is no square matrix")
    return td.reshape(inv(td.reshape(tensor, (rows, rows))), (*last, *first))


def tensorsolve(a: Any, b: Any, axes: Sequence[int] | None = None) -> Array:
    """x with tensordot(a, x, x.ndim) = b; `axes` of a are moved to the end first."""
    tensor, right = as_array(a), as_array(b)
    for axis in axes or ():
        tensor = td.moveaxis(tensor, axis, -1)
    shape = tensor.shape[right.ndim :]
    size = math.prod(int(n) for n in shape)
    if size != right.size:
        fail(ShapeError, f"tensorsolve: {tensor.type} is no square matrix for {right.type}")
    x = solve(td.reshape(tensor, (size, size)), td.reshape(right, (size,)))
    return td.reshape(x, shape)
