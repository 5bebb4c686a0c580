"""Arrays, linear algebra: products of vectors, matrices and batches of them.

Receives arrays of any rank, returns arrays: everything becomes the op `matmul` on operands of equal
rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tetrad.arrays.indexing import reshaped
from tetrad.arrays.manipulation import moveaxis
from tetrad.core import lazy
from tetrad.core.dtypes import DType, f32, i8, i32
from tetrad.core.errors import DtypeError, ShapeError, TraceError
from tetrad.core.promotion import storage_hint
from tetrad.core.sizes import product
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import axis_of, common, convert, dtype_of, run

if TYPE_CHECKING:
    from tetrad.arrays import einsum
else:
    einsum = lazy.later("tetrad.arrays.einsum")

RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}  # a kind holds the products of those below


PRECISIONS = (
    "default", "fastest", "bfloat16", "high", "bfloat16_3x", "tensorfloat32", "highest", "float32",
)  # fmt: skip


def check_precision(name: str, precision: Any) -> None:
    """Products of f32 are always computed in f32, which is the highest of JAX's precisions: it may
    be named (one, or one for each side), and changes nothing."""
    for one in precision if isinstance(precision, tuple | list) else (precision,):
        word = getattr(one, "name", one)  # of JAX's enumeration
        if one is not None and not (isinstance(word, str) and word.lower() in PRECISIONS):
            message = f"{name}: there is no precision {one!r}"
            fail(TraceError, message, f"one of {', '.join(PRECISIONS)}; all compute in f32")


def matmul(
    a: Any,
    b: Any,
    *,
    dtype: Any = None,
    preferred_element_type: Any = None,
    precision: Any = None,
) -> Array:
    """The matrix product over the last two axes; leading axes broadcast, a vector is a row (left)
    or a column (right).

    Integers wrap in their own type. `dtype` is that of the sums and the result, if another is
    wanted, which JAX calls `preferred_element_type`: the product of int8 in int32 is as quick as
    hardware makes it. `precision` is taken as in JAX; f32 is always computed in f32.

    >>> import tetrad as td
    >>> td.matmul(td.asarray([[1.0, 2.0], [3.0, 4.0]]), td.asarray([1.0, -1.0]))
    Array([-1., -1.], float32)
    >>> td.matmul(td.full((2, 2), 100, dtype=td.int8), td.ones((2,), dtype=td.int8), dtype=td.int32)
    Array([200, 200], int32)
    """
    check_precision("matmul", precision)
    (a, b), kind = in_dtype("matmul", (a, b), dtype, preferred_element_type)
    _check_inner(a, b)
    left = reshaped(a, (1, *a.shape)) if a.ndim == 1 else a
    right = reshaped(b, (*b.shape, 1)) if b.ndim == 1 else b
    result = _product(left, right, kind)
    if a.ndim == 1:
        result = reshaped(result, (*result.shape[:-2], result.shape[-1]))
    return reshaped(result, result.shape[:-1]) if b.ndim == 1 else result


def in_dtype(
    name: str, operands: Sequence[Any], dtype: Any, preferred: Any
) -> tuple[list[Array], DType]:
    """Operands of one type, and the type of the result. Bytes are multiplied as they are where
    words are asked for."""
    arrays = common(operands) if operands else []
    given = arrays[0].dtype if arrays else f32
    if given.is_quantized:
        fail(DtypeError, f"{name}: {given} is not computed with", storage_hint(given))
    wanted = preferred if dtype is None else dtype
    kind = given if wanted is None else dtype_of(wanted)
    if RANKS.get(kind.kind, -1) < RANKS[given.kind]:
        fail(
            DtypeError,
            f"{name}: dtype={kind} cannot hold products of {given}",
            "convert the operands with astype",
        )
    return (arrays if given is i8 and kind is i32 else [convert(x, kind) for x in arrays]), kind


def product_in(a: Array, b: Array, kind: DType) -> Array:
    """The op `matmul`, whose sums of i8 are i32, in this type."""
    if a.dtype is not i8 or b.dtype is not i8:
        a, b = convert(a, kind), convert(b, kind)
    return convert(run("matmul", a, b), kind)


def _check_inner(a: Array, b: Array) -> None:
    if not a.ndim or not b.ndim:
        fail(
            ShapeError,
            f"matmul: operands need axes, got {a.type} and {b.type}",
            "multiply with * instead",
        )
    inner = b.shape[0 if b.ndim == 1 else -2]
    if a.shape[-1] != inner:
        message = (
            f"matmul: inner sizes differ: lhs {a.type} contracts {a.shape[-1]}, rhs {b.type} "
            f"contracts {inner}"
        )
        fail(ShapeError, message, "transpose one side (x.mT), or name the axes with td.einsum")
    pairs = zip(reversed(a.shape[:-2]), reversed(b.shape[:-2]), strict=False)
    if any(m != n and 1 not in (m, n) for m, n in pairs):
        message = f"matmul: leading axes do not broadcast: lhs {a.type}, rhs {b.type}"
        fail(
            ShapeError,
            message,
            "sizes must be equal, or one of them 1; the last two axes are the matrices",
        )


def _product(a: Array, b: Array, kind: DType) -> Array:
    if b.ndim == 2 and a.ndim > 2:  # one matrix for the whole batch: the batch is more rows
        rows = reshaped(a, (product(a.shape[:-1]), a.shape[-1]))
        return reshaped(product_in(rows, b, kind), (*a.shape[:-1], b.shape[-1]))
    rank = max(a.ndim, b.ndim)
    left, right = (reshaped(x, (1,) * (rank - x.ndim) + x.shape) for x in (a, b))
    return product_in(left, right, kind)


def vecdot(
    x1: Any,
    x2: Any,
    /,
    axis: int = -1,
    *,
    dtype: Any = None,
    preferred_element_type: Any = None,
    precision: Any = None,
) -> Array:
    """The dot product along an axis, of the conjugate of x1 with x2; the others broadcast. `dtype`
    and `precision` as in `matmul`.

    >>> import tetrad as td
    >>> td.vecdot(td.asarray([1.0, 2.0]), td.asarray([3.0, 4.0]))
    Array(11., float32)
    """
    check_precision("vecdot", precision)
    arrays, kind = in_dtype("vecdot", (x1, x2), dtype, preferred_element_type)
    a, b = (moveaxis(x, axis, -1) for x in arrays)
    a = run("conj", a) if a.dtype.is_complex else a
    if a.shape[-1] != b.shape[-1]:
        fail(ShapeError, f"vecdot: sizes along the axis differ: {a.shape[-1]} and {b.shape[-1]}")
    result = matmul(
        reshaped(a, (*a.shape[:-1], 1, a.shape[-1])), reshaped(b, (*b.shape, 1)), dtype=kind
    )
    return reshaped(result, result.shape[:-2])


def tensordot(
    a: Any,
    b: Any,
    axes: Any = 2,
    *,
    dtype: Any = None,
    preferred_element_type: Any = None,
    precision: Any = None,
) -> Array:
    """The sum of products over pairs of axes: the last `axes` of a with the first of b, or two
    lists of axes. `dtype` and `precision` as in `matmul`.

    >>> import tetrad as td
    >>> td.tensordot(td.ones((2, 3)), td.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    check_precision("tensordot", precision)
    (a, b), kind = in_dtype("tensordot", (a, b), dtype, preferred_element_type)
    left, right = _axis_pairs(a, b, axes)
    letters = iter(einsum.LETTERS)
    first = [next(letters) for _ in range(a.ndim)]
    second = [next(letters) for _ in range(b.ndim)]
    for i, j in zip(left, right, strict=True):
        if a.shape[i] != b.shape[j]:
            fail(
                ShapeError,
                f"tensordot: axis {i} of {a.type} and axis {j} of {b.type} differ in size",
            )
        second[j] = first[i]
    kept = [c for i, c in enumerate(first) if i not in left] + [
        c for j, c in enumerate(second) if j not in right
    ]
    return einsum.einsum(f"{''.join(first)},{''.join(second)}->{''.join(kept)}", a, b, dtype=kind)


def _axis_pairs(a: Array, b: Array, axes: Any) -> tuple[list[int], list[int]]:
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            fail(ShapeError, f"tensordot: cannot contract {axes} axes of {a.type} and {b.type}")
        return list(range(a.ndim - axes, a.ndim)), list(range(axes))
    left = [axis_of("tensordot", i, a.ndim) for i in axes[0]]
    right = [axis_of("tensordot", j, b.ndim) for j in axes[1]]
    if len(left) != len(right):
        fail(ShapeError, f"tensordot: {len(left)} axes of one side, {len(right)} of the other")
    return left, right
