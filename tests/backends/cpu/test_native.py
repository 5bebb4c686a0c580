"""runtime.native: the text compiles for every level, other machines are refused, and it sleeps
without a futex too."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cpu.kernels import aligned, kernel
from tetrad.backends.cpu import pool
from tetrad.backends.cpu.isa import LEVELS, host_target
from tetrad.backends.cpu.llvm import assembly, compile_object, load_object
from tetrad.backends.cpu.native import CONTEXT, SYMBOLS
from tetrad.backends.cpu.native.text import native_text
from tetrad.backends.cpu.table import LoopEntry, Table, Word
from tetrad.backends.llvm.target import Target
from tetrad.core.errors import BackendError
from tetrad.core.record import replace

# By a thread: a signal handler of Python would wait for the native code that hangs.
pytestmark = pytest.mark.timeout(60, method="thread")


@pytest.mark.parametrize("target", LEVELS.values(), ids=lambda target: target.name)
@pytest.mark.parametrize("futex", [True, False])
def test_the_text_compiles_for_every_level(target: object, futex: bool) -> None:
    assert compile_object(native_text(target, futex), target)  # type: ignore[arg-type]


COUNTERS = {"x86_64": "rdtsc", "aarch64": "cntvct"}


@pytest.mark.parametrize("target", LEVELS.values(), ids=lambda target: target.name)
def test_time_comes_from_the_counter_of_the_processor(target: Target) -> None:
    """LLVM makes a constant 0 of a counter that it does not know: workers would never sleep."""
    made = assembly(native_text(target), target).lower()
    assert COUNTERS[target.triple.partition("-")[0]] in made


def test_ticks_pass_as_the_loop_counts_its_patience() -> None:
    assert 0.9 < pool.ticks_per_ns() < 6


def test_another_machine_is_refused() -> None:
    with pytest.raises(BackendError, match="riscv64"):
        native_text(replace(host_target(), triple="riscv64-unknown-linux-gnu"))


def test_words_that_workers_write_sit_in_lines_of_their_own() -> None:
    lines = [
        CONTEXT[name] // 8 for name in ("STATUS", "STOP", "COUNT", "GENERATION", "POOL", "TABLE")
    ]
    assert len(set(lines)) == len(lines)


def test_the_portable_way_to_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    target = host_target()
    native = pool.Native(
        load_object(compile_object(native_text(target, futex=False), target), SYMBOLS)
    )
    other = pool.Pool(native)
    monkeypatch.setattr(pool.state, "pool", other)
    x = aligned(64, np.int64)
    body = (kernel("add_counter", (Word(0, 0), Word(1, 0)), 4, n=64),)
    table = Table((LoopEntry(body, Word(-1, 60), counter=Word(0, 0)),))
    counter = aligned(1, np.int64)
    for _ in range(5):
        x[:] = 0
        pool.run(table, [counter.ctypes.data, x.ctypes.data], threads=4)
        assert set(x) == {2**60 - 61}
    other.close()
    assert not any(worker.is_alive() for worker in other.workers)
