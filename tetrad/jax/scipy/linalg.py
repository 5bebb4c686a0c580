"""JAX's names: `jax.scipy.linalg`."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell import tables
from tetrad.jax._shell.tables import td
from tetrad.tracing.operands import as_array

TABLE = tables.within(
    "linalg",
    "block_diag cho_factor cho_solve det expm inv lu lu_factor lu_solve pinv polar sqrtm "
    "solve_triangular toeplitz",
)


def cholesky(a: Any, lower: bool = False, **_: Any) -> Any:
    """The triangle whose product with its transpose is the matrix, of which that one is read."""
    return td.linalg.cho_factor(a, lower)[0]


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, **_: Any) -> Any:
    """The factors U, S, V^H; without `compute_uv` S alone."""
    if not compute_uv:
        return td.linalg.svdvals(a)
    return tuple(td.linalg.svd(a, full_matrices=full_matrices))


def qr(a: Any, overwrite_a: bool = False, lwork: Any = None, mode: str = "full", **_: Any) -> Any:
    """The factors Q and R; with "r" R alone."""
    q, r = td.linalg.qr(a, mode="reduced" if mode == "economic" else "complete")
    return (r,) if mode == "r" else (q, r)


def eigh(a: Any, b: Any = None, lower: bool = True, eigvals_only: bool = False, **_: Any) -> Any:
    """Eigenvalues and eigenvectors of a symmetric matrix, of which one triangle is read."""
    if b is not None:
        raise td.errors.UnsupportedError("scipy.linalg.eigh: b is not offered")
    triangle = "L" if lower else "U"
    return td.linalg.eigvalsh(a, triangle) if eigvals_only else tuple(td.linalg.eigh(a, triangle))


def solve(
    a: Any, b: Any, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False,
    debug: bool = False, check_finite: bool = True, assume_a: str = "gen",
) -> Any:  # fmt: skip
    """x with a x = b; with `assume_a="pos"` by the Cholesky factor of one triangle."""
    matrix, right = as_array(a), as_array(b)
    if assume_a == "pos":
        return td.linalg.cho_solve(td.linalg.cho_factor(matrix, lower), right)
    is_vector = right.ndim == 1
    found = td.linalg.solve(matrix, right[..., None] if is_vector else right)
    return found[..., 0] if is_vector else found


__getattr__, __dir__ = tables.offers(globals(), TABLE)
