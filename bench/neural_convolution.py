"""Bench, neural networks: convolutions and their gradients against PyTorch on two threads.

Both sides run in both orders of axes (NCHW and NHWC, in PyTorch contiguous and channels_last), and
the better of each counts. PyTorch is called as its users call it, F.conv2d and its backward without
recording. A row is reached with ratio 1, or with 85 % of the arithmetic that the machine gives in
the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import THREADS, Budget, Options, Row, bound_by, measure
from native import Roof, fma_peak, move

import tetrad as td

NEAR_ROOF = 0.85
MEMORY = 1 << 20  # bytes: work that touches less stays in cache
BATCHES = (1, 8)
Functions = dict[str, Callable[[], Any]]


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution of square images."""

    name: str
    inputs: int
    outputs: int
    size: int
    taps: int
    stride: int = 1
    groups: int = 1

    @property
    def padding(self) -> int:
        return self.taps // 2

    @property
    def places(self) -> int:
        return ((self.size + 2 * self.padding - self.taps) // self.stride + 1) ** 2

    @property
    def flops(self) -> int:
        return 2 * self.outputs * (self.inputs // self.groups) * self.taps**2 * self.places

    @property
    def bytes(self) -> tuple[int, int]:
        """Of x and of the result."""
        return 4 * self.inputs * self.size**2, 4 * self.outputs * self.places


LAYERS = (
    Layer("3x3 64 to 64, 56x56", 64, 64, 56, 3),
    Layer("1x1 256 to 64, 56x56", 256, 64, 56, 1),
    Layer("depthwise 3x3 64, 56x56", 64, 64, 56, 3, groups=64),
    Layer("depthwise 3x3 128, 56x56", 128, 128, 56, 3, groups=128),
    Layer("3x3 64 to 128 stride 2, 56x56", 64, 128, 56, 3, stride=2),
)


def rows(chosen: Options) -> Iterator[Row]:
    for layer in LAYERS:
        for batch in BATCHES:
            for is_backward in (False, True):
                what = "backward" if is_backward else "forward"
                name = f"conv {layer.name}, batch {batch}, {what}"
                if chosen.wants(name):
                    yield row(name, layer, batch, is_backward, chosen.budget)


def row(name: str, layer: Layer, batch: int, is_backward: bool, budget: Budget) -> Row:
    x, w, ct = arrays(layer, batch)
    ours = our_functions(layer, x, w, ct, is_backward)
    theirs = their_functions(layer, x, w, ct, is_backward)
    is_right = all(agree(ours[key], theirs[key]) for key in ours)
    roofs = roofs_of(layer, batch, is_backward)
    sides = {f"ours {key}": f for key, f in ours.items()}
    sides |= {f"theirs {key}": f for key, f in theirs.items()}
    timing = measure(sides | {key: roof.run for key, roof in roofs.items()}, budget)
    best = {key: min((timing.best[f"{key} {o}"], o) for o in ours) for key in ("ours", "theirs")}
    work = layer.flops * batch * (2 if is_backward else 1)
    needed = {
        key: timing.best[key] * (work if key == "arithmetic" else 1) / roof.work
        for key, roof in roofs.items()
    }
    (ours_best, ours_order), (theirs_best, theirs_order) = best["ours"], best["theirs"]
    goal = min(1.0, theirs_best / needed["arithmetic"] * NEAR_ROOF)
    return Row(
        f"{name} ({ours_order})", ours_best, "s", theirs_best / ours_best, goal,
        f"PyTorch {theirs_order}", theirs_best, timing.foreign, is_right,
        bound_by(needed, ours_best), theirs_best / max(needed.values()),
    )  # fmt: skip


def arrays(layer: Layer, batch: int) -> tuple[np.ndarray, ...]:
    """x, weight, and a cotangent."""
    rng, side = np.random.default_rng(0), round(layer.places**0.5)
    taps = (layer.taps, layer.taps)
    shapes = (
        (batch, layer.inputs, layer.size, layer.size),
        (layer.outputs, layer.inputs // layer.groups, *taps),
        (batch, layer.outputs, side, side),
    )
    return tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)


def roofs_of(layer: Layer, batch: int, is_backward: bool) -> dict[str, Roof]:
    """Bytes only where they may be what bounds: backward reads x and the cotangent, and writes the
    gradient of x."""
    roofs = {"arithmetic": fma_peak(THREADS)}
    reads, writes = (batch * n for n in layer.bytes)
    if layer.groups > 1 and reads + writes >= MEMORY:
        moved = (reads + writes, reads) if is_backward else (reads, writes)
        roofs["memory"] = Roof(move(*moved, THREADS, ""), 1.0)
    return roofs


def agree(ours: Callable[[], Any], theirs: Callable[[], Any]) -> bool:
    pairs = zip(ours(), theirs(), strict=True)
    return all(
        np.allclose(a, b, rtol=1e-4, atol=1e-4 * float(np.abs(np.asarray(b)).max()))
        for a, b in ((np.asarray(a), np.asarray(b)) for a, b in pairs)
    )


# -- ours ------------------------------------------------------------------------------------------


def our_functions(
    layer: Layer, x: np.ndarray, w: np.ndarray, ct: np.ndarray, is_backward: bool
) -> Functions:
    """Weights as they usually lie beside the arrays: OIHW, and HWIO with channels last."""
    first = (x, w, ct)
    last = (x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), ct.transpose(0, 2, 3, 1))
    made: Functions = {}
    for order, weights, given in (("NCHW", "OIHW", first), ("NHWC", "HWIO", last)):
        held = tuple(td.asarray(np.ascontiguousarray(a)) for a in given)
        made[order] = our_function(layer, order, weights, held, is_backward)
    return made


def our_function(
    layer: Layer, order: str, weights: str, held: tuple[Any, ...], is_backward: bool
) -> Callable[[], Any]:
    def forward(x: Any, w: Any) -> Any:
        return td.nn.conv2d(
            x, w, stride=layer.stride, padding=layer.padding, groups=layer.groups, layout=order,
            weight_layout=weights,
        )  # fmt: skip

    def backward(x: Any, w: Any, ct: Any) -> Any:
        return td.vjp(forward, x, w)[1](ct)

    if is_backward:
        jitted = td.jit(backward)
        return lambda: jitted(*held)
    jitted = td.jit(lambda x, w, ct: (forward(x, w),))
    return lambda: jitted(*held)


# -- theirs ----------------------------------------------------------------------------------------


def their_functions(
    layer: Layer, x: np.ndarray, w: np.ndarray, ct: np.ndarray, is_backward: bool
) -> Functions:
    import torch

    torch.set_num_threads(THREADS)
    orders = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}
    return {
        name: their_function(
            layer, *(torch.tensor(a).to(memory_format=order) for a in (x, w, ct)), is_backward, name
        )
        for name, order in orders.items()
    }


def their_function(
    layer: Layer, x: Any, w: Any, ct: Any, is_backward: bool, order: str
) -> Callable[[], Any]:
    """Results are seen in the order of ours; that moves nothing."""
    import torch

    both = [layer.stride] * 2, [layer.padding] * 2
    is_last = order == "NHWC"

    def forward() -> Any:
        with torch.inference_mode():
            y = torch.nn.functional.conv2d(x, w, None, *both, groups=layer.groups)
            return (y.permute(0, 2, 3, 1) if is_last else y,)

    def backward() -> Any:
        with torch.inference_mode():
            dx, dw, _ = torch.ops.aten.convolution_backward(
                ct, x, w, None, *both, [1, 1], False, [0, 0], layer.groups, [True, True, False]
            )
            return (dx.permute(0, 2, 3, 1), dw.permute(2, 3, 1, 0)) if is_last else (dx, dw)

    return backward if is_backward else forward
