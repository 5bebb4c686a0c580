"""Lowering, linked kernels: a kernel written again inside another one.

Receives a launch and the places of its slots; writes its instructions with the builder of the
kernel around it. Sizes are numbers there, workgroups trips of a loop; an array may be part of a
larger one, and a number a register.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tetrad.core.dtypes import DType, index
from tetrad.core.machine import LANES
from tetrad.core.record import record
from tetrad.core.sizes import plain, product
from tetrad.core.types import ArrayType
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.kernel.grids.infer import added, linear, scaled
from tetrad.kernel.returns import without_returns
from tetrad.kernel.uniformity import varying
from tetrad.loopnest.complex import held_as
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.reader import FIRST_TRAP
from tetrad.schedule.nodes import Launch, Slot

WORKGROUP = (LANES, 1, 1)
SHORT = 4  # trips of a loop that is written out
# what computes in every lane alike
PLAIN = (
    n.Const | n.Arg | n.Id | n.Binary | n.Compare | n.Unary | n.Select | n.Cast | n.Bitcast | n.Fma
)


class Unlinkable(Exception):
    """The kernels cannot be one. With a slot: a number that has to be in memory."""

    def __init__(self, reason: str, slot: Slot | None = None) -> None:
        super().__init__(reason)
        self.slot = slot


@record(eq=False)
class Residence:
    """Where an array lies: in a buffer from `start` on, or, a single number, in a register, as it
    is computed with."""

    dtype: DType  # of an element
    buffer: n.Buffer | None
    start: Val | None = None
    local: LocalVar | None = None
    slot: Slot | None = None

    @staticmethod
    def of(buffer: n.Buffer, start: Val | None = None) -> Residence:
        return Residence(buffer.dtype, buffer, start)

    @property
    def register(self) -> LocalVar:
        if self.local is None:
            raise TypeError("a place is a buffer or a register")
        return self.local

    def row(self, k: KernelBuilder, t: Val, kind: ArrayType) -> Residence:
        """Row t of an array of rows of this type."""
        if self.buffer is None:
            return self  # one row of one number
        size = product(kind.storage_shape) * held_as(kind.dtype)[1]
        if not isinstance(size, int):
            raise Unlinkable("rows have a size that is known at the call")
        return Residence.of(self.buffer, self.at(t * size))

    def at(self, position: Val) -> Val:
        return position if self.start is None else self.start + position

    def load(self, k: KernelBuilder, position: Val) -> Val:
        if self.buffer is not None:
            return k.load(self.buffer, self.at(position))
        self.check_single(position)
        return k.cast(self.register.get(), self.dtype)

    def store(
        self, k: KernelBuilder, position: Val, value: Val, hint: str = "", divergent: bool = False
    ) -> None:
        if self.buffer is not None:
            k.store(self.buffer, self.at(position), value, hint)
            return
        self.check_single(position)
        if divergent:
            raise Unlinkable("some invocations alone write a number", self.slot)
        self.register.set(k.cast(value, self.dtype.computing))

    def check_single(self, position: Val) -> None:
        if position.const != 0:
            raise Unlinkable("a number is one of several elements", self.slot)


class Linked:
    """What the kernels of one loop share: the frame, and scratch that none needs after it."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.k = frame, frame.k
        self.constant: Callable[[Slot], Residence]
        self.known: dict[Slot, Residence] = {}  # of constants
        self.scratch: dict[tuple[DType, str, Any], list[n.Buffer]] = {}

    def place(self, slot: Slot, places: Mapping[Slot, Residence]) -> Residence:
        if slot in places:
            return places[slot]
        if slot not in self.known:
            self.known[slot] = self.constant(slot)
        return self.known[slot]

    def borrowed(self, buffer: n.Buffer, taken: dict[n.Buffer, Residence]) -> Residence:
        """Scratch of a kernel: what another one has used before, if it is like it."""
        if buffer.zeroed or not isinstance(buffer.count, int):
            raise Unlinkable("scratch that starts as zeros, or has a size known at the call")
        free = self.scratch.setdefault((buffer.dtype, buffer.access, buffer.count), [])
        used = {place.buffer for place in taken.values()}
        found = next((b for b in free if b not in used), None)
        if found is None:
            make = self.frame.scratch if buffer.access == "workgroup" else self.frame.private
            found = make("room", buffer.dtype, buffer.count)
            free.append(found)
        return Residence.of(found)


