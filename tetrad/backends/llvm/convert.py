"""Code generation, conversions: casts between element types.

Receives LLVM operands and kernel types, returns LLVM operands. What the target lacks (half
precision) is written in integer arithmetic here, so the rules need not ask.
"""

from __future__ import annotations

from tetrad.backends.llvm.emitter import Codegen
from tetrad.core.dtypes import DType, bf16, bool_, f16, f32, u32


def cast(cg: Codegen, x: str, source: DType, goal: DType, varying: bool) -> str:
    """x of one element type as another: integers wrap, floats saturate into integers, anything but
    zero is true."""
    if source is goal:
        return x
    if bf16 in (source, goal) or (f16 in (source, goal) and not cg.target.has_f16_conversion):
        return small_float_cast(cg, x, source, goal, varying)
    from_type, to_type = cg.type(source, varying), cg.type(goal, varying)
    if goal is bool_:
        zero = "zeroinitializer" if varying else ("0.0" if source.is_float else "0")
        test = "fcmp une" if source.is_float else "icmp ne"
        return cg.new(f"{test} {from_type} {x}, {zero}")
    if source.is_float and goal.is_float:
        return cg.new(
            f"{'fpext' if goal.bits > source.bits else 'fptrunc'} {from_type} {x} to {to_type}"
        )
    if source.is_float:
        word = "fptosi" if goal.is_signed else "fptoui"
        name = f"llvm.{word}.sat.{cg.suffix(to_type)}.{cg.suffix(from_type)}"
        return cg.call(to_type, name, (from_type, x))
    if goal.is_float:
        return cg.new(f"{'sitofp' if source.is_signed else 'uitofp'} {from_type} {x} to {to_type}")
    if goal.bits == source.bits:
        return x
    word = "trunc" if goal.bits < source.bits else "sext" if source.is_signed else "zext"
    return cg.new(f"{word} {from_type} {x} to {to_type}")


def small_float_cast(cg: Codegen, x: str, source: DType, goal: DType, varying: bool) -> str:
    """bf16 always, f16 without hardware: through f32, whose bits are moved by integer
    arithmetic."""
    if source in (bf16, f16):
        wide = bf16_to_f32(cg, x, varying) if source is bf16 else f16_to_f32(cg, x, varying)
        return wide if goal is f32 else cast(cg, wide, f32, goal, varying)
    single = x if source is f32 else cast(cg, x, source, f32, varying)
    return f32_to_bf16(cg, single, varying) if goal is bf16 else f32_to_f16(cg, single, varying)


class Words:
    """Integer arithmetic on 32-bit lanes, written as Python operators on LLVM text."""

    def __init__(self, cg: Codegen, varying: bool) -> None:
        self.cg, self.varying = cg, varying
        self.i32, self.i16 = (
            (f"<{cg.lanes} x i32>", f"<{cg.lanes} x i16>") if varying else ("i32", "i16")
        )
        self.f32, self.half = (
            (f"<{cg.lanes} x float>", f"<{cg.lanes} x half>") if varying else ("float", "half")
        )
        self.i1 = cg.mask_type if varying else "i1"

    def const(self, value: int) -> str:
        return self.cg.constant(value, u32, self.varying)

    def op(self, name: str, a: str, b: str | int) -> str:
        return self.cg.new(f"{name} {self.i32} {a}, {b if isinstance(b, str) else self.const(b)}")

    def test(self, name: str, a: str, b: str | int) -> str:
        return self.cg.new(
            f"icmp {name} {self.i32} {a}, {b if isinstance(b, str) else self.const(b)}"
        )

    def select(self, cond: str, a: str, b: str) -> str:
        return self.cg.new(f"select {self.i1} {cond}, {self.i32} {a}, {self.i32} {b}")

    def bits(self, x: str) -> str:
        return self.cg.new(f"bitcast {self.f32} {x} to {self.i32}")

    def float(self, bits: str) -> str:
        return self.cg.new(f"bitcast {self.i32} {bits} to {self.f32}")


def bf16_to_f32(cg: Codegen, x: str, varying: bool) -> str:
    w = Words(cg, varying)
    return w.float(w.op("shl", cg.new(f"zext {w.i16} {x} to {w.i32}"), 16))


def f32_to_bf16(cg: Codegen, x: str, varying: bool) -> str:
    """Round to nearest even by adding 0x7FFF plus the lowest kept bit; a NaN keeps its top bits and
    stays quiet."""
    w = Words(cg, varying)
    bits = w.bits(x)
    odd = w.op("and", w.op("lshr", bits, 16), 1)
    rounded = w.op("lshr", w.op("add", w.op("add", bits, 0x7FFF), odd), 16)
    quiet = w.op("or", w.op("lshr", bits, 16), 0x40)
    is_nan = w.test("ugt", w.op("and", bits, 0x7FFFFFFF), 0x7F800000)
    return cg.new(f"trunc {w.i32} {w.select(is_nan, quiet, rounded)} to {w.i16}")


def f16_to_f32(cg: Codegen, x: str, varying: bool) -> str:
    """Move exponent and mantissa to their f32 places; multiplying by 2**112 fixes the bias and
    subnormals exactly."""
    w = Words(cg, varying)
    half = cg.new(f"zext {w.i16} {cg.new(f'bitcast {w.half} {x} to {w.i16}')} to {w.i32}")
    magnitude = w.op("shl", w.op("and", half, 0x7FFF), 13)
    scale = cg.constant(2.0**112, f32, varying)
    scaled = w.bits(cg.new(f"fmul {w.f32} {w.float(magnitude)}, {scale}"))
    special = w.test("uge", magnitude, 0x7C00 << 13)
    finite = w.select(special, w.op("or", magnitude, 0x7F800000), scaled)
    return w.float(w.op("or", finite, w.op("shl", w.op("and", half, 0x8000), 16)))


def f32_to_f16(cg: Codegen, x: str, varying: bool) -> str:
    """Normal results round in integers; subnormal ones round in the addition of 0.5, whose last
    place is 2**-24."""
    w = Words(cg, varying)
    bits = w.bits(x)
    sign = w.op("lshr", w.op("and", bits, 0x80000000), 16)
    magnitude = w.op("and", bits, 0x7FFFFFFF)
    odd = w.op("and", w.op("lshr", magnitude, 13), 1)
    normal = w.op("lshr", w.op("add", w.op("add", magnitude, 0xC8000FFF), odd), 13)
    half = cg.constant(0.5, f32, varying)
    tiny = w.op("sub", w.bits(cg.new(f"fadd {w.f32} {w.float(magnitude)}, {half}")), 0x3F000000)
    result = w.select(w.test("ult", magnitude, 0x38800000), tiny, normal)
    result = w.select(w.test("uge", magnitude, 0x477FF000), w.const(0x7C00), result)
    payload = w.op("or", w.op("and", w.op("lshr", magnitude, 13), 0x3FF), 0x7E00)
    result = w.select(w.test("ugt", magnitude, 0x7F800000), payload, result)
    bits16 = cg.new(f"trunc {w.i32} {w.op('or', result, sign)} to {w.i16}")
    return cg.new(f"bitcast {w.i16} {bits16} to {w.half}")
