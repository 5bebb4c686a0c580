"""CUDA back end, rules: instructions that mean something else where every lane is a thread.

Kernel node in, LLVM text out, as in `backends.llvm.rules`, whose rules hold for all that is not
here: no value varies, so all of them write scalars. Threads of one warp exchange values by
shuffles; those of several through workgroup memory, between barriers.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.backends.cuda.layout import Layout
from tetrad.backends.cuda.targets import WARP
from tetrad.backends.llvm import atomics, flow, memory
from tetrad.backends.llvm.emitter import Codegen, Emitted, EmitterRules
from tetrad.backends.llvm.rules import rules as shared_rules
from tetrad.core.dtypes import DType
from tetrad.kernel import nodes as n
from tetrad.kernel.uniformity import varying

MAX_COMMENT = 120
# Instructions that the shared rules write as well for a thread: they know nothing of other lanes.
# What is in neither list is refused: a rule for vectors may take a lane for the whole workgroup.
ALIKE: tuple[type[n.Instr], ...] = (
    n.Const, n.Arg, n.Id, n.BufferLength, n.Binary, n.Compare, n.Unary, n.Select, n.Cast,
    n.Bitcast, n.Fma, n.Dot2, n.Lookup, n.Local, n.Get, n.Set, n.For, n.Repeat, n.If,
)  # fmt: skip


# LLVM's fences before and after an atomic of this order
FENCES = {
    "acquire": ("", "acquire"), "release": ("release", ""), "acq_rel": ("release", "acquire"),
    "seq_cst": ("seq_cst", "seq_cst"),
}  # fmt: skip


class ThreadRules:
    """The rules for one program: they ask which values differ between threads, which accesses are
    proved, and where memory lies."""

    def __init__(self, layout: Layout, proved: frozenset[n.Instr]) -> None:
        self.layout, self.proved = layout, proved
        self.program, self.lanes = layout.program, layout.program.lanes
        self.differs = varying(self.program)
        self.traps = any(isinstance(i, n.Trap) for i in n.walk(self.program.body))
        self.tables: dict[tuple[int, ...], str] = {}
        rules: list[tuple[type[n.Instr], Callable[..., Emitted | None]]] = [
            (n.Load, self.load), (n.Store, self.store), (n.Atomic, self.atomic),
            (n.Prefetch, self.prefetch), (n.Barrier, self.barrier), (n.Shuffle, self.shuffle),
            (n.Permute, self.permute),
            (n.Broadcast, self.broadcast), (n.Vote, self.vote), (n.Dot4, self.dot4),
            (n.Trap, self.trap), (n.Region, self.region),
        ]  # fmt: skip
        self.table = EmitterRules()
        self.table.table = {kind: shared_rules.table[kind] for kind in ALIKE}
        for kind, rule in rules:
            self.table.rule(kind)(rule)

    # -- memory ------------------------------------------------------------------------------------

    def load(self, cg: Codegen, node: n.Load) -> Emitted:
        kind = cg.type(node.dtype, False)
        if cg.check == "plain" or node in self.proved:
            return Emitted(self.read(cg, node), 0)
        result = cg.alloca(kind)
        cg.line(f"store {kind} zeroinitializer, ptr {result}")
        with flow.guarded(cg, memory.in_bounds(cg, node.buffer, node.at)):
            cg.line(f"store {kind} {self.read(cg, node)}, ptr {result}")
        return Emitted(cg.new(f"load {kind}, ptr {result}"), 0)

    def read(self, cg: Codegen, node: n.Load) -> str:
        kind, place = cg.memory_type(node.dtype), self.place(cg, node.buffer, node.at)
        raw = cg.new(f"load {kind}, ptr {place}, align {node.dtype.nbytes}")
        return memory.from_memory(cg, raw, node.dtype, False)

    def store(self, cg: Codegen, node: n.Store) -> None:
        """All threads write a uniform address, with the same bits."""
        is_safe = cg.check == "plain" or node in self.proved
        with flow.guarded(cg, None if is_safe else memory.in_bounds(cg, node.buffer, node.at)):
            dtype = node.value.dtype
            raw = memory.to_memory(cg, cg.scalar(node.value), dtype, False)
            place = self.place(cg, node.buffer, node.at)
            cg.line(f"store {cg.memory_type(dtype)} {raw}, ptr {place}, align {dtype.nbytes}")

    def atomic(self, cg: Codegen, node: n.Atomic) -> Emitted | None:
        """Threads take turns in any order. LLVM writes every change but compare-exchange as a
        relaxed one: fences give it its order."""
        before, after = FENCES.get(node.order, ("", "")) if node.expected is None else ("", "")
        if before:
            cg.line(f"fence {before}")
        if node in self.proved:
            operands = [cg.scalar(v) for v in atomics.operands_of(node)]
            made: Emitted | None = Emitted(atomics.change(cg, node, *operands), 0)
        else:
            made = atomics.emit_atomic(cg, node)
        if after:
            cg.line(f"fence {after}")
        return made

    def place(self, cg: Codegen, buffer: n.Buffer, at: n.Value) -> str:
        """Of private memory a thread has its own elements alone, one beside the other."""
        position = cg.scalar(at)
        if buffer in self.layout.local:
            position = cg.new(f"udiv i64 {position}, {self.lanes}")
        return cg.pointer(buffer, position)

    def prefetch(self, cg: Codegen, node: n.Prefetch) -> None:
        """A hint for caches that a processor has."""

    # -- threads -----------------------------------------------------------------------------------

    def barrier(self, cg: Codegen, node: n.Barrier) -> None:
        self.wait(cg)
        self.leave_if_failed(cg)

    def wait(self, cg: Codegen) -> None:
        if self.lanes > 1:
            cg.call("void", "llvm.nvvm.barrier.cta.sync.aligned.all", ("i32", "0"))

    def leave_if_failed(self, cg: Codegen) -> None:
        """A thread that trapped has left: what it should have written is not there, and nobody
        will look at the results."""
        if not self.traps:
            return
        status, on = cg.new("load atomic i64, ptr %status monotonic, align 8"), cg.name("on")
        cg.line(f"br i1 {cg.new(f'icmp ne i64 {status}, 0')}, label %exit, label {on}")
        cg.label(on)

    @property
    def members(self) -> str:
        """The threads of the one warp, as `.sync` instructions name them."""
        return str((1 << self.lanes) - 1 - (1 << 32 if self.lanes == WARP else 0))

    def shuffle(self, cg: Codegen, node: n.Shuffle) -> Emitted:
        both = node.a is not node.b and any(lane >= self.lanes for lane in node.lanes)
        if node.a not in self.differs and not both:
            return Emitted(cg.scalar(node.a), 0)
        at = self.source_lane(cg, node.lanes if both else tuple(i % self.lanes for i in node.lanes))
        if self.lanes > WARP:
            given = (node.a, node.b) if both else (node.a,)
            return Emitted(self.through_memory(cg, given, node.dtype, at), 0)
        if not both:
            return Emitted(self.from_lane(cg, node.a, at), 0)
        within = cg.new(f"urem i32 {at}, {self.lanes}")
        first, second = (self.from_lane(cg, x, within) for x in (node.a, node.b))
        is_second, kind = cg.new(f"icmp uge i32 {at}, {self.lanes}"), cg.type(node.dtype, False)
        return Emitted(cg.new(f"select i1 {is_second}, {kind} {second}, {kind} {first}"), 0)

    def permute(self, cg: Codegen, node: n.Permute) -> Emitted:
        if node.x not in self.differs:
            return Emitted(cg.scalar(node.x), 0)
        at = cg.new(f"urem i32 {cg.scalar(node.at)}, {self.lanes}")
        return Emitted(self.from_lane(cg, node.x, at), 0)

    def source_lane(self, cg: Codegen, lanes: tuple[int, ...]) -> str:
        """Which of the values this thread gets: by arithmetic for a rotation, else from a table."""
        count = self.lanes
        if all(lane == (i + lanes[0]) % count for i, lane in enumerate(lanes)):
            return cg.new(f"urem i32 {cg.new(f'add i32 %lane, {lanes[0]}')}, {count}")
        name = self.tables.setdefault(lanes, f"@const$lanes{len(self.tables)}")
        at = cg.new(f"getelementptr i16, ptr addrspace(4) {name}, i32 %lane")
        return cg.new(f"zext i16 {cg.new(f'load i16, ptr addrspace(4) {at}, align 2')} to i32")

    def broadcast(self, cg: Codegen, node: n.Broadcast) -> Emitted:
        if node.x not in self.differs:
            return Emitted(cg.scalar(node.x), 0)
        if self.lanes <= WARP:
            return Emitted(self.from_lane(cg, node.x, str(node.lane)), 0)
        return Emitted(self.through_memory(cg, (node.x,), node.dtype, str(node.lane)), 0)

    def from_lane(self, cg: Codegen, x: n.Value, lane: str) -> str:
        """The value of another thread of the warp, 32 bits at a time."""
        bits = in_words(cg, cg.scalar(x), x.dtype)
        name, last = "llvm.nvvm.shfl.sync.idx.i32", str(WARP - 1)
        taken = [
            cg.call("i32", name, ("i32", self.members), ("i32", word), ("i32", lane), ("i32", last))
            for word in bits
        ]
        return from_words(cg, taken, x.dtype)

    def through_memory(
        self, cg: Codegen, values: tuple[n.Value, ...], dtype: DType, at: str
    ) -> str:
        """Every thread writes its values, and after a barrier reads the one at `at`; the second
        barrier frees the memory."""
        kind = cg.memory_type(dtype)
        for i, x in enumerate(values):
            slot = cg.new(f"add i32 %lane, {i * self.lanes}")
            raw = memory.to_memory(cg, cg.scalar(x), dtype, False)
            place = cg.new(f"getelementptr {kind}, ptr addrspace(3) @shared$exchange, i32 {slot}")
            cg.line(f"store {kind} {raw}, ptr addrspace(3) {place}, align {dtype.nbytes}")
        self.barrier(cg, n.Barrier())
        place = cg.new(f"getelementptr {kind}, ptr addrspace(3) @shared$exchange, i32 {at}")
        raw = cg.new(f"load {kind}, ptr addrspace(3) {place}, align {dtype.nbytes}")
        self.wait(cg)
        return memory.from_memory(cg, raw, dtype, False)

    def vote(self, cg: Codegen, node: n.Vote) -> Emitted:
        """`predicate` has brought every vote to where all threads come."""
        x = cg.scalar(node.x)
        if node.x not in self.differs and not self.traps:
            return Emitted(x, 0)
        if self.lanes <= WARP:
            name = f"llvm.nvvm.vote.{node.op}.sync"
            return Emitted(cg.call("i1", name, ("i32", self.members), ("i1", x)), 0)
        name = f"llvm.nvvm.barrier.cta.red.{'or' if node.op == 'any' else 'and'}.aligned.all"
        return Emitted(cg.call("i1", name, ("i32", "0"), ("i1", x)), 0)

    # -- the rest ----------------------------------------------------------------------------------

    def dot4(self, cg: Codegen, node: n.Dot4) -> Emitted:
        name = f"llvm.nvvm.idp4a.{'s' if node.signed else 'u'}.s"
        operands = (("i32", cg.scalar(x)) for x in (node.u, node.s, node.acc))
        return Emitted(cg.call("i32", name, *operands), 0)

    def trap(self, cg: Codegen, node: n.Trap) -> None:
        """here -[cond]-> report, unless another has, and leave;  -> on"""
        with flow.guarded(cg, cg.scalar(node.cond)):
            won = cg.new(f"cmpxchg ptr %status, i64 0, i64 {node.code} acq_rel monotonic")
            with flow.guarded(cg, cg.new(f"extractvalue {{ i64, i1 }} {won}, 1")):
                place = cg.new("getelementptr i64, ptr %status, i64 1")
                cg.line(f"store i64 {cg.scalar(node.value)}, ptr {place}, align 8")
            cg.line("br label %exit")
            cg.label(cg.name("unreached"))

    def region(self, cg: Codegen, node: n.Region) -> None:
        cg.line(f'call void asm sideeffect "// region {comment(node.generator)}", ""()')
        cg.run(node.body)


def comment(text: str) -> str:
    """Printable ASCII that means nothing to LLVM's inline assembly."""
    plain = (c if c.isascii() and c.isprintable() and c not in '\\"${}|' else "?" for c in text)
    return "".join(plain)[:MAX_COMMENT]


