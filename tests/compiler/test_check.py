"""TETRAD_CHECK and TETRAD_INTERPRET: right programs give the same bits under them, planted defects
are all found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.backends.cpu import code_cache as objects
from tetrad.backends.cpu import compile as kernels
from tetrad.backends.cpu import encode as schedule
from tetrad.backends.cpu import executable as ready
from tetrad.backends.cpu.code_cache import Objects
from tetrad.backends.cpu.executable import Executable
from tetrad.backends.cpu.isa import current_target
from tetrad.backends.cpu.memory import Storage
from tetrad.backends.llvm import flow, memory
from tetrad.backends.llvm.emitter import Codegen, Emitted, form
from tetrad.backends.llvm.rules import rules
from tetrad.compiler import check, suspicion
from tetrad.core.dtypes import f32, index
from tetrad.core.errors import CheckError, VerifyError
from tetrad.core.record import replace
from tetrad.core.source import Source
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.schedule.nodes import Launch, Schedule, Slot
from tetrad.schedule.plan import Life, Plan

MODES = [
    {"TETRAD_CHECK": "1"},
    {"TETRAD_CHECK": "bounds"},
    {"TETRAD_CHECK": "1,bounds"},
    {"TETRAD_INTERPRET": "1"},
]


class NoCache:
    """Planted defects must not reach the disk."""

    def get(self, key: str) -> None:
        return None

    def put(self, key: str, image: bytes) -> None:
        return None


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TETRAD_CHECK", raising=False)
    current_target()
    monkeypatch.setattr(kernels, "KERNELS", kernels.Kernels(Objects()))
    monkeypatch.setattr(objects, "disk_cache", NoCache)
    yield


@pytest.fixture
def checking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_CHECK", "1")


# -- right programs --------------------------------------------------------------------------------


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def pieces(x: Any, y: Any) -> Any:
    return td.concat([x, y * 2], axis=0), td.flip(x), y.T


def layers(x: Any, w: Any) -> Any:
    step = td.jit(lambda x, w: td.tanh(x @ w))
    return step(step(x, w), w).sum(axis=1)


def constant(x: Any) -> Any:
    return x, td.asarray(np.arange(5, dtype=np.int32)), x


PROGRAMS: list[tuple[Callable[..., Any], Sequence[np.ndarray]]] = [
    (lambda x, y: td.exp(x) * y + 1, (data(3, 37), data(37))),
    (
        lambda x: (x.sum(), td.max(x, axis=0), td.mean(x, axis=1), td.argmax(x, axis=1)),
        (data(45, 70),),
    ),
    (lambda x, w: td.where(x @ w > 0, x @ w, 0.0), (data(9, 40), data(40, 33))),
    (pieces, (data(5, 9), data(7, 9))),
    (layers, (data(4, 16), data(16, 16))),
    (constant, (data(11),)),
    (lambda x, i: td.take(x, i, axis=0), (data(6, 5), np.array([5, 0, -1, 3], np.int64))),
    (lambda x: td.astype(x, td.int8) + td.astype(x > 0, td.int8), (data(100) * 90,)),
    (lambda x: td.astype(td.astype(x, td.float16), td.bfloat16), (data(77),)),
    (lambda x: (x * 2, x.sum(axis=0)), (data(0, 4),)),
]


def results(f: Callable[..., Any], arrays: Sequence[np.ndarray]) -> list[bytes]:
    made = td.jit(f)(*(td.asarray(a) for a in arrays))
    return [np.asarray(a).tobytes() for a in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("which", range(len(PROGRAMS)))
def test_right_programs_give_the_same_bits(
    which: int, mode: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    f, arrays = PROGRAMS[which]
    want = results(f, arrays)
    for name, value in mode.items():
        monkeypatch.setenv(name, value)
    assert results(f, arrays) == want


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_symbolic_sizes(mode: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in mode.items():
        monkeypatch.setenv(name, value)
    f = td.jit(lambda x: td.exp(x).sum(axis=1), dims=({0: td.Dim("batch", max=100)},))
    for rows in (1, 17, 40):
        got = np.asarray(f(td.asarray(data(rows, 20))))
        np.testing.assert_allclose(got, np.exp(data(rows, 20)).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_donated_inputs(mode: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in mode.items():
        monkeypatch.setenv(name, value)
    f = td.jit(lambda x, y: x * y + 1, donate_argnums=0)
    got = np.asarray(f(td.asarray(data(50)), td.asarray(data(50) + 2)))
    assert got.tobytes() == (data(50) * (data(50) + 2) + 1).tobytes()


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_an_index_out_of_range_is_still_the_users(
    mode: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in mode.items():
        monkeypatch.setenv(name, value)
    f = td.jit(lambda x, i: td.take(x, i, axis=0))
    with pytest.raises(
        IndexError, match=r"index 9 is out of range for axis 0 of size 6(.|\n)*test_check.py"
    ):
        f(td.asarray(data(6)), td.asarray(np.array([1, 9], np.int64)))


def test_interpreting_runs_no_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TETRAD_INTERPRET", "1")
    monkeypatch.setattr(ready, "run", None)
    assert results(lambda x: x + 1, [data(9)]) == [(data(9) + 1).tobytes()]


def test_large_launches_are_sampled(
    checking: None, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setattr(check, "MOST_INVOCATIONS", 100)
    monkeypatch.setattr(check, "SAMPLED", 32)
    assert results(lambda x: x * 3, [data(500)]) == [(data(500) * 3).tobytes()]
    assert re.search(r"has \d+ workgroups, the evaluator runs a sample", capfd.readouterr().err)
    break_fma(monkeypatch)
    with pytest.raises(CheckError, match="differ"):
        results(with_fma, [hard_for_fma(500)])


# -- wrong emitters --------------------------------------------------------------------------------


def replace_rule(
    monkeypatch: pytest.MonkeyPatch, kind: type[n.Instr], rule: Callable[..., Any]
) -> None:
    monkeypatch.setitem(rules.table, kind, rule)


def with_fma(x: Any) -> Any:
    """exp is a polynomial of fused multiply-adds."""
    return td.exp(x)


def hard_for_fma(size: int) -> np.ndarray:
    return np.linspace(-20, 20, size).astype(np.float32)


def break_fma(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(cg: Codegen, node: n.Fma) -> Emitted:
        varying = cg.is_varying(node)
        kind = cg.type(node.dtype, varying)
        a, b, c = (cg.operand(x, varying) for x in (node.a, node.b, node.c))
        product = cg.new(f"fmul {kind} {a}, {b}")
        return Emitted(cg.new(f"fadd {kind} {product}, {c}"), form(varying))

    replace_rule(monkeypatch, n.Fma, twice)


def test_an_fma_that_rounds_twice_is_found(checking: None, monkeypatch: pytest.MonkeyPatch) -> None:
    break_fma(monkeypatch)
    pattern = (
        r"exp.*: buffer \w+\[\d+\] is [-\d.e]+ compiled, [-\d.e]+ evaluated; \d+ of 500 "
        r"differ(.|\n)*test_check.py"
    )
    with pytest.raises(CheckError, match=pattern):
        results(with_fma, [hard_for_fma(500)])


def shifted_store(by: int) -> Callable[[Codegen, n.Store], None]:
    """Writes where it should, and the same again some elements away."""

    def emit(cg: Codegen, node: n.Store) -> None:
        memory.store(cg, node)
        if cg.stride(node.at) == 1:
            pointer = cg.pointer(node.buffer, cg.new(f"add i64 {cg.scalar(node.at)}, {by}"))
            cg.line(
                f"store {cg.vector_type(node.value.dtype)} {cg.vector(node.value)}, ptr {pointer}, "
                "align 4"
            )

    return emit


def test_a_store_one_vector_past_the_end_is_found(
    checking: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_rule(monkeypatch, n.Store, shifted_store(16))
    with pytest.raises(
        CheckError, match=r"touched memory outside its buffers \(SIGSEGV\)(.|\n)*test_check.py"
    ):
        results(lambda x: x + 1, [data(64)])


def test_a_store_before_the_beginning_is_found(
    checking: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_rule(monkeypatch, n.Store, shifted_store(-16))
    with pytest.raises(CheckError, match="wrote before the beginning of"):
        results(lambda x: x + 1, [data(64)])


def test_a_load_past_the_end_is_found(checking: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def emit(cg: Codegen, node: n.Load) -> Emitted:
        pointer = cg.pointer(node.buffer, cg.new(f"add i64 {cg.scalar(node.at)}, 1"))
        cg.new(f"load volatile {cg.vector_type(node.dtype)}, ptr {pointer}, align 4")
        return memory.load(cg, node)

    replace_rule(monkeypatch, n.Load, emit)
    with pytest.raises(CheckError, match="touched memory outside its buffers"):
        results(lambda x: x + 1, [data(64)])


def test_an_output_that_is_not_written_is_found(
    checking: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last lane of every vector stays away."""

    def emit(cg: Codegen, node: n.Store) -> None:
        keep = (
            "<"
            + ", ".join(f"i1 {'true' if i < cg.lanes - 1 else 'false'}" for i in range(cg.lanes))
            + ">"
        )
        with cg.narrowed(keep):
            memory.store(cg, node)

    replace_rule(monkeypatch, n.Store, emit)
    with pytest.raises(CheckError, match=r"\[15\] is .* compiled, .* evaluated; 4 of 64 differ"):
        results(lambda x: x + 1, [data(64)])


