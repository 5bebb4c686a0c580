"""Ops: systems of linear equations. A matrix is taken apart once (`lu`, `cholesky`); its factors
are a value like any other, so the forward and the backward solve share them, and those of a
constant are made once.

Every op works on the last two axes and treats leading axes alike; operands have the same leading
axes. LAPACK does the work on matrices above `SMALL`, kernels with one system in each lane below;
their orders differ (of LAPACK's nothing is promised), so results agree within rounding only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, c64, c128, f32, f64, i32
from tetrad.core.errors import FactorError, SettingError, ShapeError, SingularError
from tetrad.core.op import Op, op
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import (
    Batched,
    all_batched,
    batched_as_is,
    cast,
    expand,
    moved,
    no_change,
    positions,
    reduce_sum,
    run,
    swapped,
    where,
    zeros_like,
)
from tetrad.ops.calculus import reshape as reshaped
from tetrad.ops.rules import Array, check_dtype
from tetrad.schedule import lapack

MATRIX: tuple[DType, ...] = (f32, f64, c64, c128)
LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
FREE = dict.fromkeys(MATRIX, math.inf)  # how far results may be apart depends on the matrix
SMALL = 16  # rows up to which a system is one lane of a kernel
POLICIES = ("raise", "nan")  # what a matrix without an answer leads to
OR_NAN = 'on_failure="nan" gives NaN for such matrices instead'


# -- types -----------------------------------------------------------------------------------------


def check_matrix(name: str, a: ArrayType, dtypes: tuple[DType, ...] = MATRIX) -> None:
    check_dtype(name, a.dtype, dtypes)
    if a.rank < 2:
        raise ShapeError(f"{name}: expected a matrix, or matrices along leading axes, got {a}")


def check_square(name: str, a: ArrayType) -> None:
    check_matrix(name, a)
    if a.shape[-1] != a.shape[-2]:
        raise ShapeError(f"{name}: expected square matrices, got {a}")


def check_sides(name: str, a: ArrayType, b: ArrayType) -> None:
    check_square(name, a)
    if b.dtype is not a.dtype or b.rank != a.rank or b.shape[:-1] != a.shape[:-1]:
        message = (
            f"{name}: expected a right side with {a.shape[-1]} rows, dtype and leading axes of "
            f"{a}, got {b}"
        )
        raise ShapeError(message, hint="a right side of one column needs an axis for it")


def check_policy(name: str, on_failure: str) -> None:
    if on_failure not in POLICIES:
        raise SettingError(f"{name}: on_failure", " or ".join(POLICIES), on_failure)


def lu_type(a: ArrayType) -> tuple[ArrayType, ArrayType]:
    check_square("lu", a)
    return a, ArrayType(i32, a.shape[:-1])


def solve_type(
    a: ArrayType,
    factors: ArrayType,
    pivots: ArrayType,
    b: ArrayType,
    *,
    transposed: bool = False,
    on_failure: str = "raise",
) -> ArrayType:
    check_sides("linear_solve", a, b)
    check_policy("linear_solve", on_failure)
    if (factors, pivots) != lu_type(a):
        raise ShapeError(f"linear_solve: {factors} and {pivots} are not the factors of {a}")
    return b


def triangular_type(
    a: ArrayType,
    b: ArrayType,
    *,
    lower: bool = True,
    unit: bool = False,
    transposed: bool = False,
    on_failure: str = "raise",
) -> ArrayType:
    check_sides("triangular_solve", a, b)
    check_policy("triangular_solve", on_failure)
    return b


def cholesky_type(a: ArrayType, *, on_failure: str = "raise") -> ArrayType:
    check_square("cholesky", a)
    check_policy("cholesky", on_failure)
    return a


def det_type(
    a: ArrayType, factors: ArrayType, pivots: ArrayType
) -> tuple[ArrayType, ArrayType, ArrayType]:
    if (factors, pivots) != lu_type(a):
        raise ShapeError(f"lu_det: {factors} and {pivots} are not the factors of {a}")
    one = a.with_shape(a.shape[:-2])
    return one, one, one.with_dtype(a.dtype.real)


# -- errors ----------------------------------------------------------------------------------------


def place_of(position: int, batch: tuple[int, ...], rows: int) -> tuple[tuple[int, ...], int]:
    """Which matrix and which row, from a position in all rows of all matrices."""
    which = np.unravel_index(position // max(rows, 1), batch) if batch else ()
    return tuple(int(i) for i in which), position % max(rows, 1)


def singular_error(name: str, position: int, batch: tuple[int, ...], rows: int) -> SingularError:
    which, pivot = place_of(position, batch, rows)
    where_ = f"matrix {list(which)} of the batch" if batch else "the matrix"
    return SingularError(
        f"{name}: {where_} is singular: pivot {pivot} of {rows} is zero, reciprocal condition "
        "number 0",
        batch=which,
        pivot=pivot,
        hint='on_failure="nan" gives NaN for such systems instead; td.linalg.pinv solves in the '
        "sense of least squares",
    )


def definite_error(name: str, position: int, batch: tuple[int, ...], rows: int) -> FactorError:
    which, pivot = place_of(position, batch, rows)
    where_ = f"matrix {list(which)} of the batch" if batch else "the matrix"
    message = (
        f"{name}: {where_} is not positive definite: its leading minor of {pivot + 1} rows is not "
        "positive"
    )
    return FactorError(
        message,
        batch=which,
        pivot=pivot,
        hint=f"add a small multiple of the identity; {OR_NAN}",
    )


def finite_error(name: str, position: int, batch: tuple[int, ...], rows: int) -> FactorError:
    which, _ = place_of(position, batch, rows)
    where_ = f"matrix {list(which)} of the batch" if batch else "the matrix"
    return FactorError(
        f"{name}: {where_} holds NaN or infinities",
        batch=which,
        hint=f"td.isfinite finds them; {OR_NAN}",
    )


def check_finite(name: str, a: Array) -> None:
    """On infinities LAPACK's iterations may run for ever."""
    is_finite = finite_matrices(a)
    if not is_finite.all():
        raise finite_error(name, int(np.argmin(is_finite)) * a.shape[-1], a.shape[:-2], a.shape[-1])


