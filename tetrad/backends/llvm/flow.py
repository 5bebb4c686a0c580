"""Code generation, rules of control flow: locals, loops, branches, traps, calls of other libraries.

Kernel node in, LLVM text out. Basic-block graphs are drawn in docstrings. Where lanes disagree,
both ways are taken one after the other under masks; a guard for the last workgroup costs the others
one scalar compare.
"""

from __future__ import annotations

import json
import math

from tetrad.backends.llvm.emitter import Codegen, Emitted, EmitterRules, form, index_stride
from tetrad.core.dtypes import i32, index
from tetrad.core.errors import CompileError
from tetrad.kernel import nodes as n

rules = EmitterRules()

# instructions of a guarded block that is written once; and for each load and store
LONG, LONG_ACCESS = 40, 16


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


HEARING = 1 << 16  # iterations of a long loop between two looks at the stop word


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
        if cg.isa.hears_stop:
            hear(cg, node, following)
        cg.line(f"store i64 {following}, ptr {slot}")
        again = cg.new(f"icmp slt i64 {following}, {stop}")
        cg.line(f"br i1 {again}, label {body}, label {done}")
        cg.label(done)
    cg.line(f"store i64 {start}, ptr {slot}")
    first = cg.new(f"icmp slt i64 {start}, {stop}")
    cg.line(f"br i1 {first}, label {body}, label {done}")
    cg.splice(scope)


def hear(cg: Codegen, node: n.For, following: str) -> None:
    """Look at the stop word now and then: whoever presses Ctrl-C should not wait for the end of a
    long loop. Of a kernel that nobody vouches for, around every inner loop and wherever it is not
    known how long one is."""
    is_strange = cg.check == "mask"
    if is_strange and any(isinstance(instr, n.For) for instr in n.walk(node.body)):
        cg.leave_if_stopped()
    elif is_long(node) or (is_strange and not has_known_bounds(node)):
        passed = cg.new(f"and i64 {following}, {HEARING - 1}")
        with guarded(cg, cg.new(f"icmp ult i64 {passed}, {node.step}")):
            cg.leave_if_stopped()


def has_known_bounds(node: n.For) -> bool:
    return isinstance(node.start, n.Const) and isinstance(node.stop, n.Const)


def is_long(node: n.For) -> bool:
    """Is it known to run for a while?"""
    start, stop = (
        bound.value if isinstance(bound, n.Const) else 0 for bound in (node.start, node.stop)
    )
    return stop - start > HEARING * node.step


@rules.rule(n.Repeat)
def emit_while(cg: Codegen, node: n.Repeat) -> None:
    """here -[goes on]-> body -> ... -[goes on]-> body;  -> done

    Where lanes disagree, the body runs under the mask of those that go on. Nobody knows how long a
    loop takes, so the stop word is looked at now and then, over all such loops of the kernel.
    """
    varying = cg.is_varying(node.local)
    kind, slot = cg.type(node.local.dtype, varying), cg.find(node.local)[0].text
    body, done = cg.name("body"), cg.name("done")
    with cg.child() as scope:
        cg.label(body)
        if varying:
            cg.mask = cg.with_mask(cg.new(f"load {kind}, ptr {slot}"))
        cg.run(node.body)
        if cg.isa.hears_stop:
            hear_sometimes(cg)
        cg.line(f"br i1 {goes_on(cg, kind, slot)}, label {body}, label {done}")
        cg.label(done)
    cg.line(f"br i1 {goes_on(cg, kind, slot)}, label {body}, label {done}")
    cg.splice(scope)


def goes_on(cg: Codegen, kind: str, slot: str) -> str:
    """Is the local at this place true in any active lane?"""
    held = cg.new(f"load {kind}, ptr {slot}")
    return held if kind == "i1" else cg.any_lane(cg.with_mask(held))


def hear_sometimes(cg: Codegen) -> None:
    if cg.trips is None:
        cg.trips = cg.alloca("i64")
        cg.entry.append(f"  store i64 0, ptr {cg.trips}")
    following = cg.stepped(cg.new(f"load i64, ptr {cg.trips}"), 1)
    cg.line(f"store i64 {following}, ptr {cg.trips}")
    passed = cg.new(f"and i64 {following}, {HEARING - 1}")
    with guarded(cg, cg.new(f"icmp eq i64 {passed}, 0")):
        cg.leave_if_stopped()