def test_code_that_traps_for_nothing_is_found(
    checking: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def emit(cg: Codegen, node: n.Trap) -> None:
        flow.trap_if(cg, "true", "7", node.code, False)

    replace_rule(monkeypatch, n.Trap, emit)
    with pytest.raises(CheckError, match="compiled code has trap 16, the evaluator none"):
        results(lambda x, i: td.take(x, i, axis=0), [data(6), np.array([1, 2], np.int64)])


# -- wrong schedules -------------------------------------------------------------------------------


def two_steps(x: Any, w: Any) -> Any:
    return td.tanh(td.tanh(x @ w) @ w) @ w


def test_a_plan_that_shares_live_bytes_is_found(
    checking: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        schedule, "plan", lambda lives: Plan((0,) * len(lives), max(life.nbytes for life in lives))
    )
    monkeypatch.setattr(
        schedule,
        "lifetimes",
        lambda *a, f=schedule.lifetimes: (f(*a)[0], [longer(life) for life in f(*a)[1]]),
    )
    with pytest.raises(CheckError, match="share bytes while both are alive"):
        results(two_steps, [data(8, 24), data(24, 24)])


def longer(life: Life) -> Life:
    return Life(life.name, life.nbytes, 0, life.last + 1)


def test_launches_in_the_wrong_order_are_found(
    checking: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kernel alone is right; what they leave in the arena is not."""
    make = schedule.Table
    monkeypatch.setattr(
        schedule, "Table", lambda entries, *rest, **named: make(list(entries)[::-1], *rest, **named)
    )
    with pytest.raises(
        CheckError, match=r"two_steps: output 0\[\d+\] is .* though every kernel alone is right"
    ):
        results(two_steps, [data(8, 24), data(24, 24)])


def test_invalid_kernels_are_found(checking: None) -> None:
    k = KernelBuilder("wrong")
    x = k.buffer("x", f32)
    bad = n.Program(
        "wrong", (x,), (), (16, 1, 1), (n.Store(x, n.Const(index, 0), n.Const(f32, 0.0)),)
    )
    with pytest.raises(VerifyError, match="K010"):
        suspicion.verify_programs([bad], current_target().machine)


def test_kernels_that_ask_for_more_than_the_machine_has_are_found(checking: None) -> None:
    k = KernelBuilder("large")
    k.scratch("held", f32, 1000)
    little = replace(current_target().machine, workgroup_bytes=3999)
    suspicion.verify_programs([k.finish()], replace(little, workgroup_bytes=4000))
    with pytest.raises(VerifyError, match="K004"):
        suspicion.verify_programs([k.finish()], little)


# -- launches made by hand -------------------------------------------------------------------------

HERE = Source("model.py", 41, "forward")


def hand_made(
    body: Callable[[KernelBuilder, n.Buffer, n.Buffer, Val], None], size: int = 20
) -> Executable:
    """x -> y, both f32[size], by one kernel over 32 invocations."""
    graph = td.trace(lambda x: x + 1)(td.Spec((size,), td.float32))
    k = KernelBuilder("by_hand", 16)
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write")
    body(k, x, y, k.global_id())
    program, kind = k.finish(), graph.outputs[0].type
    given, made = Slot("x", kind, "input", 0), Slot("y", kind, "output", 0)
    launch = Launch(program, (given, made), {}, 2, frozenset({made}), source=HERE)
    lowered = Schedule(graph, (launch,), (given,), (made,))
    addresses = kernels.KERNELS.load([program], current_target())
    return Executable("f", lowered, addresses, (), (), graph=graph, watch=suspicion.watch_of_flags)


def run_by_hand(compiled: Executable, array: np.ndarray) -> np.ndarray:
    (result,) = compiled.run([Storage.from_numpy(array)])
    return result.as_numpy(array.dtype, array.shape)


@pytest.mark.parametrize("mode", ["bounds", "1,bounds"])
def test_bounds_checks_name_kernel_buffer_index_and_line(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TETRAD_CHECK", mode)

    def reads_too_far(k: KernelBuilder, x: n.Buffer, y: n.Buffer, i: Val) -> None:
        with k.when(i < 20, guard=True):
            k.store(y, i, k.load(x, i + 1))

    outside = r"index 20 is outside buffer x \(20 elements\)|buffer x has 20 elements, index 20"
    with pytest.raises(CheckError, match=rf"by_hand: ({outside})(.|\n)*model.py line 41"):
        run_by_hand(hand_made(reads_too_far), data(20))


@pytest.mark.parametrize("uniform", [False, True])
def test_bounds_checks_see_stores_and_scratch(
    uniform: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TETRAD_CHECK", "bounds")

    def writes_too_far(k: KernelBuilder, x: n.Buffer, y: n.Buffer, i: Val) -> None:
        at = k.group_id() * 19 + 1 if uniform else i
        k.store(y, at, 1.0)

    def leaves_scratch(k: KernelBuilder, x: n.Buffer, y: n.Buffer, i: Val) -> None:
        k.store(k.scratch("held", f32, 8), k.lane() - 3, 1.0)

    with pytest.raises(CheckError, match=r"by_hand: index 20 is outside buffer y \(20 elements\)"):
        run_by_hand(hand_made(writes_too_far), data(20))
    with pytest.raises(CheckError, match=r"by_hand: index -3 is outside buffer held \(scratch\)"):
        run_by_hand(hand_made(leaves_scratch), data(20))


def test_races_are_found(checking: None) -> None:
    """Compiled code has the evaluator's bits, and still another machine may not."""

    def exchanges(k: KernelBuilder, x: n.Buffer, y: n.Buffer, i: Val) -> None:
        held = k.scratch("held", f32, 16)
        k.store(held, k.lane(), k.cast(i, f32))
        with k.when(i < 20, guard=True):
            k.store(y, i, k.load(held, 15 - k.lane()))

    with pytest.raises(
        CheckError, match=r"by_hand: element 15 of buffer held is written by invocation 15 and read"
    ):
        run_by_hand(hand_made(exchanges), data(20))


def test_what_neither_side_writes_is_found(checking: None) -> None:
    """The kernel forgets the last element: compiled code and evaluator agree, and still it
    shows."""

    def forgets(k: KernelBuilder, x: n.Buffer, y: n.Buffer, i: Val) -> None:
        with k.when(i < 19, guard=True):
            k.store(y, i, k.load(x, i))

    with pytest.raises(CheckError, match=r"by_hand: buffer y\[19\](.|\n)*model.py line 41"):
        run_by_hand(hand_made(forgets), data(20))


def test_a_right_launch_made_by_hand_passes(checking: None) -> None:
    def copies(k: KernelBuilder, x: n.Buffer, y: n.Buffer, i: Val) -> None:
        with k.when(i < 20, guard=True):
            k.store(y, i, k.load(x, i) * 2.0)

    assert run_by_hand(hand_made(copies), data(20)).tolist() == (data(20) * 2).tolist()
