"""Convolutions, geometry: which element of x meets which tap at which place of the result.

Types and settings of an op in, one record out, that references, derivatives and kernels ask. Along
an axis the element of x at place p under tap k is number (p * stride + k * dilation - low) / holes,
where that is a whole number; elsewhere x has a hole, and the tap is left out. Numbers below 0 and
past the end are zeros around x.
"""

from __future__ import annotations

from math import gcd, prod

from tetrad.core.record import record
from tetrad.core.sizes import Shape, Size
from tetrad.core.types import ArrayType

WEIGHTS = ("oik", "iok", "kio", "koi")  # orders of the axes of a weight: k stands for the taps
Ints = tuple[int, ...]


@record
class ConvPhase:
    """Places first, first + period, ... of an axis: `count` taps, `step` apart from `tap` on; place
    number q of them reads x at q * stride + t * reach + base under tap number t."""

    first: int
    period: int
    tap: int
    step: int
    count: int
    stride: int
    reach: int
    base: int


@record
class ConvAxis:
    """One spatial axis: sizes of x, of the taps and of the result, and how they meet."""

    x: int
    taps: int
    y: int
    stride: int
    low: int
    dilation: int
    holes: int

    @property
    def period(self) -> int:
        """Places after which taps meet elements of x again as before."""
        return self.holes // gcd(self.stride, self.holes)

    def phases(self) -> list[ConvPhase]:
        return [self.phase(first) for first in range(self.period)]

    def phase(self, first: int) -> ConvPhase:
        """Taps are `step` apart: those between meet holes."""
        start, step = first * self.stride - self.low, self.holes // gcd(self.dilation, self.holes)
        met = [k for k in range(self.taps) if (start + k * self.dilation) % self.holes == 0]
        tap = met[0] if met else 0
        stride, reach = self.period * self.stride // self.holes, step * self.dilation // self.holes
        base = (start + tap * self.dilation) // self.holes
        return ConvPhase(first, self.period, tap, step, len(met), stride, reach, base)

    def turned(self) -> ConvAxis:
        """The axis of the convolution that goes from the result back to x, with taps reversed."""
        low = (self.taps - 1) * self.dilation - self.low
        return ConvAxis(self.y, self.taps, self.x, self.holes, low, self.dilation, self.stride)


@record
class ConvGeometry:
    """A convolution of `axes`; inputs and outputs are the channels of one group."""

    batch: Size
    groups: int
    inputs: int
    outputs: int
    axes: tuple[ConvAxis, ...]
    last: bool  # channels are the last axis of x and of the result, else the second
    weight: str  # one of WEIGHTS
    flip: bool  # taps are taken from the last on

    @property
    def taps(self) -> int:
        return prod(axis.taps for axis in self.axes)

    @property
    def places(self) -> int:
        return prod(axis.y for axis in self.axes)

    @property
    def x_shape(self) -> Shape:
        return self.shape_of(self.inputs, tuple(axis.x for axis in self.axes))

    @property
    def y_shape(self) -> Shape:
        return self.shape_of(self.outputs, tuple(axis.y for axis in self.axes))

    def shape_of(self, channels: int, sizes: Ints) -> Shape:
        total = self.groups * channels
        return (self.batch, *sizes, total) if self.last else (self.batch, total, *sizes)

    @property
    def w_shape(self) -> Ints:
        taps = tuple(axis.taps for axis in self.axes)
        return weight_shape(self.weight, self.groups, self.inputs, self.outputs, taps)

    def params(self) -> dict[str, object]:
        """Settings of the op."""
        names = ("stride", "low", "dilation", "holes")
        each = {name: tuple(getattr(a, name) for a in self.axes) for name in names}
        return {
            **each, "size": tuple(a.y for a in self.axes), "groups": self.groups,
            "last": self.last, "weight": self.weight, "flip": self.flip,
        }  # fmt: skip

    def turned(self) -> ConvGeometry:
        """From the result back to x."""
        weight = self.weight.translate(str.maketrans("io", "oi"))
        axes = tuple(axis.turned() for axis in self.axes)
        return ConvGeometry(self.batch, self.groups, self.outputs, self.inputs, axes, self.last,
                        weight, not self.flip)  # fmt: skip

    @property
    def is_depthwise(self) -> bool:
        return self.inputs == 1 and self.outputs == 1


def weight_shape(weight: str, groups: int, inputs: int, outputs: int, taps: Ints) -> Ints:
    """Beside the taps: channels of one group, outside of them those of all groups."""
    inner, outer = (outputs, inputs) if weight in ("iok", "koi") else (inputs, outputs)
    return (*taps, inner, outer * groups) if weight[0] == "k" else (outer * groups, inner, *taps)


def taps_of(weight: str, shape: Shape) -> Shape:
    """The sizes of the taps of a weight."""
    return shape[:-2] if weight[0] == "k" else shape[2:]


def channels_of(last: bool, shape: Shape) -> Size:
    return shape[-1] if last else shape[1]


def sizes_of(last: bool, shape: Shape) -> Shape:
    return shape[1:-1] if last else shape[2:]


def geometry_of(
    x: ArrayType, outputs: Size, taps: Shape, *, stride: Ints, low: Ints, dilation: Ints,
    holes: Ints, size: Ints, groups: int, last: bool, weight: str, flip: bool,
) -> ConvGeometry:  # fmt: skip
    """Of x, all channels of the result, and the sizes of the taps, which were checked."""
    sizes = sizes_of(last, x.shape)
    each = zip(sizes, taps, size, stride, low, dilation, holes, strict=True)
    axes = tuple(ConvAxis(*numbers) for numbers in each)
    inputs = channels_of(last, x.shape)
    return ConvGeometry(x.shape[0], groups, int(inputs) // groups, int(outputs) // groups, axes,  # type: ignore[arg-type]
                    last, weight, flip)  # fmt: skip
