"""The meaning of every instruction against scalar Python, on the values where meanings differ."""

from __future__ import annotations

import itertools
import math
import struct
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernel.programs import ARITHMETIC, LANES, apply, edges, elementwise, same_bits
from tetrad.core.dtypes import (
    REAL_DTYPES,
    DType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i32,
    i64,
    index,
    u8,
    u32,
    u64,
)
from tetrad.core.errors import BadInputs, BoundsError, VerifyError
from tetrad.core.sizes import Dim
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.evaluate import RULES, KernelTrap, evaluate
from tetrad.kernel.verify import verify

FLOATS, INTS = (f32, f64), (i32, i64, u8, u32, u64)


def test_every_instruction_has_a_meaning() -> None:
    assert set(RULES) == set(n.INSTRUCTIONS)


# -- scalar oracles --------------------------------------------------------------------------------


def wrap(v: int, dtype: DType) -> int:
    v %= 1 << dtype.bits
    return v - (1 << dtype.bits) if dtype.is_signed and v >> (dtype.bits - 1) else v


def rounded(v: float, dtype: DType) -> float:
    """v rounded to dtype; from f64, one operation rounded twice to f32 is still right (53 >= 2*24 +
    2)."""
    if dtype is f64 or v != v or math.isinf(v):
        return v
    try:
        return struct.unpack("f", struct.pack("f", v))[0]  # type: ignore[no-any-return]
    except OverflowError:
        return math.copysign(math.inf, v)


def divided(a: float, b: float) -> float:
    if b != 0:
        return a / b
    return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)


def least(a: float, b: float) -> float:
    if a != a or b != b:
        return math.nan
    return min((a, math.copysign(1, a)), (b, math.copysign(1, b)))[0]


def truncated(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


FLOAT_ORACLE: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": divided,
    "min": least,
    "max": lambda a, b: -least(-a, -b),
    "copysign": math.copysign,
}
INT_ORACLE: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, w: a + b,
    "sub": lambda a, b, w: a - b,
    "mul": lambda a, b, w: a * b,
    "div": lambda a, b, w: truncated(a, b),
    "mod": lambda a, b, w: 0 if b == 0 else a - truncated(a, b) * b,
    "min": lambda a, b, w: min(a, b),
    "max": lambda a, b, w: max(a, b),
    "and": lambda a, b, w: a & b,
    "or": lambda a, b, w: a | b,
    "xor": lambda a, b, w: a ^ b,
    "shl": lambda a, b, w: a << (b % w),
    "shr": lambda a, b, w: a >> (b % w),
    "absdiff": lambda a, b, w: abs(a - b),
    "rotl": lambda a, b, w: a << (b % w) | a >> (w - b % w),
    "rotr": lambda a, b, w: a >> (b % w) | a << (w - b % w),
    "mulhi": lambda a, b, w: (a * b) >> w,
}
BOOL_ORACLE: dict[str, Callable[[bool, bool], bool]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
}


def half_away(x: float) -> float:
    if x != x or math.isinf(x):
        return x
    whole = math.floor(abs(x))
    return math.copysign(whole + (abs(x) - whole >= 0.5), x)


