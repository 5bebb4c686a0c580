"""The evaluator finds races: every kind of pair that nothing orders, and no pair that something
does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tetrad.core.dtypes import f32, i32
from tetrad.core.errors import BoundsError, RaceError
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.evaluate import BATCH_LANES, evaluate
from tetrad.kernel.nodes import Buffer
from tetrad.kernel.verify import verify

LANES = 4
Write = Callable[[KernelBuilder, Buffer], Any]


def run(
    write: Write, groups: int = 1, lanes: int = LANES, count: int = 16, space: str = "workgroup"
) -> None:
    """A kernel with one buffer in a space; it must be a valid program."""
    k = KernelBuilder("try", lanes)
    write(k, k.buffer("s", i32, "readwrite" if space == "global" else space, count))
    program = k.finish()
    verify(program)
    memory = {"s": np.zeros(count, np.int32)} if space == "global" else {}
    evaluate(program, memory, {}, (groups, 1, 1), races=True)


def one(k: KernelBuilder) -> Any:
    return k.const(1, i32)


def own(k: KernelBuilder, s: Buffer) -> None:
    """Every invocation writes its element."""
    k.store(s, k.lane(), k.cast(k.lane(), i32))


def neighbour(k: KernelBuilder) -> Any:
    return (k.lane() + 1) % LANES


# -- a pair of accesses, each kind with and without a barrier --------------------------------------

FIRST: dict[str, Write] = {
    "own write": own,
    "own read": lambda k, s: k.load(s, k.lane()),
    "uniform write": lambda k, s: k.store(s, 1, one(k)),
    "uniform read": lambda k, s: k.load(s, 1),
}
SECOND: dict[str, Write] = {
    "write beside": lambda k, s: k.store(s, neighbour(k), one(k)),
    "read beside": lambda k, s: k.load(s, neighbour(k)),
    "uniform write": lambda k, s: k.store(s, 1, one(k)),
    "uniform read": lambda k, s: k.load(s, 1),
}
FINE = {  # nobody writes, or everybody reads what everybody wrote
    ("own read", "read beside"),
    ("own read", "uniform read"),
    ("uniform read", "read beside"),
    ("uniform read", "uniform read"),
    ("uniform write", "read beside"),
    ("uniform write", "uniform read"),
}
PAIRS = [(a, b) for a in FIRST for b in SECOND]


@pytest.mark.parametrize("space", ["workgroup", "global"])
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_pair_races_unless_a_barrier_orders_it(first: str, second: str, space: str) -> None:
    def write(k: KernelBuilder, s: Buffer, wait: bool) -> None:
        FIRST[first](k, s)
        if wait:
            k.barrier()
        SECOND[second](k, s)

    run(lambda k, s: write(k, s, True), space=space)
    if (first, second) in FINE:
        run(lambda k, s: write(k, s, False), space=space)
        return
    with pytest.raises(RaceError, match="with no barrier between"):
        run(lambda k, s: write(k, s, False), space=space)


def test_an_invocation_may_do_with_its_own_element_what_it_likes() -> None:
    def write(k: KernelBuilder, s: Buffer) -> None:
        own(k, s)
        k.store(s, k.lane(), k.load(s, k.lane()) + 1)
        k.store(s, k.lane(), one(k))

    run(write)


def test_reads_of_two_invocations_both_count() -> None:
    def write(k: KernelBuilder, s: Buffer) -> None:
        k.load(s, k.lane())
        with k.when(k.lane() < 1):
            k.load(s, k.lane() + 1)
        k.store(s, k.lane(), one(k))  # invocation 1 writes what 0 may not have read yet

    with pytest.raises(
        RaceError, match="1 of buffer s is read by several invocations and written by invocation 1 "
    ):
        run(write)


def test_a_reader_before_a_barrier_is_forgotten() -> None:
    def write(k: KernelBuilder, s: Buffer) -> None:
        k.load(s, neighbour(k))
        k.barrier()
        k.load(s, k.lane())
        k.store(s, k.lane(), one(k))

    run(write)


# -- one instruction -------------------------------------------------------------------------------


def test_two_invocations_store_to_one_element_at_once() -> None:
    with pytest.raises(
        RaceError, match=r"element 0 of buffer s .* at the same time(.|\n)*element of its own"
    ):
        run(lambda k, s: k.store(s, k.lane() // 2, one(k)))


def test_stores_of_the_same_bits_may_meet_where_that_is_promised() -> None:
    run(lambda k, s: k.store(s, k.lane() // 2, one(k), "same"))
    run(lambda k, s: k.store(s, 0, one(k), "same"), groups=3, space="global")
    with pytest.raises(RaceError, match="at the same time"):
        run(lambda k, s: k.store(s, k.lane() // 2, k.cast(k.lane(), i32), "same"))

    def twice(k: KernelBuilder, s: Buffer, second: int) -> None:
        k.store(s, k.lane(), one(k), "same")
        k.store(s, neighbour(k), k.const(second, i32), "same")

    run(lambda k, s: twice(k, s, 1))
    with pytest.raises(RaceError, match="written by"):
        run(lambda k, s: twice(k, s, 2))


def test_who_did_not_write_must_not_read_what_several_wrote_alike() -> None:
    def write(k: KernelBuilder, s: Buffer) -> None:
        k.store(s, k.lane() // 2, one(k), "same")
        k.load(s, neighbour(k))

    with pytest.raises(RaceError, match="written by several invocations and read"):
        run(write)


# -- masks -----------------------------------------------------------------------------------------


def test_only_active_invocations_count() -> None:
    def write(k: KernelBuilder, s: Buffer) -> None:
        with k.when(k.lane() < 2):
            k.store(s, k.lane(), one(k))
        with k.when(k.lane() >= 2):
            k.load(s, k.lane())

    run(write)


@pytest.mark.parametrize(("active", "races"), [(1, False), (2, True), (LANES, False)])
def test_a_uniform_store_under_a_mask(active: int, races: bool) -> None:
    """One invocation may read its own store back; some of them may not, all may."""

    def write(k: KernelBuilder, s: Buffer) -> None:
        with k.when(k.lane() < active):
            k.store(s, 0, one(k))
            k.load(s, 0)

    if races:
        with pytest.raises(RaceError, match="written by several invocations"):
            run(write)
    else:
        run(write)


def test_a_store_of_some_is_no_store_of_the_others() -> None:
    def write(k: KernelBuilder, s: Buffer) -> None:
        with k.when(k.lane() < 1):
            k.store(s, 0, one(k))
        k.load(s, 0)

    with pytest.raises(RaceError, match="written by invocation 0 and read by every invocation"):
        run(write)


# -- barriers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [True, False])
def test_a_barrier_in_a_loop_with_a_trip_count_for_each_workgroup(waits: bool) -> None:
    def write(k: KernelBuilder, s: Buffer) -> None:
        with k.loop(k.group_id() + 2) as i:
            k.store(s, (k.lane() + i) % LANES, one(k))
            if waits:
                k.barrier()

    if waits:
        run(write, groups=3)
        return
    with pytest.raises(RaceError):
        run(write, groups=3)


def test_a_barrier_of_one_workgroup_does_not_order_another() -> None:
    """Workgroup 1 skips the loop with the barrier, and races."""

    def write(k: KernelBuilder, s: Buffer) -> None:
        own(k, s)
        with k.loop(1 - k.group_id()):
            k.barrier()
        k.load(s, neighbour(k))

    run(write, groups=1)
    with pytest.raises(RaceError, match=r"workgroup \(1, 0, 0\)"):
        run(write, groups=2)


# -- workgroups ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, LANES])
@pytest.mark.parametrize("second", ["read", "write"])
def test_nothing_orders_workgroups(lanes: int, second: str) -> None:
    def write(k: KernelBuilder, s: Buffer) -> None:
        with k.when(k.group_id().eq(0)):
            k.store(s, 3, one(k))
        k.barrier()
        with k.when(k.group_id().eq(1)):
            if second == "read":
                k.load(s, 3)
            else:
                k.store(s, 3, one(k))

    run(write, groups=1, lanes=lanes, space="global")
    how = {"read": "read", "write": "written"}[second]
    with pytest.raises(
        RaceError, match=f"written by another workgroup and {how}(.|\n)*read in a later one"
    ):
        run(write, groups=2, lanes=lanes, space="global")


def test_an_element_that_several_workgroups_read_is_written_by_none() -> None:
    def write(k: KernelBuilder, s: Buffer) -> None:
        k.load(s, 0)
        k.barrier()
        with k.when(k.group_id().eq(2)):
            k.store(s, 0, one(k))

    with pytest.raises(RaceError, match="read by another workgroup and written"):
        run(write, groups=3, space="global")


def test_workgroups_of_a_later_batch_count() -> None:
    many = BATCH_LANES // LANES + 1
    with pytest.raises(RaceError, match=rf"workgroup \({many - 1}, 0, 0\)"):
        run(
            lambda k, s: k.store(s, k.group_id() % (many - 1), one(k)),
            groups=many,
            count=many,
            space="global",
        )


def test_scratch_is_each_workgroups_own_and_fresh() -> None:
    many = BATCH_LANES // LANES + 2
    run(own, groups=many)


def test_one_invocation_never_races_with_itself() -> None:
    def write(k: KernelBuilder, s: Buffer) -> None:
        with k.loop(3) as i:
            k.store(s, i, k.load(s, i) + 1)
            k.store(s, 0, k.load(s, i))

    run(write, lanes=1, groups=3)


# -- private memory --------------------------------------------------------------------------------


def test_private_elements_are_the_own_ones() -> None:
    def write(k: KernelBuilder, s: Buffer) -> None:
        with k.loop(3) as i:
            k.store(s, i * LANES + k.lane(), one(k))
            k.load(s, i * LANES + k.lane())

    run(write, space="private", groups=2)
    with pytest.raises(
        BoundsError,
        match=r"private, index 1 is that of invocation 1\n  in .* invocation \(0, 0, 0\)",
    ):
        run(lambda k, s: k.load(s, neighbour(k)), space="private")
    with pytest.raises(BoundsError, match="buffer s is private, index 0 is that of invocation 0"):
        run(lambda k, s: k.store(s, 0, one(k)), space="private")


# -- words -----------------------------------------------------------------------------------------


def test_the_message_says_who_what_and_where() -> None:
    def write(k: KernelBuilder, s: Buffer) -> None:
        own(k, s)
        with k.region("softmax"):
            k.load(s, neighbour(k))

    with pytest.raises(RaceError) as caught:
        run(write, groups=2)
    assert str(caught.value) == (
        "try: element 1 of buffer s is written by invocation 1 and read by invocation 0 with no "
        "barrier between\n"
        "  in region softmax, workgroup (0, 0, 0), invocation (0, 0, 0)\n"
        "  hint: put k.barrier() between the two"
    )


def test_races_are_looked_for_where_asked() -> None:
    k = KernelBuilder("try", LANES)
    s, y = k.scratch("s", f32, LANES), k.buffer("y", f32, "write")
    k.store(s, k.lane(), k.cast(k.lane(), f32))
    k.store(y, k.lane(), k.load(s, neighbour(k)))
    out = np.zeros(LANES, np.float32)
    evaluate(k.finish(), {"y": out}, {})
    assert out.tolist() == [1, 2, 3, 0]


# -- atomics ---------------------------------------------------------------------------------------


def count(k: KernelBuilder, s: Buffer) -> None:
    k.atomic("add", s, 1, one(k))


def test_atomics_may_meet_in_a_workgroup_and_between_workgroups() -> None:
    def write(k: KernelBuilder, s: Buffer) -> None:
        count(k, s)
        k.atomic("max", s, k.lane() // 2, one(k))

    run(write, groups=3, space="global")


@pytest.mark.parametrize("atomic_first", [True, False])
@pytest.mark.parametrize("plain", SECOND)
def test_an_atomic_and_a_plain_access_race_unless_a_barrier_orders_them(
    plain: str, atomic_first: bool
) -> None:
    def write(k: KernelBuilder, s: Buffer, wait: bool) -> None:
        steps = [count, SECOND[plain]] if atomic_first else [SECOND[plain], count]
        steps[0](k, s)
        if wait:
            k.barrier()
        steps[1](k, s)

    run(lambda k, s: write(k, s, True), space="global")
    with pytest.raises(RaceError, match="changed atomically") as caught:
        run_unverified(lambda k, s: write(k, s, False))
    assert "put k.barrier() between the two" in str(caught.value)


def test_a_barrier_does_not_order_an_atomic_and_another_workgroup() -> None:
    def write(k: KernelBuilder, s: Buffer) -> None:
        count(k, s)
        k.barrier()
        k.load(s, 1)

    run(write, space="global")
    with pytest.raises(RaceError, match="no workgroup waits for another"):
        run(write, groups=2, space="global")


def run_unverified(write: Write) -> None:
    k = KernelBuilder("try", LANES)
    write(k, k.buffer("s", i32, "readwrite", 16))
    evaluate(k.finish(), {"s": np.zeros(16, np.int32)}, {}, races=True)
