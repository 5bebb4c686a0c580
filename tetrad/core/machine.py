"""Station 0, shared words: what a machine is, as data.

A `Target` holds names, features, widths and intrinsic names; the emitters ask it, never which
machine it is. One file per machine in `codegen/targets/`.
"""

from __future__ import annotations

from tetrad.core.record import record

NEAR = 16 << 10  # bytes: half of the first cache of every processor we know


@record
class Tile:
    """A register tile of the float matmul: rows of the left side, vectors of 16 virtual lanes of
    the right side."""

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
    dot4: str  # how byte dot products are made; "portable": in plain arithmetic
    f32_tile: Tile
    f64_tile: Tile
    # of the right side that tiles of many rows take at a pace at which they need not be near
    panel_bytes: int
    lowbit_tokens: int  # tokens a low-bit tile holds in registers
    # four products of an unsigned with a signed byte and their sum are one instruction
    dots_mixed_bytes: bool = False
    # wide integers are stored as narrow ones, under a mask, in one instruction
    narrows_in_stores: bool = False
    # Memory that a workgroup can have. On a CPU scratch is memory like any other: long sorts need
    # that of their rows.
    workgroup_bytes: int = 1 << 40

    @property
    def key(self) -> str:
        """What generated code depends on; part of every cache key."""
        return f"{self.triple};{self.cpu};{self.features};{self.dot4}"
