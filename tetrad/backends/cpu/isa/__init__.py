"""Code generation, targets: the table of processors. A name or the running machine in, a `Target`
out.

A family of processors is one file beside this one; here is what it must be entered in, and nothing
else.
"""

from __future__ import annotations

import platform
from functools import cache

from tetrad.backends.cpu.isa import aarch64, x86_64
from tetrad.backends.llvm.binding import llvm
from tetrad.backends.llvm.isa import ISAS, Isa, isa_named, isa_of
from tetrad.backends.llvm.target import Target
from tetrad.core.errors import FlagError
from tetrad.core.flags import flag
from tetrad.core.record import replace

ISAS.update((isa.name, isa) for isa in (x86_64.ISA, aarch64.ISA))
LEVELS: dict[str, Target] = {
    name: level for isa in ISAS.values() for name, level in isa.levels.items()
}


@cache
def host_isa() -> Isa:
    """The family of the running processor."""
    return isa_named(
        {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    )


def host_target() -> Target:
    """The level the running processor reaches, with its own name and features (a name alone may
    promise too much)."""
    found, cpu, isa = host_features(), host_cpu(), host_isa()
    features = ",".join(("+" if on else "-") + name for name, on in sorted(found.items()))
    _, triple = llvm().told("GetProcessTriple")
    level = isa.level_of(found)
    machine = replace(level.machine, **isa.preferred.get(cpu, {}))
    return replace(level, name="host", triple=triple, cpu=cpu, features=features, machine=machine)


def host_cpu() -> str:
    """LLVM's name of the running processor."""
    _, name = llvm().told("GetHostCPUName")
    return name


def host_features() -> dict[str, bool]:
    """What the running processor has, and what was looked for without finding it."""
    _, told = llvm().told("GetHostCPUFeatures")
    return {word[1:]: word[0] == "+" for word in told.split(",") if word} | dict(
        host_isa().detected()
    )


def processor_identity() -> str | None:
    """What Linux says about the processor: equal words mean an equal `host_target`. None where
    nobody says."""
    try:
        with open("/proc/cpuinfo") as file:
            text = file.read()
    except OSError:
        return None
    # of the first of them
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    first = {name.strip(): value.strip() for name, _, value in lines}
    wanted = host_isa().identity
    words = [first[name] for name in wanted if name in first]
    return ";".join(words) if len(words) == len(wanted) else None


def select_target(name: str) -> Target:
    """The target a TETRAD_TARGET value names."""
    if name == "host":
        return host_target()
    if name not in LEVELS:
        raise FlagError(f"unknown target {name!r}", hint="targets: host, " + ", ".join(LEVELS))
    return LEVELS[name]


@cache
def host() -> Target:
    """Asked for once: LLVM answers only when it is done compiling for another thread."""
    return select_target("host")


@cache
def current_target() -> Target:
    """The target that code is generated for."""
    name = flag("TETRAD_TARGET")
    return host() if name == "host" else select_target(name)


def missing_features(target: Target) -> tuple[str, ...]:
    """What `target` needs and the running processor lacks: code for it can be compiled here, not
    run."""
    if target.name == "host":
        return ()
    isa = isa_of(target)
    if isa is not host_isa():
        return (f"the instructions of {isa.name}",)
    found = host_features()
    return tuple(name for name in isa.needs(target) if not found.get(name))
