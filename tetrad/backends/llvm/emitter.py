"""Code generation, the emitter's workbench: a kernel program becomes LLVM text, one rule per
instruction.

The CPU runs an invocation as a vector lane. Every value has one of three forms: *uniform* (a
scalar, the same in all lanes), *varying* (`<L x T>`), or *affine* (an index known as lane 0's
scalar plus a constant stride). This file keeps scopes, forms and masks; `backends.llvm.rules` holds
the rules, `backends.llvm.convert` the casts. What comes out is text for `backends.cpu.llvm`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tetrad.backends.llvm.target import Target
from tetrad.core.dtypes import DType
from tetrad.core.errors import CompileError
from tetrad.core.record import field, record
from tetrad.kernel import nodes as n

LLVM_TYPES = {
    "f16": "half", "bf16": "i16", "f32": "float", "f64": "double", "i8": "i8", "i16": "i16",
    "i32": "i32", "i64": "i64",
    "u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64", "bool": "i1", "index": "i64",
}  # fmt: skip
SUFFIXES = {"half": "f16", "float": "f32", "double": "f64"}


@record
class Emitted:
    """An LLVM operand and its form: stride None = varying vector, 0 = uniform scalar, else affine
    (lane 0's scalar)."""

    text: str
    stride: int | None


def form(varying: bool) -> int | None:
    """The stride of a value that is not affine."""
    return None if varying else 0


def index_stride(node: n.Binary, left: int | None, right: int | None) -> int | None:
    """How an index made of two others changes from lane to lane; None when not by a constant."""
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


@record
class Chain:
    """A byte dot product still in 16-bit pairs: acc + the widened pairs, no pair above `most` in
    magnitude."""

    acc: str
    pairs: tuple[str, ...]
    most: int


@record(frozen=False)
class Scope:
    """One block being emitted: its lines, and the operands known in it."""

    lines: list[str] = field(default_factory=list)
    known: dict[object, Emitted] = field(default_factory=dict)
    chains: dict[n.Instr, Chain] = field(default_factory=dict)


Rule = Callable[["Codegen", n.Instr], "Emitted | None"]


class EmitterRules:
    """Kernel instruction type -> function that emits it."""

    def __init__(self, *others: EmitterRules) -> None:
        self.table: dict[type[n.Instr], Rule] = {
            kind: rule for rules in others for kind, rule in rules.table.items()
        }

    def rule(
        self, kind: type[n.Instr]
    ) -> Callable[[Callable[..., Emitted | None]], Callable[..., Emitted | None]]:
        def register(function: Callable[..., Emitted | None]) -> Callable[..., Emitted | None]:
            self.table[kind] = function
            return function

        return register


class Codegen:
    """The state of emitting one program. Lines go to the innermost scope; a broadcast goes to the
    scope that defined the value, which hoists it out of loops."""

    def __init__(
        self,
        program: n.Program,
        target: Target,
        rules: EmitterRules,
        varying: set[n.Instr],
        lanes: int,
        check: str,
    ) -> None:
        self.program, self.target, self.rules, self.varying = program, target, rules, varying
        self.isa = target.isa
        self.lanes = lanes
        self.check = check  # "plain", "mask" (out of range reads 0, writes nothing) or "trap"
        self.mask: str | None = None
        # masks that are mostly full -> the scalar that says so
        self.full: dict[str | None, str] = {}
        self.scopes = [Scope()]
        self.last_dot: n.Instr | None = None  # the byte dot product emitted last
        self.entry: list[str] = []  # allocas
        self.declares: dict[str, str] = {}
        self.uses_nontemporal = False
        self.regions: list[str] = []  # generators of the enclosing regions
        # how blocks run where a workgroup is several vectors
        self.divide: Callable[[n.Block], None] | None = None
        self.trips: str | None = None  # counts those of loops that end by their data
        self._count = 0

    # -- text --------------------------------------------------------------------------------------

    def name(self, stem: str = "t") -> str:
        self._count += 1
        return f"%{stem}{self._count}"

    def line(self, text: str) -> None:
        self.scopes[-1].lines.append("  " + text)

    def label(self, name: str) -> None:
        self.scopes[-1].lines.append(name[1:] + ":")

    def new(self, text: str, scope: Scope | None = None) -> str:
        """`%t = text` in the given (default: innermost) scope."""
        result = self.name()
        (scope or self.scopes[-1]).lines.append(f"  {result} = {text}")
        return result

    def stepped(self, counter: str, step: int) -> str:
        """The counter of a loop after an iteration, through an empty instruction that LLVM cannot
        look into.

        What it cannot count it does not rewrite: making addresses out of counters took a third of
        all compile time, for code that is no quicker, since addresses of x86 are sums of a base and
        a scaled counter anyway.
        """
        following = self.new(f"add nsw i64 {counter}, {step}")
        return self.new(self.hidden(following)) if self.isa.register else following

    def hidden(self, number: str) -> str:
        """A 64-bit number through an empty instruction."""
        return f'call i64 asm "", "={self.isa.register},0"(i64 {number})'

    def leave_if_stopped(self) -> None:
        """Return from the kernel when the run is to stop: nobody will look at its results."""
        at, on = self.new(f"getelementptr i64, ptr %status, i64 {n.STOP_WORD}"), self.name("on")
        asked = self.new(
            f"icmp ne i64 {self.new(f'load atomic i64, ptr {at} monotonic, align 8')}, 0"
        )
        self.line(f"br i1 {asked}, label %exit, label {on}")
        self.label(on)

    def call(self, result: str, function: str, *operands: tuple[str, str]) -> str:
        """Call an intrinsic, declaring it; operands are (type, text)."""
        types = ", ".join(t for t, _ in operands)
        self.declares[function] = f"declare {result} @{function}({types})"
        text = f"call {result} @{function}({', '.join(f'{t} {v}' for t, v in operands)})"
        if result == "void":
            self.line(text)
            return ""
        return self.new(text)

    def elementwise(self, function: str, kind: str, *values: str) -> str:
        """Call the overload of an intrinsic for operands and result of LLVM type `kind`."""
        return self.call(kind, f"{function}.{self.suffix(kind)}", *((kind, v) for v in values))

    def suffix(self, kind: str) -> str:
        """The overload suffix of an LLVM type: `<16 x float>` -> v16f32."""
        if kind.startswith("<"):
            count, _, element = kind[1:-1].partition(" x ")
            return f"v{count}{SUFFIXES.get(element, element)}"
        return SUFFIXES.get(kind, kind)

    # -- types and literals ------------------------------------------------------------------------

    def scalar_type(self, dtype: DType) -> str:
        return LLVM_TYPES[dtype.short_name]

    def vector_type(self, dtype: DType) -> str:
        return f"<{self.lanes} x {LLVM_TYPES[dtype.short_name]}>"

    def type(self, dtype: DType, varying: bool) -> str:
        return self.vector_type(dtype) if varying else self.scalar_type(dtype)

    @property
    def mask_type(self) -> str:
        return f"<{self.lanes} x i1>"

    def literal(self, value: bool | int | float, dtype: DType) -> str:
        if dtype.short_name == "bool":
            return "true" if value else "false"
        if dtype.short_name == "bf16":
            return str(struct.unpack("<I", struct.pack("<f", value))[0] >> 16)
        if dtype.is_float:
            return float_literal(float(value), dtype)
        return str(wrapped(int(value), dtype))

    def splat(self, value: bool | int | float, dtype: DType) -> str:
        return f"splat ({self.scalar_type(dtype)} {self.literal(value, dtype)})"

    def constant(self, value: bool | int | float, dtype: DType, varying: bool) -> str:
        return self.splat(value, dtype) if varying else self.literal(value, dtype)

    # -- operands ----------------------------------------------------------------------------------

    def find(self, node: object) -> tuple[Emitted, Scope]:
        for scope in reversed(self.scopes):
            if node in scope.known:
                return scope.known[node], scope
        raise CompileError(f"{self.program.name}: {type(node).__name__} used before it is defined")

    def is_known(self, node: object) -> bool:
        return any(node in scope.known for scope in self.scopes)

    def find_chain(self, node: n.Instr) -> Chain | None:
        return next(
            (scope.chains[node] for scope in reversed(self.scopes) if node in scope.chains), None
        )

    def keep_chain(self, node: n.Instr, acc: str, pairs: tuple[str, ...], most: int) -> None:
        self.scopes[-1].chains[node] = Chain(acc, pairs, most)

    def set(self, node: object, emitted: Emitted) -> None:
        self.scopes[-1].known[node] = emitted

    def is_varying(self, node: n.Value) -> bool:
        return node in self.varying

    def stride(self, node: n.Value) -> int | None:
        return self.find(node)[0].stride

    def scalar(self, node: n.Value) -> str:
        """The scalar operand of a uniform value, or lane 0's of an affine one."""
        emitted, _ = self.find(node)
        if emitted.stride is None:
            raise CompileError(
                f"{self.program.name}: a varying {node.dtype} where a uniform one is needed"
            )
        return emitted.text

    def vector(self, node: n.Value) -> str:
        """The vector operand of a value; uniform and affine ones are widened where they were
        defined."""
        if isinstance(node, n.Const):
            return self.splat(node.value, node.dtype)
        emitted, scope = self.find(node)
        if emitted.stride is None:
            return emitted.text
        key = ("vector", node)
        if key not in scope.known:
            scope.known[key] = Emitted(self._widen(emitted, node.dtype, scope), None)
        return scope.known[key].text

    def operand(self, node: n.Value, varying: bool) -> str:
        return self.vector(node) if varying else self.scalar(node)

    def broadcast(self, scalar: str, dtype: DType, scope: Scope | None = None) -> str:
        kind = self.vector_type(dtype)
        first = self.new(
            f"insertelement {kind} poison, {self.scalar_type(dtype)} {scalar}, i64 0", scope
        )
        return self.new(
            f"shufflevector {kind} {first}, {kind} poison, <{self.lanes} x i32> zeroinitializer",
            scope,
        )

    def iota(self, dtype_text: str, step: int = 1) -> str:
        return "<" + ", ".join(f"{dtype_text} {i * step}" for i in range(self.lanes)) + ">"

    def _widen(self, emitted: Emitted, dtype: DType, scope: Scope) -> str:
        wide = self.broadcast(emitted.text, dtype, scope)
        if not emitted.stride:
            return wide
        return self.new(
            f"add {self.vector_type(dtype)} {wide}, {self.iota('i64', emitted.stride)}", scope
        )

    # -- blocks ------------------------------------------------------------------------------------

    def run(self, block: n.Block) -> None:
        if self.divide is not None:
            self.divide(block)
            return
        for instr in block:
            self.run_one(instr)

    def run_one(self, instr: n.Instr) -> None:
        emitted = self.rules.table[type(instr)](self, instr)
        if emitted is not None:
            self.set(instr, emitted)

    @contextmanager
    def child(self) -> Iterator[Scope]:
        """A nested block: lines are kept apart and spliced in when it ends, so hoisted lines come
        before it."""
        before, scope = self.mask, Scope()
        self.scopes.append(scope)
        yield scope
        self.scopes.pop()
        self.mask = before

    def splice(self, scope: Scope) -> None:
        self.scopes[-1].lines.extend(scope.lines)

    def alloca(self, kind: str) -> str:
        slot = self.name("slot")
        self.entry.append(f"  {slot} = alloca {kind}")
        return slot

    @contextmanager
    def undivided(self) -> Iterator[None]:
        """Inside, blocks belong to one vector."""
        before, self.divide = self.divide, None
        yield
        self.divide = before

    # -- masks -------------------------------------------------------------------------------------

    def with_mask(self, cond: str) -> str:
        return cond if self.mask is None else self.new(f"and {self.mask_type} {self.mask}, {cond}")

    @contextmanager
    def narrowed(self, cond: str) -> Iterator[None]:
        """Only the lanes where cond holds, for the instructions inside."""
        before, self.mask = self.mask, self.with_mask(cond)
        yield
        self.mask = before

    def first_lanes(self, count: int) -> str:
        return (
            "<"
            + ", ".join(f"i1 {'true' if i < count else 'false'}" for i in range(self.lanes))
            + ">"
        )

    def every_lane(self) -> str:
        """A full mask that LLVM cannot look into, made once for the kernel."""
        outer = self.scopes[1]
        if "every lane" not in outer.known:
            bits = self.new(self.hidden("-1"), outer)
            first = self.new(f"trunc i64 {bits} to i{self.lanes}", outer)
            mask = self.new(f"bitcast i{self.lanes} {first} to {self.mask_type}", outer)
            outer.known["every lane"] = Emitted(mask, None)
        return outer.known["every lane"].text

    def any_lane(self, mask: str) -> str:
        bits = self.new(f"bitcast {self.mask_type} {mask} to i{self.lanes}")
        return self.new(f"icmp ne i{self.lanes} {bits}, 0")

    # -- memory ------------------------------------------------------------------------------------

    def memory_type(self, dtype: DType) -> str:
        return "i8" if dtype.short_name == "bool" else LLVM_TYPES[dtype.short_name]

    def pointer(self, buffer: n.Buffer, at: str) -> str:
        return self.new(
            f"getelementptr {self.memory_type(buffer.dtype)}, ptr {buffer_name(buffer)}, i64 {at}"
        )

    def pointers(self, buffer: n.Buffer, at: str) -> str:
        kind = self.memory_type(buffer.dtype)
        return self.new(
            f"getelementptr {kind}, ptr {buffer_name(buffer)}, <{self.lanes} x i64> {at}"
        )

    def length(self, buffer: n.Buffer) -> str:
        """The operand that holds the number of elements of a buffer."""
        is_fixed = buffer.is_scratch and isinstance(buffer.count, int)
        return str(buffer.count) if is_fixed else operand_name("n", buffer.name)


def buffer_name(buffer: n.Buffer) -> str:
    return operand_name("b", buffer.name)


def operand_name(stem: str, name: str) -> str:
    """The LLVM operand of a name that users chose: quoted, with everything but plain characters as
    hex bytes."""
    if name.isidentifier() and name.isascii():
        return f"%{stem}.{name}"
    plain = (
        chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\{byte:02X}"
        for byte in name.encode()
    )
    return f'%"{stem}.{"".join(plain)}"'


def float_literal(value: float, dtype: DType) -> str:
    """LLVM writes float constants as the 64-bit pattern of the (exactly representable) double."""
    if dtype.short_name == "f16":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if math.isnan(value):
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def wrapped(value: int, dtype: DType) -> int:
    """An integer as LLVM prints it: two's complement of the type's width."""
    bits = dtype.bits
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
