"""Kernel language, composition: who made which part of a program, as a tree.

Receives a program, or the id of a registered one; returns text: a line for each generator with its
nodes and who composed it, and the share of nodes that registered programs have given to others.
"""

from __future__ import annotations

from collections.abc import Iterator

from tetrad.core import lazy
from tetrad.core.record import field, record
from tetrad.kernel import nodes as n


@record(frozen=False)
class Part:
    """The regions of one generator and source beside one another."""

    generator: str
    source: str
    regions: int = 0
    nodes: int = 0  # with those of inner parts
    inner: dict[tuple[str, str], Part] = field(default_factory=dict)


def composition(program: n.Program | str) -> str:
    """The tree of a program's generators.

    >>> print(composition("tetrad::math::add"))  # doctest: +ELLIPSIS
    add: ... nodes
      tetrad::math::add: ... nodes
    0 of ... nodes (0 %) come from registered programs that others call
    """
    registry = lazy.module("tetrad.kernel.registry")
    whole: n.Program = registry.entry(program).build() if isinstance(program, str) else program
    root = Part(whole.name, "", 1)
    grow(root, whole.body)
    known = {entry.id for entry in registry.entries()}
    given = called(root, known)
    share = round(100 * given / max(root.nodes, 1))
    told = f"{given} of {root.nodes} nodes ({share} %) come from registered programs"
    return "\n".join([*lines(root, ""), f"{told} that others call"])


def grow(part: Part, block: n.Block) -> None:
    """Count the instructions of a block, regions apart."""
    for instr in block:
        if isinstance(instr, n.Region):
            key = (instr.generator, instr.source)
            inner = part.inner.setdefault(key, Part(*key))
            before = inner.nodes
            inner.regions += 1
            grow(inner, instr.body)
            part.nodes += inner.nodes - before
            continue
        part.nodes += 1
        for inner_block in n.inner_blocks(instr):
            grow(part, inner_block)


def called(part: Part, known: set[str]) -> int:
    """The nodes of registered programs inside that somebody composed."""
    return sum(
        inner.nodes if inner.source and inner.generator in known else called(inner, known)
        for inner in part.inner.values()
    )


def lines(part: Part, indent: str) -> Iterator[str]:
    times = f", {part.regions} times" if part.regions > 1 else ""
    by = f", called by {part.source}" if part.source else ""
    yield f"{indent}{part.generator}: {part.nodes} nodes{times}{by}"
    for inner in part.inner.values():
        yield from lines(inner, indent + "  ")
