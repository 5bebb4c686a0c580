"""Block formats, lanes: the layout the low-bit kernels read, sixteen rows side by side so that a
lane is a row.

Receives rows of a GGUF format, returns the same numbers rearranged (`interleave`), and says where
things lie. Nothing is decoded, rounded or lost: `docs/layouts.md` draws it. `register` makes a
format known, here and everywhere.

    sixteen rows:  super-block, super-block, ...
    super-block:   factor x 16 [, factor of the mins x 16], then its blocks (a simple format: one)
    block:         planes of code bits, then the scales of its sub-blocks, then their mins
    plane:         of b bits: b words x 16 rows; byte i of word j holds, from the lowest bits
                   upward, the columns 4 w + i of the words w = j, j + b, j + 2 b, ... of a block
                   (a word of a block: 4 columns)
"""

from __future__ import annotations

from functools import cache

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import DType, declare_quantized
from tetrad.core.errors import UnsupportedError
from tetrad.core.record import record
from tetrad.quant.fields import U8, Factor, SixBitPairs
from tetrad.quant.format import EVERY, FORMATS, Format

ROWS = 16
BLOCK = 32  # columns a kernel takes in one step
WORDS = BLOCK // 4
WORD = 4  # bytes
LINE = 64  # bytes; weights begin at multiples of it
TABLE = 16  # entries of a code book
REST = 2  # bytes of what nobody reads that lie together
SIGN = 0x80  # in the last byte of a float
# f32 a block of activations has beside its codes: scale, scaled sum, sum of all codes and of the
# first half
FIELDS = 4
# activations, as `ops.quantized.op` rounds them
q8_row = declare_quantized("q8_row", BLOCK, BLOCK + 4 * FIELDS)


