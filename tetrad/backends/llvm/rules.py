"""Code generation, the rules: one function per kernel instruction, kernel node in, LLVM text out.

Here are those of values: arithmetic, and exchange between lanes. Under a mask, inactive lanes never
trap the processor: divisors are made safe, shift counts are masked. `rules` has all, with those of
`backends.llvm.memory` and `backends.llvm.flow`.
"""

from __future__ import annotations

from tetrad.backends.llvm import atomics, convert, dots, flow, integers, lookups, memory
from tetrad.backends.llvm.emitter import (
    Codegen,
    Emitted,
    EmitterRules,
    form,
    index_stride,
    operand_name,
)
from tetrad.core.dtypes import DType
from tetrad.kernel import nodes as n

rules = EmitterRules(memory.rules, atomics.rules, flow.rules)

FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
INT_OPS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
FLOAT_CALLS = {"min": "llvm.minimum", "max": "llvm.maximum", "copysign": "llvm.copysign"}
FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
FLOAT_UNARY = {
    "abs": "llvm.fabs", "sqrt": "llvm.sqrt", "floor": "llvm.floor", "ceil": "llvm.ceil",
    "trunc": "llvm.trunc",
    "round_even": "llvm.roundeven", "round": "llvm.round",
}  # fmt: skip


@rules.rule(n.Const)
def emit_const(cg: Codegen, node: n.Const) -> Emitted:
    return Emitted(cg.literal(node.value, node.dtype), 0)


@rules.rule(n.Arg)
def emit_arg(cg: Codegen, node: n.Arg) -> Emitted:
    return Emitted(operand_name("a", node.name), 0)


@rules.rule(n.BufferLength)
def emit_buffer_length(cg: Codegen, node: n.BufferLength) -> Emitted:
    return Emitted(cg.length(node.buffer), 0)


@rules.rule(n.Id)
def emit_id(cg: Codegen, node: n.Id) -> Emitted:
    if node.which == "group":
        return Emitted(f"%group.{node.axis}", 0)
    return cg.find(("local", node.axis))[0]


# -- arithmetic ------------------------------------------------------------------------------------


@rules.rule(n.Binary)
def emit_binary(cg: Codegen, node: n.Binary) -> Emitted:
    if node.dtype.kind == "x":
        return emit_index_binary(cg, node)
    varying = cg.is_varying(node)
    kind = cg.type(node.dtype, varying)
    a, b = cg.operand(node.lhs, varying), cg.operand(node.rhs, varying)
    if node.dtype.is_float:
        if node.op in FLOAT_OPS:
            return Emitted(cg.new(f"{FLOAT_OPS[node.op]} {kind} {a}, {b}"), form(varying))
        if node.op in ("min", "max") and varying and not (is_const(node.lhs) or is_const(node.rhs)):
            return Emitted(cg.isa.extremum(cg, node.op, node.dtype, a, b), form(varying))
        return Emitted(cg.elementwise(FLOAT_CALLS[node.op], kind, a, b), form(varying))
    return Emitted(integer_binary(cg, node.op, node.dtype, kind, a, b, varying), form(varying))


def is_const(node: n.Instr) -> bool:
    return isinstance(node, n.Const)


def emit_index_binary(cg: Codegen, node: n.Binary) -> Emitted:
    """Index arithmetic stays scalar as long as the lanes differ by a constant stride."""
    left, right = cg.stride(node.lhs), cg.stride(node.rhs)
    stride = index_stride(node, left, right)
    if stride is not None:
        a, b = cg.scalar(node.lhs), index_divisor(cg, node, cg.scalar(node.rhs), False)
        return Emitted(integer_binary(cg, node.op, node.dtype, "i64", a, b, False), stride)
    a, b = cg.vector(node.lhs), index_divisor(cg, node, cg.vector(node.rhs), True)
    return Emitted(integer_binary(cg, node.op, node.dtype, f"<{cg.lanes} x i64>", a, b, True), None)


def index_divisor(cg: Codegen, node: n.Binary, divisor: str, varying: bool) -> str:
    """The right operand; a divisor is at least 1 by the rules of the language, except in lanes that
    are masked off and in programs that nobody has proved."""
    is_trusted = cg.check == "plain" and not varying
    if node.op not in ("div", "mod") or isinstance(node.rhs, n.Const) or is_trusted:
        return divisor
    return cg.elementwise(
        "llvm.umax", cg.type(node.dtype, varying), divisor, cg.constant(1, node.dtype, varying)
    )


