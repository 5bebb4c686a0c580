"""Linear algebra, roots of matrices: by LAPACK's Schur form, called from the program.

Receives square matrices, gives complex ones. The derivative solves a Sylvester equation, so it
exists wherever the root is isolated, also where eigenvectors are missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tetrad.core.dtypes import c64
from tetrad.core.types import ArrayType
from tetrad.linalg import matmul, matrix_transpose
from tetrad.linalg._implicit import linear
from tetrad.linalg._operands import square_operand
from tetrad.ops.linalg.factors import convergence_error
from tetrad.ops.linalg.systems import call, stack
from tetrad.schedule import lapack
from tetrad.tracing.array import Array
from tetrad.tracing.callbacks import pure_callback
from tetrad.tracing.operands import apply, convert
from tetrad.transforms.custom import custom_jvp

Matrix = NDArray[Any]
ROOM = 66  # numbers for each row, that LAPACK may work with


def sqrtm(A: Any, blocksize: int = 1) -> Array:
    """The principal square root of square matrices, always complex: X with X X = A whose
    eigenvalues have no negative real part; those of negative real ones are positive times i.

    NaN where A is not finite; infinities or NaN where a singular A has no root. Computed in c128.

    >>> import tetrad as td
    >>> td.real(td.linalg.sqrtm(td.asarray([[4.0, 0.0], [0.0, 9.0]])))
    Array([[2., 0.],
           [0., 3.]], float32)
    """
    a, dtype = square_operand("sqrtm", A)
    whole = c64 if dtype.complex is c64 else a.dtype.complex
    result: Array = _root(convert(a, whole))
    return result


@custom_jvp
def _root(a: Array) -> Array:
    return _called(roots, a.type, a)


@_root.defjvp
def _root_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """X dX + dX X = dA."""
    x = _root(primals[0])
    return x, _solved(x, tangents[0])


@custom_jvp
def _sylvester(x: Array, b: Array) -> Array:
    """Y with X Y + Y X = B."""
    return _called(sylvester, b.type, x, b)


@_sylvester.defjvp
def _sylvester_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x, b), (dx, db) = primals, tangents
    y = _sylvester(x, b)
    moved = apply("add", matmul(dx, y), matmul(y, dx))
    return y, _solved(x, apply("subtract", db, moved))


def _solved(x: Array, b: Array) -> Array:
    """The same as a linear function of B: its transpose solves with X transposed."""

    def forwards(x: Array, b: Array) -> list[Array]:
        return [_sylvester(x, b)]

    def backwards(x: Array, b: Array) -> list[Array]:
        return [_sylvester(matrix_transpose(x), b)]

    return linear(forwards, backwards, [x], [b])[0]


def _called(function: Any, kind: ArrayType, *args: Array) -> Array:
    result: Array = pure_callback(function, kind, *args, vmap_method="broadcast_all")
    return result


# -- in NumPy --------------------------------------------------------------------------------------


def roots(a: Matrix) -> Matrix:
    """Of every matrix."""
    flat = stack(a, 2).astype(np.complex128)
    return np.array([root(matrix) for matrix in flat], a.dtype).reshape(a.shape)


def root(a: Matrix) -> Matrix:
    """Q U Q^H, U the root of the triangle T in A = Q T Q^H."""
    if not np.isfinite(a).all():
        return np.full_like(a, np.nan)
    t, q = schur(a)
    if not a.imag.any():
        np.fill_diagonal(t, off_the_cut(np.diagonal(t), np.abs(t).max(initial=0)))
    return q @ triangular_root(t) @ q.conj().T


def off_the_cut(values: Matrix, size: float) -> Matrix:
    """Negative eigenvalues of a real matrix without imaginary parts that are rounding: else their
    signs would choose the roots."""
    is_rounding = (values.real < 0) & (np.abs(values.imag) <= 1e-14 * len(values) * size)
    return np.where(is_rounding, values.real, values)


def triangular_root(t: Matrix) -> Matrix:
    """Column by column, each from the diagonal up (Björck and Hammarling, 1983)."""
    u = np.diag(np.sqrt(np.diagonal(t)))
    with np.errstate(all="ignore"):
        for j in range(1, len(t)):
            for i in range(j - 1, -1, -1):
                rest = t[i, j] - u[i, i + 1 : j] @ u[i + 1 : j, j]
                u[i, j] = rest / (u[i, i] + u[j, j]) if rest else 0
    return u


def schur(a: Matrix) -> tuple[Matrix, Matrix]:
    """T and Q with A = Q T Q^H, T an upper triangle, Q unitary."""
    n, i = len(a), lapack.integer()
    t, q = np.array(a, order="F"), np.zeros_like(a, order="F")
    room, reals, info = np.zeros(ROOM * n + 1, a.dtype), np.zeros(n + 1), no_integers()
    values, nothing = np.zeros(n, a.dtype), no_integers()
    form = f"VNm{i}m{i}mmm{i}m{i}mmm"
    arrays = (nothing, t, no_integers(), values, q, room, reals, nothing, info)
    if n:
        call("zgees", form, [n, n, n, len(room)], arrays)
    if info[0]:
        raise convergence_error("sqrtm")
    return t, q


def no_integers() -> Matrix:
    return np.zeros(1, f"i{lapack.library().bits // 8}")


def sylvester(x: Matrix, b: Matrix) -> Matrix:
    """Y with X Y + Y X = B, of every pair of matrices."""
    lead = np.broadcast_shapes(x.shape[:-2], b.shape[:-2])
    pairs = (stack(np.broadcast_to(m, (*lead, *m.shape[-2:])), 2) for m in (x, b))
    found = [
        sylvester_one(*(m.astype(np.complex128) for m in pair)) for pair in zip(*pairs, strict=True)
    ]
    return np.array(found, b.dtype).reshape(*lead, *b.shape[-2:])


def sylvester_one(x: Matrix, b: Matrix) -> Matrix:
    """By the triangle T in X = Q T Q^H: T Z + Z T = Q^H B Q; NaN where T has no such Z."""
    n, i = len(x), lapack.integer()
    if not n or not (np.isfinite(x).all() and np.isfinite(b).all()):
        return np.full_like(b, np.nan)
    t, q = schur(x)
    c, scale, info = np.array(q.conj().T @ b @ q, order="F"), np.zeros(1), no_integers()
    call("ztrsyl", f"NN{i}{i}{i}m{i}m{i}m{i}mm", [1, n, n, n, n, n], (t, t, c, scale, info))
    return q @ (c / scale[0]) @ q.conj().T if not info[0] else np.full_like(b, np.nan)
