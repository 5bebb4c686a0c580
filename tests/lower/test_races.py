"""Kernels whose lanes exchange values through memory are free of races on every processor, and
would not be without their barriers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.backends.cpu.isa.x86_64 import LEVELS
from tetrad.backends.llvm.target import Target
from tetrad.compiler.pipeline import lower_graph
from tetrad.core.errors import RaceError
from tetrad.core.sizes import Dim
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.verify import verify
from tetrad.lower.lower import Lowerer
from tetrad.schedule.evaluate import evaluate as evaluate_schedule
from tetrad.schedule.nodes import programs_of

S, N = td.Spec, Dim("n", max=1 << 20)


def topk(x: Any) -> Any:
    return td.topk(x, 100)


def softmax(x: Any) -> Any:
    top = td.exp(x - td.max(x, axis=-1, keepdims=True))
    return top / td.sum(top, axis=-1, keepdims=True)


def cell(w: Any, xs: Any) -> Any:
    return td.scan(lambda h, x: (td.tanh(h @ w + x), h), td.zeros((2, 16)), xs)


CASES: dict[str, tuple[Any, ...]] = {
    "staged rows": (lambda a, b: td.matmul(a * 2, b), (7, 300), (300, 70)),
    "staged rows of a transpose": (lambda a, b: td.matmul(a.T, b), (300, 7), (300, 70)),
    "long rows": (softmax, (1, N)),
    "few long rows": (lambda x: td.sum(x, axis=1), (2, 40000)),
    "long sort": (td.sort, (2, 300)),
    "long argsort": (td.argsort, (2, 300)),
    "long topk": (topk, (1, 2000)),
    "long transform": (td.fft.rfft, (1, 1500)),
    "scatter to one column": (lambda i, v: td.zeros((9,)).at[i % 9].add(v), td.int32, (30,)),
    "extremes in one column": (
        lambda i, v: td.zeros((9,)).at[i % 9].max(v).at[i % 7].min(v),
        td.int32,
        (30,),
    ),
    "recurrent cell": (cell, (16, 16), (5, 2, 16)),
    "one small system": (td.linalg.det, (5, 5)),
}
SIZE = 9000  # of the Dim
TILES = ("x86-64", "x86-64-v3", "x86-64-v4")  # levels whose tiles differ


def run(name: str, target: Target) -> None:
    function, *shapes = CASES[name]
    specs = [S((30,), td.int32) if shape is td.int32 else S(shape) for shape in shapes]
    lowered = lower_graph(td.trace(function)(*specs), Lowerer(target.machine))
    for program in programs_of(lowered):
        verify(program, target.machine.workgroup_bytes)
    rng = np.random.default_rng(1)
    arrays = []
    for spec in specs:
        shape = tuple(n if isinstance(n, int) else SIZE for n in spec.shape)
        drawn = rng.standard_normal(shape).astype(np.float32)
        arrays.append(np.abs(drawn * 9).astype(np.int32) if spec.dtype is td.int32 else drawn)
    evaluate_schedule(lowered, arrays, {"n": SIZE})


@pytest.mark.parametrize("level", TILES)
@pytest.mark.parametrize("name", CASES)
def test_no_races_on_any_processor(name: str, level: str) -> None:
    run(name, LEVELS[level])


@pytest.mark.parametrize("name", CASES)
def test_the_barriers_are_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KernelBuilder, "barrier", lambda k: None)
    with pytest.raises(RaceError):
        run(name, LEVELS["x86-64-v3"])
