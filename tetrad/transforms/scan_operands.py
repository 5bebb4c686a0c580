"""Transforms, scan operands: the operands of a scan, apart; what the derivatives of scans share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tetrad.core.record import record
from tetrad.graph.nodes import Node
from tetrad.transforms.forward import instantiate
from tetrad.transforms.jvp import Flags


@record
class ScanOperands:
    """The operands of a scan, or what belongs to each of them."""

    consts: tuple[Any, ...]
    carries: tuple[Any, ...]
    xs: tuple[Any, ...]

    @staticmethod
    def of(node: Node, values: Sequence[Any]) -> ScanOperands:
        a, b = node.param("consts"), node.param("consts") + node.param("carries")
        return ScanOperands(tuple(values[:a]), tuple(values[a:b]), tuple(values[b:]))

    @property
    def all(self) -> tuple[Any, ...]:
        return (*self.consts, *self.carries, *self.xs)

    def with_carries(self, carries: Sequence[Any]) -> ScanOperands:
        return ScanOperands(self.consts, tuple(carries), self.xs)


def settings(node: Node) -> dict[str, Any]:
    return {name: node.param(name) for name in ("length", "unroll")} | {"source": node.source}


def settled(flags: ScanOperands, step: Callable[[ScanOperands], Flags]) -> ScanOperands:
    """The flags with every carry marked that a step makes depend on what is marked."""
    while True:
        after = tuple(a or b for a, b in zip(flags.carries, step(flags), strict=True))
        if after == flags.carries:
            return flags
        flags = flags.with_carries(after)


def instantiated(
    tangents: ScanOperands, flags: ScanOperands, primals: ScanOperands
) -> ScanOperands:
    """Tangents for all that is marked: a carry that only changes later starts with no change."""
    triples = zip(tangents.carries, flags.carries, primals.carries, strict=True)
    return tangents.with_carries(
        [instantiate(t, c.type) if flag else None for t, flag, c in triples]
    )


def spread_reached(reached: Flags, linear: Flags) -> Flags:
    """For every input: is it linear, and does a cotangent come back to it?"""
    rest = iter(reached)
    return tuple(flag and next(rest) for flag in linear)