def integer_binary(
    cg: Codegen, op: str, dtype: DType, kind: str, a: str, b: str, varying: bool
) -> str:
    if op in INT_OPS:
        return cg.new(f"{INT_OPS[op]} {kind} {a}, {b}")
    if op in ("min", "max"):
        return cg.elementwise(f"llvm.{'s' if dtype.is_signed else 'u'}{op}", kind, a, b)
    if op in ("shl", "shr"):
        count = cg.new(f"and {kind} {b}, {cg.constant(dtype.bits - 1, dtype, varying)}")
        return cg.new(
            f"{'shl' if op == 'shl' else 'ashr' if dtype.is_signed else 'lshr'} {kind} {a}, {count}"
        )
    if dtype.kind == "x":  # operands >= 0, divisor > 0
        return cg.new(f"{'udiv' if op == 'div' else 'urem'} {kind} {a}, {b}")
    if op in ("div", "mod"):
        return safe_division(cg, op, dtype, kind, a, b, varying)
    return integers.other_binary(cg, op, dtype, kind, a, b, varying)


def safe_division(
    cg: Codegen, op: str, dtype: DType, kind: str, a: str, b: str, varying: bool
) -> str:
    """x/0 = 0, x mod 0 = 0, MIN/-1 = MIN, MIN mod -1 = 0; the processor sees a divisor of 1 in
    those cases."""
    flag = cg.mask_type if varying else "i1"
    zero = cg.new(f"icmp eq {kind} {b}, {cg.constant(0, dtype, varying)}")
    unsafe = zero
    if dtype.is_signed:
        low = cg.new(f"icmp eq {kind} {a}, {cg.constant(-(1 << (dtype.bits - 1)), dtype, varying)}")
        minus = cg.new(f"icmp eq {kind} {b}, {cg.constant(-1, dtype, varying)}")
        both = cg.new(f"and {flag} {low}, {minus}")
        unsafe = cg.new(f"or {flag} {zero}, {both}")
    safe = cg.new(f"select {flag} {unsafe}, {kind} {cg.constant(1, dtype, varying)}, {kind} {b}")
    letter = "s" if dtype.is_signed else "u"
    if op == "mod":
        return cg.new(f"{letter}rem {kind} {a}, {safe}")
    quotient = cg.new(f"{letter}div {kind} {a}, {safe}")
    return cg.new(
        f"select {flag} {zero}, {kind} {cg.constant(0, dtype, varying)}, {kind} {quotient}"
    )


@rules.rule(n.Compare)
def emit_compare(cg: Codegen, node: n.Compare) -> Emitted:
    varying = cg.is_varying(node)
    dtype = node.lhs.dtype
    kind = cg.type(dtype, varying)
    a, b = cg.operand(node.lhs, varying), cg.operand(node.rhs, varying)
    if dtype.is_float:
        return Emitted(cg.new(f"fcmp {FLOAT_COMPARE[node.op]} {kind} {a}, {b}"), form(varying))
    letter = "" if node.op in ("eq", "ne") else "s" if dtype.is_signed else "u"
    return Emitted(cg.new(f"icmp {letter}{node.op} {kind} {a}, {b}"), form(varying))


@rules.rule(n.Unary)
def emit_unary(cg: Codegen, node: n.Unary) -> Emitted:
    varying = cg.is_varying(node)
    dtype, kind = node.dtype, cg.type(node.dtype, varying)
    x = cg.operand(node.x, varying)
    if dtype.is_float:
        text = (
            cg.new(f"fneg {kind} {x}")
            if node.op == "neg"
            else cg.elementwise(FLOAT_UNARY[node.op], kind, x)
        )
        return Emitted(text, form(varying))
    return Emitted(integer_unary(cg, node.op, dtype, kind, x, varying), form(varying))


def integer_unary(cg: Codegen, op: str, dtype: DType, kind: str, x: str, varying: bool) -> str:
    if op == "not":
        return cg.new(f"xor {kind} {x}, {cg.constant(-1, dtype, varying)}")
    if op == "neg":
        return cg.new(f"sub {kind} {cg.constant(0, dtype, varying)}, {x}")
    if op in ("popcount", "reverse_bits"):
        return cg.elementwise(f"llvm.{'ctpop' if op == 'popcount' else 'bitreverse'}", kind, x)
    function = {"abs": "llvm.abs", "clz": "llvm.ctlz", "ctz": "llvm.cttz"}[op]
    if op == "abs" and not dtype.is_signed:
        return x
    return cg.call(kind, f"{function}.{cg.suffix(kind)}", (kind, x), ("i1", "false"))


@rules.rule(n.Select)
def emit_select(cg: Codegen, node: n.Select) -> Emitted:
    varying = cg.is_varying(node)
    kind = cg.type(node.dtype, varying)
    a, b = cg.operand(node.a, varying), cg.operand(node.b, varying)
    cond_varying = cg.is_varying(node.cond)
    cond = cg.operand(node.cond, cond_varying)
    flag = cg.mask_type if cond_varying else "i1"
    return Emitted(cg.new(f"select {flag} {cond}, {kind} {a}, {kind} {b}"), form(varying))


