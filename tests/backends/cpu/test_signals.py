"""Signals during a long call: Python's handlers run at once, the call goes on if they return and
ends if one raises."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

from tests.modules import ROOT

pytestmark = pytest.mark.timeout(90, method="thread")

# `f` takes about a second, in different ways: f(x) is always the same, and `want` is what it is
# undisturbed.
START = """
import ctypes, faulthandler, os, signal, sys, threading, time
import numpy as np, tetrad as td
STEPS = {steps}
def repeated(step):
    return td.jit(lambda c: td.scan(lambda c, _: (step(c), None), c, length=STEPS)[0])
WAYS = {{
    "one kernel": repeated(lambda c: c * 0.999 + 0.1),
    "many entries": repeated(lambda c: td.nn.softmax(c @ c)),
    "lapack": td.jit(lambda a: td.linalg.svd(a, full_matrices=False)[1]),
}}
way = "{way}"
f = WAYS[way]
x = {{"one kernel": np.float32(0.5), "many entries": np.eye(48, dtype=np.float32)}}.get(way)
if x is None:
    x = np.random.default_rng(1).normal(size=(STEPS, 40, 40)).astype(np.float32)
began = time.monotonic()
want = np.asarray(f(x)).tobytes()
began = time.monotonic()
assert np.asarray(f(x)).tobytes() == want
took = time.monotonic() - began
def later(seconds, number, send=os.kill, who=None):
    timer = threading.Timer(seconds, send, (who or os.getpid(), number))
    timer.daemon = True
    timer.start()