def link_kernel(linked: Linked, launch: Launch, places: Mapping[Slot, Residence]) -> None:
    program = without_returns(launch.program)
    if program.workgroup != WORKGROUP or program.guarded or launch.extents is not None:
        raise Unlinkable(f"{program.name} has workgroups of another shape")
    sizes = {name: size for name, size in launch.args.items() if isinstance(size, int)}
    if len(sizes) < len(launch.args) or not isinstance(launch.groups, int):
        raise Unlinkable(f"{program.name} has a size that is known at the call")
    taken = {buffer: linked.place(slot, places) for buffer, slot in launch.buffers()}
    if any(place.dtype is not buffer.dtype for buffer, place in taken.items()):
        raise Unlinkable("memory is read as elements of two types")
    for buffer in program.buffers:
        if buffer.is_scratch:
            taken[buffer] = linked.borrowed(buffer, taken)
    k = linked.k
    if launch.groups == 0:
        return
    with k.loop(launch.groups, always=True) as group:
        KernelCopy(linked, launch, program, taken, sizes, group).block(program.body)
        if launch.groups > 1:
            k.barrier()
    k.barrier()


class KernelCopy:
    """The walk over a kernel that is written again: what its values have become."""

    def __init__(
        self,
        linked: Linked,
        launch: Launch,
        program: n.Program,
        places: Mapping[n.Buffer, Residence],
        sizes: Mapping[str, int],
        group: Val,
    ) -> None:
        self.linked, self.launch, self.places, self.sizes = linked, launch, places, sizes
        self.k, self.group = linked.k, group
        self.values: dict[n.Instr, Val] = {}
        self.locals: dict[n.Local, LocalVar] = {}
        self.varying = varying(program)
        self.divergent = False
        self.chosen: Val | None = None  # where locals change, for sides that all lanes compute

    @property
    def is_whole(self) -> bool:
        """Are all lanes active here?"""
        return not self.divergent

    def block(self, block: n.Block) -> None:
        for instr in block:
            RULES[type(instr)](self, instr)

    def of(self, value: n.Value) -> Val:
        return self.values[value]

    def position(self, value: n.Value) -> dict[str, int] | None:
        """An index as a sum, of values that may not be written yet."""
        if value in self.values:
            return linear(self.values[value].node)
        if isinstance(value, n.Id):
            return linear(id_of(self, value).node)
        if not isinstance(value, n.Binary) or value.op not in ("add", "mul"):
            return linear(value)
        left, right = self.position(value.lhs), self.position(value.rhs)
        if left is None or right is None:
            return None
        return added(left, right) if value.op == "add" else scaled(left, right)

    @property
    def traps(self) -> dict[int, Any]:
        return self.linked.frame.reading.traps


# -- values ----------------------------------------------------------------------------------------


def copied(make: Callable[[KernelCopy, Any], Val]) -> Callable[[KernelCopy, Any], None]:
    def rule(c: KernelCopy, node: n.Value) -> None:
        c.values[node] = make(c, node)

    return rule


def id_of(c: KernelCopy, node: n.Id) -> Val:
    if node.axis > 0:
        return c.k.index(0)
    return c.group if node.which == "group" else c.k.lane()


def length_of(c: KernelCopy, node: n.BufferLength) -> Val:
    count = node.buffer.count
    if not isinstance(count, int):
        raise Unlinkable("the length of a buffer is known at the call")
    return c.k.index(count)


def atomic(c: KernelCopy, node: n.Atomic) -> Val:
    place = c.places[node.buffer]
    if place.buffer is None:
        raise Unlinkable("a number is changed atomically", place.slot)
    expected = None if node.expected is None else c.of(node.expected)
    op = node.op.removeprefix("atomic_")
    at = place.at(c.of(node.at))
    return c.k.atomic(op, place.buffer, at, c.of(node.value), expected, node.order)


# -- statements ------------------------------------------------------------------------------------


def store(c: KernelCopy, node: n.Store) -> None:
    hint = node.hint if node.hint == "same" else ""
    value, at = c.of(node.value), c.of(node.at)
    c.places[node.buffer].store(c.k, at, value, hint, c.divergent)


def local(c: KernelCopy, node: n.Local) -> None:
    c.locals[node] = c.k.local(c.of(node.init))


