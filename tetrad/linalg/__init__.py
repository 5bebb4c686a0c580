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
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tetrad.arrays.creation import eye, zeros
from tetrad.arrays.indexing import reshaped
from tetrad.arrays.linear import matmul, tensordot, vecdot
from tetrad.arrays.manipulation import (
    expand_dims,
    matrix_transpose,
)
from tetrad.arrays.statistics import max as largest
from tetrad.arrays.statistics import min as smallest
from tetrad.arrays.statistics import sum as total
from tetrad.core import lazy
from tetrad.core.dtypes import DType, bool_, f32, i32
from tetrad.core.errors import SettingError, ShapeError
from tetrad.core.floats import guarded
from tetrad.core.sizes import SizeExpr
from tetrad.linalg._operands import (
    apply,
    matrix_operand,
    numbers,
    run_op,
    sides,
    solved,
    square_operand,
)
from tetrad.linalg._pieces import cross, diagonal, outer, trace
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, axes_of, convert, expand
from tetrad.transforms.custom import custom_jvp
from tetrad.transforms.derivatives import jvp

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


def solve(x1: Any, x2: Any, /, *, singular: str = "raise") -> Array:
    """x with x1 x = x2. x2 is a vector if it has one axis, else matrices, one column for each right
    side.

    A singular matrix is a SingularError that names it and its zero pivot; with singular="nan" its
    solution is NaN.

    >>> import tetrad as td
    >>> td.linalg.solve(td.asarray([[2.0, 1.0], [1.0, 3.0]]), td.asarray([5.0, 10.0]))
    Array([1., 3.], float32)
    """
    a, b, dtype = sides("solve", x1, x2)
    factors, pivots = run_op("lu", a)
    x = solved("linear_solve", a, b, (a, factors, pivots), singular=singular)
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
    singular: str = "raise",
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
        "singular": singular,
    }
    x = solved("triangular_solve", matrix, right, (matrix,), **settings)
    x = reshaped(x, x.shape[:-1]) if is_vector else x if left_side else matrix_transpose(x)
    return convert(x, dtype)


def inv(x: Any, /, *, singular: str = "raise") -> Array:
    """The inverse of square matrices.

    >>> import tetrad as td
    >>> td.linalg.inv(td.asarray([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], float32)
    """
    a, dtype = square_operand("inv", x)
    one = eye(a.shape[-1], dtype=a.dtype)
    factors, pivots = run_op("lu", a)
    return convert(solved("linear_solve", a, one, (a, factors, pivots), singular=singular), dtype)


def det(x: Any, /) -> Array:
    """The determinant of square matrices, differentiable also where it is 0; twice, beyond three
    rows, where it is not.

    >>> import tetrad as td
    >>> td.linalg.det(td.asarray([[1.0, 2.0], [3.0, 4.0]]))
    Array(-2., float32)
    """
    a, dtype = square_operand("det", x)
    if a.shape[-1] in (1, 2, 3):
        return convert(_leading_minor(a, tuple(range(int(a.shape[-1])))), dtype)
    return convert(_determinant(a), dtype)


@custom_jvp
def _determinant(a: Array) -> Array:
    det: Array = run_op("lu_det", a, *run_op("lu", a))[0]
    return det


@_determinant.defjvp
def _determinant_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (a,), (t,) = primals, tangents
    return _determinant(a), total(apply("multiply", _cofactors(a), t), axis=(-2, -1))


