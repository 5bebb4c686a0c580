"""Cases of lengths, atomics and early returns: where invocations take turns, or leave."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from tests.backends.llvm.case import FULL, MASKED, SCALAR, SHAPES, Case
from tests.kernel.programs import edges
from tetrad.core.dtypes import DType, i32, i64, index, u32
from tetrad.core.sizes import Dim
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder, Val

WIDTHS = (*SHAPES, 100, 256)  # the last two are several vectors
GROUPS = 3
WHEN = {"all": None, "some": 5, "tail": -1}  # lanes that take part


def lengths() -> Iterator[Case]:
    """Of a buffer that the launch tells, one of a Dim, and scratch of a Dim."""
    for width in SHAPES:
        k = KernelBuilder(f"lengths x{width}", workgroup=width)
        seq, y = Dim("seq", max=64), k.buffer("y", i64, "write", 4)
        k.arg("seq")
        told = [k.buffer("x", i32), k.buffer("d", i32, "read", seq * 3 + 1), y]
        for at, buffer in enumerate([*told, k.scratch("s", i32, seq + 2)]):
            k.store(y, at, k.cast(k.length(buffer), i64))
        arrays = {"x": np.zeros(37, np.int32), "d": np.zeros(16, np.int32), "y": np.zeros(4, "i8")}
        yield Case(k.finish(), arrays, {"seq": 5})


# -- atomics ---------------------------------------------------------------------------------------


def atomics() -> Iterator[Case]:
    for op, dtype in itertools.product(n.ATOMIC, (u32, i32)):
        for width in (SCALAR, FULL, MASKED):
            yield shared_element(op, dtype, width)
    for width, when in itertools.product(WIDTHS, WHEN):
        yield histogram(width, when)
    yield after_a_vote()
    for order, width in itertools.product(n.ORDERS, (SCALAR, FULL)):
        for op in ("add", "compare_exchange"):
            yield ordered(op, order, width)


def change(k: KernelBuilder, op: str, buffer: n.Buffer, at: object, value: Val) -> Val:
    """A compare-exchange expects what is there half of the time."""
    expected = k.const(1, buffer.dtype) if op == "atomic_compare_exchange" else None
    return k.atomic(op.removeprefix("atomic_"), buffer, at, value, expected)


def shared_element(op: str, dtype: DType, width: int) -> Case:
    """Every invocation of a workgroup changes one element, then each that of another."""
    k = KernelBuilder(f"{op} {dtype} x{width}", workgroup=width)
    x, s = k.buffer("x", dtype), k.buffer("s", dtype, "readwrite")
    y, size = k.buffer("y", dtype, "write"), k.length(x)
    value = k.load(x, k.global_id())
    k.store(y, k.global_id(), change(k, op, s, k.group_id(), value))
    own = (k.global_id() * 7) % size + GROUPS
    k.store(y, k.global_id() + size, change(k, op, s, own, value))
    data = np.resize(np.array(edges(dtype), dtype.np), GROUPS * width)
    held = np.resize(np.array(edges(dtype)[::-1], dtype.np), GROUPS + GROUPS * width)
    held[::2] = 1
    arrays = {"x": data, "s": held, "y": np.zeros(2 * data.size, dtype.np)}
    return Case(k.finish(), arrays, {}, (GROUPS, 1, 1))


def histogram(width: int, when: str) -> Case:
    k = KernelBuilder(f"histogram {when} x{width}", workgroup=width)
    x, counts = k.buffer("x", i32), k.buffer("counts", u32, "readwrite", 8)
    i, some = k.global_id(), WHEN[when]
    limit = k.length(x) if some is None else k.length(x) + some if some < 0 else k.index(some)
    with k.when((i if when != "some" else k.lane()) < limit, guard=when == "tail"):
        k.atomic("add", counts, k.cast(k.load(x, i) % 8, index), 1)
    data = np.random.default_rng(3).integers(0, 100, GROUPS * width).astype(np.int32)
    return Case(k.finish(), {"x": data, "counts": np.arange(8, dtype="u4")}, {}, (GROUPS, 1, 1))


def after_a_vote() -> Case:
    """Lanes are exchanged, so the workgroup is one vector, however wide."""
    k = KernelBuilder("after a vote", workgroup=128)
    s, y = k.buffer("s", u32, "readwrite"), k.buffer("y", u32, "write")
    own = k.cast(k.lane(), u32)
    with k.when(k.any(own > 3)), k.when(own % 3 > 0):
        k.store(y, k.lane(), k.atomic("add", s, k.lane() % 7, own))
    return Case(k.finish(), {"s": np.arange(7, dtype="u4"), "y": np.zeros(128, np.uint32)})


def ordered(op: str, order: str, width: int) -> Case:
    k = KernelBuilder(f"{op} {order} x{width}", workgroup=width)
    s, expected = k.buffer("s", u32, "readwrite", 4), 2 if op != "add" else None
    k.atomic(op, s, k.lane() % 4, 3, expected, order)
    return Case(k.finish(), {"s": np.array([1, 2, 2**32 - 1, 0], np.uint32)})


# -- returns ---------------------------------------------------------------------------------------


def returns() -> Iterator[Case]:
    for make, width in itertools.product(WAYS, WIDTHS):
        k = KernelBuilder(f"{make.__name__} x{width}", workgroup=width)
        x, y = k.buffer("x", i32), k.buffer("y", i32, "readwrite")
        make(k, x, y)
        rng = np.random.default_rng(7)
        data = rng.integers(0, 9, GROUPS * width).astype(np.int32)
        before = rng.integers(90, 99, data.size).astype(np.int32)
        yield Case(k.finish(), {"x": data, "y": before}, {}, (GROUPS, 1, 1))


def guard(k: KernelBuilder, x: n.Buffer, y: n.Buffer) -> None:
    """The usual beginning of a kernel."""
    i = k.global_id()
    with k.when(i >= k.length(x) - 3):
        k.return_()
    k.store(y, i, k.load(x, i) + k.load(x, i + 3))


def search(k: KernelBuilder, x: n.Buffer, y: n.Buffer) -> None:
    """Each leaves a loop when it has found its number."""
    own = k.load(x, k.global_id())
    with k.loop(5) as j:
        with k.when(own.eq(k.cast(j * 2, i32))):
            k.store(y, k.global_id(), k.cast(j, i32))
            k.return_()
        with k.when(own.eq(1)):
            k.store(y, k.global_id(), -1)
    k.store(y, k.global_id(), own * 1000)


def whole_groups(k: KernelBuilder, x: n.Buffer, y: n.Buffer) -> None:
    """A return that a workgroup takes as one may stand before a barrier."""
    held = k.scratch("held", i32, k.workgroup[0])
    with k.when(k.group_id().eq(1)):
        k.return_()
    k.store(held, k.lane(), k.load(x, k.global_id()))
    k.barrier()
    turned = k.load(held, k.index(k.workgroup[0] - 1) - k.lane())
    with k.when(k.lane() < 3):
        k.store(y, k.global_id(), turned)
        k.return_()
    k.store(y, k.global_id(), -turned)


def regions(k: KernelBuilder, x: n.Buffer, y: n.Buffer) -> None:
    """Values of a region are used behind it, and it may have returned."""
    with k.region("outer"):
        own = k.load(x, k.global_id())
        with k.region("inner"):
            with k.when(own < 3):
                k.store(y, k.global_id(), 3)
                k.return_()
            twice = own + own
        seen = k.local(twice)
        with k.when(own > 7):
            k.return_()
    k.store(y, k.global_id(), seen.get() + twice)


def both_sides(k: KernelBuilder, x: n.Buffer, y: n.Buffer) -> None:
    own, count = k.load(x, k.global_id()), k.local(0, i32)
    with k.when(own < 6):
        with k.when(own < 2):
            count.set(5)
        with k.otherwise():
            k.store(y, k.global_id(), count.get() - 7)
            k.return_()
        count.set(count.get() + own)
    with k.otherwise():
        with k.when(own.eq(7)):
            k.return_()
        count.set(100)
    k.store(y, k.global_id(), count.get())


def everyone(k: KernelBuilder, x: n.Buffer, y: n.Buffer) -> None:
    k.store(y, k.global_id(), k.load(x, k.global_id()))
    k.return_()


WAYS: tuple[Callable[[KernelBuilder, n.Buffer, n.Buffer], None], ...] = (
    guard, search, whole_groups, regions, both_sides, everyone,
)  # fmt: skip
