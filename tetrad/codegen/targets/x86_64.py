"""Code generation, targets: x86-64 at five levels, and the host classified into one of them.

Levels follow the x86-64 psABI: baseline (SSE2), v3 (AVX2, FMA, F16C), v4 (AVX-512 F/BW/CD/DQ/VL). Ours are v3 and v4
with VNNI, byte dot products in one instruction: Alder Lake has it without AVX-512, Ice Lake and Zen 4 with it.
"""

from __future__ import annotations

from tetrad.codegen.binding import llvm
from tetrad.core.errors import FlagError
from tetrad.core.record import replace
from tetrad.core.target import NEAR, Target, Tile

TRIPLE = "x86_64-unknown-linux-gnu"
SCRATCH = 1 << 40  # bytes: scratch is memory like any other, and sorts of long rows need as much as their rows

BASELINE = Target("x86-64", TRIPLE, "x86-64", "", 128, False, "portable", Tile(3, 1), Tile(1, 1), NEAR, 2, SCRATCH)
V3 = Target("x86-64-v3", TRIPLE, "x86-64-v3", "", 256, True, "maddubs", Tile(6, 1), Tile(2, 1), NEAR, 4, SCRATCH)
V4 = Target("x86-64-v4", TRIPLE, "x86-64-v4", "", 512, True, "maddubs", Tile(12, 2), Tile(6, 2), 8 * NEAR, 8, SCRATCH)
V3_VNNI = replace(V3, name="x86-64-v3-vnni", features="+avxvnni", dot4="vnni256")
V4_VNNI = replace(V4, name="x86-64-v4-vnni", features="+avx512vnni", dot4="vnni512")
LEVELS = {target.name: target for target in (BASELINE, V3, V3_VNNI, V4, V4_VNNI)}
# What a processor prefers to the tile and panel of its level. Zen 4 works on halves of its vectors, at half the pace: a
# tile needs fewer sums to keep it busy and can afford a load for each product.
PREFERRED = {"znver4": {"f32_tile": Tile(8, 1), "panel_bytes": 4 * NEAR}}

V3_FEATURES = ("avx2", "fma", "f16c", "bmi2")
IDENTITY = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags")  # of /proc/cpuinfo
V4_FEATURES = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
VNNI = {V3: (V3_VNNI, "avxvnni"), V4: (V4_VNNI, "avx512vnni")}  # what a level becomes, by which feature


def host_target() -> Target:
    """The level the running processor reaches, with its own name and features (a name alone may promise too much)."""
    found = host_features()
    level = V3 if _has(found, V3_FEATURES) else BASELINE
    level = V4 if level is V3 and _has(found, V4_FEATURES) else level
    higher, feature = VNNI.get(level, (level, ""))
    level = higher if found.get(feature) else level
    features = ",".join(("+" if on else "-") + name for name, on in sorted(found.items()))
    _, triple = llvm().told("GetProcessTriple")
    cpu = host_cpu()
    return replace(level, name="host", triple=triple, cpu=cpu, features=features, **PREFERRED.get(cpu, {}))


def host_cpu() -> str:
    """LLVM's name of the running processor."""
    _, name = llvm().told("GetHostCPUName")
    return name


def host_features() -> dict[str, bool]:
    """What LLVM finds on the running processor, and what it looked for without finding it."""
    _, told = llvm().told("GetHostCPUFeatures")
    return {word[1:]: word[0] == "+" for word in told.split(",") if word}


def processor_identity() -> str | None:
    """What Linux says about the processor: equal words mean an equal `host_target`. None where nobody says."""
    try:
        with open("/proc/cpuinfo") as file:
            text = file.read()
    except OSError:
        return None
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())  # of the first of them
    first = {name.strip(): value.strip() for name, _, value in lines}
    words = [first[name] for name in IDENTITY if name in first]
    return ";".join(words) if len(words) == len(IDENTITY) else None


def select_target(name: str) -> Target:
    """The target a TETRAD_TARGET value names."""
    if name == "host":
        return host_target()
    if name not in LEVELS:
        raise FlagError(f"unknown target {name!r}", hint="targets: host, " + ", ".join(LEVELS))
    return LEVELS[name]


def missing_features(target: Target) -> tuple[str, ...]:
    """What `target` needs and the running processor lacks: code for it can be compiled here, not run."""
    if target.name == "host":
        return ()
    found = host_features()
    needed = {512: V3_FEATURES + V4_FEATURES, 256: V3_FEATURES}.get(target.vector_bits, ())
    needed += tuple(feature for higher, feature in VNNI.values() if target.dot4 == higher.dot4)
    return tuple(name for name in needed if not found.get(name))


def _has(found: dict[str, bool], names: tuple[str, ...]) -> bool:
    return all(found.get(name) for name in names)
