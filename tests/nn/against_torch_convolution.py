"""Compares convolutions with PyTorch: random settings, forward and gradients. Run by hand, from the
root of the repository:

    python -m venv peer && peer/bin/pip install torch
    PYTHONPATH=. peer/bin/python tests/nn/against_torch_convolution.py [count] [first seed]

The oracle is PyTorch in double precision on the same numbers. One line for every hundred cases: the
largest difference beside the largest number of each result, of f64, f32 and the halves, compiled;
an error where it is above the bound of its type.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import tetrad as td

BOUNDS = {"float64": 1e-12, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
FORWARD = {1: (td.nn.conv1d, torch.nn.functional.conv1d),
           2: (td.nn.conv2d, torch.nn.functional.conv2d),
           3: (td.nn.conv3d, torch.nn.functional.conv3d)}  # fmt: skip
BACK = {1: (td.nn.conv_transpose1d, torch.nn.functional.conv_transpose1d),
        2: (td.nn.conv_transpose2d, torch.nn.functional.conv_transpose2d)}  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """One case: functions of both, arrays, and settings."""

    ours: Any
    theirs: Any
    arrays: list[np.ndarray]
    settings: dict[str, Any]
    is_last: bool


def pick(rng: np.random.Generator, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def drawn(rng: np.random.Generator) -> Drawn:
    is_back = rng.random() < 0.3
    axes = pick(rng, 1, 2) if is_back else pick(rng, 1, 2, 2, 3)
    groups, is_depthwise = pick(rng, 1, 1, 2, 3), rng.random() < 0.2
    inputs, outputs = pick(rng, 1, 2, 3, 5, 16, 21), pick(rng, 1, 2, 4, 16, 17, 33)
    if is_depthwise:
        groups, inputs, outputs = pick(rng, 3, 16, 19), 1, 1
    taps = [pick(rng, 1, 2, 3, 3, 5) for _ in range(axes)]
    stride, padding, dilation = ([pick(rng, *c) for _ in range(axes)] for c in
                                 ((1, 1, 2, 3), (0, 1, 2), (1, 1, 2)))  # fmt: skip
    room = [(k - 1) * d + 1 for k, d in zip(taps, dilation, strict=True)]
    sizes = [max(r - 2 * p, 1) + int(rng.integers(0, {1: 40, 2: 18, 3: 6}[axes]))
             for r, p in zip(room, padding, strict=True)]  # fmt: skip
    settings: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation,
                                "groups": groups}  # fmt: skip
    channels = (groups * inputs, outputs) if is_back else (groups * outputs, inputs)
    if is_back:
        settings["output_padding"] = [
            int(rng.integers(0, max(s, d))) for s, d in zip(stride, dilation, strict=True)
        ]
        settings["padding"] = [min(p, r - 1) for p, r in zip(padding, room, strict=True)]
        each = zip(sizes, settings["padding"], room, stride, strict=True)
        sizes = [max(n, (2 * p - r) // s + 2) for n, p, r, s in each]  # results are not empty
    x = rng.standard_normal((pick(rng, 1, 2, 3), groups * inputs, *sizes))
    arrays = [x, rng.standard_normal((*channels, *taps)), rng.standard_normal(groups * outputs)]
    ours, theirs = (BACK if is_back else FORWARD)[axes]
    return Drawn(ours, theirs, arrays, settings, bool(rng.integers(2)))


def expected(case: Drawn, arrays: list[np.ndarray], dtype: str) -> tuple[Any, np.ndarray]:
    """The result and the gradients, and the cotangent they belong to."""
    given = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = case.theirs(*given, **case.settings)
    (ct,) = rounded([np.random.default_rng(y.numel()).standard_normal(y.shape)], dtype)
    grads = torch.autograd.grad(y, given, torch.tensor(ct))
    return [y.detach().numpy(), *(g.numpy() for g in grads)], ct


def found(case: Drawn, arrays: list[np.ndarray], ct: np.ndarray, dtype: str) -> list[np.ndarray]:
    layout = {3: "NWC", 4: "NHWC", 5: "NDHWC"}[ct.ndim]
    settings = case.settings | ({"layout": layout} if case.is_last else {})

    def last(a: np.ndarray) -> np.ndarray:
        return np.moveaxis(a, 1, -1) if case.is_last else a

    def first(a: np.ndarray) -> np.ndarray:
        return np.moveaxis(a, -1, 1) if case.is_last else a

    x, w, b = arrays
    given = [td.asarray(np.ascontiguousarray(a), dtype=dtype) for a in (last(x), w, b, last(ct))]

    @td.jit
    def both(x: Any, w: Any, b: Any, ct: Any) -> Any:
        y, back = td.vjp(lambda *args: case.ours(*args, **settings), x, w, b)
        return y, *back(ct)

    y, dx, dw, db = (np.asarray(td.astype(r, "float64")) for r in both(*given))
    return [first(y), first(dx), dw, db]


def rounded(arrays: list[np.ndarray], dtype: str) -> list[np.ndarray]:
    """Numbers that the type has."""
    return [np.asarray(td.astype(td.asarray(a, dtype=dtype), "float64")) for a in arrays]


def main(count: int = 300, first: int = 0) -> int:
    worst, wrong = dict[str, float](), 0
    for seed in range(first, first + count):
        case = drawn(np.random.default_rng(seed))
        for dtype in ("float64", pick(np.random.default_rng(seed), *list(BOUNDS)[1:])):
            arrays = rounded(case.arrays, dtype)
            wanted, ct = expected(case, arrays, dtype)
            got = found(case, arrays, ct, dtype)
            apart = max(distance(g, w) for g, w in zip(got, wanted, strict=True))
            worst[dtype] = max(worst.get(dtype, 0), apart)
            if apart > BOUNDS[dtype]:
                wrong += 1
                print(f"seed {seed} {dtype}: {apart:.1e}", case.settings, case.is_last)
        if (seed - first) % 100 == 99:
            print(
                seed - first + 1, {key: f"{value:.1e}" for key, value in worst.items()}, flush=True
            )
    print(f"{count} cases, {wrong} wrong")
    return int(wrong > 0)


def distance(got: np.ndarray, want: np.ndarray) -> float:
    if got.shape != want.shape:
        return float("inf")
    return float(np.abs(got - want).max() / max(1.0, np.abs(want).max())) if want.size else 0.0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
