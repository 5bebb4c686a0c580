"""Code generation, wide workgroups: a workgroup of several vectors runs each stretch between
barriers vector by vector.

Receives the workbench of a program and its body; what holds barriers (loops, branches, regions) is
emitted once, what lies between them in a loop over the vectors. Addresses and guards are computed
anew in every stretch that needs them, so they keep their stride; other values that outlive their
stretch are kept in memory, one vector beside the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tetrad.backends.llvm.emitter import Codegen, Emitted
from tetrad.core.dtypes import bool_, index
from tetrad.core.errors import CompileError
from tetrad.core.record import fields
from tetrad.kernel import nodes as n

Stretch = tuple[n.Instr, ...]
MOST_KEPT = 1 << 20  # bytes on the stack of a worker
PURE = n.Binary | n.Compare | n.Unary | n.Select | n.Cast


class Wide:
    """The walk over the body of a wide workgroup; `enter(first)` defines the ids of the vector
    beginning there."""

    def __init__(self, cg: Codegen, program: n.Program, enter: Callable[[str], None]) -> None:
        self.cg, self.program, self.enter = cg, program, enter
        self.vectors = -(-program.lanes // cg.lanes)
        self.uses = Uses(program.body)
        kept = [v for v in self.uses.outliving if v not in self.uses.cheap]
        refuse_large(program, sum(v.dtype.nbytes for v in kept) * program.lanes)
        self.slots = {v: self.slot(v) for v in kept}

    def slot(self, value: n.Value) -> str:
        """Room for a value that outlives its stretch; a local has a copy for each vector, uniform
        or not."""
        kind = self.cg.type(value.dtype, self.cg.is_varying(value))
        return self.cg.alloca(f"[{self.vectors} x {kind}]" if self.is_each(value) else kind)

    def is_each(self, value: n.Value) -> bool:
        return isinstance(value, n.Local) or self.cg.is_varying(value)

    def block(self, block: n.Block) -> None:
        for part in parts(block):
            if isinstance(part, tuple):
                self.stretch(part)
            elif not isinstance(part, n.Barrier):
                self.bring(used_by(part), None)
                self.cg.run_one(part)

    def stretch(self, stretch: Stretch) -> None:
        """here -> piece -[more]-> piece;  -> done -> the last, partial vector"""
        cg, lanes = self.cg, self.cg.lanes
        whole, rest = self.program.lanes // lanes * lanes, self.program.lanes % lanes
        slot, body, done = cg.alloca("i64"), cg.name("piece"), cg.name("done")
        with cg.child() as scope:
            cg.label(body)
            first = cg.new(f"load i64, ptr {slot}")
            self.piece(stretch, first, lanes)
            following = cg.new(f"add nsw i64 {first}, {lanes}")
            cg.line(f"store i64 {following}, ptr {slot}")
            again = cg.new(f"icmp slt i64 {following}, {whole}")
            cg.line(f"br i1 {again}, label {body}, label {done}")
            cg.label(done)
        cg.line(f"store i64 0, ptr {slot}")
        cg.line(f"br label {body}")
        cg.splice(scope)
        if rest:
            self.piece(stretch, str(whole), rest)

    def piece(self, stretch: Stretch, first: str, count: int) -> None:
        """Invocations first .. first+count-1; lanes beyond them are masked off."""
        cg = self.cg
        with cg.child() as scope, cg.undivided():
            self.enter(first)
            if count < cg.lanes:
                cg.mask = cg.first_lanes(count)
            vector = cg.new(f"udiv i64 {first}, {cg.lanes}")
            self.bring(self.uses.needs[stretch], vector)
            self.bring(
                [v for v in flat(stretch) if isinstance(v, n.Local) and v in self.slots], vector
            )
            cg.run(stretch)
            self.keep(stretch, vector)
        cg.splice(scope)

    def bring(self, values: list[n.Value], vector: str | None) -> None:
        """Make values of earlier stretches known here; `vector` None: between stretches, where all
        is uniform."""
        cg = self.cg
        for value in values:
            if value in self.uses.cheap:
                self.compute(value, vector)
            elif isinstance(value, n.Local):
                cg.set(
                    value, Emitted(self.place(value, vector), None if cg.is_varying(value) else 0)
                )
            else:
                kind = cg.type(value.dtype, cg.is_varying(value))
                held = cg.new(f"load {kind}, ptr {self.place(value, vector)}")
                cg.set(value, Emitted(held, None if cg.is_varying(value) else 0))

    def compute(self, value: n.Value, vector: str | None) -> None:
        """A cheap value again, unless this scope has it; counters are known from their loops."""
        if isinstance(value, n.Counter) or value in self.cg.scopes[-1].known:
            return
        self.bring(used_by(value), vector)
        self.cg.run_one(value)

    def keep(self, stretch: Stretch, vector: str) -> None:
        """Store what later stretches need; locals are in their place already."""
        for value in flat(stretch):
            if (
                isinstance(value, n.Value)
                and value in self.slots
                and not isinstance(value, n.Local)
            ):
                varying = self.cg.is_varying(value)
                kind, operand = self.cg.type(value.dtype, varying), self.cg.operand(value, varying)
                self.cg.line(f"store {kind} {operand}, ptr {self.place(value, vector)}")

    def place(self, value: n.Value, vector: str | None) -> str:
        if not self.is_each(value):
            return self.slots[value]
        kind = self.cg.type(value.dtype, self.cg.is_varying(value))
        return self.cg.new(f"getelementptr {kind}, ptr {self.slots[value]}, i64 {vector or 0}")


def refuse_large(program: n.Program, nbytes: int) -> None:
    if nbytes > MOST_KEPT:
        message = (
            f"{program.name}: keeps {nbytes} bytes of values across barriers, {MOST_KEPT} are "
            "allowed"
        )
        raise CompileError(message, hint="use a smaller workgroup, or scratch")


class Uses:
    """Which values each stretch takes from outside, which outlive the stretch that defines them,
    which are cheap: addresses and guards made of ids, arguments and numbers."""

    def __init__(self, body: n.Block) -> None:
        self.needs: dict[Stretch, list[n.Value]] = {}
        self.outliving: dict[n.Value, None] = {}
        self.cheap: set[n.Value] = set()
        for instr in n.walk(body):
            self.classify(instr)
        self.block(body)

    def classify(self, instr: n.Instr) -> None:
        if isinstance(instr, n.For):
            self.cheap.add(instr.counter)
        if not isinstance(instr, n.Const | n.Arg | n.Id | n.BufferLength | PURE):
            return
        is_leaf = not isinstance(instr, PURE)
        if is_leaf or instr.dtype in (index, bool_) and self.cheap.issuperset(used_by(instr)):
            self.cheap.add(instr)

    def block(self, block: n.Block) -> None:
        for part in parts(block):
            if isinstance(part, tuple):
                self.needs[part] = self.outside(part)
                self.add(self.needs[part])
                continue
            self.add(used_by(part))
            for inner in n.inner_blocks(part):
                self.block(inner)

    def outside(self, stretch: Stretch) -> list[n.Value]:
        """What is used but not defined here."""
        defined: set[n.Instr] = set()
        needed: dict[n.Value, None] = {}
        for instr in n.walk(stretch):
            needed.update((v, None) for v in used_by(instr) if v not in defined)
            defined.add(instr)
            if isinstance(instr, n.For):
                defined.add(instr.counter)
        return list(needed)

    def add(self, values: list[n.Value]) -> None:
        for value in values:
            if value not in self.outliving:
                self.outliving[value] = None
                if value in self.cheap:
                    self.add(used_by(value))


def parts(block: n.Block) -> Iterator[Stretch | n.Instr]:
    """The block cut at its barriers: stretches without any, and the instructions that are or hold
    one."""
    stretch: list[n.Instr] = []
    for instr in block:
        if not holds_barrier(instr):
            stretch.append(instr)
            continue
        if stretch:
            yield tuple(stretch)
            stretch = []
        yield instr
    if stretch:
        yield tuple(stretch)


def holds_barrier(instr: n.Instr) -> bool:
    return any(isinstance(i, n.Barrier) for i in n.walk((instr,)))


def flat(block: n.Block) -> Iterator[n.Instr]:
    """The instructions whose values are visible after the block: regions have no scope."""
    for instr in block:
        yield instr
        if isinstance(instr, n.Region):
            yield from flat(instr.body)


def used_by(instr: n.Instr) -> list[n.Value]:
    """The operands of an instruction itself, not of its blocks."""
    held = [getattr(instr, name) for name in fields(instr) if name != "counter"]
    return [v for v in held if isinstance(v, n.Value)]
