"""JAX's names, `jax.lax`: functions that make, move and convert elements.

Receives arrays and settings with JAX's names and order; returns what the functions of `td` make of
them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, bf16, f32, f64, named, u16, u32
from tetrad.core.errors import DtypeError, ShapeError, UnsupportedError
from tetrad.jax._shell.tables import td
from tetrad.jax.lax.elementwise import dtype_of_operand
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, convert, dtype_of, run

Shape = Sequence[int]


def iota(dtype: Any, size: int) -> Any:
    """The numbers from 0 to size - 1."""
    return td.arange(size, dtype=dtype)


def broadcasted_iota(dtype: Any, shape: Shape, dimension: int, **_: Any) -> Any:
    """The place of each element along one axis."""
    line = [shape[dimension] if i == dimension else 1 for i in range(len(shape))]
    return td.broadcast_to(td.reshape(iota(dtype, shape[dimension]), line), tuple(shape))


def full(shape: Shape, fill_value: Any, dtype: Any = None, **_: Any) -> Any:
    return td.full(tuple(shape), fill_value, dtype=dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, **_: Any) -> Any:
    given = as_array(x)
    sizes = given.shape if shape is None else tuple(shape)
    return td.full(sizes, fill_value, dtype=given.dtype if dtype is None else dtype)


def empty(shape: Shape, dtype: Any, **_: Any) -> Any:
    return td.zeros(tuple(shape), dtype=dtype)


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """The elements in another dtype."""
    given = as_array(operand)
    wanted = given.dtype if new_dtype is None else dtype_of(new_dtype)
    if given.dtype.is_complex and not wanted.is_complex:
        given = given.real
    return td.astype(given, wanted)


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Any:
    """The bits of the elements as another dtype. Of one with fewer bits, a new last axis holds the
    parts of an element, the lowest first; of one with more, the elements along the last axis are
    the parts."""
    given, wanted = as_array(operand), dtype_of(new_dtype)
    words = as_words(given)
    if given.dtype.bits > wanted.bits:
        words = in_parts(words, wanted.bits)
    elif given.dtype.bits < wanted.bits:
        words = joined(words, wanted.bits)
    return of_words(words, wanted)


def as_words(x: Array) -> Any:
    """The bits of numbers, as unsigned integers."""
    check_bits(x.dtype)
    if x.dtype is bf16:
        return convert(as_words(convert(x, f32)) >> 16, u16)
    wanted = unsigned(x.dtype.bits)
    return convert(x, wanted) if x.dtype.is_integer else run("bitcast", x, dtype=wanted)


def of_words(words: Any, dtype: DType) -> Any:
    """Unsigned integers, as the bits of numbers."""
    check_bits(dtype)
    if dtype is bf16:
        return convert(of_words(convert(words, u32) << 16, f32), bf16)
    return convert(words, dtype) if dtype.is_integer else run("bitcast", words, dtype=dtype)


def check_bits(dtype: DType) -> None:
    if not dtype.is_integer and dtype not in (bf16, f32, f64):
        fail(
            UnsupportedError,
            f"lax.bitcast_convert_type: not for {dtype}",
            "for integers, bfloat16, float32 and float64",
        )


def unsigned(bits: int) -> DType:
    return named(f"u{bits}")


def in_parts(words: Any, bits: int) -> Any:
    count = words.dtype.bits // bits
    return convert(td.stack([words >> (bits * i) for i in range(count)], axis=-1), unsigned(bits))


def joined(words: Any, bits: int) -> Any:
    each = words.dtype.bits
    if not words.ndim or words.shape[-1] != bits // each:
        fail(
            ShapeError,
            f"lax.bitcast_convert_type: {bits // each} elements of {words.dtype} make one of "
            f"{bits} bits, got {words.type}",
            "the last axis holds the parts of an element",
        )
    wide: Any = convert(words, unsigned(bits))
    parts = [wide[..., i] << (each * i) for i in range(bits // each)]
    return functools.reduce(td.bitwise_or, parts)


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Numbers rounded to a float of fewer bits, in their own dtype."""
    given = as_array(operand)
    info = np.finfo(given.dtype.np)
    if exponent_bits != info.nexp and (exponent_bits, mantissa_bits) not in ((5, 10), (8, 7)):
        fail(
            ShapeError,
            f"lax.reduce_precision: {exponent_bits} bits of exponent for {given.type}",
            "those of the dtype itself, or of float16 and bfloat16",
        )
    if (exponent_bits, mantissa_bits) == (5, 10):
        return given.astype("float16").astype(given.dtype)
    if (exponent_bits, mantissa_bits) == (8, 7):
        return given.astype("bfloat16").astype(given.dtype)
    return rounded_mantissa(given, int(info.nmant) - mantissa_bits)


