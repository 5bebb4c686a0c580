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

import numpy as np

from tetrad.core.dtypes import DType, declare_quantized
from tetrad.core.record import record
from tetrad.quant.fields import U8, read_six_bit_pairs
from tetrad.quant.format import Format, format_named

ROWS = 16
BLOCK = 32  # columns a kernel takes in one step
WORDS = BLOCK // 4
WORD = 4  # bytes
LINE = 64  # bytes; weights begin at multiples of it
FIELDS = 4  # f32 a block of activations has beside its codes: scale, scaled sum, sum of all codes and of the first half
q8_row = declare_quantized("q8_row", BLOCK, BLOCK + 4 * FIELDS)  # activations, as `ops.lowbit` rounds them


@record
class Source:
    """Where a block of the file keeps what scales its codes, in bytes from its start.

    Without factors, a scale is an f16, and so is the min, which is added. With them, scales and mins are integers of
    the sub-blocks; the file subtracts the mins, so their factor, the second, is negated here.
    """

    scale: int  # the first one
    low: int | None = None  # the min
    factors: tuple[int, ...] = ()  # f16 each
    has_pairs: bool = False  # six-bit scales and mins in twelve bytes, as q4_k has them


@record(eq=False)
class Lanes:
    """A format in the interleaved layout. Bytes and offsets are those of sixteen rows."""

    format: Format
    source: Source
    signed_scales: bool = False

    @property
    def name(self) -> str:
        return f"{self.format.name}x{ROWS}"

    @property
    def unit_bytes(self) -> int:
        """Rows in a file begin at multiples: of a word, or of half of one where blocks are no whole number of words."""
        return WORD if self.format.nbytes % WORD == 0 else WORD // 2

    @property
    def supers(self) -> int:
        """f16 factors in front of a super-block."""
        return len(self.source.factors)

    @property
    def scale_bytes(self) -> int:
        """Of one sub-block scale: f16, or an integer that a factor multiplies."""
        return 1 if self.supers else 2

    @property
    def has_mins(self) -> bool:
        return self.source.has_pairs or self.source.low is not None

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
        n = len(blocks)
        codes = self.format._read_codes(blocks) ^ np.uint8(self.format.flip)  # as the file has them
        fields = [self._plane(codes, i) for i in range(len(self.bits))]
        for raw in self._scales(blocks):
            fields.append(raw.reshape(n, self.blocks, self.sub_blocks, self.scale_bytes))
        return [self._head(blocks), *fields]

    def _head(self, blocks: U8) -> U8:
        """Bits are kept: a signalling nan stays one."""
        front = np.empty((len(blocks), self.supers, 2), np.uint8)
        for i, start in enumerate(self.source.factors):
            front[:, i] = blocks[:, start : start + 2]
        front[:, 1:, 1] ^= np.uint8(0x80)
        return front

    def _scales(self, blocks: U8) -> list[U8]:
        """The bytes of the scales and, where there are any, of the mins."""
        source, size = self.source, self.blocks * self.sub_blocks * self.scale_bytes
        if source.has_pairs:
            return list(read_six_bit_pairs(blocks, source.scale))
        starts = [source.scale] if source.low is None else [source.scale, source.low]
        return [np.ascontiguousarray(blocks[:, start : start + size]) for start in starts]

    def _plane(self, codes: U8, which: int) -> U8:
        """[n, blocks, words of the plane, 4]"""
        bits = self.bits[which]
        part = (codes >> np.uint8(self.shift_of(which))) & np.uint8((1 << bits) - 1)
        words = part.reshape(len(codes), self.blocks, 8 // bits, bits, 4)
        places = np.arange(0, 8, bits, dtype=np.uint8)[:, None, None]
        return np.asarray(np.bitwise_or.reduce(words << places, axis=2))

    def word_order(self, words: range) -> list[int]:
        """Words of a block so that those which share a word of the widest plane follow each other."""
        return sorted(words, key=lambda w: (w % self.bits[0], w))

    def shift_of(self, which: int) -> int:
        """Where the bits of a plane stand in the code: the widest plane holds the lowest bits."""
        return sum(self.bits[:which])


LANES: dict[str, Lanes] = {
    made.format.name: made
    for made in (
        Lanes(format_named("q4_0"), Source(0)),
        Lanes(format_named("q4_1"), Source(0, 2)),
        Lanes(format_named("q5_0"), Source(0)),
        Lanes(format_named("q5_1"), Source(0, 2)),
        Lanes(format_named("q8_0"), Source(0)),
        Lanes(format_named("q4_k"), Source(4, factors=(0, 2), has_pairs=True)),
        Lanes(format_named("q5_k"), Source(4, factors=(0, 2), has_pairs=True)),
        Lanes(format_named("q6_k"), Source(192, factors=(208,)), signed_scales=True),
    )
}
DTYPES: dict[str, DType] = {
    name: declare_quantized(lanes.name, lanes.format.block, lanes.super_bytes // ROWS, ROWS)
    for name, lanes in LANES.items()
}


def lanes_of(dtype: DType) -> Lanes:
    """The layout of an interleaved type."""
    return LANES[dtype.name.removesuffix(f"x{ROWS}")]