def set_local(c: KernelCopy, node: n.Set) -> None:
    variable, value = c.locals[node.local], c.of(node.value)
    variable.set(value if c.chosen is None else c.k.select(c.chosen, value, variable.get()))


def loop(c: KernelCopy, node: n.For) -> None:
    start, stop = c.of(node.start), c.of(node.stop)
    is_known = start.const is not None and stop.const is not None
    if is_known and start.const >= stop.const:  # type: ignore[operator]
        return
    if is_known and stop.const <= start.const + SHORT * node.step:  # type: ignore[operator]
        for at in range(start.const, stop.const, node.step):  # type: ignore[arg-type]
            c.values[node.counter] = c.k.index(at)
            c.block(node.body)
        return
    with c.k.loop(stop, start, node.step, always=is_known) as counter:
        c.values[node.counter] = counter
        c.block(node.body)


def repeat(c: KernelCopy, node: n.Repeat) -> None:
    before = c.divergent
    c.divergent = before or node.local in c.varying
    with c.k.repeat(c.locals[node.local]):
        c.block(node.body)
    c.divergent = before


def branch(c: KernelCopy, node: n.If) -> None:
    known = decided(c, node.cond)
    if known is not None:
        c.block(node.then if known else node.orelse)
        return
    if is_tail(c, node) and c.is_whole and is_harmless(c, node.then, may_store=True):
        c.block(node.then)
        return
    if node.cond in c.varying and c.is_whole and is_harmless(c, node.then + node.orelse):
        choose(c, node)
        return
    before = c.divergent
    c.divergent = before or node.cond in c.varying
    with c.k.when(c.of(node.cond), guard=is_tail(c, node)):
        c.block(node.then)
    if node.orelse:
        with c.k.otherwise():
            c.block(node.orelse)
    c.divergent = before


def is_tail(c: KernelCopy, node: n.If) -> bool:
    """Does the branch only cut off lanes behind the end?"""
    cond = node.cond
    if not isinstance(cond, n.Compare) or cond.op != "lt" or cond.lhs.dtype is not index:
        return False
    return not node.orelse and cond.lhs in c.varying and cond.rhs not in c.varying


def decided(c: KernelCopy, cond: n.Value) -> bool | None:
    """What a comparison of positions says in every lane, if it is the same."""
    if not isinstance(cond, n.Compare) or cond.lhs.dtype is not index:
        return None
    a, b = linear(c.of(cond.lhs).node), linear(c.of(cond.rhs).node)
    if a is None or b is None or not set(a) | set(b) <= {"one", "local"}:
        return None
    first = a.get("one", 0) - b.get("one", 0)
    last = first + (a.get("local", 0) - b.get("local", 0)) * (LANES - 1)
    answers = {HOLDS[cond.op](end) for end in (first, last)}
    is_same = len(answers) == 1 and (cond.op not in ("eq", "ne") or first == last)
    return answers.pop() if is_same else None


HOLDS: dict[str, Callable[[int], bool]] = {  # of the difference of two sides
    "lt": lambda d: d < 0,
    "le": lambda d: d <= 0,
    "gt": lambda d: d > 0,
    "ge": lambda d: d >= 0,
    "eq": lambda d: d == 0,
    "ne": lambda d: d != 0,
}


def choose(c: KernelCopy, node: n.If) -> None:
    """Both sides in all lanes; locals change in those that take the side."""
    before, cond = c.chosen, c.of(node.cond)
    for holds, block in ((cond, node.then), (~cond, node.orelse)):
        if block:
            c.chosen = holds if before is None else before & holds
            c.block(block)
    c.chosen = before


def is_harmless(c: KernelCopy, block: n.Block, may_store: bool = False) -> bool:
    """May lanes take part that are behind the end, or take the other side? They read and write only
    what is kept for them behind small arrays. Whole vectors are stored and read again in a few
    cycles, parts of one in twenty."""
    own = {instr for instr in block if isinstance(instr, n.Local)}
    return c.launch.groups == 1 and all(is_harmless_one(c, i, own, may_store) for i in block)