@rules.rule(n.Cast)
def emit_cast(cg: Codegen, node: n.Cast) -> Emitted:
    varying = cg.is_varying(node)
    return Emitted(
        convert.cast(cg, cg.operand(node.x, varying), node.x.dtype, node.dtype, varying),
        form(varying),
    )


@rules.rule(n.Bitcast)
def emit_bitcast(cg: Codegen, node: n.Bitcast) -> Emitted:
    varying = cg.is_varying(node)
    source, kind = cg.type(node.x.dtype, varying), cg.type(node.dtype, varying)
    x = cg.operand(node.x, varying)
    return Emitted(
        x if source == kind else cg.new(f"bitcast {source} {x} to {kind}"), form(varying)
    )


@rules.rule(n.Fma)
def emit_fma(cg: Codegen, node: n.Fma) -> Emitted:
    varying = cg.is_varying(node)
    kind = cg.type(node.dtype, varying)
    operands = (cg.operand(x, varying) for x in (node.a, node.b, node.c))
    return Emitted(cg.elementwise("llvm.fma", kind, *operands), form(varying))


@rules.rule(n.Dot4)
def emit_dot4(cg: Codegen, node: n.Dot4) -> Emitted:
    varying = cg.is_varying(node)
    acc, u, s = (cg.operand(x, varying) for x in (node.acc, node.u, node.s))
    made = cg.isa.dot4(cg, node, acc, u, s) if varying else None
    return Emitted(made or dots.dot4_portable(cg, node, acc, u, s, varying), form(varying))


@rules.rule(n.Dot2)
def emit_dot2(cg: Codegen, node: n.Dot2) -> Emitted:
    varying = cg.is_varying(node)
    acc, a, b = (cg.operand(x, varying) for x in (node.acc, node.a, node.b))
    made = cg.isa.dot2(cg, acc, a, b) if varying else None
    return Emitted(made or dots.dot2_portable(cg, acc, a, b, varying), form(varying))


@rules.rule(n.Lookup)
def emit_lookup(cg: Codegen, node: n.Lookup) -> Emitted:
    varying = cg.is_varying(node)
    x = cg.operand(node.x, varying)
    made = cg.isa.lookup(cg, node.table, x) if varying else None
    return Emitted(made or lookups.lookup_portable(cg, node.table, x, varying), form(varying))


# -- lanes -----------------------------------------------------------------------------------------


@rules.rule(n.Shuffle)
def emit_shuffle(cg: Codegen, node: n.Shuffle) -> Emitted:
    """A workgroup that is not a power of two ends inside its vector: what comes from `b` lies
    further up."""
    count = len(node.lanes)
    if not cg.is_varying(node):
        return Emitted(cg.scalar(node.b if node.lanes[0] >= count else node.a), 0)
    kind = cg.vector_type(node.dtype)
    chosen = [i if i < count else i - count + cg.lanes for i in node.lanes] + [0] * (
        cg.lanes - count
    )
    lanes = ", ".join(f"i32 {i}" for i in chosen)
    a, b = cg.vector(node.a), cg.vector(node.b)
    return Emitted(
        cg.new(f"shufflevector {kind} {a}, {kind} {b}, <{cg.lanes} x i32> <{lanes}>"), None
    )


@rules.rule(n.Permute)
def emit_permute(cg: Codegen, node: n.Permute) -> Emitted:
    """Entries move as words, whatever they stand for."""
    if not cg.is_varying(node.x):
        return Emitted(cg.scalar(node.x), 0)
    kind, word = cg.vector_type(node.dtype), f"<{cg.lanes} x i32>"
    x, at = cg.vector(node.x), cg.vector(node.at)
    entries = x if kind == word else cg.new(f"bitcast {kind} {x} to {word}")
    found = cg.isa.permute(cg, entries, at) or lookups.permute_portable(cg, entries, at)
    return Emitted(found if kind == word else cg.new(f"bitcast {word} {found} to {kind}"), None)


@rules.rule(n.Broadcast)
def emit_broadcast(cg: Codegen, node: n.Broadcast) -> Emitted:
    if not cg.is_varying(node.x):
        return Emitted(cg.scalar(node.x), 0)
    return Emitted(
        cg.new(f"extractelement {cg.vector_type(node.dtype)} {cg.vector(node.x)}, i64 {node.lane}"),
        0,
    )


@rules.rule(n.Vote)
def emit_vote(cg: Codegen, node: n.Vote) -> Emitted:
    if not cg.is_varying(node.x):
        return Emitted(cg.scalar(node.x), 0)
    x = cg.vector(node.x)
    if node.op == "any":
        return Emitted(cg.any_lane(cg.with_mask(x)), 0)
    failing = cg.with_mask(cg.new(f"xor {cg.mask_type} {x}, {cg.splat(True, node.dtype)}"))
    return Emitted(cg.new(f"xor i1 {cg.any_lane(failing)}, true"), 0)
