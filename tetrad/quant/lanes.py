"""Block formats, lanes: the layout the low-bit kernels read, sixteen rows side by side so that a lane is a row.

Receives rows of a GGUF format, returns the same numbers rearranged (`interleave`), and says where things lie. Nothing
is decoded, rounded or lost: `docs/layouts.md` draws it.

    sixteen rows:  super-block, super-block, ...
    super-block:   f16 scale x 16 [, f16 min scale x 16], then its blocks        (a simple format: just one block)
    block:         planes of code bits, then the scales of its sub-blocks, then their mins
    plane:         of b bits: b words x 16 rows; byte i of word j holds, from the lowest bits upward, the columns
                   4 w + i of the words w = j, j + b, j + 2 b, ... of a block (a word of a block: 4 columns)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tetrad.core.dtypes import DType, declare_quantized
from tetrad.quant.fields import U8, read_half, read_six_bit_pairs
from tetrad.quant.format import Format, format_named

ROWS = 16
BLOCK = 32  # columns a kernel takes in one step
WORDS = BLOCK // 4


@dataclass(frozen=True, slots=True)
class Scales:
    """What scales the codes of some blocks, as the file has it.

    `supers` are f16 factors of a super-block: of the scales, then of the mins. `scales` and `mins` have one entry a
    sub-block: f16 where there is no super-block, else integers.
    """

    supers: tuple[np.ndarray, ...]  # f16[n] each
    scales: np.ndarray  # [n, sub-blocks]
    mins: np.ndarray | None  # what is added to the scaled code


@dataclass(frozen=True, eq=False, slots=True)
class Lanes:
    """A format in the interleaved layout. Bytes and offsets are those of sixteen rows."""

    format: Format
    read: Callable[[U8], Scales]
    supers: int = 0  # f16 factors in front of a super-block
    scale_bytes: int = 2  # of one sub-block scale: f16, or an integer that a factor multiplies
    signed_scales: bool = False
    has_mins: bool = False

    @property
    def name(self) -> str:
        return f"{self.format.name}x{ROWS}"

    @property
    def bits(self) -> tuple[int, ...]:
        """Of each plane, most first."""
        return tuple(b for b in (8, 4, 2, 1) if self.format.bits & b)

    @property
    def blocks(self) -> int:
        """In a super-block."""
        return self.format.block // BLOCK

    @property
    def sub_blocks(self) -> int:
        """In a block."""
        return BLOCK // self.format.sub_block

    @property
    def head_bytes(self) -> int:
        return ROWS * 2 * self.supers

    @property
    def code_bytes(self) -> int:
        return ROWS * 4 * self.format.bits

    @property
    def block_bytes(self) -> int:
        sides = 2 if self.has_mins else 1
        return self.code_bytes + ROWS * self.sub_blocks * self.scale_bytes * sides

    @property
    def super_bytes(self) -> int:
        return self.head_bytes + self.blocks * self.block_bytes

    def interleave(self, packed: U8) -> U8:
        """Rows as the file has them, u8[n, bytes of a row], into u8[n rounded up to 16, bytes of a row here]."""
        n = -(-packed.shape[0] // ROWS) * ROWS
        rows = np.zeros((n, packed.shape[1]), np.uint8)
        rows[: packed.shape[0]] = packed
        count = packed.shape[1] // self.format.nbytes
        blocks = rows.reshape(n * count, self.format.nbytes)
        parts = [part.reshape(n // ROWS, ROWS, count, *part.shape[1:]) for part in self._parts(blocks)]
        head, body = parts[0], parts[1:]
        # [group, row, super-block, block, field words] -> row behind the words, so that sixteen rows lie side by side
        turned = [np.ascontiguousarray(part.transpose(0, 2, 3, 4, 1, 5)) for part in body]
        laid = np.concatenate([part.reshape(n // ROWS, count, self.blocks, -1) for part in turned], axis=3)
        front = np.ascontiguousarray(head.transpose(0, 2, 3, 1, 4)).reshape(n // ROWS, count, -1)
        whole = np.concatenate([front, laid.reshape(n // ROWS, count, -1)], axis=2)
        return whole.reshape(n, -1)

    def _parts(self, blocks: U8) -> list[U8]:
        """Head [n, factors, 2] and, for each field of the blocks, [n, blocks, words or sub-blocks, bytes]."""
        n, scales = len(blocks), self.read(blocks)
        front = np.zeros((n, self.supers), "<f2")
        for i, factor in enumerate(scales.supers):
            front[:, i] = factor
        fields = [self._plane(self.format._read_codes(blocks), i) for i in range(len(self.bits))]
        for values in (scales.scales, scales.mins):
            if values is not None:
                raw = np.ascontiguousarray(values).view(np.uint8)
                fields.append(raw.reshape(n, self.blocks, self.sub_blocks, self.scale_bytes))
        return [front.view(np.uint8).reshape(n, self.supers, 2), *fields]

    def _plane(self, codes: U8, which: int) -> U8:
        """[n, blocks, words of the plane, 4]"""
        bits = self.bits[which]
        part = (codes >> np.uint8(self.shift_of(which))) & np.uint8((1 << bits) - 1)
        words = part.reshape(len(codes), self.blocks, 8 // bits, bits, 4)
        places = np.arange(0, 8, bits, dtype=np.uint8)[:, None, None]
        return np.asarray(np.bitwise_or.reduce(words << places, axis=2))

    def shift_of(self, which: int) -> int:
        """Where the bits of a plane stand in the code: the widest plane holds the lowest bits."""
        return sum(self.bits[:which])


def _half(blocks: U8, start: int) -> np.ndarray:
    return read_half(blocks, start).astype(np.float16)


def _simple(blocks: U8) -> Scales:
    return Scales((), _half(blocks, 0), None)


def _with_min(blocks: U8) -> Scales:
    return Scales((), _half(blocks, 0), _half(blocks, 2))


def _with_pairs(blocks: U8) -> Scales:
    """q4_k, q5_k: the file subtracts the mins, so their factor is negated here."""
    return Scales((_half(blocks, 0)[:, 0], -_half(blocks, 2)[:, 0]), *read_six_bit_pairs(blocks, 4))


def _q6_k(blocks: U8) -> Scales:
    return Scales((_half(blocks, 208)[:, 0],), blocks[:, 192:208], None)


LANES: dict[str, Lanes] = {
    made.format.name: made
    for made in (
        Lanes(format_named("q4_0"), _simple),
        Lanes(format_named("q4_1"), _with_min, has_mins=True),
        Lanes(format_named("q5_0"), _simple),
        Lanes(format_named("q5_1"), _with_min, has_mins=True),
        Lanes(format_named("q8_0"), _simple),
        Lanes(format_named("q4_k"), _with_pairs, supers=2, scale_bytes=1, has_mins=True),
        Lanes(format_named("q5_k"), _with_pairs, supers=2, scale_bytes=1, has_mins=True),
        Lanes(format_named("q6_k"), _q6_k, supers=1, scale_bytes=1, signed_scales=True),
    )
}
DTYPES: dict[str, DType] = {
    name: declare_quantized(lanes.name, lanes.format.block, lanes.super_bytes // ROWS, ROWS)
    for name, lanes in LANES.items()
}


def lanes_of(dtype: DType) -> Lanes:
    """The layout of an interleaved type."""
    return LANES[dtype.name.removesuffix(f"x{ROWS}")]
