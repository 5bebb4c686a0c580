"""JAX's names: `jax.lax.linalg`, with JAX's settings and orders of results."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell.tables import td
from tetrad.tracing.array import Array
from tetrad.tracing.operands import as_array


def cholesky(x: Any, *, symmetrize_input: bool = True, symmetrize: Any = None) -> Any:
    """The lower triangle whose product with its transpose is the matrix; NaN if there is none."""
    is_meant = symmetrize_input if symmetrize is None else symmetrize
    return td.linalg.cholesky(x, symmetrize_input=is_meant, **without_error())


def without_error() -> dict[str, Any]:
    """JAX answers what has no factors with NaN."""
    return {"on_failure": "nan"}


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Any:
    """x with op(a) x = b, or x op(a) = b."""
    matrix, right = as_array(a), as_array(b)
    given = td.conj(matrix) if conjugate_a else matrix
    is_vector = right.ndim == matrix.ndim - 1
    if is_vector:
        right = right[..., None] if left_side else right[..., None, :]
    found = td.linalg.triangular_solve(
        given, right, lower=lower, unit_diagonal=unit_diagonal, transpose=transpose_a,
        left_side=left_side, **without_error(),
    )  # fmt: skip
    return (found[..., 0] if left_side else found[..., 0, :]) if is_vector else found


def eigh(
    x: Any, *, lower: bool = True, symmetrize_input: bool = True, sort_eigenvalues: bool = True,
    **_: Any,
) -> tuple[Array, Array]:  # fmt: skip
    """Eigenvectors, then eigenvalues; of one triangle alone without `symmetrize_input`."""
    values, vectors = td.linalg.eigh(x, "L" if lower else "U", symmetrize_input)
    return vectors, values


def qr(x: Any, *, full_matrices: bool = True, **_: Any) -> Any:
    return tuple(td.linalg.qr(x, mode="complete" if full_matrices else "reduced"))


def svd(x: Any, *, full_matrices: bool = True, compute_uv: bool = True, **_: Any) -> Any:
    if not compute_uv:
        return td.linalg.svdvals(x)
    return tuple(td.linalg.svd(x, full_matrices=full_matrices))


def lu(x: Any) -> Any:
    """The factors in one matrix, the pivots, the permutation of rows."""
    factors, pivots = td.linalg.lu_factor(x)
    return factors, pivots, lu_pivots_to_permutation(pivots, as_array(x).shape[-2])


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Any:
    """The order of rows that swapping row i with row pivots[i], one after the other, makes."""
    given = as_array(pivots)
    order = td.broadcast_to(td.arange(permutation_size), (*given.shape[:-1], permutation_size))

    def swap(i: Any, order: Any) -> Any:
        other = given[..., i]
        here = order[..., i]
        there = td.take_along_axis(order, other[..., None], axis=-1)[..., 0]
        places = td.arange(permutation_size)
        swapped = td.where(places == other[..., None], here[..., None], order)
        return td.where(places == i, there[..., None], swapped)

    return td.fori_loop(0, given.shape[-1], swap, order)


def eig(x: Any, **settings: Any) -> Any:
    return td.linalg.eig(x, **settings)


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, **_: Any) -> Any:
    """x of a system given by its three diagonals."""
    return td.linalg.tridiagonal_solve(dl, d, du, b)
