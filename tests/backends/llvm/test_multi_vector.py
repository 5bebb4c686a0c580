"""Workgroups of several vectors: barriers anywhere in uniform flow, and values that live across
them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.llvm.machine import Grid, Trap, assert_same_as_evaluator, compiled, host, run
from tetrad.backends.cpu.isa.x86_64 import BASELINE
from tetrad.backends.llvm.module import emit_module, vector_shape
from tetrad.backends.llvm.multi_vector import Uses, parts
from tetrad.core.dtypes import bool_, f32, f64, i32, index
from tetrad.core.errors import CompileError
from tetrad.core.sizes import Dim
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder, Val

WIDE = pytest.mark.parametrize(
    "workgroup", [(65, 1, 1), (100, 1, 1), (128, 1, 1), (16, 16, 1), (32, 3, 2), (9, 9, 1)], ids=str
)
GROUPS = 3


def builder(name: str, workgroup: Grid) -> tuple[KernelBuilder, Val, Val, int]:
    """A builder, the linear lane, the linear invocation, and the lanes."""
    k = KernelBuilder(name, workgroup)
    x, y, z = workgroup
    lane = k.lane(0) + k.lane(1) * x + k.lane(2) * (x * y)
    return k, lane, k.group_id() * (x * y * z) + lane, x * y * z


def normal(count: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(count).normal(size=count).astype(dtype)


@WIDE
def test_values_of_every_kind_outlive_a_barrier(workgroup: Grid) -> None:
    """Varying and uniform; floats, bools and loaded indices; a mask kept as a value."""
    k, lane, at, lanes = builder("outlive", workgroup)
    x, c, y = k.buffer("x", f32), k.buffer("c", i32), k.buffer("y", f32, "write")
    held = k.scratch("held", f32, lanes)
    mine, shared = k.load(x, at), k.load(x, k.group_id())
    positive, where = mine > 0.0, k.cast(k.load(c, at), index)
    k.store(held, lane, mine * shared)
    k.barrier()
    value = k.load(held, where) + k.select(positive, mine, shared)
    k.barrier()
    with k.when(positive):
        k.store(y, at, value)
    with k.otherwise():
        k.store(y, at, k.cast(k.cast(where, i32), f32))
    order = np.concatenate(
        [np.random.default_rng(g).permutation(lanes) for g in range(GROUPS)]
    ).astype(np.int32)
    total = GROUPS * lanes
    arrays = {"x": normal(total), "c": order, "y": np.zeros(total, np.float32)}
    assert_same_as_evaluator(k.finish(), arrays, {}, (GROUPS, 1, 1), checks=("plain", "mask"))


@WIDE
def test_locals_keep_their_value_for_every_invocation(workgroup: Grid) -> None:
    """One that varies, and one that is uniform and must not be counted once per vector."""
    k, lane, at, lanes = builder("locals", workgroup)
    x, y, z = k.buffer("x", f64), k.buffer("y", f64, "write"), k.buffer("z", i32, "write")
    held, total, steps = k.scratch("held", f64, lanes), k.local(k.load(x, at)), k.local(0, i32)
    with k.loop(k.arg("trips")) as i:
        k.store(held, lane, total.get())
        steps.set(steps.get() + 1)
        k.barrier()
        with k.when(lane + i < lanes):
            total.set(total.get() + k.load(held, lane + i))
        k.barrier()
    k.store(y, at, total.get())
    k.store(z, at, steps.get())
    size = GROUPS * lanes
    arrays = {"x": normal(size, np.float64), "y": np.zeros(size), "z": np.zeros(size, np.int32)}
    assert_same_as_evaluator(
        k.finish(), arrays, {"trips": 5}, (GROUPS, 1, 1), checks=("plain", "mask")
    )


@WIDE
def test_private_memory_is_each_invocations_own(workgroup: Grid) -> None:
    """Addresses that are only known when the kernel runs; elements outlive barriers."""
    k, lane, at, lanes = builder("private", workgroup)
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write")
    own, held = k.private("own", f32, 4 * lanes), k.scratch("held", f32, lanes)
    with k.loop(4) as i:
        k.store(own, i * lanes + lane, k.load(x, at) + k.cast(i, f32))
        k.store(held, (lane + i) % lanes, k.load(x, at))
        k.barrier()
    which = k.cast(k.abs(k.load(held, lane)) * 100.0, index) % 4
    k.store(y, at, k.load(own, which * lanes + lane))
    size = GROUPS * lanes
    arrays = {"x": normal(size), "y": np.zeros(size, np.float32)}
    assert_same_as_evaluator(k.finish(), arrays, {}, (GROUPS, 1, 1), checks=("plain", "mask"))


@WIDE
def test_barriers_in_loops_and_branches(workgroup: Grid) -> None:
    """Bounds and conditions from memory, from arguments and from the counter of the loop around."""
    k, lane, at, lanes = builder("nested", workgroup)
    x, y, stops = k.buffer("x", f32), k.buffer("y", f32, "write"), k.buffer("stops", i32)
    held = k.scratch("held", f32, Dim("room", max=4096))
    k.store(held, lane, k.load(x, at))
    stop = k.cast(k.load(stops, k.group_id()), index)
    with k.region("outer"), k.loop(stop, start=1) as i:
        k.barrier()
        shifted = k.local(k.load(held, (lane + i) % lanes))
        with k.when((i % 2).eq(1)):
            k.barrier()
            k.store(held, lane, shifted.get() * 0.5)
            with k.loop(i) as j:
                k.barrier()
                k.store(held, lane, k.load(held, lane) + k.cast(j, f32))
        with k.otherwise():
            k.barrier()
            k.store(held, lane, shifted.get() - 1.0)
    k.barrier()
    k.store(y, at, k.load(held, k.arg("room") - 1 - lane))
    size = GROUPS * lanes
    arrays = {
        "x": normal(size),
        "stops": np.array([5, 0, 8], np.int32),
        "y": np.zeros(size, np.float32),
    }
    assert_same_as_evaluator(
        k.finish(), arrays, {"room": lanes}, (GROUPS, 1, 1), checks=("plain", "mask")
    )


@WIDE
def test_without_barriers_there_is_one_stretch(workgroup: Grid) -> None:
    k, _, at, lanes = builder("plain", workgroup)
    x, y, size = k.buffer("x", bool_), k.buffer("y", f32, "write"), k.arg("n")
    with k.when(at < size):
        k.store(y, at, k.cast(k.load(x, at), f32) + k.cast(k.lane(1), f32))
    program = k.finish()
    assert len(list(parts(program.body))) == 1
    count = GROUPS * lanes - 7
    arrays = {"x": normal(count) > 0, "y": np.zeros(count, np.float32)}
    assert_same_as_evaluator(
        program, arrays, {"n": count}, (GROUPS, 1, 1), checks=("plain", "mask")
    )


def test_a_trap_in_a_later_vector_names_its_value() -> None:
    k, lane, at, _ = builder("trapping", (100, 1, 1))
    y = k.buffer("y", f32, "write")
    k.store(y, at, 1.0)
    k.barrier()
    k.trap(lane.eq(97), 5, at * 2)
    program = k.finish()
    (address,) = compiled([program], host())
    with pytest.raises(Trap) as trap:
        run(address, program, {"y": np.zeros(200, np.float32)}, {}, (2, 1, 1))
    assert (trap.value.code, trap.value.value) == (3 << 16 | 5, 194)


def test_addresses_stay_vector_accesses_across_barriers() -> None:
    """Rows of 16 in two dimensions: no gather, no scatter."""
    k, lane, at, _ = builder("tile", (16, 16, 1))
    x, y, held = k.buffer("x", f32), k.buffer("y", f32, "write"), k.scratch("held", f32, 256)
    k.store(held, lane, k.load(x, at))
    k.barrier()
    k.store(y, at, k.load(held, (k.lane(1) * 16 + k.lane(0))))
    text = emit_module({"tile": k.finish()}, host())
    assert "gather" not in text and "scatter" not in text and "masked" not in text


def test_shared_addresses_are_computed_once() -> None:
    """A chain of doublings used after a barrier: linear in its length, not exponential."""
    k, lane, at, _ = builder("chain", (128, 1, 1))
    y, value = k.buffer("y", f32, "write"), lane
    for _ in range(30):
        value = value + value
    k.barrier()
    k.store(y, k.min(value, at), 1.0)
    program = k.finish()
    assert len(Uses(program.body).outliving) < 60
    assert len(emit_module({"chain": program}, host())) < 20_000


def test_too_much_to_keep_is_refused() -> None:
    k, _, at, _ = builder("greedy", (4096, 1, 1))
    x, y = k.buffer("x", f64), k.buffer("y", f64, "write")
    values = [k.load(x, at + i) for i in range(40)]
    k.barrier()
    for value in values:
        k.store(y, at, value)
    with pytest.raises(CompileError, match="greedy: keeps 1310720 bytes of values across barriers"):
        emit_module({"greedy": k.finish()}, host())


def shuffled(lanes: int) -> n.Program:
    k = KernelBuilder("shuffled", lanes)
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write")
    k.store(y, k.lane(), k.rotate(k.load(x, k.lane()), 5))
    return k.finish()


@pytest.mark.parametrize(
    ("lanes", "shape"),
    [(1, (1, 1)), (3, (4, 1)), (16, (16, 1)), (64, (64, 1)), (65, (16, 5)), (256, (16, 16))],
)
def test_the_shape_of_vectors(lanes: int, shape: tuple[int, int]) -> None:
    assert vector_shape(KernelBuilder("empty", lanes).finish()) == shape


@pytest.mark.parametrize("lanes", [65, 100, 256])
def test_lanes_that_are_exchanged_stay_in_one_vector(lanes: int) -> None:
    program = shuffled(lanes)
    assert vector_shape(program) == (1 << (lanes - 1).bit_length(), 1)
    assert_same_as_evaluator(
        program, {"x": normal(lanes), "y": np.zeros(lanes, np.float32)}, {}, checks=("plain",)
    )


def test_a_wide_reduction_is_small_on_a_machine_without_masks() -> None:
    k, lane, at, _ = builder("sum", (1024, 1, 1))
    x, y, held, half = (
        k.buffer("x", f32),
        k.buffer("y", f32, "write"),
        k.scratch("held", f32, 1024),
        512,
    )
    k.store(held, lane, k.load(x, at))
    while half:
        k.barrier()
        with k.when(lane < half):
            k.store(held, lane, k.load(held, lane) + k.load(held, lane + half))
        half //= 2
    k.barrier()
    k.store(y, k.group_id(), k.load(held, 0))
    assert len(emit_module({"sum": k.finish()}, BASELINE, "mask")) < 200_000
