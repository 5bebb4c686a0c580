"""Code generation, dot products of bytes and of bf16 in plain arithmetic, for processors and values
without an instruction."""

from __future__ import annotations

from tetrad.backends.llvm.convert import Words
from tetrad.backends.llvm.emitter import Codegen
from tetrad.kernel import nodes as n


def dot4_portable(cg: Codegen, node: n.Dot4, acc: str, u: str, s: str, varying: bool) -> str:
    w = Words(cg, varying)
    for byte in range(4):
        raised = w.op("shl", u, 24 - 8 * byte)
        left = w.op("ashr" if node.signed else "lshr", raised, 24)
        right = w.op("ashr", w.op("shl", s, 24 - 8 * byte), 24)
        acc = w.op("add", acc, w.op("mul", left, right))
    return acc


SIGN, EXPONENT, HIGH = 0x80000000, 0x7F800000, 0xFFFF0000
RAISE, LEAST = 0x4F800000, 0x10800000  # the bits of 2**32, and of 2**-94, 2**32 times the least


def dot2_portable(cg: Codegen, acc: str, a: str, b: str, varying: bool) -> str:
    w = Words(cg, varying)
    left, right = ((w.op("and", x, HIGH), w.op("shl", x, 16)) for x in (a, b))
    total = flushed(w, w.bits(acc))
    for x, y in zip(left, right, strict=True):
        total = fma_flushed(w, flushed(w, x), flushed(w, y), total)
    return w.float(total)


def flushed(w: Words, bits: str) -> str:
    """A subnormal number becomes a zero of its sign."""
    is_small = w.test("eq", w.op("and", bits, EXPONENT), 0)
    return w.select(is_small, w.op("and", bits, SIGN), bits)


def fma_flushed(w: Words, x: str, y: str, c: str) -> str:
    """Bits of x y + c, a zero where it would be subnormal if exponents had no end: 2**32 times as
    large, the sum is rounded as if they had none."""
    cg, raise_ = w.cg, w.float(w.op("or", w.const(0), RAISE))
    plain = cg.elementwise("llvm.fma", w.f32, w.float(x), w.float(y), w.float(c))
    high, sum_ = (cg.new(f"fmul {w.f32} {w.float(v)}, {raise_}") for v in (x, c))
    raised = cg.elementwise("llvm.fma", w.f32, high, w.float(y), sum_)
    is_small = w.test("ult", w.op("and", w.bits(raised), 0x7FFFFFFF), LEAST)
    bits = w.bits(plain)
    return w.select(is_small, w.op("and", bits, SIGN), bits)
