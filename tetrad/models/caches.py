"""Models, caches: the types of the arrays that hold keys and values. Receives a config and sizes; allocates nothing."""

from __future__ import annotations

from tetrad.core.dtypes import DType, f16, i8
from tetrad.core.types import ArrayType
from tetrad.models.config import Config

SCALED = 32  # channels that share a scale in a cache of 8 bits
KEYS = 16  # neighbouring keys that lie interleaved in the cache
BLOCK = 256  # positions of a cache are a multiple of this: attention reads whole blocks


def cache_types(config: Config, slots: int, context: int, dtype: DType) -> tuple[ArrayType, ...]:
    """The types of the caches for `slots` sequences of `context` positions: keys [layer, slot, head, position / 16,
    channel, 16], values [layer, slot, head, position, channel]; of i8, then the scales of 32 channels each."""
    length = -(-context // BLOCK) * BLOCK
    front = (config.layers, slots, config.kv_heads)

    def pair(kind: DType, channels: int) -> tuple[ArrayType, ArrayType]:
        keys = ArrayType(kind, (*front, length // KEYS, channels, KEYS))
        return keys, ArrayType(kind, (*front, length, channels))

    scales = pair(f16, config.head_size // SCALED) if dtype is i8 else ()
    return *pair(dtype, config.head_size), *scales
