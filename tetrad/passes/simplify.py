"""Passes, simplify: all sets of rules in one walk."""

from __future__ import annotations

from functools import cache
from typing import Any

from tetrad.core import lazy
from tetrad.graph.nodes import Graph, Node, topological
from tetrad.passes.algebra import algebra
from tetrad.passes.fold import fold
from tetrad.passes.layout import layout
from tetrad.passes.quantized import quantized
from tetrad.passes.regroup import regroup
from tetrad.passes.rewrite import Rule, RuleLog, Rules
from tetrad.passes.split import parts

# One walk: rules of one set enable those of another, and after the walk none fires.
usual = Rules("simplify", parts, layout, algebra, quantized, regroup, fold)


@cache
def all_rules() -> Rules:
    """With those on weights in groups, which are loaded when a program has any."""
    groups: Rules = lazy.module("tetrad.passes.groups").groups
    return Rules("simplify", parts, layout, algebra, quantized, groups, regroup, fold)


class Simplify:
    """The rules that a program may need, applied as `Rules` are."""

    @property
    def rules(self) -> list[Rule]:
        return all_rules().rules

    def apply(self, target: Any, trace: RuleLog | None = None) -> Any:
        return (all_rules() if has_groups(target) else usual).apply(target, trace)


def has_groups(target: Node | Graph) -> bool:
    """Are there integers of four bits in it?"""
    nodes = target.nodes() if isinstance(target, Graph) else topological([target])
    return any(kind.dtype.is_nibble for node in nodes for kind in node.types)


simplify = Simplify()
