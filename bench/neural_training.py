"""Bench, neural networks, training steps: a character GPT, an MLP and a convnet, value, gradients
and Adam in one program, against PyTorch and JAX; and the peak memory of the GPT.

`bench/neural.py` runs these rows; the programs are in `gpt.py`, `gradients.py` and `convnet.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import convnet
import gpt
import transforms
from common import THREADS, Budget, Options, Row, bound_by, measure
from core import installed
from native import fma_peak

GPT, GPT_MEMORY = "training: GPT 6x384, 16x128", "training: GPT, peak memory"
MLP, CONVNET = "training: MLP 784-1024-1024-10", "training: convnet 64x28x28"


def rows(chosen: Options) -> Iterator[Row]:
    if chosen.wants(GPT):
        yield step_row(GPT, gpt.STEPS, gpt.flops(), 1.2, chosen.budget)
    if chosen.wants(GPT_MEMORY):
        yield memory_row()
    if chosen.wants(MLP):
        yield share_row(chosen.budget)
    if chosen.wants(CONVNET):
        yield step_row(CONVNET, convnet.STEPS, convnet.flops(), 1.3, chosen.budget)


def step_row(
    name: str, steps: dict[str, gpt.MakeStep], flops: int, at_least: float, budget: Budget
) -> Row:
    """Against the better peer. All take the first steps together: losses that go apart are
    WRONG."""
    calls = {library: make() for library, make in steps.items()}
    losses = {library: [float(call()) for _ in range(3)] for library, call in calls.items()}
    is_right = all(gpt.near(found, losses["tetrad"]) for found in losses.values())
    roof = fma_peak(THREADS)
    timing = measure({**calls, "roof": roof.run}, budget)
    ours = timing.best["tetrad"]
    peer = min((n for n in calls if n != "tetrad"), key=lambda n: timing.best[n])
    theirs, needed = timing.best[peer], timing.best["roof"] * flops / roof.work
    return Row(
        name, ours, "s", theirs / ours, at_least, peer, theirs, timing.foreign, is_right,
        bound_by({"arithmetic": needed}, ours), theirs / needed,
    )  # fmt: skip


def memory_row() -> Row:
    """Peaks of processes of their own, which do nothing but train."""
    peaks = {library: peak_of(library) for library in ("tetrad", "torch")}
    ratio = peaks["torch"] / peaks["tetrad"]
    return Row(GPT_MEMORY, peaks["tetrad"], "B", ratio, 1.0, "torch", peaks["torch"])


def peak_of(library: str) -> float:
    done = subprocess.run(
        [sys.executable, gpt.__file__, library],
        env=installed(), stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return float(json.loads(done.stdout)["peak"])


def share_row(budget: Budget) -> Row:
    """The share of the f32 roof that the MLP's step of `transforms.py` reaches."""
    pair, roof = transforms.training(), fma_peak(THREADS)
    timing = measure({"ours": pair.ours, "roof": roof.run}, budget)
    ours, needed = timing.best["ours"], timing.best["roof"] * pair.work.flops / roof.work
    return Row(
        MLP, ours, "s", needed / ours, 0.8, "f32 roof", needed, timing.foreign,
        bound=bound_by({"arithmetic": needed}, ours),
    )  # fmt: skip
