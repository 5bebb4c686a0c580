"""Code generation, tables of sixteen bytes or words in plain integer arithmetic, for processors
without an instruction for them."""

from __future__ import annotations

from tetrad.backends.llvm.convert import Words
from tetrad.backends.llvm.emitter import Codegen

ONES = 0x01010101


def lookup_portable(cg: Codegen, table: tuple[int, ...], x: str, varying: bool) -> str:
    """Bit by bit, from the lowest: of two neighbours left in the table, the second where the bit is
    set.

    Neighbours a and b become a ^ (m & (a ^ b)), m having all bits of a byte set where the bit of x
    is.
    """
    w = Words(cg, varying)
    masks = [
        w.op("mul", w.op("and", w.op("lshr", x, bit) if bit else x, ONES), 255) for bit in range(4)
    ]
    pairs = [(table[i] * ONES, (table[i] ^ table[i + 1]) * ONES) for i in range(0, len(table), 2)]
    left = [w.op("xor", w.op("and", masks[0], change), first) for first, change in pairs]
    for mask in masks[1:]:
        left = [either(w, mask, *left[i : i + 2]) for i in range(0, len(left), 2)]
    return left[0]


def either(w: Words, mask: str, a: str, b: str) -> str:
    return w.op("xor", a, w.op("and", mask, w.op("xor", a, b)))


def permute_portable(cg: Codegen, x: str, at: str) -> str:
    """Lane by lane, through memory."""
    kind = f"<{cg.lanes} x i32>"
    found = "poison"
    for lane in range(cg.lanes):
        place = cg.new(f"extractelement {kind} {at}, i64 {lane}")
        inside = cg.new(f"and i32 {place}, {cg.lanes - 1}")
        entry = cg.new(f"extractelement {kind} {x}, i32 {inside}")
        found = cg.new(f"insertelement {kind} {found}, i32 {entry}, i64 {lane}")
    return found
