"""Ops on integers of four bits and on arrays quantised in groups.

An array of `u4` or `i4` is bytes, two elements in each (`core.dtypes`). A quantised array is codes
u4[...], and for every group of neighbours in the flat array a scale and, in some schemes, a zero
point: number = (code - zero point) * scale, or table[code] * scale. Factors are [*lead, groups]:
each array below leading axes `lead` of the codes has groups of its own. Products read all that in
place (`ops.matmul`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, f32, f64, i4, i8, u4, u8
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import op
from tetrad.core.sizes import Size, plain, product
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.loopnest.reader import At, Operand
from tetrad.ops.calculus import Batched, all_batched, cast
from tetrad.ops.convert import cast as cast_op
from tetrad.ops.convert import cast_lower
from tetrad.ops.groups.decode import element
from tetrad.ops.rules import FLOATS, Array, check_dtype, ieee
from tetrad.quant import groups as meaning

Types = tuple[ArrayType, ...]
WIDE = {u4: u8, i4: i8}  # a byte for each element
NARROW = {u8: u4, i8: i4}


# -- integers of four bits -------------------------------------------------------------------------


def unpack_nibbles_type(x: ArrayType) -> ArrayType:
    if not x.dtype.is_nibble:
        raise DtypeError(f"unpack_nibbles: takes u4, i4, got {x}")
    return x.with_dtype(WIDE[x.dtype])


@op(type=unpack_nibbles_type, kind="movement", typed=True, public=False)
def unpack_nibbles(x: Array, *, types: Types) -> Array:
    """Integers of four bits as integers of eight.

    >>> import tetrad as td
    >>> unpack_nibbles(td.asarray([1, 2, 15], dtype=td.uint4))
    Array([ 1,  2, 15], uint8)
    """
    kind = types[0]
    shape = tuple(map(plain, kind.shape))
    codes = meaning.unpack_nibbles(x, prod(shape)).reshape(shape)
    if kind.dtype is u4:
        return codes
    return (codes ^ np.uint8(8)).view(np.int8) - np.int8(8)


@unpack_nibbles.read
def unpack_nibbles_read(k: KernelBuilder, at: At, x: Operand) -> Val:
    return x(at)


unpack_nibbles.not_differentiable("the result is an integer")
unpack_nibbles.batch(lambda batched, x: unpack_nibbles(x))


def pack_nibbles_type(x: ArrayType) -> ArrayType:
    check_dtype("pack_nibbles", x.dtype, (u8, i8))
    return x.with_dtype(NARROW[x.dtype])


@op(type=pack_nibbles_type, kind="special", may_fail=False, public=False)
def pack_nibbles(x: Array) -> Array:
    """The low four bits of integers of eight.

    >>> import tetrad as td
    >>> pack_nibbles(td.asarray([1, -8, 18], dtype=td.int8))
    Array([ 1, -8,  2], int4)
    """
    return meaning.pack_nibbles(np.ascontiguousarray(x))


pack_nibbles.not_differentiable("the result is an integer")
pack_nibbles.batch(lambda batched, x: pack_nibbles(x))


# -- numbers to codes ------------------------------------------------------------------------------


def quantize_groups_type(
    x: ArrayType, *, scheme: str, group: int, lead: int = 0
) -> tuple[ArrayType, ...]:
    check_dtype("quantize_groups", x.dtype, FLOATS)
    meaning.check_settings(scheme, group, plain(product(x.shape)))
    groups: Size = meaning.group_count(plain(product(x.shape[lead:])), group)
    factor = ArrayType(x.dtype.computing, (*x.shape[:lead], groups))
    return (x.with_dtype(u4), factor, factor)


@op(type=quantize_groups_type, kind="special", public=False)
def quantize_groups(
    x: Array, *, scheme: str, group: int, lead: int = 0
) -> tuple[Array, Array, Array]:
    """Codes, scales and zero points of an array, a pair of factors for each group of neighbours in
    the flat array below the leading axes. Where the scheme has no zero points, they are zeros.

    >>> codes, scale, _ = quantize_groups(np.float32([7, .5, -7]), scheme="int4_symmetric", group=4)
    >>> [hex(b) for b in codes], scale
    (['0x8f', '0x1'], array([1.], dtype=float32))
    """
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else np.asarray(x)
    rows = wide.reshape(prod(x.shape[:lead]), prod(x.shape[lead:]))
    made = [meaning.quantize(row, scheme, group) for row in rows]
    codes, scale, zero = (np.array(part, wide.dtype) for part in zip(*made, strict=True))
    shape = (*x.shape[:lead], meaning.group_count(rows.shape[1], group))
    return meaning.pack_nibbles(codes.astype(np.uint8)), scale.reshape(shape), zero.reshape(shape)


quantize_groups.not_differentiable("codes of four bits do not change smoothly")


@quantize_groups.batch
def quantize_groups_batch(batched: Batched, x: Node, *, lead: int = 0, **params: Any) -> Any:
    return quantize_groups(x, lead=lead + 1, **params)


# -- codes to numbers ------------------------------------------------------------------------------


def lead_of(codes: ArrayType, factor: ArrayType, group: int) -> int:
    """How many leading axes of the codes the factors have too."""
    lead = factor.rank - 1
    if lead < 0 or factor.shape[:lead] != codes.shape[:lead]:
        raise ShapeError(f"dequantize_groups: factors {factor} do not belong to codes {codes}")
    groups = meaning.group_count(plain(product(codes.shape[lead:])), group)
    if factor.shape[lead] != groups:
        raise ShapeError(
            f"dequantize_groups: codes {codes} in groups of {group} have {groups} factors, "
            f"got {factor}"
        )
    return lead


def dequantize_groups_type(
    codes: ArrayType, scale: ArrayType, *zero: ArrayType, scheme: str, group: int, dtype: DType
) -> ArrayType:
    check_dtype("dequantize_groups", dtype, FLOATS)
    if codes.dtype is not u4 or scale.dtype not in (f32, f64):
        raise DtypeError(
            f"dequantize_groups: takes codes of uint4 and factors of f32 or f64, got {codes} and "
            f"{scale}"
        )
    if group < 1 or len(zero) > 1 or any(z != scale for z in zero):
        raise ShapeError(f"dequantize_groups: zero points {zero} beside scales {scale}")
    lead_of(codes, scale, group)
    return codes.with_dtype(dtype)


@op(
    type=dequantize_groups_type,
    kind="special",
    typed=True,
    inline=True,
    may_fail=False,
    public=False,
)
@ieee
def dequantize_groups(
    codes: Array, scale: Array, *zero: Array, scheme: str, group: int, dtype: DType, types: Types
) -> Array:
    """(code - zero point) * scale, or table[code] * scale; computed as the factors are, rounded to
    `dtype` once.

    Schemes: "int4" (without zero points the code 8 is zero), "nf4", and "ones", the scales alone.

    >>> import tetrad as td
    >>> codes = td.asarray([0, 3, 15], dtype=td.uint4)
    >>> scale, zero = td.asarray([0.5]), td.asarray([3.0])
    >>> dequantize_groups(codes, scale, zero, scheme="int4", group=4, dtype=td.float32)
    Array([-1.5,  0. ,  6. ], float32)
    """
    shape = tuple(map(plain, types[0].shape))
    flat, spread = by_element(codes, shape, scale.ndim - 1, group, (scale, *zero))
    unscaled = meaning.decode(flat, spread[1] if zero else None, scheme, scale.dtype)
    return np.asarray(cast_op.reference((unscaled * spread[0]).reshape(shape), dtype=dtype))


def by_element(
    codes: Array, shape: tuple[int, ...], lead: int, group: int, factors: Sequence[Array]
) -> tuple[Array, list[Array]]:
    """Codes, and the factors of each: [places of the leading axes, elements below one]."""
    rows, each = prod(shape[:lead]), prod(shape[lead:])
    flat = meaning.unpack_nibbles(codes, rows * each).reshape(rows, each)
    of_group = np.arange(each) // group
    sizes = (rows, meaning.group_count(each, group))
    return flat, [factor.reshape(sizes)[:, of_group] for factor in factors]


@dequantize_groups.read
def dequantize_groups_read(
    k: KernelBuilder,
    at: At,
    codes: Operand,
    scale: Operand,
    *zero: Operand,
    scheme: str,
    group: int,
    dtype: DType,
) -> Val:
    number = element(k, at, codes, scale, zero, scheme, group)
    return k.cast(cast_lower(k, number, dtype=dtype), dtype)


def _by_scale(t: Node, y: Node, codes: Node, scale: Node, *zero: Node, **params: Any) -> Node:
    made: Node = dequantize_groups(codes, t, *zero, **params)
    return made


def _by_zero(
    t: Node, y: Node, codes: Node, scale: Node, zero: Node, *, scheme: str, **params: Any
) -> Node:
    made: Node = dequantize_groups(codes, -(scale * t), scheme="ones", **params)
    return made


def _back_to_scale(
    ct: Node, codes: Node, scale: Node, *zero: Node, scheme: str, group: int, dtype: DType
) -> Node:
    wide = cast(ct, scale.type.dtype)
    lead = scale.type.rank - 1
    made: Node = reduce_groups(wide, codes, *zero, scheme=scheme, group=group, lead=lead)
    return made


dequantize_groups.jvp(None, _by_scale, _by_zero)
dequantize_groups.transpose(None, _back_to_scale)


@dequantize_groups.batch
def dequantize_groups_batch(batched: Batched, *operands: Node, **params: Any) -> Node:
    """A new axis in front of all operands."""
    made: Node = dequantize_groups(*repeated_codes(batched, operands, 0), **params)
    return made


def repeated_codes(batched: Batched, operands: Sequence[Node], which: int) -> list[Node]:
    """Every operand with the new axis; codes that lack it are repeated, two in a byte as they
    are."""
    if batched[which]:
        return all_batched(batched, operands)
    wide = [unpack_nibbles(x) if i == which else x for i, x in enumerate(operands)]
    made = all_batched(batched, wide)
    return [pack_nibbles(x) if i == which else x for i, x in enumerate(made)]


# -- sums over groups ------------------------------------------------------------------------------


def reduce_groups_type(
    x: ArrayType, codes: ArrayType, *zero: ArrayType, scheme: str, group: int, lead: int
) -> ArrayType:
    if x.dtype not in (f32, f64) or codes.dtype is not u4 or x.shape != codes.shape:
        raise DtypeError(f"reduce_groups: takes f32 or f64 beside codes, got {x}, {codes}")
    groups: Size = meaning.group_count(plain(product(x.shape[lead:])), group)
    made = x.with_shape((*x.shape[:lead], groups))
    if any(z != made for z in zero):
        raise ShapeError(f"reduce_groups: zero points {zero} are not {made}")
    return made


@op(type=reduce_groups_type, kind="special", typed=True, may_fail=False, public=False)
@ieee
def reduce_groups(
    x: Array, codes: Array, *zero: Array, scheme: str, group: int, lead: int, types: Types
) -> Array:
    """The sum over each group of x times what the codes stand for, unscaled: the transpose of
    `dequantize_groups`. Elements of a group ascend, an fma chain from zero.

    >>> import tetrad as td
    >>> codes = td.asarray([9, 7, 15], dtype=td.uint4)
    >>> reduce_groups(td.asarray([1.0, 2.0, 1.0]), codes, scheme="int4", group=2, lead=0)
    Array([-1.,  7.], float32)
    """
    flat, spread = by_element(codes, x.shape, lead, group, zero)
    unscaled = meaning.decode(flat, spread[0] if zero else None, scheme, x.dtype)
    each = flat.shape[1]
    groups = meaning.group_count(each, group)
    padded = np.zeros((len(flat), groups * group), np.float64)
    padded[:, :each] = x.reshape(flat.shape).astype(np.float64) * unscaled
    sums = padded.reshape(len(flat), groups, group).sum(axis=2)
    return np.asarray(sums.astype(x.dtype).reshape(*x.shape[:lead], groups))


def _back_to_x(
    ct: Node, x: Node, codes: Node, *zero: Node, scheme: str, group: int, lead: int
) -> Node:
    made: Node = dequantize_groups(codes, ct, *zero, scheme=scheme, group=group, dtype=x.type.dtype)
    return made


def _by_zero_of_sum(
    t: Node, y: Node, x: Node, codes: Node, zero: Node, *, scheme: str, group: int, lead: int
) -> Node:
    sums: Node = reduce_groups(x, codes, scheme="ones", group=group, lead=lead)
    made: Node = -(sums * t)
    return made


def _by_x(t: Node, y: Node, x: Node, codes: Node, *zero: Node, **params: Any) -> Node:
    made: Node = reduce_groups(t, codes, *zero, **params)
    return made


reduce_groups.jvp(_by_x, None, _by_zero_of_sum)
reduce_groups.transpose(_back_to_x)


@reduce_groups.batch
def reduce_groups_batch(batched: Batched, *operands: Node, lead: int, **params: Any) -> Node:
    made: Node = reduce_groups(*repeated_codes(batched, operands, 1), lead=lead + 1, **params)
    return made


# -- sums over groups of a product -----------------------------------------------------------------


def product_groups_type(
    a: ArrayType, b: ArrayType, *weight: ArrayType, scheme: str, group: int, lead: int,
    through: tuple[DType, ...] = (),
) -> ArrayType:  # fmt: skip
    if a.rank != 2 or b.rank != 2 or a.shape[1] != b.shape[0] or a.dtype is not b.dtype:
        raise ShapeError(f"product_groups: takes matrices, got {a} and {b}")
    check_dtype("product_groups", a.dtype, FLOATS)
    product_type = ArrayType((a.dtype, *through)[-1], (a.shape[0], b.shape[1]))
    return reduce_groups_type(product_type, *weight, scheme=scheme, group=group, lead=lead)


@op(type=product_groups_type, kind="special", typed=True, may_fail=False, public=False)
def product_groups(
    a: Array, b: Array, codes: Array, *zero: Array, scheme: str, group: int, lead: int,
    through: tuple[DType, ...] = (), types: Types,
) -> Array:  # fmt: skip
    """reduce_groups(a b, ...), whose matrix exists only in registers: what a product with a weight
    in groups gives back to its factors. Each element of a b is one fma chain, of halves in f32; it
    is rounded to its dtype, then to those it goes `through`, the last that of the sums.

    >>> import tetrad as td
    >>> codes = td.asarray([[9, 7], [8, 15]], dtype=td.uint4)
    >>> a, b = td.asarray([[1.0], [2.0]]), td.asarray([[1.0, 3.0]])
    >>> product_groups(a, b, codes, scheme="int4", group=2, lead=0)
    Array([-2., 42.], float32)
    """
    with np.errstate(all="ignore"):
        whole: Array = (a.astype(np.float64) @ b.astype(np.float64)).astype(a.dtype)
    for dtype in through:
        whole = cast_op.reference(whole, dtype=dtype)
    settings = {"scheme": scheme, "group": group, "lead": lead}
    return np.asarray(reduce_groups.reference(whole, codes, *zero, **settings, types=types[2:]))


product_groups.not_differentiable("the passes make it, after derivatives are taken")
