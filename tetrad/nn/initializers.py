"""The public namespace `td.nn.initializers`: how the weights of a layer begin, with the names they
have in JAX.

Receives a scale and which axes go in and out; returns a function of a key, a shape and a dtype,
which returns an array. `td.nn` loads this module when it is first used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tetrad import random
from tetrad.arrays import functions as td
from tetrad.core.errors import SettingError, ShapeError
from tetrad.core.floats import guarded
from tetrad.linalg import diagonal, qr
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import axes_of, axis_of

Initializer = Callable[..., Array]  # of a key, a shape, and a dtype if it shall be another
Axes = int | Sequence[int]
MODES: dict[str, Callable[[float, float], float]] = {
    "fan_in": lambda given, made: given,
    "fan_out": lambda given, made: made,
    "fan_avg": lambda given, made: (given + made) / 2,
    "fan_geo_avg": lambda given, made: math.sqrt(given * made),
}
# The standard deviation of normal numbers of which only those within two of them are kept.
KEPT = 0.87962566103423978


def zeros(key: Any, shape: Any, dtype: Any = float) -> Array:
    """Zeros; the key is not looked at."""
    return td.zeros(shape, dtype=dtype)


def ones(key: Any, shape: Any, dtype: Any = float) -> Array:
    """Ones; the key is not looked at."""
    return td.ones(shape, dtype=dtype)


def constant(value: Any, dtype: Any = float) -> Initializer:
    """One value, or an array that is broadcast."""
    return lambda key, shape, dtype=dtype: td.broadcast_to(td.asarray(value, dtype=dtype), shape)


def uniform(scale: float = 1e-2, dtype: Any = float) -> Initializer:
    """Numbers in [0, scale), all equally likely."""
    return lambda key, shape, dtype=dtype: random.uniform(key, shape, dtype) * scale


def normal(stddev: float = 1e-2, dtype: Any = float) -> Initializer:
    """Normal numbers of this standard deviation."""
    return lambda key, shape, dtype=dtype: random.normal(key, shape, dtype) * stddev


def truncated_normal(
    stddev: float = 1e-2, dtype: Any = float, lower: float = -2.0, upper: float = 2.0
) -> Initializer:
    """Normal numbers between two bounds, which count standard deviations."""
    return lambda key, shape, dtype=dtype: (
        random.truncated_normal(key, lower, upper, shape, dtype) * stddev
    )


def variance_scaling(
    scale: float,
    mode: str,
    distribution: str,
    in_axis: Axes = -2,
    out_axis: Axes = -1,
    batch_axis: Axes = (),
    dtype: Any = float,
) -> Initializer:
    """Numbers of variance scale / n: n is how many of them meet in one result of the layer, or come
    from one operand.

    `mode`: "fan_in", "fan_out", their mean "fan_avg", or "fan_geo_avg"; `distribution`:
    "truncated_normal", "normal" or "uniform". Axes beside those that go in, out and along the batch
    are a window, as of a convolution.

    >>> import tetrad as td
    >>> w = variance_scaling(2.0, "fan_in", "normal")(td.random.key(0), (400, 300))
    >>> f"{float(td.std(w)):.3f}", math.sqrt(2 / 400)
    ('0.071', 0.07071067811865475)
    """
    if mode not in MODES:
        raise SettingError("variance_scaling: mode", ", ".join(MODES), mode)
    if distribution not in DRAWN:
        raise SettingError("variance_scaling: distribution", ", ".join(DRAWN), distribution)

    @guarded
    def draw(key: Any, shape: Any, dtype: Any = dtype) -> Array:
        count = MODES[mode](*fans(shape, in_axis, out_axis, batch_axis))
        return DRAWN[distribution](key, shape, dtype, math.sqrt(scale / max(count, 1)))

    return draw


def weight_shape(shape: Any) -> tuple[int, ...]:
    sizes = random.drawn_shape("initializers", shape)
    known = tuple(n for n in sizes if isinstance(n, int))
    if len(known) < max(2, len(sizes)):
        fail(
            ShapeError,
            "initializers: weights have at least two axes, all of known size, got shape "
            f"{list(sizes)}",
        )
    return known


def fans(shape: Any, in_axis: Axes, out_axis: Axes, batch_axis: Axes) -> tuple[float, float]:
    """How many weights lead to a result, and how many from an operand."""
    sizes = weight_shape(shape)
    given, made, batch = (
        axes_of("initializers", list(a) if isinstance(a, Sequence) else a, len(sizes))
        for a in (in_axis, out_axis, batch_axis)
    )
    window = [n for axis, n in enumerate(sizes) if axis not in (*given, *made, *batch)]
    leading, coming = (
        math.prod([*window, *(sizes[axis] for axis in axes)]) for axes in (given, made)
    )
    return leading, coming


DRAWN: dict[str, Callable[[Any, Any, Any, float], Array]] = {
    "truncated_normal": lambda key, shape, dtype, std: (
        random.truncated_normal(key, -2.0, 2.0, shape, dtype) * (std / KEPT)
    ),
    "normal": lambda key, shape, dtype, std: random.normal(key, shape, dtype) * std,
    "uniform": lambda key, shape, dtype, std: (
        random.uniform(key, shape, dtype, -1.0) * (math.sqrt(3) * std)
    ),
}


def scaled(scale: float, mode: str, distribution: str) -> Callable[..., Initializer]:
    """`variance_scaling` with its first three arguments."""

    def made(
        in_axis: Axes = -2, out_axis: Axes = -1, batch_axis: Axes = (), dtype: Any = float
    ) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    made.__doc__ = f"variance_scaling({scale}, {mode!r}, {distribution!r}, ...)"
    return made


glorot_uniform = scaled(1.0, "fan_avg", "uniform")
glorot_normal = scaled(1.0, "fan_avg", "truncated_normal")
lecun_uniform = scaled(1.0, "fan_in", "uniform")
lecun_normal = scaled(1.0, "fan_in", "truncated_normal")
he_uniform = scaled(2.0, "fan_in", "uniform")
he_normal = scaled(2.0, "fan_in", "truncated_normal")


def orthogonal(scale: float = 1.0, column_axis: int = -1, dtype: Any = float) -> Initializer:
    """A matrix with orthonormal columns (or rows, if these are fewer), times a scale; its columns
    lie along an axis.

    >>> import tetrad as td
    >>> w = orthogonal()(td.random.key(0), (5, 3))
    >>> bool(td.max(td.abs(w.T @ w - td.eye(3))) < 1e-6)
    True
    """

    def draw(key: Any, shape: Any, dtype: Any = dtype) -> Array:
        sizes = weight_shape(shape)
        at = axis_of("orthogonal", column_axis, len(sizes))
        others = (*sizes[:at], *sizes[at + 1 :])
        columns = orthonormal(key, sizes[at], math.prod(others), dtype)
        result: Array = td.moveaxis(td.reshape(columns, (sizes[at], *others)), 0, at) * scale
        return result

    return draw


def orthonormal(key: Any, rows: int, columns: int, dtype: Any) -> Array:
    """A matrix [rows, columns] whose rows, or columns if these are more, are orthonormal; all
    equally likely."""
    q, r = qr(random.normal(key, (max(rows, columns), min(rows, columns)), dtype))
    turned = q * td.where(diagonal(r) < 0, -1, 1)
    return turned if rows > columns else td.matrix_transpose(turned)


__all__ = [
    "constant", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "lecun_normal",
    "lecun_uniform", "normal",
    "ones", "orthogonal", "truncated_normal", "uniform", "variance_scaling", "zeros",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
