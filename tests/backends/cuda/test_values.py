"""What the text computes: PTX of every instruction, of every registered kernel and of kernels of
graphs, on the simulator, against the evaluator and written answers, to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.backends.cuda import simulator
from tests.backends.cuda.fake_driver import FakeCuda
from tests.backends.cuda.graphs import GRAPHS, data_of, lowered
from tests.backends.cuda.running import launch, run
from tests.backends.cuda.simulator import SimulationError, simulate
from tests.backends.llvm.cases import FAMILIES
from tetrad.backends import BACKENDS
from tetrad.backends.cuda.backend import CudaBackend
from tetrad.backends.cuda.predicate import predicate_votes
from tetrad.backends.cuda.ptx import emission, ptx
from tetrad.backends.cuda.targets import architecture_named
from tetrad.core.dtypes import f32, i32, index
from tetrad.core.sizes import Dim
from tetrad.kernel import nodes as n
from tetrad.kernel import registry
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.evaluate import KernelTrap, evaluate
from tetrad.kernel.harness import check
from tetrad.kernel.verify import verify
from tetrad.schedule import evaluate as schedules

Arrays = Mapping[str, np.ndarray]


def assert_same(
    program: n.Program,
    arrays: Arrays,
    args: Mapping[str, int],
    grid: tuple[int, int, int] = (1, 1, 1),
    arch: str = "sm_90",
    check: str = "mask",
) -> None:
    """The simulator gives the bits of the evaluator, NaNs apart, or the same trap."""
    wanted = {name: array.copy() for name, array in arrays.items()}
    trap = None
    try:
        evaluate(program, wanted, args, grid)
    except KernelTrap as error:
        trap = error
    if trap is not None:
        with pytest.raises(KernelTrap) as got:
            run(program, arrays, args, grid, arch, check)
        assert got.value.code == trap.code
        return
    for name, array in run(program, arrays, args, grid, arch, check).items():
        assert same_bits(array, wanted[name]), f"{program.name}: {name} on {arch}"


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    same = a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")
    if a.dtype.kind not in "iub":
        with np.errstate(invalid="ignore"):  # signalling NaNs
            same |= np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    return bool(same.all())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_instruction_in_every_form(family: str) -> None:
    """On Hopper; on Turing, which has fewer instructions, where that has another text."""
    for case in FAMILIES[family]():
        assert_same(case.program, case.arrays, case.args, case.grid)
        if body_of(case.program, "sm_75") != body_of(case.program, "sm_90"):
            assert_same(case.program, case.arrays, case.args, case.grid, "sm_75")


def body_of(program: n.Program, arch: str) -> str:
    return ptx(program, arch).partition(".address_size 64")[2]


@pytest.mark.parametrize("entry", list(registry.entries()), ids=lambda entry: entry.id)
def test_a_registered_kernel_passes_the_harness(
    entry: registry.Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written cases, traps among them, and samples of random size, through dispatch, on a device
    that is a simulator."""
    backend = CudaBackend(FakeCuda())
    monkeypatch.setitem(BACKENDS, "cuda", lambda: backend)
    report = check(entry, ["cuda"], samples=3)
    assert report.ok and not [s for s in report.gaps if s.step == "run cuda"], str(report)


