"""Calls that are ready to run: one arena for all sizes, a bounded number of them, memory that goes
with the program."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.backends.cpu import executable
from tetrad.backends.cpu.memory import MOST_IDLE, Storage
from tetrad.compiler.driver import compile_graph

Function = Any


def sums(x: Any) -> Any:
    """It needs an arena."""
    return td.cumulative_sum(td.cumulative_sum(x * 0.5) * x)


def numbers(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.float32) % 7


@pytest.fixture
def f() -> Function:
    made = td.jit(sums, dims=({0: td.Dim("n", max=1 << 20)},))
    made(numbers(10))
    return made


def compiled_of(f: Function) -> Any:
    (program,) = f._programs.values()
    return program.executable


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(executable, "MOST_PREPARED", 4)
    yield 4


def test_all_sizes_share_one_arena(f: Function) -> None:
    arenas = compiled_of(f).arenas
    f(numbers(100_000))
    (largest,) = arenas.idle
    for n in (5, 70_000, 100_000, 99_999):
        f(numbers(n))
    assert arenas.idle == [largest]
    f(numbers(300_000))
    assert (
        len(arenas.idle) == 1
        and arenas.idle[0] is not largest
        and arenas.idle[0].nbytes > largest.nbytes
    )


def test_results_do_not_depend_on_what_the_arena_held(f: Function) -> None:
    first = np.asarray(f(numbers(1000))).tobytes()
    f(numbers(50_000))
    assert np.asarray(f(numbers(1000))).tobytes() == first


@pytest.mark.parametrize("way", ["compiled", "jit"])
def test_so_many_sizes_are_ready_and_those_in_use_stay(f: Function, few: int, way: str) -> None:
    full = compile_graph(f.trace(td.Spec((td.Dim("n", max=1 << 20),))).graph)
    compiled: Any = full if way == "compiled" else compiled_of(f)
    prepared = compiled.calls
    for n in range(20, 40):
        for size in (n, 7):
            compiled.run([Storage.from_numpy(numbers(size))], (size,))
        assert len(prepared) <= few and len(compiled.encoder.done) <= few
    assert set(prepared) == {(7,), (37,), (38,), (39,)}


def test_a_size_that_was_given_up_gives_the_same_bits(f: Function, few: int) -> None:
    wanted = {n: np.asarray(f(numbers(n))).tobytes() for n in range(1, 30, 3)}
    for n, bits in wanted.items():
        assert np.asarray(f(numbers(n))).tobytes() == bits
    assert f.compiles == 1


@pytest.mark.parametrize("recalled", [False, True])
def test_memory_goes_with_the_function_without_a_search_for_garbage(recalled: bool) -> None:
    f = td.jit(sums, dims=({0: td.Dim("n", max=1 << 20)},))
    f(numbers(100_000))  # the second function of this kind is found on disk
    if recalled:
        f = td.jit(sums, dims=({0: td.Dim("n", max=1 << 20)},))
        f(numbers(100_000))
    compiled = compiled_of(f)
    gone = [weakref.ref(compiled), *map(weakref.ref, compiled.arenas.idle)]
    gc.collect()
    gc.disable()
    try:
        del compiled, f
        assert len(gone) == 2 and [one() for one in gone] == [None, None]
    finally:
        gc.enable()


def test_calls_at_once_have_arenas_of_their_own_and_few_stay(f: Function) -> None:
    sizes = [1000 + 37 * i for i in range(40)]
    wanted = [np.asarray(f(numbers(n))).tobytes() for n in sizes]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert [np.asarray(r).tobytes() for r in pool.map(f, map(numbers, sizes))] == wanted
    assert 1 <= len(compiled_of(f).arenas.idle) <= MOST_IDLE


def test_sizes_are_given_up_while_others_run(f: Function, few: int) -> None:
    sizes = [100 + i for i in range(30)]
    wanted = {n: np.asarray(f(numbers(n))).tobytes() for n in sizes}
    wrong: list[int] = []

    def work(start: int) -> None:
        for i in range(120):
            n = sizes[(start + i * 7) % len(sizes)]
            wrong.extend([n] if np.asarray(f(numbers(n))).tobytes() != wanted[n] else [])

    threads = [threading.Thread(target=work, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_process_has_the_arena_and_other_sizes(f: Function) -> None:
    wanted = np.asarray(f(numbers(500))).tobytes()
    child = os.fork()
    if child == 0:
        good = (
            np.asarray(f(numbers(500))).tobytes() == wanted
            and len(f(numbers(60_000)).tolist()) == 60_000
        )
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert np.asarray(f(numbers(500))).tobytes() == wanted


def test_a_call_that_raises_leaves_nothing_behind() -> None:
    f = td.jit(lambda x, i: td.take(sums(x), i), dims=({0: td.Dim("n", max=1 << 20)}, None))
    at = np.array([3], np.int32)
    good = f(numbers(1000), at).tolist()
    for _ in range(3):
        with pytest.raises(IndexError):
            f(numbers(1000), at + 5000)
    assert f(numbers(1000), at).tolist() == good and len(compiled_of(f).arenas.idle) == 1
