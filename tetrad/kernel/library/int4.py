"""Kernel language, library, packed signed INT4: eight lanes to a word, lowest bits first.

Receives names of buffers and sizes, returns programs: unpacking, dot products, products of a matrix
with float or packed vectors, and the best row of such a product. A matrix is row-major, each row
padded to whole words with zero lanes. Sums run over lanes in ascending order, a product and a sum
are rounded separately, and scales are applied once at the end, the row's first.

The programs named `i4x8_*` are the primitives; those named `int4_*` are what a library calls. They
are the same programs, and the region names the primitive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tetrad.core.dtypes import f32, i32, u32
from tetrad.core.errors import ShapeError
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.kernel.library.sizes import checked_product, refuse_empty
from tetrad.kernel.nodes import Buffer, Program
from tetrad.kernel.packing import pack
from tetrad.kernel.registry import Grid, Sample, register

Array = np.ndarray[Any, Any]
LANES = 8  # of a word
GROUP = 64  # invocations of a workgroup
LEAST = -3.4028234663852886e38  # the most negative finite f32
MOST_ROWS = 1 << 24  # f32 holds row numbers below
A, B, EDGES = 0xCDEF4321, 0xFEDC1234, 0x76210F98  # words of the fixtures
EDGE_LANES = [-8, -7, -1, 0, 1, 2, 6, 7]


def words(lanes: int) -> int:
    """Words that hold so many lanes."""
    return -(-lanes // LANES)


def lane(k: KernelBuilder, word: Val, j: int) -> Val:
    """Lane j of a word as i32: shifted to the top and back with its sign."""
    return (k.bitcast(word, i32) << (28 - 4 * j)) >> 28


def each_lane(
    k: KernelBuilder, lanes: int, total: LocalVar, add: Callable[[Val, Val, int], Val]
) -> None:
    """total = add(total, word, lane of the word) for every lane, in ascending order."""
    whole, rest = divmod(lanes, LANES)
    if whole:
        with k.loop(whole, always=True) as word:
            total.set(folded(total.get(), word, LANES, add))
    if rest:
        total.set(folded(total.get(), k.index(whole), rest, add))


def folded(value: Val, word: Val, lanes: int, add: Callable[[Val, Val, int], Val]) -> Val:
    for j in range(lanes):
        value = add(value, word, j)
    return value


def random_lanes(rng: np.random.Generator, rows: int) -> Array:
    return rng.integers(-8, 8, (rows, int(rng.integers(1, 70))))


def packed_rows(rows: Array) -> bytes:
    """The words of a matrix of lanes."""
    padded = np.zeros((len(rows), words(rows.shape[1]), LANES), np.uint32)
    padded.reshape(len(rows), -1)[:, : rows.shape[1]] = rows & 15
    shifted = padded << np.arange(0, 32, 4, dtype=np.uint32)
    joined: Array = np.bitwise_or.reduce(shifted, axis=-1)
    return joined.astype("<u4").tobytes()


# -- pack and unpack -------------------------------------------------------------------------------


@register(
    "tetrad::math::pack_i4x8",
    category="math",
    inputs=[[pack(EDGE_LANES, i32)], [pack([-32, -9, -8, 7, 8, 31, 0, 0], i32)]],
    expected=[[pack([EDGES], u32)], [pack([0x00777888], u32)]],
)
def pack_i4x8(values: str = "values", packed: str = "packed", lanes: int = 8) -> Program:
    """packed[t] = values 8t to 8t + 7, saturated to -8..7, lowest bits first; the rest is 0."""
    refuse_empty("pack_i4x8", lanes=lanes)
    k, size = KernelBuilder("pack_i4x8", 256), words(lanes)
    x, y = k.buffer(values, i32, count=lanes), k.buffer(packed, u32, "write", size)
    t = k.global_id()
    with k.when(t < size, guard=True):
        word = k.local(0, u32)
        for j in range(LANES):
            with k.when(t * LANES + j < lanes):
                value = k.min(k.max(k.load(x, t * LANES + j), -8), 7)
                word.set(word.get() | (k.bitcast(value, u32) & 15) << 4 * j)
        k.store(y, t, word.get())
    return k.finish()


@pack_i4x8.sampler
def pack_sample(rng: np.random.Generator) -> Sample:
    values = rng.integers(-20, 20, (1, int(rng.integers(1, 3000)))).astype("<i4")
    answer = packed_rows(values.clip(-8, 7))
    return Sample(("values", "packed", values.size), (values.tobytes(),), (answer,))


@register(
    "tetrad::math::unpack_i4x8",
    category="math",
    inputs=[[pack([EDGES], u32)]],
    expected=[[pack(EDGE_LANES, i32)]],
)
def unpack_i4x8(packed: str = "packed", out: str = "out", lanes: int = 8) -> Program:
    """out[t] = lane t."""
    refuse_empty("unpack_i4x8", lanes=lanes)
    k = KernelBuilder("unpack_i4x8", 256)
    x, y = k.buffer(packed, u32, count=words(lanes)), k.buffer(out, i32, "write", lanes)
    t = k.global_id()
    with k.when(t < lanes, guard=True):
        k.store(y, t, k.load_nibble(x, t, signed=True))
    return k.finish()


@unpack_i4x8.sampler
def unpack_sample(rng: np.random.Generator) -> Sample:
    lanes = random_lanes(rng, 1)
    answer = lanes[0].astype("<i4").tobytes()
    return Sample(("packed", "out", lanes.size), (packed_rows(lanes),), (answer,))


# -- dot products ----------------------------------------------------------------------------------


@register(
    "tetrad::math::i4x8_dot_i32",
    category="math",
    inputs=[[pack([EDGES], u32), pack([EDGES], u32)]],
    expected=[[pack([204], i32)]],
)
def i4x8_dot_i32(lhs: str = "lhs", rhs: str = "rhs", out: str = "out", lanes: int = 8) -> Program:
    """out[0] = sum of lhs[l] * rhs[l], modulo 2**32, by invocation 0."""
    refuse_empty("i4x8_dot_i32", lanes=lanes)
    k = KernelBuilder("i4x8_dot_i32", 1)
    a, b = (k.buffer(name, u32, count=words(lanes)) for name in (lhs, rhs))
    y, t = k.buffer(out, i32, "write", 1), k.global_id()
    with k.when(t < 1, guard=True):
        total = k.local(0, i32)

        def add(value: Val, word: Val, j: int) -> Val:
            return value + lane(k, k.load(a, word), j) * lane(k, k.load(b, word), j)

        each_lane(k, lanes, total, add)
        k.store(y, t, total.get())
    return k.finish()


@register(
    "tetrad::math::i4x8_dot_f32_scaled",
    category="math",
    inputs=[[pack([EDGES], u32), pack([EDGES], u32), pack([1], f32), pack([1], f32)]],
    expected=[[pack([204], f32)]],
)
def i4x8_dot_f32_scaled(
    lhs: str = "lhs",
    rhs: str = "rhs",
    lhs_scale: str = "lhs_scale",
    rhs_scale: str = "rhs_scale",
    out: str = "out",
    lanes: int = 8,
) -> Program:
    """out[0] = ((sum of lhs[l] * rhs[l]) * lhs_scale) * rhs_scale, by invocation 0."""
    refuse_empty("i4x8_dot_f32_scaled", lanes=lanes)
    k = KernelBuilder("i4x8_dot_f32_scaled", 1)
    a, b = (k.buffer(name, u32, count=words(lanes)) for name in (lhs, rhs))
    left, right = (k.buffer(name, f32, count=1) for name in (lhs_scale, rhs_scale))
    y, t = k.buffer(out, f32, "write", 1), k.global_id()
    with k.when(t < 1, guard=True):
        total = k.local(0.0, f32)
        add_products(k, total, lanes, (a, k.index(0)), (b, k.index(0)))
        k.store(y, t, total.get() * k.load(left, 0) * k.load(right, 0))
    return k.finish()


@i4x8_dot_i32.sampler
def dot_sample(rng: np.random.Generator) -> Sample:
    both = random_lanes(rng, 2)
    answer = np.int32(both[0] @ both[1]).astype("<i4").tobytes()
    sizes = ("lhs", "rhs", "out", both.shape[1])
    return Sample(sizes, (packed_rows(both[:1]), packed_rows(both[1:])), (answer,))


@i4x8_dot_f32_scaled.sampler
def dot_scaled_sample(rng: np.random.Generator) -> Sample:
    both, scales = random_lanes(rng, 2), rng.normal(size=2).astype("<f4")
    answer = np.float32(both[0] @ both[1]) * scales[0] * scales[1]
    sizes = ("lhs", "rhs", "lhs_scale", "rhs_scale", "out", both.shape[1])
    inputs = (
        packed_rows(both[:1]),
        packed_rows(both[1:]),
        scales[:1].tobytes(),
        scales[1:].tobytes(),
    )
    return Sample(sizes, inputs, (answer.tobytes(),))


def add_products(
    k: KernelBuilder,
    total: LocalVar,
    lanes: int,
    left: tuple[Buffer, Val],
    right: tuple[Buffer, Val],
) -> None:
    """total += left * right, lane by lane; each side is packed words and where they begin."""

    def add(value: Val, word: Val, j: int) -> Val:
        a, b = (k.load(buffer, first + word) for buffer, first in (left, right))
        return value + k.cast(lane(k, a, j), f32) * k.cast(lane(k, b, j), f32)

    each_lane(k, lanes, total, add)


# -- a matrix and float vectors --------------------------------------------------------------------


@register(
    "tetrad::math::i4x8_matvec_f32_scaled",
    category="math",
    inputs=[[pack([EDGES] * 4, u32), pack(EDGE_LANES, f32), pack([1] * 4, f32)]],
    expected=[[pack([204] * 4, f32)]],
)
def i4x8_matvec_f32_scaled(
    weights: str = "weights",
    x: str = "x",
    row_scales: str = "scales",
    out: str = "out",
    rows: int = 4,
    cols: int = 8,
) -> Program:
    """out[r] = (sum over c of weights[r, c] * x[c]) * row_scales[r]."""
    refuse_empty("i4x8_matvec_f32_scaled", rows=rows, cols=cols)
    return matvec("i4x8_matvec_f32_scaled", weights, x, row_scales, out, 1, rows, cols)


@register(
    "tetrad::math::i4x8_batched_matvec_f32_scaled",
    category="math",
    inputs=[[pack([EDGES] * 4, u32), pack(EDGE_LANES * 2, f32), pack([1] * 4, f32)]],
    expected=[[pack([204] * 8, f32)]],
)
def i4x8_batched_matvec_f32_scaled(
    weights: str = "weights",
    x: str = "x",
    row_scales: str = "scales",
    out: str = "out",
    batch: int = 2,
    rows: int = 4,
    cols: int = 8,
) -> Program:
    """out[b, r] = (sum over c of weights[r, c] * x[b, c]) * row_scales[r]."""
    refuse_empty("i4x8_batched_matvec_f32_scaled", batch=batch, rows=rows, cols=cols)
    return matvec("i4x8_batched_matvec_f32_scaled", weights, x, row_scales, out, batch, rows, cols)


def matvec(
    op: str, weights: str, x: str, row_scales: str, out: str, batch: int, rows: int, cols: int
) -> Program:
    """One invocation for each output."""
    k, wpr = KernelBuilder(op, GROUP), words(cols)
    w = k.buffer(weights, u32, count=checked_product(op, "rows * words of a row", rows, wpr))
    v = k.buffer(x, f32, count=checked_product(op, "batch * cols", batch, cols))
    s, size = (
        k.buffer(row_scales, f32, count=rows),
        checked_product(op, "batch * rows", batch, rows),
    )
    y, t = k.buffer(out, f32, "write", size), k.global_id()
    with k.when(t < size, guard=True):
        row, item = (t, k.index(0)) if batch == 1 else (t % rows, t // rows)
        total = k.local(0.0, f32)

        def add(value: Val, word: Val, j: int) -> Val:
            weight = k.cast(lane(k, k.load(w, row * wpr + word), j), f32)
            return value + weight * k.load(v, item * cols + word * LANES + j)

        each_lane(k, cols, total, add)
        k.store(y, t, total.get() * k.load(s, row))
    return k.finish()


@i4x8_matvec_f32_scaled.sampler
def matvec_sample(rng: np.random.Generator) -> Sample:
    (_, *sizes), inputs, outputs = random_matvec(rng, 1)
    return Sample(("weights", "x", "scales", "out", *sizes), inputs, outputs)


@i4x8_batched_matvec_f32_scaled.sampler
def batched_matvec_sample(rng: np.random.Generator) -> Sample:
    sizes, inputs, outputs = random_matvec(rng, int(rng.integers(1, 4)))
    return Sample(("weights", "x", "scales", "out", *sizes), inputs, outputs)


def random_matvec(
    rng: np.random.Generator, batch: int
) -> tuple[tuple[int, ...], tuple[bytes, ...], tuple[bytes, ...]]:
    """Sizes, inputs, outputs."""
    w = random_lanes(rng, int(rng.integers(1, 80)))
    x = rng.normal(size=(batch, w.shape[1])).astype("<f4")
    scales, total = rng.normal(size=len(w)).astype("<f4"), np.zeros((batch, len(w)), "<f4")
    for c in range(w.shape[1]):
        total += x[:, c, None] * w[:, c].astype("<f4")
    inputs = (packed_rows(w), x.tobytes(), scales.tobytes())
    return (batch, *w.shape), inputs, ((total * scales).tobytes(),)


# -- a matrix and packed vectors -------------------------------------------------------------------

MATMUL_INPUTS = [
    pack([EDGES] * 4, u32),
    pack([EDGES] * 2, u32),
    pack([1] * 4, f32),
    pack([1] * 2, f32),
]


@register(
    "tetrad::math::i4x8_batched_matmul_f32_scaled",
    category="math",
    inputs=[MATMUL_INPUTS],
    expected=[[pack([204] * 8, f32)]],
)
def i4x8_batched_matmul_f32_scaled(
    weights: str = "weights",
    activations: str = "activations",
    row_scales: str = "row_scales",
    batch_scales: str = "batch_scales",
    out: str = "out",
    batch: int = 2,
    rows: int = 4,
    cols: int = 8,
) -> Program:
    """out[b, r] = ((sum over c of weights[r, c] * activations[b, c]) * row_scales[r]) *
    batch_scales[b]."""
    op = "i4x8_batched_matmul_f32_scaled"
    size = matmul_size(op, batch, rows, cols)
    k = KernelBuilder(op, GROUP)
    operands = matmul_operands(
        k, (weights, activations, row_scales, batch_scales), batch, rows, cols
    )
    y, t = k.buffer(out, f32, "write", size), k.global_id()
    with k.when(t < size, guard=True):
        k.store(y, t, matmul_score(k, operands, t // rows, t % rows, cols))
    return k.finish()


def matmul_size(op: str, batch: int, rows: int, cols: int) -> int:
    """The number of scores, after checking the sizes of all operands."""
    refuse_empty(op, batch=batch, rows=rows, cols=cols)
    checked_product(op, "rows * words of a row", rows, words(cols))
    checked_product(op, "batch * words of a row", batch, words(cols))
    return checked_product(op, "batch * rows", batch, rows)


Operands = tuple[Buffer, Buffer, Buffer, Buffer]


def matmul_operands(
    k: KernelBuilder, names: tuple[str, str, str, str], batch: int, rows: int, cols: int
) -> Operands:
    weights, activations, row_scales, batch_scales = names
    return (
        k.buffer(weights, u32, count=rows * words(cols)),
        k.buffer(activations, u32, count=batch * words(cols)),
        k.buffer(row_scales, f32, count=rows),
        k.buffer(batch_scales, f32, count=batch),
    )


def matmul_score(k: KernelBuilder, operands: Operands, item: Val, row: Val, cols: int) -> Val:
    """The product of a row and an item of the batch, scaled."""
    weights, activations, row_scales, batch_scales = operands
    total, wpr = k.local(0.0, f32), words(cols)
    add_products(k, total, cols, (weights, row * wpr), (activations, item * wpr))
    return total.get() * k.load(row_scales, row) * k.load(batch_scales, item)


MATMUL_NAMES = ("weights", "activations", "row_scales", "batch_scales")


def random_matmul(rng: np.random.Generator) -> tuple[tuple[Any, ...], tuple[bytes, ...], Array]:
    """Sizes, inputs and scores [batch, row]. Some scales are 0, so that scores are equal."""
    w, batch = random_lanes(rng, int(rng.integers(1, 40))), int(rng.integers(1, 80))
    a = rng.integers(-8, 8, (batch, w.shape[1]))
    rows, items = (rng.integers(-2, 3, n).astype("<f4") / 4 for n in (len(w), batch))
    scores = (a @ w.T).astype("<f4") * rows * items[:, None]
    return (
        (batch, *w.shape),
        (packed_rows(w), packed_rows(a), rows.tobytes(), items.tobytes()),
        scores,
    )


@i4x8_batched_matmul_f32_scaled.sampler
def matmul_sample(rng: np.random.Generator) -> Sample:
    sizes, inputs, scores = random_matmul(rng)
    return Sample((*MATMUL_NAMES, "out", *sizes), inputs, (scores.tobytes(),))


# -- the best row ----------------------------------------------------------------------------------


def top1_grid(
    weights: str = "",
    activations: str = "",
    row_scales: str = "",
    batch_scales: str = "",
    out: str = "",
    batch: int = 2,
    rows: int = 4,
    cols: int = 8,
) -> Grid:
    """One invocation for each item of the batch."""
    return (-(-batch // GROUP), 1, 1)


@register(
    "tetrad::math::i4x8_batched_matmul_top1_f32_scaled",
    category="math",
    grid=top1_grid,
    inputs=[MATMUL_INPUTS],
    expected=[[pack([204, 204, 0, 0], f32)]],
)
def i4x8_batched_matmul_top1_f32_scaled(
    weights: str = "weights",
    activations: str = "activations",
    row_scales: str = "row_scales",
    batch_scales: str = "batch_scales",
    out: str = "out",
    batch: int = 2,
    rows: int = 4,
    cols: int = 8,
) -> Program:
    """out[b] = the greatest score of item b, out[batch + b] = its row as f32. Of equal scores the
    lowest row wins; NaN never does; without a winner it is the most negative number, row 0."""
    op = "i4x8_batched_matmul_top1_f32_scaled"
    matmul_size(op, batch, rows, cols)
    if rows > MOST_ROWS:
        raise ShapeError(
            f"Fix: {op}: rows={rows} exceeds 2**24, above which f32 cannot hold every row number; "
            "use i4x8_batched_matmul_top1_indexed_f32_scaled"
        )
    size = checked_product(op, "2 * batch", 2, batch)
    k = KernelBuilder(op, GROUP)
    names = (weights, activations, row_scales, batch_scales)
    operands, y = matmul_operands(k, names, batch, rows, cols), k.buffer(out, f32, "write", size)
    item = k.global_id()
    with k.when(item < batch, guard=True):
        best, found = best_row(k, operands, item, rows, cols)
        k.store(y, item, best)
        k.store(y, item + batch, k.cast(found, f32))
    return k.finish()


@register(
    "tetrad::math::i4x8_batched_matmul_top1_indexed_f32_scaled",
    category="math",
    inputs=[MATMUL_INPUTS],
    expected=[[pack([204, 204], f32), pack([0, 0], u32)]],
)
def i4x8_batched_matmul_top1_indexed_f32_scaled(
    weights: str = "weights",
    activations: str = "activations",
    row_scales: str = "row_scales",
    batch_scales: str = "batch_scales",
    scores: str = "scores",
    indices: str = "indices",
    batch: int = 2,
    rows: int = 4,
    cols: int = 8,
) -> Program:
    """As i4x8_batched_matmul_top1_f32_scaled, with the rows in a buffer of u32 of their own."""
    op = "i4x8_batched_matmul_top1_indexed_f32_scaled"
    matmul_size(op, batch, rows, cols)
    k = KernelBuilder(op, GROUP)
    names = (weights, activations, row_scales, batch_scales)
    operands = matmul_operands(k, names, batch, rows, cols)
    y, at = k.buffer(scores, f32, "write", batch), k.buffer(indices, u32, "write", batch)
    item = k.global_id()
    with k.when(item < batch, guard=True):
        best, found = best_row(k, operands, item, rows, cols)
        k.store(y, item, best)
        k.store(at, item, found)
    return k.finish()


def best_row(
    k: KernelBuilder, operands: Operands, item: Val, rows: int, cols: int
) -> tuple[Val, Val]:
    """The greatest score and its row, by strict comparison in ascending order."""
    best, found = k.local(LEAST, f32), k.local(0, u32)
    with k.loop(rows, always=True) as row:
        score = matmul_score(k, operands, item, row, cols)
        better = score > best.get()
        best.set(k.select(better, score, best.get()))
        found.set(k.select(better, k.cast(row, u32), found.get()))
    return best.get(), found.get()


@i4x8_batched_matmul_top1_f32_scaled.sampler
def top1_sample(rng: np.random.Generator) -> Sample:
    sizes, inputs, scores = random_matmul(rng)
    best, row = first_best(scores)
    answer = np.concatenate([best, row.astype("<f4")]).tobytes()
    return Sample((*MATMUL_NAMES, "out", *sizes), inputs, (answer,))


@i4x8_batched_matmul_top1_indexed_f32_scaled.sampler
def top1_indexed_sample(rng: np.random.Generator) -> Sample:
    sizes, inputs, scores = random_matmul(rng)
    best, row = first_best(scores)
    outputs = (best.tobytes(), row.astype("<u4").tobytes())
    return Sample((*MATMUL_NAMES, "scores", "indices", *sizes), inputs, outputs)


def first_best(scores: Array) -> tuple[Array, Array]:
    """The score of the first greatest row, with the sign of its zero, and the row."""
    row = scores.argmax(axis=1)
    return np.take_along_axis(scores, row[:, None], axis=1)[:, 0], row
