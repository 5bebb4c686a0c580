"""tests.fuzz.rules on fixed seeds, and defects that it must notice."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz import rules
from tests.fuzz.rules import RULES, check, only, varied
from tetrad.graph import constants
from tetrad.graph.build import constant, make_constant
from tetrad.graph.nodes import Node
from tetrad.ops.movement import expand
from tetrad.passes import rewrite
from tetrad.passes.rewrite import RuleLog, Rules, var

SEEDS = range(30 * len(RULES))
KINDS = {"q", "c", "b", "Dim"}


@pytest.mark.parametrize("first", SEEDS[:: len(SEEDS) // 5])
def test_rules_keep_types_and_meaning_on_operands_of_every_kind(first: int) -> None:
    assert [found for seed in range(first, first + len(SEEDS) // 5) if (found := check(seed))] == []


def test_every_rule_fires_and_every_kind_is_met() -> None:
    fired, kinds = set(), set()
    for seed in SEEDS:
        name = list(RULES)[seed % len(RULES)]
        graph = varied(np.random.default_rng(seed), name)
        if graph is None:
            continue
        only(RULES[name]).apply(graph, trace := RuleLog())
        fired |= {name} if trace.fired else set()
        kinds |= {n.type.dtype.kind for n in graph.nodes()}
        kinds |= {"Dim" for n in graph.nodes() if not n.type.is_static}
    assert fired == set(RULES) and kinds >= KINDS


def test_a_rule_that_loses_the_quantised_type_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    careless = Rules("careless")

    @careless.rule(var("value", ops=(constant,)))
    def one_value_is_broadcast(value: Node) -> Node | None:
        """constant([c, c, c])  ->  expand(constant(c))."""
        element = None if value.type.size == 1 else value.param("value").splat
        return None if element is None else expand(make_constant(element), shape=value.type.shape)

    monkeypatch.setattr(rules, "simplify", careless)
    assert any("turned" in (check(seed) or "") for seed in SEEDS)


def test_a_complex_number_taken_for_a_real_one_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(node: Node) -> constants.Number | None:
        while node.op is expand:
            node = node.inputs[0]
        value = node.param("value").splat if node.op is constant else None
        return None if value is None else constants._as_number(value)

    monkeypatch.setattr(rewrite, "constant_value", careless)
    assert any("TypeError" in (check(seed) or "") for seed in SEEDS)
