"""Layers against PyTorch, with random settings; run by hand where PyTorch is installed:

    python -m tests.nn.against_torch_layers [count] [first]

Forward and gradients of pooling, resizing, norms and losses in f64, compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import tetrad as td
from tetrad import nn

Rng = np.random.Generator
# draws our function, theirs, and the arrays both take
Draw = Callable[[Rng], tuple[Any, Any, list[np.ndarray]]]
DRAWS: list[Draw] = []


def drawn(draw: Draw) -> Draw:
    DRAWS.append(draw)
    return draw


def pick(rng: Rng, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def shape_of(rng: Rng, rank: int, least: int = 4, most: int = 20) -> tuple[int, ...]:
    batch, channels = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    return batch, channels, *(int(n) for n in rng.integers(least, most, rank))


@drawn
def max_pool(rng: Rng) -> Any:
    rank = int(rng.integers(1, 4))
    window = [int(n) for n in rng.integers(1, 5, rank)]
    settings = {
        "stride": [int(n) for n in rng.integers(1, 4, rank)],
        "padding": [int(rng.integers(0, n // 2 + 1)) for n in window],
        "dilation": [int(n) for n in rng.integers(1, 3, rank)],
        "ceil_mode": bool(rng.integers(2)),
    }
    x = rng.standard_normal(shape_of(rng, rank, 8))
    if rng.integers(2):
        x = np.round(x)  # ties
    theirs = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[rank - 1]
    return lambda x: nn.pool(x, window, **settings), lambda x: theirs(x, window, **settings), [x]


@drawn
def avg_pool(rng: Rng) -> Any:
    rank = int(rng.integers(1, 4))
    window = [int(n) for n in rng.integers(1, 5, rank)]
    settings = {
        "stride": [int(n) for n in rng.integers(1, 4, rank)],
        "padding": [int(rng.integers(0, n // 2 + 1)) for n in window],
        "ceil_mode": bool(rng.integers(2)),
        "count_include_pad": bool(rng.integers(2)),
    }
    theirs = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[rank - 1]
    ours = lambda x: nn.pool(x, window, kind="mean", **settings)  # noqa: E731
    return ours, lambda x: theirs(x, window, **settings), [rng.standard_normal(shape_of(rng, rank))]


@drawn
def adaptive(rng: Rng) -> Any:
    rank, is_max = int(rng.integers(1, 4)), bool(rng.integers(2))
    sizes = [int(n) for n in rng.integers(1, 6, rank)]
    name = f"adaptive_{'max' if is_max else 'avg'}_pool{rank}d"
    x = np.round(rng.standard_normal(shape_of(rng, rank)) * 2)
    return lambda x: getattr(nn, name)(x, sizes), lambda x: getattr(F, name)(x, sizes), [x]


@drawn
def resize(rng: Rng) -> Any:
    rank = int(rng.integers(1, 4))
    methods = [("nearest", "nearest"), ("nearest_exact", "nearest-exact")]
    methods += [("linear", ("linear", "bilinear", "trilinear")[rank - 1])]
    methods += [("cubic", "bicubic")] if rank == 2 else []
    method, name = pick(rng, methods)
    ours: dict[str, Any] = {"method": method}
    theirs: dict[str, Any] = {"mode": name}
    if method in ("linear", "cubic"):
        ours["align_corners"] = theirs["align_corners"] = bool(rng.integers(2))
        if rank == 2 and not ours["align_corners"]:
            ours["antialias"] = theirs["antialias"] = bool(rng.integers(2))
    if rng.integers(2):
        ours["size"] = theirs["size"] = [int(n) for n in rng.integers(1, 25, rank)]
    else:
        ours["scale"] = pick(rng, (2.0, 0.5, 1.7, 3.0, 0.37))
        theirs["scale_factor"] = ours["scale"]
    x = rng.standard_normal(shape_of(rng, rank))
    return lambda x: nn.resize(x, **ours), lambda x: F.interpolate(x, **theirs), [x]


@drawn
def norms(rng: Rng) -> Any:
    shape = (int(rng.integers(2, 5)), 6, int(rng.integers(2, 6)), int(rng.integers(2, 6)))
    x, w, b = rng.standard_normal(shape) * 3 + 1, rng.standard_normal(6), rng.standard_normal(6)
    groups = pick(rng, (1, 2, 3, 6))
    state = rng.standard_normal(6), rng.uniform(0.5, 2, 6)
    torch_state = [torch.tensor(v) for v in state]
    pairs = [
        (
            lambda x, w, b: nn.group_norm(x, groups, w, b),
            lambda x, w, b: F.group_norm(x, groups, w, b),
        ),
        (nn.instance_norm, lambda x, w, b: F.instance_norm(x, weight=w, bias=b)),
        (
            lambda x, w, b: nn.batch_norm(x, state, w, b, channel_axis=1),
            lambda x, w, b: F.batch_norm(x, *torch_state, w, b),
        ),
        (
            lambda x, w, b: nn.batch_norm(x, state, w, b, channel_axis=1, training=True)[0],
            lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        ),
    ]
    return *pick(rng, pairs), [x, w, b]


@drawn
def cross_entropy(rng: Rng) -> Any:
    shape = (int(rng.integers(1, 5)), int(rng.integers(2, 7)), *(3,) * int(rng.integers(0, 3)))
    labels = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    settings = {
        "label_smoothing": pick(rng, (0.0, 0.1)),
        "reduction": pick(rng, ("none", "sum", "mean")),
    }
    weight = rng.uniform(0.5, 2, shape[1]) if rng.integers(2) else None
    their_weight = None if weight is None else torch.tensor(weight)
    if rng.integers(2):
        labels[0] = -100
        labels.flat[-1] = 0
    soft = rng.uniform(0, 1, shape)
    targets, tensors = (
        (labels, torch.tensor(labels)) if rng.integers(2) else (soft, torch.tensor(soft))
    )
    ours = lambda x: nn.cross_entropy(x, targets, axis=1, weight=weight, **settings)  # noqa: E731
    theirs = lambda x: F.cross_entropy(x, tensors, weight=their_weight, **settings)  # noqa: E731
    return ours, theirs, [rng.standard_normal(shape) * 3]


@drawn
def pair_losses(rng: Rng) -> Any:
    x, t = rng.standard_normal((4, 5)), rng.standard_normal((4, 5))
    reduction = {"reduction": pick(rng, ("none", "sum", "mean"))}
    names = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "hinge_embedding_loss")
    name = pick(rng, (*names, "binary_cross_entropy_with_logits", "kl_div", "binary_cross_entropy"))
    if name == "hinge_embedding_loss":
        t = np.sign(t)
    if name == "kl_div":
        t = np.exp(t)
    if name.startswith("binary"):
        t = 1 / (1 + np.exp(-t))
    if name == "binary_cross_entropy":
        x = 1 / (1 + np.exp(-x))
    ours = lambda x: getattr(nn, name)(x, t, **reduction)  # noqa: E731
    return ours, lambda x: getattr(F, name)(x, torch.tensor(t), **reduction), [x]


@drawn
def activations(rng: Rng) -> Any:
    pairs = [
        (nn.hard_shrink, F.hardshrink),
        (nn.soft_shrink, F.softshrink),
        (nn.tanh_shrink, F.tanhshrink),
        (lambda x: nn.threshold(x, 0.1, 2.0), lambda x: F.threshold(x, 0.1, 2.0)),
        (lambda x: nn.prelu(x, 0.3), lambda x: F.prelu(x, torch.tensor(0.3, dtype=torch.float64))),
        (nn.softmin, lambda x: F.softmin(x, -1)),
        (nn.hard_swish, F.hardswish),
        (nn.swish, F.silu),
    ]
    return *pick(rng, pairs), [rng.standard_normal((3, 7)) * 2]


def compare(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ours, theirs, arrays = pick(rng, DRAWS)(rng)
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    want = theirs(*leaves)
    ct = rng.standard_normal(tuple(want.shape))
    gradients = torch.autograd.grad(want, leaves, torch.tensor(ct))

    @td.jit
    def both(ct: Any, *arrays: Any) -> Any:
        y, pullback = td.vjp(ours, *arrays)
        return (y, *pullback(ct))

    expected = [v.detach().numpy() for v in (want, *gradients)]
    for got, right in zip(both(ct, *arrays), expected, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-7, atol=1e-8)


def main(count: int, first: int) -> None:
    for seed in range(first, first + count):
        try:
            compare(seed)
        except Exception as error:
            rng = np.random.default_rng(seed)
            raise AssertionError(f"seed {seed}, {pick(rng, DRAWS).__name__}") from error
    print(f"{count} layers agree with PyTorch")


if __name__ == "__main__":
    given = [int(a) for a in sys.argv[1:]]
    main(*given, *(200, 0)[len(given) :])
