"""Kernel language, library, 4-bit linear layers: the weights stay packed.

Receives names of buffers and sizes, returns programs. A word holds eight consecutive inputs of one
output column as unsigned nibbles: input k of column i is lane k % 8 of word (k // 8) * out_dim + i,
so neighbouring invocations read neighbouring words. A sum starts at the bias and runs over inputs
in ascending order; products and sums are rounded one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.core.dtypes import f32, u32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.record import record
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.kernel.library.quantized_type import PerGroup, QuantizedType
from tetrad.kernel.library.sizes import checked_product
from tetrad.kernel.nodes import Buffer, Program
from tetrad.kernel.packing import pack
from tetrad.kernel.registry import Sample, register

Array = np.ndarray[Any, Any]
GROUP = 64  # invocations of a workgroup
MOST_HOISTED = 256  # groups whose scales and zero points are loaded before their loops
LAYOUT = "column_interleaved_unsigned"
ZERO_POINT = 2  # trap of the strict form: a zero point above 15


def refuse_sizes(op: str, in_dim: int, out_dim: int, group_size: int = 1) -> int:
    """The number of words of the weights; or an error, in the order of the arguments."""
    if in_dim < 1:
        raise ShapeError(f"Fix: {op}: in_dim={in_dim}: the reduction is empty; pass in_dim > 0")
    if out_dim < 1:
        raise ShapeError(f"Fix: {op}: out_dim={out_dim}: empty output; pass out_dim > 0")
    if group_size < 1:
        raise ShapeError(f"Fix: {op}: group_size={group_size} must be > 0")
    if in_dim % 8:
        raise ShapeError(
            f"Fix: {op}: in_dim={in_dim} must be divisible by 8; pad the input and the weights "
            f"with zeros to {in_dim + -in_dim % 8}"
        )
    return checked_product(op, "words of the weights", in_dim // 8, out_dim)


def nibble(k: KernelBuilder, weights: Buffer, at: Val, column: Val, out_dim: int) -> Val:
    """The weight of input `at` for a column, 0 to 15, as f32."""
    word = k.load(weights, at // 8 * out_dim + column)
    return k.cast(word >> k.cast(at % 8 * 4, u32) & 15, f32)


@register(
    "tetrad::nn::linear_4bit",
    category="nn",
    inputs=[
        [
            pack(range(8), f32),
            pack([0x76543210, 0xFEDCBA98, 0x11111111, 0], u32),
            pack([0] * 4, f32),
        ]
    ],
    expected=[[pack([140, 364, 28, 0], f32)]],
)
def linear_4bit(
    x: str = "x",
    w: str = "w",
    b: str = "b",
    out: str = "out",
    in_dim: int = 8,
    out_dim: int = 4,
) -> Program:
    """out[i] = b[i] + sum over k of x[k] * nibble(k, i)."""
    size = refuse_sizes("linear_4bit", in_dim, out_dim)
    k = KernelBuilder("linear_4bit", GROUP)
    inputs, weights = k.buffer(x, f32, count=in_dim), k.buffer(w, u32, count=size)
    bias, y = k.buffer(b, f32, count=out_dim), k.buffer(out, f32, "write", out_dim)
    i = k.global_id()
    with k.when(i < out_dim, guard=True):
        total = k.local(k.load(bias, i))
        with k.loop(in_dim, always=True) as at:
            value = nibble(k, weights, at, i, out_dim)
            total.set(total.get() + k.load(inputs, at) * value)
        k.store(y, i, total.get())
    return k.finish()


@linear_4bit.sampler
def linear_4bit_sample(rng: np.random.Generator) -> Sample:
    (in_dim, out_dim), x, nibbles, b = random_layer(rng)
    total = b.copy()
    for k in range(in_dim):
        total += x[k] * nibbles[k].astype("<f4")
    inputs = (x.tobytes(), interleaved(nibbles), b.tobytes())
    return Sample(("x", "w", "b", "out", in_dim, out_dim), inputs, (total.tobytes(),))


def random_layer(rng: np.random.Generator) -> tuple[tuple[int, int], Array, Array, Array]:
    """Sizes, input, nibbles [in, out], bias."""
    in_dim, out_dim = 8 * int(rng.integers(1, 9)), int(rng.integers(1, 150))
    x, b = (rng.normal(size=n).astype("<f4") for n in (in_dim, out_dim))
    return (in_dim, out_dim), x, rng.integers(0, 16, (in_dim, out_dim), dtype=np.uint32), b


def interleaved(nibbles: Array) -> bytes:
    """The words of nibbles [in, out]."""
    eights = nibbles.reshape(-1, 8, nibbles.shape[1])
    joined: Array = np.bitwise_or.reduce(
        eights << np.arange(0, 32, 4, dtype=np.uint32)[None, :, None], axis=1
    )
    return joined.astype("<u4").tobytes()


# -- groups with a scale and a zero point ----------------------------------------------------------


@register(
    "tetrad::nn::linear_4bit_affine_grouped",
    category="nn",
    inputs=[
        [
            pack(range(1, 9), f32),
            pack([0x87654321, 0], u32),
            pack([0.5, 1, 2, 1], f32),
            pack([1, 0, 4, 0], u32),
            pack([0, 3], f32),
        ]
    ],
    expected=[[pack([150, 3], f32)]],
)
def linear_4bit_affine_grouped(
    x: str = "x",
    w: str = "w",
    scale: str = "scale",
    zero_point: str = "zero_point",
    b: str = "b",
    out: str = "out",
    in_dim: int = 8,
    out_dim: int = 2,
    group_size: int = 4,
    strict: bool = False,
) -> Program:
    """out[i] = b[i] + sum over k of x[k] * ((nibble(k, i) - zero_point[g, i]) * scale[g, i]) with
    g = k // group_size. `strict`: a zero point above 15 traps."""
    op = "linear_4bit_affine_grouped"
    size = refuse_sizes(op, in_dim, out_dim, group_size)
    groups = -(-in_dim // group_size)
    sidecars = checked_product(op, "scales and zero points", groups, out_dim)
    k = KernelBuilder(op, GROUP)
    inputs, weights = k.buffer(x, f32, count=in_dim), k.buffer(w, u32, count=size)
    scales = k.buffer(scale, f32, count=sidecars)
    zeros = k.buffer(zero_point, u32, count=sidecars)
    bias, y = k.buffer(b, f32, count=out_dim), k.buffer(out, f32, "write", out_dim)
    layer = GroupedLayer(k, inputs, weights, scales, zeros, out_dim, group_size, strict)
    i = k.global_id()
    with k.when(i < out_dim, guard=True):
        total = k.local(k.load(bias, i))
        if groups <= MOST_HOISTED:
            add_hoisted(layer, total, i, in_dim)
        else:
            add_reloaded(layer, total, i, in_dim)
        k.store(y, i, total.get())
    return k.finish()


@record
class GroupedLayer:
    """What the loops over inputs read."""

    k: KernelBuilder
    x: Buffer
    weights: Buffer
    scales: Buffer
    zeros: Buffer
    out_dim: int
    group_size: int
    strict: bool

    def sidecar(self, group: Val, i: Val) -> tuple[Val, Val]:
        """Scale and zero point of a group, as f32."""
        at, k = group * self.out_dim + i, self.k
        zero = k.load(self.zeros, at)
        if self.strict:
            k.trap(zero > 15, ZERO_POINT, at)
        return k.load(self.scales, at), k.cast(zero, f32)

    def term(self, at: Val, i: Val, scale: Val, zero: Val) -> Val:
        """Subtract, scale, multiply: the order is part of the meaning."""
        value = nibble(self.k, self.weights, at, i, self.out_dim)
        return self.k.load(self.x, at) * ((value - zero) * scale)


def add_hoisted(layer: GroupedLayer, total: LocalVar, i: Val, in_dim: int) -> None:
    """Three statements for each group: its scale, its zero point, a tight loop."""
    k = layer.k
    for group, start in enumerate(range(0, in_dim, layer.group_size)):
        loaded = layer.sidecar(k.index(group), i)
        scale, zero = (k.local(value) for value in loaded)
        with k.loop(min(start + layer.group_size, in_dim), start, always=True) as at:
            total.set(total.get() + layer.term(at, i, scale.get(), zero.get()))


def add_reloaded(layer: GroupedLayer, total: LocalVar, i: Val, in_dim: int) -> None:
    """One statement: a loop that finds the group of each input. The same bits as `add_hoisted`."""
    with layer.k.loop(in_dim, always=True) as at:
        scale, zero = layer.sidecar(at // layer.group_size, i)
        total.set(total.get() + layer.term(at, i, scale, zero))


@linear_4bit_affine_grouped.sampler
def affine_grouped_sample(rng: np.random.Generator) -> Sample:
    (in_dim, out_dim), x, nibbles, total = random_layer(rng)
    group_size = int(rng.choice([1, 3, 8, 10, 16, 64, 100]))
    shape = (-(-in_dim // group_size), out_dim)
    scale = rng.normal(size=shape).astype("<f4")
    zero = rng.integers(0, 16, shape).astype("<u4")
    inputs = (x.tobytes(), interleaved(nibbles), scale.tobytes(), zero.tobytes(), total.tobytes())
    for k in range(in_dim):
        g = k // group_size
        total += x[k] * ((nibbles[k].astype("<f4") - zero[g].astype("<f4")) * scale[g])
    names = ("x", "w", "scale", "zero_point", "b", "out")
    return Sample((*names, in_dim, out_dim, group_size), inputs, (total.tobytes(),))


# -- typed -----------------------------------------------------------------------------------------


@record
class QuantizedLinear4BitSpec:
    """Sizes of a layer and the type of its weights."""

    in_dim: int
    out_dim: int
    weight_type: QuantizedType


def affine_grouped(in_dim: int, out_dim: int, group_size: int) -> QuantizedLinear4BitSpec:
    """A layer whose weights have a scale and a zero point for each group.

    >>> print(affine_grouped(32, 7, 8).weight_type)
    quantized<i4;scale:per_group(size=8);zp:per_group(size=8)>
    """
    each = PerGroup(group_size)
    return QuantizedLinear4BitSpec(in_dim, out_dim, QuantizedType("i4", each, each))


def group_size_of(op: str, type: object) -> int:
    """The group size that the type of the weights tells, or an error."""
    if (
        not isinstance(type, QuantizedType)
        or not isinstance(type.scale, PerGroup)
        or not isinstance(type.zero_point, PerGroup)
    ):
        wanted = "quantized<u4;scale:per_group(size=g);zp:per_group(size=g)>"
        raise DtypeError(f"Fix: {op}: expected weights of type {wanted}, got {type}")
    if type.storage not in ("i4", "u4"):
        raise DtypeError(f"Fix: {op}: expected storage I4 or U4, got {type.storage}")
    size, other = type.scale.group_size, type.zero_point.group_size
    if size != other:
        raise ShapeError(
            f"Fix: {op}: expected the group sizes to match, got {size} for the scale and {other} "
            "for the zero point"
        )
    if size < 1:
        raise ShapeError(f"Fix: {op}: expected group_size > 0, got group_size={size}")
    if type.layout != LAYOUT:
        raise DtypeError(f"Fix: {op}: expected weights of layout {LAYOUT}, got {type.layout}")
    return size


FIXTURE = affine_grouped(8, 2, 4)


@register(
    "tetrad::nn::linear_4bit_affine_grouped_typed",
    category="nn",
    wraps=linear_4bit_affine_grouped,
    inputs=linear_4bit_affine_grouped.inputs,
    expected=linear_4bit_affine_grouped.expected,
)
def linear_4bit_affine_grouped_typed(
    spec: QuantizedLinear4BitSpec = FIXTURE,
    x: str = "x",
    w: str = "w",
    scale: str = "scale",
    zero_point: str = "zero_point",
    b: str = "b",
    out: str = "out",
) -> Program:
    """linear_4bit_affine_grouped with the group size that the type of the weights tells. The
    nibbles are unsigned with a zero point; `i4` is accepted as another spelling of `u4`."""
    size = group_size_of("linear_4bit_affine_grouped_typed", spec.weight_type)
    return linear_4bit_affine_grouped.build_or_raise(
        x, w, scale, zero_point, b, out, spec.in_dim, spec.out_dim, size
    )


@linear_4bit_affine_grouped_typed.sampler
def typed_sample(rng: np.random.Generator) -> Sample:
    made = affine_grouped_sample(rng)
    *names, in_dim, out_dim, group_size = made.sizes
    spec = affine_grouped(in_dim, out_dim, group_size)
    return Sample((spec, *names), made.inputs, made.outputs)
