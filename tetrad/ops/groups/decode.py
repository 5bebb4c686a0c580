"""Arrays in groups inside kernels: one element anywhere, and the table of a whole group.

Receives codes and factors as a kernel reads them; returns numbers as `quant.groups.decode` and the
scale give them, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.core.dtypes import DType, f32, i32, u32
from tetrad.core.machine import LANES
from tetrad.core.types import row_strides
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.elements import table_entry
from tetrad.loopnest.index import offset
from tetrad.loopnest.reader import At, Operand
from tetrad.quant.groups import MIDDLE, MIDPOINTS, NF4


def element(
    k: KernelBuilder,
    at: At,
    codes: Operand,
    scale: Operand,
    zero: Sequence[Operand],
    scheme: str,
    group: int,
) -> Val:
    """The number at an index, in the dtype of the scales."""
    where = factor_at(at, codes, len(scale.shape) - 1, group)
    factor = scale(where)
    if scheme == "ones":
        return factor
    return unscaled(k, codes(at), zero[0](where) if zero else None, scheme, scale.dtype) * factor


def factor_at(at: At, codes: Operand, lead: int, group: int) -> At:
    """Where the factors of an element are."""
    inner = codes.shape[lead:]
    flat = offset(codes.reading.sizes, at[lead:], inner, row_strides(inner))
    return (*at[:lead], flat // group)


def unscaled(k: KernelBuilder, code: Val, zero: Val | None, scheme: str, dtype: DType) -> Val:
    """What a code stands for before it is scaled."""
    if scheme == "nf4":
        return table_entry(k, k.cast(code, u32), [k.const(entry, dtype) for entry in NF4])
    number = k.cast(k.cast(code, i32), dtype)
    return number - (k.const(MIDDLE, dtype) if zero is None else zero)


# -- a group at a time: all sixteen lanes ----------------------------------------------------------


def lane_values(k: KernelBuilder, values: Sequence[float], dtype: DType = f32) -> Val:
    """A register with a number in each of sixteen lanes."""
    return table_entry(k, k.cast(k.lane(), u32), [k.const(v, dtype) for v in values])


def code_numbers(k: KernelBuilder, scheme: str) -> Val:
    """In lane i what code i stands for, but for the zero point: the same for all groups."""
    if scheme == "nf4":
        return lane_values(k, NF4)
    return k.cast(k.cast(k.lane(), i32), f32)


def group_table(
    k: KernelBuilder, numbers: Val, scale: Val, zero: Val | None, scheme: str, dtype: DType
) -> Val:
    """In lane i the number that code i is in this group, rounded to `dtype`, as f32."""
    if scheme != "nf4":
        numbers = numbers - (k.const(MIDDLE, f32) if zero is None else zero)
    return k.cast(k.cast(numbers * scale, dtype), f32)


def nf4_midpoints(k: KernelBuilder) -> Val:
    """The midpoints in the lanes; nothing is above the last."""
    return lane_values(k, (*MIDPOINTS, float("inf")))


def nf4_code(k: KernelBuilder, ratio: Val, midpoints: Val) -> Val:
    """How many midpoints lie below (u32), by halving."""
    code = k.const(0, u32)
    for step in (LANES // 2, 4, 2, 1):
        is_above = ratio > k.permute(midpoints, code + (step - 1))
        code = k.select(is_above, code + step, code)
    return code
