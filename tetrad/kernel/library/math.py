"""Kernel language, library, math: elementwise, a fused multiply-add, a reduction and a running sum
in one workgroup."""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import f32, i32, index, u8, u32
from tetrad.core.machine import LANES
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.nodes import Program
from tetrad.kernel.packing import pack
from tetrad.kernel.registry import Grid, Sample, register


def floats(*values: float) -> bytes:
    return pack(values, f32)


def ints(*values: int) -> bytes:
    return pack(values, i32)


def groups(size: int, lanes: int = LANES) -> Grid:
    return (-(-size // lanes), 1, 1)


TINY, TOP, INF = 1e-45, 3e38, float("inf")


@register(
    "tetrad::math::add",
    category="math",
    inputs=[
        [floats(1, 2, 3, 4, 5), floats(0.5, -2, 1e-8, 3e38, -0.0)],
        [floats(TINY, INF, TOP, -0.0, 1), floats(TINY, 1, TOP, -0.0, -1)],
    ],
    expected=[[floats(1.5, 0, 3, 3e38, 5)], [floats(3e-45, INF, INF, -0.0, 0)]],
)
def add(size: int = 5) -> Program:
    """y[i] = a[i] + b[i]."""
    k = KernelBuilder("add", LANES)
    a, b, y = (
        k.buffer("a", f32, count=size),
        k.buffer("b", f32, count=size),
        k.buffer("y", f32, "write", size),
    )
    i = k.global_id()
    with k.when(i < size, guard=True):
        k.store(y, i, k.load(a, i) + k.load(b, i))
    return k.finish()


@add.sampler
def add_sample(rng: np.random.Generator) -> Sample:
    size = int(rng.integers(1, 200))
    a, b = (rng.normal(size=size).astype("<f4") for _ in range(2))
    return Sample((size,), (a.tobytes(), b.tobytes()), ((a + b).tobytes(),))


EPS = 2.0**-12  # (1 + EPS) squared has a last bit that only one rounding keeps


@register(
    "tetrad::math::saxpy",
    category="math",
    grid=(1, 1, 1),
    args={"n": 3},
    inputs=[
        [floats(1 + EPS), floats(1 + EPS, 2, 0), floats(-1 - 2 * EPS, 1, 7)],
        [floats(2), floats(1, 2, 3), floats(1, 1, 1, 9)],
    ],
    expected=[[floats(EPS * EPS, 3 + 2 * EPS, 7)], [floats(3, 5, 7, 9)]],
)
def saxpy() -> Program:
    """y[i] = alpha * x[i] + y[i], with one rounding, for i below n; y is updated in place."""
    k = KernelBuilder("saxpy", LANES)
    alpha, x, y, size = (
        k.buffer("alpha", f32, count=1),
        k.buffer("x", f32),
        k.buffer("y", f32, "readwrite"),
        k.arg("n"),
    )
    i = k.global_id()
    with k.when(i < size, guard=True):
        k.store(y, i, k.fma(k.load(alpha, 0), k.load(x, i), k.load(y, i)))
    return k.finish()


@saxpy.sampler
def saxpy_sample(rng: np.random.Generator) -> Sample:
    """Small integers: exact, however often rounded."""
    size = int(rng.integers(1, 200))
    alpha, x, y = (rng.integers(-99, 99, n).astype("<f4") for n in (1, size, size))
    inputs = (alpha.tobytes(), x.tobytes(), y.tobytes())
    return Sample((), inputs, ((alpha * x + y).tobytes(),), {"n": size}, groups(size))


@register(
    "tetrad::math::dot",
    category="math",
    grid=(1, 1, 1),
    args={"n": 5},
    inputs=[
        [floats(1, 2, 3, 4, 5), floats(1, 10, 100, 1000, 10000)],
        # lanes 0 and 2 meet before 1
        [floats(1e30, 1, -1e30, 0, 0), floats(1e8, 1, 1e8, 5, 5)],
    ],
    expected=[[floats(54321)], [floats(1)]],
)
def dot(lanes: int = 64) -> Program:
    """y[0] = sum of a[i] * b[i]: each lane sums every lanes-th product, then halves of the
    workgroup are joined."""
    k = KernelBuilder("dot", lanes)
    a, b, y, size = (
        k.buffer("a", f32),
        k.buffer("b", f32),
        k.buffer("y", f32, "write", 1),
        k.arg("n"),
    )
    partial, total = k.scratch("partial", f32, lanes), k.local(0.0, f32)
    with k.loop(size, step=lanes) as start:
        i = start + k.lane()
        with k.when(i < size, guard=True):
            total.set(k.fma(k.load(a, i), k.load(b, i), total))
    k.store(partial, k.lane(), total.get())
    half = lanes // 2
    while half:
        k.barrier()
        with k.when(k.lane() < half, guard=True):
            k.store(partial, k.lane(), k.load(partial, k.lane()) + k.load(partial, k.lane() + half))
        half //= 2
    k.barrier()
    k.store(y, 0, k.load(partial, 0))
    return k.finish()


@dot.sampler
def dot_sample(rng: np.random.Generator) -> Sample:
    size, lanes = int(rng.integers(0, 300)), int(rng.choice([1, 2, 16, 64, 256]))
    a, b = (rng.integers(-50, 50, size).astype("<f4") for _ in range(2))
    answer = np.float32(a @ b).tobytes()
    return Sample((lanes,), (a.tobytes(), b.tobytes()), (answer,), {"n": size})


MOST = 2**31 - 1


@register(
    "tetrad::math::running_sum",
    category="math",
    grid=(1, 1, 1),
    inputs=[[ints(1, 2, 3, 4, 5, 6)], [ints(MOST, 1, -1, 0, 0, 1)]],
    expected=[
        [ints(1, 3, 6, 10, 15, 21)],
        [ints(MOST, -MOST - 1, MOST, MOST, MOST, -MOST - 1)],
    ],
)
def running_sum(lanes: int = 6) -> Program:
    """y[i] = x[0] + ... + x[i] in one workgroup of any size: distances 1, 2, 4, ... through two
    halves of scratch."""
    k = KernelBuilder("running_sum", lanes)
    x, y = k.buffer("x", i32, count=lanes), k.buffer("y", i32, "write", lanes)
    ping, distance, i = k.scratch("ping", i32, 2 * lanes), 1, k.lane()
    here, there = k.index(0), k.index(lanes)
    k.store(ping, here + i, k.load(x, i))
    while distance < lanes:
        k.barrier()
        value = k.local(k.load(ping, here + i))
        with k.when(i >= distance):
            value.set(value.get() + k.load(ping, here + i - distance))
        k.store(ping, there + i, value.get())
        here, there, distance = there, here, 2 * distance
    k.barrier()
    k.store(y, i, k.load(ping, here + i))
    return k.finish()


@running_sum.sampler
def running_sum_sample(rng: np.random.Generator) -> Sample:
    lanes = int(rng.integers(1, 80))
    x = rng.integers(-1000, 1000, lanes).astype("<i4")
    return Sample((lanes,), (x.tobytes(),), (np.cumsum(x, dtype="<i4").tobytes(),))


@register(
    "tetrad::math::histogram",
    category="math",
    grid=(1, 1, 1),
    inputs=[[bytes([0, 3, 3, 200, 1]), pack([0, 0, 0, 7], u32)]],
    expected=[[pack([1, 1, 0, 9], u32)]],
)
def histogram(bins: int = 4) -> Program:
    """counts[x[i]] += 1 for every element of x below `bins`; the others are left out."""
    k = KernelBuilder("histogram", LANES)
    x, counts = k.buffer("x", u8), k.buffer("counts", u32, "readwrite", bins)
    i = k.global_id()
    with k.when(i >= k.length(x)):
        k.return_()
    at = k.cast(k.load(x, i), index)
    with k.when(at < bins):
        k.atomic("add", counts, at, 1)
    return k.finish()


@histogram.sampler
def histogram_sample(rng: np.random.Generator) -> Sample:
    bins, x = int(rng.integers(1, 300)), rng.integers(0, 256, int(rng.integers(1, 500)))
    counts = np.bincount(x, minlength=max(bins, 256))[:bins].astype("<u4")
    inputs = (x.astype(np.uint8).tobytes(), bytes(4 * bins))
    return Sample((bins,), inputs, (counts.tobytes(),), grid=groups(x.size))
