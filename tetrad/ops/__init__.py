"""Every tensor op, one place each: a file, or a folder for ops with kernels of their own. Importing
this package fills the registry (`core.op.REGISTRY`); kernels are loaded when a program needs them.
"""

# ruff: noqa: F401

import tetrad.ops.activations
import tetrad.ops.arg_extremes.op
import tetrad.ops.arithmetic
import tetrad.ops.attention.cache
import tetrad.ops.attention.derivatives
import tetrad.ops.attention.op
import tetrad.ops.bits
import tetrad.ops.calculus
import tetrad.ops.collective
import tetrad.ops.compare
import tetrad.ops.complex
import tetrad.ops.convert
import tetrad.ops.dynamic.op
import tetrad.ops.experts.op
import tetrad.ops.fft.op
import tetrad.ops.gather
import tetrad.ops.groups.op
import tetrad.ops.linalg.eigen
import tetrad.ops.linalg.factors
import tetrad.ops.linalg.systems
import tetrad.ops.matmul.op
import tetrad.ops.movement
import tetrad.ops.quantized.op
import tetrad.ops.quotients
import tetrad.ops.random
import tetrad.ops.reduce
import tetrad.ops.running.op
import tetrad.ops.sampling.op
import tetrad.ops.scatter.op
import tetrad.ops.sort.op
import tetrad.ops.split
import tetrad.ops.transcendental
import tetrad.ops.weight_layout.op
