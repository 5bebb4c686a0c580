"""Ops: matrices taken apart into orthogonal and triangular, or orthogonal and diagonal ones. LAPACK
does the work.

Every op works on the last two axes and treats leading axes alike. Signs and phases of vectors are
LAPACK's; derivatives are those of the direction in which they do not turn. Where two values meet,
vectors are not differentiable, and the derivative is infinite or NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tetrad.core.errors import FactorError, UnsupportedError
from tetrad.core.op import op
from tetrad.core.sizes import Size
from tetrad.core.types import ArrayType
from tetrad.graph.build import filled
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import Batched, cast, expand, run, sliced, swapped, where, zeros_like
from tetrad.ops.calculus import reshape as reshaped
from tetrad.ops.linalg.systems import (
    FREE,
    OR_NAN,
    adjoint,
    check_finite,
    check_matrix,
    check_policy,
    check_square,
    diagonal,
    diagonal_mask,
    finite_matrices,
    hermitian_part,
    stack,
    triangle,
    triangular_solve,
)
from tetrad.ops.rules import Array


def real_part(kind: ArrayType) -> ArrayType:
    return kind.with_dtype(kind.dtype.real)


def smaller(name: str, a: ArrayType) -> Size:
    """The smaller side of a matrix."""
    m, n = a.shape[-2:]
    if m == n:
        return m
    if not isinstance(m, int) or not isinstance(n, int):
        raise UnsupportedError(f"{name}: both sizes of a matrix must be known, got {a}")
    return min(m, n)


def qr_type(a: ArrayType, *, complete: bool = False) -> tuple[ArrayType, ArrayType]:
    check_matrix("qr", a)
    lead, (m, n) = a.shape[:-2], a.shape[-2:]
    inner = m if complete else smaller("qr", a)
    return a.with_shape((*lead, m, inner)), a.with_shape((*lead, inner, n))


def eigh_type(a: ArrayType, *, on_failure: str = "raise") -> tuple[ArrayType, ArrayType]:
    check_square("eigh", a)
    check_policy("eigh", on_failure)
    return real_part(a.with_shape(a.shape[:-1])), a


def eigvalsh_type(a: ArrayType, *, on_failure: str = "raise") -> ArrayType:
    check_square("eigvalsh", a)
    check_policy("eigvalsh", on_failure)
    return real_part(a.with_shape(a.shape[:-1]))


def svd_type(
    a: ArrayType, *, full: bool = False, on_failure: str = "raise"
) -> tuple[ArrayType, ArrayType, ArrayType]:
    check_matrix("svd", a)
    check_policy("svd", on_failure)
    lead, (m, n), least = a.shape[:-2], a.shape[-2:], smaller("svd", a)
    left, right = (m, n) if full else (least, least)
    values = real_part(a.with_shape((*lead, least)))
    return a.with_shape((*lead, m, left)), values, a.with_shape((*lead, right, n))


def svdvals_type(a: ArrayType, *, on_failure: str = "raise") -> ArrayType:
    check_matrix("svdvals", a)
    check_policy("svdvals", on_failure)
    return real_part(a.with_shape((*a.shape[:-2], smaller("svdvals", a))))


def convergence_error(name: str, *_: Any) -> FactorError:
    return FactorError(
        f"{name}: the iteration did not converge",
        hint=f"are the numbers far apart in size? try f64; {OR_NAN}",
    )


def attempt(
    name: str, compute: Callable[[Array], tuple[Array, ...]], a: Array, read: Array, on_failure: str
) -> tuple[Array, ...]:
    """compute(a), of which `read` is looked at. Matrices without an answer are an error, or have
    results of NaN, if that is the policy."""
    if on_failure == "raise":
        check_finite(name, read)
        try:
            return compute(a)
        except np.linalg.LinAlgError:
            raise convergence_error(name) from None
    is_finite = finite_matrices(read)
    harmless = np.where(is_finite[..., None, None], a, 0)
    try:
        results = compute(harmless)
    except np.linalg.LinAlgError:
        results = one_by_one(compute, harmless)
    lead = is_finite.ndim
    return tuple(
        np.where(
            is_finite.reshape(is_finite.shape + (1,) * (x.ndim - lead)), x, x.dtype.type(np.nan)
        )
        for x in results
    )


def one_by_one(compute: Callable[[Array], tuple[Array, ...]], a: Array) -> tuple[Array, ...]:
    """Where an iteration does not end for some matrix of a batch."""
    lead = a.shape[:-2]
    nothing = tuple(np.full_like(x, np.nan) for x in compute(np.zeros_like(a[(0,) * len(lead)])))
    found = []
    for matrix in stack(a, 2):
        try:
            found.append(compute(matrix))
        except np.linalg.LinAlgError:
            found.append(nothing)
    return tuple(np.stack(xs).reshape(lead + xs[0].shape) for xs in zip(*found, strict=True))


# -- orthogonal times triangular -------------------------------------------------------------------


@op(type=qr_type, kind="special", ulps=FREE, public=False)
def qr(a: Array, *, complete: bool = False) -> tuple[Array, Array]:
    """A = Q R, the columns of Q orthonormal, R an upper triangle; all columns of Q if complete.

    >>> q, r = qr(np.array([[3.0, 1.0], [4.0, 2.0]]))
    >>> (q @ r).round(6)
    array([[3., 1.],
           [4., 2.]])
    """
    q, r = np.linalg.qr(a, mode="complete" if complete else "reduced")
    return q, r


@qr.jvp
def qr_jvp(
    t: Node, result: tuple[Node, Node], a: Node, *, complete: bool = False
) -> tuple[Node, Node]:
    """Columns beyond the square follow Q: dR = dQ^H A + Q^H dA."""
    q, r = result
    m, n = a.type.shape[-2:]
    rows = smaller("qr", a.type)
    if complete and rows != m:
        message = (
            f"qr has no derivative with all columns of Q where these are more than A has: {a.type}"
        )
        raise UnsupportedError(message, source=a.source, hint='mode="reduced"')
    if rows == n:
        return tall_qr_change(t, q, r)
    last = a.type.rank - 1
    rest: Size = n - m
    dq, dr = tall_qr_change(sliced(t, last, 0, m), q, sliced(r, last, 0, m))
    turned, moved = (sliced(x, last, m, rest) for x in (a, t))
    beyond = run("matmul", adjoint(dq), turned) + run("matmul", adjoint(q), moved)
    return dq, run("concat", dr, beyond, axis=last)


def tall_qr_change(t: Node, q: Node, r: Node) -> tuple[Node, Node]:
    """With C = dA R^-1, S = Q^H C and W the antihermitian matrix of S's lower triangle:
    dQ = C - Q (S - W), dR = (S - W) R."""
    c = swapped(triangular_solve(r, swapped(t), lower=False, transposed=True, on_failure="nan"))
    s = run("matmul", adjoint(q), c)
    below = triangle(s, lower=True, strict=True)
    turn = below - adjoint(below)
    if t.type.dtype.is_complex:  # the diagonal of R stays real
        turn = turn + where(diagonal_mask(s.type.shape), (s - run("conj", s)) * 0.5, zeros_like(s))
    return c - run("matmul", q, s - turn), run("matmul", s - turn, r)


@qr.batch
def qr_batch(batched: Batched, a: Node, *, complete: bool = False) -> Any:
    return qr(a, complete=complete)


# -- eigenvalues -----------------------------------------------------------------------------------


@op(type=eigh_type, kind="special", ulps=FREE, public=False)
def eigh(a: Array, *, on_failure: str = "raise") -> tuple[Array, Array]:
    """Eigenvalues in ascending order and eigenvectors in columns, of hermitian matrices: the lower
    triangle is read.

    >>> eigh(np.array([[2.0, 0.0], [0.0, 1.0]]))[0]
    array([1., 2.])
    """
    values, vectors = attempt("eigh", np.linalg.eigh, a, np.tril(a), on_failure)
    return values, vectors


def gaps(values: Node, kind: ArrayType) -> Node:
    """1 / (w_j - w_i) at i, j; zero on the diagonal."""
    shape = kind.shape
    column = expand(reshaped(values, (*values.type.shape, 1)), shape)
    row = expand(reshaped(values, (*values.type.shape[:-1], 1, values.type.shape[-1])), shape)
    same = diagonal_mask(shape)
    one = filled(1, values.type.with_shape(shape))
    apart = one / where(same, one, row - column)
    return cast(where(same, zeros_like(apart), apart), kind.dtype)


@eigh.jvp
def eigh_jvp(t: Node, result: tuple[Node, Node], a: Node, **policy: Any) -> tuple[Node, Node]:
    """With D = V^H dA V: dw = diag(D), dV = V (D / (w_j - w_i))."""
    values, vectors = result
    d = run("matmul", adjoint(vectors), run("matmul", hermitian_part(t), vectors))
    change = diagonal(d)
    turn = run("matmul", vectors, gaps(values, vectors.type) * d)
    return run("real", change) if a.type.dtype.is_complex else change, turn


@eigh.batch
def eigh_batch(batched: Batched, a: Node, **policy: Any) -> Any:
    return eigh(a, **policy)


@op(type=eigvalsh_type, kind="special", ulps=FREE, public=False)
def eigvalsh(a: Array, *, on_failure: str = "raise") -> Array:
    """Eigenvalues in ascending order, of hermitian matrices: the lower triangle is read.

    >>> eigvalsh(np.array([[2.0, 0.0], [0.0, 1.0]]))
    array([1., 2.])
    """
    (values,) = attempt("eigvalsh", lambda a: (np.linalg.eigvalsh(a),), a, np.tril(a), on_failure)
    return values


@eigvalsh.jvp
def eigvalsh_jvp(t: Node, values: Node, a: Node, **policy: Any) -> Node:
    return eigh_jvp(t, eigh(a, **policy), a)[0]  # type: ignore[no-any-return]


@eigvalsh.batch
def eigvalsh_batch(batched: Batched, a: Node, **policy: Any) -> Any:
    return eigvalsh(a, **policy)


# -- singular values -------------------------------------------------------------------------------


@op(type=svd_type, kind="special", ulps=FREE, public=False)
def svd(a: Array, *, full: bool = False, on_failure: str = "raise") -> tuple[Array, Array, Array]:
    """A = U diag(s) V^H, s in descending order; all columns of U and V if full.

    >>> svd(np.array([[3.0, 0.0], [0.0, 4.0]]))[1]
    array([4., 3.])
    """
    u, s, vh = attempt("svd", partial(np.linalg.svd, full_matrices=full), a, a, on_failure)
    return u, s, vh


@svd.jvp
def svd_jvp(
    t: Node, result: tuple[Node, Node, Node], a: Node, *, full: bool = False, **policy: Any
) -> tuple[Node, Node, Node]:
    """With P = U^H dA V: ds = diag(P), dU = U (F * (P S + S P^H)) + (1 - U U^H) dA V / S, and V
    likewise, F = 1 / (s_j^2 - s_i^2)."""
    m, n = a.type.shape[-2:]
    if full and m != n:
        raise UnsupportedError(
            "svd is differentiable with full_matrices=False only", source=a.source
        )
    u, s, vh = result
    v, uh = adjoint(vh), adjoint(u)
    dav = run("matmul", t, v)
    p = run("matmul", uh, dav)
    row = cast(
        expand(reshaped(s, (*s.type.shape[:-1], 1, s.type.shape[-1])), p.type.shape), p.type.dtype
    )
    column = cast(expand(reshaped(s, (*s.type.shape, 1)), p.type.shape), p.type.dtype)
    f = gaps(s * s, p.type)
    du = run("matmul", u, f * (p * row + column * adjoint(p)))
    dv = run("matmul", v, f * (column * p + adjoint(p) * row))
    if t.type.dtype.is_complex:  # the phase that U and V share is given to U
        phase = where(diagonal_mask(p.type.shape), (p - adjoint(p)) * 0.5 / row, zeros_like(p))
        du = du + run("matmul", u, phase)
    du, dv = du + outside(u, uh, dav, s), dv + outside(v, vh, run("matmul", adjoint(t), u), s)
    change = diagonal(p)
    return du, run("real", change) if a.type.dtype.is_complex else change, adjoint(dv)


def outside(u: Node, uh: Node, moved: Node, s: Node) -> Node:
    """(1 - U U^H) M / S, nothing for a square U."""
    if u.type.shape[-1] == u.type.shape[-2]:
        return zeros_like(u)
    rest = moved - run("matmul", u, run("matmul", uh, moved))
    row = expand(reshaped(s, (*s.type.shape[:-1], 1, s.type.shape[-1])), rest.type.shape)
    result: Node = rest / cast(row, rest.type.dtype)
    return result


@svd.batch
def svd_batch(batched: Batched, a: Node, **params: Any) -> Any:
    return svd(a, **params)


@op(type=svdvals_type, kind="special", ulps=FREE, public=False)
def svdvals(a: Array, *, on_failure: str = "raise") -> Array:
    """Singular values in descending order.

    >>> svdvals(np.array([[3.0, 0.0], [0.0, 4.0]]))
    array([4., 3.])
    """
    (s,) = attempt("svdvals", lambda a: (np.linalg.svd(a, compute_uv=False),), a, a, on_failure)
    return s


@svdvals.jvp
def svdvals_jvp(t: Node, values: Node, a: Node, **policy: Any) -> Node:
    u, _, vh = svd(a, **policy)
    change = diagonal(run("matmul", adjoint(u), run("matmul", t, adjoint(vh))))
    return run("real", change) if a.type.dtype.is_complex else change


@svdvals.batch
def svdvals_batch(batched: Batched, a: Node, **policy: Any) -> Any:
    return svdvals(a, **policy)
