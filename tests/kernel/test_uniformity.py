"""Uniformity: which values may differ inside a workgroup, and that evaluation never contradicts
it."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from tests.kernel.programs import programs
from tetrad.core.dtypes import f32, i32, index
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.evaluate import Run
from tetrad.kernel.returns import without_returns
from tetrad.kernel.uniformity import varying


def test_sources_and_operators() -> None:
    k = KernelBuilder("p", workgroup=(4, 1, 1))
    x, y, s = k.buffer("x", f32), k.buffer("y", f32, "readwrite"), k.scratch("s", f32, 4)
    uniform = [k.arg("n"), k.group_id(), k.lane(1), k.lane(1) + k.group_id(), k.const(1.0, f32)]
    uniform += [k.load(b, k.group_id()) for b in (x, y, s)]
    lane, loaded = k.lane(), k.load(x, k.lane())
    differing = [
        lane,
        loaded,
        lane + 1,
        loaded < 0.0,
        k.fma(loaded, 1.0, 2.0),
        k.select(loaded < 0.0, uniform[4], 2.0),
    ]
    differing += [k.cast(lane, i32), k.load(x, k.cast(loaded, index)), k.rotate(loaded, 1)]
    uniform += [k.broadcast(loaded), k.any(loaded < 0.0), k.rotate(uniform[5], 1)]
    found = varying(k.finish())
    assert [v.node for v in uniform if v.node in found] == []
    assert [v.node for v in differing if v.node not in found] == []


def test_one_lane_is_uniform() -> None:
    k = KernelBuilder("p", workgroup=1)
    k.store(k.buffer("y", i32, "write"), k.lane(), k.cast(k.lane(), i32))
    assert varying(k.finish()) == set()


def test_a_local_is_varying_once_one_assignment_is_even_if_it_comes_later() -> None:
    k = KernelBuilder("p", workgroup=4)
    early, late, still = k.local(0, i32), k.local(0, i32), k.local(0, i32)
    with k.loop(3):
        first = early.get()
        early.set(late.get() + 1)
        late.set(k.cast(k.lane(), i32))
        still.set(still.get() + 1)
    found = varying(k.finish())
    assert {early.node, late.node, first.node} <= found
    assert still.node not in found


def test_a_local_set_under_a_divergent_branch_is_varying_unless_it_lives_there() -> None:
    k = KernelBuilder("p", workgroup=4)
    outside, untouched = k.local(0, i32), k.local(0, i32)
    with k.when(k.group_id() < 2):
        untouched.set(1)
    with k.when(k.lane() < 2):
        outside.set(1)
        inside = k.local(0, i32)
        with k.loop(3):
            inside.set(inside.get() + 1)
    found = varying(k.finish())
    assert outside.node in found
    assert untouched.node not in found and inside.node not in found


def test_a_varying_condition_reaches_a_local_through_another() -> None:
    """Three passes: c turns varying by b's branch, b by a's, a by the lane."""
    k = KernelBuilder("p", workgroup=4)
    a, b, c = (k.local(0, i32) for _ in range(3))
    with k.loop(3):
        with k.when(b.get().eq(1)):
            c.set(1)
        with k.when(a.get().eq(1)):
            b.set(1)
        a.set(k.cast(k.lane(), i32))
    assert {a.node, b.node, c.node} <= varying(k.finish())


@given(programs())
def test_no_uniform_value_differs_when_evaluated(program: n.Program) -> None:
    program = without_returns(program)  # values of those that have gone may be anything
    counts = {b: 128 if b.name == "x" else 64 for b in program.buffers}
    memory = {"x": np.linspace(-3, 40, 128).astype(np.float32), "y": np.zeros(64, np.float32)}
    run = Run(program, memory, {"n": 4, "seq": 3}, counts, (1, 1, 1), range(1))
    with np.errstate(all="ignore"):
        run.block(program.body, None)
    found = varying(program)
    for instr in program.body:  # the top level: everybody is active
        if isinstance(instr, n.Value) and instr not in found:
            value = np.atleast_2d(run.values[instr])
            assert all(
                value[0, i].tobytes() == value[0, 0].tobytes() for i in range(value.shape[1])
            )