def finite_matrices(a: Array) -> Array:
    """Which matrices have finite numbers only."""
    is_finite: Array = np.isfinite(a).all(axis=(-2, -1))
    return is_finite


# -- factors ---------------------------------------------------------------------------------------


@op(type=lu_type, kind="special", ulps=FREE, public=False)
def lu(a: Array) -> tuple[Array, Array]:
    """A with its columns exchanged is a lower times an upper triangle, the upper with ones on its
    diagonal.

    Both lie in one array, as LAPACK leaves them in a matrix stored by rows. `pivots[k]` is the
    column exchanged with column k, for k ascending. A zero pivot stays where it is.

    >>> factors, pivots = lu(np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> factors, pivots
    (array([[2. , 0.5],
           [4. , 1. ]]), array([1, 1], dtype=int32))
    """
    rows = a.shape[-1]
    factors, pivots = a.copy(), np.zeros(a.shape[:-1], np.int32)
    flat, found = stack(factors, 2), stack(pivots, 1)
    if rows <= SMALL:
        eliminate(flat, found)
    else:
        factor_each(flat, found)
    return factors, pivots


def stack(a: Array, axes: int) -> Array:
    """The leading axes as one; a view."""
    lead, rest = a.shape[: a.ndim - axes], a.shape[a.ndim - axes :]
    return a.reshape(math.prod(lead), *rest)


def eliminate(a: Array, pivots: Array) -> None:
    """All matrices at once, step by step, in place."""
    every = np.arange(len(a))
    for k in range(a.shape[-1]):
        found = k + np.argmax(np.abs(a[:, k, k:]), axis=1)
        pivots[:, k] = found
        column = a[every, :, found]
        a[every, :, found] = a[:, :, k]
        a[:, :, k] = column
        pivot = a[:, k, k, None]
        a[:, k, k + 1 :] = np.divide(a[:, k, k + 1 :], np.where(pivot == 0, 1, pivot))
        a[:, k + 1 :, k + 1 :] -= a[:, k + 1 :, k, None] * a[:, k, None, k + 1 :]


