"""Code generation, byte dot products: acc + four products of bytes, by what the target has for it.

Receives LLVM operands, returns LLVM operands. VNNI has the instruction. AVX2 and AVX-512 have pmaddubsw, which adds
products of neighbouring bytes to pairs of 16 bits; a dot of a dot goes on in 16 bits (a `Chain`), so that a chain is
widened to 32 bits once and not at every step. What the dots in between would give is dropped unless somebody reads it.
"""

from __future__ import annotations

from tetrad.codegen.convert import Words
from tetrad.codegen.emitter import Chain, Codegen
from tetrad.core.record import record
from tetrad.kernel import nodes as n


@record
class Piece:
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


EIGHT = Piece(8, "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd")
SIXTEEN = Piece(16, "llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512")


def piece_of(cg: Codegen) -> Piece:
    return SIXTEEN if cg.target.vector_bits == 512 and cg.lanes % 16 == 0 else EIGHT


def dot4(cg: Codegen, node: n.Dot4, acc: str, u: str, s: str) -> str:
    if cg.lanes % 8 or cg.target.dot4 == "portable":
        return dot4_portable(cg, node, acc, u, s, True)
    if cg.target.has_vnni and not node.signed:
        return dot4_vnni(cg, acc, u, s)
    return dot4_short(cg, node, acc, u, s) if node.signed or node.u_max <= 128 else dot4_pairs(cg, acc, u, s)


def dot4_vnni(cg: Codegen, acc: str, u: str, s: str) -> str:
    """Any bytes; nothing saturates. AVX-VNNI has the same names."""
    piece = piece_of(cg)
    name = f"llvm.x86.avx512.vpdpbusd.{32 * piece.width}"
    sums = []
    for total, left, right in zip(*(pieces(cg, piece, x) for x in (acc, u, s)), strict=True):
        factors = [(piece.byte, cg.new(f"bitcast {piece.word} {x} to {piece.byte}")) for x in (left, right)]
        sums.append(cg.call(piece.word, name, (piece.word, total), *factors))
    return joined(cg, piece, sums)


def dot4_short(cg: Codegen, node: n.Dot4, acc: str, u: str, s: str) -> str:
    """pmaddubsw saturates: with u_max <= 128 a pair lies in -2*128*128 .. 2*128*127 and fits."""
    piece = piece_of(cg)
    one = most = 2 * (127 if node.signed else 128) * min(node.u_max, 128)
    parts = zip(pieces(cg, piece, u), pieces(cg, piece, s), strict=True)
    pairs = [pair_products(cg, piece, node.signed, *part) for part in parts]
    before = cg.find_chain(node.acc)
    if before is not None and before.most + most < 1 << 15:
        pairs = [cg.new(f"add {piece.short} {x}, {y}") for x, y in zip(before.pairs, pairs, strict=True)]
        acc, most = before.acc, before.most + most
    is_mixed = isinstance(node.acc, n.Dot4) and cg.last_dot is not node.acc  # dots of other chains came in between
    is_full = most + one >= 1 << 15  # the next dot of this kind does not fit into the chain
    if is_mixed and not is_full:
        pairs = [pinned(cg, p, piece.short) for p in pairs]
    cg.last_dot = node
    cg.scopes[-1].chains[node] = Chain(acc, tuple(pairs), most)
    words = [widened_pairs(cg, piece, p) for p in pairs]
    if not (is_mixed and is_full):
        return cg.new(f"add <{cg.lanes} x i32> {acc}, {joined(cg, piece, words)}")
    sums = [cg.new(f"add {piece.word} {x}, {y}") for x, y in zip(pieces(cg, piece, acc), words, strict=True)]
    return joined(cg, piece, [pinned(cg, total, piece.word) for total in sums])


def pinned(cg: Codegen, value: str, kind: str) -> str:
    """A value made in this place among other chains: LLVM would finish one by one, spilling what they share."""
    return cg.new(f'call {kind} asm sideeffect "", "=v,0"({kind} {value})')


def widened_pairs(cg: Codegen, piece: Piece, pairs: str) -> str:
    return cg.call(piece.word, piece.add_shorts, (piece.short, pairs), (piece.short, "splat (i16 1)"))


def pair_products(cg: Codegen, piece: Piece, is_signed: bool, u: str, s: str) -> str:
    """Products of bytes added in pairs; where u is signed, |u| times s with the sign of u."""
    left, right = (cg.new(f"bitcast {piece.word} {x} to {piece.byte}") for x in (u, s))
    if is_signed:
        right = signed_like(cg, piece, right, left)
        left = cg.call(piece.byte, f"llvm.abs.{cg.suffix(piece.byte)}", (piece.byte, left), ("i1", "false"))
    return cg.call(piece.short, piece.add_bytes, (piece.byte, left), (piece.byte, right))


def signed_like(cg: Codegen, piece: Piece, x: str, sign: str) -> str:
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
    parts = zip(pieces(cg, piece, u), pieces(cg, piece, s), strict=True)
    words = joined(cg, piece, [pairs_wide(cg, piece, *part) for part in parts])
    return cg.new(f"add <{cg.lanes} x i32> {acc}, {words}")


def pairs_wide(cg: Codegen, piece: Piece, u: str, s: str) -> str:
    short, word = piece.short, piece.word
    u16, s16 = (cg.new(f"bitcast {word} {x} to {short}") for x in (u, s))
    even_u, odd_u = cg.new(f"and {short} {u16}, splat (i16 255)"), cg.new(f"lshr {short} {u16}, splat (i16 8)")
    raised = cg.new(f"shl {short} {s16}, splat (i16 8)")
    even_s, odd_s = cg.new(f"ashr {short} {raised}, splat (i16 8)"), cg.new(f"ashr {short} {s16}, splat (i16 8)")
    even = cg.call(word, piece.add_shorts, (short, even_u), (short, even_s))
    odd = cg.call(word, piece.add_shorts, (short, odd_u), (short, odd_s))
    return cg.new(f"add {word} {even}, {odd}")


def pieces(cg: Codegen, piece: Piece, x: str) -> list[str]:
    """An operand, as many lanes at a time as an instruction takes."""
    if piece.width == cg.lanes:
        return [x]
    wide = f"<{cg.lanes} x i32>"
    lanes = [", ".join(f"i32 {start + i}" for i in range(piece.width)) for start in range(0, cg.lanes, piece.width)]
    return [cg.new(f"shufflevector {wide} {x}, {wide} poison, {piece.word} <{part}>") for part in lanes]


def joined(cg: Codegen, piece: Piece, parts: list[str]) -> str:
    """The pieces as one vector."""
    width = piece.width
    while len(parts) > 1:
        parts = [join_words(cg, a, b, width) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        width *= 2
    return parts[0]


def join_words(cg: Codegen, a: str, b: str, width: int) -> str:
    lanes = ", ".join(f"i32 {i}" for i in range(2 * width))
    kind = f"<{width} x i32>"
    return cg.new(f"shufflevector {kind} {a}, {kind} {b}, <{2 * width} x i32> <{lanes}>")


def dot4_portable(cg: Codegen, node: n.Dot4, acc: str, u: str, s: str, varying: bool) -> str:
    w = Words(cg, varying)
    for byte in range(4):
        raised = w.op("shl", u, 24 - 8 * byte)
        left = w.op("ashr" if node.signed else "lshr", raised, 24)
        right = w.op("ashr", w.op("shl", s, 24 - 8 * byte), 24)
        acc = w.op("add", acc, w.op("mul", left, right))
    return acc
