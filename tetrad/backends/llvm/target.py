"""Code generation, targets: what code generation asks of a machine, as data.

Receives nothing; a back end makes one for each machine it generates code for. What lowering asks is
its `machine`; what its instructions look like, its `isa` says.
"""

from __future__ import annotations

from tetrad.backends.llvm.isa import Isa
from tetrad.core.machine import Machine
from tetrad.core.record import record


@record
class Target:
    name: str  # as TETRAD_TARGET spells it
    triple: str
    cpu: str
    features: str
    has_f16_conversion: bool  # half <-> float in hardware; otherwise integer arithmetic
    dot4: str  # how byte dot products are made; "portable": in plain arithmetic
    machine: Machine
    isa: Isa
    # wide integers are stored as narrow ones, under a mask, in one instruction
    narrows_in_stores: bool = False

    @property
    def vector_bits(self) -> int:
        return self.machine.vector_bits

    @property
    def key(self) -> str:
        """What generated code depends on; part of every cache key."""
        return f"{self.triple};{self.cpu};{self.features};{self.dot4}"
