"""Resident buffers: no copies between launches, nothing allocated twice, and what is refused; grids
that leave out the end of an output."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.modules import ROOT
from tetrad.backends.cpu.launch import bound
from tetrad.backends.cpu.memory import Storage
from tetrad.backends.cpu.pool import state
from tetrad.compiler import dispatch as dispatching
from tetrad.core.dtypes import f32, i32, i64, index, u8, u32
from tetrad.core.errors import BackendError, BadInputs, TrapError
from tetrad.core.sizes import Dim
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder, Val

SIZE = 64


def step(size: int | None = SIZE, access: str = "write") -> n.Program:
    """y = 2 x + 1."""
    k = KernelBuilder("step")
    x, y = k.buffer("x", f32, count=size), k.buffer("y", f32, access, count=size)
    k.store(y, k.global_id(), k.load(x, k.global_id()) * 2.0 + 1.0)
    return k.finish()


def counting(size: int = SIZE) -> n.Program:
    """y += 1, in place."""
    k = KernelBuilder("counting")
    y = k.buffer("y", f32, "readwrite", count=size)
    k.store(y, k.global_id(), k.load(y, k.global_id()) + 1.0)
    return k.finish()


# -- resident buffers ------------------------------------------------------------------------------


def test_launches_go_from_buffer_to_buffer_and_are_read_when_asked() -> None:
    program = step()
    x, y = td.kernel.resident(np.arange(SIZE, dtype=np.float32)), td.kernel.resident(SIZE, f32)
    want = np.arange(SIZE, dtype=np.float32)
    for _ in range(5):
        assert td.dispatch(program, [x, y]) == [y]
        x, y, want = y, x, want * 2 + 1
    assert np.array_equal(np.asarray(x), want)
    assert x.to_bytes() == want.tobytes()
    assert x.read().tolist() == want.tolist()


def test_a_second_launch_of_the_same_sizes_allocates_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    k = KernelBuilder("scratchy")
    s, x, y = k.scratch("s", f32, 16), k.buffer("x", f32), k.buffer("y", f32, "write", SIZE)
    k.store(s, k.lane(), k.load(x, k.global_id()))
    k.store(y, k.global_id(), k.load(s, k.lane()) + 1.0)
    program = k.finish()
    x_, y_ = td.kernel.resident(np.ones(SIZE, np.float32)), td.kernel.resident(SIZE, f32)
    td.dispatch(program, [x_, y_], (4, 1, 1))
    td.dispatch(program, [x_, y_], (4, 1, 1))
    pointers, pool = (x_.memory.ptr, y_.memory.ptr), state.make_pool()
    scratch = {id(context.scratch) for context in pool.contexts}
    ready = dict(dispatching.READY)
    made: list[int] = []
    allocate = Storage.allocate
    monkeypatch.setattr(
        Storage, "allocate", staticmethod(lambda size: made.append(size) or allocate(size))
    )
    for _ in range(3):
        (given,) = td.dispatch(program, [x_, y_], (4, 1, 1))
        assert given is y_
    assert made == []
    assert pointers == (x_.memory.ptr, y_.memory.ptr)
    assert scratch == {id(context.scratch) for context in pool.contexts}
    assert ready == dict(dispatching.READY)
    assert y_.read().tolist() == [2.0] * SIZE


def test_launches_with_bytes_find_their_table_again() -> None:
    program, data = step(), np.ones(SIZE, np.float32).tobytes()
    td.dispatch(program, [data])
    before = bound.cache_info()
    td.dispatch(program, [data])
    after = bound.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)


def test_readwrite_changes_a_resident_buffer_and_no_other_input() -> None:
    program, values = counting(), np.zeros(SIZE, np.float32)
    held = td.kernel.resident(values)
    assert td.dispatch(program, [held]) == [held]
    assert td.dispatch(program, [values]) == [np.ones(SIZE, np.float32).tobytes()]
    assert not values.any()
    assert held.read().tolist() == [1.0] * SIZE


def test_some_buffers_may_be_resident_and_others_not() -> None:
    program, x = step(), np.arange(SIZE, dtype=np.float32)
    y = td.kernel.resident(SIZE, f32)
    assert td.dispatch(program, [x, y]) == [y]
    assert td.dispatch(program, [td.kernel.resident(x)]) == [(x * 2 + 1).tobytes()]
    assert td.dispatch(program, [td.kernel.resident(x), b""]) == [(x * 2 + 1).tobytes()]
    assert y.read().tolist() == (x * 2 + 1).tolist()


def test_a_resident_output_that_is_not_written_whole_starts_as_zeros_each_time() -> None:
    k = KernelBuilder("some")
    x, y = k.buffer("x", i32, count=16), k.buffer("y", i32, "write", 16)
    with k.when(k.load(x, k.global_id()) > 0):
        k.store(y, k.global_id(), 7)
    program, held = k.finish(), td.kernel.resident(np.full(16, 99, np.int32))
    for shift in range(3):
        given = td.kernel.resident((np.arange(16) % 3 == shift).astype(np.int32))
        td.dispatch(program, [given, held])
        assert held.read().tolist() == [7 * (i % 3 == shift) for i in range(16)]


def test_what_was_read_does_not_change_later() -> None:
    held = td.kernel.resident(np.zeros(SIZE, np.float32))
    before = held.read()
    td.dispatch(counting(), [held])
    assert before.tolist() == [0.0] * SIZE


def test_what_resident_takes() -> None:
    assert td.kernel.resident([1.0, 2.0]).dtype is f32
    assert td.kernel.resident(td.asarray([[1, 2], [3, 4]], dtype=td.int32)).read().tolist() == [
        1, 2, 3, 4,
    ]  # fmt: skip
    assert td.kernel.resident(bytes([1, 0, 0, 0]), "uint32").read().tolist() == [1]
    assert repr(td.kernel.resident(3, td.int64)) == "<resident i64[3] on cpu>"
    assert len(td.kernel.resident(0, td.int64)) == 0
    copy = td.kernel.resident(td.kernel.resident([5.0]))
    copy.write([6.0])
    assert copy.read().tolist() == [6.0]


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: td.kernel.resident(3), "3 elements of None"),
        (lambda: td.kernel.resident(-1, f32), "-1 elements"),
        (lambda: td.kernel.resident(b"123", f32), "3 bytes are no whole number of f32"),
        (
            lambda: td.kernel.resident({}, f32),
            "expected an array or a number of elements, got a dict",
        ),
        (lambda: td.kernel.resident(3, f32).write([1.0]), "takes 3 elements, got 1"),
        (lambda: td.kernel.resident(1, i32).write([1.0]), "takes 1 elements, got 1 of float32"),
    ],
)
def test_what_resident_refuses(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(BadInputs, match=match) as error:
        make()
    assert error.value.code == "D009"


def test_one_buffer_is_not_read_and_written_under_two_names() -> None:
    program, x = step(), td.kernel.resident(SIZE, f32)
    other = td.kernel.resident(SIZE, f32)
    td.dispatch(program, [x, other])
    for _ in range(2):  # the first launch of these sizes, and a prepared one
        with pytest.raises(BadInputs, match="x and y are the same resident buffer") as error:
            td.dispatch(program, [x, x])
        assert error.value.code == "D008"


def test_two_names_may_read_one_buffer() -> None:
    k = KernelBuilder("sum")
    a, b, y = k.buffer("a", f32), k.buffer("b", f32), k.buffer("y", f32, "write", SIZE)
    k.store(y, k.global_id(), k.load(a, k.global_id()) + k.load(b, k.global_id()))
    program, held, out = k.finish(), td.kernel.resident([1.0] * SIZE), td.kernel.resident(SIZE, f32)
    for _ in range(2):
        td.dispatch(program, [held, held, out])
    assert out.read().tolist() == [2.0] * SIZE


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (np.zeros(SIZE, np.int32), "buffer x is f32, got elements of i32"),
        (td.zeros(SIZE, dtype=td.float64), "buffer x is f32, got elements of f64"),
        (np.zeros(SIZE, "U3"), "got an array of <U3"),
        (3.5, "buffer x got a float"),
    ],
)
def test_elements_have_the_type_of_the_buffer(given: Any, match: str) -> None:
    with pytest.raises(BadInputs, match=match) as error:
        td.dispatch(step(), [given])
    assert error.value.code == "D007"


def test_a_resident_buffer_of_another_type_or_size_is_refused() -> None:
    with pytest.raises(BadInputs, match="buffer x is f32, got elements of i64"):
        td.dispatch(step(), [td.kernel.resident(SIZE, i64)])
    with pytest.raises(BadInputs, match="buffer y needs 256 bytes, got 4"):
        td.dispatch(step(), [np.zeros(SIZE, np.float32), td.kernel.resident(1, f32)])


def test_a_traced_array_belongs_to_kernel_call() -> None:
    with pytest.raises(BadInputs, match=r"has no values yet(.|\n)*td.kernel.call"):
        td.jit(lambda x: td.dispatch(step(), [x]))(td.zeros(SIZE))


def test_arrays_are_inputs_however_they_lie() -> None:
    program, values = step(4), np.arange(8, dtype=np.float32)
    want = [(values[::2] * 2 + 1).tobytes()]
    assert td.dispatch(program, [values[::2]]) == want
    assert td.dispatch(program, [td.asarray(values)[::2]]) == want
    assert td.dispatch(program, [values[::2].tobytes()]) == want
    unaligned = memoryview(b"x" + values[::2].tobytes())[1:]
    assert td.dispatch(program, [unaligned]) == want
    assert td.dispatch(program, [values[::2].copy().view(np.uint8)]) == want


def test_an_input_is_read_where_it_lies() -> None:
    """No copy: the memory of four gigabytes' worth of launches is that of one array."""
    values = np.arange(1 << 20, dtype=np.float32)
    k = KernelBuilder("last")
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write", 1)
    k.store(y, k.lane() * 0, k.load(x, k.index((1 << 20) - 1)), hint="same")
    program = k.finish()
    start = time.perf_counter()
    for _ in range(100):
        (got,) = td.dispatch(program, [values], (1, 1, 1))
    assert np.frombuffer(got, np.float32)[0] == (1 << 20) - 1
    assert time.perf_counter() - start < 0.2  # copies would take 30 ms each