def in_words(cg: Codegen, x: str, dtype: DType) -> list[str]:
    """The bits of a value in words of 32."""
    kind, bits = cg.type(dtype, False), 1 if dtype.short_name == "bool" else dtype.bits
    whole = x if kind.startswith("i") else cg.new(f"bitcast {kind} {x} to i{bits}")
    if bits == 32:
        return [whole]
    if bits < 32:
        return [cg.new(f"zext i{bits} {whole} to i32")]
    high = cg.new(f"lshr i64 {whole}, 32")
    return [cg.new(f"trunc i64 {half} to i32") for half in (whole, high)]


def from_words(cg: Codegen, words: list[str], dtype: DType) -> str:
    kind, bits = cg.type(dtype, False), 1 if dtype.short_name == "bool" else dtype.bits
    whole = words[0]
    if bits < 32:
        whole = cg.new(f"trunc i32 {whole} to i{bits}")
    elif bits == 64:
        low, high = (cg.new(f"zext i32 {word} to i64") for word in words)
        whole = cg.new(f"or i64 {low}, {cg.new(f'shl i64 {high}, 32')}")
    return whole if kind.startswith("i") else cg.new(f"bitcast i{bits} {whole} to {kind}")


def constant_tables(tables: dict[tuple[int, ...], str]) -> list[str]:
    """Constant memory with the source lanes of each shuffle."""
    return [
        f"{name} = internal addrspace(4) constant [{len(lanes)} x i16] "
        f"[{', '.join(f'i16 {lane}' for lane in lanes)}], align 2"
        for lanes, name in tables.items()
    ]
