"""Kernel language, library, group quantisers: floats to 4-bit codes and back, INT4 and NF4.

Receives an element type and a mode, returns programs. Groups are runs of the flat tensor, each with
a scale and, if asymmetric, a zero point. Two codes lie in a byte, the even element in the low half;
the half that no element has is 0. Quantising is two launches: `scale` has one invocation for each
group, `pack` one for each byte; `unpack` has one for each byte. The modes:

    symmetric    scale = absmax / 7             code = rne(x / scale) + 8
    asymmetric   scale = (max - min) / 15       code = rne(x / scale) + zero, zero an integer
    real         scale = (max - min) / 15       code = rne(x / scale + zero), zero = -min / scale

    nf4          scale = absmax                 code = midpoints of the table below x / scale

A scale of 0 is stored as 1. An input that is no finite number traps.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, f32, f64, u8, u32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.sizes import Dim, SizeExpr
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.elements import table_entry
from tetrad.kernel.library.sizes import U32
from tetrad.kernel.nodes import Buffer, Program
from tetrad.kernel.packing import pack
from tetrad.kernel.registry import Entry, Sample, register

Array = np.ndarray[Any, Any]
GROUP = 256  # invocations of a workgroup
NOT_FINITE = 2  # trap of the scale kernels: an input that is NaN or infinite, and where
SYMMETRIC, ASYMMETRIC, REAL, NF4 = MODES = ("symmetric", "asymmetric", "real", "nf4")

# the quantiles of a normal distribution, as published with the format
TABLE = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
MIDPOINTS = tuple((a + b) / 2 for a, b in pairwise(TABLE))


def scale_args(n: int, group_size: int, kind: str = "INT4") -> dict[str, int]:
    """The arguments of a scale kernel.

    >>> scale_args(129, 32)
    {'n': 129, 'group_size': 32, 'num_groups': 5}
    """
    refuse_sizes(n, group_size, kind)
    return {"n": n, "group_size": group_size, "num_groups": -(-n // group_size)}


def pack_args(n: int, group_size: int, kind: str = "INT4") -> dict[str, int]:
    """The arguments of a pack or unpack kernel; the number of groups is that of the scales they
    read.

    >>> pack_args(129, 32)
    {'n': 129, 'group_size': 32, 'packed_n': 65, 'num_groups': 5}
    """
    refuse_sizes(n, group_size, kind)
    groups = -(-n // group_size)
    return {"n": n, "group_size": group_size, "packed_n": -(-n // 2), "num_groups": groups}


def refuse_sizes(n: int, group_size: int, kind: str) -> None:
    if group_size < 1:
        raise ShapeError(f"Fix: {kind}: group_size must be non-zero, got group_size={group_size}")
    if not 0 <= n < U32:
        raise ShapeError(f"Fix: {kind}: n={n} must be below 2**32; quantise the tensor in parts")


def dim(name: str) -> SizeExpr:
    return Dim(name, max=U32 - 1)


def begin(role: str, dtype: DType, mode: str) -> KernelBuilder:
    """All modes of INT4 share a name and parameters; their fingerprints differ."""
    name = f"dnn_{'nf4' if mode == NF4 else 'int4'}_{role}_{dtype}"
    if dtype not in (f32, f64):
        raise DtypeError(f"Fix: {name}: computes in f32 or f64, not in {dtype}; widen to f32")
    return KernelBuilder(name, GROUP)


# -- scales ----------------------------------------------------------------------------------------


def scale_kernel(dtype: DType, mode: str) -> Program:
    """scale_ptr[g] and, if asymmetric, zero_ptr[g] of each group of in_ptr."""
    k = begin("scale", dtype, mode)
    source = k.buffer("in_ptr", dtype, count=dim("n"))
    scale = k.buffer("scale_ptr", dtype, "write", dim("num_groups"))
    zero = scale if mode == NF4 else k.buffer("zero_ptr", dtype, "write", dim("num_groups"))
    size, group_size, groups = (k.arg(name) for name in ("n", "group_size", "num_groups"))
    g = k.global_id()
    with k.when(g < groups, guard=True):
        if mode in (SYMMETRIC, NF4):
            peak = group_range(k, source, g, size, group_size, magnitude=True)[1]
            k.store(scale, g, one_if_zero(k, peak if mode == NF4 else peak / 7.0))
        else:
            low, high = group_range(k, source, g, size, group_size, with_zero=mode == ASYMMETRIC)
            step = one_if_zero(k, fifteenth(k, low, high))
            real = -low / step
            whole = clamp(k, k.round_even(real), 0.0, 15.0)
            k.store(scale, g, step)
            k.store(zero, g, real if mode == REAL else whole)
    return k.finish()


def group_range(
    k: KernelBuilder,
    source: Buffer,
    group: Val,
    size: Val,
    group_size: Val,
    *,
    with_zero: bool = True,
    magnitude: bool = False,
) -> tuple[Val, Val]:
    """The least and the greatest element of a group (and 0), or its greatest magnitude."""
    infinity = float("inf")
    low = k.local(0.0 if with_zero else infinity, source.dtype)
    high = k.local(0.0 if with_zero else -infinity, source.dtype)
    first = group * group_size
    with k.loop(group_size) as j, k.when(first + j < size):
        x = k.load(source, first + j)
        k.trap(~(abs(x) < infinity), NOT_FINITE, first + j)
        high.set(k.max(high.get(), abs(x) if magnitude else x))
        if not magnitude:
            low.set(k.min(low.get(), x))
    return low.get(), high.get()


def fifteenth(k: KernelBuilder, low: Val, high: Val) -> Val:
    """(high - low) / 15; divided before, where the difference would overflow."""
    width = high - low
    return k.select(width < float("inf"), width / 15.0, high / 15.0 - low / 15.0)


def one_if_zero(k: KernelBuilder, scale: Val) -> Val:
    return k.select(scale.eq(0.0), k.const(1.0, scale.dtype), scale)


def clamp(k: KernelBuilder, x: Val, low: float, high: float) -> Val:
    return k.min(k.max(x, low), high)


# -- codes -----------------------------------------------------------------------------------------


def pack_kernel(dtype: DType, mode: str) -> Program:
    """out_ptr[t] = the codes of elements 2t (low half) and 2t + 1 (high half) of in_ptr."""
    k = begin("pack", dtype, mode)
    source = k.buffer("in_ptr", dtype, count=dim("n"))
    sidecar = sidecars(k, dtype, mode)
    out = k.buffer("out_ptr", u8, "write", dim("packed_n"))
    size, group_size, packed = (k.arg(name) for name in ("n", "group_size", "packed_n"))
    t = k.global_id()
    with k.when(t < packed, guard=True):
        code = k.local(encode(k, mode, k.load(source, t * 2), sidecar(t * 2 // group_size)))
        odd = t * 2 + 1
        with k.when(odd < size):
            high = encode(k, mode, k.load(source, odd), sidecar(odd // group_size))
            code.set(code.get() | high << 4)
        k.store(out, t, k.cast(code.get(), u8))
    return k.finish()


def unpack_kernel(dtype: DType, mode: str) -> Program:
    """out_ptr[2t], out_ptr[2t + 1] = what the codes of byte t of in_ptr stand for."""
    k = begin("unpack", dtype, mode)
    source = k.buffer("in_ptr", u8, count=dim("packed_n"))
    sidecar = sidecars(k, dtype, mode)
    out = k.buffer("out_ptr", dtype, "write", dim("n"))
    size, group_size, packed = (k.arg(name) for name in ("n", "group_size", "packed_n"))
    t = k.global_id()
    with k.when(t < packed, guard=True):
        byte, odd = k.cast(k.load(source, t), u32), t * 2 + 1
        k.store(out, t * 2, decode(k, mode, dtype, byte & 15, sidecar(t * 2 // group_size)))
        with k.when(odd < size):
            k.store(out, odd, decode(k, mode, dtype, byte >> 4, sidecar(odd // group_size)))
    return k.finish()


Sidecar = tuple[Val, Val]  # scale and zero point of a group


def sidecars(k: KernelBuilder, dtype: DType, mode: str) -> Callable[[Val], Sidecar]:
    """What reads the scale and the zero point of a group."""
    scale = k.buffer("scale_ptr", dtype, count=dim("num_groups"))
    zero = None if mode == NF4 else k.buffer("zero_ptr", dtype, count=dim("num_groups"))

    def read(group: Val) -> Sidecar:
        if zero is None or mode == SYMMETRIC:
            return k.load(scale, group), k.const(8.0, dtype)
        return k.load(scale, group), k.load(zero, group)

    return read


def encode(k: KernelBuilder, mode: str, x: Val, sidecar: Sidecar) -> Val:
    """The code of an element, 0 to 15, as u32."""
    scale, zero = sidecar
    if mode == NF4:
        return nf4_code(k, x / scale)
    whole = k.round_even(x / scale + zero if mode == REAL else x / scale)
    return k.cast(clamp(k, whole if mode == REAL else whole + zero, 0.0, 15.0), u32)


def nf4_code(k: KernelBuilder, t: Val) -> Val:
    """How many midpoints lie strictly below: a tie takes the lower code."""
    code = k.const(0, u32)
    for midpoint in MIDPOINTS:
        code = code + k.cast(t > midpoint, u32)
    return code


def decode(k: KernelBuilder, mode: str, dtype: DType, code: Val, sidecar: Sidecar) -> Val:
    scale, zero = sidecar
    if mode == NF4:
        return table_entry(k, code, [k.const(value, dtype) for value in TABLE]) * scale
    return (k.cast(code, dtype) - zero) * scale


# -- entries ---------------------------------------------------------------------------------------

ROLES = {"scale": scale_kernel, "pack": pack_kernel, "unpack": unpack_kernel}
# mode -> elements, group size, scales, zero points, bytes, what the bytes stand for
FIXTURES: dict[str, tuple[list[float], int, list[float], list[float], str, list[float]]] = {
    SYMMETRIC: (
        [14, -7, 3, 0, -2, 1.2, 0.4], 4, [2, 2 / 7], [0, 0], "4F8AC109",
        [14, -8, 4, 0, -7 * (2 / 7), 4 * (2 / 7), 2 / 7],
    ),
    ASYMMETRIC: (
        [-3, -2.5, -0.5, 0, 0.5, 1.5, 11.5, 12], 8, [1], [3], "103353FF",
        [-3, -2, 0, 0, 0, 2, 12, 12],
    ),
    REAL: (
        [-3, -2.5, -0.5, 0, 0.5, 1.5, 11.5, 12], 8, [1], [3], "003244FE",
        [-3, -3, -1, 0, 1, 1, 11, 12],
    ),
    NF4: (
        [-2, -1, -0.3, 0, 0.1, 0.5, 1, 2, 0.5], 8, [2, 0.5], [], "2075A8FC0F",
        [*(2 * TABLE[code] for code in (0, 2, 5, 7, 8, 10, 12, 15)), 0.5],
    ),
}  # fmt: skip


def register_role(role: str, dtype: DType, mode: str) -> Entry:
    """An entry named after its kernel, and after its mode if that is not symmetric."""

    def build() -> Program:
        return ROLES[role](dtype, mode)

    build.__doc__ = ROLES[role].__doc__
    x, group_size, scales, zeros, codes, decoded = FIXTURES[mode]
    sidecar = [pack(scales, dtype), *([] if mode == NF4 else [pack(zeros, dtype)])]
    packed, family = bytes.fromhex(codes), "nf4" if mode == NF4 else "int4"
    inputs, expected = {
        "scale": ([pack(x, dtype)], sidecar),
        "pack": ([pack(x, dtype), *sidecar], [packed]),
        "unpack": ([packed, *sidecar], [pack(decoded, dtype)]),
    }[role]
    suffix = f"_{mode}" if mode in (ASYMMETRIC, REAL) else ""
    entry = register(
        f"tetrad::quant::dnn_{family}_{role}_{dtype}{suffix}",
        build=build,
        category="quant",
        inputs=[inputs],
        expected=[expected],
        grid=(1, 1, 1) if role == "unpack" else None,
        args=(scale_args if role == "scale" else pack_args)(len(x), group_size),
    )
    entry.sampler(lambda rng: random_groups(rng, role, dtype, mode))
    return entry


def random_groups(rng: np.random.Generator, role: str, dtype: DType, mode: str) -> Sample:
    """Random elements, group sizes and zero groups; the answer in NumPy, group by group."""
    n, group_size = int(rng.integers(1, 1200)), int(rng.choice([1, 3, 8, 32, 64, 2000]))
    x = (rng.normal(size=n) * 10.0 ** rng.integers(-3, 4)).astype(dtype.np)
    x[rng.random(n) < 0.2] = 0
    parts = [quantized(x[i : i + group_size], mode) for i in range(0, n, group_size)]
    scale, zero = (np.array([part[i] for part in parts], dtype.np) for i in (0, 1))
    codes, back = (np.concatenate([part[i] for part in parts]) for i in (2, 3))
    halves = np.append(codes, [0] * (n % 2)).astype(np.uint8)
    packed = (halves[::2] | halves[1::2] << 4).tobytes()
    sidecar = (scale.tobytes(), *(() if mode == NF4 else (zero.tobytes(),)))
    if role == "scale":
        return Sample((), (x.tobytes(),), sidecar, scale_args(n, group_size))
    args, grid = pack_args(n, group_size), (-(-n // 2 // GROUP), 1, 1)
    if role == "pack":
        return Sample((), (x.tobytes(), *sidecar), (packed,), args, grid)
    return Sample((), (packed, *sidecar), (back.astype(dtype.np).tobytes(),), args, grid)


def quantized(x: Array, mode: str) -> tuple[Any, Any, Array, Array]:
    """Scale, zero point, codes and decoded values of one group."""
    one, floating = x.dtype.type(1), x.dtype
    peak, low, high = np.abs(x).max(), x.min(), x.max()
    if mode == NF4:
        scale = peak or one
        codes = (x[:, None] / scale > np.array(MIDPOINTS, floating)).sum(axis=1)
        return scale, one * 0, codes, np.array(TABLE, floating)[codes] * scale
    if mode == SYMMETRIC:
        scale = peak / 7 or one
        codes = np.clip(np.rint(x / scale), -8, 7) + 8
        return scale, one * 0, codes, (codes - 8) * scale
    if mode == REAL:
        scale = (high - low) / 15 or one
        zero = -low / scale
        codes = np.clip(np.rint(x / scale + zero), 0, 15)
        return scale, zero, codes, (codes - zero) * scale
    low, high = min(low, one * 0), max(high, one * 0)
    scale = (high - low) / 15 or one
    zero = np.clip(np.rint(-low / scale), 0, 15) + 0  # no negative zero
    codes = np.clip(np.rint(x / scale) + zero, 0, 15)
    return scale, zero, codes, (codes - zero) * scale


ENTRIES = {
    (role, dtype, mode): register_role(role, dtype, mode)
    for role in ROLES
    for dtype in (f32, f64)
    for mode in MODES
}