def factor_each(a: Array, pivots: Array) -> None:
    rows, letter = a.shape[-1], lapack.integer()
    own = np.zeros(rows, f"i{lapack.library().bits // 8}")
    info = np.zeros(1, own.dtype)
    for matrix, found in zip(a, pivots, strict=True):
        call(
            LETTERS[a.dtype.name] + "getrf",
            f"{letter}{letter}m{letter}mm",
            [rows] * 3,
            (matrix, own, info),
        )
        found[:] = own - 1


def call(routine: str, form: str, numbers: list[int], arrays: tuple[Array, ...]) -> None:
    lapack.invoke(lapack.address(routine), form, numbers, [array.ctypes.data for array in arrays])


lu.jvp(no_change)  # whoever reads the factors also reads the matrix, and differentiates by that


@lu.batch
def lu_batch(batched: Batched, a: Node) -> Any:
    return lu(a)


# -- solving ---------------------------------------------------------------------------------------


@op(type=solve_type, kind="special", ulps=FREE, public=False)
def linear_solve(
    a: Array,
    factors: Array,
    pivots: Array,
    b: Array,
    *,
    transposed: bool = False,
    on_failure: str = "raise",
) -> Array:
    """x with A x = b (or A^T x = b), from the factors of A. Linear in b; A is there for whoever
    differentiates.

    >>> a = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> linear_solve(a, *lu(a), np.array([[5.0], [11.0]]))
    array([[1.],
           [2.]])
    """
    rows = b.shape[-2]
    lower, order, x = stack(factors, 2), stack(pivots, 1), stack(b, 2).copy()
    bad = singular_rows("linear_solve", factors, on_failure)
    if transposed:
        exchange(x, order, range(rows))
        substitute(lower, x, lower=False, unit=True, transposed=True)
        substitute(lower, x, lower=True, unit=False, transposed=True)
    else:
        substitute(lower, x, lower=True, unit=False, transposed=False)
        substitute(lower, x, lower=False, unit=True, transposed=False)
        exchange(x, order, range(rows - 1, -1, -1))
    x[bad] = np.nan
    return x.reshape(b.shape)


def singular_rows(name: str, a: Array, on_failure: str) -> Array:
    """Which matrices have a zero on their diagonal; an error, if that is the policy."""
    rows = a.shape[-1]
    zero = stack(np.diagonal(a, axis1=-2, axis2=-1) == 0, 1)
    bad = zero.any(axis=1)
    if bad.any() and on_failure == "raise":
        first = int(np.argmax(bad))
        raise singular_error(name, first * rows + int(np.argmax(zero[first])), a.shape[:-2], rows)
    return bad


def exchange(x: Array, pivots: Array, steps: range) -> None:
    every = np.arange(len(x))
    for k in steps:
        other = x[every, pivots[:, k]]
        x[every, pivots[:, k]] = x[:, k]
        x[:, k] = other


def substitute(a: Array, x: Array, *, lower: bool, unit: bool, transposed: bool) -> None:
    """x <- T^-1 x in place, T the lower or upper triangle of a."""
    rows = a.shape[-1]
    t = np.swapaxes(a, -1, -2) if transposed else a
    with np.errstate(all="ignore"):
        for i in range(rows) if lower != transposed else range(rows - 1, -1, -1):
            before = slice(0, i) if lower != transposed else slice(i + 1, rows)
            x[:, i] -= np.matmul(t[:, i, None, before], x[:, before])[:, 0]
            if not unit:
                x[:, i] = np.divide(x[:, i], t[:, i, i, None])


def _solve_change_a(
    t: Node,
    x: Node,
    a: Node,
    factors: Node,
    pivots: Node,
    b: Node,
    *,
    transposed: bool = False,
    **policy: Any,
) -> Node:
    moved_by = run("matmul", swapped(t) if transposed else t, x)
    result: Node = linear_solve(a, factors, pivots, -moved_by, transposed=transposed, **policy)
    return result


def _solve_change_b(
    t: Node, x: Node, a: Node, factors: Node, pivots: Node, b: Node, **params: Any
) -> Node:
    result: Node = linear_solve(a, factors, pivots, t, **params)
    return result


def _solve_back(
    ct: Node,
    a: Node,
    factors: Node,
    pivots: Node,
    b: Node,
    *,
    transposed: bool = False,
    **policy: Any,
) -> Node:
    result: Node = linear_solve(a, factors, pivots, ct, transposed=not transposed, **policy)
    return result