@custom_jvp
def _cofactors(a: Array) -> Array:
    """det(A) times the inverse of A, transposed: a polynomial of the elements, so A may be
    singular.

    A pivot that is 0 becomes one as small as rounding: what that does to the determinant and to the
    inverse cancels, and the result is that of a matrix so close.
    """
    factors, pivots = run_op("lu", a)
    eps = 2.0**-23 if a.dtype.real is f32 else 2.0**-52
    size = largest(apply("abs", a), axis=(-2, -1), keepdims=True)
    tiny = convert(
        apply("multiply", apply("where", apply("equal", size, 0), 1, size), eps), a.dtype
    )
    is_zero = apply("logical_and", eye(a.shape[-1], dtype=bool_), apply("equal", factors, 0))
    regular = apply("where", is_zero, tiny, factors)
    det, _, _ = run_op("lu_det", a, regular, pivots)
    inverse = solved(
        "linear_solve", a, eye(a.shape[-1], dtype=a.dtype), (a, regular, pivots), singular="nan"
    )
    return apply("multiply", reshaped(det, (*det.shape, 1, 1)), matrix_transpose(inverse))


@_cofactors.defjvp
def _cofactors_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """With X = (dA A^-1)^T, cof tr(X) - X cof; NaN where A has no inverse."""
    (a,), (t,) = primals, tangents
    cofactors, inverse = _cofactors(a), inv(a, singular="nan")
    x = matrix_transpose(matmul(t, inverse))
    trace_ = total(diagonal(x), axis=-1)
    spread = apply("multiply", reshaped(trace_, (*trace_.shape, 1, 1)), cofactors)
    return cofactors, apply("subtract", spread, matmul(x, cofactors))


def _leading_minor(a: Array, columns: tuple[int, ...]) -> Array:
    """The determinant of as many first rows as there are columns, by its last row: for few of
    them."""
    row = len(columns) - 1
    entries = [a[..., row, column] for column in columns]
    if row == 0:
        return entries[0]
    minors = (_leading_minor(a, columns[:i] + columns[i + 1 :]) for i in range(len(columns)))
    terms = [apply("multiply", entry, minor) for entry, minor in zip(entries, minors, strict=True)]
    result = terms[-1]
    for distance, term in enumerate(reversed(terms[:-1]), 1):
        result = apply("subtract" if distance % 2 else "add", result, term)
    return result


def slogdet(x: Any, /) -> SlogdetResult:
    """Sign and logarithm of the magnitude of the determinant: 0 and -inf for singular matrices.

    >>> import tetrad as td
    >>> td.linalg.slogdet(td.asarray([[1.0, 0.0], [0.0, -1.0]]))
    SlogdetResult(sign=Array(-1., float32), logabsdet=Array(0., float32))
    """
    a, dtype = square_operand("slogdet", x)
    _, sign, size = run_op("lu_det", a, *run_op("lu", a))
    return SlogdetResult(convert(sign, dtype), convert(size, dtype.real))


def cholesky(x: Any, /, *, upper: bool = False) -> Array:
    """The lower triangle L with L L^H = x (or the upper with U^H U = x), of positive definite
    matrices.

    Only the lower triangle of x is read.

    >>> import tetrad as td
    >>> td.linalg.cholesky(td.asarray([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]], float32)
    """
    a, dtype = square_operand("cholesky", x)
    lower = convert(run_op("cholesky", a), dtype)
    return _adjoint(lower) if upper else lower


def _adjoint(x: Array) -> Array:
    return matrix_transpose(apply("conj", x) if x.dtype.is_complex else x)


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


def eigh(x: Any, /) -> EighResult:
    """Eigenvalues in ascending order and eigenvectors in columns, of hermitian matrices (their
    lower triangle).

    >>> import tetrad as td
    >>> td.linalg.eigh(td.asarray([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
    Array([1., 2.], float32)
    """
    a, dtype = square_operand("eigh", x)
    values, vectors = run_op("eigh", a)
    return EighResult(convert(values, dtype.real), convert(vectors, dtype))


def eig(x: Any, /) -> EigResult:
    """Eigenvalues in no order and eigenvectors in columns, of any square matrices; both are
    complex.

    Vectors have length 1 and one element that is real, the greatest; so also when they are
    differentiated.

    >>> import tetrad as td
    >>> td.linalg.eig(td.asarray([[0.0, -1.0], [1.0, 0.0]])).eigenvalues
    Array([0.+1.j, 0.-1.j], complex64)
    """
    a, dtype = square_operand("eig", x)
    values, vectors = run_op("eig", a)
    return EigResult(convert(values, dtype.complex), convert(vectors, dtype.complex))


