"""Small programs that use every instruction in every form it has: each kind, each operator, each
element type, as a scalar, as a vector, under a mask, in workgroups that are no power of two. With
data for each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from tests.backends.llvm.case import MASKED, PURE, SHAPES, Case, elementwise
from tests.backends.llvm.machine import random_array
from tests.backends.llvm.turns import atomics, lengths, returns
from tests.kernel.programs import ARITHMETIC, edges
from tetrad.core.dtypes import (
    REAL_DTYPES,
    DType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i32,
    i64,
    index,
    u8,
    u32,
    u64,
)
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder, Val

HALVES = (f16, bf16)


def all_cases() -> Iterator[Case]:
    for make in FAMILIES.values():
        yield from make()


def pairs(dtype: DType) -> list[np.ndarray]:
    left, right = zip(*itertools.product(edges(dtype), repeat=2), strict=True)
    return [np.array(left, dtype.np), np.array(right, dtype.np)]


# -- values ----------------------------------------------------------------------------------------


def arithmetic() -> Iterator[Case]:
    for dtype, width in itertools.product((*ARITHMETIC, u64), PURE):
        columns = [(dtype, column) for column in pairs(dtype)]
        for op in n.binary_operators(dtype):
            yield elementwise(
                f"{op} {dtype}", width, lambda k, a, b, op=op: k.binary(op, a, b), *columns
            )
        for op in n.unary_operators(dtype):
            yield elementwise(
                f"{op} {dtype}", width, lambda k, a, b, op=op: k.unary(op, a), *columns
            )
        for op in ("eq", "ne") if dtype is bool_ else n.COMPARISONS:
            yield elementwise(
                f"{op} {dtype}", width, lambda k, a, b, op=op: k.compare(op, a, b), *columns
            )
    for dtype, width in itertools.product(REAL_DTYPES, PURE):
        yield select(dtype, width)
    for dtype, op in itertools.product((i32, i64, u8, u32), ("div", "mod", "shl", "shr")):
        columns = [(dtype, column) for column in pairs(dtype)]
        yield elementwise(
            f"{op} {dtype}", MASKED, lambda k, a, b, op=op: k.binary(op, a, b), *columns
        )
    for op, width in itertools.product(n.INDEX_BINARY, SHAPES):
        yield index_arithmetic(op, width)


def select(dtype: DType, width: int) -> Case:
    rng = np.random.default_rng(1)
    columns = [
        (bool_, random_array(rng, bool_, 37)),
        *((dtype, random_array(rng, dtype, 37)) for _ in range(2)),
    ]
    return elementwise(f"select {dtype}", width, lambda k, c, a, b: k.select(c, a, b), *columns)


def index_arithmetic(op: str, width: int) -> Case:
    """Of a data-dependent index and one that grows with the lane."""
    data = np.array([0, 1, 2, 3, 7, 40, 2**40, 2**50 + 3, *range(30)], np.int64)

    def f(k: KernelBuilder, a: Val) -> Val:
        return k.cast(k.binary(op, k.cast(a, index), k.global_id() + 1), i64)

    return elementwise(f"index {op}", width, f, (i64, data))


def conversions() -> Iterator[Case]:
    for source, goal in itertools.product(REAL_DTYPES, repeat=2):
        values = np.concatenate(
            [
                np.array(numbers(source), source.np),
                random_array(np.random.default_rng(2), source, 64),
            ]
        )
        if cast_allowed(source, goal):
            for width in PURE:
                yield elementwise(
                    f"cast {source} {goal}",
                    width,
                    lambda k, x, d=goal: k.cast(x, d),
                    (source, values),
                )
        if source.bits == goal.bits and bool_ not in (source, goal):
            for width in PURE:
                yield elementwise(
                    f"bits {source} {goal}",
                    width,
                    lambda k, x, d=goal: k.bitcast(x, d),
                    (source, values),
                )
    for dtype, width in itertools.product([d for d in REAL_DTYPES if d not in HALVES], PURE):
        values = np.array([v for v in numbers(dtype) if v == v and abs(v) < 2**52], dtype.np)
        through = elementwise(
            f"through index {dtype}",
            width,
            lambda k, x, d=dtype: k.cast(k.cast(x, index), d),
            (dtype, values),
        )
        yield through


def numbers(dtype: DType) -> list[float]:
    """The edges of a type, and of every integer type seen from it."""
    if not dtype.is_float or dtype in HALVES:
        return (
            edges(dtype)
            if dtype not in HALVES
            else [0.0, -0.0, 1.0, -2.5, float("inf"), float("-inf"), float("nan")]
        )
    ends = [
        float(s * 2.0**e + d)
        for e in (7, 8, 15, 16, 31, 32, 63, 64)
        for s in (1, -1)
        for d in (-1, -0.5, 0, 0.5, 1)
    ]
    return [*edges(dtype), *ends]


def cast_allowed(source: DType, goal: DType) -> bool:
    return source is not goal and (
        f32 in (source, goal) or not (source in HALVES or goal in HALVES)
    )


def products() -> Iterator[Case]:
    rng = np.random.default_rng(3)
    for dtype, width in itertools.product((f32, f64), PURE):
        a, b = pairs(dtype)
        columns = [
            (dtype, np.tile(a, 3)),
            (dtype, np.tile(b, 3)),
            (dtype, rng.permutation(np.tile(a, 3))),
        ]
        yield elementwise(f"fma {dtype}", width, lambda k, *x: k.fma(*x), *columns)
    for u_max, width in itertools.product((15, 127, 128, 255), (1, 4, 8, 12, 16, 32, 64)):
        yield dot(u_max, width)
        yield dot_of_one(u_max, width)
    for width in (1, 4, 8, 12, 16, 32, 64):
        yield dot(255, width, signed=True)
        yield halves(width)
    for width in (1, 3, 4, 8, 12, 16, 32):
        yield table(width)


def table(width: int) -> Case:
    """Every nibble in every byte, entries of either sign."""
    rng = np.random.default_rng(14)
    places = np.stack([np.roll(np.arange(16, dtype=np.uint8), turn) for turn in range(16)]).reshape(
        -1, 4
    )
    entries = tuple(rng.integers(0, 256, 16).tolist())
    return elementwise(
        "lookup", width, lambda k, x: k.lookup(x, entries), (u32, places.view(np.uint32).ravel())
    )


def dot(u_max: int, width: int, *, signed: bool = False) -> Case:
    """Largest products of either sign in every combination, then anything."""
    rng = np.random.default_rng(4)
    least = -127 if signed else -128
    corners = itertools.product((0, 128, u_max) if signed else (0, u_max), (least, 127), repeat=2)
    u, s = [], []
    for ua, sa, ub, sb in corners:
        u.append([ua, ub, ua, ub])
        s.append([sa, sb, sb, sa])
    us = np.concatenate(
        [np.array(u, np.uint8), rng.integers(0, u_max + 1, (64, 4), dtype=np.uint8)]
    )
    ss = np.concatenate([np.array(s, np.int8), rng.integers(least, 128, (64, 4), dtype=np.int8)])
    acc = random_array(rng, i32, len(us))
    columns = [(i32, acc), (u32, us.view(np.uint32).ravel()), (u32, ss.view(np.uint32).ravel())]
    name = f"dot4 signed {u_max}" if signed else f"dot4 {u_max}"
    return elementwise(
        name, width, lambda k, a, x, y: k.dot4(a, x, y, u_max, signed=signed), *columns
    )


def halves(width: int) -> Case:
    """Products of bf16: sums of any size, subnormal ones, what is no number, one at the edge."""
    rng = np.random.default_rng(5)
    scale = 2.0 ** rng.integers(-76, -54, (2, 512, 2))
    x, y = (rng.standard_normal((2, 512, 2)) * scale).astype(np.float32)
    x[:200], y[:200] = rng.standard_normal((2, 200, 2))
    x[200:220, 0], x[220:240, 1] = 2.0**-130, np.inf
    c = (rng.standard_normal(512) * 2.0 ** rng.integers(-130, -122, 512)).astype(np.float32)
    c[:200] = rng.standard_normal(200)
    c[511], x[511], y[511] = 2.0**-126, (0, -1.5 * 2.0**-75), (0, 2.0**-76)
    words = [(z.view(np.uint32) >> 16).astype(np.uint16).view(np.uint32).ravel() for z in (x, y)]
    columns = [(f32, c), (u32, words[0]), (u32, words[1])]
    return elementwise("dot2", width, lambda k, c, a, b: k.dot2(c, a, b), *columns)


def dot_of_one(u_max: int, width: int) -> Case:
    """One side, or both, are the same for all lanes: twice added to a number of each lane."""
    k = KernelBuilder(f"dot4 of one {u_max} x{width}", workgroup=width)
    u, s, y = k.buffer("u", u32), k.buffer("s", u32), k.buffer("y", i32, "write")
    one, same = k.load(u, k.group_id()), k.load(s, k.group_id())
    first = k.dot4(k.cast(k.lane(), i32), one, k.load(s, k.global_id()), u_max)
    with k.when(k.lane() < width - width // 3):
        k.store(y, k.global_id(), k.dot4(first, k.load(u, k.global_id()), same, u_max))
    k.store(y, k.global_id() + 4 * width, k.dot4(k.dot4(first, one, same, u_max), one, same, u_max))
    rng = np.random.default_rng(18)
    us, ss = (
        rng.integers(0, u_max + 1, (4 * width, 4), np.uint8),
        rng.integers(-128, 128, (4 * width, 4), np.int8),
    )
    arrays = {
        "u": us.view(np.uint32).ravel(),
        "s": ss.view(np.uint32).ravel(),
        "y": np.zeros(8 * width, np.int32),
    }
    return Case(k.finish(), arrays, {}, (4, 1, 1))


# -- memory ----------------------------------------------------------------------------------------


def memory() -> Iterator[Case]:
    for dtype, width in itertools.product(REAL_DTYPES, SHAPES):
        for make in (
            copy,
            streamed,
            streamed_in_part,
            strided,
            gathered,
            scattered,
            broadcast_load,
            single_store,
            through_scratch,
            constants,
        ):
            yield make(dtype, width)


def copy(dtype: DType, width: int) -> Case:
    """All lanes, some lanes, no lanes of a workgroup."""
    k = KernelBuilder(f"copy {dtype} x{width}", workgroup=width)
    x, y, size = k.buffer("x", dtype), k.buffer("y", dtype, "write"), k.arg("n")
    with k.when(k.global_id() < size, guard=True):
        k.store(y, k.global_id(), k.load(x, k.global_id()))
    data = random_array(np.random.default_rng(5), dtype, 45)
    return Case(
        k.finish(), {"x": data, "y": np.zeros_like(data)}, {"n": 45}, (-(-45 // width) + 1, 1, 1)
    )


def streamed(dtype: DType, width: int) -> Case:
    k = KernelBuilder(f"stream {dtype} x{width}", workgroup=width)
    x, y = k.buffer("x", dtype), k.buffer("y", dtype, "write")
    k.prefetch(x, k.global_id() + 1000)
    k.store(y, k.global_id(), k.load(x, k.global_id()), hint="stream")
    data = random_array(np.random.default_rng(6), dtype, 4 * width)
    return Case(k.finish(), {"x": data, "y": np.zeros_like(data)}, {}, (4, 1, 1))


def streamed_in_part(dtype: DType, width: int) -> Case:
    """The last workgroup has not all lanes; then lanes that data choose, and every second
    element."""
    k = KernelBuilder(f"stream in part {dtype} x{width}", workgroup=width)
    x, y, size = k.buffer("x", dtype), k.buffer("y", dtype, "write"), k.arg("n")
    chosen, i = k.buffer("chosen", bool_), k.global_id()
    with k.when(i < size, guard=True):
        k.store(y, i, k.load(x, i), hint="stream")
        with k.when(k.load(chosen, i)):
            k.store(y, i + size, k.load(x, i), hint="stream")
        k.store(y, size * 2 + i * 2, k.load(x, i), hint="stream")
    rng = np.random.default_rng(19)
    data, some = random_array(rng, dtype, 45), random_array(rng, bool_, 45)
    arrays = {"x": data, "chosen": some, "y": np.zeros(4 * 45, dtype.np)}
    return Case(k.finish(), arrays, {"n": 45}, (-(-45 // width), 1, 1))


def strided(dtype: DType, width: int) -> Case:
    """Every second element, backwards, from one end to the other."""
    k = KernelBuilder(f"stride {dtype} x{width}", workgroup=width)
    x, y, size = k.buffer("x", dtype), k.buffer("y", dtype, "write"), k.arg("n")
    i = k.global_id()
    with k.when(i < size):
        k.store(y, i * 2, k.load(x, size * 2 - i * 2 - 1))
    data = random_array(np.random.default_rng(7), dtype, 74)
    return Case(
        k.finish(), {"x": data, "y": np.zeros_like(data)}, {"n": 37}, (-(-37 // width), 1, 1)
    )


def gathered(dtype: DType, width: int) -> Case:
    """Under a mask that depends on data; positions nobody reads are far outside."""
    rng = np.random.default_rng(8)
    k = KernelBuilder(f"gather {dtype} x{width}", workgroup=width)
    at, x, y = k.buffer("at", i32), k.buffer("x", dtype), k.buffer("y", dtype, "write")
    where = k.load(at, k.global_id())
    k.prefetch(x, k.cast(where, index))
    with k.when(where < 50):
        k.store(y, k.global_id(), k.load(x, k.cast(where, index)))
    positions = rng.choice([0, 3, 49, 17, 2**31 - 1], 4 * width).astype(np.int32)
    data = random_array(rng, dtype, 50)
    return Case(
        k.finish(), {"at": positions, "x": data, "y": np.zeros(4 * width, dtype.np)}, {}, (4, 1, 1)
    )


def scattered(dtype: DType, width: int) -> Case:
    rng = np.random.default_rng(9)
    k = KernelBuilder(f"scatter {dtype} x{width}", workgroup=width)
    at, x, y = k.buffer("at", i64), k.buffer("x", dtype), k.buffer("y", dtype, "readwrite")
    where = k.load(at, k.global_id())
    with k.when(where >= 0):
        k.store(y, k.cast(where, index), k.load(x, k.global_id()))
    positions = rng.permutation(4 * width).astype(np.int64)
    positions[::3] -= 2**40
    data = random_array(rng, dtype, 4 * width)
    return Case(k.finish(), {"at": positions, "x": data, "y": data[::-1].copy()}, {}, (4, 1, 1))


def broadcast_load(dtype: DType, width: int) -> Case:
    """One number of each workgroup, given to all its lanes, by a read-only and by a written
    buffer."""
    k = KernelBuilder(f"broadcast load {dtype} x{width}", workgroup=width)
    x, z, y = k.buffer("x", dtype), k.buffer("z", dtype, "readwrite"), k.buffer("y", dtype, "write")
    first, second = k.load(x, k.group_id()), k.load(z, k.group_id() * width)
    k.store(y, k.global_id(), k.select(k.lane() < width // 2, first, second))
    rng = np.random.default_rng(10)
    arrays = {
        "x": random_array(rng, dtype, 4),
        "z": random_array(rng, dtype, 4 * width),
        "y": np.zeros(4 * width, dtype.np),
    }
    return Case(k.finish(), arrays, {}, (4, 1, 1))


def single_store(dtype: DType, width: int) -> Case:
    """A uniform address: always, and where a lane of the workgroup asks for it."""
    k = KernelBuilder(f"single store {dtype} x{width}", workgroup=width)
    x, y, z = k.buffer("x", dtype), k.buffer("y", dtype, "write"), k.buffer("z", dtype, "write")
    wanted = k.buffer("wanted", bool_)
    value = k.load(x, k.group_id())
    k.store(y, k.group_id(), value)
    with k.when(k.load(wanted, k.global_id())):
        k.store(z, k.group_id(), value)
    asked = np.zeros(4 * width, np.bool_)
    asked[width : 2 * width] = True
    asked[-1] = True
    arrays = {
        "x": random_array(np.random.default_rng(11), dtype, 4),
        "y": np.zeros(4, dtype.np),
        "z": np.zeros(4, dtype.np),
    }
    return Case(k.finish(), {**arrays, "wanted": asked}, {}, (4, 1, 1))


def through_scratch(dtype: DType, width: int) -> Case:
    """Each workgroup turned round; half of the scratch is promised to be zero and is not
    written."""
    k = KernelBuilder(f"scratch {dtype} x{width}", workgroup=width)
    x, y, z = k.buffer("x", dtype), k.buffer("y", dtype, "write"), k.buffer("z", dtype, "write")
    plain, zeroed = (
        k.scratch("plain", dtype, width),
        k.buffer("zeroed", dtype, "workgroup", 2 * width, zeroed=True),
    )
    value = k.load(x, k.global_id())
    k.store(plain, k.lane(), value)
    k.store(zeroed, k.lane() * 2, value)
    k.barrier()
    k.store(y, k.global_id(), k.load(plain, k.index(width - 1) - k.lane()))
    k.store(z, k.global_id(), k.load(zeroed, k.lane()))
    data = random_array(np.random.default_rng(12), dtype, 4 * width)
    return Case(
        k.finish(), {"x": data, "y": np.zeros_like(data), "z": np.zeros_like(data)}, {}, (4, 1, 1)
    )


def constants(dtype: DType, width: int) -> Case:
    """Literals of the type, as values to store and as arms of a select."""
    k = KernelBuilder(f"constants {dtype} x{width}", workgroup=width)
    y = k.buffer("y", dtype, "write")
    values = np.array(numbers(dtype), dtype.np)[:: 1 + len(numbers(dtype)) // 12].tolist()
    for at, (a, b) in enumerate(itertools.pairwise(values)):
        position = k.index(at * width) + k.lane()
        k.store(y, position, k.select(k.lane() < width // 2, k.const(a, dtype), k.const(b, dtype)))
    return Case(k.finish(), {"y": np.zeros((len(values) - 1) * width, dtype.np)})


# -- lanes and control -----------------------------------------------------------------------------


def lanes() -> Iterator[Case]:
    for dtype, width in itertools.product(REAL_DTYPES, (1, 3, 16)):
        yield exchange(dtype, width)
    for dtype in (f32, i32, u32):
        yield tables(dtype)
    for width in (1, 3, 12, 16, 64, 100, 256):
        yield votes(width)


def exchange(dtype: DType, width: int) -> Case:
    """Shuffles of one and of two values, of a uniform value, and a broadcast."""
    k = KernelBuilder(f"exchange {dtype} x{width}", workgroup=width)
    x, y = k.buffer("x", dtype), k.buffer("y", dtype, "write")
    a, b, same = k.load(x, k.lane()), k.load(x, k.lane() + width), k.load(x, k.group_id())
    mixed = k.shuffle(a, b, tuple((3 * i + 1) % (2 * width) for i in range(width)))
    turned = k.shuffle(a, a, tuple(reversed(range(width))))
    still = k.shuffle(same, same, tuple(range(width)))
    for at, value in enumerate((mixed, turned, still, k.broadcast(b, width - 1))):
        k.store(y, k.index(at * width) + k.lane(), value)
    data = random_array(np.random.default_rng(13), dtype, 2 * width)
    return Case(k.finish(), {"x": data, "y": np.zeros(4 * width, dtype.np)})


def tables(dtype: DType) -> Case:
    """A register of entries, looked up by places of which only the low bits count; and a uniform
    one."""
    k = KernelBuilder(f"permute {dtype}", workgroup=16)
    x, at, y = k.buffer("x", dtype), k.buffer("at", u32), k.buffer("y", dtype, "write")
    table, places = k.load(x, k.lane()), k.load(at, k.lane())
    same = k.load(x, k.group_id())
    found = (
        k.permute(table, places),
        k.permute(same, places),
        k.permute(table, k.load(at, k.group_id())),
        k.permute(same, k.load(at, k.group_id())),
    )
    for row, value in enumerate(found):
        k.store(y, k.index(row * 16) + k.lane(), value)
    rng = np.random.default_rng(15)
    inputs = {"x": random_array(rng, dtype, 16), "at": rng.integers(0, 1 << 32, 16, np.uint32)}
    return Case(k.finish(), {**inputs, "y": np.zeros(64, dtype.np)})


def votes(width: int) -> Case:
    k = KernelBuilder(f"vote x{width}", workgroup=width)
    x, y = k.buffer("x", i32), k.buffer("y", bool_, "write")
    value = k.load(x, k.global_id())
    at = k.group_id() * 4
    k.store(y, at, k.any(value > 90))
    k.store(y, at + 1, k.all(value >= 0))
    with k.when(value < 50):
        k.store(y, at + 2, k.any(value > 48))
        k.store(y, at + 3, k.all(value < 49))
    data = np.random.default_rng(14).integers(0, 92, 8 * width).astype(np.int32)
    return Case(k.finish(), {"x": data, "y": np.zeros(32, np.bool_)}, {}, (8, 1, 1))


def control() -> Iterator[Case]:
    for dtype, width in itertools.product((f32, i32, u8, bool_, f16, index), SHAPES):
        yield branches(dtype, width)
    for width in SHAPES:
        yield loops(width)
        yield while_loops(width)
        yield nested_guards(width)


def branches(dtype: DType, width: int) -> Case:
    """Locals changed by some lanes, in branches in branches, each with its other side."""
    k = KernelBuilder(f"branches {dtype} x{width}", workgroup=width)
    held = i64 if dtype is index else dtype
    x, c, y = k.buffer("x", held), k.buffer("c", i32), k.buffer("y", held, "write")
    value, cond = k.cast(k.load(x, k.global_id()), dtype), k.load(c, k.global_id())
    local, other = k.local(value), k.local(value)
    with k.region('odd "name"\n; and more'):
        with k.when(cond < 6):
            other.set(local.get())
            with k.when(cond < 3):
                local.set(k.cast(k.load(x, k.index(0)), dtype))
            with k.otherwise(), k.when(k.group_id().eq(1)):
                local.set(k.cast(k.load(x, k.group_id()), dtype))
        with k.otherwise():
            other.set(k.cast(k.load(x, k.lane()), dtype))
    k.store(y, k.global_id(), k.cast(local.get(), held))
    k.store(y, k.global_id() + 4 * width, k.cast(other.get(), held))
    rng = np.random.default_rng(15)
    data, conds = random_array(rng, held, 4 * width), rng.integers(0, 9, 4 * width).astype(np.int32)
    return Case(
        k.finish(), {"x": data, "c": conds, "y": np.zeros(8 * width, held.np)}, {}, (4, 1, 1)
    )


def loops(width: int) -> Case:
    """Bounds from arguments, from the workgroup, from memory; steps; no trip at all; masks
    inside."""
    k = KernelBuilder(f"loops x{width}", workgroup=width)
    x, y, trips = k.buffer("x", f32), k.buffer("y", f32, "write"), k.arg("trips")
    stops = k.buffer("stops", i32)
    total = k.local(0.0, f32)
    with (
        k.loop(trips, start=1, step=2) as i,
        k.loop(k.cast(k.load(stops, k.group_id()), index)) as j,
    ):
        value = k.load(x, k.group_id() + i * j)
        with k.when(value < k.cast(k.lane(), f32)):
            total.set(k.fma(value, 3.0, total))
    k.store(y, k.global_id(), total.get())
    data = np.random.default_rng(16).uniform(-1, width, 64).astype(np.float32)
    arrays = {
        "x": data,
        "stops": np.array([3, 0, 5, -2], np.int32),
        "y": np.zeros(4 * width, np.float32),
    }
    return Case(k.finish(), arrays, {"trips": 8}, (4, 1, 1))


def while_loops(width: int) -> Case:
    """Lanes that leave a loop one by one, some before its first trip, in a branch that not all
    take."""
    k = KernelBuilder(f"while loops x{width}", workgroup=width)
    x, y = k.buffer("x", i32), k.buffer("y", i32, "readwrite")
    value, count = k.local(k.load(x, k.global_id())), k.local(0, i32)
    with k.when(value.get() < 90):
        goes_on = k.local(value.get().ne(1))
        with k.repeat(goes_on):
            now = value.get()
            value.set(k.select((now & 1).eq(0), now >> 1, now * 3 + 1))
            count.set(count.get() + 1)
            goes_on.set(value.get().ne(1))
    k.store(y, k.global_id(), count.get())
    start = np.random.default_rng(18).integers(1, 100, 4 * width).astype(np.int32)
    return Case(k.finish(), {"x": start, "y": np.zeros(4 * width, np.int32)}, {}, (4, 1, 1))


def nested_guards(width: int) -> Case:
    """The three ways of a guard (all lanes, some, none) inside one another and inside a loop."""
    k = KernelBuilder(f"guards x{width}", workgroup=width)
    x, y, rows, cols = (
        k.buffer("x", f64),
        k.buffer("y", f64, "readwrite"),
        k.arg("rows"),
        k.arg("cols"),
    )
    i = k.global_id()
    with (
        k.when(i < cols, guard=True),
        k.loop(rows) as r,
        k.when(i < k.min(cols, r * 9), guard=True),
    ):
        k.store(y, r * cols + i, k.load(x, i) + k.load(y, r * cols + i))
    size = 4 * width - 1 if width > 1 else 5
    rng = np.random.default_rng(17)
    arrays = {"x": rng.normal(size=size), "y": rng.normal(size=7 * size)}
    return Case(k.finish(), arrays, {"rows": 7, "cols": size}, (-(-size // width) + 1, 1, 1))


FAMILIES: dict[str, Callable[[], Iterator[Case]]] = {
    f.__name__: f
    for f in (
        arithmetic,
        conversions,
        products,
        memory,
        lanes,
        control,
        lengths,
        atomics,
        returns,
    )
}
