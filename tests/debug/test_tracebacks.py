"""Tracebacks show the user's frames; arrays and errors while tracing say where values came from."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.modules import ROOT
from tetrad.core.errors import ShapeError, TraceError
from tetrad.core.tracebacks import is_users

X = np.float32([1, 2, 3])
WRONG = """
import tetrad as td
def inner(x):
    return x @ td.ones(7)
f = td.jit(lambda x: inner(x))
{}
"""


def inner(x: Any) -> Any:
    return x @ td.ones(7)


RUNS = [
    lambda: td.jit(inner)(X),
    lambda: td.grad(lambda x: td.sum(td.jit(inner)(x)))(X),
    lambda: td.vmap(inner)(X[None]),
    lambda: td.jvp(inner, (X,), (X,)),
    lambda: td.vjp(inner, X),
    lambda: td.scan(lambda c, _: (inner(c), None), X, None, length=2),
    lambda: td.while_loop(lambda c: True, inner, X),
    lambda: td.fori_loop(0, 2, lambda i, c: inner(c), X),
    lambda: td.cond(True, inner, inner, X),
    lambda: td.switch(0, [inner], X),
]


def own_frames(error: BaseException) -> list[str]:
    found, step = [], error.__traceback__
    while step is not None:
        found.append(step.tb_frame.f_code.co_filename)
        step = step.tb_next
    return [file for file in found if "/tetrad/" in file and "/tests/" not in file]


@pytest.mark.parametrize("run", RUNS, ids=range(len(RUNS)))
def test_between_the_call_and_the_op_are_no_frames_of_ours(run: Any) -> None:
    with pytest.raises(ShapeError) as caught:
        run()
    assert own_frames(caught.value) == []
    assert caught.traceback[-1].name == "inner"


def test_errors_of_users_lose_our_frames_as_well() -> None:
    def broken(x: Any) -> Any:
        raise ValueError("mine")

    for run in (lambda: td.jit(broken)(X), lambda: td.grad(broken)(X)):
        with pytest.raises(ValueError, match="mine") as caught:
            run()
        assert own_frames(caught.value) == []
        assert caught.traceback[-1].name == "broken"


def test_defects_of_ours_keep_their_frames(monkeypatch: Any) -> None:
    monkeypatch.setattr("tetrad.compiler.jit.trace_function", lambda *args: {}["defect"])
    with pytest.raises(KeyError) as caught:
        td.jit(inner)(X)
    assert is_users(ValueError())  # without a traceback there is nothing to hide
    assert caught.traceback[-1].name != "inner"


@pytest.mark.parametrize("value", ["short", "full"])
@pytest.mark.parametrize("call", ["f(td.ones(3))", "td.ones(3) @ td.ones(7)"])
def test_the_end_of_a_program(value: str, call: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(WRONG.format(call))
    environment = {**os.environ, "TETRAD_TRACEBACK": value, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
    assert "inner sizes differ" in done.stderr
    assert (f"{ROOT}/tetrad/" in done.stderr) is (value == "full")


def test_threads_as_well(capsys: Any) -> None:
    @pytest.mark.filterwarnings("ignore")
    def run() -> None:
        td.ones(3) @ td.ones(7)

    seen: list[Any] = []
    before, threading.excepthook = threading.excepthook, seen.append
    try:
        from_names = sys.modules["tetrad.core.tracebacks"].threads_printing_less(seen.append)
        threading.excepthook = from_names
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.excepthook = before
    assert own_frames(seen[0].exc_value) == []


# -- what is printed -------------------------------------------------------------------------------


def printed(transform: Any, x: Any, function: Any = lambda x: x) -> str:
    seen: list[str] = []
    transform(lambda x: seen.append(repr(function(x))) or td.sum(x))(x)
    return seen[0]


def test_arrays_show_the_values_they_have() -> None:
    assert printed(td.grad, X) == "Traced<f32[3]> with primal [1., 2., 3.]"
    assert printed(td.grad, X, lambda x: x * 2) == "Traced<f32[3]> with primal [2., 4., 6.]"
    assert printed(lambda f: lambda x: td.jvp(f, (x,), (x,)), X).endswith("primal [1., 2., 3.]")
    assert printed(td.vmap, X) == "Traced<f32[]> with rows [1., 2., 3.]"
    assert printed(td.vmap, np.arange(20.0)).endswith("7., ...]")
    assert printed(td.jit, X) == "Traced<f32[3]>"
    assert printed(lambda f: td.jit(td.grad(f)), X) == "Traced<f32[3]>"


def test_a_leaked_array_says_what_made_it() -> None:
    kept: list[Any] = []
    td.jit(lambda x, y: kept.extend((x, x * y)) or x)(1.0, X)
    assert repr(kept[1]) == "Traced<f32[3]> of <lambda>, whose tracing has ended"
    with pytest.raises(TraceError, match="had ended; it is the argument x"):
        kept[0] + 1
    with pytest.raises(TraceError, match=rf"multiply made it in <lambda>, {__file__} line \d+"):
        kept[1] + 1


def test_the_arguments_a_value_follows_from() -> None:
    def function(params: Any, x: Any, unused: Any) -> Any:
        return x if x.sum() > params["w"] else -x

    with pytest.raises(
        TraceError, match=r"follows from the arguments x, params\['w'\] of function"
    ):
        td.jit(function)({"w": 1.0}, X, 2)
    with pytest.raises(TraceError, match="static_argnames='x' if x is a plain setting"):
        td.jit(lambda x: float(x))(1.0)


def test_arguments_of_enclosing_functions() -> None:
    def outer(y: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            return (c if c > y else x), None

        return td.scan(body, 0.0, X)

    with pytest.raises(TraceError, match="argument c of body and the argument y of outer"):
        td.jit(outer)(1.0)
