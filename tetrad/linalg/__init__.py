"""The public namespace `td.linalg`: the linear algebra extension of the array API, and
`triangular_solve`.

Receives arrays, returns arrays: compositions of the ops in `ops.linalg.systems` and
`ops.linalg.factors`, eager, compiled and differentiable alike. Matrices are the last two axes,
leading axes are batches and broadcast. Integers become the default float; f16 and bf16 are computed
in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tetrad.arrays import namespaces
from tetrad.arrays.creation import asarray, eye, zeros
from tetrad.arrays.indexing import reshaped
from tetrad.arrays.linear import matmul, tensordot, vecdot
from tetrad.arrays.manipulation import (
    expand_dims,
    matrix_transpose,
    moveaxis,
)
from tetrad.arrays.statistics import max as largest
from tetrad.arrays.statistics import min as smallest
from tetrad.arrays.statistics import sum as total
from tetrad.core.dtypes import DType, f32, i32
from tetrad.core.errors import SettingError, ShapeError
from tetrad.core.floats import guarded
from tetrad.core.sizes import SizeExpr
from tetrad.linalg._operands import (
    matrix_operand,
    numbers,
    policy,
    run_op,
    sides,
    solved,
    square_operand,
)
from tetrad.linalg._pieces import cross, diagonal, outer, trace
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import apply, as_array, axes_of, axis_of, convert, expand
from tetrad.transforms.custom import custom_jvp
from tetrad.transforms.derivatives import jvp

if TYPE_CHECKING:
    from tetrad.linalg.later import *  # noqa: F403

Axis = int | Sequence[int] | None


class EigResult(NamedTuple):
    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    sign: Array
    logabsdet: Array


class SVDResult(NamedTuple):
    U: Array
    S: Array
    Vh: Array


# -- systems of equations --------------------------------------------------------------------------


def solve(
    x1: Any, x2: Any, /, *, on_failure: str | None = None, singular: str | None = None
) -> Array:
    """x with x1 x = x2. x2 is a vector if it has one axis, else matrices, one column for each right
    side.

    A singular matrix is a SingularError that names it and its zero pivot; with on_failure="nan" its
    solution is NaN. `singular` is an older name of `on_failure`.

    >>> import tetrad as td
    >>> td.linalg.solve(td.asarray([[2.0, 1.0], [1.0, 3.0]]), td.asarray([5.0, 10.0]))
    Array([1., 3.], float32)
    """
    a, b, dtype = sides("solve", x1, x2)
    factors, pivots = run_op("lu", a)
    on_failure = policy(on_failure, singular)
    x = solved("linear_solve", a, b, (a, factors, pivots), on_failure=on_failure)
    is_vector = as_array(x2).ndim == 1
    return convert(reshaped(x, x.shape[:-1]) if is_vector else x, dtype)


def triangular_solve(
    a: Any,
    b: Any,
    /,
    *,
    lower: bool = True,
    unit_diagonal: bool = False,
    transpose: bool = False,
    left_side: bool = True,
    on_failure: str | None = None,
    singular: str | None = None,
) -> Array:
    """x with T x = b (or x T = b where not `left_side`), T the lower or upper triangle of a, or its
    transpose.

    What is outside the triangle is not read, nor the diagonal if it is a unit one. b as in `solve`.

    >>> import tetrad as td
    >>> td.linalg.triangular_solve(td.asarray([[2.0, 9.0], [1.0, 4.0]]), td.asarray([2.0, 9.0]))
    Array([1., 2.], float32)
    """
    is_vector = as_array(b).ndim == 1
    given = b if left_side or is_vector else matrix_transpose(b)
    matrix, right, dtype = sides("triangular_solve", a, given)
    settings = {
        "lower": lower,
        "unit": unit_diagonal,
        "transposed": transpose == left_side,
        "on_failure": policy(on_failure, singular),
    }
    x = solved("triangular_solve", matrix, right, (matrix,), **settings)
    x = reshaped(x, x.shape[:-1]) if is_vector else x if left_side else matrix_transpose(x)
    return convert(x, dtype)


def inv(x: Any, /, *, on_failure: str | None = None, singular: str | None = None) -> Array:
    """The inverse of square matrices.

    >>> import tetrad as td
    >>> td.linalg.inv(td.asarray([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], float32)
    """
    a, dtype = square_operand("inv", x)
    one = eye(a.shape[-1], dtype=a.dtype)
    factors, pivots = run_op("lu", a)
    on_failure = policy(on_failure, singular)
    x = solved("linear_solve", a, one, (a, factors, pivots), on_failure=on_failure)
    return convert(x, dtype)


def cholesky(
    x: Any,
    /,
    *,
    upper: bool = False,
    symmetrize_input: bool = False,
    on_failure: str | None = None,
) -> Array:
    """The lower triangle L with L L^H = x (or the upper with U^H U = x), of positive definite
    matrices.

    Only the lower triangle of x is read; with `symmetrize_input`, all of (x + x^H) / 2. Another
    matrix is a FactorError; with on_failure="nan" its triangle is NaN.

    >>> import tetrad as td
    >>> td.linalg.cholesky(td.asarray([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]], float32)
    """
    a, dtype = square_operand("cholesky", x)
    given = _hermitian_part(a) if symmetrize_input else a
    lower = convert(run_op("cholesky", given, on_failure=policy(on_failure)), dtype)
    return _adjoint(lower) if upper else lower


def _adjoint(x: Array) -> Array:
    return matrix_transpose(apply("conj", x) if x.dtype.is_complex else x)


def _hermitian_part(a: Array) -> Array:
    return apply("multiply", apply("add", a, _adjoint(a)), 0.5)


def _hermitian(name: str, a: Array, triangle: str | None, symmetrize: bool) -> Array:
    """A matrix whose lower triangle is the one that is asked for: ops read that one."""
    if triangle not in (None, "L", "U"):
        raise SettingError(f"{name}: UPLO", "'L' or 'U'", triangle)
    if symmetrize:
        return _hermitian_part(a)
    return _adjoint(a) if triangle == "U" else a


# -- matrices taken apart --------------------------------------------------------------------------


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """x = Q R, the columns of Q orthonormal, R upper triangular. mode: "reduced", or "complete" for
    a square Q.

    >>> import tetrad as td
    >>> td.linalg.qr(td.ones((3, 2))).R.shape
    (2, 2)
    """
    if mode not in ("reduced", "complete"):
        raise SettingError("qr: mode", "'reduced' or 'complete'", mode)
    a, dtype = matrix_operand("qr", x)
    q, r = run_op("qr", a, complete=mode == "complete")
    return QRResult(convert(q, dtype), convert(r, dtype))


def eigh(
    x: Any,
    /,
    UPLO: str | None = None,
    symmetrize_input: bool = False,
    *,
    on_failure: str | None = None,
) -> EighResult:
    """Eigenvalues in ascending order and eigenvectors in columns, of hermitian matrices: of their
    lower triangle, of the upper one (UPLO="U"), or of (x + x^H) / 2 (`symmetrize_input`).

    NaN or infinities in it are a FactorError; with on_failure="nan" the results are NaN.

    >>> import tetrad as td
    >>> td.linalg.eigh(td.asarray([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    Array([1., 2.], float32)
    """
    a, dtype = square_operand("eigh", x)
    given = _hermitian("eigh", a, UPLO, symmetrize_input)
    values, vectors = run_op("eigh", given, on_failure=policy(on_failure))
    return EighResult(convert(values, dtype.real), convert(vectors, dtype))


def eig(x: Any, /, *, on_failure: str | None = None) -> EigResult:
    """Eigenvalues in no order and eigenvectors in columns, of any square matrices; both are
    complex.

    Vectors have length 1 and one element that is real, the greatest; so also when they are
    differentiated.

    >>> import tetrad as td
    >>> td.linalg.eig(td.asarray([[0.0, -1.0], [1.0, 0.0]])).eigenvalues
    Array([0.+1.j, 0.-1.j], complex64)
    """
    a, dtype = square_operand("eig", x)
    values, vectors = run_op("eig", a, on_failure=policy(on_failure))
    return EigResult(convert(values, dtype.complex), convert(vectors, dtype.complex))


def eigvals(x: Any, /, *, on_failure: str | None = None) -> Array:
    """Eigenvalues in no order, of any square matrices; they are complex."""
    a, dtype = square_operand("eigvals", x)
    return convert(_eigenvalues(policy(on_failure), a), dtype.complex)


@partial(custom_jvp, nondiff_argnums=(0,))
def _eigenvalues(on_failure: str, a: Array) -> Array:
    values: Array = run_op("eigvals", a, on_failure=on_failure)
    return values


@_eigenvalues.defjvp
def _eigenvalues_jvp(on_failure: str, primals: Any, tangents: Any) -> tuple[Array, Array]:
    """By `eig` alone: `eigvals` may find the values in another order."""
    values, changes = jvp(lambda a: run_op("eig", a, on_failure=on_failure)[0], primals, tangents)
    return values, changes


def eigvalsh(
    x: Any,
    /,
    UPLO: str | None = None,
    *,
    symmetrize_input: bool = False,
    on_failure: str | None = None,
) -> Array:
    """Eigenvalues in ascending order, of hermitian matrices; settings as of `eigh`."""
    a, dtype = square_operand("eigvalsh", x)
    given = _hermitian("eigvalsh", a, UPLO, symmetrize_input)
    return convert(run_op("eigvalsh", given, on_failure=policy(on_failure)), dtype.real)


def svd(x: Any, /, full_matrices: bool = True, *, on_failure: str | None = None) -> SVDResult:
    """x = U diag(S) Vh, S in descending order. Derivatives need full_matrices=False, or square
    matrices.

    NaN or infinities are a FactorError; with on_failure="nan" the results are NaN.

    >>> import tetrad as td
    >>> td.linalg.svd(td.asarray([[3.0, 0.0], [0.0, 4.0]])).S
    Array([4., 3.], float32)
    """
    a, dtype = matrix_operand("svd", x)
    if full_matrices and 0 in a.shape[-2:]:
        return _nothing_times(a, dtype)
    u, s, vh = run_op("svd", a, full=full_matrices, on_failure=policy(on_failure))
    return SVDResult(convert(u, dtype), convert(s, dtype.real), convert(vh, dtype))


def _nothing_times(a: Array, dtype: DType) -> SVDResult:
    """Of matrices without elements: any orthogonal matrices do."""
    *lead, m, n = a.shape
    u, vh = (expand(eye(size, dtype=dtype), (*lead, size, size)) for size in (m, n))
    return SVDResult(u, zeros((*lead, 0), dtype=dtype.real), vh)


def svdvals(x: Any, /, *, on_failure: str | None = None) -> Array:
    """Singular values in descending order."""
    a, dtype = matrix_operand("svdvals", x)
    return convert(run_op("svdvals", a, on_failure=policy(on_failure)), dtype.real)


@guarded
def pinv(x: Any, /, *, rtol: Any = None, on_failure: str | None = None) -> Array:
    """The pseudo-inverse. Singular values up to rtol times the largest count as zero; default:
    max(M, N) * eps.

    >>> import tetrad as td
    >>> td.linalg.pinv(td.asarray([[2.0, 0.0], [0.0, 0.0]]))
    Array([[0.5, 0. ],
           [0. , 0. ]], float32)
    """
    a, dtype = matrix_operand("pinv", x)
    if 0 in a.shape[-2:]:
        return zeros((*a.shape[:-2], a.shape[-1], a.shape[-2]), dtype=dtype)
    return convert(_pseudo_inverse(policy(on_failure), a, _share(a, rtol)), dtype)


@partial(custom_jvp, nondiff_argnums=(0,))
def _pseudo_inverse(on_failure: str, a: Array, share: Array) -> Array:
    """V diag(1/s) U^H without the singular values up to `share` of the largest."""
    u, s, vh = run_op("svd", a, full=False, on_failure=on_failure)
    is_kept = _above(s, share)
    inverse = apply("where", is_kept, apply("divide", 1, apply("where", is_kept, s, 1)), 0)
    return matmul(
        apply("multiply", _adjoint(vh), convert(expand_dims(inverse, axis=-2), a.dtype)),
        _adjoint(u),
    )


@_pseudo_inverse.defjvp
def _pseudo_inverse_jvp(on_failure: str, primals: Any, tangents: Any) -> tuple[Array, Array]:
    """-P dA P + P P^H dA^H (1 - A P) + (1 - P A) dA^H P^H P, as long as the rank stays; equal
    singular values do not matter here, though they do to `svd` (Golub and Pereyra, 1973)."""
    a, share = primals
    p, t = _pseudo_inverse(on_failure, a, share), tangents[0]
    ph, th = _adjoint(p), _adjoint(t)
    left, right = matmul(p, matmul(ph, th)), matmul(matmul(th, ph), p)
    outside = apply("subtract", left, matmul(matmul(left, a), p))
    inside = apply("subtract", right, matmul(p, matmul(a, right)))
    change = apply("subtract", apply("add", outside, inside), matmul(p, matmul(t, p)))
    return p, change


def _share(a: Array, rtol: Any) -> Array:
    """Of the largest singular value: what counts as zero."""
    if rtol is None:
        rtol = _longer(a) * (2.0**-23 if a.dtype.real is f32 else 2.0**-52)
    return convert(rtol, a.dtype.real)


def _above(s: Array, share: Array) -> Array:
    """Which singular values are above that share of the largest."""
    limit = apply(
        "multiply",
        largest(s, axis=-1, keepdims=True),
        expand_dims(share, axis=-1) if share.ndim else share,
    )
    return apply("greater", s, limit)


def _longer(a: Array) -> int:
    m, n = (size.max if isinstance(size, SizeExpr) else size for size in a.shape[-2:])
    return max(m, n)


@guarded
def matrix_rank(x: Any, /, *, rtol: Any = None) -> Array:
    """How many singular values are above rtol times the largest; default: max(M, N) * eps.

    >>> import tetrad as td
    >>> td.linalg.matrix_rank(td.asarray([[1.0, 2.0], [2.0, 4.0]]))
    Array(1, int32)
    """
    a, _ = matrix_operand("matrix_rank", x)
    if 0 in a.shape[-2:]:
        return zeros(a.shape[:-2], dtype=i32)
    s = run_op("svdvals", a, on_failure=policy(None))
    return total(convert(_above(s, _share(a, rtol)), i32), axis=-1)


# -- norms -----------------------------------------------------------------------------------------


@guarded
def vector_norm(x: Any, /, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> Array:
    """The norm of vectors along axes, all by default: (sum of |x|^ord)^(1/ord); inf: the largest,
    -inf: the smallest.

    >>> import tetrad as td
    >>> td.linalg.vector_norm(td.asarray([3.0, 4.0]))
    Array(5., float32)
    """
    if not isinstance(ord, Real):
        raise SettingError("vector_norm: ord", "a number, inf or -inf", ord)
    (a,), dtype = numbers(x)
    axes = axes_of("vector_norm", axis, a.ndim)
    size = apply("abs", a) if ord != 2 or a.dtype.is_complex else a
    if math.isinf(ord):
        found = _extreme(size, ord, axes, keepdims) if axes else size
    elif ord == 0:
        found = total(
            convert(apply("not_equal", size, 0), a.dtype.real), axis=axes, keepdims=keepdims
        )
    elif ord == 1:
        found = total(size, axis=axes, keepdims=keepdims)
    elif ord == 2:
        found = apply("sqrt", total(apply("multiply", size, size), axis=axes, keepdims=keepdims))
    else:
        found = apply(
            "pow", total(apply("pow", size, float(ord)), axis=axes, keepdims=keepdims), 1 / ord
        )
    return convert(found, dtype.real)


def _extreme(size: Array, sign: float, axes: int | Sequence[int], keepdims: bool = False) -> Array:
    """The largest of magnitudes, which of none is 0, or for a negative sign the smallest, which of
    none is inf."""
    if sign < 0:
        return smallest(size, axis=axes, keepdims=keepdims)
    around = [a % size.ndim for a in ([axes] if isinstance(axes, int) else axes)]
    if all(isinstance(size.shape[a], int) and size.shape[a] for a in around):
        return largest(size, axis=axes, keepdims=keepdims)
    return apply("maximum", largest(size, axis=axes, keepdims=keepdims), 0)


@guarded
def matrix_norm(x: Any, /, keepdims: bool = False, ord: float | str | None = "fro") -> Array:
    """The norm of matrices: "fro", "nuc" (sum of singular values), 2 and -2 (largest and smallest
    of them), 1 and -1 (largest and smallest sum of a column), inf and -inf (of a row).

    >>> import tetrad as td
    >>> td.linalg.matrix_norm(td.asarray([[3.0, 0.0], [0.0, 4.0]]), ord="nuc")
    Array(7., float32)
    """
    a, dtype = matrix_operand("matrix_norm", x)
    if ord in ("fro", None):
        found = vector_norm(a, axis=(-2, -1))
    elif ord in ("nuc", 2, -2):
        values = svdvals(a)
        found = (
            _extreme(values, ord, -1) if isinstance(ord, int | float) else total(values, axis=-1)
        )
    elif ord in (1, -1, math.inf, -math.inf):
        sums = total(apply("abs", a), axis=-2 if abs(ord) == 1 else -1)
        found = _extreme(sums, ord, -1)
    else:
        raise SettingError("matrix_norm: ord", "'fro', 'nuc', 1, -1, 2, -2, inf or -inf", ord)
    found = convert(found, dtype.real)
    return reshaped(found, (*found.shape, 1, 1)) if keepdims else found


def norm(x: Any, /, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Array:
    """The norm of a vector or a matrix, by the axes there are or are named; of all elements as one
    vector without `ord` and axis.

    >>> import tetrad as td
    >>> td.linalg.norm(td.asarray([[3.0, 0.0], [0.0, 4.0]]))
    Array(5., float32)
    """
    a = asarray(x)
    if axis is None and ord is None:
        return vector_norm(a, keepdims=keepdims)
    given = range(a.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    axes = [axis_of("norm", i, a.ndim) for i in given]
    if len(axes) == 1:
        return vector_norm(a, axis=axes[0], keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        fail(ShapeError, f"norm: vectors have one axis, matrices two; {len(axes)} of {a.type}")
    found = matrix_norm(moveaxis(a, axes, (-2, -1)), ord="fro" if ord is None else ord)
    return expand_dims(found, sorted(axes)) if keepdims else found


# -- products and pieces ---------------------------------------------------------------------------


def matrix_power(x: Any, n: int, /) -> Array:
    """The n-th power of square matrices, by squaring; negative powers are those of the inverse.

    >>> import tetrad as td
    >>> td.linalg.matrix_power(td.asarray([[1, 1], [0, 1]]), 5)
    Array([[1, 5],
           [0, 1]], int32)
    """
    if not isinstance(n, int | np.integer):
        raise SettingError("matrix_power: n", "an int", n)
    a = as_array(x)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        fail(ShapeError, f"matrix_power: expected square matrices, got {a.type}")
    if n < 0:
        a, n = inv(a), -int(n)
    result = expand(eye(a.shape[-1], dtype=a.dtype), a.shape) if n == 0 else None
    while n:
        if n % 2:
            result = a if result is None else matmul(result, a)
        n //= 2
        a = matmul(a, a) if n else a
    return result  # type: ignore[return-value]


__all__ = [
    "EigResult", "EighResult", "QRResult", "SVDResult", "SlogdetResult",
    "cholesky", "cross", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul",
    "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "norm", "outer", "pinv", "qr",
    "solve", "svd", "svdvals",
    "tensordot", "trace", "triangular_solve", "vecdot", "vector_norm",
]  # fmt: skip


LATER = {  # in further files, which are loaded when one of them is used
    "_determinants": ("det", "slogdet"),
    "_iterative": ("bicgstab", "cg", "gmres"),
    "_matrices": (
        "block_diag", "cho_factor", "cho_solve", "cond", "expm", "lstsq", "lu", "lu_factor",
        "lu_solve", "multi_dot", "polar", "solve_triangular", "tensorinv", "tensorsolve",
        "toeplitz",
    ),
    "_roots": ("sqrtm",),
    "_tridiagonal": ("tridiagonal_solve",),
}  # fmt: skip
__all__ += [name for names in LATER.values() for name in names]

if not TYPE_CHECKING:  # which would take any name for one of ours
    __getattr__, __dir__ = namespaces.offers(globals(), LATER)
