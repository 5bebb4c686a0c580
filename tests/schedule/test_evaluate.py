"""The evaluator runs launches, routines, calls, loops and branches as the language says."""

from __future__ import annotations

import numpy as np

from tests.schedule.schedules import FLAG, FOUR, INDEX, adding, doubled, doubling, is_small
from tetrad.core.dtypes import as_dtype, f64
from tetrad.core.types import ArrayType
from tetrad.kernel.build import KernelBuilder
from tetrad.schedule import lapack
from tetrad.schedule.build import ScheduleBuilder
from tetrad.schedule.evaluate import evaluate
from tetrad.schedule.nodes import HostCall, HostMemory, HostRoom, Loop, Switch, While
from tetrad.schedule.verify import verify

X = np.arange(1, 5, dtype=np.float32)
INT = lapack.integer()


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


def test_a_routine_is_called_for_every_system() -> None:
    """Each of two matrices is factored where it lies; the routine counts rows in `info`."""
    matrices = ArrayType(f64, (2, 3, 3))
    report = as_dtype(f"int{lapack.library().bits}")
    b = ScheduleBuilder("f")
    a, info = b.output(matrices), b.output(ArrayType(report, (2,)))
    given = b.input(matrices)
    k = KernelBuilder("copy", 1)
    x, y = k.buffer("x", f64), k.buffer("y", f64, "write")
    k.store(y, k.group_id(), k.load(x, k.group_id()))
    b.launch(k.finish(), given, a, groups=18)
    memory = HostMemory(a, "readwrite", 0, 9), HostMemory(info, "write", 0, 1)
    b.add(HostCall("dpotrf", f"U{INT}m{INT}m", (3, 3), memory, 2))
    lower = np.array([[[2.0, 0, 0], [1, 3, 0], [4, 5, 6]], [[1, 0, 0], [1, 1, 0], [1, 1, 1]]])
    products = lower @ lower.transpose(0, 2, 1)
    products[1, 2, 2] = 0
    factors, reports = results(b, products)
    np.testing.assert_allclose(np.tril(factors[0]), lower[0])
    assert reports.tolist() == [0, 3]


def test_a_routine_works_off_columns_in_blocks() -> None:
    """Five right sides, two at a time; room is memory of nobody's."""
    b = ScheduleBuilder("f")
    y = b.output(ArrayType(f64, (2, 5)))
    k = KernelBuilder("ones", 1)
    k.store(k.buffer("y", f64, "write"), k.group_id(), k.const(6, f64))
    b.launch(k.finish(), y, groups=10)
    one, triangle = (b.constant(np.array(v)) for v in ([1.0], [[2.0, 0.0], [1.0, 3.0]]))
    memory = (
        HostMemory(one, "read"),
        HostMemory(triangle, "read"),
        HostMemory(y, "readwrite", 0, 0, 2),
    )
    b.add(HostCall("dtrsm", f"RUNN{INT}{INT}mm{INT}m{INT}", (5, 2, 2, 5), memory, 1, (0, 2)))
    room = HostCall("dgetrf", f"{INT}{INT}m{INT}mm", (0, 0, 1), (HostRoom(64),) * 3, 3)
    b.add(room)
    assert room.calls == 3 and not room.slots
    assert results(b)[0].tolist() == [[3.0] * 5, [1.0] * 5]


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