@record(eq=False)
class Lanes:
    """A format in the interleaved layout. Bytes and offsets are those of sixteen rows."""

    format: Format

    @property
    def name(self) -> str:
        return f"{self.format.name}x{ROWS}"

    @property
    def unit_bytes(self) -> int:
        """Rows in a file begin at multiples: of a word, or of what of it divides a block and where
        its parts begin."""
        return unit_of(self.format)

    @property
    def factors(self) -> tuple[Factor, ...]:
        """Those in front of a super-block. A block that is a whole block of the file keeps them
        with its codes."""
        return self.format.factors if self.format.levels is not None or self.blocks > 1 else ()

    @property
    def kind(self) -> str:
        """Of the factors."""
        return self.format.factors[0].kind

    @property
    def factor_bytes(self) -> int:
        return self.format.factors[0].nbytes

    @property
    def scale_bytes(self) -> int:
        """What a block has for each sub-block: a level, the factor itself, or nothing."""
        if self.format.levels is not None:
            return 1
        return 0 if self.factors else self.factor_bytes

    @property
    def sides(self) -> int:
        """Scales, and what is added."""
        return len(self.format.factors)

    @property
    def has_mins(self) -> bool:
        return self.format.has_mins

    @property
    def table(self) -> tuple[int, ...]:
        """The code book as sixteen bytes that are not negative."""
        return tuple((value + self.offset) & 255 for value in self.signed_table)

    @property
    def signed_table(self) -> tuple[int, ...]:
        return (
            (*self.format.table, *(0,) * (TABLE - len(self.format.table)))
            if self.format.table
            else ()
        )

    @property
    def offset(self) -> int:
        """What is taken off an unsigned code, or off an entry of `table`."""
        return -min(self.format.table) if self.format.table else self.format.offset

    @property
    def top(self) -> int:
        """The greatest unsigned code, or entry of `table`."""
        return max(self.table) if self.format.table else (1 << self.format.bits) - 1

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
        return ROWS * self.factor_bytes * len(self.factors)

    @property
    def code_bytes(self) -> int:
        return ROWS * 4 * self.format.bits

    @property
    def block_bytes(self) -> int:
        return self.code_bytes + ROWS * self.sub_blocks * self.scale_bytes * self.sides

    @property
    def body_bytes(self) -> int:
        return self.blocks * self.block_bytes

    @property
    def super_bytes(self) -> int:
        return self.head_bytes + self.body_bytes + ROWS * self.format.rest[1]

    def interleave(self, packed: U8) -> U8:
        """Rows as the file has them, u8[n, bytes of a row], into u8[n rounded up to 16, bytes of a
        row here]."""
        n = -(-packed.shape[0] // ROWS) * ROWS
        rows = np.zeros((n, packed.shape[1]), np.uint8)
        rows[: packed.shape[0]] = packed
        count = packed.shape[1] // self.format.nbytes
        blocks = rows.reshape(n * count, self.format.nbytes)
        parts = [
            part.reshape(n // ROWS, ROWS, count, *part.shape[1:]) for part in self._parts(blocks)
        ]
        # [group, row, super-block, block, field words] -> row behind the words, so that sixteen
        # rows lie side by side
        turned = [np.ascontiguousarray(part.transpose(0, 2, 3, 4, 1, 5)) for part in parts]
        laid = np.concatenate(
            [part.reshape(n // ROWS, count, self.blocks, -1) for part in turned], axis=3
        )
        ends = [self._units(part, n, count) for part in (self._head(blocks), self._rest(blocks))]
        whole = np.concatenate([ends[0], laid.reshape(n // ROWS, count, -1), ends[1]], axis=2)
        return whole.reshape(n, -1)

    def _units(self, part: U8, n: int, count: int) -> U8:
        """[n * count, units, bytes] -> [groups, super-blocks, bytes], a unit of sixteen rows side
        by side"""
        rows = part.reshape(n // ROWS, ROWS, count, *part.shape[1:])
        return np.ascontiguousarray(rows.transpose(0, 2, 3, 1, 4)).reshape(n // ROWS, count, -1)

    def _parts(self, blocks: U8) -> list[U8]:
        """For each field of the blocks, [n, blocks, words or sub-blocks, bytes]."""
        codes = self.format._read_codes(blocks) ^ np.uint8(self.format.flip)  # as the file has them
        fields = [self._plane(codes, i) for i in range(len(self.bits))]
        for raw in self._scales(blocks):
            fields.append(raw.reshape(len(blocks), self.blocks, self.sub_blocks, self.scale_bytes))
        return fields

    def _head(self, blocks: U8) -> U8:
        """[n, factors, bytes]; that of the mins is negated, for they are added. Bits are kept: a
        signalling nan stays one."""
        raw = [factor.raw(blocks) for factor in self.factors]
        front = (
            np.stack(raw, axis=1)
            if raw
            else np.empty((len(blocks), 0, self.factor_bytes), np.uint8)
        )
        front[:, 1:, -1] ^= np.uint8(SIGN)
        return front

    def _rest(self, blocks: U8) -> U8:
        start, size = self.format.rest
        return blocks[:, start : start + size].reshape(len(blocks), size // REST, REST)

    def _scales(self, blocks: U8) -> list[U8]:
        """The bytes of the scales and, where there are any, of the mins."""
        if self.format.levels is None:
            return [] if self.factors else [factor.raw(blocks) for factor in self.format.factors]
        return np.split(self.format.levels.read(blocks), self.sides, axis=1)

    def _plane(self, codes: U8, which: int) -> U8:
        """[n, blocks, words of the plane, 4]"""
        bits = self.bits[which]
        part = (codes >> np.uint8(self.shift_of(which))) & np.uint8((1 << bits) - 1)
        words = part.reshape(len(codes), self.blocks, 8 // bits, bits, 4)
        places = np.arange(0, 8, bits, dtype=np.uint8)[:, None, None]
        return np.asarray(np.bitwise_or.reduce(words << places, axis=2))

    def word_order(self, words: range) -> list[int]:
        """Words of a block so that those which share a word of the widest plane follow each
        other."""
        return sorted(words, key=lambda w: (w % self.bits[0], w))

    def shift_of(self, which: int) -> int:
        """Where the bits of a plane stand in the code: the widest plane holds the lowest bits."""
        return sum(self.bits[:which])


@cache
def unit_of(format: Format) -> int:
    wide = [format.nbytes, *(plane.start for plane in format.planes)]
    narrow = [(factor.start, factor.nbytes) for factor in format.factors] + [(format.rest[0], REST)]
    if isinstance(format.levels, SixBitPairs):
        wide.append(format.levels.start)
    units = (WORD, WORD // 2, 1)
    return next(
        u
        for u in units
        if not any(x % u for x in wide) and not any(x % min(u, n) for x, n in narrow)
    )


LANES: dict[str, Lanes] = lazy.Filled(EVERY)
DTYPES: dict[str, DType] = lazy.Filled(EVERY)


def register(format: Format) -> None:
    """Make a format known by its name, and its interleaved layout as a type of arrays."""
    if wrong := layout_problem(format):
        raise UnsupportedError(
            f"register: {format.name}: {wrong}", hint="docs/adding-a-format.md has what is possible"
        )
    FORMATS[format.name] = format
    if format.is_integer:
        lanes = LANES[format.name] = Lanes(format)
        DTYPES[format.name] = declare_quantized(
            lanes.name, format.block, lanes.super_bytes // ROWS, ROWS
        )


def layout_problem(format: Format) -> str | None:
    """Why kernels could not read a format of codes, None if they can."""
    if not format.is_integer:
        return None
    lanes = Lanes(format)
    wanted = {(lanes.shift_of(i), bits) for i, bits in enumerate(lanes.bits)}
    kinds = {factor.kind for factor in format.factors}
    same = [
        other.name
        for other in dict.values(FORMATS)  # of those there are so far
        if other.number == format.number or other.name == format.name
    ]
    checks = {
        f"its name or number ({format.number}) is that of {', '.join(same)}": not same,
        f"blocks of {format.block} elements, expected a multiple of {BLOCK}": format.block % BLOCK
        == 0,
        f"sub-blocks of {format.sub_block} elements, expected 16 or {BLOCK}": format.sub_block
        in (16, BLOCK),
        f"planes (shift, bits) expected: {sorted(wanted)}": {
            (p.shift, p.bits) for p in format.planes
        }
        == wanted,
        "a run of a plane is 1 or a multiple of 4": all(
            p.run == 1 or p.run % 4 == 0 for p in format.planes
        ),
        "one or two factors of one kind expected": len(format.factors) in (1, 2)
        and len(kinds) == 1,
        "factors of the kind e8m0 have no sign, so mins cannot have them": not (
            format.has_mins and "e8m0" in kinds
        ),
        f"sub-blocks without levels have {BLOCK} elements": format.levels is not None
        or format.sub_block == BLOCK,
        f"a code book has an entry of 8 bits for each code of at most {TABLE}": is_code_book(
            format
        ),
    }
    return next((problem for problem, is_right in checks.items() if not is_right), None)


def is_code_book(format: Format) -> bool:
    fits = (
        format.bits <= 4
        and len(format.table) == 1 << format.bits
        and not format.has_mins
        and not format.flip
    )
    return not format.table or (fits and all(-128 <= entry <= 127 for entry in format.table))


def lanes_of(dtype: DType) -> Lanes:
    """The layout of an interleaved type."""
    return LANES[dtype.short_name.removesuffix(f"x{ROWS}")]
