"""The floating-point state of the host changes no result: a share of the fuzzer, what it must
notice, and the disk."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tetrad as td
from tests.fuzz.rounding import (
    FUNCTIONS,
    STATES,
    check,
    compared,
    control_register,
    host_state,
    results_of_function,
)
from tetrad.core import floats
from tetrad.core.jobs import JOBS
from tetrad.tracing import apply_op, operands

ROOT = Path(__file__).resolve().parents[2]
PLAIN = 0x1F80
TRAPS = 0x1F80 & ~0x0680  # invalid, divide by zero and overflow are not masked: SIGFPE


@pytest.mark.parametrize("seed", range(24))
def test_a_seed(seed: int) -> None:
    assert check(seed) is None


@pytest.mark.parametrize("number", range(len(FUNCTIONS)), ids=list(FUNCTIONS))
def test_a_function(number: int) -> None:
    name, states = list(FUNCTIONS)[number], list(STATES)
    for i in (0, 3):  # one that rounds and one that flushes, or both
        assert (
            compared(results_of_function(name, number), states[(number + i) % len(states)]) is None
        )


def test_the_fuzzer_notices_a_compiler_that_keeps_the_hosts_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(floats, "set_environment", lambda _: 0)
    monkeypatch.setattr(apply_op, "are_plain", lambda: True)
    monkeypatch.setattr(operands, "are_plain", lambda: True)
    found = [compared(results_of_function("constants", 0), state) for state in STATES]
    assert "got" in (found[0] or "") and "got" in (found[1] or "")


@pytest.mark.parametrize("state", STATES)
def test_the_cheap_question_knows_every_state(state: str) -> None:
    with host_state(STATES[state]):
        asked = floats.are_plain()
        with floats.own_floats():
            inside = floats.are_plain(), control_register()
        after = control_register()
    assert not asked and inside == (True, PLAIN) and after == STATES[state]
    assert floats.are_plain()


def test_exceptions_that_are_not_masked_end_no_compilation() -> None:
    """Constants are folded that overflow, divide by zero and are invalid."""
    text = """
    import numpy as np, tetrad as td
    from tests.fuzz.rounding import host_state, control_register
    x = np.ones(4, np.float32)
    def invalid():
        return td.asarray(1.0) / td.asarray(0.0) - td.log(td.asarray(-1.0))
    f = td.jit(lambda x: x * (td.asarray(1e38) * 10) + invalid())
    with host_state({traps}):
        y = f(x)
        assert control_register() == {traps}
    assert np.isnan(y).all()
    """
    text = "\n".join(line[4:] for line in text.format(traps=TRAPS).splitlines())
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_job_computes_under_our_state_in_any_thread() -> None:
    with host_state(STATES["rounds up and flushes"]):
        begun = [JOBS.submit(control_register) for _ in range(4)]
        here = [job.result() for job in begun]
    assert here == [PLAIN] * 4


def test_each_thread_has_a_state_of_its_own() -> None:
    seen: list[bool] = []

    def other() -> None:
        with host_state(STATES["rounds up"]):
            seen.append(compared(results_of_function("exp", 3), "rounds down") is None)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [True] and control_register() == PLAIN


PROGRAM = """
import sys
import numpy as np
from tests.fuzz.rounding import STATES, host_state
x = np.linspace(-3, 3, 1000, dtype=np.float32)
with host_state(int(sys.argv[1])):
    import tetrad as td
    def sums(x):
        return td.exp(x) + td.sin(x * 100) * td.exp(td.asarray(0.3)) + x * td.asarray(1e-40)
    f = td.jit(sums)
    y = f(x)
print(np.asarray(y).tobytes().hex())
"""


@pytest.mark.parametrize("state", ["rounds down and flushes"])
def test_the_disk_never_has_code_of_another_state(state: str, tmp_path: Path) -> None:
    """Compiled in a state by one process, recalled by the next: the bits of one that never saw
    it."""

    def bits(control: int, cache: str) -> str:
        environment = os.environ | {"TETRAD_CACHE_DIR": cache}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(control)],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    want = bits(PLAIN, "off")
    assert bits(STATES[state], str(tmp_path)) == want
    assert any(tmp_path.iterdir())
    assert bits(PLAIN, str(tmp_path)) == want


IMPORTED = """
import ctypes, sys
ctypes.CDLL(None).fesetround(int(sys.argv[1]))
import tetrad as td
x = td.asarray([0.3, 1.7, 2.9])
one, two, three = (td.random.key(seed) for seed in (1, 2, 3))
made = td.exp(x), td.nn.gelu(x), td.random.gamma(one, 1.3, (9,)), td.random.normal(two, (9,))
more = td.jit(lambda x: td.sin(x) + td.random.poisson(three, 20.0, (3,)))(x), td.fft.fft(x).real
ctypes.CDLL(None).fesetround(0)
import numpy as np
print([np.asarray(y).tobytes().hex() for y in (*made, *more)])
"""


@pytest.mark.parametrize("rounds", [0x800])
def test_modules_are_loaded_under_our_state(rounds: int, tmp_path: Path) -> None:
    """Python computes constant expressions when it compiles a module, and keeps them on disk."""

    def printed(rounds: int, folder: str) -> str:
        command = [
            sys.executable,
            "-X",
            f"pycache_prefix={tmp_path / folder}",
            "-c",
            IMPORTED,
            str(rounds),
        ]
        environment = os.environ | {"TETRAD_CACHE_DIR": "off"}
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        ).stdout

    want = printed(0, "plain")
    assert printed(rounds, "other") == want
    assert printed(0, "other") == want


def test_eager_ops_and_conversions_do_not_see_the_state() -> None:
    with host_state(STATES["rounds up"]):
        made = td.asarray([0.1, 0.3]) * 0.1, td.asarray(0.1), td.full(2, 0.7)
    want = td.asarray([0.1, 0.3]) * 0.1, td.asarray(0.1), td.full(2, 0.7)
    for got, wanted in zip(made, want, strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))
