"""What the emitter makes of a program: the form of every value, the ways of a guard, traps,
names."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.llvm.machine import Trap, assert_same_as_evaluator, compiled, host, run
from tetrad.backends.cpu.llvm import compile_object
from tetrad.backends.llvm.emitter import operand_name
from tetrad.backends.llvm.memory import BOUNDS_TRAP
from tetrad.backends.llvm.module import emit_module
from tetrad.core.dtypes import f32, f64, i32
from tetrad.core.errors import CompileError
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder

TAG = 3 << 16  # what tests.backends.llvm.machine gives every launch


def text_of(program: n.Program, check: str = "plain") -> str:
    return emit_module({"kernel": program}, host(), check)


def reading(at: object, workgroup: int = 16) -> n.Program:
    """y[lane] = x[at(k)]."""
    k = KernelBuilder("reading", workgroup)
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write")
    k.store(y, k.lane(), k.load(x, at(k)))  # type: ignore[operator]
    return k.finish()


# -- forms -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "has", "lacks"),
    [
        (lambda k: k.group_id() * 4 + 1, "load float", "gather"),  # uniform: one number
        # lanes side by side: one vector
        (lambda k: k.global_id() + 3, "load <16 x float>", "gather"),
        (lambda k: (k.lane() + 2) - 1 + k.lane() * 0, "load <16 x float>", "gather"),
        (lambda k: k.lane() - k.lane() + 5, "load float", "gather"),  # the lane cancels
        # every second: two vectors, a choice
        (lambda k: k.lane() * 2 + 1, "shufflevector <16 x float>", "gather"),
        (lambda k: k.lane() * 3, "gather", "load <16 x float>"),  # apart
        (lambda k: k.index(40) - k.lane(), "gather", "load <16 x float>"),  # backwards
        (lambda k: k.lane() // 2, "gather", "load <16 x float>"),
        (lambda k: k.min(k.lane(), 7), "gather", "load <16 x float>"),
    ],
)
def test_the_stride_of_an_address_decides_the_access(at: object, has: str, lacks: str) -> None:
    program = reading(at)
    text = text_of(program)
    assert has in text and lacks not in text
    arrays = {"x": np.arange(64, dtype=np.float32), "y": np.zeros(16, np.float32)}
    assert_same_as_evaluator(program, arrays, {})


def test_every_second_element_is_read_to_the_last_and_not_beyond() -> None:
    for width, offset in ((16, 0), (16, 1), (2, 1)):
        k = KernelBuilder("second", width)
        x, y = k.buffer("x", f32), k.buffer("y", f32, "write")
        k.store(y, k.lane() * 2 + offset, k.load(x, k.lane() * 2 + offset))
        program = k.finish()
        assert "scatter" not in text_of(program)
        size = 2 * width - 1 + offset
        arrays = {"x": np.arange(size, dtype=np.float32), "y": np.zeros(size, np.float32)}
        assert_same_as_evaluator(program, arrays, {})


def test_uniform_arithmetic_stays_scalar_and_leaves_loops() -> None:
    k = KernelBuilder("uniform", 16)
    x, y, size = k.buffer("x", f32), k.buffer("y", f32, "write"), k.arg("n")
    total = k.local(0.0, f32)
    with k.loop(size, always=True) as i:
        total.set(k.fma(k.load(x, i), k.load(x, i * 16 + k.lane()), total))
    k.store(y, k.lane(), total.get())
    program = k.finish()
    body = text_of(program)
    assert "load float, ptr" in body and "gather" not in body
    assert_same_as_evaluator(
        program, {"x": np.linspace(-1, 1, 80).astype("f4"), "y": np.zeros(16, "f4")}, {"n": 5}
    )


# -- guards ----------------------------------------------------------------------------------------


def tail(workgroup: int = 16) -> n.Program:
    k = KernelBuilder("tail", workgroup)
    x, y, size = k.buffer("x", f32), k.buffer("y", f32, "write"), k.arg("n")
    i = k.global_id()
    with k.when(i < size, guard=True):
        k.store(y, i, k.load(x, i) + 1.0)
    return k.finish()


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 32, 48])
def test_a_guard_has_three_ways(size: int) -> None:
    """All lanes, some of them, none: here with three workgroups, whatever is left for them."""
    arrays = {"x": np.arange(48, dtype=np.float32)[:size], "y": np.zeros(size, np.float32)}
    assert_same_as_evaluator(tail(), arrays, {"n": size}, (3, 1, 1))


def test_the_way_of_all_lanes_has_no_mask() -> None:
    text = text_of(tail())
    full, rest = text[text.index("\nfull") :].split("\ntest", 1)
    assert "store <16 x float>" in full and "masked" not in full
    assert "masked.load" in rest and "masked.store" in rest


def long_tail(steps: int = 60) -> n.Program:
    """Much work on an element, a branch of some lanes, an address made inside, a store that goes
    around the cache."""
    k = KernelBuilder("long_tail", 16)
    x, y, z, size = (
        k.buffer("x", f32),
        k.buffer("y", f32, "write"),
        k.buffer("z", f32, "write"),
        k.arg("n"),
    )
    i = k.global_id()
    with k.when(i < size, guard=True):
        value = k.load(x, i)
        for _ in range(steps):
            value = k.fma(value, value, 0.25)
        kept = k.local(0.0, f32)
        with k.when(value > 0.5):
            kept.set(k.load(x, i) - value)
        k.store(y, i, value, hint="stream")
        k.store(z, i + 1, kept.get())
    return k.finish()


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 32, 48])
def test_long_work_behind_a_guard_is_written_once(size: int) -> None:
    assert text_of(long_tail()).count("llvm.fma.v16f32(") == 60 + 1  # and the declaration
    arrays = {"x": np.linspace(-1, 1, 48, dtype=np.float32)[:size], "y": np.zeros(size, np.float32)}
    arrays["z"] = np.zeros(size + 1, np.float32)
    assert_same_as_evaluator(long_tail(), arrays, {"n": size}, (3, 1, 1))


def test_loads_and_stores_of_long_work_have_no_mask_where_all_lanes_are_there() -> None:
    text = text_of(long_tail())
    ways = [part.split("\nsome")[0] for part in text.split("\nall")[1:]]
    assert len(ways) == 3 and not any("masked" in way for way in ways)  # a load, two stores
    assert (
        text.count("call <16 x float> @llvm.masked.load") == 1
        and text.count("call void @llvm.masked.store") == 2
    )


def pairs_tail(steps: int = 100) -> n.Program:
    """Much work on the first of two neighbours, which goes to the second of two; a loop for some
    lanes only."""
    k = KernelBuilder("pairs_tail", 16)
    x, y, size = k.buffer("x", f32), k.buffer("y", f32, "write"), k.arg("n")
    i = k.global_id()
    with k.when(i < size, guard=True):
        value = k.load(x, i * 2)
        for _ in range(steps):
            value = k.fma(value, value, 0.25)
        kept = k.local(value)
        with k.when(value > 0.5):
            total = k.local(value)
            with k.loop(5, always=True):
                total.set(total.get() * 0.5 + value)
            kept.set(total.get())
        k.store(y, i * 2 + 1, kept.get())
    return k.finish()


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 31, 32, 48])
def test_long_work_on_every_second_element_is_written_once(size: int) -> None:
    text = text_of(pairs_tail())
    assert text.count("llvm.fma.v16f32(") == 100 + 1
    ways = [part.split("\nsome")[0] for part in text.split("\nall")[1:]]
    assert len(ways) == 2 and not any("masked" in way for way in ways)
    arrays = {
        "x": np.linspace(-1, 1, 2 * size, dtype=np.float32),
        "y": np.zeros(2 * size, np.float32),
    }
    assert_same_as_evaluator(pairs_tail(), arrays, {"n": size}, (3, 1, 1))


def test_work_that_is_mostly_loads_has_two_ways() -> None:
    k = KernelBuilder("many", 16)
    x, y, size = k.buffer("x", f32), k.buffer("y", f32, "write"), k.arg("n")
    i = k.global_id()
    with k.when(i < size, guard=True):
        value = k.load(x, i)
        for step in range(1, 40):
            value = k.fma(value, 0.5, k.load(x, i + step))
        k.store(y, i, value)
    program = k.finish()
    assert "\nfull" in text_of(program) and "\nall" not in text_of(program)
    arrays = {"x": np.linspace(-1, 1, 20 + 39, dtype=np.float32), "y": np.zeros(20, np.float32)}
    assert_same_as_evaluator(program, arrays, {"n": 20}, (2, 1, 1))


def test_other_conditions_become_masks() -> None:
    k = KernelBuilder("mask", 16)
    y, size = k.buffer("y", f32, "write"), k.arg("n")
    with k.when(k.lane() * 2 < size):
        k.store(y, k.lane(), 1.0)
    program = k.finish()
    assert "\nfull" not in text_of(program)
    assert_same_as_evaluator(program, {"y": np.zeros(16, np.float32)}, {"n": 9})


# -- traps and bounds ------------------------------------------------------------------------------


def trapped(
    program: n.Program, arrays: dict[str, np.ndarray], check: str = "plain"
) -> tuple[int, int]:
    (address,) = compiled([program], host(), check)
    with pytest.raises(Trap) as trap:
        run(address, program, arrays, {}, (2, 1, 1))
    return trap.value.code, trap.value.value


@pytest.mark.parametrize("workgroup", [1, 5, 16, 64, 100])
def test_a_trap_reports_the_first_lane_and_the_tag(workgroup: int) -> None:
    k = KernelBuilder("trap", workgroup)
    x = k.buffer("x", i32)
    value = k.load(x, k.global_id())
    with k.when(value.ne(4)):
        k.trap(value > 2, 9, k.global_id() * 10)
    data = np.zeros(2 * workgroup, np.int32)
    data[0], data[-1] = 4, 3
    assert trapped(k.finish(), {"x": data}) == (TAG | 9, 10 * (2 * workgroup - 1))


def test_a_trap_with_a_uniform_condition() -> None:
    k = KernelBuilder("uniform trap", 16)
    y = k.buffer("y", f32, "write")
    k.trap(k.group_id().eq(1), 4, k.group_id() + 41)
    k.store(y, k.global_id(), 1.0)
    assert trapped(k.finish(), {"y": np.zeros(32, np.float32)}) == (TAG | 4, 42)


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize(
    ("at", "value"), [(lambda k: k.global_id() + 9, 32), (lambda k: k.group_id() - 1, -1)]
)
def test_bounds_checks_name_the_buffer_and_the_index(at: object, value: int, write: bool) -> None:
    k = KernelBuilder("bounds", 16)
    x, y = k.buffer("x", f64), k.buffer("y", f64, "write")
    where, own = at(k), k.global_id()  # type: ignore[operator]
    k.store(y, where if write else own, 1.0 if write else k.load(x, where))
    arrays = {"x": np.zeros(32), "y": np.zeros(32)}
    assert trapped(k.finish(), arrays, "trap") == (TAG | BOUNDS_TRAP + write, value)


# -- names and LLVM --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "operand"),
    [
        ("x", "%b.x"),
        ("x_1", "%b.x_1"),
        ('a"b', '%"b.a\\22b"'),
        ("a b\n", '%"b.a\\20b\\0A"'),
        ("ö", '%"b.\\C3\\B6"'),
    ],
)
def test_names_are_quoted(name: str, operand: str) -> None:
    assert operand_name("b", name) == operand


def test_functions_that_nobody_knows_are_refused() -> None:
    with pytest.raises(CompileError, match="calls unknown functions: system"):
        compile_object("declare i32 @system(ptr)", host())


def test_text_that_is_not_llvm_is_our_defect() -> None:
    with pytest.raises(CompileError, match="generated LLVM is not valid"):
        compile_object("define void @f() { nonsense }", host())