@rules.rule(n.If)
def emit_if(cg: Codegen, node: n.If) -> None:
    if not cg.is_varying(node.cond):
        uniform_if(cg, node)
    elif cg.mask is None and not node.orelse and is_guard(cg, node.cond):
        (guard_once if is_written_once(cg, node.then) else guard_if)(cg, node)
    else:
        divergent_if(cg, node)


def is_guard(cg: Codegen, cond: n.Value) -> bool:
    """`i < bound` with neighbouring lanes one apart: the shape of every tail."""
    return (
        isinstance(cond, n.Compare)
        and cond.op == "lt"
        and cond.lhs.dtype is index
        and cg.stride(cond.lhs) == 1
        and cg.stride(cond.rhs) == 0
    )


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
    """if lane index < bound:

    here -[all lanes]-> full (no mask) -> done;  here -[some]-> part (mask) -> done;  here -> done

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


def guard_once(cg: Codegen, node: n.If) -> None:
    """The same for much work with few loads and stores: it is written once, and they ask whether
    all lanes are there.

    here -[some lanes]-> do -> done
    """
    if not isinstance(node.cond, n.Compare):
        raise TypeError("a guard is a comparison")
    base, bound = cg.scalar(node.cond.lhs), cg.scalar(node.cond.rhs)
    left = cg.new(f"sub i64 {bound}, {base}")
    with guarded(cg, cg.new(f"icmp sgt i64 {left}, 0")):
        is_full = cg.new(f"icmp sge i64 {left}, {cg.lanes}")
        few = cg.new(f"trunc i64 {cg.elementwise('llvm.smin', 'i64', left, str(cg.lanes))} to i32")
        cg.mask = cg.new(f"icmp slt <{cg.lanes} x i32> {cg.iota('i32')}, {cg.broadcast(few, i32)}")
        cg.full[cg.mask] = is_full
        cg.run(node.then)


def is_written_once(cg: Codegen, block: n.Block) -> bool:
    """Would writing it twice cost more time in LLVM than asking at each load and store costs when
    it runs?"""
    accesses = [i.at for i in block if isinstance(i, n.Load | n.Store)]
    neighbours = all(stride_inside(cg, at) in (0, 1, 2) for at in accesses)
    return (
        cg.divide is None and neighbours and length(block) >= max(LONG, LONG_ACCESS * len(accesses))
    )


def stride_inside(cg: Codegen, at: n.Value) -> int | None:
    """The stride of an address that may be computed in a block not yet written."""
    if cg.is_known(at):
        return cg.stride(at)
    if not isinstance(at, n.Binary):
        return 0 if isinstance(at, n.Const) else None
    return index_stride(at, stride_inside(cg, at.lhs), stride_inside(cg, at.rhs))


def length(block: n.Block, is_rare: bool = False) -> float:
    """Instructions, of nested blocks too. A loop is never worth less code, unless it is in a
    branch, without memory."""
    total = 0.0
    for instr in block:
        match instr:
            case n.For() | n.Repeat():
                total += length(instr.body) if is_rare and not has_access(instr.body) else -math.inf
            case n.If():
                total += length(instr.then, True) + length(instr.orelse, True)
            case n.Region():
                total += length(instr.body, is_rare)
            case _:
                total += 1
    return total


def has_access(block: n.Block) -> bool:
    """Loads, stores, or blocks that may have some."""
    held = n.Load | n.Store | n.Atomic | n.For | n.Repeat | n.If | n.Region
    return any(isinstance(instr, held) for instr in block)


def divergent_if(cg: Codegen, node: n.If) -> None:
    """Both sides run one after the other, each under its mask, and are skipped when no lane needs
    them."""
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
    """with guarded(cg, cond): ... runs only if the scalar cond holds (None: always).

    here -[cond]-> do -> done;  here -> done

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


@rules.rule(n.Return)
def emit_return(cg: Codegen, node: n.Return) -> None:
    """Of a machine whose lanes are threads; for vectors `kernel.returns` makes branches of it."""
    if cg.mask is not None or cg.lanes > 1:
        raise CompileError(f"{cg.program.name}: a return in a vector; rewrite it as branches")
    cg.line("br label %exit")
    cg.label(cg.name("unreached"))


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


@rules.rule(n.Region)
def emit_region(cg: Codegen, node: n.Region) -> None:
    cg.regions.append(node.generator)
    source = f" from {json.dumps(node.source)}" if node.source else ""
    cg.line(f"; region {json.dumps('/'.join(cg.regions))}{source}")
    cg.run(node.body)
    cg.regions.pop()
