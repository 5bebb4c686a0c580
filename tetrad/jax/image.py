"""JAX's names: `jax.image`: arrays at other sizes, by one matrix of weights for each axis."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

from tetrad.core.errors import SettingError
from tetrad.jax._shell.tables import td
from tetrad.tracing.array import Array
from tetrad.tracing.operands import as_array


class ResizeMethod(enum.Enum):
    """How an element is made of those near it."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4

    @staticmethod
    def from_string(name: str) -> ResizeMethod:
        words = {"bilinear": "linear", "trilinear": "linear", "triangle": "linear"}
        words |= {"bicubic": "cubic", "tricubic": "cubic"}
        word = words.get(name, name).upper()
        if word not in ResizeMethod.__members__:
            raise SettingError("method", "nearest, linear, cubic, lanczos3 or lanczos5", name)
        return ResizeMethod[word]


def triangle(x: Any) -> Any:
    return td.maximum(0.0, 1.0 - td.abs(x))


def keys_cubic(x: Any) -> Any:
    """Keys (1981), with a = -0.5."""
    near = ((1.5 * x - 2.5) * x) * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return td.where(x >= 2.0, 0.0, td.where(x >= 1.0, far, near))


def lanczos(radius: float) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        top = radius * td.sin(math.pi * x) * td.sin(math.pi * x / radius)
        below = td.where(x != 0, math.pi**2 * x**2, 1)
        return td.where(x > radius, 0.0, td.where(x > 1e-3, top / below, 1.0))

    return kernel


KERNELS: dict[ResizeMethod, Callable[[Any], Any]] = {
    ResizeMethod.LINEAR: triangle,
    ResizeMethod.CUBIC: keys_cubic,
    ResizeMethod.LANCZOS3: lanczos(3.0),
    ResizeMethod.LANCZOS5: lanczos(5.0),
}


def method_of(method: str | ResizeMethod) -> ResizeMethod:
    return ResizeMethod.from_string(method) if isinstance(method, str) else method


def weights(
    size: int, wanted: int, scale: Any, shift: Any, method: ResizeMethod, antialias: bool
) -> Any:
    """[size, wanted]: how much of each element each new one has."""
    inverse = 1.0 / as_array(scale).astype(float)
    wide = td.maximum(inverse, 1.0) if antialias else 1.0
    at = (td.arange(wanted, dtype=float) + 0.5) * inverse - shift * inverse - 0.5
    far = td.abs(at[None, :] - td.arange(size, dtype=float)[:, None]) / wide
    made = KERNELS[method](far)
    total = td.sum(made, axis=0, keepdims=True)
    some = td.abs(total) > 1000.0 * float(td.finfo(td.float32).eps)
    shares = td.where(some, made / td.where(total != 0, total, 1), 0)
    return td.where(((at >= -0.5) & (at <= size - 0.5))[None, :], shares, 0)


def scale_and_translate(
    image: Any, shape: Sequence[int], spatial_dims: Sequence[int], scale: Any, translation: Any,
    method: str | ResizeMethod, antialias: bool = True, precision: Any = None,
) -> Any:  # fmt: skip
    """The array at another size, each axis scaled and moved."""
    x, chosen = as_array(image), method_of(method)
    if chosen is ResizeMethod.NEAREST:
        raise SettingError("method", "linear, cubic or lanczos", method)
    for i, axis in enumerate(spatial_dims):
        share = weights(x.shape[axis], shape[axis], scale[i], translation[i], chosen, antialias)
        x = along(x, share, axis)
    return x


def along(x: Array, share: Any, axis: int) -> Any:
    moved = td.moveaxis(x, axis, -1)
    return td.moveaxis(td.matmul(moved, share.astype(moved.dtype)), -1, axis)


def resize(
    image: Any, shape: Sequence[int], method: str | ResizeMethod, antialias: bool = True,
    precision: Any = None,
) -> Any:  # fmt: skip
    """The array at another size.

    >>> import tetrad.jax as jax
    >>> jax.image.resize(jax.numpy.arange(2.0), (4,), "linear")
    Array([0.  , 0.25, 0.75, 1.  ], float32)
    """
    x, chosen = as_array(image), method_of(method)
    x = x if x.dtype.is_float else x.astype(float)
    for axis, (old, new) in enumerate(zip(x.shape, shape, strict=True)):
        if old == new:
            continue
        if chosen is ResizeMethod.NEAREST:
            at = td.floor((td.arange(new, dtype=float) + 0.5) * (old / new)).astype(int)
            x = td.take(x, at, axis=axis)
        else:
            x = along(x, weights(old, new, new / old, 0.0, chosen, antialias), axis)
    return x