@pytest.mark.parametrize("name", GRAPHS)
def test_kernels_of_a_graph(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each as lowering made it for the architecture, without guards. The evaluator looks for races
    as it computes what is wanted."""
    schedule, arrays, arch = lowered(name), data_of(name), architecture_named("sm_90")
    wanted = schedules.evaluate(schedule, arrays, {})

    def simulated(
        program: n.Program, buffers: dict[str, Any], args: Any, grid: Any, races: bool
    ) -> None:
        made = launch(emission(program, arch, "plain"), program, buffers, args, grid)
        for of, array in made.items():
            buffers[of][...] = array

    monkeypatch.setattr(schedules, "evaluate_kernel", simulated)
    got = schedules.evaluate(schedule, arrays, {})
    assert all(same_bits(a, b) for a, b in zip(got, wanted, strict=True))


# -- memory ----------------------------------------------------------------------------------------


def test_loads_out_of_range_give_zero_and_stores_do_nothing() -> None:
    k = KernelBuilder("stray", 8)
    x, at, y = k.buffer("x", i32), k.buffer("at", i32), k.buffer("y", i32, "readwrite")
    place = k.cast(k.load(at, k.lane()), index)
    k.store(y, place, k.load(x, place) + 1)
    arrays = {
        "x": np.arange(10, 14, dtype=np.int32),
        "at": np.array([0, -1, 3, 4, 5, 2**31 - 1, -(2**31), 9], np.int32),
        "y": np.full(6, 7, np.int32),
    }
    assert run(k.finish(), arrays, {})["y"].tolist() == [11, 7, 7, 14, 1, 1]


def test_a_text_without_guards_does_not_survive_them() -> None:
    """So the simulator would see a guard that is missing."""
    k = KernelBuilder("stray", 8)
    x, y = k.buffer("x", i32), k.buffer("y", i32, "write")
    k.store(y, k.lane(), k.load(x, k.lane() + 1))
    arrays = {"x": np.zeros(8, np.int32), "y": np.zeros(8, np.int32)}
    run(k.finish(), arrays, {})
    with pytest.raises(AssertionError, match="outside all buffers"):
        run(k.finish(), arrays, {}, check="plain")


@pytest.mark.parametrize("lanes", [1, 12, 48])
def test_private_memory_is_each_threads_own(lanes: int) -> None:
    k = KernelBuilder("own", lanes)
    y, held = k.buffer("y", i32, "write", 3 * lanes), k.private("held", i32, 3 * lanes)
    with k.loop(3) as step:
        k.store(held, step * lanes + k.lane(), k.cast(step * 100 + k.lane(), i32))
    with k.loop(3) as step:
        k.store(y, step * lanes + k.lane(), k.load(held, (k.index(2) - step) * lanes + k.lane()))
    program = k.finish()
    assert_same(program, {"y": np.zeros(3 * lanes, np.int32)}, {})
    text = ptx(program)
    assert ".shared" not in text


def test_scratch_of_a_user_starts_as_zeros() -> None:
    k = KernelBuilder("blank", 40)
    y, shared, own = (
        k.buffer("y", f32, "write", 40),
        k.scratch("s", f32, 50),
        k.private("p", f32, 80),
    )
    k.store(y, k.lane(), k.load(shared, k.lane() + 10) + k.load(own, k.lane() + 40))
    got = run(k.finish(), {"y": np.ones(40, np.float32)}, {})["y"]
    assert not got.any()


def test_scratch_of_a_size_that_the_launch_knows() -> None:
    size = Dim("size", max=4096)
    k = KernelBuilder("turned", 16)
    x, y = k.buffer("x", i32, count=size), k.buffer("y", i32, "write", count=size)
    count, held = k.arg("size"), k.scratch("held", i32, size)
    own = k.private("own", i32, size)
    with k.loop(count, step=16) as start:
        at = start + k.lane()
        with k.when(at < count, guard=True):
            k.store(held, at, k.load(x, at))
            k.store(own, at, k.load(x, at))
    k.barrier()
    with k.loop(count, step=16) as start:
        at = start + k.lane()
        with k.when(at < count, guard=True):
            k.store(y, at, k.load(held, count - 1 - at) + k.load(own, at))
    program = k.finish()
    arrays = {"x": np.arange(77, dtype=np.int32), "y": np.zeros(77, np.int32)}
    assert_same(program, arrays, {"size": 77})
    made = emission(program, architecture_named("sm_90"), "mask")
    assert made.layout.dynamic_bytes({"size": 77}) == 2 * 320


def test_blocks_and_grids_of_three_axes() -> None:
    k = KernelBuilder("ids", (4, 3, 2))
    y = k.buffer("y", i32, "write", 24 * 12)
    group = k.group_id(0) + (k.group_id(1) + k.group_id(2) * 2) * 3
    lane = k.lane(0) + (k.lane(1) + k.lane(2) * 3) * 4
    number = k.group_id(2) * 1000 + k.group_id(1) * 100 + k.lane(2) * 10 + k.lane(0)
    k.store(y, group * 24 + lane, k.cast(number, i32))
    assert_same(k.finish(), {"y": np.zeros(24 * 12, np.int32)}, {}, (3, 2, 2))


# -- threads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [5, 32, 33, 100])
def test_a_vote_where_only_some_threads_come(lanes: int) -> None:
    """Nested, with a loop that a vote ends, loads, locals from outside and from inside."""
    k = KernelBuilder("asked", lanes)
    x, y = k.buffer("x", i32, count=lanes), k.buffer("y", i32, "write", lanes)
    own, kept = k.load(x, k.lane()), k.local(0, i32)
    with k.when(own > 0):
        steps = k.local(0, i32)
        with k.loop(6), k.when(k.any(own > steps.get())):
            steps.set(steps.get() + 1)
            with k.when(own > 2):
                every = k.all(k.load(x, k.lane()) > 3)
                kept.set(kept.get() + k.select(every, k.const(100, i32), k.const(10, i32)))
        kept.set(kept.get() + steps.get())
    with k.otherwise():
        kept.set(k.select(k.any(own < -1), k.const(-5, i32), k.const(-6, i32)))
    k.store(y, k.lane(), kept.get())
    program = k.finish()
    rewritten = predicate_votes(program)
    verify(rewritten)
    rng = np.random.default_rng(3)
    for low, high in ((-3, 6), (3, 6), (-3, 0), (1, 3)):
        arrays = {"x": rng.integers(low, high, lanes).astype(np.int32)}
        arrays["y"] = np.zeros(lanes, np.int32)
        assert_same(program, arrays, {})
        wanted, got = ({k: v.copy() for k, v in arrays.items()} for _ in range(2))
        evaluate(program, wanted, {})
        evaluate(rewritten, got, {})
        assert np.array_equal(wanted["y"], got["y"])


def test_a_program_without_such_votes_stays_as_it_is() -> None:
    program = registry.entry("tetrad::math::dot").build()
    assert predicate_votes(program) is program


def test_threads_that_trapped_do_not_hold_up_the_others() -> None:
    k = KernelBuilder("left", 64)
    x, held = k.buffer("x", i32, count=64), k.scratch("held", i32, 64)
    y = k.buffer("y", i32, "write", 64)
    v = k.load(x, k.lane())
    k.trap(v < 0, 5, k.lane())
    k.store(held, k.lane(), v)
    k.barrier()
    # behind a trap this bound is arbitrary: whoever is left must not run to it
    with k.loop(k.cast(k.load(held, 7), index)):
        k.store(y, k.lane(), v)
    x_data = np.ones(64, np.int32)
    x_data[7] = -1
    with pytest.raises(KernelTrap) as error:
        run(k.finish(), {"x": x_data, "y": np.zeros(64, np.int32)}, {})
    assert (error.value.code, error.value.value) == (5, 7)


# -- the simulator itself --------------------------------------------------------------------------

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry f(\n.param .u64 p\n)\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("$L:\nbra.uni $L;\n", "does not end"),
        ("mov.u32 %r1, %tid.x;\nsetp.eq.b32 %p1, %r1, 0;\n@%p1 bra $L;\nbar.sync 0;\nret;\n"
         "$L:\nbar.sync 0;\nret;\n", "wait for ever"),
        ("ld.param.b64 %rd1, [p];\nld.global.b32 %r1, [%rd1+1];\nret;\n", "not aligned"),
        ("ld.param.b64 %rd1, [p];\nst.global.b64 [%rd1+8], %rd1;\nret;\n", "outside all buffers"),
        ("vote.sync.any.pred %p1, %p1, 3;\nret;\n", "do not name all"),
    ],
)  # fmt: skip
def test_the_simulator_sees_what_a_device_would_not_survive(
    body: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = "{\n.reg .pred %p<2>;\n.reg .b32 %r<2>;\n.reg .b64 %rd<2>;\n"
    text = f"{HEAD}.maxntid 4, 1, 1\n{declared}{body}}}\n"
    expected = AssertionError if "ld" in body or "st." in body else SimulationError
    monkeypatch.setattr(simulator, "MAX_STEPS", 1000)
    with pytest.raises(expected, match=words):
        simulate(text, {"p": np.zeros(8, np.uint8)}, {}, (1, 1, 1))