def eigvals(x: Any, /) -> Array:
    """Eigenvalues in no order, of any square matrices; they are complex."""
    a, dtype = square_operand("eigvals", x)
    return convert(_eigenvalues(a), dtype.complex)


@custom_jvp
def _eigenvalues(a: Array) -> Array:
    values: Array = run_op("eigvals", a)
    return values


@_eigenvalues.defjvp
def _eigenvalues_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """By `eig` alone: `eigvals` may find the values in another order."""
    values, changes = jvp(lambda a: run_op("eig", a)[0], primals, tangents)
    return values, changes


def eigvalsh(x: Any, /) -> Array:
    """Eigenvalues in ascending order, of hermitian matrices (their lower triangle)."""
    a, dtype = square_operand("eigvalsh", x)
    return convert(run_op("eigvalsh", a), dtype.real)


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """x = U diag(S) Vh, S in descending order. Derivatives need full_matrices=False, or square
    matrices.

    >>> import tetrad as td
    >>> td.linalg.svd(td.asarray([[3.0, 0.0], [0.0, 4.0]])).S
    Array([4., 3.], float32)
    """
    a, dtype = matrix_operand("svd", x)
    if full_matrices and 0 in a.shape[-2:]:
        return _nothing_times(a, dtype)
    u, s, vh = run_op("svd", a, full=full_matrices)
    return SVDResult(convert(u, dtype), convert(s, dtype.real), convert(vh, dtype))


def _nothing_times(a: Array, dtype: DType) -> SVDResult:
    """Of matrices without elements: any orthogonal matrices do."""
    *lead, m, n = a.shape
    u, vh = (expand(eye(size, dtype=dtype), (*lead, size, size)) for size in (m, n))
    return SVDResult(u, zeros((*lead, 0), dtype=dtype.real), vh)


def svdvals(x: Any, /) -> Array:
    """Singular values in descending order."""
    a, dtype = matrix_operand("svdvals", x)
    return convert(run_op("svdvals", a), dtype.real)


@guarded
def pinv(x: Any, /, *, rtol: Any = None) -> Array:
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
    return convert(_pseudo_inverse(a, _share(a, rtol)), dtype)


@custom_jvp
def _pseudo_inverse(a: Array, share: Array) -> Array:
    """V diag(1/s) U^H without the singular values up to `share` of the largest."""
    u, s, vh = run_op("svd", a, full=False)
    is_kept = _above(s, share)
    inverse = apply("where", is_kept, apply("divide", 1, apply("where", is_kept, s, 1)), 0)
    return matmul(
        apply("multiply", _adjoint(vh), convert(expand_dims(inverse, axis=-2), a.dtype)),
        _adjoint(u),
    )


@_pseudo_inverse.defjvp
def _pseudo_inverse_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """-P dA P + P P^H dA^H (1 - A P) + (1 - P A) dA^H P^H P, as long as the rank stays; equal
    singular values do not matter here, though they do to `svd` (Golub and Pereyra, 1973)."""
    a, share = primals
    p, t = _pseudo_inverse(a, share), tangents[0]
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
    s = run_op("svdvals", a)
    return total(convert(_above(s, _share(a, rtol)), i32), axis=-1)


# -- norms -----------------------------------------------------------------------------------------


@guarded
def vector_norm(x: Any, /, *, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> Array:
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
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Array:
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
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul",
    "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve",
    "svd", "svdvals",
    "tensordot", "trace", "triangular_solve", "vecdot", "vector_norm",
]  # fmt: skip


if not TYPE_CHECKING:  # which would take any name for one of ours

    def __getattr__(name: str) -> Any:
        raise lazy.module("tetrad.arrays.suggestions").absent("linalg", name)


def __dir__() -> list[str]:
    return __all__
