"""Station 0, shared words: what a machine is, as data.

A `Target` holds names, features, widths and intrinsic names; the emitters ask it, never which machine it is. One file
per machine in `codegen/targets/`.
"""

from __future__ import annotations

from tetrad.core.record import record

NEAR = 16 << 10  # bytes: half of the first cache of every processor we know


@record
class Tile:
    """A register tile of the float matmul: rows of the left side, vectors of 16 virtual lanes of the right side."""

    rows: int
    vectors: int


@record
class Target:
    name: str  # as TETRAD_TARGET spells it
    triple: str
    cpu: str
    features: str
    vector_bits: int
    has_f16_conversion: bool  # half <-> float in hardware; otherwise integer arithmetic
    dot4: str  # vnni512, vnni256, maddubs, portable
    f32_tile: Tile
    f64_tile: Tile
    panel_bytes: int  # of the right side that tiles of many rows take at a pace at which they need not be near
    lowbit_tokens: int  # tokens a low-bit tile holds in registers
    workgroup_bytes: int  # memory that a workgroup can have

    @property
    def has_vnni(self) -> bool:
        """Four products of bytes, one factor unsigned, and their sum in one instruction."""
        return self.dot4.startswith("vnni")

    @property
    def narrows_in_stores(self) -> bool:
        """Wide integers are stored as narrow ones, under a mask, in one instruction (vpmovdb and its like)."""
        return self.vector_bits == 512

    @property
    def range(self) -> str:
        """The intrinsic that finds extremes of 16 f32 numbers, with -0 < +0; "" where there is none."""
        return "llvm.x86.avx512.mask.range.ps.512" if self.vector_bits == 512 else ""

    @property
    def key(self) -> str:
        """What generated code depends on; part of every cache key."""
        return f"{self.triple};{self.cpu};{self.features};{self.dot4}"
