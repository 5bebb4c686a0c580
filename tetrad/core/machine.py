"""Core: what lowering asks of a machine, as data.

A back end fills in a `Machine`; kernel generators choose tiles, blocks and workgroups by it. No
processor is named here: code generation asks a `Target` (`backends.llvm.target`), which holds a
`Machine`.
"""

from __future__ import annotations

from tetrad.core.record import record

LANES = 16  # virtual lanes of every kernel, on every machine (docs/adr/0001)
NEAR = 16 << 10  # bytes: half of the first cache of every processor we know


@record
class RegisterTile:
    """A register tile of the float matmul: rows of the left side, vectors of `LANES` of the right
    side."""

    rows: int
    vectors: int


@record
class Machine:
    """What kernels are shaped by."""

    vector_bits: int  # of one vector register: kernels with few lanes fill it
    f32_tile: RegisterTile
    f64_tile: RegisterTile
    lowbit_tokens: int  # tokens a low-bit tile holds in registers
    near_bytes: int = NEAR  # that stay next to the arithmetic while a tile reads them again
    # bytes of a packed right side that tiles of many rows may read from a farther cache
    panel_bytes: int = NEAR
    # four products of an unsigned with a signed byte and their sum are one instruction
    dots_mixed_bytes: bool = False
    dots_halves: bool = False  # two products of bf16 and their sum in f32 are one instruction
    # Memory that a workgroup can have. On a CPU scratch is memory like any other: long sorts need
    # that of their rows.
    workgroup_bytes: int = 1 << 40
    parallel_groups: int = 1  # workgroups that run at once: on a CPU one a thread
