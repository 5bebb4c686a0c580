"""CPU back end, processors: the table. A name or the running machine in, a `Target` out.

A family of processors is one file beside this one; here is what it must be entered in, and nothing
else.
"""

from __future__ import annotations

import platform
from functools import cache

from tetrad.backends.cpu.isa.family import FAMILIES, Family
from tetrad.backends.cpu.isa.family import LEVELS as LEVELS
from tetrad.backends.llvm.binding import llvm
from tetrad.backends.llvm.target import Target
from tetrad.core.errors import BackendError, FlagError
from tetrad.core.flags import flag
from tetrad.core.record import replace

FAMILIES.later = LEVELS.later = (
    "tetrad.backends.cpu.isa.x86_64",
    "tetrad.backends.cpu.isa.aarch64",
)


@cache
def host_family() -> Family:
    """The family of the running processor."""
    return family_named(
        {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
    )


def family_of(target: Target) -> Family:
    return family_named(target.triple.partition("-")[0])


def family_named(name: str) -> Family:
    if name not in FAMILIES:
        raise BackendError(
            f"no code for processors of type {name}", hint=f"known: {', '.join(FAMILIES)}"
        )
    return FAMILIES[name]


def host_target() -> Target:
    """The level the running processor reaches, with its own name and features (a name alone may
    promise too much)."""
    found, cpu, family = host_features(), host_cpu(), host_family()
    features = ",".join(("+" if on else "-") + name for name, on in sorted(found.items()))
    _, triple = llvm().told("GetProcessTriple")
    level = family.level_of(found)
    machine = replace(level.machine, **family.preferred.get(cpu, {}))
    return replace(level, name="host", triple=triple, cpu=cpu, features=features, machine=machine)


def host_cpu() -> str:
    """LLVM's name of the running processor."""
    _, name = llvm().told("GetHostCPUName")
    return name


def host_features() -> dict[str, bool]:
    """What the running processor has, and what was looked for without finding it."""
    _, told = llvm().told("GetHostCPUFeatures")
    return {word[1:]: word[0] == "+" for word in told.split(",") if word} | dict(
        host_family().detected()
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
    wanted = host_family().identity
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
    family = family_of(target)
    if family is not host_family():
        return (f"the instructions of {family.name}",)
    found = host_features()
    return tuple(name for name in family.needs(target) if not found.get(name))
