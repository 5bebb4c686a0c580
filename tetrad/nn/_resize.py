"""Neural networks, resizing: an array of channels in, the same with other spatial sizes out.

Each axis by itself: a matrix with a few weights in each row, as tables for the op `resample`, whose
transpose is another such sum. Methods and coordinates are those of PyTorch's `interpolate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tetrad.arrays import functions as td
from tetrad.core.errors import ShapeError
from tetrad.nn._pooling import _each, _spatial
from tetrad.nn._settings import check_choice, refuse
from tetrad.ops.resample import tables
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array, run

METHODS = ("nearest", "nearest_exact", "linear", "cubic")
SHARP, SMOOTH = -0.75, -0.5  # of cubic kernels: PyTorch's, and the one it takes with `antialias`


def resize(
    x: Any,
    size: int | Sequence[int] | None = None,
    *,
    scale: float | Sequence[float] | None = None,
    method: str = "nearest",
    align_corners: bool = False,
    antialias: bool = False,
    layout: str | None = None,
) -> Array:
    """The array at other spatial sizes: give them as `size`, or as factors `scale`.

    `method` is nearest (the element at floor(i old / new)), nearest_exact (the one at the centre),
    linear or cubic, along every spatial axis. Centres of elements correspond; with `align_corners`
    the centres of the first and the last do. `antialias` widens linear and cubic weights where the
    array shrinks. `layout` says where channels lie, as in `pool`; the batch may be left out.

    >>> import tetrad as td
    >>> x = td.asarray([[[1.0, 2.0]]])
    >>> resize(x, scale=2)
    Array([[[1., 1., 2., 2.]]], float32)
    >>> resize(x, 4, method="linear")
    Array([[[1.  , 1.25, 1.75, 2.  ]]], float32)
    """
    check_choice("resize", "method", METHODS, method)
    smooth = method in ("linear", "cubic")
    if align_corners and not smooth:
        refuse("resize", "align_corners", f"False for {method}", align_corners)
    if antialias and (align_corners or not smooth):
        refuse("resize", "antialias", "linear or cubic without align_corners", antialias)
    if (size is None) == (scale is None):
        refuse("resize", "size", "a size or a scale, and not both", size)
    given: Any = scale if size is None else size
    array, axes = _spatial(
        "resize", as_array(x), 1 if isinstance(given, int | float) else given, layout
    )
    for axis, (new, ratio) in zip(axes, _targets(array, axes, size, scale), strict=True):
        array = _along_axis(array, axis, new, ratio, (method, align_corners, antialias))
    return array


def _targets(x: Array, axes: Sequence[int], size: Any, scale: Any) -> list[tuple[int, float]]:
    """The new size of each axis, and how many old elements a new one spans."""
    old = [x.shape[a] for a in axes]
    if any(not isinstance(n, int) or n < 1 for n in old):
        fail(ShapeError, f"resize: spatial axes have known sizes, got {x.type}")
    if size is not None:
        new = _each("resize", "size", size, len(axes))
        return [(n, o / n) for n, o in zip(new, old, strict=True)]
    factors = [scale] if isinstance(scale, int | float) else list(scale)
    factors = factors * len(axes) if len(factors) == 1 else factors
    if len(factors) != len(axes) or any(not 0 < f < math.inf for f in factors):
        refuse("resize", "scale", f"1 or {len(axes)} positive factors", scale)
    found = [(math.floor(o * f), 1 / f) for o, f in zip(old, factors, strict=True)]
    if any(n < 1 for n, _ in found):
        refuse("resize", "scale", "factors that leave at least one element", scale)
    return found


def _along_axis(x: Array, axis: int, new: int, ratio: float, how: tuple[str, bool, bool]) -> Array:
    old = x.shape[axis]
    if old == new and ratio == 1:
        return x
    if not x.dtype.is_float:
        if how[0] in ("linear", "cubic"):
            fail(ShapeError, f"resize: {how[0]} takes floats, got {x.type}", "convert with astype")
        return td.take(x, _nearest(old, new, ratio, how[0]), axis=axis)
    forth, back = _tables(old, new, ratio, *how)
    wide = x.dtype.computing.np
    given = [as_array(t if t.dtype.kind == "i" else t.astype(wide)) for t in (*forth, *back)]
    return run("resample", x, *given, axis=axis)


@cache
def _tables(
    old: int, new: int, ratio: float, method: str, align_corners: bool, antialias: bool
) -> tuple[Any, Any]:
    if method.startswith("nearest"):
        matrix = np.zeros((new, old))
        matrix[np.arange(new), _nearest(old, new, ratio, method)] = 1
    elif antialias:
        matrix = _widened(old, new, ratio, method)
    else:
        matrix = _interpolated(old, new, ratio, method, align_corners)
    return tables(matrix), tables(matrix.T)


def _nearest(old: int, new: int, ratio: float, method: str) -> np.ndarray:
    centre = 0.5 if method == "nearest_exact" else 0.0
    places: np.ndarray = np.floor((np.arange(new) + centre) * ratio).astype(np.int64)
    return np.asarray(np.minimum(places, old - 1))


def _interpolated(old: int, new: int, ratio: float, method: str, align_corners: bool) -> np.ndarray:
    """Rows of weights: of 2 neighbours or 4, those beyond an end count as the one at the end."""
    if align_corners:
        place = np.arange(new) * ((old - 1) / (new - 1) if new > 1 else 0.0)
    else:
        place = (np.arange(new) + 0.5) * ratio - 0.5
    if method == "linear":
        place = np.maximum(place, 0)
    first = np.floor(place)
    matrix = np.zeros((new, old))
    for tap in (0, 1) if method == "linear" else (-1, 0, 1, 2):
        near = np.clip(first + tap, 0, old - 1).astype(np.int64)
        weight = KERNELS[method](np.abs(place - first - tap), SHARP)
        np.add.at(matrix, (np.arange(new), near), weight)
    return matrix


def _widened(old: int, new: int, ratio: float, method: str) -> np.ndarray:
    """Weights over as many elements as a new one spans, if that is more than one; their sum is
    1."""
    centre = (np.arange(new) + 0.5) * ratio
    apart = np.abs(np.arange(old) + 0.5 - centre[:, None]) / max(ratio, 1)
    matrix = KERNELS[method](apart, SMOOTH)
    return np.asarray(matrix / matrix.sum(1, keepdims=True))


def _linear(apart: Any, sharpness: float) -> Any:
    return np.maximum(1 - apart, 0)


def _cubic(apart: Any, sharpness: float) -> Any:
    """The kernel of Keys (1981)."""
    a, d = sharpness, apart
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


KERNELS: dict[str, Callable[[Any, float], Any]] = {
    "linear": _linear,
    "cubic": _cubic,
}
