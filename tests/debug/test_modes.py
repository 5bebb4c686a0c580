"""td.disable_jit, td.debug.nans and infs: how programs run and what is looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.modules import ROOT
from tetrad.core.errors import NanError, SettingError

ROWS = np.float32([1, -1, 2])


def halved(c: Any, x: Any) -> Any:
    return td.log(c - x), None


# -- nan -------------------------------------------------------------------------------------------

BAD = [
    (lambda x: td.sum(td.log(x) / x), ROWS, r"log: the result f32\[3\] has nan at \[1\], from -1"),
    (lambda x: td.jit(lambda y: td.log(y) * 2)(x), -2.0, r"log: .* from -2\.0"),
    (lambda c: td.scan(halved, c, ROWS * 0)[0], 2.0, r"log: .* in step 2 of the loop"),
    (lambda x: td.scan(halved, 0.5, x, reverse=True)[0], ROWS[2:], r"in step 0 of the loop"),
    (
        lambda c: td.while_loop(lambda c: c < 9, lambda c: td.sqrt(c - 5.0), c),
        2.0,
        "sqrt: .*step 0",
    ),
    (lambda x: td.cond(x < 0, td.log, td.sin, x), -2.0, r"log: .* from -2\.0"),
    (td.grad(lambda x: td.where(x > 0, td.sqrt(x), 0.0)), 0.0, r"multiply: .* from 0\.0 and inf"),
    (td.vmap(lambda x: td.log(x)), ROWS, r"f32\[3\] has nan at \[1\]"),
    (lambda x: td.sqrt(x.astype(td.bfloat16)), -1.0, r"bf16\[\] has nan"),
    (lambda x: td.debug.print("{}", x) or td.log(x), -2.0, "log: "),
]


@pytest.mark.parametrize("run", [td.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize(("function", "x", "said"), BAD, ids=range(len(BAD)))
def test_a_nan_names_op_and_line(run: Any, function: Any, x: Any, said: str) -> None:
    f = run(function)
    f(td.asarray(x))  # unchecked, before and after
    with td.debug.nans(), pytest.raises(NanError, match=said) as caught:
        f(td.asarray(x))
    assert isinstance(caught.value, FloatingPointError)
    assert caught.value.source is not None and caught.value.source.file == __file__
    f(td.asarray(x))


def test_a_nan_that_was_given_is_told_as_such() -> None:
    f = td.jit(lambda weights: weights * 2)
    with td.debug.nans(), pytest.raises(NanError, match="because weights has"):
        f(np.float32([np.nan]))


def test_what_is_good_passes_and_prints_once(capsys: Any) -> None:
    f = td.jit(lambda x: td.debug.print("{}", x) or td.where(x > 0, td.log(x), x))
    with td.debug.nans(), td.debug.infs():
        assert f(-1.0).item() == -1
        assert f(np.int32(3)).dtype == td.float32
    assert capsys.readouterr().out == "-1.0\n3\n"


def test_infinities_are_asked_for_apart() -> None:
    f = td.jit(lambda x: 1 / x)
    with td.debug.nans():
        assert f(0.0).item() == np.inf
    with td.debug.infs(), pytest.raises(NanError, match=r"divide: .* has inf, from 1.0 and 0.0"):
        f(0.0)


def test_donated_arguments_and_symbolic_sizes() -> None:
    f = td.jit(lambda x: td.log(x), donate_argnums=0, dims=({0: td.Dim("n", max=8)},))
    with td.debug.nans(), pytest.raises(NanError, match=r"f32\[3\] has nan at \[1\]"):
        f(td.asarray(ROWS))


def test_the_flag_sets_it_for_a_run() -> None:
    code = "import tetrad as td; td.jit(lambda x: td.log(x))(-1.0)"
    environment = {**os.environ, "TETRAD_CHECK": "nan", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert b"NanError: log: the result f32[] has nan, from -1.0" in done.stderr


# -- without jit -----------------------------------------------------------------------------------


def test_functions_run_as_they_are_written() -> None:
    seen: list[Any] = []

    def function(x: Any, n: int) -> Any:
        seen.append(x.item())
        return x if x > 0 else x * n

    f = td.jit(function, static_argnums=1)
    with td.disable_jit():
        assert f(np.float32(-2), 3).item() == -6
    assert (seen, f.compiles) == ([-2.0], 0)
    td.config.update("disable_jit", True)
    try:
        assert type(f(np.float32(2), 3)) is td.Array
    finally:
        td.config.update("disable_jit", False)


def test_loops_are_loops_of_python() -> None:
    seen: list[float] = []

    def step(c: Any, x: Any) -> Any:
        seen.append(float(c))
        return c + x, {"y": c}

    with td.disable_jit():
        last, ys = td.scan(step, 0.0, ROWS, reverse=True)
        assert (last.item(), ys["y"].tolist(), seen) == (2.0, [1.0, 2.0, 0.0], [0.0, 2.0, 1.0])
        assert td.while_loop(lambda i: bool(i < 3), lambda i: i + 2, 0).item() == 4
        assert td.fori_loop(0, td.asarray(3), lambda i, v: v + int(i), 0).item() == 3
        assert td.cond(True, lambda: 1.0, lambda: 1 / 0).item() == 1
        assert td.scan(lambda c, x: (c, x), 0.0, ROWS[:0])[1].shape == (0,)


def test_derivatives_and_batches_without_jit() -> None:
    with td.disable_jit():
        assert (
            td.grad(td.jit(lambda x: td.fori_loop(0, 3, lambda _, v: v * x, 1.0)))(2.0).item() == 12
        )
        until = td.jit(lambda x: td.while_loop(lambda c: c < 10, lambda c: c + 5, x))
        assert td.vmap(until)(np.float32([1, 2])).tolist() == [11, 12]


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="True or False"):
        td.config.update("debug_nans", "yes")
