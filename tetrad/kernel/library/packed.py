"""Kernel language, library, packed: eight 4-bit integers per word, four bytes per dot product."""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import i32, u32
from tetrad.core.machine import LANES
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.nodes import Program
from tetrad.kernel.registry import Example, Sample, register


@register("tetrad::packed::unpack_i4", category="packed", grid=(1, 1, 1))
def unpack_i4(words: int = 1) -> Program:
    """y[8 * i + j] = the j-th signed nibble of x[i], lowest first: shifted to the top and back with
    its sign."""
    k = KernelBuilder("unpack_i4", LANES)
    x, y = k.buffer("x", u32, count=words), k.buffer("y", i32, "write", 8 * words)
    i = k.global_id()
    with k.when(i < words, guard=True):
        word = k.bitcast(k.load(x, i), i32)
        for j in range(8):
            k.store(y, i * 8 + j, (word << (28 - 4 * j)) >> 28)
    return k.finish()


@unpack_i4.cases
def unpack_i4_cases() -> list[Example]:
    nibbles = np.array([0, 1, 7, -8, -1, -2, 5, -7], "<i4")
    return [Example((bytes([0x10, 0x87, 0xEF, 0x95]),), (nibbles.tobytes(),))]


@unpack_i4.sampler
def unpack_i4_sample(rng: np.random.Generator) -> Sample:
    words = int(rng.integers(1, 60))
    x = rng.integers(0, 256, 4 * words, dtype=np.uint8)
    nibbles = np.stack([x & 15, x >> 4], axis=1).ravel().astype("<i4")
    case = Example(
        (x.tobytes(),), (np.where(nibbles > 7, nibbles - 16, nibbles).astype("<i4").tobytes(),)
    )
    return Sample(unpack_i4.build(words), case, (-(-words // LANES), 1, 1))


@register("tetrad::packed::matvec_i8", category="packed", grid=(1, 1, 1), args={"cols": 2})
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


@matvec_i8.cases
def matvec_i8_cases() -> list[Example]:
    """Words of the first columns of all rows, then of the second."""
    w = np.array(
        [[1, 2, 3, 4], [255] * 4, [0] * 4, [5, 6, 7, 8], [255] * 4, [0, 0, 0, 9]], np.uint8
    )
    x = np.array([[1, -1, 2, -2], [-128] * 4], np.int8)
    return [
        Example(
            (w.tobytes(), x.tobytes()),
            (np.array([-3 - 128 * 26, -130560, -1152], "<i4").tobytes(),),
        )
    ]


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
    case = Example((packed.tobytes(), x.tobytes()), (answer.tobytes(),))
    return Sample(matvec_i8.build(rows, u_max), case, (-(-rows // LANES), 1, 1), {"cols": cols})
