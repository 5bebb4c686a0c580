"""Key-value caches for tests of attention: from keys and values as one thinks of them to the arrays
of the op."""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import DType, i8
from tetrad.core.machine import LANES
from tetrad.ops.attention.op import SCALED

Array = np.ndarray


def interleaved(keys: Array) -> Array:
    """[..., C, D] as [..., C/16, D, 16]."""
    *outer, count, channels = keys.shape
    return np.ascontiguousarray(
        np.swapaxes(keys.reshape(*outer, count // LANES, LANES, channels), -1, -2)
    )


def random_cache(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> list[Array]:
    """k, v and, of i8, their scales, for a cache [L,S,G,C,D]."""
    if dtype is not i8:
        keys, values = (rng.standard_normal(shape).astype(dtype.np) for _ in range(2))
        return [interleaved(keys), values]
    keys, values = (rng.integers(-127, 128, shape).astype(np.int8) for _ in range(2))
    parts = (*shape[:-1], shape[-1] // SCALED)
    scales = [(rng.random(parts) / 64).astype(np.float16) for _ in range(2)]
    return [interleaved(keys), values, interleaved(scales[0]), scales[1]]


def as_floats(cache: list[Array]) -> list[Array]:
    """The same cache in f32: every element as kernels see it."""
    k, v, *scales = (a.astype(np.float32) for a in cache)
    if scales:
        k, v = k * np.repeat(scales[0], SCALED, axis=-2), v * np.repeat(scales[1], SCALED, axis=-1)
    return [k, v]
