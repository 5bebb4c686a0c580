"""CPU back end, processors: AArch64 at three levels, its byte dot products, extremes, object files
and waiting.

Levels: every processor (Armv8.0: NEON, conversions of half precision); with dot products of bytes
of equal signs (sdot, Armv8.2: Graviton 2, Raspberry Pi 5, Apple M1); with those of an unsigned and
a signed byte (usdot of i8mm, Armv8.6: Graviton 3, Apple M2). Vectors have 128 bits: a virtual
vector of 16 floats is four registers of 32.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING

from tetrad.backends.cpu.isa.family import Family, Features, Relocations, register
from tetrad.backends.llvm.isa import Isa
from tetrad.backends.llvm.pieces import constant_bytes, joined, pieces
from tetrad.backends.llvm.target import Target
from tetrad.core.errors import CompileError
from tetrad.core.machine import Machine, RegisterTile
from tetrad.core.record import replace
from tetrad.kernel import nodes as n

if TYPE_CHECKING:
    from tetrad.backends.llvm.emitter import Codegen
    from tetrad.core.dtypes import DType

TRIPLE = "aarch64-unknown-linux-gnu"

# -- byte dot products -----------------------------------------------------------------------------

WIDTH = 4  # words that one instruction takes
WORD, BYTE = f"<{WIDTH} x i32>", f"<{4 * WIDTH} x i8>"


def dot4(cg: Codegen, node: n.Dot4, acc: str, u: str, s: str) -> str | None:
    if cg.lanes % WIDTH or cg.target.dot4 == "portable":
        return None
    parts = zip(*(pieces(cg, WIDTH, x) for x in (acc, u, s)), strict=True)
    return joined(cg, WIDTH, [dot4_piece(cg, node, *part) for part in parts])


def dot4_piece(cg: Codegen, node: n.Dot4, acc: str, u: str, s: str) -> str:
    """Unsigned bytes up to 127 are signed ones too; others become so by 128 less, which twice 64
    times s makes good."""
    left, right = (cg.new(f"bitcast {WORD} {x} to {BYTE}") for x in (u, s))
    if not node.signed and cg.target.machine.dots_mixed_bytes:
        return sum_of_products(cg, "usdot", acc, left, right)
    if node.signed or node.u_max <= 127:
        return sum_of_products(cg, "sdot", acc, left, right)
    less = cg.new(f"xor {BYTE} {left}, splat (i8 -128)")
    for factor in (less, "splat (i8 64)", "splat (i8 64)"):
        acc = sum_of_products(cg, "sdot", acc, factor, right)
    return acc


def sum_of_products(cg: Codegen, name: str, acc: str, left: str, right: str) -> str:
    return cg.call(
        WORD, f"llvm.aarch64.neon.{name}.v4i32.v16i8", (WORD, acc), (BYTE, left), (BYTE, right)
    )


# -- tables ----------------------------------------------------------------------------------------


def lookup(cg: Codegen, table: tuple[int, ...], x: str) -> str | None:
    if cg.lanes % WIDTH:
        return None
    entries = constant_bytes(table)
    words = []
    for part in pieces(cg, WIDTH, x):
        places = cg.new(f"bitcast {WORD} {part} to {BYTE}")
        found = cg.call(BYTE, "llvm.aarch64.neon.tbl1.v16i8", (BYTE, entries), (BYTE, places))
        words.append(cg.new(f"bitcast {BYTE} {found} to {WORD}"))
    return joined(cg, WIDTH, words)


def permute(cg: Codegen, x: str, at: str) -> str | None:
    """The table is 64 bytes, in four registers; a word is at four times its place."""
    if cg.lanes != 16:
        return None
    tables = [(BYTE, cg.new(f"bitcast {WORD} {part} to {BYTE}")) for part in pieces(cg, WIDTH, x)]
    words = []
    for part in pieces(cg, WIDTH, at):
        inside = cg.new(f"and {WORD} {part}, splat (i32 15)")
        spread = cg.new(f"mul {WORD} {inside}, splat (i32 {0x04040404})")
        places = cg.new(f"or {WORD} {spread}, splat (i32 {0x03020100})")
        at_bytes = cg.new(f"bitcast {WORD} {places} to {BYTE}")
        found = cg.call(BYTE, "llvm.aarch64.neon.tbl4.v16i8", *tables, (BYTE, at_bytes))
        words.append(cg.new(f"bitcast {BYTE} {found} to {WORD}"))
    return joined(cg, WIDTH, words)


# -- extremes --------------------------------------------------------------------------------------


def float_extremum(cg: Codegen, op: str, dtype: DType, a: str, b: str) -> str:
    """fmin and fmax are what IEEE 754 calls minimum and maximum: NaN if one is NaN, and -0 < +0."""
    return cg.elementwise(f"llvm.{op}imum", cg.vector_type(dtype), a, b)


# -- object files: ELF for the Arm 64-bit architecture, section 5.7 --------------------------------

ABS64, PREL64, PREL32 = 257, 260, 261
# the page of an address, relative to the page here; the 12 bits inside the page
ADR_PAGE, ADD_LOW = 275, 277
# the same 12 bits of a load or store, by the logarithm of its size
LOAD_LOW = {278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
JUMPS = (282, 283)  # b and bl
PAGE = 12
JUMP = struct.pack("<II", 0x58000050, 0xD61F0200)  # ldr x16, the address behind; br x16


def fill(made: bytearray, place: int, type: int, target: int, base: int) -> None:
    if type in (ABS64, PREL64):
        struct.pack_into(
            "<Q" if type == ABS64 else "<q", made, place, target - (base + place) * (type == PREL64)
        )
    elif type == PREL32:
        struct.pack_into("<i", made, place, target - base - place)
    else:
        (word,) = struct.unpack_from("<I", made, place)
        struct.pack_into("<I", made, place, word | immediate(type, target, base + place))


def immediate(type: int, target: int, here: int) -> int:
    """The field of an instruction; LLVM leaves zeros there."""
    if type in JUMPS:
        return field(target - here, 2, 26)
    if type == ADR_PAGE:
        pages = field((target >> PAGE) - (here >> PAGE), 0, 21)
        return (pages & 3) << 29 | pages >> 2 << 5
    shift = LOAD_LOW.get(type, 0)
    return (target & (1 << PAGE) - 1) >> shift << 10


def field(distance: int, shift: int, bits: int) -> int:
    if not -(1 << bits + shift - 1) <= distance < 1 << bits + shift - 1:
        raise CompileError(f"an object reaches {distance} bytes far, which its instructions cannot")
    return distance >> shift & (1 << bits) - 1


def stub(address: int) -> bytes:
    return JUMP + struct.pack("<Q", address)


# -- the native loop -------------------------------------------------------------------------------

# The counter that programs may read runs at a frequency of its own, 24 MHz to 1 GHz: ticks are made
# of it, three a nanosecond, as the loop's patience is counted. It is read by its name: LLVM makes a
# zero of llvm.readsteadycounter here. The floating-point control register is 0 for rounding to
# nearest, with subnormals and without traps.
CLOCK = """
define internal i64 @tetrad.clock() nounwind {
  %count = call i64 @llvm.read_volatile_register.i64(metadata !1)
  %rate = call i64 @llvm.read_register.i64(metadata !0)
  %each = udiv i64 3000000000, %rate
  %ticks = mul i64 %count, %each
  ret i64 %ticks
}
!0 = !{!"cntfrq_el0"}
!1 = !{!"cntvct_el0"}
declare i64 @llvm.read_volatile_register.i64(metadata)
declare i64 @llvm.read_register.i64(metadata)
declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
"""
LOOP = {
    "TICKS": "call i64 @tetrad.clock()",
    "PAUSE": "call void @llvm.aarch64.hint(i32 1)",  # yield
    "SAVE_FLOAT": "%fpcr = call i64 @llvm.aarch64.get.fpcr()\n  store i64 %fpcr, ptr %float",
    "SET_FLOAT": "call void @llvm.aarch64.set.fpcr(i64 0)",
    "RESTORE_FLOAT": "%former = load i64, ptr %float\n"
    "  call void @llvm.aarch64.set.fpcr(i64 %former)",
    "DECLARE": CLOCK,
}
# Linux, include/uapi/asm-generic/unistd.h
SYSTEM_CALLS = {
    "SCHED_YIELD": 124, "FUTEX": 98, "GETTID": 178, "SETAFFINITY": 122, "CLOCK_GETTIME": 113,
    "GETCPU": 168,
}  # fmt: skip


# -- levels ----------------------------------------------------------------------------------------

# no fence: LLVM has no instruction here for stores around the cache of a whole line at a time
ISA = Isa("aarch64", dot4=dot4, lookup=lookup, permute=permute, extremum=float_extremum)
# A tile of 6 x 16 floats takes 24 registers; four hold the right side, fmla takes an element of the
# left from another. Of doubles, 2 x 16 take 16 and the right side eight: a third row would not fit.
# A token of a low-bit tile takes eight, sums in integers and in floats: more than two would leave
# no room for the weights.
BASELINE = Target(
    "aarch64", TRIPLE, "generic", "+neon", has_f16_conversion=True, dot4="portable",
    machine=Machine(128, RegisterTile(6, 1), RegisterTile(2, 1), lowbit_tokens=2),
    isa=ISA,
)  # fmt: skip
DOTPROD = replace(BASELINE, name="aarch64-dotprod", features="+neon,+dotprod", dot4="sdot")
I8MM = replace(
    DOTPROD, name="aarch64-i8mm", features="+neon,+dotprod,+i8mm", dot4="usdot",
    machine=replace(DOTPROD.machine, dots_mixed_bytes=True),
)  # fmt: skip
LEVELS = {target.name: target for target in (BASELINE, DOTPROD, I8MM)}
SHOWN = ("neon", "dotprod", "i8mm", "fullfp16", "bf16", "sve", "sve2")
IDENTITY = (
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "CPU revision",
    "Features",
)


# Bits of what the system tells every program, by LLVM's names: arch/arm64/include/uapi/asm/hwcap.h
HARDWARE, MORE_HARDWARE = 16, 26  # AT_HWCAP, AT_HWCAP2
BITS = {"neon": (HARDWARE, 1), "dotprod": (HARDWARE, 20), "i8mm": (MORE_HARDWARE, 13)}


def detected() -> dict[str, bool]:
    """LLVM reads /proc/cpuinfo, which in a container or an emulator may be another machine's."""
    words = {entry: ctypes.CDLL(None).getauxval(entry) for entry, _ in BITS.values()}
    return {name: bool(words[entry] >> bit & 1) for name, (entry, bit) in BITS.items()}


def level_of(found: Features) -> Target:
    if not found.get("dotprod"):
        return BASELINE
    return I8MM if found.get("i8mm") else DOTPROD


def needs(target: Target) -> tuple[str, ...]:
    return tuple(word.removeprefix("+") for word in target.features.split(",") if word != "+neon")


FAMILY = register(
    Family(
        ISA,
        LEVELS,
        detected,
        level_of,
        needs,
        {},
        SHOWN,
        IDENTITY,
        Relocations(
            183,
            frozenset({ABS64, PREL64, PREL32, ADR_PAGE, ADD_LOW, *LOAD_LOW, *JUMPS}),
            fill,
            stub,
        ),
        LOOP,
        SYSTEM_CALLS,
    )
)
