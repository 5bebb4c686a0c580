"""dispatch: workgroups of every shape against the evaluator, the contract of inputs and outputs,
and every error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tetrad as td
from tests.kernel.programs import arrays_of, programs
from tetrad.backends.cpu.memory import Storage
from tetrad.core.dtypes import bool_, f32, f64, i32, i64, index, u8, u32
from tetrad.core.errors import BackendError, BadInputs, BoundsError, Rejected, TrapError
from tetrad.core.sizes import Dim
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.grids.infer import infer_grid

Grid = tuple[int, int, int]
WORKGROUPS = [
    (1, 1, 1),
    (3, 1, 1),
    (16, 1, 1),
    (64, 1, 1),
    (100, 1, 1),
    (256, 1, 1),
    (8, 4, 1),
    (5, 3, 2),
    (16, 16, 1),
]
SHAPED = pytest.mark.parametrize("workgroup", WORKGROUPS, ids=str)
GRIDS = [(1, 1, 1), (3, 1, 1), (2, 3, 1), (2, 2, 3)]


def assert_same(
    program: n.Program, inputs: Sequence[bytes], grid: Grid, args: Mapping[str, int] | None = None
) -> None:
    arrays = arrays_of(program, inputs, args or {})
    evaluate(program, arrays, args or {}, grid)
    want = [arrays[b.name].tobytes() for b in program.buffers if b.is_written]
    assert td.dispatch(program, inputs, grid, args=args) == want


def numbers(count: int, dtype: type = np.float32) -> bytes:
    return np.random.default_rng(count).normal(size=count).astype(dtype).tobytes()


def linear_lane(k: KernelBuilder) -> Val:
    x, y, _ = k.workgroup
    return k.lane(0) + k.lane(1) * x + k.lane(2) * (x * y)


# -- workgroups and grids --------------------------------------------------------------------------


@SHAPED
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_every_invocation_knows_who_it_is(workgroup: Grid, grid: Grid) -> None:
    k = KernelBuilder("who", workgroup)
    groups, lanes = grid[0] * grid[1] * grid[2], workgroup[0] * workgroup[1] * workgroup[2]
    y = k.buffer("y", i32, "write", groups * lanes)
    group = k.group_id(0) + k.group_id(1) * grid[0] + k.group_id(2) * (grid[0] * grid[1])
    ids = [k.group_id(a) for a in range(3)] + [k.lane(a) for a in range(3)]
    code = k.index(0)
    for part in ids:
        code = code * 20 + part
    k.store(y, group * lanes + linear_lane(k), k.cast(code, i32))
    assert_same(k.finish(), [], grid)


@SHAPED
def test_scratch_and_barriers(workgroup: Grid) -> None:
    """A tree over the workgroup, and every lane reads what another one left."""
    k = KernelBuilder("tree", workgroup)
    lanes = workgroup[0] * workgroup[1] * workgroup[2]
    x, y, z = (
        k.buffer("x", f32),
        k.buffer("y", f32, "write", 4),
        k.buffer("z", f32, "write", 4 * lanes),
    )
    held, lane = k.scratch("held", f32, lanes), linear_lane(k)
    k.store(held, lane, k.load(x, k.group_id() * lanes + lane))
    k.barrier()
    k.store(z, k.group_id() * lanes + lane, k.load(held, k.index(lanes - 1) - lane))
    width = lanes
    while width > 1:
        half = (width + 1) // 2
        k.barrier()
        with k.when(lane < width // 2):
            k.store(held, lane, k.load(held, lane) + k.load(held, lane + half))
        width = half
    k.barrier()
    with k.when(lane.eq(0)):
        k.store(y, k.group_id(), k.load(held, 0))
    assert_same(k.finish(), [numbers(4 * lanes)], (4, 1, 1))


@SHAPED
def test_branches_loops_and_locals(workgroup: Grid) -> None:
    k = KernelBuilder("mixed", workgroup)
    lanes = workgroup[0] * workgroup[1] * workgroup[2]
    x, y, trips = k.buffer("x", f64), k.buffer("y", f64, "readwrite"), k.arg("trips")
    at = k.group_id() * lanes + linear_lane(k)
    total = k.local(k.load(y, at))
    with k.loop(trips) as i:
        value = k.load(x, at)
        with k.when(value < k.cast(i, f64) * 0.5):
            total.set(k.fma(value, total, 1.0))
        with k.otherwise():
            total.set(total.get() - value)
    k.store(y, at, total.get())
    assert_same(
        k.finish(),
        [numbers(3 * lanes, np.float64), numbers(3 * lanes, np.float64)],
        (3, 1, 1),
        {"trips": 4},
    )


@SHAPED
def test_gathers_between_invocations_of_a_group(workgroup: Grid) -> None:
    """Positions from data, stores in another order, without scratch."""
    k = KernelBuilder("permute", workgroup)
    lanes = workgroup[0] * workgroup[1] * workgroup[2]
    x, at, y = k.buffer("x", u32), k.buffer("at", i64), k.buffer("y", u32, "write", 2 * lanes)
    i = k.group_id() * lanes + linear_lane(k)
    k.store(y, k.cast(k.load(at, i), index), k.load(x, i) ^ 0x55)
    order = np.random.default_rng(1).permutation(2 * lanes).astype(np.int64)
    assert_same(k.finish(), [numbers(2 * lanes), order.tobytes()], (2, 1, 1))


def test_a_grid_of_several_axes_means_the_same_to_a_program_that_looks_at_one() -> None:
    """Workgroups that differ only in y and z have the same x."""
    k = KernelBuilder("x only", 4)
    y = k.buffer("y", i32, "write", 12)
    k.store(y, k.global_id(), k.cast(k.global_id() * 3, i32))
    assert_same(k.finish(), [], (3, 2, 2))


@settings(max_examples=60)
@given(program=programs())
def test_random_programs(program: n.Program) -> None:
    """Random programs read scratch only where they wrote it: nowhere."""
    args = (
        {"n": 4, "seq": 3}
        if any(b.count is not None and not isinstance(b.count, int) for b in program.buffers)
        else {"n": 4}
    )
    x, y = np.linspace(-3, 40, 192).astype(np.float32), np.zeros(64, np.float32)
    arrays = {"x": x, "y": y.copy()}
    evaluate(program, arrays, args, (1, 1, 1))
    (got,) = td.dispatch(program, [x.tobytes(), y.tobytes()], (1, 1, 1), args=args)
    found = np.frombuffer(got, np.float32)
    same = (found.view(np.uint32) == arrays["y"].view(np.uint32)) | (
        np.isnan(found) & np.isnan(arrays["y"])
    )
    assert same.all()


# -- memory ----------------------------------------------------------------------------------------


def test_out_of_range_loads_give_zero_and_stores_do_nothing() -> None:
    k = KernelBuilder("shift", 16)
    x, y = k.buffer("x", i32, count=8), k.buffer("y", i32, "write", 8)
    k.store(y, k.global_id() - 3, k.load(x, k.global_id()) + 1)
    (got,) = td.dispatch(k.finish(), [np.arange(8, dtype=np.int32).tobytes()], (2, 1, 1))
    assert np.frombuffer(got, np.int32).tolist() == [4, 5, 6, 7, 8, 1, 1, 1]


@pytest.mark.parametrize("at", [-1, 5, 2**62, -(2**62)])
def test_uniform_addresses_and_scratch_are_checked_too(at: int) -> None:
    k = KernelBuilder("outside", 16)
    x, y, s, where = (
        k.buffer("x", f32, count=5),
        k.buffer("y", f32, "write", 16),
        k.scratch("s", f32, 5),
        k.arg("at"),
    )
    k.store(s, k.lane() + where, 7.0)
    k.store(s, where, 9.0)
    k.barrier()
    z = k.buffer("z", f32, "readwrite", 5)
    k.store(z, where, 3.0)
    k.store(
        y,
        k.lane(),
        k.load(x, where) + k.load(s, where) + k.load(z, where) + k.load(s, k.lane() + 5),
    )
    got = td.dispatch(k.finish(), [numbers(5), numbers(5)], (1, 1, 1), args={"at": at})
    assert got == [bytes(64), numbers(5)]


def test_scratch_starts_as_zeros_in_every_workgroup() -> None:
    k = KernelBuilder("fresh", 8)
    s, y, size = (
        k.scratch("s", i32, Dim("size", max=64)),
        k.buffer("y", i32, "write", 64),
        k.arg("size"),
    )
    with k.when(k.cast(k.lane(), i32) < 8):
        k.store(y, k.global_id(), k.load(s, k.lane()) + k.cast(size, i32))
    k.store(s, k.lane(), 99)
    (got,) = td.dispatch(k.finish(), [], (8, 1, 1), args={"size": 32})
    assert np.frombuffer(got, np.int32).tolist() == [32] * 64


def test_write_buffers_start_as_zeros_and_readwrite_ones_as_given() -> None:
    k = KernelBuilder("nothing", 1)
    k.buffer("a", u8, "write", 3)
    k.buffer("b", u8, "readwrite", 3)
    assert td.dispatch(k.finish(), [b"abcd"]) == [bytes(3), b"abcd"]


def test_division_by_an_index_that_is_zero_does_no_harm() -> None:
    k = KernelBuilder("divide", 16)
    x, y, by = k.buffer("x", i64, count=16), k.buffer("y", i64, "write", 16), k.arg("by")
    varying, uniform = k.cast(k.load(x, k.lane()), index), k.group_id() + 7
    k.store(y, k.lane(), k.cast(varying % varying + uniform // by + varying // by, i64))
    program, zeros = k.finish(), np.zeros(16, np.int64)
    (harmless,) = td.dispatch(program, [zeros.tobytes()], (1, 1, 1), args={"by": 0})
    assert len(harmless) == zeros.nbytes
    with pytest.raises(BoundsError, match="divide: index mod of 0 by 0: needs >= 0 by > 0"):
        evaluate(program, {"x": zeros, "y": zeros.copy()}, {"by": 0}, grid=(1, 1, 1))


def test_bools_are_bytes_and_any_but_zero_is_true() -> None:
    k = KernelBuilder("flags", 4)
    x, y = k.buffer("x", bool_, count=4), k.buffer("y", bool_, "write", 4)
    k.store(y, k.lane(), k.load(x, k.lane()))
    assert td.dispatch(k.finish(), [bytes([0, 1, 2, 255])]) == [bytes([0, 1, 1, 1])]


def test_odd_names_do_not_reach_llvm() -> None:
    k = KernelBuilder('k"\n}', 4)
    x, y = k.buffer('in "x"\n', f32, count=4), k.buffer("größe %0", f32, "write", 4)
    with k.region("a\ndefine void @evil()"):
        k.store(y, k.lane(), k.load(x, k.lane()) + k.cast(k.arg("n m"), f32))
    data = np.arange(4, dtype=np.float32)
    assert td.dispatch(k.finish(), [data.tobytes()], args={"n m": 2}) == [(data + 2).tobytes()]


# -- inputs ----------------------------------------------------------------------------------------


def scale(count: int | None = 4) -> n.Program:
    k = KernelBuilder("scale", 16)
    x, y, z = (
        k.buffer("x", f32, count=count),
        k.buffer("y", f32, "write", 4),
        k.buffer("z", f32, "readwrite", 4),
    )
    k.store(y, k.global_id(), k.load(x, k.global_id()) * 2.0)
    k.store(z, k.global_id(), k.load(z, k.global_id()) + 1.0)
    return k.finish()


def floats(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


def test_inputs_are_what_is_read_and_outputs_what_is_written() -> None:
    got = td.dispatch(scale(), [floats(1, 2, 3, 4), floats(5, 6, 7, 8)])
    assert got == [floats(2, 4, 6, 8), floats(6, 7, 8, 9)]


def test_placeholders_for_written_buffers_are_ignored() -> None:
    got = td.dispatch(scale(), [floats(1, 2, 3, 4), b"ignored", floats(5, 6, 7, 8)])
    assert got == [floats(2, 4, 6, 8), floats(6, 7, 8, 9)]


def test_inputs_may_be_longer_and_of_any_buffer_type() -> None:
    long = np.arange(9, dtype=np.float32)
    (y, z) = td.dispatch(scale(), [memoryview(long), bytearray(floats(5, 6, 7, 8, 99))], (1, 1, 1))
    assert y == floats(0, 2, 4, 6)
    assert z == floats(6, 7, 8, 9, 99)


def test_without_a_count_the_input_says_how_long_it_is() -> None:
    got = td.dispatch(scale(None), [floats(1, 2), floats(5, 6, 7, 8)])
    assert got[0] == floats(2, 4, 0, 0)


def symbolic() -> n.Program:
    k = KernelBuilder("symbolic", 16)
    size = Dim("size", max=1 << 20)
    y = k.buffer("y", i32, "write", size * 2)
    k.store(y, k.global_id(), k.cast(k.global_id(), i32))
    return k.finish()


def test_sizes_may_come_from_arguments() -> None:
    assert td.dispatch(symbolic(), [], args={"size": 3}) == [np.arange(6, dtype=np.int32).tobytes()]
    assert td.dispatch(symbolic(), [], args={"size": 0}) == [b""]
    # nothing to write to, and no harm
    assert td.dispatch(symbolic(), [], (2, 1, 1), args={"size": 0}) == [b""]


@pytest.mark.parametrize(
    ("program", "inputs", "options", "code", "match"),
    [
        (scale(), [floats(1)], {}, "D001", r"scale: takes 2 inputs \(x, z\), got 1"),
        (scale(), [b""] * 4, {}, "D001", "got 4"),
        (
            scale(),
            [floats(1, 2, 3), floats(1, 2, 3, 4)],
            {},
            "D002",
            "buffer x needs 16 bytes, got 12",
        ),
        (
            scale(None),
            [b"12345", floats(1, 2, 3, 4)],
            {},
            "D003",
            "buffer x got 5 bytes, no whole number of f32",
        ),
        (symbolic(), [], {}, "D004", r"y is only written, so its size must be known, not 2\*size"),
        (symbolic(), [], {"args": {"size": 2**62}}, "D004", "would take"),
        (symbolic(), [], {"args": {"size": -1}}, "D004", "size = -1 is negative"),
        (symbolic(), [], {}, "D004", r"hint: args=\{'size': ...\}"),
        (symbolic(), [], {"args": {"sze": 64}}, "D005", "no argument 'sze'; it has size"),
        (
            symbolic(),
            [],
            {"args": {"size": 1, "other": 2}},
            "D005",
            "there is no argument 'other'; it has size",
        ),
        (
            scale(),
            [floats(1, 2, 3, 4)] * 2,
            {"grid": (1, 1)},
            "D006",
            "three numbers of workgroups",
        ),
        (
            scale(),
            [floats(1, 2, 3, 4)] * 2,
            {"grid": (1, -1, 1)},
            "D006",
            "three numbers of workgroups",
        ),
        (
            scale(),
            [floats(1, 2, 3, 4)] * 2,
            {"grid": (2**40, 2**40, 1)},
            "D006",
            "invocations, more than",
        ),
    ],
)
def test_bad_inputs_are_refused(
    program: n.Program, inputs: list[bytes], options: dict[str, object], code: str, match: str
) -> None:
    with pytest.raises(BadInputs, match=match) as error:
        td.dispatch(program, inputs, **options)  # type: ignore[arg-type]
    assert error.value.code == code


@pytest.mark.parametrize("grid", [5, "abc", (1, 1, [1]), (1.0, 1, 1), (True, 1, 1), (1, 1, None)])
def test_a_grid_that_is_none_is_refused(grid: Any) -> None:
    with pytest.raises(BadInputs, match="three numbers of workgroups") as error:
        td.dispatch(scale(), [floats(1, 2, 3, 4)] * 2, grid)
    assert error.value.code == "D006"


def test_what_numbers_and_inputs_may_be() -> None:
    want = [floats(2, 4, 6, 8), floats(6, 7, 8, 9)]
    given = (x for x in (floats(1, 2, 3, 4), floats(5, 6, 7, 8)))
    assert td.dispatch(scale(), given, [np.int64(1), 1, 1]) == want  # type: ignore[arg-type]


def needing_args() -> n.Program:
    k = KernelBuilder("needing", 1)
    s, y = k.scratch("s", f64, Dim("size", max=1 << 40)), k.buffer("y", f64, "write", 1)
    k.store(s, k.arg("size") - 1, 1.0)
    k.store(y, k.arg("at"), k.load(s, 0))
    return k.finish()


@pytest.mark.parametrize(
    ("args", "code", "match"),
    [
        (None, "D005", "no value for argument 'size'"),
        ({"size": 1}, "D005", "no value for argument 'at'"),
        ({"size": 1, "at": 2**63}, "D005", "leaves 64 bits"),
        ({"size": 0, "at": 0}, "D004", "scratch of a workgroup is at least 1 element"),
        ({"size": 2**39, "at": 0}, "D004", "at most 67108864 bytes"),
    ],
)
def test_bad_arguments_are_refused(args: dict[str, int] | None, code: str, match: str) -> None:
    with pytest.raises(BadInputs, match=match) as error:
        td.dispatch(needing_args(), [], args=args)
    assert error.value.code == code


@pytest.mark.parametrize("grid", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_an_empty_grid_leaves_its_output_unwritten(grid: tuple[int, int, int]) -> None:
    with pytest.raises(BadInputs, match=r"leaves y unwritten, it has 4 elements") as error:
        td.dispatch(scale(), [floats(1, 2, 3, 4), floats(5, 6, 7, 8)], grid)
    assert error.value.code == "D006" and error.value.hint


def test_an_empty_grid_is_right_for_an_output_without_elements_or_one_that_keeps_what_it_held() -> (
    None
):
    k = KernelBuilder("kept", 4)
    y = k.buffer("y", f32, "readwrite")
    k.store(y, k.global_id(), 1.0)
    assert td.dispatch(k.finish(), [floats(1, 2)], (0, 1, 1)) == [floats(1, 2)]
    size = td.Dim("size")
    k = KernelBuilder("none", 4)
    x, y = k.buffer("x", f32, count=size), k.buffer("y", f32, "write", count=size)
    k.store(y, k.global_id(), k.load(x, k.global_id()))
    assert td.dispatch(k.finish(), [b""], (0, 1, 1), args={"size": 0}) == [b""]


def starting_at(first: int, returns: bool = False, count: int = 16) -> n.Program:
    """y[i] = 1 for i from `first` on."""
    k = KernelBuilder("late", 16)
    y = k.buffer("y", f32, "write", count)
    if returns:
        with k.when(k.global_id() < first):
            k.return_()
        k.store(y, k.global_id(), 1.0)
    else:
        with k.when(k.global_id() >= first):
            k.store(y, k.global_id(), 1.0)
    return k.finish()


@pytest.mark.parametrize("returns", [False, True])
def test_a_condition_that_leaves_out_the_first_elements_is_an_error(returns: bool) -> None:
    with pytest.raises(BadInputs, match=r"writes y from element 8 on, a condition") as error:
        td.dispatch(starting_at(8, returns), [], (1, 1, 1))
    assert error.value.code == "D006"
    assert td.dispatch(starting_at(0, returns), [], (1, 1, 1)) == [floats(*[1] * 16)]


def test_both_arms_of_a_condition_count() -> None:
    k = KernelBuilder("arms", 16)
    y, i = k.buffer("y", f32, "write", 16), k.global_id()
    with k.when(i >= 8):
        k.store(y, i, 1.0)
    with k.when(i < 8):
        k.store(y, i, 2.0)
    assert td.dispatch(k.finish(), [], (1, 1, 1)) == [floats(*[2] * 8, *[1] * 8)]


def test_a_grid_that_begins_at_the_end_and_is_too_small() -> None:
    k = KernelBuilder("backwards", 16)
    y = k.buffer("y", f32, "write", 64)
    k.store(y, 63 - k.global_id(), 1.0)
    with pytest.raises(BadInputs, match=r"writes y from element 32 up to element 63, it has 64"):
        td.dispatch(k.finish(), [], (2, 1, 1))
    assert td.dispatch(k.finish(), [], (4, 1, 1)) == [floats(*[1] * 64)]


def test_a_shifted_index_leaves_zeros() -> None:
    k = KernelBuilder("shifted", 4)
    y = k.buffer("y", f32, "write", 4)
    k.store(y, k.global_id() + 2, 1.0)
    assert td.dispatch(k.finish(), [], (1, 1, 1)) == [floats(0, 0, 1, 1)]


def test_an_invalid_program_is_rejected_with_the_code_of_its_first_problem() -> None:
    k = KernelBuilder("wrong", 4)
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write", 4)
    program = k.finish()
    store = n.Store(x, n.Const(index, 0), n.Const(f32, 1.0))
    bad = n.Program("wrong", (x, y), (), (4, 1, 1), (*program.body, store))
    with pytest.raises(Rejected, match="wrong") as error:
        td.dispatch(bad, [b""])
    assert error.value.code.startswith(("K", "V"))


def test_a_missing_back_end_is_an_error_with_the_ones_there_are() -> None:
    with pytest.raises(BackendError, match=r"no back end 'abacus'(.|\n)*back ends: cpu") as error:
        td.dispatch(scale(), [], backend="abacus")
    assert error.value.code == "1002"


def test_a_trap_tells_its_number_and_value() -> None:
    k = KernelBuilder("picky", 100)
    y = k.buffer("y", f32, "write", 200)
    k.trap(k.global_id().eq(171), 7, k.global_id() * 10)
    k.store(y, k.global_id(), 1.0)
    with pytest.raises(TrapError, match="picky: trap 7, value 1710") as error:
        td.dispatch(k.finish(), [])
    assert (error.value.trap, error.value.value, error.value.code) == (7, 1710, "1005")


def test_no_memory_is_an_error_of_the_back_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(nbytes: int) -> None:
        raise MemoryError

    monkeypatch.setattr(Storage, "allocate", refuse)
    with pytest.raises(BackendError, match="no memory for y, 16 bytes") as error:
        td.dispatch(scale(), [floats(1, 2, 3, 4)] * 2)
    assert error.value.code == "1001"


# -- grids that nobody gave ------------------------------------------------------------------------


def elementwise(
    workgroup: int | Grid = 16, offset: int = 0, axis: int = 0, two: bool = False
) -> n.Program:
    k = KernelBuilder("own", workgroup)
    y, z = k.buffer("y", f32, "write", 40), k.buffer("z", f32, "write", 41 if two else 40)
    k.store(y, k.global_id(axis) + offset, 1.0)
    k.store(z, k.index(k.workgroup[axis]) * k.group_id(axis) + k.lane(axis), 1.0)
    return k.finish()


@pytest.mark.parametrize(
    ("program", "grid"),
    [
        (elementwise(), (3, 1, 1)),
        (elementwise(1), (40, 1, 1)),
        (elementwise(40), (1, 1, 1)),
        (elementwise(offset=1), None),
        (elementwise(axis=1), None),
        (elementwise((16, 2, 1)), None),
        (elementwise(two=True), None),
    ],
)
def test_a_grid_is_found_only_where_the_program_shows_it(
    program: n.Program, grid: Grid | None
) -> None:
    counts = {b: b.count for b in program.buffers if isinstance(b.count, int)}
    assert infer_grid(program, counts) == grid


def test_a_grid_that_cannot_be_told_is_asked_for() -> None:
    with pytest.raises(
        BadInputs, match=r"the grid cannot be told from the program(.|\n)*grid=\(x, y, z\)"
    ) as error:
        td.dispatch(elementwise(offset=1), [])
    assert error.value.code == "D006"


def test_the_evaluator_is_strict_where_dispatch_is_lenient() -> None:
    k = KernelBuilder("beyond", 4)
    x, y = k.buffer("x", f32, count=2), k.buffer("y", f32, "write", 4)
    k.store(y, k.lane(), k.load(x, k.lane()))
    assert td.dispatch(k.finish(), [floats(1, 2)]) == [floats(1, 2, 0, 0)]
    with pytest.raises(BoundsError, match="buffer x has 2 elements, index 2"):
        evaluate(k.finish(), {"x": np.zeros(2, np.float32), "y": np.zeros(4, np.float32)}, {})


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(Rejected, match=r"(?s)expected a program, got a str.*td\.kernel\.parse"):
        td.dispatch("kernel", [])  # type: ignore[arg-type]
