"""Models, caches: the types of the arrays that hold keys and values. Receives sizes; allocates
nothing."""

from __future__ import annotations

from tetrad.core.dtypes import DType, f16, i8
from tetrad.core.errors import SettingError
from tetrad.core.types import ArrayType

SCALED = 32  # channels that share a scale in a cache of 8 bits
KEYS = 16  # neighbouring keys that lie interleaved in the cache
BLOCK = 256  # positions of a cache are a multiple of this: attention reads whole blocks


def cache_types(
    layers: int, slots: int, heads: int, context: int, channels: int, dtype: DType
) -> tuple[ArrayType, ...]:
    """The types of the caches for `slots` sequences of `context` positions: keys [layer, slot,
    head, position / 16, channel, 16], values [layer, slot, head, position, channel]; of i8, then
    the scales of 32 channels each."""
    if dtype is i8 and channels % SCALED:
        raise SettingError("kv", f"f16 with heads of {channels} channels", "q8_0")
    length = -(-context // BLOCK) * BLOCK
    front = (layers, slots, heads)

    def pair(kind: DType, size: int) -> tuple[ArrayType, ArrayType]:
        return ArrayType(kind, (*front, length // KEYS, size, KEYS)), ArrayType(
            kind, (*front, length, size)
        )

    return *pair(dtype, channels), *(pair(f16, channels // SCALED) if dtype is i8 else ())
