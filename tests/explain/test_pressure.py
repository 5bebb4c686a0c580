"""The pressure of a program: chains of launches, their ranks, who answered, and what it says."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tetrad.compiler.pressure import CALLS
from tetrad.explain.pressure import ChainPressure
from tetrad.passes import plan_loop


def chain_of(*shape: int, threshold: float | None = None) -> ChainPressure:
    story = td.explain(lambda x: td.sort(td.sort(td.tanh(x)) * 2))(np.zeros(shape, np.float32))
    (chain,) = story.pressure(threshold).chains
    return chain


def test_a_chain_is_asked_by_the_kernel() -> None:
    before = CALLS.kernel, CALLS.reference
    chain = chain_of(50)
    assert (CALLS.kernel, CALLS.reference) == (before[0] + 1, before[1])
    assert chain.names == ("tanh", "sort", "multiply", "sort")
    assert chain.ranks == (50, 50, 50)
    assert chain.pressure == 50**3
    assert chain.mean == pytest.approx(50)
    assert chain.nbytes == 600
    assert chain.answered_by == "kernel"
    assert chain.should_fuse is None


def test_beyond_the_limits_the_closed_form_answers() -> None:
    chain = chain_of(1100)
    assert chain.pressure == 1100**3
    assert chain.answered_by.startswith("closed form (a core of 1100 x 1100 = 1210000 cells")


@pytest.mark.parametrize(("threshold", "want"), [(49, False), (50, True), (51, True)])
def test_with_a_threshold_it_decides(threshold: float, want: bool) -> None:
    chain = chain_of(50, threshold=threshold)
    assert chain.should_fuse is want
    assert str(chain).endswith("; fuse" if want else "; do not fuse")


def test_a_program_of_one_launch_has_no_chain() -> None:
    found = td.explain(lambda x: x + 1)(np.zeros(3, np.float32)).pressure()
    assert found.chains == ()
    assert str(found) == "pressure of <lambda>\n  no launch reads another's"


def test_loops_end_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_loop, "is_small", lambda *bodies: False)  # else it is one launch

    def f(x: td.Array) -> td.Array:
        y = td.sort(td.sort(x))
        z, _ = td.scan(lambda c, _: (td.sort(c * 2), None), y, length=5)
        return td.sort(td.sort(z))

    chains = td.explain(f)(np.zeros(20, np.float32)).pressure().chains
    assert [chain.names for chain in chains] == [("sort", "sort")] * 2