def test_a_prepared_launch_that_traps_can_be_run_again() -> None:
    k = KernelBuilder("picky")
    x = k.buffer("x", i32, count=16)
    y = k.buffer("y", i32, "write", 16)
    k.trap(k.load(x, k.global_id()).eq(13), 3, k.global_id())
    k.store(y, k.global_id(), k.load(x, k.global_id()))
    program, x_, y_ = k.finish(), td.kernel.resident(16, i32), td.kernel.resident(16, i32)
    for _ in range(3):
        td.dispatch(program, [x_, y_])
    x_.write(np.arange(5, 21, dtype=np.int32))
    with pytest.raises(TrapError, match="picky: trap 3, value 8"):
        td.dispatch(program, [x_, y_])
    x_.write(np.arange(16, 32, dtype=np.int32))
    td.dispatch(program, [x_, y_])
    assert y_.read().tolist() == list(range(16, 32))


def test_threads_launch_the_same_program_side_by_side() -> None:
    program, found = counting(), []

    def work() -> None:
        held = td.kernel.resident(SIZE, f32)
        for _ in range(200):
            td.dispatch(program, [held])
        found.append(set(held.read().tolist()))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{200.0}] * 3


ENDLESS = """
import os, signal, threading, numpy as np, tetrad as td
from tetrad.core.dtypes import index
k = td.kernel.build("endless", 1)
x, y = k.buffer("x", td.int64, count=1), k.buffer("y", td.int64, "write", 1)
total = k.local(0, td.int64)
count = {bound}
with k.loop(count) as i, k.loop(count) as j:
    total.set(total.get() * 3 + k.cast(i + j, td.int64))
k.store(y, 0, total.get())
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
args = {{"n": 1 << 40}} if "arg" in {bound!r} else {{}}
try:
    td.dispatch(k.finish(), [np.array([1 << 40])], (1, 1, 1), args=args)
except KeyboardInterrupt:
    print("stopped")
"""


