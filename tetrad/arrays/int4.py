"""Packed signed nibbles for users, as `td.quant.int4`: packing, and products with packed rows.

Receives integers from -8 to 7, or words that hold eight of them along the last axis, and floats to
multiply with; returns arrays. Operands are brought to the form of the ops here and checked; the ops
themselves, their order and their derivatives are in `ops/int4`. Column c of a row is bits 4 (c % 8)
and up of word c // 8, in two's complement; a row takes whole words. Halves are computed in f32 and
rounded once, f64 in f64.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.arrays import functions as td
from tetrad.core.dtypes import DType, f32, f64, i8, i32, u32
from tetrad.core.errors import DtypeError, SettingError, ShapeError, UnsupportedError
from tetrad.core.floats import guarded
from tetrad.core.sizes import product
from tetrad.ops.int4.op import BLOCK, WORD, int4_dots, int4_matvec, words_of
from tetrad.ops.quantized.op import SCALE_OF_TOP, SMALLEST
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, common

EXACT = 262144  # so many products of two nibbles have a sum that f32 holds
LEAST = -3.4028234663852886e38  # where the search for the best score begins
ACTIVATIONS = (None, "int8")

__all__ = [
    "batched_matmul", "batched_matvec", "dot", "dot_scaled", "matvec", "pack", "top1", "unpack",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__


# -- packing ---------------------------------------------------------------------------------------


@guarded
def pack(x: Any) -> Array:
    """Integers as signed nibbles, eight to a word along the last axis; what does not fit -8 to 7 is
    clamped, and the lanes left over are 0.

    >>> import tetrad as td
    >>> [f"{int(w):08X}" for w in pack(td.asarray([1, 2, 3, 4, -1, -2, -3, -4, 5]))]
    ['CDEF4321', '00000005']
    """
    x = as_array(x)
    if not x.dtype.is_integer:
        hint = "round them first: td.astype(td.round(x), td.int8)"
        fail(DtypeError, f"int4.pack: expected integers, got {x.type}", hint)
    if not x.ndim:
        fail(ShapeError, f"int4.pack: expected an axis to pack along, got {x.type}", "x[None]")
    clamped = td.minimum(x, 7) if x.dtype.name.startswith("u") else td.clip(x, -8, 7)
    lanes = padded(td.astype(td.astype(clamped, i32), u32) & 15, WORD)
    return joined(td.reshape(lanes, (*x.shape[:-1], lanes.shape[-1] // WORD, WORD)), 4)


@guarded
def unpack(words: Any, n: int) -> Array:
    """The first n nibbles of each row of words, as int8.

    >>> import tetrad as td
    >>> unpack(td.asarray([0xF], dtype=td.uint32), 4)
    Array([-1,  0,  0,  0], int8)
    """
    words = packed("int4.unpack", words, n)
    nibbles = td.bitwise_right_shift(td.expand_dims(words, axis=-1), shifts(WORD, 4)) & 15
    lanes = td.astype(td.astype(nibbles ^ 8, i32) - 8, i8)
    return td.reshape(lanes, (*words.shape[:-1], words.shape[-1] * WORD))[..., : operator.index(n)]


def padded(x: Array, size: int) -> Array:
    """Zeros behind the last axis, up to a multiple of a size."""
    missing = -x.shape[-1] % size
    return td.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)]) if missing else x


def shifts(count: int, bits: int) -> Array:
    return td.asarray(np.arange(0, count * bits, bits, dtype=np.uint32))


def joined(parts: Array, bits: int) -> Array:
    """One word from the last axis, lowest bits first."""
    placed = td.bitwise_left_shift(parts, shifts(parts.shape[-1], bits))
    return td.sum(placed, axis=-1, dtype=u32)


# -- checks ----------------------------------------------------------------------------------------


def packed(name: str, words: Any, n: Any) -> Array:
    """Words that hold rows of n nibbles."""
    held = as_array(words)
    if held.dtype is not u32:
        hint = "td.quant.int4.pack makes words of integers"
        fail(DtypeError, f"{name}: expected packed words, uint32, got {held.type}", hint)
    count = length(name, n)
    if not held.ndim or held.shape[-1] != words_of(count):
        wanted = f"{count} nibbles take {words_of(count)} words of 32 bits, got {held.type}"
        fail(ShapeError, f"{name}: {wanted}", "is the data cut off, or is n another row's length?")
    return held


def length(name: str, n: Any) -> int:
    if isinstance(n, bool | np.bool_) or not hasattr(n, "__index__") or isinstance(n, Array):
        raise SettingError(f"{name}: n", "a number of nibbles, an int", n)
    if operator.index(n) < 0:
        raise SettingError(f"{name}: n", "a number of nibbles, at least 0", n)
    return operator.index(n)


def weight(name: str, w: Any, n: Any) -> Array:
    """Words of a matrix with rows of n nibbles."""
    held = packed(name, w, n)
    if held.ndim != 2:
        fail(ShapeError, f"{name}: expected words [rows, {words_of(n)}], got {held.type}")
    return held


def check_shape(name: str, what: str, x: Array, shape: Sequence[Any]) -> None:
    if x.shape != tuple(shape):
        fail(ShapeError, f"{name}: expected {what} of shape {list(shape)}, got {x.type}")


def in_floats(name: str, *args: Any) -> tuple[list[Array], DType]:
    """Operands in the type they are computed in, f32 or f64, and the type of the result."""
    arrays = common(args, "float")
    dtype = arrays[0].dtype
    if not dtype.is_float:
        fail(DtypeError, f"{name}: expected real numbers, got {arrays[0].type}")
    wide = f64 if dtype is f64 else f32
    return [td.astype(x, wide) for x in arrays], dtype


def check_activations(name: str, activations: Any) -> None:
    if activations not in ACTIVATIONS:
        raise SettingError(f"{name}: activations", "None or 'int8'", activations)


def check_rounded(name: str, activations: Any, dtype: DType) -> None:
    if activations is not None and dtype is f64:
        hint = "leave out activations=, or take x and scales in float32"
        fail(UnsupportedError, f"{name}: float64 is not rounded to 8 bits", hint)


# -- products of packed rows -----------------------------------------------------------------------


@guarded
def dot(a: Any, b: Any, n: int) -> Array:
    """The sum of the products of n nibbles, int32, modulo 2**32; leading axes broadcast.

    >>> import tetrad as td
    >>> x = pack(td.asarray([-8, -7, -1, 0, 1, 2, 6, 7]))
    >>> dot(x, x, 8)
    Array(204, int32)
    """
    return pairwise(packed("int4.dot", a, n), packed("int4.dot", b, n), length("int4.dot", n))


@guarded
def dot_scaled(a: Any, b: Any, scale_a: Any, scale_b: Any, n: int) -> Array:
    """(dot * scale_a) * scale_b, in floats; scales broadcast with the leading axes.

    >>> import tetrad as td
    >>> x = pack(td.asarray([1, 2, 3, 4, -1, -2, -3, -4]))
    >>> dot_scaled(x, x, 0.5, 0.25, 8)
    Array(7.5, float32)
    """
    name, n = "int4.dot_scaled", length("int4.dot_scaled", n)
    left, right = packed(name, a, n), packed(name, b, n)
    (first, second), dtype = in_floats(name, scale_a, scale_b)
    if n <= EXACT:
        total = td.astype(pairwise(left, right, n), first.dtype)
    else:  # the order of the sum tells
        left, right = td.broadcast_arrays(left, right)
        total = stacked_matvec(td.astype(unpack(left, n), first.dtype), right)
    return td.astype(total * first * second, dtype)


def pairwise(a: Array, b: Array, n: int) -> Array:
    """Exact dots of rows with rows, whose leading axes broadcast."""
    if b.ndim > 1 and a.ndim == 1:
        a, b = b, a
    if b.ndim == 1:  # one row of codes for all
        codes, sums = nibble_codes(b, n)
        flat = td.reshape(a, (product(a.shape[:-1]), a.shape[-1]))
        return td.reshape(int4_dots(codes, flat, sums), a.shape[:-1])
    a, b = td.broadcast_arrays(a, b)
    codes, sums = nibble_codes(td.reshape(a, (product(a.shape[:-1]), a.shape[-1])), n)
    lines = td.reshape(b, (product(b.shape[:-1]), 1, b.shape[-1]))
    return td.reshape(int4_dots(codes, lines, sums), a.shape[:-1])


def stacked_matvec(x: Array, w: Array) -> Array:
    """Sums of the products of rows with rows of nibbles, one by one."""
    flat = td.reshape(x, (product(x.shape[:-1]), x.shape[-1]))
    lines = td.reshape(w, (product(w.shape[:-1]), 1, w.shape[-1]))
    return td.reshape(int4_matvec(flat, lines), x.shape[:-1])


def nibble_codes(words: Array, n: int) -> tuple[Array, Array]:
    """Nibbles as signed bytes, in the form of `int4_dots`: codes u32[..., words, 2] and the sum of
    a row i32[..., 1]. Nibbles behind the last do not count."""
    sums = td.sum(td.astype(unpack(words, n), i32), axis=-1, keepdims=True, dtype=i32)
    if n % WORD:
        last = np.full(words.shape[-1], 0xFFFFFFFF, np.uint32)
        last[-1] = (1 << 4 * (n % WORD)) - 1
        words = words & td.asarray(last)
    halves = td.stack([words, td.bitwise_right_shift(words, 4)], axis=-1) & 0x0F0F0F0F
    return halves | (halves & 0x08080808) * 30, sums


@guarded
def batched_matmul(w: Any, a: Any, row_scales: Any, batch_scales: Any, n: int) -> Array:
    """(dot of a packed row of w with a packed row of a, times the scale of the row) times the scale
    of the batch item: [batch, rows].

    >>> import tetrad as td
    >>> w, a = pack(td.asarray([[1, 2], [3, -4]])), pack(td.asarray([[5, 6]]))
    >>> batched_matmul(w, a, td.asarray([1.0, 0.5]), td.asarray([2.0]), 2)
    Array([[34., -9.]], float32)
    """
    return scores_of("int4.batched_matmul", w, a, row_scales, batch_scales, n)


def scores_of(
    name: str, weights: Any, rows: Any, row_scales: Any, batch_scales: Any, n: Any
) -> Array:
    n = length(name, n)
    w, a = weight(name, weights, n), packed(name, rows, n)
    (of_rows, of_batch), dtype = in_floats(name, row_scales, batch_scales)
    check_shape(name, "row scales", of_rows, w.shape[:1])
    check_shape(name, "batch scales", of_batch, a.shape[:-1])
    if n <= EXACT:
        codes, sums = nibble_codes(a, n)
        total = td.astype(int4_dots(codes, w, sums), of_rows.dtype)
    else:  # the order of the sum tells
        total = int4_matvec(td.astype(unpack(a, n), of_rows.dtype), w)
    return td.astype(total * of_rows * td.expand_dims(of_batch, axis=-1), dtype)


@guarded
def top1(w: Any, a: Any, row_scales: Any, batch_scales: Any, n: int) -> tuple[Array, Array]:
    """The best score of `batched_matmul` for each batch item, and the row it is of: the first of
    equals. NaN and -inf never win; where nothing else is, the score is the lowest finite float32
    and the row 0.

    >>> import tetrad as td
    >>> w, a = pack(td.asarray([[1, 2], [3, -4]])), pack(td.asarray([[5, 6]]))
    >>> top1(w, a, td.asarray([1.0, 0.5]), td.asarray([2.0]), 2)
    (Array([34.], float32), Array([0], int32))
    """
    scores = scores_of("int4.top1", w, a, row_scales, batch_scales, n)
    if scores.shape[-1] == 0:
        fail(ShapeError, f"int4.top1: there is no best of no rows, got scores {scores.type}")
    least = max(LEAST, float(td.finfo(scores.dtype).min))
    held = td.where(scores > least, scores, least)
    best = td.argmax(held, axis=-1)
    found = td.take_along_axis(held, td.expand_dims(best, axis=-1), axis=-1)
    return found[..., 0], best


# -- floats times packed rows ----------------------------------------------------------------------


@guarded
def matvec(w: Any, x: Any, row_scales: Any, *, activations: str | None = None) -> Array:
    """(the sum of nibbles times x) times the scale of the row, for each packed row of w: [rows] for
    x [columns], [..., rows] for x with leading axes.

    The sum goes from the first column to the last; each product is rounded, then added.
    `activations="int8"` rounds x to 8 bits first, with a scale for every 32 columns, and multiplies
    integers: several times as fast, off by at most max|x| / 254 for each x. It takes no
    f64; derivatives are those without rounding.

    >>> import tetrad as td
    >>> w = pack(td.asarray([[1, 2, 3], [4, 5, -6]]))
    >>> matvec(w, td.asarray([1.0, 0.5, 2.0]), td.asarray([1.0, 0.5]))
    Array([ 8.  , -2.75], float32)
    """
    return scaled_matvec("int4.matvec", w, x, row_scales, activations)


@guarded
def batched_matvec(w: Any, xs: Any, row_scales: Any, *, activations: str | None = None) -> Array:
    """`matvec` for each row of xs: [batch, rows].

    >>> import tetrad as td
    >>> w = pack(td.asarray([[1, 2, 3], [4, 5, -6]]))
    >>> batched_matvec(w, td.ones((2, 3)), td.asarray([1.0, 0.5])).shape
    (2, 2)
    """
    if as_array(xs).ndim < 2:
        message = f"int4.batched_matvec: expected rows [batch, columns], got {as_array(xs).type}"
        fail(ShapeError, message, "matvec takes a single row")
    return scaled_matvec("int4.batched_matvec", w, xs, row_scales, activations)


def scaled_matvec(name: str, w: Any, x: Any, row_scales: Any, activations: Any) -> Array:
    check_activations(name, activations)
    (x, scales), dtype = in_floats(name, x, row_scales)
    check_rounded(name, activations, dtype)
    if not x.ndim:
        fail(ShapeError, f"{name}: expected x with an axis of columns, got {x.type}")
    w = weight(name, w, x.shape[-1])
    check_shape(name, "row scales", scales, w.shape[:1])
    if activations is None:
        result = int4_matvec(x, w) * scales
    else:
        result = int4_dots(*with_codes(x, w, BLOCK), scales)
    return td.astype(result, dtype)


def with_codes(x: Array, w: Array, block: int) -> tuple[Array, ...]:
    """Operands of a product of rows in 8 bits: codes, words, what goes with the codes, and the rows
    as they were, whose derivatives the product has."""
    codes, *factors = int8_rows(x, block)
    return codes, w, *factors, x


def int8_rows(x: Array, block: int) -> tuple[Array, Array, Array]:
    """Rows in 8 bits as products with nibbles take them: codes u32[..., words, 2], the bytes that
    meet even nibbles and those that meet odd ones; for every block of words the sum of the codes,
    i32, and the scale, f32. A block with NaN or infinity has the scale NaN.

    As `quantize_rows` does: code = x * (127 / max |x|), rounded to even; scale = max |x| / 127.
    """
    words, size = words_of(x.shape[-1]), block * WORD
    count = -(-x.shape[-1] // size)
    blocks = td.reshape(padded(x, size), (*x.shape[:-1], count, size))
    top = td.max(td.abs(blocks), axis=-1, keepdims=True)
    inverse = td.where(top < SMALLEST, 0, 127 / td.where(top < SMALLEST, 1, top))
    codes = td.astype(td.clip(td.round(blocks * inverse), -127, 127), i32)
    scales = td.where(top < float("inf"), top * SCALE_OF_TOP, float("nan"))[..., 0]
    pairs = td.reshape(td.astype(codes, u32) & 255, (*x.shape[:-1], count * block, 4, 2))
    held = joined(td.matrix_transpose(pairs), 8)[..., :words, :]
    return held, td.sum(codes, axis=-1, dtype=i32), scales
