"""Linear algebra, determinants: by the factors of `lu`, differentiable also where they are 0."""

from __future__ import annotations

from typing import Any

from tetrad.arrays.creation import eye
from tetrad.arrays.indexing import reshaped
from tetrad.arrays.linear import matmul
from tetrad.arrays.manipulation import matrix_transpose
from tetrad.arrays.statistics import max as largest
from tetrad.arrays.statistics import sum as total
from tetrad.core.dtypes import bool_, f32
from tetrad.linalg import SlogdetResult, inv
from tetrad.linalg._operands import run_op, solved, square_operand
from tetrad.linalg._pieces import diagonal
from tetrad.tracing.array import Array
from tetrad.tracing.operands import apply, convert
from tetrad.transforms.custom import custom_jvp


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
        "linear_solve", a, eye(a.shape[-1], dtype=a.dtype), (a, regular, pivots), on_failure="nan"
    )
    return apply("multiply", reshaped(det, (*det.shape, 1, 1)), matrix_transpose(inverse))


@_cofactors.defjvp
def _cofactors_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """With X = (dA A^-1)^T, cof tr(X) - X cof; NaN where A has no inverse."""
    (a,), (t,) = primals, tangents
    cofactors, inverse = _cofactors(a), inv(a, on_failure="nan")
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
