"""CPU back end, processors: x86-64 at five levels, its byte dot products, extremes, object files
and waiting.

Levels follow the x86-64 psABI: baseline (SSE2), v3 (AVX2, FMA, F16C), v4 (AVX-512 F/BW/CD/DQ/VL).
Ours are v3 and v4 with VNNI, byte dot products in one instruction: Alder Lake has it without
AVX-512, Ice Lake and Zen 4 with it.

Without VNNI, AVX2 and AVX-512 have pmaddubsw, which adds products of neighbouring bytes to pairs of
16 bits; a dot of a dot goes on in 16 bits (a chain), so that it is widened to 32 bits once and not
at every step. What the dots in between would give is dropped unless somebody reads it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tetrad.backends.cpu.isa.family import Family, Features, Relocations, register
from tetrad.backends.llvm.isa import Isa
from tetrad.backends.llvm.pieces import constant_bytes, joined, pieces
from tetrad.backends.llvm.target import Target
from tetrad.core.machine import NEAR, Machine, RegisterTile
from tetrad.core.record import record, replace
from tetrad.kernel import nodes as n

if TYPE_CHECKING:
    from tetrad.backends.llvm.emitter import Codegen
    from tetrad.core.dtypes import DType

TRIPLE = "x86_64-unknown-linux-gnu"

# -- byte dot products -----------------------------------------------------------------------------


@record
class DotWidth:
    """The lanes that one instruction takes: their number, its names, its types."""

    width: int
    add_bytes: str
    add_shorts: str

    @property
    def word(self) -> str:
        return f"<{self.width} x i32>"

    @property
    def short(self) -> str:
        return f"<{2 * self.width} x i16>"

    @property
    def byte(self) -> str:
        return f"<{4 * self.width} x i8>"


EIGHT = DotWidth(8, "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd")
SIXTEEN = DotWidth(16, "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512")


def piece_of(cg: Codegen) -> DotWidth:
    return SIXTEEN if cg.target.vector_bits == 512 and cg.lanes % 16 == 0 else EIGHT


def dot4(cg: Codegen, node: n.Dot4, acc: str, u: str, s: str) -> str | None:
    if cg.lanes % 8 or cg.target.dot4 == "portable":
        return None
    if cg.target.machine.dots_mixed_bytes and not node.signed:
        return dot4_vnni(cg, acc, u, s)
    return (
        dot4_short(cg, node, acc, u, s)
        if node.signed or node.u_max <= 128
        else dot4_pairs(cg, acc, u, s)
    )


def dot4_vnni(cg: Codegen, acc: str, u: str, s: str) -> str:
    """Any bytes; nothing saturates. AVX-VNNI has the same names."""
    piece = piece_of(cg)
    name = f"llvm.x86.avx512.vpdpbusd.{32 * piece.width}"
    sums = []
    for total, left, right in zip(*(pieces(cg, piece.width, x) for x in (acc, u, s)), strict=True):
        factors = [
            (piece.byte, cg.new(f"bitcast {piece.word} {x} to {piece.byte}")) for x in (left, right)
        ]
        sums.append(cg.call(piece.word, name, (piece.word, total), *factors))
    return joined(cg, piece.width, sums)


def dot2(cg: Codegen, acc: str, a: str, b: str) -> str | None:
    if not cg.target.machine.dots_halves or cg.lanes != 16:
        return None
    pairs, kind = "<32 x bfloat>", "<16 x float>"
    halves = [(pairs, cg.new(f"bitcast <16 x i32> {x} to {pairs}")) for x in (a, b)]
    return cg.call(kind, "llvm.x86.avx512bf16.dpbf16ps.512", (kind, acc), *halves)


def dot4_short(cg: Codegen, node: n.Dot4, acc: str, u: str, s: str) -> str:
    """pmaddubsw saturates: with u_max <= 128 a pair lies in -2*128*128 .. 2*128*127 and fits."""
    piece = piece_of(cg)
    one = most = 2 * (127 if node.signed else 128) * min(node.u_max, 128)
    parts = zip(pieces(cg, piece.width, u), pieces(cg, piece.width, s), strict=True)
    pairs = [pair_products(cg, piece, node.signed, *part) for part in parts]
    before = cg.find_chain(node.acc)
    if before is not None and before.most + most < 1 << 15:
        pairs = [
            cg.new(f"add {piece.short} {x}, {y}") for x, y in zip(before.pairs, pairs, strict=True)
        ]
        acc, most = before.acc, before.most + most
    # dots of other chains came in between
    is_mixed = isinstance(node.acc, n.Dot4) and cg.last_dot is not node.acc
    is_full = most + one >= 1 << 15  # the next dot of this kind does not fit into the chain
    if is_mixed and not is_full:
        pairs = [pinned(cg, p, piece.short) for p in pairs]
    cg.last_dot = node
    cg.keep_chain(node, acc, tuple(pairs), most)
    words = [widened_pairs(cg, piece, p) for p in pairs]
    if not (is_mixed and is_full):
        return cg.new(f"add <{cg.lanes} x i32> {acc}, {joined(cg, piece.width, words)}")
    sums = [
        cg.new(f"add {piece.word} {x}, {y}")
        for x, y in zip(pieces(cg, piece.width, acc), words, strict=True)
    ]
    return joined(cg, piece.width, [pinned(cg, total, piece.word) for total in sums])


def pinned(cg: Codegen, value: str, kind: str) -> str:
    """A value made in this place among other chains: LLVM would finish one by one, spilling what
    they share."""
    return cg.new(f'call {kind} asm sideeffect "", "=v,0"({kind} {value})')


def widened_pairs(cg: Codegen, piece: DotWidth, pairs: str) -> str:
    return cg.call(
        piece.word, piece.add_shorts, (piece.short, pairs), (piece.short, "splat (i16 1)")
    )


def pair_products(cg: Codegen, piece: DotWidth, is_signed: bool, u: str, s: str) -> str:
    """Products of bytes added in pairs; where u is signed, |u| times s with the sign of u."""
    left, right = (cg.new(f"bitcast {piece.word} {x} to {piece.byte}") for x in (u, s))
    if is_signed:
        right = signed_like(cg, piece, right, left)
        left = cg.call(
            piece.byte, f"llvm.abs.{cg.suffix(piece.byte)}", (piece.byte, left), ("i1", "false")
        )
    return cg.call(piece.short, piece.add_bytes, (piece.byte, left), (piece.byte, right))


def signed_like(cg: Codegen, piece: DotWidth, x: str, sign: str) -> str:
    """x, or -x where the other is negative; 16 lanes have no instruction for it, but a mask."""
    byte = piece.byte
    if piece is EIGHT:
        return cg.call(byte, "llvm.x86.avx2.psign.b", (byte, x), (byte, sign))
    is_negative = cg.new(f"icmp slt {byte} {sign}, zeroinitializer")
    minus = cg.new(f"sub {byte} zeroinitializer, {x}")
    return cg.new(f"select <{4 * piece.width} x i1> {is_negative}, {byte} {minus}, {byte} {x}")


def dot4_pairs(cg: Codegen, acc: str, u: str, s: str) -> str:
    """Any bytes: even and odd ones are widened to 16 bits and pmaddwd adds them exactly."""
    piece = piece_of(cg)
    parts = zip(pieces(cg, piece.width, u), pieces(cg, piece.width, s), strict=True)
    words = joined(cg, piece.width, [pairs_wide(cg, piece, *part) for part in parts])
    return cg.new(f"add <{cg.lanes} x i32> {acc}, {words}")


def pairs_wide(cg: Codegen, piece: DotWidth, u: str, s: str) -> str:
    short, word = piece.short, piece.word
    u16, s16 = (cg.new(f"bitcast {word} {x} to {short}") for x in (u, s))
    even_u, odd_u = (
        cg.new(f"and {short} {u16}, splat (i16 255)"),
        cg.new(f"lshr {short} {u16}, splat (i16 8)"),
    )
    raised = cg.new(f"shl {short} {s16}, splat (i16 8)")
    even_s, odd_s = (
        cg.new(f"ashr {short} {raised}, splat (i16 8)"),
        cg.new(f"ashr {short} {s16}, splat (i16 8)"),
    )
    even = cg.call(word, piece.add_shorts, (short, even_u), (short, even_s))
    odd = cg.call(word, piece.add_shorts, (short, odd_u), (short, odd_s))
    return cg.new(f"add {word} {even}, {odd}")


# -- tables ----------------------------------------------------------------------------------------

SHUFFLES = {8: "llvm.x86.avx2.pshuf.b", 16: "llvm.x86.avx512.pshuf.b.512"}


def lookup(cg: Codegen, table: tuple[int, ...], x: str) -> str | None:
    """pshufb takes bytes of each 16 by the low four bits; SSE2 has none."""
    if cg.lanes % 8 or cg.target.vector_bits == 128:
        return None
    piece = piece_of(cg)
    entries = constant_bytes(table * (piece.width // 4))
    words = []
    for part in pieces(cg, piece.width, x):
        places = cg.new(f"bitcast {piece.word} {part} to {piece.byte}")
        found = cg.call(
            piece.byte, SHUFFLES[piece.width], (piece.byte, entries), (piece.byte, places)
        )
        words.append(cg.new(f"bitcast {piece.byte} {found} to {piece.word}"))
    return joined(cg, piece.width, words)


def permute(cg: Codegen, x: str, at: str) -> str | None:
    """AVX-512 takes any of sixteen words by the low four bits; AVX2 any of eight, of each half,
    and the fourth bit says which."""
    if cg.lanes != 16 or cg.target.vector_bits == 128:
        return None
    if cg.target.vector_bits == 512:
        kind = f"<{cg.lanes} x i32>"
        return cg.call(kind, "llvm.x86.avx512.permvar.si.512", (kind, x), (kind, at))
    word, found = EIGHT.word, []
    halves = pieces(cg, EIGHT.width, x)
    for part in pieces(cg, EIGHT.width, at):
        low, high = (
            cg.call(word, "llvm.x86.avx2.permd", (word, half), (word, part)) for half in halves
        )
        top = cg.new(f"and {word} {part}, splat (i32 8)")
        is_high = cg.new(f"icmp ne {word} {top}, zeroinitializer")
        found.append(cg.new(f"select <8 x i1> {is_high}, {word} {high}, {word} {low}"))
    return joined(cg, EIGHT.width, found)


# -- extremes --------------------------------------------------------------------------------------

RANGE = "llvm.x86.avx512.mask.range.ps.512"  # the extreme of two numbers, with -0 < +0
RANGE_LANES = 16


def float_extremum(cg: Codegen, op: str, dtype: DType, a: str, b: str) -> str:
    """minimum or maximum of vectors as IEEE 754 has them: NaN if one is NaN, and -0 < +0.

    The processor's instruction gives the second operand where one is NaN or both are zeros. Asked
    both ways round, the bits of the two answers joined by `or` are the minimum: NaN with anything
    stays NaN, -0 with +0 is -0. Joined by `and` they are the maximum, but for NaN. Three and five
    instructions, two or three deep, where LLVM has six deep. AVX-512 has the maximum of numbers in
    one instruction: three for it too.
    """
    kind, bits = cg.vector_type(dtype), f"<{cg.lanes} x i{dtype.bits}>"
    order = "olt" if op == "min" else "ogt"

    def one_way(left: str, right: str) -> str:
        is_left = cg.new(f"fcmp {order} {kind} {left}, {right}")
        chosen = cg.new(f"select {cg.mask_type} {is_left}, {kind} {left}, {kind} {right}")
        return cg.new(f"bitcast {kind} {chosen} to {bits}")

    if (
        op == "max"
        and dtype.short_name == "f32"
        and cg.lanes == RANGE_LANES
        and cg.target.vector_bits == 512
    ):
        joined = cg.new(f"bitcast {kind} {greater_number(cg, kind, a, b)} to {bits}")
    else:
        joined = cg.new(f"{'or' if op == 'min' else 'and'} {bits} {one_way(a, b)}, {one_way(b, a)}")
    if op == "max":
        is_nan = cg.new(f"fcmp uno {kind} {a}, {b}")
        joined = cg.new(
            f"select {cg.mask_type} {is_nan}, {bits} splat (i{dtype.bits} -1), {bits} {joined}"
        )
    return cg.new(f"bitcast {bits} {joined} to {kind}")


def greater_number(cg: Codegen, kind: str, a: str, b: str) -> str:
    """Of two that are no NaN. The sign is the result's own, every lane is wanted, exceptions are as
    they are set."""
    operands = (
        (kind, a),
        (kind, b),
        ("i32", "5"),
        (kind, "zeroinitializer"),
        ("i16", "-1"),
        ("i32", "4"),
    )
    return cg.call(kind, RANGE, *operands)


# -- object files: the x86-64 supplement of the System V ABI, section 4.4 --------------------------

ABSOLUTE, RELATIVE = (1,), (2, 4)  # R_X86_64_64; R_X86_64_PC32, R_X86_64_PLT32
JUMP = b"\xff\x25\x00\x00\x00\x00"  # jmp *[rip]: to the address behind it


def fill(made: bytearray, place: int, type: int, target: int, base: int) -> None:
    """S + A, or S + A - P in 32 bits."""
    if type in ABSOLUTE:
        struct.pack_into("<Q", made, place, target)
    else:
        struct.pack_into("<i", made, place, target - base - place)


def stub(address: int) -> bytes:
    return JUMP + struct.pack("<Q", address)


# -- the native loop -------------------------------------------------------------------------------

LOOP = {
    "TICKS": "call i64 @llvm.readcyclecounter()",
    "PAUSE": "call void @llvm.x86.sse2.pause()",
    "SAVE_FLOAT": "call void @llvm.x86.sse.stmxcsr(ptr %float)",
    # 0x1F80, the reset value
    "SET_FLOAT": "store i32 8064, ptr %plain\n  call void @llvm.x86.sse.ldmxcsr(ptr %plain)",
    "RESTORE_FLOAT": "call void @llvm.x86.sse.ldmxcsr(ptr %float)",
    "DECLARE": "declare void @llvm.x86.sse2.pause()\ndeclare void @llvm.x86.sse.stmxcsr(ptr)\n"
    "declare void @llvm.x86.sse.ldmxcsr(ptr)\ndeclare i64 @llvm.readcyclecounter()",
}
# Linux, arch/x86/entry/syscalls/syscall_64.tbl
SYSTEM_CALLS = {
    "SCHED_YIELD": 24, "FUTEX": 202, "GETTID": 186, "SETAFFINITY": 203, "CLOCK_GETTIME": 228,
    "GETCPU": 309,
}  # fmt: skip


# -- levels ----------------------------------------------------------------------------------------


def attributes(target: Target) -> str:
    width = target.vector_bits
    return f'"min-legal-vector-width"="{width}" "prefer-vector-width"="{width}"'


ISA = Isa(
    "x86_64",
    dot4=dot4,
    dot2=dot2,
    lookup=lookup,
    permute=permute,
    extremum=float_extremum,
    attributes=attributes,
    stream_fence="llvm.x86.sse.sfence",
)
BASELINE = Target(
    "x86-64", TRIPLE, "x86-64", "", has_f16_conversion=False, dot4="portable",
    machine=Machine(128, RegisterTile(3, 1), RegisterTile(1, 1), lowbit_tokens=2),
    isa=ISA,
)  # fmt: skip
V3 = Target(
    "x86-64-v3", TRIPLE, "x86-64-v3", "", has_f16_conversion=True, dot4="maddubs",
    machine=Machine(256, RegisterTile(6, 1), RegisterTile(2, 1), lowbit_tokens=4),
    isa=ISA,
)  # fmt: skip
V4 = Target(
    "x86-64-v4", TRIPLE, "x86-64-v4", "", has_f16_conversion=True, dot4="maddubs",
    machine=Machine(
        512, RegisterTile(12, 2), RegisterTile(6, 2), lowbit_tokens=8, panel_bytes=8 * NEAR
    ),
    isa=ISA,
    narrows_in_stores=True,
)  # fmt: skip
V3_VNNI = replace(
    V3, name="x86-64-v3-vnni", features="+avxvnni", dot4="vnni256",
    machine=replace(V3.machine, dots_mixed_bytes=True),
)  # fmt: skip
V4_VNNI = replace(
    V4, name="x86-64-v4-vnni", features="+avx512vnni", dot4="vnni512",
    machine=replace(V4.machine, dots_mixed_bytes=True),
)  # fmt: skip
V4_BF16 = replace(
    V4_VNNI, name="x86-64-v4-bf16", features="+avx512vnni,+avx512bf16",
    machine=replace(V4_VNNI.machine, dots_halves=True),
)  # fmt: skip
LEVELS = {target.name: target for target in (BASELINE, V3, V3_VNNI, V4, V4_VNNI, V4_BF16)}
# What a processor prefers to the tile and panel of its level. Zen 4 works on halves of its vectors,
# at half the pace: a tile needs fewer sums to keep it busy and can afford a load for each product.
PREFERRED: dict[str, dict[str, object]] = {
    "znver4": {"f32_tile": RegisterTile(8, 1), "panel_bytes": 4 * NEAR}
}

V3_FEATURES = ("avx2", "fma", "f16c", "bmi2")
V4_FEATURES = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
SHOWN = (*V3_FEATURES, *V4_FEATURES, "avx512vnni", "avxvnni", "avx512bf16", "amx-int8")
IDENTITY = ("vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags")
BF16 = "avx512bf16"
# what a level becomes, by which feature
VNNI = {V3: (V3_VNNI, "avxvnni"), V4: (V4_VNNI, "avx512vnni")}


def level_of(found: Features) -> Target:
    level = V3 if has_all(found, V3_FEATURES) else BASELINE
    level = V4 if level is V3 and has_all(found, V4_FEATURES) else level
    higher, feature = VNNI.get(level, (level, ""))
    level = higher if found.get(feature) else level
    return V4_BF16 if level is V4_VNNI and found.get(BF16) else level


def has_all(found: Features, names: tuple[str, ...]) -> bool:
    return all(found.get(name) for name in names)


def needs(target: Target) -> tuple[str, ...]:
    needed = {512: V3_FEATURES + V4_FEATURES, 256: V3_FEATURES}.get(target.vector_bits, ())
    needed += tuple(feature for higher, feature in VNNI.values() if target.dot4 == higher.dot4)
    return needed + (BF16,) * target.machine.dots_halves


FAMILY = register(
    Family(
        ISA,
        LEVELS,
        dict,
        level_of,
        needs,
        PREFERRED,
        SHOWN,
        IDENTITY,
        Relocations(62, frozenset(ABSOLUTE + RELATIVE), fill, stub),
        LOOP,
        SYSTEM_CALLS,
    )
)