def to_whole(f: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: x if x != x or math.isinf(x) else math.copysign(float(f(x)), x)


FLOAT_UNARY_ORACLE: dict[str, Callable[[float], float]] = {
    "neg": lambda x: -x,
    "abs": abs,
    "sqrt": lambda x: math.nan if x < 0 else math.sqrt(x),
    "floor": to_whole(math.floor),
    "ceil": to_whole(math.ceil),
    "trunc": to_whole(math.trunc),
    "round_even": to_whole(round),
    "round": half_away,
}
INT_UNARY_ORACLE: dict[str, Callable[[int, int], int]] = {
    "neg": lambda x, w: -x,
    "abs": lambda x, w: abs(x),
    "not": lambda x, w: ~x,
    "popcount": lambda x, w: (x % (1 << w)).bit_count(),
    "clz": lambda x, w: w - (x % (1 << w)).bit_length(),
    "ctz": lambda x, w: w if x == 0 else (x & -x).bit_length() - 1,
    "reverse_bits": lambda x, w: int(f"{x % (1 << w):0{w}b}"[::-1], 2),
}


def pairs(dtype: DType) -> list[tuple[Any, Any]]:
    return list(itertools.product(np.array(edges(dtype), dtype.np).tolist(), repeat=2))


def assert_same(got: np.ndarray, want: list[Any], given: list[Any]) -> None:
    # by way of float64, 64-bit integers would be rounded
    wanted = np.array(want, got.dtype) if got.dtype.kind in "iu" else np.array(want)
    wrong = ~same_bits(got, wanted.astype(got.dtype))
    assert not wrong.any(), [(given[i], got[i], want[i]) for i in np.nonzero(wrong)[0][:5]]


# -- operators -------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", n.FLOAT_BINARY)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_binary(op: str, dtype: DType) -> None:
    given = pairs(dtype)
    got = apply(lambda k, a, b: k.binary(op, a, b), (dtype, dtype), *zip(*given, strict=True))
    assert_same(got, [rounded(FLOAT_ORACLE[op](a, b), dtype) for a, b in given], given)


SATURATING_ORACLE: dict[str, Callable[[int, int], int]] = {
    "add_sat": lambda a, b: a + b,
    "sub_sat": lambda a, b: a - b,
    "mul_sat": lambda a, b: a * b,
}


@pytest.mark.parametrize("op", n.SATURATING)
@pytest.mark.parametrize("dtype", [d for d in INTS if d.bits <= 32], ids=str)
def test_saturating(op: str, dtype: DType) -> None:
    given, limits = pairs(dtype), np.iinfo(dtype.np)
    got = apply(lambda k, a, b: k.binary(op, a, b), (dtype, dtype), *zip(*given, strict=True))
    exact = [SATURATING_ORACLE[op](a, b) for a, b in given]
    assert_same(got, [max(limits.min, min(limits.max, x)) for x in exact], given)


@pytest.mark.parametrize(
    ("dtype", "op"),
    [(d, op) for d in INTS for op in n.binary_operators(d) if op not in n.SATURATING],
)
def test_int_binary(op: str, dtype: DType) -> None:
    given = pairs(dtype)
    got = apply(lambda k, a, b: k.binary(op, a, b), (dtype, dtype), *zip(*given, strict=True))
    assert_same(got, [wrap(INT_ORACLE[op](a, b, dtype.bits), dtype) for a, b in given], given)


@pytest.mark.parametrize("op", [*n.SATURATING, *n.WORD_BINARY, *n.U32_BINARY])
def test_operators_without_a_sign_are_methods_of_the_builder(op: str) -> None:
    given = pairs(u32)
    named, generic = (
        apply(f, (u32, u32), *zip(*given, strict=True))
        for f in (lambda k, a, b: getattr(k, op)(a, b), lambda k, a, b: k.binary(op, a, b))
    )
    assert (named == generic).all()


def test_reversed_bits() -> None:
    got = apply(lambda k, a: k.reverse_bits(a), (u32,), [1, 0x80000000, 0x0000000F, 0])
    assert got.tolist() == [0x80000000, 1, 0xF0000000, 0]


def test_mulhi_of_the_largest_words() -> None:
    got = apply(lambda k, a, b: k.mulhi(a, b), (u32, u32), [0xFFFFFFFF], [0xFFFFFFFE])
    assert got.tolist() == [0xFFFFFFFD]


@pytest.mark.parametrize("op", n.BOOL_BINARY)
def test_bool_binary(op: str) -> None:
    given = pairs(bool_)
    got = apply(lambda k, a, b: k.binary(op, a, b), (bool_, bool_), *zip(*given, strict=True))
    assert_same(got, [BOOL_ORACLE[op](a, b) for a, b in given], given)


@pytest.mark.parametrize("dtype", (*ARITHMETIC, u64), ids=str)
@pytest.mark.parametrize("op", n.COMPARISONS)
def test_comparisons(op: str, dtype: DType) -> None:
    if dtype is bool_ and op not in ("eq", "ne"):
        return
    given = pairs(dtype)
    got = apply(lambda k, a, b: k.compare(op, a, b), (dtype, dtype), *zip(*given, strict=True))
    assert_same(got, [getattr(a, f"__{op}__")(b) for a, b in given], given)


@pytest.mark.parametrize("op", n.FLOAT_UNARY)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_unary(op: str, dtype: DType) -> None:
    given = np.array(edges(dtype), dtype.np).tolist()
    got = apply(lambda k, x: k.unary(op, x), (dtype,), given)
    assert_same(got, [rounded(FLOAT_UNARY_ORACLE[op](x), dtype) for x in given], given)


@pytest.mark.parametrize("op", n.INT_UNARY)
@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_int_unary(op: str, dtype: DType) -> None:
    given = edges(dtype)
    got = apply(lambda k, x: k.unary(op, x), (dtype,), given)
    assert_same(got, [wrap(INT_UNARY_ORACLE[op](x, dtype.bits), dtype) for x in given], given)


def test_bool_not() -> None:
    assert apply(lambda k, x: ~x, (bool_,), [False, True]).tolist() == [True, False]


@pytest.mark.parametrize("dtype", [d for d in REAL_DTYPES if d is not bool_], ids=str)
def test_select_keeps_bits_of_every_type(dtype: DType) -> None:
    a = np.random.default_rng(0).integers(0, 256, 64 * dtype.nbytes).astype(np.uint8).view(dtype.np)
    cond = np.arange(len(a)) % 2 == 0
    got = apply(lambda k, c, x, y: k.select(c, x, y), (bool_, dtype, dtype), cond, a, a[::-1])
    words = np.dtype(f"u{dtype.nbytes}")
    np.testing.assert_array_equal(
        got.view(words), np.where(cond, a.view(words), a[::-1].view(words))
    )


def test_fma_rounds_once_and_mul_add_twice() -> None:
    x = np.float32([1 + 2**-12])
    c = np.float32([-(1 + 2**-11)])
    assert apply(lambda k, a, b, c: k.fma(a, b, c), (f32,) * 3, x, x, c)[0] == 2**-24
    assert apply(lambda k, a, b, c: a * b + c, (f32,) * 3, x, x, c)[0] == 0


def test_dot4_is_exact_modulo_2_to_the_32() -> None:
    rng = np.random.default_rng(0)
    u = rng.integers(0, 256, (64, 4)).astype(np.uint8)
    s = rng.integers(-128, 128, (64, 4)).astype(np.int8)
    u[0], s[0], u[1], s[1] = 255, -128, 255, 127
    acc = rng.integers(-(2**31), 2**31, 64).astype(np.int32)
    acc[:2] = -(2**31), 2**31 - 1
    got = apply(
        lambda k, a, x, y: k.dot4(a, x, y),
        (i32, u32, u32),
        acc,
        u.view(np.uint32)[:, 0],
        s.view(np.uint32)[:, 0],
    )
    exact = [
        int(a) + sum(int(p) * int(q) for p, q in zip(x, y, strict=True))
        for a, x, y in zip(acc, u, s, strict=True)
    ]
    assert got.tolist() == [wrap(v, i32) for v in exact]


def test_dot4_holds_the_caller_to_u_max() -> None:
    f = lambda k, a, x, y: k.dot4(a, x, y, u_max=128)  # noqa: E731
    assert apply(f, (i32, u32, u32), [5], [128], [0xFF]).tolist() == [5 - 128]
    with pytest.raises(BoundsError, match="byte 129 above its u_max 128"):
        apply(f, (i32, u32, u32), [0], [129 << 16], [0])


def test_lookup_takes_each_byte_from_the_table() -> None:
    table = tuple(range(255, 255 - 16, -1))
    f = lambda k, x: k.lookup(x, table)  # noqa: E731
    assert apply(f, (u32,), [0x00010F02, 0]).tolist() == [0xFFFEF0FD, 0xFFFFFFFF]
    with pytest.raises(BoundsError, match=r"lookup.*byte 16 above 15"):
        apply(f, (u32,), [0x00100000])


# -- casts -----------------------------------------------------------------------------------------


def cast_oracle(v: Any, source: DType, target: DType) -> Any:
    if target is bool_:
        return v != 0
    if target.is_float:
        return (
            rounded(float(v), target)
            if source is not i64
            else float(np.float64(v))
            if target is f64
            else nearest_f32(v)
        )
    if not source.is_float:
        return wrap(int(v), target)
    low, high = int(np.iinfo(target.np).min), int(np.iinfo(target.np).max)
    return 0 if v != v else low if v <= low else high if v >= high else int(v)


def nearest_f32(v: int) -> float:
    """Exact integer rounding to 24 bits, half to even."""
    drop = max(0, abs(v).bit_length() - 24)
    whole, rest = divmod(abs(v), 1 << drop)
    whole += 2 * rest > 1 << drop or (2 * rest == 1 << drop and drop > 0 and whole % 2 == 1)
    return math.copysign(float(whole << drop), v)


@pytest.mark.parametrize("target", (*ARITHMETIC, i8), ids=str)
@pytest.mark.parametrize("source", ARITHMETIC, ids=str)
def test_casts(source: DType, target: DType) -> None:
    given = np.array(edges(source), source.np).tolist()
    if source is i64:
        given += [2**24 + 1, 2**25 + 3, 2**53 + 1, -(2**24) - 1, 2**62 + 2**38, 2**62 + 2**38 + 1]
    got = apply(lambda k, x: k.cast(x, target), (source,), given)
    assert_same(got, [cast_oracle(v, source, target) for v in given], given)


@pytest.mark.parametrize(
    ("half", "scalar"), [(f16, np.float16), (bf16, ml_dtypes.bfloat16)], ids=["f16", "bf16"]
)
def test_half_floats_round_to_nearest_even_and_widen_exactly(half: DType, scalar: type) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(half.np)
    wide = apply(lambda k, x: k.cast(x, f32), (half,), every)
    back = apply(lambda k, x: k.cast(x, half), (f32,), wide)
    finite = ~np.isnan(wide)
    np.testing.assert_array_equal(back.view(np.uint16)[finite], every.view(np.uint16)[finite])
    # Between neighbours: the middle goes to the even one, a hair more or less to the nearer one.
    low = np.arange(1, 0x7000, dtype=np.uint16)
    below, above = (v.view(half.np).astype(np.float64) for v in (low, low + 1))
    middle = ((below + above) / 2).astype(np.float32)
    for nudge, want in ((0, low + (low & 1)), (np.inf, low + 1), (-np.inf, low)):
        x = middle if nudge == 0 else np.nextafter(middle, np.float32(nudge))
        got = apply(lambda k, x: k.cast(x, half), (f32,), x).view(np.uint16)
        assert (got == want).all()


@pytest.mark.parametrize("dtype", [i32, i64, u32, u8, f32, bool_], ids=str)
def test_index_casts_both_ways(dtype: DType) -> None:
    x = np.array(edges(dtype), dtype.np)
    got = apply(lambda k, x: k.cast(k.cast(x, index), i64), (dtype,), x)
    assert got.tolist() == [cast_oracle(v, dtype, i64) for v in x.tolist()]


def test_bitcast_is_the_same_bits() -> None:
    x = np.float32(edges(f32))
    np.testing.assert_array_equal(
        apply(lambda k, x: k.bitcast(x, u32), (f32,), x), x.view(np.uint32)
    )
    y = np.float64(edges(f64))
    np.testing.assert_array_equal(
        apply(lambda k, x: k.bitcast(x, i64), (f64,), y), y.view(np.int64)
    )


# -- ids, lanes, control ---------------------------------------------------------------------------


def test_ids_run_x_fastest() -> None:
    k = KernelBuilder("ids", workgroup=(2, 3, 2))
    y = k.buffer("y", i64, "write")
    ids = [k.group_id(axis) for axis in range(3)] + [k.lane(axis) for axis in range(3)]
    at = k.index(0)
    for v, size in zip(ids[::-1], (2, 3, 2, 4, 1, 3), strict=True):
        at = at * size + v
    code = k.index(0)
    for v in ids:
        code = code * 10 + v
    k.store(y, at, k.cast(code, i64))
    out = np.zeros(144, np.int64)
    evaluate(k.finish(), {"y": out}, {}, (3, 1, 4))
    orders = itertools.product(range(2), range(3), range(2), range(4), range(1), range(3))
    assert out.tolist() == [int(f"{gx}{gy}{gz}{x}{y}{z}") for z, y, x, gz, gy, gx in orders]


def test_shuffle_broadcast_and_reduction_tree() -> None:
    k = KernelBuilder("lanes", workgroup=4)
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write")
    v = k.load(x, k.global_id())
    mixed = k.shuffle(v, k.const(9.0, f32), (3, 4, 0, 0))
    for row, value in enumerate(
        (mixed, k.broadcast(v, 2) + v * 0.0, k.reduce_lanes("add", v) + v * 0.0)
    ):
        k.store(y, k.group_id() * 12 + row * 4 + k.lane(), value)
    out = np.zeros(24, np.float32)
    evaluate(k.finish(), {"x": np.arange(1, 9, dtype=np.float32), "y": out}, {}, (2, 1, 1))
    assert out.reshape(2, 3, 4).tolist() == [
        [[4, 9, 1, 1], [3] * 4, [10] * 4],
        [[8, 9, 5, 5], [7] * 4, [26] * 4],
    ]


def test_vote_counts_active_invocations_only() -> None:
    k = KernelBuilder("vote", workgroup=4)
    y = k.buffer("y", bool_, "write")
    low = k.lane() < 2
    with k.when(low):
        k.store(y, k.lane(), k.all(low))
        k.store(y, k.lane() + 2, k.any(k.lane() >= 2))
    out = np.ones(4, bool)
    evaluate(k.finish(), {"y": out}, {}, (1, 1, 1))
    assert out.tolist() == [True, True, False, False]


def test_loop_bounds_may_differ_between_workgroups() -> None:
    k = KernelBuilder("triangle", workgroup=4)
    y = k.buffer("y", i32, "write")
    total = k.local(0, i32)
    with k.loop(k.group_id() * 3, start=k.group_id(), step=2) as i:
        total.set(total.get() + k.cast(i, i32))
    k.store(y, k.global_id(), total)
    program = k.finish()
    verify(program)
    out = np.zeros(20, np.int32)
    evaluate(program, {"y": out}, {}, (5, 1, 1))
    assert out[::4].tolist() == [sum(range(g, 3 * g, 2)) for g in range(5)]


def test_branches_mask_locals_and_stores() -> None:
    def collatz(k: KernelBuilder, x: Val) -> Val:
        v = k.local(x)
        with k.loop(5):
            now = v.get()
            with k.when((now % 2).eq(0)):
                v.set(now // 2)
            with k.otherwise():
                v.set(now * 3 + 1)
        return v.get()

    def step(v: int) -> int:
        return v // 2 if v % 2 == 0 else 3 * v + 1

    got = apply(collatz, (i32,), range(20))
    want = list(range(20))
    for _ in range(5):
        want = [step(v) for v in want]
    assert got.tolist() == want


def test_a_uniform_load_under_a_lane_mask_may_bound_a_loop() -> None:
    k = KernelBuilder("masked_bound", workgroup=4)
    sizes, y = k.buffer("sizes", i32), k.buffer("y", i32, "readwrite")
    with k.when(k.lane() >= 2), k.loop(k.cast(k.load(sizes, k.group_id()), index)):
        k.store(y, k.global_id(), k.load(y, k.global_id()) + 1)
    program = k.finish()
    verify(program)
    out = np.zeros(8, np.int32)
    evaluate(program, {"sizes": np.int32([3, 5]), "y": out}, {}, (2, 1, 1))
    assert out.tolist() == [0, 0, 3, 3, 0, 0, 5, 5]


# -- memory ----------------------------------------------------------------------------------------


def transpose_through_scratch(zeroed: bool, store: bool) -> n.Program:
    k = KernelBuilder("scratch", workgroup=4)
    x, y = k.buffer("x", i32), k.buffer("y", i32, "write")
    s = k.buffer("s", i32, "workgroup", 4, zeroed)
    if store:
        k.store(s, k.lane(), k.load(x, k.global_id()))
    k.barrier()
    k.store(y, k.global_id(), k.load(s, k.index(3) - k.lane()))
    return k.finish()


@pytest.mark.parametrize(
    ("zeroed", "store", "want"),
    [
        (False, True, [3, 2, 1, 0, 7, 6, 5, 4]),
        (True, False, [0] * 8),
        (False, False, [wrap(0xA5A5A5A5, i32)] * 8),
    ],
)
def test_scratch_belongs_to_a_workgroup(zeroed: bool, store: bool, want: list[int]) -> None:
    out = np.ones(8, np.int32)
    evaluate(
        transpose_through_scratch(zeroed, store),
        {"x": np.arange(8, dtype=np.int32), "y": out},
        {},
        (2, 1, 1),
    )
    assert out.tolist() == want


def test_batches_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[evaluate.__module__], "BATCH_LANES", 8)
    x = np.arange(100, dtype=np.int32)
    assert apply(lambda k, x: x * 3, (i32,), x).tolist() == (x * 3).tolist()


def test_out_of_range_names_program_buffer_index_count_region_and_invocation() -> None:
    k = KernelBuilder("reader", workgroup=4)
    x = k.buffer("x", f32)
    with k.region("gather"), k.region("row"):
        k.store(k.buffer("y", f32, "write"), k.lane(), k.load(x, k.global_id()))
    with pytest.raises(BoundsError) as error:
        evaluate(
            k.finish(), {"x": np.zeros(6, np.float32), "y": np.zeros(4, np.float32)}, {}, (2, 1, 1)
        )
    want = (
        "reader: buffer x has 6 elements, index 6\n"
        "  in region gather/row, workgroup (1, 0, 0), invocation (2, 0, 0)"
    )
    assert str(error.value) == want


@pytest.mark.parametrize("at", [-1, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_stores_out_of_range(at: int, masked: bool) -> None:
    k = KernelBuilder("writer", workgroup=4)
    y, size = k.buffer("y", i32, "write"), k.arg("n")
    with k.when(k.lane() < (2 if masked else 4)):
        k.store(y, k.lane() * 0 + size, k.cast(k.lane() * 0, i32))
    with pytest.raises(BoundsError, match=f"buffer y has 4 elements, index {at}"):
        evaluate(k.finish(), {"y": np.zeros(4, np.int32)}, {"n": at}, (1, 1, 1))


def test_inactive_invocations_do_not_touch_memory() -> None:
    program = elementwise(lambda k, x: x, f32)
    empty = np.zeros(0, np.float32)
    evaluate(program, {"x0": empty, "y": empty}, {"n": 0}, (1, 1, 1))
    some = np.ones(3, np.float32)
    out = np.zeros(3, np.float32)
    evaluate(program, {"x0": some, "y": out}, {"n": 3}, (1, 1, 1))
    assert out.tolist() == [1, 1, 1]


def test_a_declared_count_bounds_a_longer_array() -> None:
    k = KernelBuilder("counted", workgroup=1)
    x = k.buffer("x", i32, count=Dim("seq") * 2)
    k.store(k.buffer("y", i32, "write"), 0, k.load(x, k.arg("at")))
    program = k.finish()
    y, x_array = np.zeros(1, np.int32), np.arange(10, dtype=np.int32)
    evaluate(program, {"x": x_array, "y": y}, {"at": 5, "seq": 3}, (1, 1, 1))
    assert y[0] == 5
    with pytest.raises(BoundsError, match="has 6 elements, index 6"):
        evaluate(program, {"x": x_array, "y": y}, {"at": 6, "seq": 3}, (1, 1, 1))


def test_a_uniform_address_is_written_once() -> None:
    k = KernelBuilder("once", workgroup=LANES)
    y = k.buffer("y", i32, "readwrite")
    k.store(y, k.group_id(), k.load(y, k.group_id()) + 1)
    out = np.zeros(3, np.int32)
    evaluate(k.finish(), {"y": out}, {}, (3, 1, 1))
    assert out.tolist() == [1, 1, 1]


def test_prefetch_out_of_range_is_nothing() -> None:
    k = KernelBuilder("hint", workgroup=LANES)
    k.prefetch(k.buffer("x", f32), k.lane() + 1000)
    evaluate(k.finish(), {"x": np.zeros(1, np.float32)}, {}, (1, 1, 1))


# -- failures --------------------------------------------------------------------------------------


def test_trap_reports_the_first_active_invocation() -> None:
    k = KernelBuilder("trapper", workgroup=4)
    with k.region("op"), k.when(k.lane() >= 1):
        k.trap(k.global_id() >= 4, 7, k.global_id() * 10)
    program = k.finish()
    evaluate(program, {}, {}, (1, 1, 1))
    with pytest.raises(
        KernelTrap, match=r"trapper: trap 7, value 50\n  in region op, workgroup .1, 0, 0."
    ) as error:
        evaluate(program, {}, {}, (2, 1, 1))
    assert (error.value.code, error.value.value) == (7, 50)


@pytest.mark.parametrize(
    ("op", "a", "b", "match"),
    [
        ("mul", 1 << 40, 1 << 30, "leaves 64 bits"),
        ("add", (1 << 63) - 1, 1, "leaves 64 bits"),
        ("sub", -(1 << 63), 1, "leaves 64 bits"),
        ("div", -1, 2, "needs >= 0 by > 0"),
        ("mod", 5, 0, "needs >= 0 by > 0"),
    ],
)
@pytest.mark.parametrize("per_lane", [False, True])
def test_index_arithmetic_must_not_wrap(
    op: str, a: int, b: int, match: str, per_lane: bool
) -> None:
    k = KernelBuilder("wide", workgroup=4)
    size = k.arg("a") + k.lane() * 0 if per_lane else k.arg("a")
    k.prefetch(k.buffer("x", f32), k.binary(op, size, k.arg("b")))
    program = k.finish()
    x = {"x": np.zeros(1, np.float32)}
    evaluate(program, x, {"a": 6, "b": 3}, (1, 1, 1))
    with pytest.raises(BoundsError, match=match):
        evaluate(program, x, {"a": a, "b": b}, (1, 1, 1))


def test_masked_lanes_may_hold_any_index() -> None:
    k = KernelBuilder("masked", workgroup=4)
    y = k.buffer("y", i64, "write")
    with k.when(k.lane() >= 2):
        k.store(
            y, k.lane(), k.cast((k.lane() - 2) / (k.lane() - 1) + k.lane() % (k.lane() - 1), i64)
        )
    out = np.zeros(4, np.int64)
    evaluate(k.finish(), {"y": out}, {}, (1, 1, 1))
    assert out.tolist() == [0, 0, 0, 1]


def test_loop_bounds_that_differ_in_a_workgroup_are_refused() -> None:
    k = KernelBuilder("ragged", workgroup=4)
    with k.loop(k.lane()):
        pass
    with pytest.raises(BoundsError, match="loop bound 1 and 0 in one workgroup"):
        evaluate(k.finish(), {}, {}, (1, 1, 1))


@pytest.mark.parametrize(
    ("buffers", "args", "match"),
    [
        ({"x0": np.zeros(2, np.float32)}, {"n": 1}, "no array for buffer y"),
        (
            {"x0": np.zeros(2), "y": np.zeros(2, np.float32)},
            {"n": 1},
            "x0 is flat f32, got float64",
        ),
        ({"x0": np.zeros((1, 2), np.float32), "y": np.zeros(2, np.float32)}, {"n": 1}, "of rank 2"),
        (
            {"x0": np.zeros(2, np.float32), "y": np.zeros(2, np.float32)},
            {},
            "no value for argument 'n'",
        ),
    ],
)
def test_wrong_inputs(buffers: dict[str, np.ndarray], args: dict[str, int], match: str) -> None:
    with pytest.raises(BadInputs, match=match):
        evaluate(elementwise(lambda k, x: x, f32), buffers, args, (1, 1, 1))


def test_too_few_elements_and_unknown_scratch_size() -> None:
    k = KernelBuilder("short")
    k.buffer("x", f32, count=4)
    with pytest.raises(BadInputs, match="buffer x has 4 elements, got 3"):
        evaluate(k.finish(), {"x": np.zeros(3, np.float32)}, {}, (1, 1, 1))
    k = KernelBuilder("unknown")
    k.scratch("s", f32, Dim("seq"))
    with pytest.raises(BadInputs, match="scratch s needs values for"):
        evaluate(k.finish(), {}, {}, (1, 1, 1))


# -- barriers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("returns", [False, True])
def test_a_barrier_that_some_do_not_reach_is_an_error_when_it_runs_too(returns: bool) -> None:
    k = KernelBuilder("divergent", 4)
    with k.when(k.lane() < 2):
        k.return_() if returns else k.barrier()
    if returns:
        k.barrier()
    program = k.finish()
    missing = 0 if returns else 2
    told = rf"V010: divergent: not every .*barrier\n  in region \(top\).*invocation \({missing}, "
    with pytest.raises(VerifyError, match=told):
        evaluate(program, {}, {}, (2, 1, 1))


def test_a_barrier_that_whole_workgroups_do_not_reach_is_none() -> None:
    k = KernelBuilder("uniform", 4)
    with k.when(k.group_id().eq(1)):
        k.return_()
    k.barrier()
    verify(program := k.finish())
    evaluate(program, {}, {}, (3, 1, 1), races=True)
