"""CUDA back end, ptxas: PTX in, what the code of an architecture takes out: registers, spills,
memory.

The assembler belongs to NVIDIA's toolkit and need not be there; nothing but figures and tests asks
for it. On a device the driver assembles.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tetrad.core.errors import CompileError
from tetrad.core.record import record

ABSENT = "ptxas is not on the path; NVIDIA's CUDA toolkit has it"
SECONDS = 120
USED = {
    "registers": re.compile(r"Used (\d+) registers"),
    "spill_stores": re.compile(r"(\d+) bytes spill stores"),
    "spill_loads": re.compile(r"(\d+) bytes spill loads"),
    "stack": re.compile(r"(\d+) bytes stack frame"),
    "shared": re.compile(r"(\d+) bytes smem"),
}


@record
class AssemblyFigures:
    """Of one entry: registers of a thread; bytes that it spills, of its stack, of workgroup memory
    that the module declares."""

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int


@cache
def ptxas() -> str | None:
    """Where the assembler is."""
    return shutil.which("ptxas")


def assemble(text: str, arch: str) -> AssemblyFigures:
    """Assemble a module with one entry for one architecture; what is wrong with it is an error."""
    found = ptxas()
    if found is None:
        raise CompileError(ABSENT)
    with tempfile.TemporaryDirectory() as folder:
        source, code = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text)
        command = [found, "-v", "-arch", arch, "-o", str(code), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise CompileError(f"ptxas for {arch}: {(done.stderr or done.stdout).strip()}")
    return figures_in(done.stdout + done.stderr)


def figures_in(said: str) -> AssemblyFigures:
    found = {name: pattern.search(said) for name, pattern in USED.items()}
    return AssemblyFigures(**{name: int(m[1]) if m else 0 for name, m in found.items()})