def rounded_mantissa(x: Array, dropped: int) -> Any:
    """Numbers without the last bits of their mantissa, rounded to even."""
    if dropped <= 0:
        return x
    bits: Any = bitcast_convert_type(x, f"uint{x.dtype.bits}")
    is_odd = (bits >> dropped) & 1
    near = bits + ((1 << (dropped - 1)) - 1) + is_odd
    cut = near & (((1 << x.dtype.bits) - 1) ^ ((1 << dropped) - 1))
    return td.where(td.isfinite(x), bitcast_convert_type(cut, x.dtype), x)


def broadcast(operand: Any, sizes: Shape, **_: Any) -> Any:
    """The array with new leading axes."""
    given = as_array(operand)
    return td.broadcast_to(given, (*sizes, *given.shape))


def broadcast_in_dim(
    operand: Any, shape: Shape, broadcast_dimensions: Sequence[int], **_: Any
) -> Any:
    """The array in a larger shape; its axis i becomes `broadcast_dimensions[i]`."""
    given = as_array(operand)
    sizes = [1] * len(shape)
    for size, axis in zip(given.shape, broadcast_dimensions, strict=True):
        sizes[axis] = size
    return td.broadcast_to(td.reshape(given, tuple(sizes)), tuple(shape))


def broadcast_to_rank(x: Any, rank: int) -> Any:
    given = as_array(x)
    return td.reshape(given, (*(1,) * (rank - given.ndim), *given.shape))


def reshape(operand: Any, new_sizes: Shape, dimensions: Any = None, **_: Any) -> Any:
    given = as_array(operand)
    if dimensions is not None and tuple(dimensions) != tuple(range(given.ndim)):
        given = td.permute_dims(given, tuple(dimensions))
    return td.reshape(given, tuple(new_sizes))


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Any:
    """Axes from start to stop as one."""
    given = as_array(operand)
    axes = range(given.ndim)[start_dimension:stop_dimension]
    size = math.prod(given.shape[a] for a in axes)
    return td.reshape(given, (*given.shape[: axes.start], size, *given.shape[axes.stop :]))


def squeeze(array: Any, dimensions: Sequence[int]) -> Any:
    return td.squeeze(array, axis=tuple(dimensions))


def expand_dims(array: Any, dimensions: Sequence[int]) -> Any:
    """New axes of size 1, at these places of the result."""
    given = as_array(array)
    rank = given.ndim + len(dimensions)
    places = {d % rank for d in dimensions}
    sizes = iter(given.shape)
    return td.reshape(given, tuple(1 if i in places else next(sizes) for i in range(rank)))


def transpose(operand: Any, permutation: Sequence[int]) -> Any:
    return td.permute_dims(operand, tuple(permutation))


def concatenate(operands: Sequence[Any], dimension: int) -> Any:
    """Arrays one after the other; they have one dtype."""
    dtypes = {dtype_of_operand(x) for x in operands}
    if len(dtypes) > 1:
        shown = ", ".join(sorted(d.name for d in dtypes))
        fail(DtypeError, f"lax.concatenate requires one dtype, got {shown}", "jnp.concatenate")
    return td.concat(list(operands), axis=dimension)


def rev(operand: Any, dimensions: Sequence[int]) -> Any:
    return td.flip(operand, axis=tuple(dimensions)) if len(dimensions) else as_array(operand)


