"""JAX's names: `jax.numpy.linalg`."""

from __future__ import annotations

from typing import Any

from tetrad.jax._shell import tables
from tetrad.jax._shell.tables import td
from tetrad.tracing.array import Array

TABLE = tables.within(
    "linalg",
    "cond cross det diagonal eig eigvals inv lstsq matmul matrix_norm "
    "matrix_power matrix_rank matrix_transpose multi_dot norm outer pinv qr slogdet solve "
    "svdvals tensordot tensorinv tensorsolve trace vecdot vector_norm",
)


def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Any:
    """The Cholesky factor of (a + a^H) / 2, or of the lower triangle alone."""
    return td.linalg.cholesky(a, upper=upper, symmetrize_input=symmetrize_input)


def eigh(a: Any, UPLO: str | None = None, symmetrize_input: bool = True) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of (a + a^H) / 2, or of one triangle alone."""
    return td.linalg.eigh(a, UPLO, symmetrize_input)  # type: ignore[no-any-return]


def eigvalsh(a: Any, UPLO: str | None = None, *, symmetrize_input: bool = True) -> Any:
    """Eigenvalues of (a + a^H) / 2, or of one triangle alone."""
    return td.linalg.eigvalsh(a, UPLO, symmetrize_input=symmetrize_input)


def svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False, **_: Any
) -> Any:
    """The singular value decomposition, or the singular values alone."""
    return td.linalg.svd(a, full_matrices) if compute_uv else td.linalg.svdvals(a)


__getattr__, __dir__ = tables.offers(globals(), TABLE)
