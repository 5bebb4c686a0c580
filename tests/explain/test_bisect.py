"""bisect: sound programs agree at every station; a fault planted in a station is found there, with
the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.explain.programs import arrays, loops, mix, mix_arguments, softmax
from tetrad.backends.cpu import code_cache as objects
from tetrad.backends.cpu import compile as kernels
from tetrad.backends.cpu import encode as schedule
from tetrad.backends.cpu.cache import ObjectCache
from tetrad.backends.llvm.rules import rules
from tetrad.compiler import pipeline
from tetrad.explain.bisect import bisect
from tetrad.kernel import nodes as n
from tetrad.ops.transcendental import tanh
from tetrad.passes.rewrite import Rules, var
from tetrad.passes.step import Pass
from tetrad.schedule.plan import Life, Plan


@pytest.fixture(autouse=True)
def own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are compiled anew and kept nowhere: code from a faulty emitter must not be found by
    other tests."""
    monkeypatch.setattr(objects, "disk_cache", lambda: ObjectCache(None))
    monkeypatch.setattr(kernels, "KERNELS", kernels.Kernels(objects.Objects()))


def squares(x: Any) -> Any:
    return td.tanh(x) * x + 1


SOUND: list[tuple[Callable[..., Any], list[np.ndarray]]] = [
    (squares, arrays((37,))),
    (softmax, arrays((3, 50))),
    (mix, mix_arguments()),
    (lambda x: (td.sum(x, axis=0), x, td.cumulative_sum(x, axis=1)), arrays((9, 4))),
    (lambda x: x[:0] + 1, arrays((9, 4))),
    (loops, arrays((6,), (5, 6))),
    (lambda c, xs: td.scan(lambda c, x: (td.tanh(c * x), c), c, xs), arrays((6,), (5, 6))),
    (lambda x: td.floor(td.exp(x) * 10).astype(td.int32) % 7 == 3, arrays((100,))),
    (lambda x: td.sqrt(x - 1) / 0, arrays((100,))),
    (lambda x: (x * 2).at[2].set(5.0) + 1, arrays((8, 4))),
    (
        lambda x: td.scan(lambda c, i: (c.at[i].add(7.0), td.sum(c)), x * 3, td.arange(4)),
        arrays((8, 4)),
    ),
    (lambda a, b: td.linalg.solve(a + 9 * td.eye(4), b), arrays((4, 4), (4,))),
    (lambda x: td.concat([x + 1] * 20 + [x], axis=1) * 2, arrays((3, 5))),
]


@pytest.mark.parametrize(("function", "given"), SOUND)
def test_sound_programs_agree_at_every_station(
    function: Callable[..., Any], given: list[np.ndarray]
) -> None:
    found = bisect(function)(*given)
    assert found.agrees and found.station is None, found
    assert [c.station for c in found.checked] == ["trace", "passes", "lower", "codegen", "schedule"]
    assert str(found).endswith("every station gives the same answer")


def test_arguments_survive_donation() -> None:
    x = td.asarray(np.ones(10, np.float32))
    f = td.jit(lambda x: x * 2 + 1, donate_argnums=0)
    assert td.bisect(f)(x).agrees and not x.is_deleted
    assert np.asarray(x).tolist() == [1.0] * 10


def test_symbolic_sizes_and_calls() -> None:
    layer = td.jit(lambda x, w: td.tanh(x @ w))
    f = td.jit(lambda x, w: layer(layer(x, w), w), dims=({0: td.Dim("batch")}, None))
    for batch in (3, 5):
        found = td.bisect(f)(*arrays((batch, 6), (6, 6)))
        assert found.agrees, found
    assert f.compiles == 1


def test_a_function_with_state_differs_when_traced() -> None:
    calls: list[int] = []

    def drifting(x: Any) -> Any:
        calls.append(1)
        return x * float(len(calls))

    found = bisect(drifting)(td.ones(4))
    assert found.station == "trace" and found.difference is not None
    assert found.difference.source is not None and found.difference.source.function == "drifting"
    assert "hint: a function that reads other state" in str(found)


