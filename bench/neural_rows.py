"""Bench, neural networks: norms, cross entropy and pooling with their gradients, against PyTorch.

A step is the result and all gradients, in one call of a compiled function, as a training step has
them; PyTorch makes the same with autograd. The roof moves the bytes of one pass: what is given is
read once, what is asked for is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
from common import THREADS, Options, Row
from core import Case, Pair, Work, normal, run_case

import tetrad as td

ROWS, COLUMNS = 4096, 1024
BYTES = 4 * ROWS * COLUMNS


@cache
def torch() -> Any:
    """Loaded after the threads were set."""
    import torch as module

    module.set_num_threads(THREADS)
    return module


def with_gradients(
    ours: Callable[..., Any], theirs: Callable[..., Any], arrays: list[Any], ct: Any, work: Work
) -> Pair:
    """The result and its pullback of `ct`, for all arrays."""

    @td.jit
    def step(ct: Any, *arrays: Any) -> Any:
        y, pullback = td.vjp(ours, *arrays)
        return (y, *pullback(ct))

    given = [td.asarray(a) for a in (ct, *arrays)]
    leaves = [torch().tensor(a, requires_grad=True) for a in arrays]
    their_ct = torch().tensor(ct)

    def their_step() -> Any:
        y = theirs(*leaves)
        gradients = torch().autograd.grad(y, leaves, their_ct)
        return (y.detach().numpy(), *(g.numpy() for g in gradients))

    return Pair(lambda: step(*given), their_step, work)


def layer_norm() -> Pair:
    arrays = [normal(ROWS, COLUMNS), normal(COLUMNS, seed=1), normal(COLUMNS, seed=2)]
    return with_gradients(
        td.nn.layer_norm,
        lambda x, w, b: torch().nn.functional.layer_norm(x, (COLUMNS,), w, b),
        arrays,
        normal(ROWS, COLUMNS, seed=3),
        Work(2 * BYTES, 2 * BYTES),
    )


def rms_norm() -> Pair:
    return with_gradients(
        td.nn.rms_norm,
        lambda x, w: torch().nn.functional.rms_norm(x, (COLUMNS,), w, eps=1e-6),
        [normal(ROWS, COLUMNS), normal(COLUMNS, seed=1)],
        normal(ROWS, COLUMNS, seed=3),
        Work(2 * BYTES, 2 * BYTES),
    )


def cross_entropy() -> Pair:
    labels = np.random.default_rng(4).integers(0, COLUMNS, ROWS)
    ours, theirs = td.asarray(labels.astype(np.int32)), torch().tensor(labels)
    return with_gradients(
        lambda x: td.nn.cross_entropy(x, ours),
        lambda x: torch().nn.functional.cross_entropy(x, theirs),
        [normal(ROWS, COLUMNS)],
        np.float32(1),
        Work(BYTES, BYTES),
    )


def pooling(kind: str, batch: int, size: int, window: int, padding: int) -> Callable[[], Pair]:
    """Windows two apart, of 64 channels."""

    def make() -> Pair:
        name = f"{kind}_pool2d"
        x = normal(batch, 64, size, size)
        theirs = getattr(torch().nn.functional, name)
        return with_gradients(
            lambda x: getattr(td.nn, name)(x, window, 2, padding),
            lambda x: theirs(x, window, 2, padding),
            [x],
            normal(batch, 64, size // 2, size // 2, seed=1),
            Work(x.nbytes * 5 // 4, x.nbytes * 5 // 4),
        )

    return make


CASES = [
    Case("layer_norm 4096x1024, both ways", "PyTorch", 1.5, layer_norm),
    Case("rms_norm 4096x1024, both ways", "PyTorch", 1.5, rms_norm),
    Case("cross entropy 4096x1024, both ways", "PyTorch", 1.5, cross_entropy),
    Case("max_pool2d 2x2, 32x64x56x56, both ways", "PyTorch", 1.5, pooling("max", 32, 56, 2, 0)),
    Case("max_pool2d 3x3, 16x64x112x112, both ways", "PyTorch", 1.5, pooling("max", 16, 112, 3, 1)),
    Case("avg_pool2d 2x2, 32x64x56x56, both ways", "PyTorch", 1.5, pooling("avg", 32, 56, 2, 0)),
]


def rows(chosen: Options) -> Iterator[Row]:
    for case in CASES:
        if chosen.wants(case.name):
            yield run_case(case, chosen.budget)
