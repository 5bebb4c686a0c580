"""The evaluator runs launches, calls, loops and branches as the language says."""

from __future__ import annotations

import numpy as np

from tests.schedule.schedules import FLAG, FOUR, INDEX, adding, doubled, doubling, is_small
from tetrad.core.types import ArrayType
from tetrad.schedule.build import ScheduleBuilder
from tetrad.schedule.evaluate import evaluate
from tetrad.schedule.nodes import Loop, Switch, While
from tetrad.schedule.verify import verify

X = np.arange(1, 5, dtype=np.float32)


def results(b: ScheduleBuilder, *arrays: np.ndarray) -> list[np.ndarray]:
    schedule = b.finish()
    verify(schedule)
    return evaluate(schedule, arrays, {})


def test_launches_run_in_order_over_temps_and_constants() -> None:
    b = ScheduleBuilder("f")
    x, held, y = b.input(FOUR), b.temp(FOUR), b.output(FOUR)
    b.launch(doubling(), x, held, groups=1)
    b.launch(doubling(), held, y, groups=1)
    b.launch(adding(), b.constant(X), y, groups=1, updates=frozenset({y}))
    (got,) = results(b, X)
    assert got.tolist() == (5 * X).tolist()


def test_a_call_runs_its_schedule() -> None:
    b = ScheduleBuilder("f")
    x, held, y = b.input(FOUR), b.temp(FOUR), b.output(FOUR)
    body = doubled("body")
    b.call(body, [x], [held])
    b.call(body, [held], [y])
    assert results(b, X)[0].tolist() == (4 * X).tolist()


def test_a_loop_carries_its_state() -> None:
    b = ScheduleBuilder("f")
    x, y = b.input(FOUR), b.output(FOUR)
    spare = b.temp(FOUR)
    b.add(Loop(doubled(), (x,), (y,), 0, 1, 3, False, (spare,), (-1,)))
    assert results(b, X)[0].tolist() == (8 * X).tolist()


def test_a_loop_walks_rows_backwards() -> None:
    rows = ArrayType(FOUR.dtype, (3, 4))
    b = ScheduleBuilder("f")
    b.add(Loop(doubled(), (b.input(rows),), (b.output(rows),), 0, 0, 3, True, (), ()))
    xs = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert results(b, xs)[0].tolist() == (2 * xs).tolist()


def test_a_while_loop_ends_when_its_condition_says_so() -> None:
    b = ScheduleBuilder("f")
    x, y = b.input(FOUR), b.output(FOUR)
    b.add(While(is_small(), doubled(), (x,), (y,), 0, 0, (b.temp(FOUR),), b.temp(FLAG)))
    assert results(b, X)[0].tolist() == (128 * X).tolist()


def test_a_switch_clamps_its_index() -> None:
    again = ScheduleBuilder("again")
    x, held, y = again.input(FOUR), again.temp(FOUR), again.output(FOUR)
    again.launch(doubling(), x, held, groups=1)
    again.launch(doubling(), held, y, groups=1)
    branches = (doubled(), again.finish())
    for index, factor in ((-1, 2), (0, 2), (1, 4), (9, 4)):
        b = ScheduleBuilder("f")
        which, x = b.input(INDEX), b.input(FOUR)
        b.add(Switch(which, branches, (x,), (b.output(FOUR),)))
        (got,) = results(b, np.array(index, np.int32), X)
        assert got.tolist() == (factor * X).tolist()
