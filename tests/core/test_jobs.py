"""Jobs: every job is done once, whoever does it; errors reach whoever asks; a child process is not
left waiting."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import tetrad as td
from tetrad.backends.cpu.code_cache import OBJECTS
from tetrad.backends.cpu.isa import host_target
from tetrad.backends.cpu.llvm import compile_object
from tetrad.core.jobs import JOBS, TURN, Jobs


def test_results_come_back_and_threads_end() -> None:
    mine = Jobs()
    jobs = [mine.submit(lambda i=i: i * i) for i in range(50)]
    assert [job.result() for job in jobs] == [i * i for i in range(50)]
    deadline = time.monotonic() + 10
    while mine.threads and time.monotonic() < deadline:
        time.sleep(0.001)
    assert mine.threads == 0 and not mine.waiting and not mine.begun


def test_python_s_lock_goes_round_quickly_while_jobs_run() -> None:
    usual = sys.getswitchinterval()
    jobs, go = Jobs(), threading.Event()
    first, second = jobs.submit(go.wait), jobs.submit(sys.getswitchinterval)
    assert second.result() == pytest.approx(min(TURN, usual))
    go.set()
    first.wait()
    for _ in range(200):
        if jobs.threads == 0:
            break
        time.sleep(0.01)
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    job = Jobs().submit(lambda: 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            job.result()


def test_no_more_threads_than_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_THREADS", "1")
    mine, gate, names = Jobs(), threading.Event(), []
    jobs = [
        mine.submit(lambda: (gate.wait(), names.append(threading.current_thread().name)))
        for _ in range(4)
    ]
    assert mine.threads == 1
    gate.set()
    for job in reversed(jobs):  # the last has not begun: it is done here
        job.result()
    assert len(names) == 4


def test_without_threads_the_caller_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    mine = Jobs()
    assert mine.submit(lambda: 5).result() == 5 and mine.threads == 0


def test_a_child_does_what_its_parent_had_begun() -> None:
    mine, gate = Jobs(), threading.Event()
    job = mine.submit(lambda: gate.wait() and 7)
    while job not in mine.begun:
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        mine.forked()
        gate = threading.Event()
        gate.set()
        os._exit(0 if job.result() == 7 else 1)
    _, status = os.waitpid(child, 0)
    gate.set()
    assert job.result() == 7 and os.waitstatus_to_exitcode(status) == 0


def child_says(call: Callable[[], bool]) -> bool:
    """What a call gives in a child process; False if it does not come back."""
    child = os.fork()
    if child == 0:
        signal.setitimer(signal.ITIMER_REAL, 20)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        os._exit(0 if call() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_compiles_though_another_thread_was_loading_code() -> None:
    x, held = np.arange(3, dtype=np.float32), threading.Event()
    td.jit(lambda x: x * 0.375)(x)

    def hold() -> None:
        with OBJECTS.lock:
            held.set()
            time.sleep(0.1)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    assert child_says(
        lambda: bool((np.asarray(td.jit(lambda x: x * 0.4375)(x)) == x * 0.4375).all())
    )
    thread.join()


def test_a_child_compiles_the_function_that_another_thread_was_compiling() -> None:
    x, begun, go, parent = (
        np.arange(3, dtype=np.float32),
        threading.Event(),
        threading.Event(),
        os.getpid(),
    )

    def slow(x: td.Array) -> td.Array:
        begun.set()
        if os.getpid() == parent:
            go.wait()
        return x * 0.6875

    function = td.jit(slow)
    thread = threading.Thread(target=lambda: function(x))
    thread.start()
    begun.wait()
    assert child_says(lambda: bool((np.asarray(function(x)) == x * 0.6875).all()))
    go.set()
    thread.join()


def test_threads_compile_side_by_side_and_give_the_same_object() -> None:
    target = host_target()
    text = f'target triple = "{target.triple}"\n' + "\n".join(
        f"define i64 @f{i}(i64 %x) {{\n  %y = mul i64 %x, {i + 3}\n  ret i64 %y\n}}"
        for i in range(100)
    )
    want = compile_object(text, target)
    jobs = [JOBS.submit(lambda: compile_object(text, target)) for _ in range(16)]
    assert all(job.result() == want for job in jobs)


def test_several_python_threads_compile_the_same_program() -> None:
    x = np.linspace(-1, 1, 77, dtype=np.float32)
    found: list[np.ndarray] = []

    def one() -> None:
        found.append(np.asarray(td.jit(lambda x: td.sum(td.sin(x) * 1.375 + td.cos(x * 0.625)))(x)))

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6 and len({value.tobytes() for value in found}) == 1