def tile(operand: Any, reps: Sequence[int]) -> Any:
    return td.tile(operand, tuple(reps))


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Parts of these sizes along an axis."""
    given, ends = as_array(operand), np.cumsum(sizes)
    if sum(sizes) != given.shape[axis]:
        fail(ShapeError, f"lax.split: {list(sizes)} do not add up to axis {axis} of {given.type}")
    return [
        slice_in_dim(given, int(end - size), int(end), axis=axis)
        for size, end in zip(sizes, ends, strict=True)
    ]


def slice(
    operand: Any, start_indices: Shape, limit_indices: Shape, strides: Shape | None = None
) -> Array:
    """The part from start to limit along every axis."""
    given = as_array(operand)
    steps = (1,) * given.ndim if strides is None else strides
    bounds = zip(given.shape, start_indices, limit_indices, strict=True)
    if any(not 0 <= start <= limit <= size for size, start, limit in bounds):
        fail(
            ShapeError,
            f"lax.slice: {list(start_indices)} to {list(limit_indices)} is not within {given.type}",
        )
    spans = zip(start_indices, limit_indices, steps, strict=True)
    return given[tuple([np.s_[a:b:c] for a, b, c in spans])]


def slice_in_dim(
    operand: Any,
    start_index: int | None,
    limit_index: int | None,
    stride: int = 1,
    axis: int = 0,
) -> Array:
    given = as_array(operand)
    key: list[Any] = [np.s_[:]] * given.ndim
    key[axis] = np.s_[start_index:limit_index:stride]
    return given[tuple(key)]


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    given = as_array(operand)
    at = index + given.shape[axis] if index < 0 else index
    part = slice_in_dim(given, at, at + 1, axis=axis)
    return part if keepdims else td.squeeze(part, axis=axis)


def pad(operand: Any, padding_value: Any, padding_config: Any) -> Array:
    """A border of (low, high, interior) elements along each axis; a negative one cuts off."""
    given = as_array(operand)
    value = padding_value
    if dtype_of_operand(value) is not given.dtype:
        fail(
            DtypeError,
            f"lax.pad: operand {given.type} and padding value of "
            f"{dtype_of_operand(value).name} must have one dtype",
        )
    value = convert(value, given.dtype)
    for axis, (low, high, interior) in enumerate(padding_config):
        given = padded_axis(given, value, axis, (int(low), int(high), int(interior)))
    return given


def padded_axis(x: Array, value: Array, axis: int, config: tuple[int, int, int]) -> Array:
    low, high, interior = config
    if interior and x.shape[axis] > 1:
        x = with_gaps(x, value, axis, interior)
    borders = [max(low, 0), max(high, 0)]
    around = [
        td.broadcast_to(value, (*x.shape[:axis], n, *x.shape[axis + 1 :])) if n else None
        for n in borders
    ]
    if any(n is not None for n in around):
        parts = [p for p in (around[0], x, around[1]) if p is not None]
        x = td.concat(parts, axis=axis)
    start, stop = max(-low, 0), x.shape[axis] - max(-high, 0)
    return slice_in_dim(x, start, max(start, stop), axis=axis) if low < 0 or high < 0 else x


def with_gaps(x: Array, value: Array, axis: int, count: int) -> Array:
    """The array with so many elements of a value between its own along an axis."""
    size = x.shape[axis]
    wide = td.expand_dims(x, axis=axis + 1)
    gaps = td.broadcast_to(value, (*x.shape[: axis + 1], count, *x.shape[axis + 1 :]))
    both = td.concat([wide, gaps], axis=axis + 1)
    whole = td.reshape(both, (*x.shape[:axis], size * (count + 1), *x.shape[axis + 1 :]))
    return slice_in_dim(whole, 0, size * (count + 1) - count, axis=axis)


def dtype(x: Any) -> Any:
    """The dtype of an array or a number."""
    return dtype_of_operand(x)


def broadcast_shapes(*shapes: Any) -> Any:
    return td.broadcast_shapes(*shapes)


def optimization_barrier(operand: Any, /) -> Any:
    """The operand; programs here move no values over one another in a way that shows."""
    return operand


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """The array: there is one device, and it is there."""
    return x


OWN = """
    bitcast_convert_type broadcast broadcast_in_dim broadcast_shapes broadcast_to_rank
    broadcasted_iota collapse concatenate convert_element_type dtype empty expand_dims full
    full_like index_in_dim iota optimization_barrier pad reduce_precision reshape rev slice
    slice_in_dim split squeeze tile transpose with_sharding_constraint
""".split()  # noqa: SIM905
