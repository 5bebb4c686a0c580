"""td.kernel.call: a user's kernel eagerly, under jit, vmap and grad, in loops, with Dims; what it
promises about memory, and every error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.modules import ROOT
from tetrad.core.dtypes import f32, i32, index
from tetrad.core.errors import BadInputs, Rejected, TrapError, UnsupportedError
from tetrad.kernel import nodes as n
from tetrad.kernel.build import KernelBuilder
from tetrad.schedule.nodes import Launch, Schedule

Call = Callable[..., Any]
BOTH = pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "jit"])
SIZE = td.Dim("size")


def twice(name: str = "twice") -> n.Program:
    k = KernelBuilder(name)
    x, y = k.buffer("x", f32, count=SIZE), k.buffer("y", f32, "write", count=SIZE)
    k.store(y, k.global_id(), k.load(x, k.global_id()) * 2.0)
    return k.finish()


TWICE = twice()


def mirrored() -> n.Program:
    """Each group of eight turned around in place, and the number of each group."""
    k = KernelBuilder("mirrored", 8)
    held = k.scratch("held", f32, 8)
    z, who = k.buffer("z", f32, "readwrite"), k.buffer("who", i32, "write", count=td.Dim("groups"))
    k.store(held, k.lane(), k.load(z, k.global_id()))
    k.barrier()
    k.store(z, k.global_id(), k.load(held, k.index(7) - k.lane()))
    with k.when(k.lane().eq(0)):
        k.store(who, k.group_id(), k.cast(k.group_id(), i32) + 1)
    return k.finish()


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def steps_of(f: Call, *args: Any) -> tuple[Any, ...]:
    schedule: Schedule = td.jit(f).bound(*args).program.executable.full().schedule
    return schedule.steps


# -- what it computes ------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 100])
def test_any_size_and_work_around_it(run: Call, size: int) -> None:
    x = numbers(size)
    got = run(lambda x: td.kernel.call(TWICE, x + 1) - x)(x)
    assert np.array_equal(np.asarray(got), (x + 1) * 2 - x)


@BOTH
def test_shapes_are_those_of_out_or_of_the_array_or_flat(run: Call) -> None:
    x = numbers(6, 4)
    assert run(lambda x: td.kernel.call(TWICE, x))(x).shape == (24,)
    assert run(lambda x: td.kernel.call(TWICE, x, out=td.Spec((2, 3, 4))))(x).shape == (2, 3, 4)
    turned, who = run(lambda x: td.kernel.call(MIRRORED, x, grid=(3, 1, 1), args={"groups": 3}))(x)
    assert turned.shape == (6, 4)
    assert who.tolist() == [1, 2, 3]


MIRRORED = mirrored()


@BOTH
def test_an_array_that_is_updated_is_a_new_one(run: Call) -> None:
    x = td.asarray(numbers(16))
    before = x.tolist()
    f = run(lambda x: (td.kernel.call(MIRRORED, x, grid=(2, 1, 1), args={"groups": 2})[0], x * 1))
    turned, same = f(x)
    assert x.tolist() == before == same.tolist()
    assert turned.tolist() == before[7::-1] + before[:7:-1]


@BOTH
def test_accesses_out_of_range_do_no_harm(run: Call) -> None:
    k = KernelBuilder("shift")
    x, y = k.buffer("x", i32), k.buffer("y", i32, "write", count=8)
    k.store(y, k.global_id() - 3, k.load(x, k.global_id()) + 1)
    program = k.finish()
    got = run(lambda x: td.kernel.call(program, x, grid=(2, 1, 1)))(np.arange(8, dtype=np.int32))
    assert got.tolist() == [4, 5, 6, 7, 8, 1, 1, 1]


@BOTH
def test_what_no_invocation_writes_is_zero(run: Call) -> None:
    k = KernelBuilder("some")
    x, y = k.buffer("x", f32, count=SIZE), k.buffer("y", f32, "write", count=SIZE)
    with k.when(k.load(x, k.global_id()) > 0.0):
        k.store(y, k.global_id(), 7.0)
    program, x_ = k.finish(), numbers(50)
    f = run(lambda x: td.kernel.call(program, x))
    for _ in range(3):
        assert f(x_).tolist() == np.where(x_ > 0, 7, 0).tolist()
        x_ = -x_


@BOTH
def test_a_grid_of_three_axes(run: Call) -> None:
    k = KernelBuilder("grid", (4, 2, 1))
    y = k.buffer("y", i32, "write", count=8 * 6 * 5)
    at = (k.group_id(2) * 6 + k.global_id(1)) * 8 + k.global_id(0)
    code = (k.group_id(2) * 10 + k.group_id(1)) * 10 + k.group_id(0)
    k.store(y, at, k.cast(code, i32))
    program = k.finish()
    got = run(lambda: td.kernel.call(program, grid=(2, 3, 5), out=td.Spec((5, 6, 8), i32)))()
    z, y_, x = np.indices((5, 6, 8))
    assert np.array_equal(np.asarray(got), z * 100 + y_ // 2 * 10 + x // 4)


@BOTH
def test_the_grid_may_be_a_function_of_the_shapes(run: Call) -> None:
    k = KernelBuilder("rows", 1)
    x, y, width = k.buffer("x", f32), k.buffer("y", f32, "write", count=td.Dim("n")), k.arg("width")
    total = k.local(0.0, f32)
    with k.loop(width) as i:
        total.set(total.get() + k.load(x, k.group_id() * width + i))
    k.store(y, k.group_id(), total.get())
    program, x_ = k.finish(), np.arange(12, dtype=np.float32).reshape(3, 4)

    def f(x: Any) -> Any:
        rows, width = x.shape
        return td.kernel.call(
            program, x, grid=lambda shape: (shape[0], 1, 1), args={"n": rows, "width": width}
        )

    assert run(f)(x_).tolist() == x_.sum(1).tolist()


@BOTH
def test_a_trap_tells_its_number_and_value_and_the_line(run: Call) -> None:
    k = KernelBuilder("picky")
    x, y = k.buffer("x", f32, count=SIZE), k.buffer("y", f32, "write", count=SIZE)
    k.trap(k.load(x, k.global_id()) > 10.0, 5, k.global_id())
    k.store(y, k.global_id(), k.load(x, k.global_id()))
    program = k.finish()
    f = run(lambda x: td.kernel.call(program, x))
    assert f(np.ones(4, np.float32)).tolist() == [1.0] * 4
    with pytest.raises(
        TrapError, match=r"picky: trap 5, value 2\n  in (.|\n)*test_kernel_call.py"
    ) as e:
        f(np.float32([1, 2, 30, 4]))
    assert (e.value.trap, e.value.value, e.value.code) == (5, 2, "1005")
    assert f(np.ones(4, np.float32)).tolist() == [1.0] * 4


# -- inside programs -------------------------------------------------------------------------------


def test_it_is_one_launch_in_the_schedule_where_it_writes_all() -> None:
    x = numbers(100)
    names = [step.name for step in steps_of(lambda x: td.kernel.call(TWICE, x + 1) * 3, x)]
    assert names == ["add", "twice", "multiply"]
    (launch,) = steps_of(lambda x: td.kernel.call(TWICE, x), x)
    assert isinstance(launch, Launch)
    assert launch.program.guarded
    assert "guarded\n" in str(launch.program)
    names = [s.name for s in steps_of(
        lambda x: td.kernel.call(MIRRORED, x, grid=(2, 1, 1), args={"groups": 2}), numbers(16)
    )]  # fmt: skip
    assert names == ["mirrored_copy", "mirrored_clear", "mirrored"]


def test_one_program_serves_every_size_of_a_dim() -> None:
    f = td.jit(lambda x: td.kernel.call(TWICE, x) + 1, dims=({0: td.Dim("n", max=1000)},))
    for size in (1, 5, 16, 1000):
        x = numbers(size)
        assert np.array_equal(np.asarray(f(x)), x * 2 + 1)
    assert f.compiles == 1


def test_a_dim_may_be_a_factor_of_a_count() -> None:
    k = KernelBuilder("pairs")
    half = td.Dim("half")
    x, y = k.buffer("x", f32, count=half * 2), k.buffer("y", f32, "write", count=half)
    i = k.global_id()
    k.store(y, i, k.load(x, i * 2) + k.load(x, i * 2 + 1))
    program = k.finish()
    f = td.jit(lambda x: td.kernel.call(program, x), dims=({0: td.Dim("n", max=100)},))
    g = td.jit(lambda x: td.kernel.call(program, td.reshape(x, (-1,))))
    for n_ in (1, 7):
        x_ = numbers(n_, 2)
        assert np.array_equal(np.asarray(f(x_)), x_.sum(1))
        assert np.array_equal(np.asarray(g(x_)), x_.sum(1))


@pytest.mark.parametrize("batch", [0, 1, 5])
def test_vmap_launches_row_by_row(batch: int) -> None:
    x, shift = numbers(batch, 7), numbers(7)
    f = td.vmap(lambda x: td.kernel.call(TWICE, x + shift))
    for g in (f, td.jit(f)):
        assert np.array_equal(np.asarray(g(x)), (x + shift) * 2)


def test_in_scan_cond_and_while() -> None:
    x = numbers(6)
    scanned = td.jit(
        lambda x: td.scan(lambda c, _: (td.kernel.call(TWICE, c), None), x, length=3)[0]
    )
    chosen = td.jit(lambda p, x: td.cond(p, lambda x: td.kernel.call(TWICE, x), lambda x: x, x))
    grown = td.jit(
        lambda x: td.while_loop(
            lambda x: td.max(td.abs(x)) < 100, lambda x: td.kernel.call(TWICE, x), x
        )
    )
    assert np.array_equal(np.asarray(scanned(x)), x * 8)
    assert np.array_equal(np.asarray(chosen(True, x)), x * 2)
    assert np.array_equal(np.asarray(chosen(False, x)), x)
    assert 100 <= float(td.max(td.abs(grown(x)))) < 200


def test_derivatives_are_those_that_are_given() -> None:
    x = numbers(5)

    def back(inputs: Any, outputs: Any, cotangent: Any) -> Any:
        assert len(inputs) == 1
        assert outputs.shape == (5,)
        return (cotangent * 2,)

    def loss(x: Any) -> Any:
        return td.sum(td.kernel.call(TWICE, x, vjp=back) ** 2)

    for grad in (td.grad(loss), td.jit(td.grad(loss))):
        assert np.allclose(np.asarray(grad(x)), 8 * x)

    def both(primals: Any, tangents: Any) -> Any:
        return td.kernel.call(TWICE, *primals), td.kernel.call(TWICE, *tangents)

    value, change = td.jvp(lambda x: td.kernel.call(TWICE, x, jvp=both), (x,), (x,))
    assert np.array_equal(np.asarray(value), np.asarray(change))
    through = td.custom_vjp(lambda x: td.kernel.call(TWICE, x))
    through.defvjp(lambda x: (through(x), None), lambda held, g: (g * 2,))
    assert np.allclose(np.asarray(td.grad(lambda x: td.sum(through(x)))(x)), 2)


def test_without_a_rule_a_derivative_is_an_error_that_names_the_way() -> None:
    for f in (td.grad, lambda f: td.jit(td.grad(f))):
        with pytest.raises(UnsupportedError, match=r"kernel_call is not differentiable(.|\n)*vjp="):
            f(lambda x: td.sum(td.kernel.call(TWICE, x)))(numbers(4))
    with pytest.raises(BadInputs, match="vjp or jvp, not both"):
        td.kernel.call(TWICE, numbers(4), vjp=len, jvp=len)


def test_equal_programs_are_one_op_and_names_count() -> None:
    x = td.Spec((8,))

    def text(p: n.Program, q: n.Program) -> list[str]:
        graph = td.trace(lambda x: td.kernel.call(p, x) + td.kernel.call(q, x))(x)
        return [node.op.name for node in graph.nodes()]

    assert text(TWICE, td.kernel.parse(str(TWICE))).count("kernel_call") == 1
    assert text(TWICE, twice("other")).count("kernel_call") == 2


def test_the_text_of_a_graph_reads_back() -> None:
    graph = td.trace(lambda x: td.kernel.call(TWICE, x))(td.Spec((8,)))
    from tetrad.graph.text import parse

    assert parse(str(graph)) is graph


SECOND = """
import sys, numpy as np, tetrad as td
from tetrad.backends.cpu.compile import KERNELS
program = td.kernel.parse(sys.stdin.read())
f = td.jit(lambda x: td.kernel.call(program, x) + 1)
print(f(np.float32([1, 2, 3])).tolist(), KERNELS.compiled, "tetrad.lower.lower" in sys.modules)
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    def run() -> str:
        return subprocess.run(
            [sys.executable, "-c", SECOND], input=str(TWICE), capture_output=True, text=True,
            check=True, cwd=ROOT, env={"TETRAD_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)},
        ).stdout  # fmt: skip

    assert run().split("] ")[1] == "2 True\n"
    assert run() == "[3.0, 5.0, 7.0] 0 False\n"


def test_explain_counts_it() -> None:
    told = td.explain(lambda x: td.kernel.call(TWICE, x + 1))(numbers(1000))
    assert [kernel.launch.name for kernel in told.kernels] == ["add", "twice"]
    assert td.bisect(lambda x: td.kernel.call(TWICE, x + 1))(numbers(100)).agrees


def test_show_prints_the_kernel_and_its_launch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(os.environ, "TETRAD_SHOW", "kernel,schedule")
    td.jit(lambda x: td.kernel.call(TWICE, x))(numbers(33))
    shown = capsys.readouterr().err
    assert 'kernel "twice"\nworkgroup 16 1 1\nguarded\n' in shown
    assert "launch twice(%0, %1) groups=3 writes=y" in shown


# -- errors ----------------------------------------------------------------------------------------


def unknown_size() -> n.Program:
    k = KernelBuilder("unknown")
    x, y = k.buffer("x", f32), k.buffer("y", f32, "write")
    k.store(y, k.global_id(), k.load(x, k.cast(k.load(x, k.lane()), index)))
    return k.finish()


def own_count(count: int = 64) -> n.Program:
    k = KernelBuilder("own", 16)
    x, y = k.buffer("x", f32, count=4), k.buffer("y", f32, "write", count=count)
    k.store(y, k.global_id(), k.load(x, 0))
    return k.finish()


def needs_argument() -> n.Program:
    k = KernelBuilder("needs", 16)
    y = k.buffer("y", f32, "write", count=16)
    k.store(y, k.lane() + k.arg("shift"), 1.0)
    return k.finish()


def only_reads() -> n.Program:
    k = KernelBuilder("only_reads")
    k.load(k.buffer("x", f32), k.lane())
    return k.finish()


ONES = np.ones(4, np.float32)


@BOTH
@pytest.mark.parametrize(
    ("program", "arrays", "settings", "code", "match"),
    [
        (TWICE, [], {}, "D001", r"twice: takes 1 arrays \(x\), got 0"),
        (TWICE, [ONES, ONES], {}, "D001", "got 2"),
        (TWICE, [ONES.astype(np.int32)], {}, "D007", r"buffer x takes f32, got i32\[4\]"),
        (TWICE, ["text"], {}, "D007", "buffer x takes f32, got a str"),
        (own_count(), [ONES[:3]], {}, "D002", "buffer x has 4 elements, got 3"),
        (unknown_size(), [ONES], {}, "D004", "how long y is cannot be told"),
        (TWICE, [ONES], {"out": td.Spec((5,))}, "D004", r"4 elements, out has Spec\(f32\[5\]\)"),
        (TWICE, [ONES], {"out": td.Spec((4,), i32)}, "D007", "buffer y holds f32"),
        (TWICE, [ONES], {"out": [td.Spec((4,))] * 2}, "D001", r"writes 1 buffers \(y\), out has 2"),
        (own_count(1 << 46), [ONES], {}, "D004", "would take"),
        (needs_argument(), [], {}, "D005", "no value for argument 'shift'"),
        (needs_argument(), [], {"args": {"shift": 1.5}}, "D005", "argument shift is 1.5"),
        (needs_argument(), [], {"args": {"shift": 1 << 64}}, "D005", "leaves 64 bits"),
        (TWICE, [ONES], {"args": {"size": -4}}, "D004", "-4 is negative(.|\n)*_call.py line"),
        (TWICE, [ONES], {"args": {"other": 1}}, "D005", "no argument 'other'; it has size"),
        (TWICE, [ONES], {"grid": (1, 1)}, "D006", "three numbers of workgroups"),
        (TWICE, [ONES], {"grid": (1, -1, 1)}, "D006", "three numbers of workgroups"),
        (own_count(), [ONES], {"grid": (3, 1, 1)}, "D006", "writes y up to element 47, it has 64"),
        (own_count(), [ONES], {"grid": (0, 1, 1)}, "D006", "leaves y unwritten, it has 64"),
        (own_count(), [ONES], {"grid": (0, 1, 1)}, "D006", "test_kernel_call.py line"),
        (own_count(), [ONES], {"grid": (3, 1, 1)}, "D006", "test_kernel_call.py line"),
        (TWICE, [ONES], {"out": "x"}, "D007", "out is 'x', which has no shape and dtype"),
        (unknown_size(), [ONES], {"out": td.Spec((2, 2))}, "", ""),
        (only_reads(), [ONES], {}, "D004", "writes no buffer"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    run: Call, program: n.Program, arrays: list[Any], settings: Any, code: str, match: str
) -> None:
    arrays = [x if isinstance(x, str) else td.asarray(x) for x in arrays]
    given = [x for x in arrays if not isinstance(x, str)]

    def f(*xs: Any) -> Any:
        rest = iter(xs)
        return td.kernel.call(
            program, *[x if isinstance(x, str) else next(rest) for x in arrays], **settings
        )

    if not code:
        assert run(f)(*given).shape == (2, 2)
        return
    with pytest.raises(BadInputs, match=match) as error:
        run(f)(*given)
    assert error.value.code == code


def test_a_program_that_is_none_or_invalid_is_rejected() -> None:
    with pytest.raises(Rejected, match=r"kernel\.call: expected a program, got a str"):
        td.kernel.call("kernel", ONES)  # type: ignore[arg-type]
    x = n.Buffer("x", f32)
    store = n.Store(x, n.Const(index, 0), n.Const(f32, 1.0))
    bad = n.Program("wrong", (x,), (), (4, 1, 1), (store,))
    with pytest.raises(Rejected, match="wrong"):
        td.kernel.call(bad, ONES)
