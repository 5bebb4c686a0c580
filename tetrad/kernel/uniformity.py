"""Kernel language, uniformity: which values may differ between the invocations of one workgroup.

Receives a well-formed program, returns the set of its varying instructions. All others are uniform:
equal in every active invocation. `kernel.verify` asks for barriers and loop bounds, code generation
to choose scalar or vector.

Values vary because of local ids, and of locals that only some invocations have set. A load from a
uniform address is uniform: only a race could make it differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tetrad.kernel import nodes as n


def varying(program: n.Program) -> set[n.Instr]:
    """The instructions (locals and counters too) whose value may differ between invocations of a
    workgroup."""
    if program.lanes == 1:
        return set()
    analysis = _Analysis(program)
    while analysis.is_stale:
        analysis.is_stale = False
        analysis.block(program.body, 0)
    return analysis.varying


class _Analysis:
    """Walks the body until a fixed point: no local becomes varying after it was read as uniform.
    The set only grows."""

    def __init__(self, program: n.Program) -> None:
        self.program = program
        self.varying: set[n.Instr] = set()
        self.is_stale = True
        self.read: set[n.Local] = set()  # locals that a Get has read as uniform
        self.declared_at: dict[n.Local, int] = {}

    def block(self, block: n.Block, divergence: int) -> None:
        """`divergence` counts the enclosing divergent branches: at equal counts the same
        invocations are active."""
        for instr in block:
            rule = _RULES.get(type(instr))
            if rule is not None:
                rule(self, instr, divergence)

    def mark(self, instr: n.Instr, is_varying: bool) -> None:
        if is_varying:
            self.varying.add(instr)

    def mark_local(self, local: n.Local, is_varying: bool) -> None:
        if is_varying and local not in self.varying:
            self.varying.add(local)
            self.is_stale |= local in self.read


def _id(a: _Analysis, node: n.Id, divergence: int) -> None:
    a.mark(node, node.which == "local" and a.program.workgroup[node.axis] > 1)


def _any_of(*names: str) -> Callable[[_Analysis, Any, int], None]:
    """Varying if one of these operands is."""

    def rule(a: _Analysis, node: n.Value, divergence: int) -> None:
        a.mark(node, any(getattr(node, name) in a.varying for name in names))

    return rule


def _shuffle(a: _Analysis, node: n.Shuffle, divergence: int) -> None:
    a.mark(node, node.a is not node.b or node.a in a.varying)


def _atomic(a: _Analysis, node: n.Atomic, divergence: int) -> None:
    """Each invocation finds what the one before it left."""
    a.mark(node, True)


def _local(a: _Analysis, node: n.Local, divergence: int) -> None:
    a.declared_at[node] = divergence
    a.mark_local(node, node.init in a.varying)


def _get(a: _Analysis, node: n.Get, divergence: int) -> None:
    a.read.add(node.local)
    a.mark(node, node.local in a.varying)


def _set(a: _Analysis, node: n.Set, divergence: int) -> None:
    a.mark_local(node.local, node.value in a.varying or divergence > a.declared_at[node.local])


def _for(a: _Analysis, node: n.For, divergence: int) -> None:
    diverges = node.start in a.varying or node.stop in a.varying
    a.mark(node.counter, diverges)
    a.block(node.body, divergence + diverges)


def _while(a: _Analysis, node: n.Repeat, divergence: int) -> None:
    """Where the local varies, some invocations leave before others."""
    a.read.add(node.local)
    a.block(node.body, divergence + (node.local in a.varying))


def _if(a: _Analysis, node: n.If, divergence: int) -> None:
    inside = divergence + (node.cond in a.varying)
    a.block(node.then, inside)
    a.block(node.orelse, inside)


def _region(a: _Analysis, node: n.Region, divergence: int) -> None:
    a.block(node.body, divergence)


_RULES: dict[type[n.Instr], Callable[[_Analysis, Any, int], None]] = {
    n.Id: _id,
    n.Load: _any_of("at"),
    n.Atomic: _atomic,
    n.Binary: _any_of("lhs", "rhs"),
    n.Compare: _any_of("lhs", "rhs"),
    n.Unary: _any_of("x"),
    n.Select: _any_of("cond", "a", "b"),
    n.Cast: _any_of("x"),
    n.Bitcast: _any_of("x"),
    n.Fma: _any_of("a", "b", "c"),
    n.Dot4: _any_of("acc", "u", "s"),
    n.Dot2: _any_of("acc", "a", "b"),
    n.Lookup: _any_of("x"),
    n.Shuffle: _shuffle,
    n.Permute: _any_of("x", "at"),
    n.Local: _local,
    n.Get: _get,
    n.Set: _set,
    n.For: _for,
    n.Repeat: _while,
    n.If: _if,
    n.Region: _region,
}  # the rest yields no value, or a uniform one: Const, Arg, BufferLength, Broadcast, Vote
