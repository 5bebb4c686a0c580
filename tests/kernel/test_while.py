"""Loops that end by their data: lanes leave one by one, on the evaluator and as machine code."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tetrad.backends.cuda.predicate import predicate_votes
from tetrad.core.dtypes import bool_, f32, i32
from tetrad.core.errors import UnsupportedError, VerifyError
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.bytes import from_bytes, to_bytes
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.returns import without_returns
from tetrad.kernel.text import parse, to_text
from tetrad.kernel.uniformity import varying
from tetrad.kernel.verify import verify


def collatz(lanes: int, returns: bool = False) -> n.Program:
    """y[i] = the steps from x[i] to 1; a lane that begins at 1 may return before the loop."""
    k = KernelBuilder("collatz", lanes)
    x, y = k.buffer("x", i32), k.buffer("y", i32, "readwrite")
    value, count = k.local(k.load(x, k.global_id())), k.local(0, i32)
    goes_on = k.local(value.get().ne(1))
    with k.repeat(goes_on):
        if returns:
            with k.when(count.get() >= 5):
                k.store(y, k.global_id(), -1)
                k.return_()
        now = value.get()
        value.set(k.select((now & 1).eq(0), now >> 1, now * 3 + 1))
        count.set(count.get() + 1)
        goes_on.set(value.get().ne(1))
    k.store(y, k.global_id(), count.get())
    return k.finish()


def steps_of(x: int) -> int:
    count = 0
    while x != 1:
        x, count = (x // 2 if x % 2 == 0 else 3 * x + 1), count + 1
    return count


START = np.array([1, 2, 3, 27, 6, 7, 97, 1, 5, 9, 12, 31, 1, 1, 871, 4], np.int32)


@pytest.mark.parametrize("lanes", [1, 4, 16, 48])
def test_lanes_leave_one_by_one(lanes: int) -> None:
    x = np.resize(START, 48)
    want = [steps_of(int(v)) for v in x]
    program, y = collatz(lanes), np.zeros(48, np.int32)
    verify(program)
    evaluate(program, {"x": x, "y": y}, {}, (48 // lanes, 1, 1), races=True)
    assert y.tolist() == want
    (made,) = td.dispatch(program, [x, np.zeros(48, np.int32)], (48 // lanes, 1, 1))
    assert np.frombuffer(made, np.int32).tolist() == want


def test_who_returns_does_not_go_on() -> None:
    program, y = collatz(16, returns=True), np.zeros(16, np.int32)
    want = [steps if (steps := steps_of(int(v))) <= 5 else -1 for v in START]
    for each in (program, without_returns(program)):
        verify(each)
        evaluate(each, {"x": START, "y": y}, {})
        assert y.tolist() == want
    (made,) = td.dispatch(program, [START, np.zeros(16, np.int32)], (1, 1, 1))
    assert np.frombuffer(made, np.int32).tolist() == want


def test_no_trip_is_a_loop_too() -> None:
    program, y = collatz(16), np.full(16, 7, np.int32)
    evaluate(program, {"x": np.ones(16, np.int32), "y": y}, {})
    assert not y.any()


def test_text_and_bytes_hold_it() -> None:
    program = collatz(16)
    assert "while %" in to_text(program)
    for copy in (parse(to_text(program)), from_bytes(to_bytes(program))):
        assert to_text(copy) == to_text(program)


def test_what_is_set_while_some_lanes_have_left_varies() -> None:
    k = KernelBuilder("vary")
    uniform, own = k.local(0.0, f32), k.local(0.0, f32)
    every, some = k.local(True, bool_), k.local(k.lane() < 3)
    with k.repeat(every):
        uniform.set(uniform.get() + 1)
        every.set(uniform.get() < 5)
    with k.repeat(some):
        own.set(own.get() + 1)
        some.set(own.get() < 2)
    differs = varying(k.finish())
    assert own.node in differs and some.node in differs
    assert uniform.node not in differs and every.node not in differs


def test_a_barrier_waits_for_nobody_who_has_left() -> None:
    k = KernelBuilder("wait")
    some = k.local(k.lane() < 3)
    with k.repeat(some):
        k.barrier()
        some.set(k.value(False, bool_))
    with pytest.raises(VerifyError, match="V010"):
        verify(k.finish())


def test_what_goes_on_is_a_bool() -> None:
    k = KernelBuilder("count")
    count = k.local(3, i32)
    with k.repeat(count):
        count.set(count.get() - 1)
    with pytest.raises(VerifyError):
        verify(k.finish())


def test_a_device_does_not_vote_behind_threads_that_left() -> None:
    k = KernelBuilder("vote")
    y, some = k.buffer("y", bool_, "write"), k.local(k.lane() < 3)
    with k.repeat(some):
        some.set(k.any(k.lane() < 2) & (k.lane() < 0))
    k.store(y, k.lane(), some.get())
    with pytest.raises(UnsupportedError, match="a vote beside a loop"):
        predicate_votes(k.finish())
