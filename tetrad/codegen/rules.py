"""Code generation, the rules: one function per kernel instruction, kernel node in, LLVM text out.

Basic-block graphs are drawn in docstrings. Under a mask, inactive lanes never touch memory and never trap the
processor: divisors are made safe, shift counts are masked, loads and stores are masked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tetrad.codegen import convert, dots
from tetrad.codegen.emitter import Codegen, Emitted, Rules, operand_name
from tetrad.core.dtypes import DType, bool_, i32, index
from tetrad.kernel import nodes as n

rules = Rules()

LINE = 64  # bytes of a cache line

FLOAT_OPS = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
INT_OPS = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
FLOAT_CALLS = {"min": "llvm.minimum", "max": "llvm.maximum", "copysign": "llvm.copysign"}
FLOAT_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
FLOAT_UNARY = {
    "abs": "llvm.fabs", "sqrt": "llvm.sqrt", "floor": "llvm.floor", "ceil": "llvm.ceil", "trunc": "llvm.trunc",
    "round_even": "llvm.roundeven", "round": "llvm.round",
}  # fmt: skip


def form(varying: bool) -> int | None:
    return None if varying else 0


@rules.rule(n.Const)
def emit_const(cg: Codegen, node: n.Const) -> Emitted:
    return Emitted(cg.literal(node.value, node.dtype), 0)


@rules.rule(n.Arg)
def emit_arg(cg: Codegen, node: n.Arg) -> Emitted:
    return Emitted(operand_name("a", node.name), 0)


@rules.rule(n.Id)
def emit_id(cg: Codegen, node: n.Id) -> Emitted:
    if node.which == "group":
        return Emitted(f"%group.{node.axis}", 0)
    return cg.find(("local", node.axis))[0]


# -- arithmetic -------------------------------------------------------------------------------------------------------


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
        return Emitted(cg.elementwise(FLOAT_CALLS[node.op], kind, a, b), form(varying))
    return Emitted(integer_binary(cg, node.op, node.dtype, kind, a, b, varying), form(varying))


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
    """The right operand; a divisor is at least 1 by the rules of the language, except in lanes that are masked off and
    in programs that nobody has proved."""
    is_trusted = cg.check == "plain" and not varying
    if node.op not in ("div", "mod") or isinstance(node.rhs, n.Const) or is_trusted:
        return divisor
    return cg.elementwise("llvm.umax", cg.type(node.dtype, varying), divisor, constant(cg, 1, node.dtype, varying))


def index_stride(node: n.Binary, left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return None
    if node.op in ("add", "sub"):
        return left + right if node.op == "add" else left - right
    if left == 0 and right == 0:
        return 0
    if node.op == "mul" and isinstance(node.rhs, n.Const):
        return left * int(node.rhs.value)
    if node.op == "mul" and isinstance(node.lhs, n.Const):
        return right * int(node.lhs.value)
    return None


def integer_binary(cg: Codegen, op: str, dtype: DType, kind: str, a: str, b: str, varying: bool) -> str:
    if op in INT_OPS:
        return cg.new(f"{INT_OPS[op]} {kind} {a}, {b}")
    if op in ("min", "max"):
        return cg.elementwise(f"llvm.{'s' if dtype.is_signed else 'u'}{op}", kind, a, b)
    if op in ("shl", "shr"):
        count = cg.new(f"and {kind} {b}, {constant(cg, dtype.bits - 1, dtype, varying)}")
        return cg.new(f"{'shl' if op == 'shl' else 'ashr' if dtype.is_signed else 'lshr'} {kind} {a}, {count}")
    if dtype.kind == "x":  # operands >= 0, divisor > 0
        return cg.new(f"{'udiv' if op == 'div' else 'urem'} {kind} {a}, {b}")
    return safe_division(cg, op, dtype, kind, a, b, varying)


def safe_division(cg: Codegen, op: str, dtype: DType, kind: str, a: str, b: str, varying: bool) -> str:
    """x/0 = 0, x mod 0 = 0, MIN/-1 = MIN, MIN mod -1 = 0; the processor sees a divisor of 1 in those cases."""
    flag = cg.mask_type if varying else "i1"
    zero = cg.new(f"icmp eq {kind} {b}, {constant(cg, 0, dtype, varying)}")
    unsafe = zero
    if dtype.is_signed:
        low = cg.new(f"icmp eq {kind} {a}, {constant(cg, -(1 << (dtype.bits - 1)), dtype, varying)}")
        minus = cg.new(f"icmp eq {kind} {b}, {constant(cg, -1, dtype, varying)}")
        both = cg.new(f"and {flag} {low}, {minus}")
        unsafe = cg.new(f"or {flag} {zero}, {both}")
    safe = cg.new(f"select {flag} {unsafe}, {kind} {constant(cg, 1, dtype, varying)}, {kind} {b}")
    letter = "s" if dtype.is_signed else "u"
    if op == "mod":
        return cg.new(f"{letter}rem {kind} {a}, {safe}")
    quotient = cg.new(f"{letter}div {kind} {a}, {safe}")
    return cg.new(f"select {flag} {zero}, {kind} {constant(cg, 0, dtype, varying)}, {kind} {quotient}")


def constant(cg: Codegen, value: int, dtype: DType, varying: bool) -> str:
    return cg.splat(value, dtype) if varying else cg.literal(value, dtype)


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
        text = cg.new(f"fneg {kind} {x}") if node.op == "neg" else cg.elementwise(FLOAT_UNARY[node.op], kind, x)
        return Emitted(text, form(varying))
    return Emitted(integer_unary(cg, node.op, dtype, kind, x, varying), form(varying))


def integer_unary(cg: Codegen, op: str, dtype: DType, kind: str, x: str, varying: bool) -> str:
    if op == "not":
        return cg.new(f"xor {kind} {x}, {constant(cg, -1, dtype, varying)}")
    if op == "neg":
        return cg.new(f"sub {kind} {constant(cg, 0, dtype, varying)}, {x}")
    if op == "popcount":
        return cg.elementwise("llvm.ctpop", kind, x)
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
    return Emitted(convert.cast(cg, cg.operand(node.x, varying), node.x.dtype, node.dtype, varying), form(varying))


@rules.rule(n.Bitcast)
def emit_bitcast(cg: Codegen, node: n.Bitcast) -> Emitted:
    varying = cg.is_varying(node)
    source, kind = cg.type(node.x.dtype, varying), cg.type(node.dtype, varying)
    x = cg.operand(node.x, varying)
    return Emitted(x if source == kind else cg.new(f"bitcast {source} {x} to {kind}"), form(varying))


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
    if varying:
        return Emitted(dots.dot4(cg, node, acc, u, s), None)
    return Emitted(dots.dot4_portable(cg, node, acc, u, s, False), 0)


# -- lanes ------------------------------------------------------------------------------------------------------------


@rules.rule(n.Shuffle)
def emit_shuffle(cg: Codegen, node: n.Shuffle) -> Emitted:
    """A workgroup that is not a power of two ends inside its vector: what comes from `b` lies further up."""
    count = len(node.lanes)
    if not cg.is_varying(node):
        return Emitted(cg.scalar(node.b if node.lanes[0] >= count else node.a), 0)
    kind = cg.vector_type(node.dtype)
    chosen = [i if i < count else i - count + cg.lanes for i in node.lanes] + [0] * (cg.lanes - count)
    lanes = ", ".join(f"i32 {i}" for i in chosen)
    a, b = cg.vector(node.a), cg.vector(node.b)
    return Emitted(cg.new(f"shufflevector {kind} {a}, {kind} {b}, <{cg.lanes} x i32> <{lanes}>"), None)


@rules.rule(n.Broadcast)
def emit_broadcast(cg: Codegen, node: n.Broadcast) -> Emitted:
    if not cg.is_varying(node.x):
        return Emitted(cg.scalar(node.x), 0)
    return Emitted(cg.new(f"extractelement {cg.vector_type(node.dtype)} {cg.vector(node.x)}, i64 {node.lane}"), 0)


@rules.rule(n.Vote)
def emit_vote(cg: Codegen, node: n.Vote) -> Emitted:
    if not cg.is_varying(node.x):
        return Emitted(cg.scalar(node.x), 0)
    x = cg.vector(node.x)
    if node.op == "any":
        return Emitted(cg.any_lane(cg.with_mask(x)), 0)
    failing = cg.with_mask(cg.new(f"xor {cg.mask_type} {x}, {cg.splat(True, node.dtype)}"))
    return Emitted(cg.new(f"xor i1 {cg.any_lane(failing)}, true"), 0)


# -- memory -----------------------------------------------------------------------------------------------------------


@rules.rule(n.Load)
def emit_load(cg: Codegen, node: n.Load) -> Emitted:
    if cg.check == "plain":
        return load(cg, node)
    inside = in_bounds(cg, node.buffer, node.at)
    if cg.stride(node.at) != 0:
        with cg.narrowed(inside):
            return load(cg, node)
    varying = cg.is_varying(node)
    kind = cg.type(node.dtype, varying)
    result = cg.alloca(kind)
    cg.line(f"store {kind} zeroinitializer, ptr {result}")
    with guarded(cg, inside):
        cg.line(f"store {kind} {load(cg, node).text}, ptr {result}")
    return Emitted(cg.new(f"load {kind}, ptr {result}"), form(varying))


def load(cg: Codegen, node: n.Load) -> Emitted:
    stride = cg.stride(node.at)
    dtype, kind = node.dtype, cg.memory_type(node.dtype)
    if stride == 0:
        raw = cg.new(f"load {kind}, ptr {cg.pointer(node.buffer, cg.scalar(node.at))}, align {dtype.nbytes}")
        return varied(cg, Emitted(from_memory(cg, raw, dtype, False), 0), node)
    wide = f"<{cg.lanes} x {kind}>"
    if stride == 1:
        pointer = cg.pointer(node.buffer, cg.scalar(node.at))
        if cg.mask is None:
            raw = cg.new(f"load {wide}, ptr {pointer}, align {dtype.nbytes}")
        else:
            name = f"llvm.masked.load.{cg.suffix(wide)}.p0"
            raw = masked_load(cg, name, wide, "ptr", pointer, dtype)
        return Emitted(from_memory(cg, raw, dtype, True), None)
    if stride == 2 and cg.mask is None and cg.lanes > 1:
        return Emitted(from_memory(cg, every_second(cg, node, wide), dtype, True), None)
    pointers = cg.pointers(node.buffer, cg.vector(node.at))
    name = f"llvm.masked.gather.{cg.suffix(wide)}.v{cg.lanes}p0"
    raw = masked_load(cg, name, wide, f"<{cg.lanes} x ptr>", pointers, dtype)
    return Emitted(from_memory(cg, raw, dtype, True), None)


def every_second(cg: Codegen, node: n.Load, wide: str) -> str:
    """Two plain loads, from the first element to the last that is wanted and not beyond, and a choice from both."""
    lanes, first = cg.lanes, cg.scalar(node.at)
    starts = first, cg.new(f"add nsw i64 {first}, {lanes - 1}")
    halves = [cg.new(f"load {wide}, ptr {cg.pointer(node.buffer, at)}, align {node.dtype.nbytes}") for at in starts]
    chosen = (2 * i if 2 * i < lanes else 2 * i + 1 for i in range(lanes))  # lane j of the second is lanes - 1 + j
    picked = ", ".join(f"i32 {i}" for i in chosen)
    return cg.new(f"shufflevector {wide} {halves[0]}, {wide} {halves[1]}, <{lanes} x i32> <{picked}>")


def varied(cg: Codegen, emitted: Emitted, node: n.Value) -> Emitted:
    """A scalar result as a vector when the analysis calls the value varying (a uniform address of written memory)."""
    if not cg.is_varying(node):
        return emitted
    return Emitted(cg.broadcast(emitted.text, node.dtype), None)


def masked_load(cg: Codegen, name: str, wide: str, pointer_type: str, pointer: str, dtype: DType) -> str:
    mask = cg.mask or "splat (i1 true)"
    operands = ((pointer_type, pointer), ("i32", str(dtype.nbytes)), (cg.mask_type, mask), (wide, "zeroinitializer"))
    return cg.call(wide, name, *operands)


@rules.rule(n.Store)
def emit_store(cg: Codegen, node: n.Store) -> None:
    if cg.check == "plain":
        store(cg, node)
        return
    inside = in_bounds(cg, node.buffer, node.at)
    if cg.stride(node.at) != 0:
        with cg.narrowed(inside):
            store(cg, node)
        return
    with guarded(cg, inside):
        store(cg, node)


def in_bounds(cg: Codegen, buffer: n.Buffer, at: n.Value) -> str:
    """The lanes (or, for a uniform index, the scalar condition) whose index lies inside the buffer.

    In "trap" mode an active lane outside stops the launch with a code that names the buffer, and the index.
    """
    varying = cg.stride(at) != 0
    position = cg.operand(at, varying)
    bound = cg.broadcast(cg.length(buffer), index) if varying else cg.length(buffer)
    inside = cg.new(f"icmp ult {cg.type(index, varying)} {position}, {bound}")
    if cg.check == "trap":
        outside = cg.new(f"xor {cg.type(bool_, varying)} {inside}, {constant(cg, -1, bool_, varying)}")
        trap_if(cg, outside, position, BOUNDS_TRAP + cg.program.buffers.index(buffer), varying)
    return inside


def store(cg: Codegen, node: n.Store) -> None:
    stride, dtype = cg.stride(node.at), node.value.dtype
    if stride == 0:
        store_once(cg, node)
        return
    value = to_memory(cg, cg.vector(node.value), dtype, True)
    wide = f"<{cg.lanes} x {cg.memory_type(dtype)}>"
    if stride == 1 and cg.mask is None:
        pointer = cg.pointer(node.buffer, cg.scalar(node.at))
        plain = f"store {wide} {value}, ptr {pointer}, align {dtype.nbytes}"
        if node.hint == "stream" and cg.lanes * dtype.nbytes % LINE == 0:
            store_around(cg, plain, f"store {wide} {value}, ptr {pointer}, align {LINE}", pointer)
        else:
            cg.line(plain)
        return
    align, mask = ("i32", str(dtype.nbytes)), (cg.mask_type, cg.mask or "splat (i1 true)")
    if stride == 1:
        pointer = cg.pointer(node.buffer, cg.scalar(node.at))
        cg.call("void", f"llvm.masked.store.{cg.suffix(wide)}.p0", (wide, value), ("ptr", pointer), align, mask)
        return
    if stride == 2 and cg.mask is None:
        store_every_second(cg, cg.pointer(node.buffer, cg.scalar(node.at)), value, wide, dtype)
        return
    pointers = (f"<{cg.lanes} x ptr>", cg.pointers(node.buffer, cg.vector(node.at)))
    cg.call("void", f"llvm.masked.scatter.{cg.suffix(wide)}.v{cg.lanes}p0", (wide, value), pointers, align, mask)


def store_every_second(cg: Codegen, pointer: str, value: str, wide: str, dtype: DType) -> None:
    """Lane by lane at fixed distances: a scatter would make every address in a register of its own."""
    kind = cg.memory_type(dtype)
    for lane in range(cg.lanes):
        element = cg.new(f"extractelement {wide} {value}, i64 {lane}")
        place = cg.new(f"getelementptr {kind}, ptr {pointer}, i64 {2 * lane}")
        cg.line(f"store {kind} {element}, ptr {place}, align {dtype.nbytes}")


def store_around(cg: Codegen, plain: str, aligned: str, pointer: str) -> None:
    """Whole cache lines go to memory without being read first; only possible at a line's address.

    here -[aligned]-> around -> done;  -> through -> done
    """
    cg.uses_nontemporal = True
    around, through, done = (cg.name(stem) for stem in ("around", "through", "done"))
    rest = cg.new(f"and i64 {cg.new(f'ptrtoint ptr {pointer} to i64')}, {LINE - 1}")
    cg.line(f"br i1 {cg.new(f'icmp eq i64 {rest}, 0')}, label {around}, label {through}")
    cg.label(around)
    cg.line(f"{aligned}, !nontemporal !0")
    cg.line(f"br label {done}")
    cg.label(through)
    cg.line(plain)
    cg.line(f"br label {done}")
    cg.label(done)


def store_once(cg: Codegen, node: n.Store) -> None:
    """A uniform address is written once: by lane 0, or under a mask if any lane is active."""
    dtype = node.value.dtype
    with guarded(cg, None if cg.mask is None else cg.any_lane(cg.mask)):
        value = cg.vector(node.value) if cg.is_varying(node.value) else cg.scalar(node.value)
        if cg.is_varying(node.value):
            value = cg.new(f"extractelement {cg.vector_type(dtype)} {value}, i64 0")
        raw = to_memory(cg, value, dtype, False)
        pointer = cg.pointer(node.buffer, cg.scalar(node.at))
        cg.line(f"store {cg.memory_type(dtype)} {raw}, ptr {pointer}, align {dtype.nbytes}")


def from_memory(cg: Codegen, raw: str, dtype: DType, varying: bool) -> str:
    if dtype.name != "bool":
        return raw
    kind = f"<{cg.lanes} x i8>" if varying else "i8"
    return cg.new(f"icmp ne {kind} {raw}, {'zeroinitializer' if varying else '0'}")


def to_memory(cg: Codegen, value: str, dtype: DType, varying: bool) -> str:
    if dtype.name != "bool":
        return value
    kind, memory = cg.type(dtype, varying), f"<{cg.lanes} x i8>" if varying else "i8"
    return cg.new(f"zext {kind} {value} to {memory}")


@rules.rule(n.Prefetch)
def emit_prefetch(cg: Codegen, node: n.Prefetch) -> None:
    """One line is fetched, that of lane 0: neighbours are mostly in it, and a wrong address does no harm."""
    if cg.stride(node.at) is None:
        at = cg.new(f"extractelement <{cg.lanes} x i64> {cg.vector(node.at)}, i64 0")
    else:
        at = cg.scalar(node.at)
    pointer = cg.pointer(node.buffer, at)
    cg.call("void", "llvm.prefetch.p0", ("ptr", pointer), ("i32", "0"), ("i32", "2"), ("i32", "1"))


# -- locals and control flow ------------------------------------------------------------------------------------------


@rules.rule(n.Local)
def emit_local(cg: Codegen, node: n.Local) -> Emitted:
    varying = cg.is_varying(node)
    kind = cg.type(node.dtype, varying)
    slot = cg.find(node)[0].text if cg.is_known(node) else cg.alloca(kind)
    cg.line(f"store {kind} {cg.operand(node.init, varying)}, ptr {slot}")
    return Emitted(slot, form(varying))


@rules.rule(n.Get)
def emit_get(cg: Codegen, node: n.Get) -> Emitted:
    varying = cg.is_varying(node.local)
    slot = cg.find(node.local)[0].text
    return Emitted(cg.new(f"load {cg.type(node.dtype, varying)}, ptr {slot}"), form(varying))


@rules.rule(n.Set)
def emit_set(cg: Codegen, node: n.Set) -> None:
    varying = cg.is_varying(node.local)
    kind, slot = cg.type(node.local.dtype, varying), cg.find(node.local)[0].text
    value = cg.operand(node.value, varying)
    if varying and cg.mask is not None:
        old = cg.new(f"load {kind}, ptr {slot}")
        value = cg.new(f"select {cg.mask_type} {cg.mask}, {kind} {value}, {kind} {old}")
    cg.line(f"store {kind} {value}, ptr {slot}")


@rules.rule(n.For)
def emit_for(cg: Codegen, node: n.For) -> None:
    """here -[start < stop]-> body -> ... -[next < stop]-> body;  -> done"""
    start, stop = cg.scalar(node.start), cg.scalar(node.stop)
    slot = cg.alloca("i64")
    body, done = cg.name("body"), cg.name("done")
    with cg.child() as scope:
        cg.label(body)
        counter = cg.new(f"load i64, ptr {slot}")
        cg.set(node.counter, Emitted(counter, 0))
        cg.run(node.body)
        following = cg.stepped(counter, node.step)
        cg.line(f"store i64 {following}, ptr {slot}")
        again = cg.new(f"icmp slt i64 {following}, {stop}")
        cg.line(f"br i1 {again}, label {body}, label {done}")
        cg.label(done)
    cg.line(f"store i64 {start}, ptr {slot}")
    first = cg.new(f"icmp slt i64 {start}, {stop}")
    cg.line(f"br i1 {first}, label {body}, label {done}")
    cg.splice(scope)


@rules.rule(n.If)
def emit_if(cg: Codegen, node: n.If) -> None:
    if not cg.is_varying(node.cond):
        uniform_if(cg, node)
    elif cg.mask is None and not node.orelse and convert.is_guard(cg, node.cond):
        guard_if(cg, node)
    else:
        divergent_if(cg, node)


def uniform_if(cg: Codegen, node: n.If) -> None:
    """here -[cond]-> then -> done;  else -> orelse -> done"""
    cond = cg.scalar(node.cond)
    then, orelse, done = cg.name("then"), cg.name("else"), cg.name("done")
    first = emit_block(cg, then, node.then, done)
    second = emit_block(cg, orelse, node.orelse, done)
    cg.line(f"br i1 {cond}, label {then}, label {orelse}")
    for lines in (first, second):
        cg.scopes[-1].lines.extend(lines)
    cg.label(done)


def emit_block(cg: Codegen, label: str, block: n.Block, done: str) -> list[str]:
    with cg.child() as scope:
        cg.label(label)
        cg.run(block)
        cg.line(f"br label {done}")
    return scope.lines


def guard_if(cg: Codegen, node: n.If) -> None:
    """if lane index < bound: here -[all lanes]-> full (no mask) -> done;  -[some]-> part (mask) -> done;  -> done

    The full path costs one scalar compare; only the last workgroup takes the other.
    """
    if not isinstance(node.cond, n.Compare):
        raise TypeError("a guard is a comparison")
    base, bound = cg.scalar(node.cond.lhs), cg.scalar(node.cond.rhs)
    full, test, part, done = (cg.name(stem) for stem in ("full", "test", "part", "done"))
    left = cg.new(f"sub i64 {bound}, {base}")
    with cg.child() as whole:
        cg.label(full)
        cg.run(node.then)
        cg.line(f"br label {done}")
        cg.label(test)
        some = cg.new(f"icmp sgt i64 {left}, 0")
        cg.line(f"br i1 {some}, label {part}, label {done}")
    with cg.child() as partial:
        cg.label(part)
        few = cg.broadcast(cg.new(f"trunc i64 {left} to i32"), i32)
        cg.mask = cg.new(f"icmp slt <{cg.lanes} x i32> {cg.iota('i32')}, {few}")
        cg.run(node.then)
        cg.line(f"br label {done}")
        cg.label(done)
    everyone = cg.new(f"icmp sge i64 {left}, {cg.lanes}")
    cg.line(f"br i1 {everyone}, label {full}, label {test}")
    cg.splice(whole)
    cg.splice(partial)


def divergent_if(cg: Codegen, node: n.If) -> None:
    """Both sides run one after the other, each under its mask, and are skipped when no lane needs them."""
    cond = cg.vector(node.cond)
    sides = [(cond, node.then)]
    if node.orelse:
        sides.append((cg.new(f"xor {cg.mask_type} {cond}, splat (i1 true)"), node.orelse))
    for chosen, block in sides:
        mask = cg.with_mask(chosen)
        with guarded(cg, cg.any_lane(mask)):
            cg.mask = mask
            cg.run(block)


class guarded:
    """with guarded(cg, cond): ... runs only if the scalar cond holds (None: always).  here -[cond]-> do -> done

    The branch is written when the block ends, after whatever the block hoisted.
    """

    def __init__(self, cg: Codegen, cond: str | None) -> None:
        self.cg, self.cond = cg, cond

    def __enter__(self) -> None:
        if self.cond is None:
            return
        self.do, self.done = self.cg.name("do"), self.cg.name("done")
        self.child = self.cg.child()
        self.scope = self.child.__enter__()
        self.cg.label(self.do)

    def __exit__(self, *exc: object) -> None:
        if self.cond is None or exc[0] is not None:
            return
        self.cg.line(f"br label {self.done}")
        self.cg.label(self.done)
        self.child.__exit__(None, None, None)
        self.cg.line(f"br i1 {self.cond}, label {self.do}, label {self.done}")
        self.cg.splice(self.scope)


@rules.rule(n.Barrier)
def emit_barrier(cg: Codegen, node: n.Barrier) -> None:
    """One vector is one workgroup: its lanes never part, so there is nothing to wait for."""


@rules.rule(n.Trap)
def emit_trap(cg: Codegen, node: n.Trap) -> None:
    varying = cg.is_varying(node.cond) or cg.is_varying(node.value)
    trap_if(cg, cg.operand(node.cond, varying), cg.operand(node.value, varying), node.code, varying)


def trap_if(cg: Codegen, cond: str, value: str, code: int, varying: bool) -> None:
    """here -[any active lane]-> report the first one, return;  -> on"""
    if varying:
        lanes = cg.with_mask(cond)
        cond = cg.any_lane(lanes)
    elif cg.mask is not None:
        cond = cg.new(f"and i1 {cond}, {cg.any_lane(cg.mask)}")
    with guarded(cg, cond):
        report = first_lane(cg, lanes, value) if varying else value
        cg.declares["tetrad.trap"] = TRAP
        marked = cg.new(f"or i64 %tag, {code}")
        cg.line(f"call void @tetrad.trap(ptr %status, i64 {marked}, i64 {report})")
        cg.line("ret void")
        cg.label(cg.name("unreached"))


def first_lane(cg: Codegen, mask: str, values: str) -> str:
    bits = cg.new(f"bitcast {cg.mask_type} {mask} to i{cg.lanes}")
    word = f"i{max(cg.lanes, 64)}"
    wide = bits if cg.lanes >= 64 else cg.new(f"zext i{cg.lanes} {bits} to i64")
    lane = cg.call(word, f"llvm.cttz.{word}", (word, wide), ("i1", "true"))
    lane = lane if cg.lanes <= 64 else cg.new(f"trunc {word} {lane} to i64")
    return cg.new(f"extractelement <{cg.lanes} x i64> {values}, i64 {lane}")


BOUNDS_TRAP = 0x8000  # code of a bounds check of the program's first buffer, counting up; other traps are below
TRAP = """define internal void @tetrad.trap(ptr %status, i64 %code, i64 %value) noinline cold {
  %won = cmpxchg ptr %status, i64 0, i64 %code acq_rel monotonic
  %first = extractvalue { i64, i1 } %won, 1
  br i1 %first, label %write, label %done
write:
  %slot = getelementptr i64, ptr %status, i64 1
  store i64 %value, ptr %slot
  br label %done
done:
  ret void
}"""


@rules.rule(n.Foreign)
def emit_foreign(cg: Codegen, node: n.Foreign) -> None:
    """Everything by address: integers and characters lie in slots of this frame, each set before the call."""
    numbers = iter(node.numbers)
    memory = iter(zip(node.buffers, node.at, strict=True))
    operands = [foreign_operand(cg, letter, numbers, memory) for letter in node.form]
    operands += ["i64 1" for letter in node.form if letter.isupper()]  # the lengths of characters
    function = cg.new(f"inttoptr i64 {cg.scalar(node.routine)} to ptr")  # code of another library: no buffer of ours
    cg.line(f"call void {function}({', '.join(operands)})")


def foreign_operand(
    cg: Codegen, letter: str, numbers: Iterator[n.Value], memory: Iterator[tuple[n.Buffer, n.Value]]
) -> str:
    if letter == "m":
        buffer, at = next(memory)
        return f"ptr {cg.pointer(buffer, cg.scalar(at))}"
    kind, value = ("i8", str(ord(letter))) if letter.isupper() else ("i64", cg.scalar(next(numbers)))
    if letter == "j":
        kind, value = "i32", cg.new(f"trunc i64 {value} to i32")
    slot = cg.alloca(kind)
    cg.line(f"store {kind} {value}, ptr {slot}")
    return f"ptr {slot}"


@rules.rule(n.Region)
def emit_region(cg: Codegen, node: n.Region) -> None:
    cg.line(f"; region {json.dumps(node.generator)}")
    cg.run(node.body)
