"""Block formats: the fields a block is made of.

Receives blocks (u8[n, nbytes], one row each) and returns codes and numbers read from them, or the
bytes to write. Which fields a format has is said in its own file. Everything is little-endian, as
the files are.

    codes            planes of bits
    factors          a number that multiplies the whole block: f16, f32, or a power of two in a byte
    levels           small integers, one for each sub-block, that multiply the factors
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tetrad.core.record import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    U8 = NDArray[np.uint8]
    F32 = NDArray[np.float32]
else:
    U8 = F32 = np.ndarray  # numpy.typing takes longer to load than all these files


@record
class Plane:
    """Bytes that hold `bits` of every code, from bit `shift` of the code upward.

    The bytes come in runs. The lowest field of each byte of a run belongs to the first `run`
    elements, the next field to the `run` elements after those, and so on to the top of the byte;
    then comes the next run.
    """

    start: int  # in bytes, from the start of the block
    nbytes: int
    bits: int
    run: int
    shift: int = 0

    def read(self, blocks: U8) -> U8:
        """u8[n, nbytes of a block] -> u8[n, elements], each already shifted to its place in the
        code."""
        part = blocks[:, self.start : self.start + self.nbytes].reshape(
            -1, self.nbytes // self.run, 1, self.run
        )
        fields = part >> self._places()
        fields &= np.uint8((1 << self.bits) - 1)
        fields <<= np.uint8(self.shift)
        return fields.reshape(len(blocks), self.nbytes * 8 // self.bits)

    def write(self, blocks: U8, codes: U8) -> None:
        """The inverse of `read`: this plane's bits of `codes` go into `blocks`."""
        fields = (codes >> np.uint8(self.shift)) & np.uint8((1 << self.bits) - 1)
        fields = (
            fields.reshape(-1, self.nbytes // self.run, 8 // self.bits, self.run) << self._places()
        )
        whole = np.bitwise_or.reduce(fields, axis=2)
        blocks[:, self.start : self.start + self.nbytes] = whole.reshape(-1, self.nbytes)

    def _places(self) -> U8:
        return np.arange(0, 8, self.bits, dtype=np.uint8)[:, None]


@record
class Factor:
    """A number of a block: the byte it starts at, and its kind.

    "f16", "f32", or "e8m0": a byte e that stands for 2**(e - 128), as ggml reads the exponents of
    MX formats.
    """

    start: int
    kind: str = "f16"

    @property
    def nbytes(self) -> int:
        return KIND_BYTES[self.kind]

    def read(self, blocks: U8) -> F32:
        """f32[n, 1], exact."""
        return widened(self.raw(blocks), self.kind)

    def raw(self, blocks: U8) -> U8:
        """u8[n, its bytes]"""
        return np.ascontiguousarray(blocks[:, self.start : self.start + self.nbytes])


KIND_BYTES = {"f16": 2, "f32": 4, "e8m0": 1}


def widened(raw: U8, kind: str) -> F32:
    """Numbers of a kind from the bytes of the last axis."""
    if kind == "e8m0":
        return power_of_two(raw)
    return raw.view("<f2" if kind == "f16" else "<f4").astype(np.float32)


def power_of_two(e: U8) -> F32:
    """2**(e - 128) from the bits of an f32: the first two are subnormal, 0x00200000 = 2**-128."""
    wide = e.astype(np.uint32)
    return np.where(e < 2, np.uint32(0x00200000) << (wide & 1), (wide - 1) << np.uint32(23)).view(
        np.float32
    )


@record
class Levels:
    """Small integers in planes, those of the scales first, then, where there are any, those of the
    mins.

    `offset` is taken off what is stored; bytes may also be `signed` as they are.
    """

    planes: tuple[Plane, ...]
    offset: int = 0
    signed: bool = False

    @property
    def has_signs(self) -> bool:
        return self.signed or self.offset > 0

    def read(self, blocks: U8) -> U8:
        """u8[n, levels]; where there are signs, bytes in two's complement."""
        stored = self.planes[0].read(blocks)
        for plane in self.planes[1:]:
            stored |= plane.read(blocks)
        return stored - np.uint8(self.offset)

    def fields(self, levels: U8) -> dict[int, U8]:
        """The inverse of `read`: where each plane starts, and its bytes."""
        stored = levels + np.uint8(self.offset)
        found = {}
        for plane in self.planes:
            room = np.empty((len(levels), plane.start + plane.nbytes), np.uint8)
            plane.write(room, stored)
            found[plane.start] = room[:, plane.start :]
        return found


@record
class SixBitPairs:
    """Eight 6-bit scales, then eight 6-bit mins, in 12 bytes, as q4_k and q5_k keep them.

    The first four of each lie whole in bytes 0..3 and 4..7. The low nibbles of the last four share
    bytes 8..11, and their two high bits fill what the first eight bytes leave free.
    """

    start: int

    @property
    def has_signs(self) -> bool:
        return False

    def read(self, blocks: U8) -> U8:
        """u8[n, 16]"""
        scales, mins, low = (blocks[:, self.start + i : self.start + i + 4] for i in (0, 4, 8))
        parts = [
            scales & 63,
            (low & 15) | (scales >> 6 << 4),
            mins & 63,
            (low >> 4) | (mins >> 6 << 4),
        ]
        return np.concatenate(parts, axis=1)

    def fields(self, levels: U8) -> dict[int, U8]:
        """The inverse of `read`: where the bytes start, and the bytes u8[n, 12]."""
        scales, mins = levels[:, :8], levels[:, 8:]
        first = [values[:, :4] | (values[:, 4:] >> 4 << 6) for values in (scales, mins)]
        low = (scales[:, 4:] & 15) | (mins[:, 4:] << 4)
        return {self.start: np.concatenate([*first, low], axis=1)}


def half_bytes(values: F32) -> U8:
    """f32[n, 1] -> u8[n, 2]: rounded to f16, ties to even; too large becomes inf, which
    `Format.pack` refuses."""
    return values.astype("<f2").view(np.uint8)


def as_half(values: F32) -> F32:
    """What `half_bytes` keeps of the values."""
    return values.astype(np.float16).astype(np.float32)
