"""Kernel language, library, packed: a matrix of bytes, four to a word, by dot products of bytes."""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import i8, i32, u32
from tetrad.core.machine import LANES
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.nodes import Program
from tetrad.kernel.packing import pack
from tetrad.kernel.registry import Sample, register

# the first four columns of all rows, then the second four
ROWS = [1, 2, 3, 4, *[255] * 4, *[0] * 4, 5, 6, 7, 8, *[255] * 4, 0, 0, 0, 9]


@register(
    "tetrad::packed::matvec_i8",
    category="packed",
    args={"cols": 2},
    inputs=[[bytes(ROWS), pack([1, -1, 2, -2, *[-128] * 4], i8)]],
    expected=[[pack([-3 - 128 * 26, -130560, -1152], i32)]],
)
def matvec_i8(rows: int = 3, u_max: int = 255) -> Program:
    """y[r] = sum over c of w[r, c] * x[c]; rows of unsigned bytes, four columns to a word, times
    signed bytes."""
    k = KernelBuilder("matvec_i8", LANES)
    w, x, y = k.buffer("w", u32), k.buffer("x", u32), k.buffer("y", i32, "write", rows)
    cols, r = k.arg("cols"), k.global_id()
    with k.when(r < rows, guard=True):
        total = k.local(0, i32)
        with k.loop(cols) as c:
            total.set(k.dot4(total, k.load(w, c * rows + r), k.load(x, c), u_max))
        k.store(y, r, total.get())
    return k.finish()


@matvec_i8.sampler
def matvec_i8_sample(rng: np.random.Generator) -> Sample:
    rows, cols, u_max = (
        int(rng.integers(1, 50)),
        int(rng.integers(0, 20)),
        int(rng.choice([15, 127, 128, 255])),
    )
    w = rng.integers(0, u_max + 1, (rows, 4 * cols), dtype=np.uint8)
    x = rng.integers(-128, 128, 4 * cols, dtype=np.int8)
    packed = w.reshape(rows, cols, 4).transpose(1, 0, 2)
    answer = (w.astype("<i4") @ x.astype("<i4")).astype("<i4")
    inputs = (packed.tobytes(), x.tobytes())
    return Sample((rows, u_max), inputs, (answer.tobytes(),), {"cols": cols})
