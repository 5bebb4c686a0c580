"""CUDA back end, predication: votes come to where all threads of a block are.

A program in, a program with the same meaning out. A vote inside a branch that only some threads
take asks the active ones; a device can only wait for all of them. Such a branch becomes straight
code under a condition: all threads run it if one is active, memory and locals from outside change
for the active ones alone.
"""

from __future__ import annotations

from typing import Any

from tetrad.core.dtypes import DType, bool_
from tetrad.core.errors import UnsupportedError
from tetrad.core.record import fields, replace
from tetrad.kernel import nodes as n
from tetrad.kernel.uniformity import varying


def predicate_votes(program: n.Program) -> n.Program:
    """The program without votes in divergent flow; the same object if it has none."""
    if program.lanes == 1 or not holds_vote(program.body):
        return program
    return replace(program, body=_Predication(program).block(program.body, None))


def holds_vote(block: n.Block) -> bool:
    return any(isinstance(instr, n.Vote) for instr in n.walk(block))


class _Predication:
    """The walk: which values differ, what each old value has become, and at which depth of
    conditions each local was declared."""

    def __init__(self, program: n.Program) -> None:
        self.differs = varying(program)
        self.now: dict[n.Value, n.Value] = {}
        self.declared: dict[n.Value, int] = {}
        self.depth = 0

    def block(self, block: n.Block, mask: n.Value | None) -> n.Block:
        return tuple(made for instr in block for made in self.one(instr, mask))

    def one(self, instr: n.Instr, mask: n.Value | None) -> list[n.Instr]:
        if isinstance(instr, n.If):
            return self.branch(instr, mask)
        if isinstance(instr, n.Repeat):
            self.check_loop(instr, mask)
        made = self.renewed(instr, mask)
        if isinstance(made, n.Local):
            self.declared[made] = self.depth
        if mask is None:
            return [made]
        match made:
            case n.Vote():
                return self.vote(instr, made, mask)
            case n.Load() if made.at in self.differs:
                return self.access(instr, made, mask)
            case n.Atomic():
                return self.access(instr, made, mask)
            case n.Set() if self.declared[made.local] == self.depth:
                return [made]  # unseen where it is not active
            case n.Store() | n.Set():
                return [n.If(mask, (made,))]
            case n.Trap():
                both = n.Binary(bool_, "and", mask, made.cond)
                return [both, n.Trap(both, made.code, made.value)]
            case _:
                return [made]

    def check_loop(self, loop: n.Repeat, mask: n.Value | None) -> None:
        """Threads that have left a loop do not come back for the votes of the others."""
        if mask is not None or (loop.local in self.differs and holds_vote(loop.body)):
            raise UnsupportedError(
                "a vote beside a loop that threads leave one by one",
                hint="vote outside of the loop, or let all threads leave it together",
            )

    def renewed(self, instr: n.Instr, mask: n.Value | None) -> n.Instr:
        """The instruction with operands and blocks as they are now."""
        given = {name: getattr(instr, name) for name in fields(instr)}
        changed: dict[str, Any] = {k: self.now[v] for k, v in given.items() if v in self.now}
        if isinstance(instr, n.For | n.Repeat | n.Region):
            changed["body"] = self.block(instr.body, mask)
        if not changed:
            return instr
        made = type(instr)(**{**given, **changed})
        if isinstance(made, n.Value):
            self.become(instr, made)
        return made

    def become(self, old: n.Instr, new: n.Value) -> None:
        if isinstance(old, n.Value):
            self.now[old] = new
            if old in self.differs:
                self.differs.add(new)

    def branch(self, instr: n.If, mask: n.Value | None) -> list[n.Instr]:
        cond = self.now.get(instr.cond, instr.cond)
        if instr.cond not in self.differs:
            return [n.If(cond, self.block(instr.then, mask), self.block(instr.orelse, mask))]
        predicated = holds_vote(instr.then) or holds_vote(instr.orelse)
        if mask is None and not predicated:
            return [n.If(cond, self.block(instr.then, None), self.block(instr.orelse, None))]
        made: list[n.Instr] = []
        for wanted, block in ((True, instr.then), (False, instr.orelse)):
            if block:
                here = joint(made, mask, cond if wanted else negated(made, cond))
                made += self.side(block, here, predicated)
        return made

    def side(self, block: n.Block, mask: n.Value, predicated: bool) -> list[n.Instr]:
        """A block for the threads of the mask: as a branch, or as straight code if there are
        some."""
        if not predicated:
            return [n.If(mask, self.block(block, None))]
        self.depth += 1
        some, body = n.Vote(bool_, "any", mask), self.block(block, mask)
        self.depth -= 1
        return [some, n.If(some, body)]

    def vote(self, old: n.Instr, vote: n.Vote, mask: n.Value) -> list[n.Instr]:
        made: list[n.Instr] = []
        if vote.op == "any":
            asked = n.Binary(bool_, "and", vote.x, mask)
        else:
            asked = n.Binary(bool_, "or", vote.x, negated(made, mask))
        new = n.Vote(bool_, vote.op, asked)
        self.become(old, new)
        return [*made, asked, new]

    def access(self, old: n.Instr, made: n.Load | n.Atomic, mask: n.Value) -> list[n.Instr]:
        """Memory is left alone where it is not active."""
        zero = n.Const(made.dtype, zero_of(made.dtype))
        local = n.Local(made.dtype, zero)
        new = n.Get(made.dtype, local)
        self.become(old, new)
        return [zero, local, n.If(mask, (made, n.Set(local, made))), new]


def joint(made: list[n.Instr], mask: n.Value | None, cond: n.Value) -> n.Value:
    if mask is None:
        return cond
    both = n.Binary(bool_, "and", mask, cond)
    made.append(both)
    return both


def negated(made: list[n.Instr], cond: n.Value) -> n.Value:
    opposite = n.Unary(bool_, "not", cond)
    made.append(opposite)
    return opposite


def zero_of(dtype: DType) -> bool | int | float:
    return False if dtype is bool_ else 0.0 if dtype.is_float else 0
