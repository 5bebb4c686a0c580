"""Every tensor op, one place each: a file, or a folder for ops with kernels of their own.

The ops that almost every program has are loaded with this package. The others are loaded when one
of them is first looked up (`core.op.REGISTRY`), kernels when a program needs them.
"""

# ruff: noqa: F401

import tetrad.ops.activations
import tetrad.ops.arithmetic
import tetrad.ops.calculus
import tetrad.ops.compare
import tetrad.ops.convert
import tetrad.ops.matmul.op
import tetrad.ops.movement
import tetrad.ops.quotients
import tetrad.ops.reduce
import tetrad.ops.transcendental
from tetrad.core.op import REGISTRY

REGISTRY.later = (
    "tetrad.ops.gather",
    "tetrad.ops.labels",
    "tetrad.ops.resample",
    "tetrad.ops.bits",
    "tetrad.ops.arg_extremes.op",
    "tetrad.ops.running.op",
    "tetrad.ops.pool.op",
    "tetrad.ops.scatter.op",
    "tetrad.ops.scatter.update",
    "tetrad.ops.sort.op",
    "tetrad.ops.dynamic.op",
    "tetrad.ops.random",
    "tetrad.ops.complex",
    "tetrad.ops.split",
    "tetrad.ops.quantized.op",
    "tetrad.ops.panels.op",
    "tetrad.ops.weight_layout.op",
    "tetrad.ops.experts.op",
    "tetrad.ops.sampling.op",
    "tetrad.ops.collective",
    "tetrad.ops.attention.derivatives",
    "tetrad.ops.attention.cache",
    "tetrad.ops.conv.op",
    "tetrad.ops.attention.texts",
    "tetrad.ops.fft.op",
    "tetrad.ops.linalg.systems",
    "tetrad.ops.linalg.factors",
    "tetrad.ops.linalg.eigen",
    "tetrad.ops.groups.op",
    "tetrad.ops.float8",
    "tetrad.ops.int4.op",
    "tetrad.ops.linear_4bit.int8",
    "tetrad.ops.kernel_call.op",
    "tetrad.ops.callback.op",
)
