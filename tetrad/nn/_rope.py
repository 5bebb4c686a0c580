"""Rotary position embeddings, as `td.nn.rope`, `td.nn.rope_tables` and `td.nn.axial_rope2d`: pairs
of channels turn by an angle that grows with the position.

Receives arrays of heads and tables of cosines and sines, returns arrays of the same shape. It is
composed of public functions, so it differentiates by x and by the tables, and slices of a product
are read in place. `td.nn` loads this module when it is first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from tetrad.arrays import functions as td
from tetrad.arrays.creation import positions as counted
from tetrad.core.dtypes import as_dtype, f32, f64
from tetrad.core.errors import DtypeError, SettingError, ShapeError
from tetrad.nn._rope_scaling import speeds_of
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array

LAYOUTS = ("bsnh", "bnsh", "bsh")
GRIDS = ("repeat", "tile")


def rope(
    x: Any,
    cos: Any,
    sin: Any,
    *,
    positions: Any = None,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    layout: str = "bsnh",
    head_dim: int | None = None,
) -> Array:
    """x with every pair of channels turned by its angle; the channels behind `rotary_dim` stay.

    Channel i turns with channel i + rotary_dim / 2, or, `interleaved`, 2 i with 2 i + 1. Layouts:
    "bsnh" [batch, time, heads, size], "bnsh" [batch, heads, time, size], "bsh" [batch, time, heads
    * size] with `head_dim` the size; the batch may be left out. Tables have a row for every
    position, of rotary_dim / 2 numbers or of size / 2 (the first are used), or rows for every
    batch. Time t has row t, if `positions` say nothing else: rows [time] or [batch, time], or the
    row of the first time.

    >>> import math
    >>> import numpy as np
    >>> import tetrad as td
    >>> x, angles = td.asarray([[[[1.0, 2.0, 3.0, 4.0]]]]), td.asarray([[math.pi / 2, math.pi / 6]])
    >>> np.asarray(td.nn.rope(x, td.cos(angles), td.sin(angles))).round(4)[0, 0, 0]
    array([-3.    , -0.2679,  1.    ,  4.4641], dtype=float32)
    """
    x = as_array(x)
    heads = _by_heads(x, layout, head_dim)
    width = heads.shape[-1] if rotary_dim is None else rotary_dim
    _check_width(width, heads.shape[-1])
    time = 2 if layout == "bnsh" else 1
    rows = [
        _rows(name, t, positions, heads, time, width) for name, t in (("cos", cos), ("sin", sin))
    ]
    wide = td.astype(heads, f32) if heads.dtype.bits < 32 else heads
    turned = _turned(wide, rows[0], rows[1], width, interleaved)
    return td.astype(td.reshape(turned, x.shape), x.dtype)


def _by_heads(x: Array, layout: str, head_dim: int | None) -> Array:
    """[batch, time, heads, size], or with heads before times."""
    if layout not in LAYOUTS:
        raise SettingError("rope: layout", "one of " + ", ".join(LAYOUTS), layout)
    if not x.dtype.is_float:
        fail(DtypeError, f"rope: x is made of floats, got {x.type}", "convert with astype")
    rank = 3 if layout == "bsh" else 4
    if x.ndim not in (rank - 1, rank):
        fail(
            ShapeError, f'rope: layout "{layout}" has {rank} axes, got {x.type}', "name the layout"
        )
    x = x if x.ndim == rank else td.expand_dims(x, axis=0)
    if layout != "bsh":
        if head_dim not in (None, x.shape[-1]):
            fail(ShapeError, f"rope: heads of {x.type} have no size {head_dim}")
        return x
    if head_dim is None or head_dim < 1 or x.shape[-1] % head_dim:
        message = f"rope: the last axis of {x.type} has no whole heads of head_dim={head_dim}"
        fail(ShapeError, message, "head_dim is the size of one head")
    return td.reshape(x, (*x.shape[:-1], x.shape[-1] // head_dim, head_dim))


def _check_width(width: int, size: int) -> None:
    if width % 2 or not 0 <= width <= size:
        message = f"rope: rotary_dim={width} must be even and at most the size {size} of a head"
        fail(ShapeError, message)


def _rows(name: str, table: Any, positions: Any, x: Array, time: int, width: int) -> Array:
    """The rows of a table that the times of x have, [batch or 1, ..., width / 2] beside x."""
    table = as_array(table)
    table = table if table.dtype.is_float else td.astype(table, f32)
    if table.ndim not in (2, 3) or table.shape[-1] not in (width // 2, x.shape[-1] // 2):
        message = f"rope: {name} {table.type} does not fit heads of {x.type}"
        fail(ShapeError, message, f"it is [positions, {width // 2}], or has a batch in front")
    length = x.shape[time]
    if positions is not None:
        table = _chosen(name, table, as_array(positions), x.shape[0], length)
    elif isinstance(length, int) and isinstance(table.shape[-2], int):
        if table.shape[-2] < length:
            message = f"rope: {name} {table.type} has no row for the last of {length} times"
            fail(ShapeError, message, "make the tables longer, or say where to look by positions=")
        table = table[..., :length, :]
    elif table.shape[-2] != length:
        fail(ShapeError, f"rope: {name} {table.type} has not as many rows as x {x.type} has times")
    if table.ndim == 3 and table.shape[0] not in (1, x.shape[0]):
        fail(ShapeError, f"rope: {name} {table.type} has not the batches of x {x.type}")
    table = table[..., : width // 2]
    table = table if table.ndim == 3 else td.expand_dims(table, axis=0)
    return td.expand_dims(table, axis=3 - time)


def _chosen(name: str, table: Array, positions: Array, batch: Any, length: Any) -> Array:
    """Rows of the table by number."""
    if not positions.dtype.is_integer or table.ndim != 2:
        message = f"rope: positions {positions.type} count rows of {name} {table.type}"
        fail(DtypeError, message, "integers, and a table [positions, pairs]")
    if positions.ndim == 0:
        positions = positions + counted(length)
    if positions.ndim > 2 or positions.shape[-1] != length or positions.shape[:-1] not in (
        (), (1,), (batch,),
    ):  # fmt: skip
        fail(
            ShapeError,
            f"rope: positions {positions.type} are not [{length}] or [{batch}, {length}]",
        )
    return td.take(table, positions, axis=0)


def _turned(x: Array, cos: Array, sin: Array, width: int, interleaved: bool) -> Array:
    if interleaved:
        pairs = td.reshape(x[..., :width], (*x.shape[:-1], width // 2, 2))
        first, second = pairs[..., 0], pairs[..., 1]
        turned = td.stack((first * cos - second * sin, second * cos + first * sin), axis=-1)
        parts = [td.reshape(turned, (*x.shape[:-1], width))]
    else:
        first, second = x[..., : width // 2], x[..., width // 2 : width]
        parts = [first * cos - second * sin, second * cos + first * sin]
    return td.concat(parts if width == x.shape[-1] else [*parts, x[..., width:]], axis=-1)


# -- tables ----------------------------------------------------------------------------------------


def rope_tables(
    positions: Any,
    size: int,
    *,
    base: float = 10000.0,
    scaling: Mapping[str, Any] | None = None,
    dtype: Any = f32,
) -> tuple[Array, Array]:
    """Cosines and sines of positions times base^(-2 i / size), [..., size / 2] each; a number
    counts positions from 0.

    `scaling` has the names of model files: `rope_type` "linear", "dynamic" (NTK), "yarn" or
    "llama3" with `factor`, and `original_max_position_embeddings` where the rule asks for it.
    Angles are products of f32 (f64 of dtype f64), as models were trained with.

    >>> import tetrad as td
    >>> cos, sin = td.nn.rope_tables(8, 4, scaling={"rope_type": "linear", "factor": 2.0})
    >>> float(sin[1, 0]) == float(td.sin(0.5))
    True
    """
    if size % 2 or size < 2:
        raise SettingError("rope_tables: size", "an even number of channels", size)
    dtype = as_dtype(dtype)
    length = positions if isinstance(positions, int) else None
    given = counted(positions) if isinstance(positions, int) else as_array(positions)
    speeds, amplitude = speeds_of(size, base, scaling or {}, length)
    wide = f64 if dtype is f64 else f32
    angles = td.astype(given, wide)[..., None] * td.asarray(speeds.astype(wide.np))
    return (
        td.astype(td.cos(angles) * amplitude, dtype),
        td.astype(td.sin(angles) * amplitude, dtype),
    )


# -- two axes --------------------------------------------------------------------------------------


def axial_rope2d(
    x: Any,
    *,
    end_x: int,
    end_y: int,
    num_heads: int,
    theta: float = 10000.0,
    repeat_factor: int = 1,
    repeat: str = "repeat",
) -> Array:
    """x [batch, end_x * end_y * repeat_factor, heads * size], where the first half of a head turns
    by the column of its token and the second half by the row, channel 2 i with 2 i + 1.

    With a repeat_factor r, `repeat="repeat"` has r tokens in a row at every place, `"tile"` goes
    through the grid r times, as SAM 2 does.

    >>> import tetrad as td
    >>> x = td.broadcast_to(td.asarray([1.0, 0.0, 1.0, 0.0]), (1, 4, 4))
    >>> td.nn.axial_rope2d(x, end_x=2, end_y=2, num_heads=1)[0, 2]
    Array([1.        , 0.        , 0.5403023 , 0.84147096], float32)
    """
    x = as_array(x)
    r = max(repeat_factor, 1)
    if repeat not in GRIDS:
        raise SettingError("axial_rope2d: repeat", " or ".join(GRIDS), repeat)
    if x.ndim != 3 or num_heads < 1 or x.shape[2] % (4 * num_heads):
        message = (
            f"axial_rope2d: {x.type} is not [batch, tokens, {num_heads} heads of 4 n channels]"
        )
        fail(ShapeError, message)
    if x.shape[1] != end_x * end_y * r:
        message = f"axial_rope2d: {x.type} has not {end_x} x {end_y} x {r} tokens"
        fail(ShapeError, message, "tokens = end_x * end_y * repeat_factor")
    size = x.shape[2] // num_heads
    cos, sin = _grid(end_x, end_y, r, repeat, size, float(theta))
    exact = (td.asarray(table.astype((f64 if x.dtype is f64 else f32).np)) for table in (cos, sin))
    return rope(x, *exact, interleaved=True, layout="bsh", head_dim=size)


@cache
def _grid(
    end_x: int, end_y: int, r: int, repeat: str, size: int, theta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines [tokens, size / 2], of all tokens alike."""
    token = np.arange(end_x * end_y * r)
    place = token // r if repeat == "repeat" else token % (end_x * end_y)
    speeds = theta ** (-4 * np.arange(size // 4) / size)
    angles = [(axis[:, None] * speeds) for axis in (place % end_x, place // end_x)]
    whole = np.concatenate(angles, axis=1)
    return np.cos(whole), np.sin(whole)
