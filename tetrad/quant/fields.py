"""Block formats: the bit fields a block is made of.

Receives blocks (u8[n, nbytes], one row each) and returns codes and numbers read from them, or the bytes to write. Which
fields a format has is said in its own file. Everything is little-endian, as the files are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tetrad.core.record import record

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]


@record
class Plane:
    """Bytes that hold `bits` of every code, from bit `shift` of the code upward.

    The bytes come in runs. The lowest field of each byte of a run belongs to the first `run` elements, the next field
    to the `run` elements after those, and so on to the top of the byte; then comes the next run.
    """

    start: int  # in bytes, from the start of the block
    nbytes: int
    bits: int
    run: int
    shift: int = 0

    def read(self, blocks: U8) -> U8:
        """u8[n, nbytes of a block] -> u8[n, elements], each already shifted to its place in the code."""
        part = blocks[:, self.start : self.start + self.nbytes].reshape(-1, self.nbytes // self.run, 1, self.run)
        fields = part >> self._places()
        fields &= np.uint8((1 << self.bits) - 1)
        fields <<= np.uint8(self.shift)
        return fields.reshape(len(blocks), self.nbytes * 8 // self.bits)

    def write(self, blocks: U8, codes: U8) -> None:
        """The inverse of `read`: this plane's bits of `codes` go into `blocks`."""
        fields = (codes >> np.uint8(self.shift)) & np.uint8((1 << self.bits) - 1)
        fields = fields.reshape(-1, self.nbytes // self.run, 8 // self.bits, self.run) << self._places()
        whole = np.bitwise_or.reduce(fields, axis=2)
        blocks[:, self.start : self.start + self.nbytes] = whole.reshape(-1, self.nbytes)

    def _places(self) -> U8:
        return np.arange(0, 8, self.bits, dtype=np.uint8)[:, None]


def read_half(blocks: U8, start: int) -> F32:
    """The f16 at byte `start` of every block, widened: f32[n, 1]."""
    return blocks[:, start : start + 2].view("<f2").astype(np.float32)


def half_bytes(values: F32) -> U8:
    """f32[n, 1] -> u8[n, 2]: rounded to f16, ties to even; too large becomes inf, which `Format.pack` refuses."""
    return values.astype("<f2").view(np.uint8)


def as_half(values: F32) -> F32:
    """What `half_bytes` keeps of the values."""
    return values.astype(np.float16).astype(np.float32)


def read_six_bit_pairs(blocks: U8, start: int) -> tuple[U8, U8]:
    """Eight 6-bit scales and eight 6-bit mins from 12 bytes, as q4_k and q5_k keep them: u8[n, 8] each.

    The first four of each lie whole in bytes 0..3 and 4..7. The low nibbles of the last four share bytes 8..11, and
    their two high bits fill what the first eight bytes leave free.
    """
    scales, mins, low = (blocks[:, start + i : start + i + 4] for i in (0, 4, 8))
    return (
        np.concatenate([scales & 63, (low & 15) | (scales >> 6 << 4)], axis=1),
        np.concatenate([mins & 63, (low >> 4) | (mins >> 6 << 4)], axis=1),
    )


def six_bit_pair_bytes(scales: U8, mins: U8) -> U8:
    """The inverse of `read_six_bit_pairs`: u8[n, 12]."""
    first = [values[:, :4] | (values[:, 4:] >> 4 << 6) for values in (scales, mins)]
    low = (scales[:, 4:] & 15) | (mins[:, 4:] << 4)
    return np.concatenate([*first, low], axis=1)