linear_solve.jvp(_solve_change_a, None, None, _solve_change_b)
linear_solve.transpose(None, None, None, _solve_back)


def columns_folded(solve: Op, *fixed: Node, b: Node, **params: Any) -> Node:
    """One matrix, many right sides: the batch becomes more columns."""
    size, width = b.type.shape[0], b.type.shape[-1]
    wide = moved(b, 0, b.type.rank - 2)
    lead = wide.type.shape[:-2]
    x = solve(*fixed, reshaped(wide, (*lead, size * width)), **params)
    return moved(reshaped(x, (*lead, size, width)), b.type.rank - 2, 0)


@linear_solve.batch
def linear_solve_batch(
    batched: Batched, a: Node, factors: Node, pivots: Node, b: Node, **params: Any
) -> Any:
    if not any(batched[:3]):
        return columns_folded(linear_solve, a, factors, pivots, b=b, **params)
    return linear_solve(*all_batched(batched, (a, factors, pivots, b)), **params)


@op(type=triangular_type, kind="special", ulps=FREE, public=False)
def triangular_solve(
    a: Array,
    b: Array,
    *,
    lower: bool = True,
    unit: bool = False,
    transposed: bool = False,
    on_failure: str = "raise",
) -> Array:
    """x with T x = b (or T^T x = b), T the lower or upper triangle of a, with ones on its diagonal
    if `unit`.

    >>> triangular_solve(np.array([[2.0, 9.0], [1.0, 4.0]]), np.array([[2.0], [9.0]]))
    array([[1.],
           [2.]])
    """
    x = stack(b, 2).copy()
    bad = np.zeros(len(x), bool) if unit else singular_rows("triangular_solve", a, on_failure)
    substitute(stack(a, 2), x, lower=lower, unit=unit, transposed=transposed)
    x[bad] = np.nan
    return x.reshape(b.shape)


def _triangular_change_a(t: Node, x: Node, a: Node, b: Node, **params: Any) -> Node:
    kept = triangle(t, lower=params.get("lower", True), strict=params.get("unit", False))
    moved_by = run("matmul", swapped(kept) if params.get("transposed", False) else kept, x)
    result: Node = triangular_solve(a, -moved_by, **params)
    return result


def _triangular_change_b(t: Node, x: Node, a: Node, b: Node, **params: Any) -> Node:
    result: Node = triangular_solve(a, t, **params)
    return result


def _triangular_back(
    ct: Node, a: Node, b: Node, *, transposed: bool = False, **params: Any
) -> Node:
    result: Node = triangular_solve(a, ct, transposed=not transposed, **params)
    return result


triangular_solve.jvp(_triangular_change_a, _triangular_change_b)
triangular_solve.transpose(None, _triangular_back)


@triangular_solve.batch
def triangular_solve_batch(batched: Batched, a: Node, b: Node, **params: Any) -> Any:
    if not batched[0]:
        return columns_folded(triangular_solve, a, b=b, **params)
    return triangular_solve(*all_batched(batched, (a, b)), **params)


# -- pieces of matrices ----------------------------------------------------------------------------


def triangle(x: Node, *, lower: bool, strict: bool = False) -> Node:
    """x with zeros outside one triangle; without its diagonal if strict."""
    row, column = (positions(x.type.shape[-2:], axis, i32) for axis in (0, 1))
    inside = run(
        "greater" if strict else "greater_equal", *((row, column) if lower else (column, row))
    )
    return where(expand(inside, x.type.shape), x, zeros_like(x))


def diagonal_mask(shape: tuple[Any, ...]) -> Node:
    row, column = (positions(shape[-2:], axis, i32) for axis in (0, 1))
    return expand(run("equal", row, column), shape)


def diagonal(x: Node) -> Node:
    """The diagonals of square matrices."""
    return reduce_sum(where(diagonal_mask(x.type.shape), x, zeros_like(x)), (x.type.rank - 1,))


def adjoint(x: Node) -> Node:
    return swapped(run("conj", x) if x.type.dtype.is_complex else x)


def hermitian_part(x: Node) -> Node:
    half: Node = (x + adjoint(x)) * 0.5
    return half


# -- positive definite matrices --------------------------------------------------------------------


