"""Kernel language, packed elements: nibbles and 8-bit floats in words, by shift and mask.

Receives a builder, a buffer of u8 or u32 and the number of an element; returns values, or stores
them: compositions of instructions, bound as methods of the builder. Element i lies in the bits from
w * (i modulo per) on of word i / per: the lowest first, `per` elements of w bits in a word.

A store changes one element of a word and writes the others back, so a word has one owner: between
two barriers only one invocation may store to any element of it, and no other may read them.
`evaluate(..., races=True)` names a second one. `store_nibbles` writes whole words and reads none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tetrad.core.dtypes import bool_, f32, i32, u8, u32
from tetrad.core.errors import VerifyError
from tetrad.core.record import record

if TYPE_CHECKING:
    from tetrad.kernel.build import KernelBuilder, Val
    from tetrad.kernel.nodes import Buffer


@record
class Float8:
    """A sign, an exponent and `mantissa` bits; codes from `over` on are infinity or NaN."""

    mantissa: int
    bias: int
    over: int
    nan: int


FLOAT8 = {"e4m3fn": Float8(3, 7, 0x7F, 0x7F), "e5m2": Float8(2, 15, 0x7C, 0x7E)}


# -- nibbles ---------------------------------------------------------------------------------------


def load_nibble(k: KernelBuilder, words: Buffer, at: object, *, signed: bool = False) -> Val:
    """Element `at` of 4-bit elements: a u32 of 0 to 15, or, signed, an i32 of -8 to 7."""
    bits = load_bits(k, words, at, 4)
    return sign_extended(k, bits) if signed else bits


def store_nibble(k: KernelBuilder, words: Buffer, at: object, value: object) -> None:
    """The lowest four bits of a u32 or i32; the rest of the word stays as it is."""
    store_bits(k, words, at, as_word(k, value), 4)


def unpack_nibbles(k: KernelBuilder, word: Val, *, signed: bool = False) -> list[Val]:
    """The eight elements of a u32, the lowest first."""
    nibbles = [(word >> 4 * i) & 15 for i in range(8)]
    return [sign_extended(k, v) for v in nibbles] if signed else nibbles


def store_nibbles(k: KernelBuilder, words: Buffer, word: object, values: Sequence[object]) -> None:
    """All elements of one word at once, the lowest first, without reading it."""
    per = elements_of(k, words, 4)
    if len(values) != per:
        raise VerifyError("V020", f"{k.name}: a {words.dtype} has {per} nibbles, not {len(values)}")
    total = k.const(0, u32)
    for i, value in enumerate(values):
        total = total | ((as_word(k, value) & 15) << 4 * i)
    k.store(words, word, total.cast(words.dtype))


def sign_extended(k: KernelBuilder, nibble: Val) -> Val:
    return k.bitcast(nibble ^ 8, i32) - 8


# -- 8-bit floats ----------------------------------------------------------------------------------


def load_f8(k: KernelBuilder, words: Buffer, at: object, format: str) -> Val:
    """Element `at` of 8-bit floats, e4m3fn or e5m2, as the f32 that equals it."""
    return decode_f8(k, load_bits(k, words, at, 8), format)


def store_f8(k: KernelBuilder, words: Buffer, at: object, value: Val, format: str) -> None:
    """An f32 rounded to the nearest 8-bit float, ties to even. What is too large becomes infinity,
    and NaN in e4m3fn, which has none."""
    store_bits(k, words, at, encode_f8(k, value, format), 8)


def decode_f8(k: KernelBuilder, code: Val, format: str) -> Val:
    """The f32 of a code 0 to 255 in a u32."""
    kind = float8(k, format)
    magnitude, shift = code & 0x7F, 23 - kind.mantissa
    normal = (magnitude << shift) + ((127 - kind.bias) << 23)
    small = k.cast(magnitude, f32) * 2.0 ** (1 - kind.bias - kind.mantissa)
    bits = k.select(magnitude < 1 << kind.mantissa, k.bitcast(small, u32), normal)
    is_infinite = magnitude.eq(kind.over) if kind.over < kind.nan else k.value(False, bool_)
    special = k.select(is_infinite, k.const(0x7F800000, u32), k.const(0x7FC00000, u32))
    bits = k.select(magnitude >= kind.over, special, bits)
    return k.bitcast(bits | ((code & 0x80) << 24), f32)


def encode_f8(k: KernelBuilder, value: Val, format: str) -> Val:
    """The code of an f32, in a u32."""
    kind = float8(k, format)
    bits, shift = k.bitcast(value, u32), 23 - kind.mantissa
    magnitude = bits & 0x7FFFFFFF
    even = (magnitude >> shift) & 1
    rounded = (magnitude + ((1 << shift - 1) - 1) + even) >> shift
    normal = k.min(rounded - ((127 - kind.bias) << kind.mantissa), kind.over)
    steps = k.abs(value) * 2.0 ** (kind.bias - 1 + kind.mantissa)
    small = k.cast(k.round_even(steps), u32)
    code = k.select(magnitude < (128 - kind.bias) << 23, small, normal)
    code = k.select(magnitude > 0x7F800000, k.const(kind.nan, u32), code)
    return code | ((bits >> 24) & 0x80)


def float8(k: KernelBuilder, format: str) -> Float8:
    if format not in FLOAT8:
        raise VerifyError("K010", f"{k.name}: no 8-bit float {format!r}; there are {[*FLOAT8]}")
    return FLOAT8[format]


# -- bits ------------------------------------------------------------------------------------------


def load_bits(k: KernelBuilder, words: Buffer, at: object, width: int) -> Val:
    """Element `at` of `width` bits, as a u32."""
    per, place = elements_of(k, words, width), k.index(at)
    word = k.load(words, place // per).cast(u32)
    return word if per == 1 else (word >> shift_of(k, place, per, width)) & ((1 << width) - 1)


def store_bits(k: KernelBuilder, words: Buffer, at: object, value: Val, width: int) -> None:
    """The lowest bits of a u32 as element `at`; the word is read, changed and written."""
    per, place = elements_of(k, words, width), k.index(at)
    if per == 1:
        k.store(words, place, value.cast(words.dtype))
        return
    shift, mask = shift_of(k, place, per, width), (1 << width) - 1
    others = k.load(words, place // per).cast(u32) & ~(k.const(mask, u32) << shift)
    k.store(words, place // per, (others | ((value & mask) << shift)).cast(words.dtype))


def table_entry(k: KernelBuilder, code: Val, entries: list[Val]) -> Val:
    """An entry of a table by the bits of a code, without exchanging lanes: they may be idle."""
    bit = 1
    while len(entries) > 1:
        is_odd = (code & bit).ne(0)
        entries = [k.select(is_odd, b, a) for a, b in zip(entries[::2], entries[1::2], strict=True)]
        bit *= 2
    return entries[0]


def shift_of(k: KernelBuilder, place: Val, per: int, width: int) -> Val:
    return k.cast(place % per, u32) * width


def elements_of(k: KernelBuilder, words: Buffer, width: int) -> int:
    """How many elements a word holds."""
    if words.dtype not in (u8, u32):
        message = f"{k.name}: packed elements lie in u8 or u32, {words.name} is {words.dtype}"
        raise VerifyError("K023", message)
    return words.dtype.bits // width


def as_word(k: KernelBuilder, value: object) -> Val:
    """A Python number or an integer value as a u32, modulo 2**32."""
    if isinstance(value, int):
        return k.const(value & 0xFFFFFFFF, u32)
    given = k._val(value)
    return given.cast(u32)