def is_harmless_one(c: KernelCopy, instr: n.Instr, own: set[n.Local], may_store: bool) -> bool:
    match instr:
        case n.Load():
            return stays_inside(c, instr)
        case n.Store():
            return may_store and stays_inside(c, instr)
        case n.Set():
            return instr.local in own or not may_store
        case n.If():
            is_plain = not any(isinstance(i, n.Store) for i in n.walk((instr,)))
            sets = {i.local for i in n.walk((instr,)) if isinstance(i, n.Set)}
            declared = {i for i in n.walk((instr,)) if isinstance(i, n.Local)}
            safe = sets <= own | declared or not may_store
            return safe and is_plain and is_harmless(c, instr.then + instr.orelse)
    # an index behind the end has no quotient
    if isinstance(instr, n.Binary) and instr.op in ("div", "mod") and instr.dtype is index:
        return False
    return isinstance(instr, PLAIN | n.Local | n.Get)


def stays_inside(c: KernelCopy, access: n.Load | n.Store) -> bool:
    """Is an access inside its array whoever makes it?"""
    place, at = c.places[access.buffer], c.position(access.at)
    if at is None or (place.buffer is not None and not isinstance(place.buffer.count, int)):
        return False
    if set(at) <= {"one"}:
        count = 1 if place.buffer is None else plain(place.buffer.count or 0)
        is_inside = place.start is None and 0 <= at.get("one", 0) < count
        return is_inside and isinstance(access, n.Load)
    if place.buffer is None or place.buffer.access != "workgroup":
        return False
    last = at.get("one", 0) + LANES
    return set(at) <= {"one", "local"} and at["local"] == 1 and LANES <= last <= place.buffer.count  # type: ignore[operator]


def trap(c: KernelCopy, node: n.Trap) -> None:
    code = FIRST_TRAP + len(c.traps)
    c.traps[code] = c.launch.traps[node.code]
    c.k.trap(c.of(node.cond), code, c.of(node.value))


def region(c: KernelCopy, node: n.Region) -> None:
    c.block(node.body)


def nothing(c: KernelCopy, node: n.Instr) -> None:
    """A hint: what a loop reads is near."""


RULES: dict[type[n.Instr], Callable[[KernelCopy, Any], None]] = {
    n.Const: copied(lambda c, v: c.k.const(v.value, v.dtype)),
    n.Arg: copied(lambda c, v: c.k.index(c.sizes[v.name])),
    n.Id: copied(id_of),
    n.BufferLength: copied(length_of),
    n.Load: copied(lambda c, v: c.places[v.buffer].load(c.k, c.of(v.at))),
    n.Atomic: copied(atomic),
    n.Binary: copied(lambda c, v: c.k.binary(v.op, c.of(v.lhs), c.of(v.rhs))),
    n.Compare: copied(lambda c, v: c.k.compare(v.op, c.of(v.lhs), c.of(v.rhs))),
    n.Unary: copied(lambda c, v: c.k.unary(v.op, c.of(v.x))),
    n.Select: copied(lambda c, v: c.k.select(c.of(v.cond), c.of(v.a), c.of(v.b))),
    n.Cast: copied(lambda c, v: c.k.cast(c.of(v.x), v.dtype)),
    n.Bitcast: copied(lambda c, v: c.k.bitcast(c.of(v.x), v.dtype)),
    n.Fma: copied(lambda c, v: c.k.fma(c.of(v.a), c.of(v.b), c.of(v.c))),
    n.Dot4: copied(
        lambda c, v: c.k.dot4(c.of(v.acc), c.of(v.u), c.of(v.s), v.u_max, signed=v.signed)
    ),
    n.Dot2: copied(lambda c, v: c.k.dot2(c.of(v.acc), c.of(v.a), c.of(v.b))),
    n.Lookup: copied(lambda c, v: c.k.lookup(c.of(v.x), v.table)),
    n.Shuffle: copied(lambda c, v: c.k.shuffle(c.of(v.a), c.of(v.b), v.lanes)),
    n.Permute: copied(lambda c, v: c.k.permute(c.of(v.x), c.of(v.at))),
    n.Broadcast: copied(lambda c, v: c.k.broadcast(c.of(v.x), v.lane)),
    n.Vote: copied(lambda c, v: c.k.any(c.of(v.x)) if v.op == "any" else c.k.all(c.of(v.x))),
    n.Get: copied(lambda c, v: c.locals[v.local].get()),
    n.Local: local,
    n.Set: set_local,
    n.Store: store,
    n.For: loop,
    n.Repeat: repeat,
    n.If: branch,
    n.Barrier: lambda c, node: c.k.barrier(),
    n.Trap: trap,
    n.Prefetch: nothing,
    n.Region: region,
}
