"""Every tensor op, one place each; importing this package fills the registry (`core.op.REGISTRY`)."""

from tetrad.ops import (
    arithmetic,
    attention,
    bits,
    cache,
    compare,
    convert,
    decoded,
    experts,
    interleave,
    linear,
    lowbit,
    movement,
    reduce,
    sample,
    special,
    transcendental,
)

__all__ = [
    "arithmetic",
    "attention",
    "bits",
    "cache",
    "compare",
    "convert",
    "decoded",
    "experts",
    "interleave",
    "linear",
    "lowbit",
    "movement",
    "reduce",
    "sample",
    "special",
    "transcendental",
]