@pytest.mark.parametrize("bound", ["k.arg('n')", "k.cast(k.load(x, 0), index)", "k.index(60_000)"])
def test_ctrl_c_ends_a_launch_however_long_its_loops_are(bound: str) -> None:
    """One workgroup, one invocation: nobody comes by between workgroups."""
    text = ENDLESS.format(bound=bound)
    settings = {"cwd": ROOT, "timeout": 60, "stdout": subprocess.PIPE, "text": True, "check": True}
    assert subprocess.run([sys.executable, "-c", text], **settings).stdout == "stopped\n"  # type: ignore[call-overload]


# -- grids that leave something out ----------------------------------------------------------------


def written(at: Callable[[KernelBuilder], Val], count: int = 64, lanes: Any = 16) -> n.Program:
    k = KernelBuilder("written", lanes)
    y = k.buffer("y", u32, "write", count)
    k.store(y, at(k), 1)
    return k.finish()


@pytest.mark.parametrize(
    ("at", "grid", "last"),
    [
        (lambda k: k.global_id(), (3, 1, 1), 47),
        (lambda k: k.group_id() * 16 + k.lane(), (1, 9, 9), 15),
        (lambda k: k.group_id(1) * 16 + k.lane(), (9, 2, 1), 31),
        (lambda k: k.group_id() + k.group_id(1) * 2 + k.group_id(2) * 16, (2, 8, 3), 47),
        (lambda k: k.global_id() // 2 * 2 + 1, (3, 1, 1), 47),
        (lambda k: k.min(k.global_id(), 90), (2, 1, 1), 31),
    ],
)
def test_a_grid_that_does_not_cover_its_output_is_an_error(
    at: Callable[[KernelBuilder], Val], grid: tuple[int, int, int], last: int
) -> None:
    with pytest.raises(BadInputs, match=f"up to element {last}, it has 64") as error:
        td.dispatch(written(at), [], grid)
    assert error.value.code == "D006"


def test_the_error_says_which_grid_would_do() -> None:
    with pytest.raises(BadInputs) as error:
        td.dispatch(step(), [np.zeros(SIZE, np.float32)], (2, 1, 1))
    assert str(error.value) == (
        "step: a grid of (2, 1, 1) workgroups of 16 invocations writes y up to element 31, it has "
        "64\n  hint: grid=(4, 1, 1); a readwrite buffer may be written in part"
    )


@pytest.mark.parametrize(
    ("program", "grid"),
    [
        (written(lambda k: k.global_id()), (4, 1, 1)),
        (written(lambda k: k.global_id()), (40, 1, 1)),
        (written(lambda k: k.lane()), (1, 1, 1)),  # no grid would reach further
        (written(lambda k: k.group_id() % 4), (9, 1, 1)),
        (step(access="readwrite"), (1, 1, 1)),  # in part, and the rest stays
    ],
)
def test_what_is_not_the_fault_of_the_grid_is_no_error(
    program: n.Program, grid: tuple[int, int, int]
) -> None:
    zeros = [np.zeros(SIZE, np.float32) for b in program.buffers if b.access != "write"]
    assert len(td.dispatch(program, zeros, grid)) == 1


def test_where_data_decides_nothing_can_be_told() -> None:
    k = KernelBuilder("scatter")
    at, y = k.buffer("at", i64, count=16), k.buffer("y", u8, "write", 99)
    k.store(y, k.cast(k.load(at, k.global_id()), index), 1)
    (got,) = td.dispatch(k.finish(), [np.arange(16)], (1, 1, 1))
    assert got == bytes([1] * 16 + [0] * 83)


def test_loops_and_arguments_count_for_coverage() -> None:
    k = KernelBuilder("strided")
    size = Dim("size", max=1 << 20)
    y, count = k.buffer("y", u32, "write", size), k.arg("trips")
    with k.loop(count) as i:
        k.store(y, (k.group_id() * count + i) * 16 + k.lane(), 1)
    program = k.finish()
    assert len(td.dispatch(program, [], (2, 1, 1), args={"size": 128, "trips": 4})[0]) == 512
    with pytest.raises(BadInputs, match="up to element 95, it has 128"):
        td.dispatch(program, [], (2, 1, 1), args={"size": 128, "trips": 3})


@pytest.mark.parametrize("count", [2**50, 2**60, 2**62, 2**80])
def test_more_than_the_memory_holds_is_an_error_of_the_back_end(count: int) -> None:
    with pytest.raises(BackendError, match=f"no memory for {count} elements of") as error:
        td.kernel.resident(count, td.float32)
    assert error.value.code == "1001" and error.value.hint


def test_types_without_elements_of_their_own_are_refused() -> None:
    nibbles = td.asarray([1, 2, 3], dtype=td.int4)
    for values, dtype in ((5, td.int4), (nibbles, None), ([1, 2], td.uint4), (b"ab", td.int4)):
        with pytest.raises(BadInputs, match=r"no elements of u?int4(.|\n)*td.uint8") as error:
            td.kernel.resident(values, dtype)
        assert error.value.code == "D009"
    assert td.kernel.resident(nibbles.astype(td.int8)).read().tolist() == [1, 2, 3]
