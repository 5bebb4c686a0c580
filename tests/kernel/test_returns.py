"""Early returns: the evaluator lets invocations go, the rewrite makes branches, and both agree."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from tests.kernel.programs import programs, run_random
from tetrad.core.dtypes import i32
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.returns import holds_return, without_returns
from tetrad.kernel.verify import problems


@given(programs())
def test_branches_do_what_returns_do(program: n.Program) -> None:
    rewritten = without_returns(program)
    assert not holds_return(rewritten.body) and problems(rewritten) == []
    for got, want in zip(run_random(rewritten), run_random(program), strict=True):
        assert got.tobytes() == want.tobytes()
    assert without_returns(rewritten) is rewritten


def searching(lanes: int) -> n.Program:
    """y[i] = the first place of x[i] in keys; -1 if it has none. Every step is counted."""
    k = KernelBuilder("search", lanes)
    x, keys, y = k.buffer("x", i32), k.buffer("keys", i32), k.buffer("y", i32, "readwrite")
    steps = k.buffer("steps", i32, "readwrite", 1)
    own = k.load(x, k.global_id())
    k.store(y, k.global_id(), -1)
    with k.loop(k.length(keys)) as j:
        k.atomic("add", steps, 0, 1)
        with k.when(own.eq(k.load(keys, j))):
            k.store(y, k.global_id(), k.cast(j, i32))
            k.return_()
    return k.finish()


def test_who_has_returned_does_nothing_more() -> None:
    rng = np.random.default_rng(1)
    keys, x = rng.permutation(20).astype(np.int32), rng.integers(0, 24, 48).astype(np.int32)
    places = [int((keys == value).argmax()) if value in keys else -1 for value in x]
    for lanes in (1, 4, 16, 48):
        program, y, steps = searching(lanes), np.zeros(48, np.int32), np.zeros(1, np.int32)
        arrays = {"x": x, "keys": keys, "y": y, "steps": steps}
        evaluate(program, arrays, {}, (48 // lanes, 1, 1), races=True)
        assert y.tolist() == places
        assert steps[0] == sum(20 if place < 0 else place + 1 for place in places)


def test_a_guard_that_returns_is_the_guard_that_does_not() -> None:
    """`if i >= n: return` becomes `if i < n: ...`, which code generation knows."""

    def kernel(returns: bool) -> str:
        k = KernelBuilder("guard")
        size, x = k.arg("n"), k.buffer("x", i32, "readwrite")
        i = k.global_id()
        if returns:
            with k.when(i >= size):
                k.return_()
            k.store(x, i, 1)
        else:
            with k.when(i < size, guard=True):
                k.store(x, i, 1)
        return str(without_returns(k.finish()))

    assert [line.strip().partition(" = ")[2] for line in kernel(True).splitlines() if "lt(" in line]
    assert kernel(True).count("if ") == kernel(False).count("if ") == 1


def test_loads_behind_a_return_are_not_hoisted_over_it() -> None:
    """Whoever has returned does not read: the place may not exist."""
    k = KernelBuilder("hoist", 4)
    x, y = k.buffer("x", i32, count=1), k.buffer("y", i32, "readwrite", 8)
    far = k.arg("far")
    with k.loop(k.arg("n"), always=True) as i:
        with k.when(far >= 1):
            k.return_()
        k.store(y, k.lane() + i, k.load(x, far))
    y_array = np.zeros(8, np.int32)
    evaluate(k.finish(), {"x": np.ones(1, np.int32), "y": y_array}, {"far": 99, "n": 3})
    assert not y_array.any()
