"""Kernel language, the rules of flow: what may stand where, by the way invocations come there.

Receives a program whose instructions are in order, and the check it belongs to (`kernel.verify`).
Which values vary is the business of `kernel.uniformity`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tetrad.core.record import record
from tetrad.kernel import nodes as n
from tetrad.kernel.nodes import atomic_buffers
from tetrad.kernel.returns import without_returns
from tetrad.kernel.uniformity import varying

if TYPE_CHECKING:
    from tetrad.kernel.verify import Check


def check_flow(check: Check) -> None:
    """Early returns are looked at as the branches they stand for."""
    flat = without_returns(check.program)
    Flow(check, varying(flat)).block(flat.body, False)
    if atomic_buffers(flat.body):
        MixedUse(check).block(flat.body, frozenset())


class Flow:
    """The walk that tracks which values vary, and whether all invocations of the workgroup are
    active."""

    def __init__(self, check: Check, differs: set[n.Instr]) -> None:
        self.check, self.varying = check, differs

    def block(self, block: n.Block, divergent: bool) -> None:
        for instr in block:
            if divergent and isinstance(instr, n.Barrier | n.Shuffle | n.Permute | n.Broadcast):
                self.check.report(
                    "V010", "not all invocations of the workgroup may come here", instr
                )
            if isinstance(instr, n.Store):
                self.store(instr)
            elif isinstance(instr, n.If):
                inside = divergent or instr.cond in self.varying
                self.block(instr.then, inside)
                self.block(instr.orelse, inside)
            elif isinstance(instr, n.For):
                self.loop(instr, divergent)
            elif isinstance(instr, n.Repeat):
                self.block(instr.body, divergent or instr.local in self.varying)
            elif isinstance(instr, n.Region):
                self.block(instr.body, divergent)

    def loop(self, loop: n.For, divergent: bool) -> None:
        for bound in (loop.start, loop.stop):
            if bound in self.varying:
                self.check.report(
                    "V010",
                    "a loop bound differs between invocations; use a uniform one and an if",
                    loop,
                )
        self.block(loop.body, divergent)

    def store(self, store: n.Store) -> None:
        if store.value in self.varying and store.at not in self.varying:
            self.check.report(
                "K024",
                "a varying value at a uniform address; broadcast the lane that is meant",
                store,
            )


Accesses = frozenset[tuple[n.Buffer, bool]]  # with whether it is atomic
NONE: Accesses = frozenset()


@record
class Passage:
    """What running a block does to the accesses since the last barrier: those it adds, and whether
    earlier ones stay because a way through it has no barrier."""

    adds: Accesses
    keeps: bool

    def after(self, before: Accesses) -> Accesses:
        return self.adds | before if self.keeps else self.adds


class MixedUse:
    """The walk that finds a buffer changed atomically and accessed otherwise with no barrier
    between."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.known: dict[n.Instr, Passage] = {}

    def block(self, block: n.Block, before: Accesses) -> None:
        """`before`: the accesses since the last barrier on any way to the block."""
        for instr in block:
            access = access_of(instr)
            if access is not None and (access[0], not access[1]) in before:
                message = f"buffer {access[0].name} is accessed atomically and plainly"
                self.check.report("K014", f"{message} with no barrier between", instr)
            again = self.passage(instr).adds if isinstance(instr, n.For | n.Repeat) else NONE
            for inner in n.inner_blocks(instr):
                self.block(inner, before | again)
            before = self.passage(instr).after(before)

    def passage(self, instr: n.Instr) -> Passage:
        if instr not in self.known:
            self.known[instr] = self.look(instr)
        return self.known[instr]

    def look(self, instr: n.Instr) -> Passage:
        access = access_of(instr)
        if access is not None:
            return Passage(frozenset({access}), True)
        if isinstance(instr, n.Barrier):
            return Passage(NONE, False)
        ways = [self.through(inner) for inner in n.inner_blocks(instr)]
        may_skip = not isinstance(instr, n.Region | n.If)
        adds = NONE.union(*(way.adds for way in ways))
        return Passage(adds, may_skip or any(way.keeps for way in ways))

    def through(self, block: n.Block) -> Passage:
        adds, keeps = NONE, True
        for instr in block:
            passage = self.passage(instr)
            adds, keeps = passage.after(adds), keeps and passage.keeps
        return Passage(adds, keeps)


def access_of(instr: n.Instr) -> tuple[n.Buffer, bool] | None:
    if isinstance(instr, n.Atomic | n.Load | n.Store):
        return instr.buffer, isinstance(instr, n.Atomic)
    return None
