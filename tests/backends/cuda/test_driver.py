"""Launches through libcuda: which functions are called in which order with which arguments, what
becomes of their errors, and what is said without a driver.

The library here is `fake_driver`, which runs PTX on the simulator: see there what that shows and
what it does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.backends.cuda.fake_driver import FakeCuda
from tetrad.backends import BACKENDS, backend_named
from tetrad.backends.cuda import backend
from tetrad.backends.cuda.backend import CudaBackend
from tetrad.core.backend import BufferContent
from tetrad.core.dtypes import f32, i32, u8
from tetrad.core.errors import BackendError, BadInputs, TrapError
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder


def doubling(count: int | None = 5) -> n.Program:
    """y[i] = 2 x[i], of five elements."""
    k = KernelBuilder("doubling", 4)
    x, y = k.buffer("x", f32, count=count), k.buffer("y", f32, "write", 5)
    with k.when(k.global_id() < 5, guard=True):
        k.store(y, k.global_id(), k.load(x, k.global_id()) * 2)
    return k.finish()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    library = FakeCuda()
    use(library, monkeypatch)
    return library


def use(library: Any, monkeypatch: pytest.MonkeyPatch) -> CudaBackend:
    made = CudaBackend(library)
    monkeypatch.setitem(BACKENDS, "cuda", lambda: made)
    return made


X = np.arange(5, dtype=np.float32)


def launch(program: n.Program | None = None, grid: Any = (2, 1, 1)) -> list[bytes]:
    return td.dispatch(program or doubling(), [X.tobytes()], grid, backend="cuda")


# -- calls -----------------------------------------------------------------------------------------


def test_a_launch_is_these_calls(fake: FakeCuda) -> None:
    assert launch() == [(2 * X).tobytes()]
    told = [call for call in fake.calls if call != "cuDeviceGetAttribute"]
    assert told == [
        "cuInit", "cuDeviceGetCount", "cuDeviceGet",
        "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent",
        "cuModuleLoadDataEx", "cuModuleGetFunction",
        "cuMemAlloc_v2", "cuMemcpyHtoD_v2", "cuMemAlloc_v2",
        "cuLaunchKernel", "cuCtxSynchronize",
        "cuMemcpyDtoH_v2", "cuMemFree_v2", "cuMemFree_v2",
    ]  # fmt: skip
    assert fake.memory == {}
    ((sizes, shared, words),) = fake.launches
    assert (sizes, shared, len(words)) == ((2, 1, 1, 4, 1, 1), 0, 2)


def test_an_output_that_is_not_all_written_starts_as_zeros(fake: FakeCuda) -> None:
    k = KernelBuilder("even", 4)
    x, y = k.buffer("x", f32, count=5), k.buffer("y", f32, "write", 10)
    with k.when(k.global_id() < 5, guard=True):
        k.store(y, k.global_id() * 2, k.load(x, k.global_id()))
    (got,) = launch(k.finish(), (3, 1, 1))
    assert np.frombuffer(got, np.float32).tolist() == [0, 0, 1, 0, 2, 0, 3, 0, 4, 0]
    assert fake.calls.count("cuMemsetD8_v2") == 1


def test_a_module_is_loaded_once_for_its_text(fake: FakeCuda) -> None:
    for _ in range(2):
        launch()
    launch(doubling())  # another program, the same text
    assert fake.calls.count("cuModuleLoadDataEx") == 1
    assert fake.calls.count("cuDevicePrimaryCtxRetain") == 1
    launch(doubling(None))
    assert fake.calls.count("cuModuleLoadDataEx") == 2


def test_lengths_and_arguments_come_after_addresses(fake: FakeCuda) -> None:
    k = KernelBuilder("shifted", 4)
    x, y, by = k.buffer("x", i32), k.buffer("y", i32, "write", 4), k.arg("by")
    k.store(y, k.lane(), k.load(x, k.lane() + by))
    given = np.arange(10, 13, dtype=np.int32)
    program = k.finish()
    (got,) = td.dispatch(program, [given.tobytes()], (1, 1, 1), "cuda", args={"by": -1})
    assert np.frombuffer(got, np.int32).tolist() == [0, 10, 11, 12]
    assert fake.launches[0][2][2:] == [2**64 - 1, 3]  # by, then the length of x


def test_memory_beyond_what_a_module_may_declare_comes_with_the_launch(fake: FakeCuda) -> None:
    k = KernelBuilder("large", 32)
    y, held = k.buffer("y", f32, "write", 32), k.scratch("held", f32, 20_000)
    k.store(held, k.lane() * 600, k.cast(k.lane(), f32))
    k.barrier()
    k.store(y, k.lane(), k.load(held, (k.index(31) - k.lane()) * 600))
    (got,) = td.dispatch(k.finish(), [], (1, 1, 1), "cuda")
    assert np.array_equal(np.frombuffer(got, np.float32), np.arange(32)[::-1])
    assert fake.launches[0][1] == 80_000 and list(fake.dynamic.values()) == [80_000]


def test_an_empty_grid_launches_nothing(fake: FakeCuda) -> None:
    k = KernelBuilder("kept", 4)
    y = k.buffer("y", f32, "readwrite")
    k.store(y, k.global_id(), 1.0)
    assert launch(k.finish(), (0, 1, 1)) == [X.tobytes()]
    assert "cuLaunchKernel" not in fake.calls and "cuMemAlloc_v2" not in fake.calls


def test_an_empty_buffer_has_an_address(fake: FakeCuda) -> None:
    k = KernelBuilder("empty", 1)
    x, y = k.buffer("x", u8), k.buffer("y", u8, "write", 1)
    k.store(y, 0, k.load(x, 0) + 1)
    assert td.dispatch(k.finish(), [b""], (1, 1, 1), "cuda") == [b"\x01"]


def test_a_trap_is_told_as_elsewhere(fake: FakeCuda) -> None:
    k = KernelBuilder("strict", 8)
    x = k.buffer("x", i32, count=8)
    v = k.load(x, k.lane())
    k.trap(v < 0, 1, k.lane())
    given = np.array([1, 2, 3, -4, 5, 6, 7, 8], np.int32)
    with pytest.raises(TrapError, match="strict: trap 1, value 3") as error:
        td.dispatch(k.finish(), [given.tobytes()], (1, 1, 1), "cuda")
    assert (error.value.trap, error.value.value) == (1, 3)
    assert fake.memory == {}


# -- memory that stays -----------------------------------------------------------------------------


def test_resident_memory_is_used_as_it_is(fake: FakeCuda) -> None:
    found = backend_named("cuda", "this test")
    program = doubling()
    x, y = program.buffers
    given, result = found.resident(X), found.resident(np.ones(5, np.float32))
    assert len(fake.memory) == 2
    contents = {
        x: BufferContent(20, 5, None, given),
        y: BufferContent(20, 5, None, result),
    }
    assert found.launch(program, contents, {}, (2, 1, 1)) == []
    assert np.array_equal(result.as_numpy(np.dtype(np.float32), (5,)), 2 * X)
    result.fill(np.full(5, 9, np.float32))
    run = found.bind(program, (5, 5), {}, (1, 1, 1), (False, True))  # the first four elements
    before = fake.calls.count("cuMemAlloc_v2")
    run([given, result])
    assert fake.calls.count("cuMemAlloc_v2") == before
    assert result.as_numpy(np.dtype(np.float32), (5,)).tolist() == [0, 2, 4, 6, 0]
    run = found.bind(program, (5, 5), {}, (0, 1, 1), (False, True))
    run([given, result])
    assert not result.as_numpy(np.dtype(np.float32), (5,)).any()
    del given, result, contents
    assert fake.memory == {}


def test_resident_memory_that_is_too_short_is_refused(fake: FakeCuda) -> None:
    program = doubling()
    x, y = program.buffers
    held = backend_named("cuda", "this test").resident(np.zeros(2, np.float32))
    short = {x: BufferContent(20, 5, None, held), y: BufferContent(20, 5, None)}
    with pytest.raises(BadInputs, match="buffer x needs 20 bytes, got 8"):
        backend_named("cuda", "this test").launch(program, short, {}, (2, 1, 1))


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "status", "code", "words"),
    [
        ("cuMemAlloc_v2", 2, "1001", "CUDA_ERROR_OUT_OF_MEMORY"),
        ("cuModuleLoadDataEx", 218, "1004", "CUDA_ERROR_INVALID_PTX"),
        ("cuLaunchKernel", 1, "1005", "CUDA_ERROR_INVALID_VALUE"),
        ("cuCtxSynchronize", 700, "1005", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    ],
)
def test_an_error_of_the_driver_has_its_name(
    fake: FakeCuda, function: str, status: int, code: str, words: str
) -> None:
    fake.fail[function] = status
    with pytest.raises(BackendError, match=f"{function} failed: {words}.*{status}") as error:
        launch()
    assert error.value.code == code
    assert fake.memory == {}


def test_what_was_allocated_before_an_error_is_freed(fake: FakeCuda) -> None:
    fake.fail["cuMemcpyHtoD_v2"] = 1
    with pytest.raises(BackendError, match="cuMemcpyHtoD_v2"):
        launch()
    assert fake.memory == {} and fake.calls.count("cuMemFree_v2") == 1


def test_the_error_of_a_launch_is_not_hidden_by_that_of_cleaning_up(fake: FakeCuda) -> None:
    fake.fail |= {"cuCtxSynchronize": 700, "cuMemFree_v2": 700}
    with pytest.raises(BackendError, match="cuCtxSynchronize failed"):
        launch()


def test_words_of_the_drivers_assembler_are_in_the_error(fake: FakeCuda) -> None:
    device = backend_named("cuda", "this test").device  # type: ignore[attr-defined]
    device.enter()
    with pytest.raises(BackendError, match=r"(?s)CUDA_ERROR_INVALID_PTX.*no entry"):
        device.function("nothing", "sm_90", "f")


def test_a_grid_that_no_launch_has_is_refused(fake: FakeCuda) -> None:
    with pytest.raises(BackendError, match=r"65536 x 1 workgroups.*at most 2147483647 x 65535"):
        launch(grid=(2, 65_536, 1))
    assert "cuLaunchKernel" not in fake.calls


def test_sizes_are_checked_before_a_launch(fake: FakeCuda) -> None:
    program = doubling()
    x, y = program.buffers
    short = {x: BufferContent(8, 5, memoryview(bytes(8))), y: BufferContent(20, 5, None)}
    with pytest.raises(BadInputs, match="doubling: buffer x needs 20 bytes, got 8"):
        backend_named("cuda", "this test").launch(program, short, {}, (2, 1, 1))
    assert "cuMemAlloc_v2" not in fake.calls


# -- what is there ---------------------------------------------------------------------------------


def test_without_a_driver_the_error_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    use(None, monkeypatch)
    lacking = OSError("libcuda.so.1: cannot open")
    monkeypatch.setattr(backend.driver, "system_library", lambda: lacking)
    with pytest.raises(BackendError, match=r"there is no CUDA driver: libcuda\.so") as error:
        launch()
    assert error.value.code == "1002"
    assert "td.kernel.ptx" in (error.value.hint or "") and "cpu" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("library", "reason"),
    [
        (FakeCuda(devices=0), "finds no device"),
        (FakeCuda(fail={"cuInit": 100}), "does not start: .*CUDA_ERROR_NO_DEVICE"),
        (FakeCuda(capability=(7, 0)), "compute capability 7.0, code is made for sm_75"),
    ],
)
def test_a_driver_without_a_usable_device_says_so(
    library: FakeCuda, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(library, monkeypatch)
    with pytest.raises(BackendError, match=reason) as error:
        launch()
    assert error.value.hint


@pytest.mark.parametrize(
    ("capability", "arch"),
    [
        ((7, 5), "sm_75"),
        ((8, 7), "sm_86"),
        ((9, 0), "sm_90"),
        ((10, 3), "sm_100"),
        ((12, 1), "sm_120"),
    ],
)
def test_code_is_for_the_newest_architecture_that_the_device_takes(
    capability: tuple[int, int], arch: str
) -> None:
    assert CudaBackend(FakeCuda(capability)).architecture.name == arch


def test_whole_schedules_are_refused(fake: FakeCuda) -> None:
    found = backend_named("cuda", "this test")
    for refused in (found.compile, found.begin, found.storage):
        with pytest.raises(BackendError, match="schedules do not run"):
            refused(None)
