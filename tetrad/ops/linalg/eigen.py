"""Ops: eigenvalues and eigenvectors of matrices that need not be hermitian, by LAPACK's geev.

A matrix or matrices along leading axes in, complex numbers out. The order of the values is
LAPACK's; eager and compiled code hand it the same numbers in the same way, so they find the same
order and the same vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.core.op import op
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import Batched, cast, expand, positions, reduce_sum, run, where, zeros_like
from tetrad.ops.calculus import reshape as reshaped
from tetrad.ops.linalg.factors import attempt, gaps
from tetrad.ops.linalg.systems import (
    FREE,
    LETTERS,
    call,
    check_policy,
    check_square,
    diagonal,
    stack,
)
from tetrad.ops.parts import is_complex
from tetrad.ops.rules import Array
from tetrad.schedule import lapack

ROOM = 132  # numbers for each row, that LAPACK may work with: two blocks of columns and a few


def eig_type(a: ArrayType, *, on_failure: str = "raise") -> tuple[ArrayType, ArrayType]:
    check_square("eig", a)
    check_policy("eig", on_failure)
    whole = a.with_dtype(a.dtype.complex)
    return whole.with_shape(a.shape[:-1]), whole


def eigvals_type(a: ArrayType, *, on_failure: str = "raise") -> ArrayType:
    check_square("eigvals", a)
    check_policy("eigvals", on_failure)
    return a.with_dtype(a.dtype.complex).with_shape(a.shape[:-1])


@op(type=eig_type, kind="special", ulps=FREE, public=False)
def eig(a: Array, *, on_failure: str = "raise") -> tuple[Array, Array]:
    """Eigenvalues in no order and eigenvectors in columns, of any square matrices; both are
    complex.

    Vectors have length 1, and one of their greatest elements is real.

    >>> eig(np.array([[0.0, -1.0], [1.0, 0.0]]))[0]
    array([0.+1.j, 0.-1.j])
    """
    values, vectors = attempt("eig", eig_found, a, a, on_failure)
    return values, vectors


def eig_found(a: Array) -> tuple[Array, Array]:
    values, vectors = geev("V", a)
    found = vectors if is_complex(a) else paired(values[:, 1, None], vectors)
    return together(values).reshape(a.shape[:-1]), found.reshape(a.shape)


def geev(job: str, a: Array) -> tuple[Array, Array]:
    """What LAPACK finds: values (of a real matrix real parts, then imaginary ones), and vectors in
    columns."""
    flat, letter, i = stack(a, 2), LETTERS[a.dtype.name], lapack.integer()
    (count, rows, _), parts = flat.shape, 1 if is_complex(a) else 2
    values, vectors = (
        np.zeros((count, parts, rows), a.dtype),
        np.zeros((count, rows, rows), a.dtype),
    )
    work, room, nothing = (
        np.zeros((rows, rows), a.dtype),
        np.zeros(ROOM * rows, a.dtype),
        np.zeros(1, a.dtype),
    )
    more = () if parts == 2 else (np.zeros(2 * rows, a.real.dtype),)
    info, form = (
        np.zeros(1, f"i{lapack.library().bits // 8}"),
        f"{'m' * parts}m{i}m{i}m{i}{'m' * len(more)}m",
    )
    # as in compiled code: more of them round otherwise, which may change the order
    with lapack.one_thread():
        for matrix, found, columns in zip(flat, values, vectors, strict=True) if rows else ():
            work[:] = matrix.T
            arrays = (work, *found, nothing, columns, room, *more, info)
            call(letter + "geev", f"N{job}{i}m{i}{form}", [rows, rows, 1, rows, len(room)], arrays)
            if info[0]:
                raise np.linalg.LinAlgError
    return values, np.swapaxes(vectors, -1, -2)


def paired(imag: Array, columns: Array) -> Array:
    """Of two conjugate values LAPACK gives real and imaginary part of one vector, as two
    columns."""
    before, after = (np.roll(columns, step, axis=-1) for step in (1, -1))
    result = np.zeros(columns.shape, np.result_type(columns.dtype, np.complex64))
    result.real = np.where(imag < 0, before, columns)
    result.imag = np.where(imag > 0, after, np.where(imag < 0, -columns, 0))
    return result


def together(values: Array) -> Array:
    """Real and imaginary parts as complex numbers, unless they are."""
    whole = np.result_type(values.dtype, np.complex64)
    result: Array = np.ascontiguousarray(np.swapaxes(values, -1, -2)).view(whole)
    return result


@eig.jvp
def eig_jvp(t: Node, result: tuple[Node, Node], a: Node, **policy: Any) -> tuple[Node, Node]:
    """With D = V^-1 dA V: dw = diag(D), dV = V (D / (w_j - w_i)), and what keeps V as long and as
    real as it is."""
    values, vectors = result
    moved = run("matmul", cast(t, vectors.type.dtype), vectors)
    d = run("linear_solve", vectors, *run("lu", vectors), moved, on_failure="nan")
    return diagonal(d), kept_normal(vectors, run("matmul", vectors, gaps(values, vectors.type) * d))


def kept_normal(v: Node, w: Node) -> Node:
    """w + c v, by columns: c such that the length of v does not change, nor its real element become
    complex."""
    rows, columns = v.type.rank - 2, (*v.type.shape[:-2], 1, v.type.shape[-1])
    longer = reduce_sum(run("real", run("conj", v) * w), (rows,))
    is_real, real = real_elements(v), run("real", v)
    turns = run("imag", w) / where(is_real, real, 1)
    turned = reduce_sum(where(is_real, turns, zeros_like(turns)), (rows,))
    result: Node = w - expand(reshaped(run("complex", longer, turned), columns), v.type.shape) * v
    return result


def real_elements(v: Node) -> Node:
    """Which element of each column LAPACK made real: the greatest of those that are."""
    rows, shape = v.type.rank - 2, v.type.shape
    real, imag = run("real", v), run("imag", v)
    sizes = where(run("equal", imag, zeros_like(imag)), run("abs", real), -1)
    chosen = run("argmax", sizes, axis=rows)
    column = expand(reshaped(chosen, (*shape[:-2], 1, shape[-1])), shape)
    result: Node = run("equal", column, positions(shape, rows, chosen.type.dtype))
    return result


@eig.batch
def eig_batch(batched: Batched, a: Node, **policy: Any) -> Any:
    return eig(a, **policy)


@op(type=eigvals_type, kind="special", ulps=FREE, public=False)
def eigvals(a: Array, *, on_failure: str = "raise") -> Array:
    """Eigenvalues in no order, of any square matrices; they are complex.

    >>> eigvals(np.array([[0.0, -1.0], [1.0, 0.0]]))
    array([0.+1.j, 0.-1.j])
    """
    (values,) = attempt("eigvals", eigvals_found, a, a, on_failure)
    return values


def eigvals_found(a: Array) -> tuple[Array]:
    return (together(geev("N", a)[0]).reshape(a.shape[:-1]),)


eigvals.not_differentiable(
    "td.linalg.eigvals is differentiated by eig, whose values may come in another order"
)


@eigvals.batch
def eigvals_batch(batched: Batched, a: Node, **policy: Any) -> Any:
    return eigvals(a, **policy)
