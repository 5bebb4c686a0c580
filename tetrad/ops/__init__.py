"""Every tensor op, one place each; importing this package fills the registry
(`core.op.REGISTRY`)."""

from tetrad.ops import (
    activations,
    arithmetic,
    bits,
    calculus,
    collective,
    compare,
    complex,
    convert,
    gather,
    movement,
    quotients,
    random,
    reduce,
    special,
    split,
    transcendental,
)
from tetrad.ops.attention import cache, derivatives
from tetrad.ops.attention import op as attention
from tetrad.ops.dynamic import op as dynamic
from tetrad.ops.fft import op as fft
from tetrad.ops.linalg import eigen, factors, systems
from tetrad.ops.matmul import linear
from tetrad.ops.quantized_matmul import decoded, experts, interleave
from tetrad.ops.quantized_matmul import op as lowbit
from tetrad.ops.sampling import op as sample
from tetrad.ops.sort import op as sort

__all__ = [
    "activations",
    "arithmetic",
    "attention",
    "bits",
    "cache",
    "calculus",
    "collective",
    "compare",
    "complex",
    "convert",
    "decoded",
    "derivatives",
    "dynamic",
    "eigen",
    "experts",
    "factors",
    "fft",
    "gather",
    "interleave",
    "linear",
    "lowbit",
    "movement",
    "quotients",
    "random",
    "reduce",
    "sample",
    "sort",
    "special",
    "split",
    "systems",
    "transcendental",
]
