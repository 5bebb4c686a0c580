"""Bench, attention: eight heads of 64 channels, causal, against PyTorch's scaled dot product
attention; forward, and forward with the gradient; and the peak of memory at length 4,096.

    python bench/neural.py --only attention

ratio = their time / our time; of memory, the bytes of all scores / what our process grew by.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from common import THREADS, Options, Row, measure
from gradients import start_watching, status

HEADS, SIZE = 8, 64
LEAST = {"forward": {1024: 1.4, 4096: 1.1}, "forward and backward": {1024: 1.3, 4096: 1.3}}
SMALLER = 20.0  # times, than arrays of all scores
ARRAYS = {"forward": 1, "forward and backward": 2}  # scores; weights and their slopes


def rows(chosen: Options) -> Iterator[Row]:
    for kind, least in LEAST.items():
        for length, at_least in least.items():
            name = f"attention {HEADS} x {SIZE} causal, {length}, {kind}"
            if chosen.wants(name):
                yield compared(name, kind, length, at_least, chosen)
    for kind in LEAST:
        name = f"attention 4096, peak of memory, {kind}"
        if chosen.wants(name):
            yield peak(name, kind, 4096)


def compared(name: str, kind: str, length: int, at_least: float, chosen: Options) -> Row:
    arrays = operands(length)
    ours, theirs = with_tetrad(kind, arrays), with_torch(kind, arrays)
    timing = measure({"tetrad": ours, "torch": theirs}, chosen.budget)
    best, peer = timing.best["tetrad"], timing.best["torch"]
    pairs = zip(results(ours()), results(theirs()), strict=True)
    is_right = all(np.allclose(a, np.swapaxes(b, 1, 2), atol=2e-3) for a, b in pairs)
    return Row(
        name, best, "s", peer / best, at_least, "PyTorch", peer, timing.foreign, is_right,
    )  # fmt: skip


def operands(length: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((1, length, HEADS, SIZE)).astype(np.float32) for _ in range(3)]


def with_tetrad(kind: str, arrays: list[np.ndarray]) -> Any:
    import tetrad as td

    def attend(q: Any, k: Any, v: Any) -> Any:
        return td.nn.dot_product_attention(q, k, v, is_causal=True)

    function = td.jit(
        attend if kind == "forward" else td.grad(lambda *x: td.sum(attend(*x)), argnums=(0, 1, 2))
    )
    given = [td.asarray(x) for x in arrays]
    return lambda: function(*given)


def with_torch(kind: str, arrays: list[np.ndarray]) -> Any:
    """In the order of axes that is fastest there: heads before times."""
    import torch

    torch.set_num_threads(THREADS)
    given = [torch.from_numpy(np.ascontiguousarray(np.swapaxes(x, 1, 2))) for x in arrays]
    attend = torch.nn.functional.scaled_dot_product_attention
    if kind == "forward":
        return lambda: attend(*given, is_causal=True)
    leaves = [x.requires_grad_() for x in given]
    return lambda: torch.autograd.grad(attend(*leaves, is_causal=True).sum(), leaves)


def results(found: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in found] if isinstance(found, tuple) else [np.asarray(found)]


def peak(name: str, kind: str, length: int) -> Row:
    """By how much the process grows in a call, results included."""
    function = with_tetrad(kind, operands(length))
    with_tetrad(kind, operands(64))()  # the compiler is resident
    before = start_watching()
    function()
    grown = max(status("VmHWM") - before, 1.0)
    scores = float(ARRAYS[kind] * HEADS * length * length * 4)
    return Row(name, grown, "B", scores / grown, SMALLER, "all scores", scores)
