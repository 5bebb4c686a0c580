"""Code generation, byte dot products: acc + four products of bytes, by what the target has for it.

Receives LLVM operands, returns LLVM operands. VNNI has the instruction. AVX2 has pmaddubsw, which adds products
of neighbouring bytes to pairs of 16 bits; a dot of a dot goes on in 16 bits (a `Chain`), so that a chain is widened to
32 bits once and not at every step. What the dots in between would give is dropped unless somebody reads it.
"""

from __future__ import annotations

from tetrad.codegen.convert import Words
from tetrad.codegen.emitter import Chain, Codegen
from tetrad.kernel import nodes as n

SHORT, WORD, BYTE = "<16 x i16>", "<8 x i32>", "<32 x i8>"  # eight lanes


def dot4(cg: Codegen, node: n.Dot4, acc: str, u: str, s: str) -> str:
    if cg.lanes % 8 or cg.target.dot4 == "portable":
        return dot4_portable(cg, node, acc, u, s, True)
    if cg.target.has_vnni and not node.signed:
        return dot4_vnni(cg, acc, u, s)
    return dot4_short(cg, node, acc, u, s) if node.signed or node.u_max <= 128 else dot4_pairs(cg, acc, u, s)


def dot4_vnni(cg: Codegen, acc: str, u: str, s: str) -> str:
    """Any bytes, as many lanes at a time as the instruction has; nothing saturates. AVX-VNNI has the same names."""
    width = min(cg.target.vector_bits // 32, cg.lanes)
    word, byte = f"<{width} x i32>", f"<{4 * width} x i8>"
    sums = []
    for start in range(0, cg.lanes, width):
        total, *factors = (slice_words(cg, x, start, width) for x in (acc, u, s))
        operands = [(byte, cg.new(f"bitcast {word} {x} to {byte}")) for x in factors]
        sums.append(cg.call(word, f"llvm.x86.avx512.vpdpbusd.{32 * width}", (word, total), *operands))
    return joined(cg, sums, width)


def dot4_short(cg: Codegen, node: n.Dot4, acc: str, u: str, s: str) -> str:
    """Eight lanes at a time. pmaddubsw saturates: with u_max <= 128 a pair lies in -2*128*128 .. 2*128*127 and fits."""
    one = most = 2 * (127 if node.signed else 128) * min(node.u_max, 128)
    pairs = [pair_products(cg, node.signed, *part) for part in eights(cg, u, s)]
    before = cg.find_chain(node.acc)
    if before is not None and before.most + most < 1 << 15:
        pairs = [cg.new(f"add {SHORT} {x}, {y}") for x, y in zip(before.pairs, pairs, strict=True)]
        acc, most = before.acc, before.most + most
    is_mixed = isinstance(node.acc, n.Dot4) and cg.last_dot is not node.acc  # dots of other chains came in between
    is_full = most + one >= 1 << 15  # the next dot of this kind does not fit into the chain
    if is_mixed and not is_full:
        pairs = [pinned(cg, p, SHORT) for p in pairs]
    cg.last_dot = node
    cg.scopes[-1].chains[node] = Chain(acc, tuple(pairs), most)
    words = [widened_pairs(cg, p) for p in pairs]
    if not (is_mixed and is_full):
        return add_words(cg, acc, words)
    before_words = [slice_words(cg, acc, start) for start in range(0, cg.lanes, 8)]
    sums = [cg.new(f"add {WORD} {x}, {y}") for x, y in zip(before_words, words, strict=True)]
    return joined(cg, [pinned(cg, total, WORD) for total in sums])


def pinned(cg: Codegen, value: str, kind: str) -> str:
    """A value made in this place among other chains: LLVM would finish one by one, spilling what they share."""
    return cg.new(f'call {kind} asm sideeffect "", "=x,0"({kind} {value})')


def widened_pairs(cg: Codegen, pairs: str) -> str:
    return cg.call(WORD, "llvm.x86.avx2.pmadd.wd", (SHORT, pairs), (SHORT, "splat (i16 1)"))


def pair_products(cg: Codegen, is_signed: bool, u: str, s: str) -> str:
    """Products of bytes added in pairs; where u is signed, |u| times s with the sign of u."""
    left, right = (cg.new(f"bitcast {WORD} {x} to {BYTE}") for x in (u, s))
    if is_signed:
        right = cg.call(BYTE, "llvm.x86.avx2.psign.b", (BYTE, right), (BYTE, left))
        left = cg.call(BYTE, "llvm.abs.v32i8", (BYTE, left), ("i1", "false"))
    return cg.call(SHORT, "llvm.x86.avx2.pmadd.ub.sw", (BYTE, left), (BYTE, right))


def dot4_pairs(cg: Codegen, acc: str, u: str, s: str) -> str:
    """Any bytes: even and odd ones are widened to 16 bits and pmaddwd adds them exactly."""
    return add_words(cg, acc, [pairs_wide(cg, *part) for part in eights(cg, u, s)])


def eights(cg: Codegen, u: str, s: str) -> list[tuple[str, str]]:
    """Both operands, eight lanes at a time."""
    return [(slice_words(cg, u, start), slice_words(cg, s, start)) for start in range(0, cg.lanes, 8)]


def add_words(cg: Codegen, acc: str, parts: list[str]) -> str:
    """acc + the parts of eight lanes, side by side."""
    return cg.new(f"add <{cg.lanes} x i32> {acc}, {joined(cg, parts)}")


def joined(cg: Codegen, parts: list[str], width: int = 8) -> str:
    """Parts of so many lanes as one vector."""
    while len(parts) > 1:
        parts = [join_words(cg, a, b, width) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        width *= 2
    return parts[0]


def slice_words(cg: Codegen, x: str, start: int, width: int = 8) -> str:
    if width == cg.lanes:
        return x
    wide, lanes = f"<{cg.lanes} x i32>", ", ".join(f"i32 {start + i}" for i in range(width))
    return cg.new(f"shufflevector {wide} {x}, {wide} poison, <{width} x i32> <{lanes}>")


def join_words(cg: Codegen, a: str, b: str, width: int) -> str:
    lanes = ", ".join(f"i32 {i}" for i in range(2 * width))
    kind = f"<{width} x i32>"
    return cg.new(f"shufflevector {kind} {a}, {kind} {b}, <{2 * width} x i32> <{lanes}>")


def pairs_wide(cg: Codegen, u: str, s: str) -> str:
    u16, s16 = (cg.new(f"bitcast {WORD} {x} to {SHORT}") for x in (u, s))
    even_u, odd_u = cg.new(f"and {SHORT} {u16}, splat (i16 255)"), cg.new(f"lshr {SHORT} {u16}, splat (i16 8)")
    raised = cg.new(f"shl {SHORT} {s16}, splat (i16 8)")
    even_s, odd_s = cg.new(f"ashr {SHORT} {raised}, splat (i16 8)"), cg.new(f"ashr {SHORT} {s16}, splat (i16 8)")
    even = cg.call(WORD, "llvm.x86.avx2.pmadd.wd", (SHORT, even_u), (SHORT, even_s))
    odd = cg.call(WORD, "llvm.x86.avx2.pmadd.wd", (SHORT, odd_u), (SHORT, odd_s))
    return cg.new(f"add {WORD} {even}, {odd}")


def dot4_portable(cg: Codegen, node: n.Dot4, acc: str, u: str, s: str, varying: bool) -> str:
    w = Words(cg, varying)
    for byte in range(4):
        raised = w.op("shl", u, 24 - 8 * byte)
        left = w.op("ashr" if node.signed else "lshr", raised, 24)
        right = w.op("ashr", w.op("shl", s, 24 - 8 * byte), 24)
        acc = w.op("add", acc, w.op("mul", left, right))
    return acc