@op(type=cholesky_type, kind="special", ulps=FREE, public=False)
def cholesky(a: Array, *, on_failure: str = "raise") -> Array:
    """The lower triangle L with L L^H = A, for a positive definite A, of which the lower triangle
    is read; of another, if that is wanted, a triangle of NaN.

    >>> cholesky(np.array([[4.0, 0.0], [2.0, 5.0]]))
    array([[2., 0.],
           [1., 2.]])
    """
    lower = lower_factor(a)
    if lower is not None:
        return lower
    if on_failure == "raise":
        raise definite_error("cholesky", first_indefinite(a), a.shape[:-2], a.shape[-1])
    return factors_or_nan(a)


def factors_or_nan(a: Array) -> Array:
    nothing = np.tril(np.full(a.shape[-2:], np.nan, a.dtype))
    found = (lower_factor(matrix) for matrix in stack(a, 2))
    return np.stack([nothing if lower is None else lower for lower in found]).reshape(a.shape)


def lower_factor(a: Array) -> Array | None:
    """None if a matrix is not positive definite. LAPACK lets NaN pass, which is not positive
    either."""
    try:
        lower = np.linalg.cholesky(a)
    except np.linalg.LinAlgError:
        return None
    return lower if (np.diagonal(lower, axis1=-2, axis2=-1).real > 0).all() else None


def first_indefinite(a: Array) -> int:
    """The first leading minor that is not positive, as a position in all rows of all matrices."""
    rows = int(a.shape[-1])
    for i, matrix in enumerate(stack(a, 2)):
        if lower_factor(matrix) is None:
            sizes = range(1, rows)  # of the whole it is known
            return i * rows + next(
                (n - 1 for n in sizes if lower_factor(matrix[:n, :n]) is None), rows - 1
            )
    raise AssertionError("cholesky failed on the batch, but on no matrix")


@cholesky.jvp
def cholesky_jvp(t: Node, lower: Node, a: Node, **policy: Any) -> Node:
    """L phi(L^-1 dA L^-H), phi the lower triangle with half the diagonal."""
    half = triangular_solve(lower, hermitian_part(t), on_failure="nan")
    both = adjoint(triangular_solve(lower, adjoint(half), on_failure="nan"))
    phi = triangle(both, lower=True, strict=True) + where(
        diagonal_mask(both.type.shape), both * 0.5, zeros_like(both)
    )
    result: Node = run("matmul", lower, phi)
    return result


cholesky.batch(batched_as_is(cholesky))


# -- determinants ----------------------------------------------------------------------------------


@op(type=det_type, kind="special", ulps=FREE, public=False)
def lu_det(a: Array, factors: Array, pivots: Array) -> tuple[Array, Array, Array]:
    """Determinant, its sign, and the logarithm of its magnitude, from the factors.

    >>> a = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> [float(v.round(6)) for v in lu_det(a, *lu(a))]
    [-2.0, -1.0, 0.693147]
    """
    entries = np.diagonal(factors, axis1=-2, axis2=-1)
    swaps = np.sum(pivots != np.arange(a.shape[-1]), axis=-1) % 2
    parity = np.where(swaps, -1, 1).astype(a.dtype)
    with np.errstate(all="ignore"):
        det = parity * np.prod(entries, axis=-1, dtype=a.dtype)
        sign = parity * np.prod(
            np.where(entries == 0, 0, entries / np.abs(entries)), axis=-1, dtype=a.dtype
        )
        size = np.sum(np.log(np.abs(entries)), axis=-1)
    return np.asarray(det), np.asarray(sign), np.asarray(size)


def _det_change(
    t: Node, result: tuple[Node, ...], a: Node, factors: Node, pivots: Node
) -> tuple[Node | None, ...]:
    """d det = det tr(A^-1 dA); where A is singular this is NaN."""
    det, sign, _ = result
    trace = reduce_sum(
        diagonal(linear_solve(a, factors, pivots, t, on_failure="nan")), (a.type.rank - 2,)
    )
    if not a.type.dtype.is_complex:
        return det * trace, None, trace
    size = run("real", trace)
    return det * trace, sign * (trace - cast(size, trace.type.dtype)), size


lu_det.jvp(_det_change, no_change, no_change)


@lu_det.batch
def lu_det_batch(batched: Batched, *operands: Node) -> Any:
    return lu_det(*all_batched(batched, operands))
