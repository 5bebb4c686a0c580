"""Code generation, integers: operators without an LLVM instruction of their own, from intrinsics or
in twice the width.

Receives LLVM operands and kernel types, returns LLVM operands. Everything here is total: no operand
is undefined.
"""

from __future__ import annotations

from tetrad.backends.llvm.emitter import Codegen
from tetrad.core.dtypes import DType


def saturating(cg: Codegen, op: str, dtype: DType, kind: str, a: str, b: str) -> str:
    """add_sat, sub_sat."""
    letter = "s" if dtype.is_signed else "u"
    return cg.elementwise(f"llvm.{letter}{op[:3]}.sat", kind, a, b)


def mul_sat(cg: Codegen, dtype: DType, varying: bool, a: str, b: str) -> str:
    """The product in twice the width, cut at the ends of the type."""
    product, wide = wide_product(cg, dtype, varying, a, b)
    limit = (1 << (dtype.bits - dtype.is_signed)) - 1
    letter = "s" if dtype.is_signed else "u"
    product = cg.elementwise(f"llvm.{letter}min", wide, product, splat(cg, limit, dtype, varying))
    if dtype.is_signed:
        low = splat(cg, -limit - 1, dtype, varying)
        product = cg.elementwise("llvm.smax", wide, product, low)
    return cg.new(f"trunc {wide} {product} to {cg.type(dtype, varying)}")


def mulhi(cg: Codegen, dtype: DType, varying: bool, a: str, b: str) -> str:
    """The upper half of the product."""
    product, wide = wide_product(cg, dtype, varying, a, b)
    upper = cg.new(f"lshr {wide} {product}, {splat(cg, dtype.bits, dtype, varying)}")
    return cg.new(f"trunc {wide} {upper} to {cg.type(dtype, varying)}")


def wide_product(cg: Codegen, dtype: DType, varying: bool, a: str, b: str) -> tuple[str, str]:
    """a * b in twice the width, and that LLVM type."""
    kind = cg.type(dtype, varying)
    wide = f"<{cg.lanes} x i{2 * dtype.bits}>" if varying else f"i{2 * dtype.bits}"
    word = "sext" if dtype.is_signed else "zext"
    left, right = (cg.new(f"{word} {kind} {x} to {wide}") for x in (a, b))
    return cg.new(f"mul {wide} {left}, {right}"), wide


def splat(cg: Codegen, value: int, dtype: DType, varying: bool) -> str:
    """A literal of twice the width."""
    return f"splat (i{2 * dtype.bits} {value})" if varying else str(value)


def rotated(cg: Codegen, op: str, kind: str, a: str, b: str) -> str:
    """A funnel shift of a value beside itself; the count is taken modulo the width."""
    return cg.elementwise("llvm.fshl" if op == "rotl" else "llvm.fshr", kind, a, a, b)


def absdiff(cg: Codegen, kind: str, a: str, b: str) -> str:
    high, low = (cg.elementwise(f"llvm.u{end}", kind, a, b) for end in ("max", "min"))
    return cg.new(f"sub {kind} {high}, {low}")


def other_binary(
    cg: Codegen, op: str, dtype: DType, kind: str, a: str, b: str, varying: bool
) -> str:
    """The operators above, by name."""
    if op in ("add_sat", "sub_sat"):
        return saturating(cg, op, dtype, kind, a, b)
    if op in ("mul_sat", "mulhi"):
        return (mul_sat if op == "mul_sat" else mulhi)(cg, dtype, varying, a, b)
    return absdiff(cg, kind, a, b) if op == "absdiff" else rotated(cg, op, kind, a, b)