"""
STEPS = {"one kernel": 150_000_000, "many entries": 30_000, "lapack": 1500}


def child(text: str, way: str = "one kernel") -> subprocess.CompletedProcess[str]:
    program = START.format(way=way, steps=STEPS[way]) + textwrap.dedent(text)
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=80
    )


def succeeds(text: str, way: str = "one kernel") -> str:
    done = child(text, way)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("way", STEPS)
def test_handlers_run_while_the_call_goes_on(way: str) -> None:
    succeeds(
        """
        times = []
        signal.signal(signal.SIGALRM, lambda *_: times.append(time.monotonic()))
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        began = time.monotonic()
        got = np.asarray(f(x)).tobytes()
        ended = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0)
        inside = [t for t in times if began < t < ended]
        gaps = np.diff([began, *inside, ended])
        assert got == want
        # all but one: others take the processor too
        assert len(inside) >= 2 and sorted(gaps)[-2] < 0.15, gaps
        """,
        way,
    )


NAMES = ("SIGTERM", "SIGALRM", "SIGUSR1", "SIGHUP", "SIGINT")


@pytest.mark.parametrize(
    ("way", "name"),
    [*(("one kernel", name) for name in NAMES), ("many entries", "SIGTERM"), ("lapack", "SIGTERM")],
)
def test_a_handler_that_raises_ends_the_call(way: str, name: str) -> None:
    succeeds(
        f"""
        slack = 0.5 if way == "lapack" else 0.2  # nothing ends what LAPACK has begun
        class Enough(Exception):
            pass
        def handler(number, frame):
            raise Enough(number, time.monotonic())
        signal.signal(signal.{name}, handler)
        later(took / 4, signal.{name})
        began = time.monotonic()
        try:
            f(x)
        except Enough as error:
            number, heard = error.args
            assert number == signal.{name} and error.__traceback__ is not None
            assert time.monotonic() - heard < slack, time.monotonic() - heard
            assert heard - began < took / 4 + slack, (heard - began, took)
        else:
            raise AssertionError("not heard")
        signal.signal(signal.{name}, signal.SIG_IGN)
        assert np.asarray(f(x)).tobytes() == want
        """,
        way,
    )


def test_a_handler_that_only_notes_ctrl_c_lets_the_call_finish() -> None:
    succeeds("""
        seen = []
        signal.signal(signal.SIGINT, lambda *_: seen.append(time.monotonic()))
        later(took / 4, signal.SIGINT)
        assert np.asarray(f(x)).tobytes() == want
        assert len(seen) == 1 and time.monotonic() - seen[0] > took / 4
    """)


def test_a_signal_without_a_handler_does_what_it_does() -> None:
    done = child("later(took / 4, signal.SIGTERM); f(x); print('went on')")
    assert done.returncode == -signal.SIGTERM and done.stdout == ""
    ignored = "signal.signal(signal.SIGTERM, signal.SIG_IGN); later(took / 4, signal.SIGTERM)"
    assert succeeds(f"{ignored}; f(x); print('went on')") == "went on\n"


def test_dispositions_are_as_before() -> None:
    succeeds("""
        def actions():
            action = (ctypes.c_int64 * 64)()
            found = []
            for number in range(1, 32):
                ctypes.CDLL(None).sigaction(number, None, action)
                found.append((action[0], action[17] & 0xFFFFFFFF))
            return found
        signal.signal(signal.SIGUSR2, lambda *_: None)
        before = actions()
        later(took / 4, signal.SIGUSR2)
        f(x)
        assert actions() == before
    """)


@pytest.mark.parametrize("last", ["signal.SIG_DFL", "signal.SIG_IGN"])
def test_a_handler_may_set_another_disposition(last: str) -> None:
    succeeds(f"""
        seen = []
        def first(number, frame):
            seen.append("first")
            signal.signal(number, second)
        def second(number, frame):
            seen.append("second")
            signal.signal(number, {last})
        signal.signal(signal.SIGUSR1, first)
        later(took / 5, signal.SIGUSR1)
        later(took / 2.5, signal.SIGUSR1)
        began = time.monotonic()
        assert np.asarray(f(x)).tobytes() == want
        assert seen == ["first", "second"], seen
        action = (ctypes.c_int64 * 64)()
        ctypes.CDLL(None).sigaction(int(signal.SIGUSR1), None, action)
        assert action[0] == int({last}), action[0]
    """)


def test_a_handler_may_call_compiled_functions() -> None:
    succeeds("""
        g = td.jit(lambda a: td.sum(a @ a))
        a = np.ones((300, 300), np.float32)
        wanted, seen = float(g(a)), []
        signal.signal(signal.SIGALRM, lambda *_: seen.append(float(g(a))))
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        assert np.asarray(f(x)).tobytes() == want
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert len(seen) > 3 and set(seen) == {wanted}
    """)


def test_signals_that_come_faster_than_they_are_handled() -> None:
    succeeds("""
        seen = []
        signal.signal(signal.SIGALRM, lambda *_: (seen.append(1), sum(range(3000))))
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(2))
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        def storm():
            while seen.count(2) < 200:
                os.kill(os.getpid(), signal.SIGUSR1)
                time.sleep(0.001)
        thread = threading.Thread(target=storm)
        thread.start()
        assert np.asarray(f(x)).tobytes() == want
        thread.join()
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert seen.count(1) > 100
    """)


def test_a_signal_that_another_thread_gets_is_heard_between_kernels() -> None:
    succeeds(
        """
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(time.monotonic()))
        def other():
            time.sleep(took / 4)
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
            sent.append(time.monotonic())
        sent = []
        thread = threading.Thread(target=other)
        thread.start()
        assert np.asarray(f(x)).tobytes() == want
        ended = time.monotonic()
        thread.join()
        assert len(seen) == 1
        assert seen[0] - sent[0] < min(0.15, (ended - sent[0]) / 2), (seen, sent, ended)
        """,
        "many entries",
    )


def test_a_call_in_another_thread_leaves_the_main_thread_free_to_hear() -> None:
    succeeds("""
        class Enough(Exception):
            pass
        def handler(number, frame):
            raise Enough
        got = []
        thread = threading.Thread(target=lambda: got.append(np.asarray(f(x)).tobytes()))
        signal.signal(signal.SIGTERM, handler)
        later(took / 4, signal.SIGTERM)
        thread.start()
        began = time.monotonic()
        try:
            thread.join()
        except Enough:
            assert time.monotonic() - began < took / 4 + 0.2
        else:
            raise AssertionError("not heard")
        while not got:  # (a join that a handler ended takes the thread for ended)
            time.sleep(0.01)
        assert got == [want]
    """)


def test_an_alternate_stack_is_not_used_for_python() -> None:
    succeeds("""
        faulthandler.enable()
        def deep(n):
            return 0 if n == 0 else 1 + deep(n - 1)
        seen = []
        signal.signal(signal.SIGALRM, lambda *_: seen.append(deep(500)))
        signal.setitimer(signal.ITIMER_REAL, took / 4)
        assert np.asarray(f(x)).tobytes() == want
        assert seen == [500]
    """)


def test_an_error_that_was_raised_is_freed() -> None:
    succeeds("""
        import gc, weakref
        class Enough(Exception):
            pass
        held = []
        def handler(number, frame):
            error = Enough()
            held.append(weakref.ref(error))
            raise error
        signal.signal(signal.SIGUSR1, handler)
        for _ in range(3):
            later(0.05, signal.SIGUSR1)
            try:
                f(x)
            except Enough:
                pass
        gc.collect()
        assert len(held) == 3 and all(ref() is None for ref in held)
    """)


IGNORING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.execv(sys.executable, sys.argv[1:])
"""


def test_where_sigint_is_ignored_from_the_start_the_tests_of_ctrl_c_pass() -> None:
    """As under nohup, and in some systems that run tests."""
    tests = [
        "tests/backends/cpu/test_pool.py",
        "-k",
        "control_c_stops_native_code and empty and loop-1",
        "-q",
    ]
    words = [
        sys.executable,
        "-c",
        IGNORING,
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=80)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