def split_pipeline() -> tuple[list[Pass], list[Any]]:
    """The steps from graph to graph, and those after them."""
    passes = [step for step in pipeline.PIPELINE if isinstance(step, Pass)]
    return passes, [step for step in pipeline.PIPELINE if not isinstance(step, Pass)]


def test_a_wrong_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Rules("wrong")

    @wrong.rule(var("x") * var("y"))
    def drop_a_factor(x: Any, y: Any) -> Any:
        """x * y -> x"""
        return x

    passes, rest = split_pipeline()
    monkeypatch.setattr(pipeline, "PIPELINE", (*passes, Pass("wrong", wrong.apply), *rest))
    found = bisect(squares)(*arrays((37,)))
    assert found.station == "passes" and found.difference is not None
    assert "pass wrong, rule wrong.drop_a_factor: multiply f32[37] -> tanh" in found.difference.what
    assert found.difference.source is not None and found.difference.source.function == "squares"


def test_a_wrong_rule_inside_a_call_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Rules("wrong")

    @wrong.rule(var("x") * var("y"))
    def drop_a_factor(x: Any, y: Any) -> Any:
        """x * y -> x"""
        return x

    _, rest = split_pipeline()
    monkeypatch.setattr(pipeline, "PIPELINE", (Pass("wrong", wrong.apply), *rest))
    inner = td.jit(squares)
    found = bisect(lambda x: inner(x) - 1)(*arrays((37,)))
    assert found.station == "passes" and "wrong.drop_a_factor" in str(found)


def test_a_wrong_lowering_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = tanh.lower_rule
    assert sound is not None
    monkeypatch.setattr(tanh, "lower_rule", lambda k, x: sound(k, x) * 1.0001)
    found = bisect(squares)(*arrays((37,)))
    assert found.station == "lower" and found.difference is not None
    assert "(map), %5: f32[37] = add(" in found.difference.what
    assert found.difference.source is not None and found.difference.source.function == "squares"


@pytest.mark.usefixtures("own_code")
def test_a_wrong_emitter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = rules.table[n.Binary]

    def swapped(cg: Any, node: Any) -> Any:
        if node.op != "mul" or not node.dtype.is_float:
            return sound(cg, node)
        other = n.Binary(node.dtype, "add", node.lhs, node.rhs)
        cg.varying.update({other} if node in cg.varying else ())
        return sound(cg, other)

    monkeypatch.setitem(rules.table, n.Binary, swapped)
    found = bisect(lambda x: x * (x - 3))(*arrays((37,)))
    assert found.station == "codegen" and found.difference is not None
    assert (
        "one thread" in found.difference.what
        and "37 of 37 elements differ" in found.difference.detail
    )


@pytest.mark.parametrize(
    ("at", "where"), [(40, "12 bytes after its end"), (-2, "8 bytes before it")]
)
def test_a_write_beside_an_array_is_named(
    monkeypatch: pytest.MonkeyPatch, at: int, where: str
) -> None:
    sound = rules.table[n.Store]

    def strays(cg: Any, node: Any) -> Any:
        cg.line(f"store float 1.0, ptr {cg.pointer(node.buffer, str(at))}")
        return sound(cg, node)

    monkeypatch.setitem(rules.table, n.Store, strays)
    found = bisect(lambda x: x * 2)(*arrays((37,)))
    assert found.station == "codegen" and found.difference is not None
    assert "out0: f32[37]" in found.difference.what and where in found.difference.detail


def test_a_wrong_memory_plan_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def crowded(lives: list[Life]) -> Plan:
        return Plan((0,) * len(lives), max((life.nbytes for life in lives), default=0))

    monkeypatch.setattr(schedule, "plan", crowded)
    found = bisect(mix)(*mix_arguments())
    assert found.station == "schedule" and found.difference is not None
    assert found.difference.what.startswith("step ") and found.difference.source is not None


def test_a_wrong_memory_plan_of_a_loop_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def crowded(lives: list[Life]) -> Plan:
        return Plan((0,) * len(lives), max((life.nbytes for life in lives), default=0))

    monkeypatch.setattr(schedule, "plan", crowded)
    found = bisect(loops)(*arrays((6,), (5, 6)))
    assert found.station == "schedule" and found.difference is not None
    assert found.difference.what.startswith("step ")
