"""CUDA back end, targets: the table of architectures. A name in, a `Target` out.

What PTX says of itself (version, architecture), how much memory and how many threads a block may
have, and the shape of kernels that lowering makes. An architecture is one line of `TARGETS`;
nothing else names one.
"""

from __future__ import annotations

from tetrad.backends.llvm.isa import Isa
from tetrad.backends.llvm.target import Target
from tetrad.core.backend import UNSUPPORTED
from tetrad.core.errors import BackendError
from tetrad.core.machine import Machine, RegisterTile
from tetrad.core.record import record

TRIPLE = "nvptx64-nvidia-cuda"
# CUDA C++ Programming Guide, Technical Specifications per Compute Capability
WARP = 32
MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = ((1 << 31) - 1, 65535, 65535)
STATIC_SHARED = 48 << 10  # bytes that a module may declare; more is asked for at launch
MAX_LOCAL = 512 << 10  # bytes of one thread
MAX_PARAMETERS = 4096  # bytes of one launch
NEAR = 4 << 10
GROUPS = 4096  # blocks of one warp that run at once: 32 on each of 128 multiprocessors

# Lanes are threads: no value is a vector, so nothing here is ever asked for one.
ISA = Isa(
    "nvptx64",
    dot4=lambda cg, node, acc, u, s: None,
    lookup=lambda cg, table, x: None,
    extremum=lambda cg, op, dtype, a, b: "",
    register="",
    hears_stop=False,
)


@record
class GpuArchitecture:
    """One line of the table: `version` is that of the PTX text, `shared` the bytes of workgroup
    memory that a block can ask for."""

    name: str
    version: str
    shared: int

    @property
    def machine(self) -> Machine:
        """What lowering may count on. A thread holds rows x vectors accumulators of a register
        tile: 32 floats or 16 doubles, of 255 registers of 32 bits. Panels of 4 KiB keep a product
        of 4096 x 4096 x 4096 below the 48 KiB that every architecture has."""
        return Machine(
            32,
            RegisterTile(8, 4),
            RegisterTile(4, 4),
            lowbit_tokens=4,
            near_bytes=NEAR,
            panel_bytes=NEAR,
            dots_mixed_bytes=True,
            workgroup_bytes=self.shared,
            parallel_groups=GROUPS,
        )

    @property
    def target(self) -> Target:
        features = f"+ptx{self.version.replace('.', '')}"
        return Target(self.name, TRIPLE, self.name, features, True, "dp4a", self.machine, ISA)


# Versions are the first that the architecture has, and that LLVM and ptxas 13.0 both take; bytes
# are the opt-in maximum of a block.
ARCHITECTURES = {
    line.name: line
    for line in (
        GpuArchitecture("sm_75", "6.4", 65_536),
        GpuArchitecture("sm_80", "7.0", 163_840),
        GpuArchitecture("sm_86", "7.1", 101_376),
        GpuArchitecture("sm_89", "7.8", 101_376),
        GpuArchitecture("sm_90", "8.0", 232_448),
        GpuArchitecture("sm_100", "8.6", 232_448),
        GpuArchitecture("sm_120", "8.7", 101_376),
    )
}


def architecture_named(name: str) -> GpuArchitecture:
    if name not in ARCHITECTURES:
        raise BackendError(
            f"ptx: unknown architecture {name!r}",
            code=UNSUPPORTED,
            hint="known: " + ", ".join(ARCHITECTURES),
        )
    return ARCHITECTURES[name]


def newest_for(major: int, minor: int) -> GpuArchitecture | None:
    """The newest architecture whose code a device of this compute capability takes: PTX runs on
    its own and all later ones."""
    number = 10 * major + minor
    fitting = [line for line in ARCHITECTURES.values() if int(line.name[3:]) <= number]
    return fitting[-1] if fitting else None
