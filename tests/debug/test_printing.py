"""td.debug.print and callback, io_callback: what happens in a program happens once a step, in
order, whatever transforms and passes do (ops: effect, and tie, which keeps it in the graph)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import ShapeError, TraceError, UnsupportedError
from tetrad.debug import breakpoint as stop

Call = Callable[..., Any]
BOTH = pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "jit"])
ROWS = np.arange(3, dtype=np.float32)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def step(carry: Any, x: Any) -> Any:
    td.debug.print("{} {}", carry, x)
    td.debug.print("and")
    return carry + x, None


STEPS = ["0.0 0.0", "and", "0.0 1.0", "and", "1.0 2.0", "and"]


def shown(x: Any) -> Any:
    td.debug.print("x={}", x)
    return x * x


@BOTH
def test_values_are_printed_in_every_call_in_order(run: Call, capsys: Any) -> None:
    def function(x: Any) -> Any:
        td.debug.print("first {:.1f}", x)
        td.debug.print("second {y} {name}", y=x * 2, name="static", ordered=True)
        return x

    f = run(function)
    f(np.float32(3))
    f(np.float32(4))
    assert lines(capsys) == ["first 3.0", "second 6.0 static", "first 4.0", "second 8.0 static"]


@BOTH
def test_a_function_that_returns_nothing_prints(run: Call, capsys: Any) -> None:
    assert run(lambda x: td.debug.print("{}", x))(1.0) is None
    assert lines(capsys) == ["1.0"]


@BOTH
def test_a_batch_that_returns_nothing_prints(run: Call, capsys: Any) -> None:
    assert run(td.vmap(lambda x: td.debug.print("{}", x)))(ROWS) is None
    assert lines(capsys) == ["0.0", "1.0", "2.0"]


@BOTH
def test_equal_calls_are_all_made(run: Call, capsys: Any) -> None:
    inner = run(lambda x: td.debug.print("in {}", x) or x * 1)
    run(lambda x: inner(x) + inner(x))(2.0)
    assert lines(capsys) == ["in 2.0"] * 2


@BOTH
@pytest.mark.parametrize("unroll", [1, 2, True])
@pytest.mark.parametrize("is_needed", [True, False], ids=["needed", "unneeded"])
def test_once_a_step_of_a_scan(run: Call, unroll: Any, is_needed: bool, capsys: Any) -> None:
    def function(xs: Any) -> Any:
        carry, _ = td.scan(step, 0.0, xs, unroll=unroll)
        return carry if is_needed else xs

    run(function)(ROWS)
    assert lines(capsys) == STEPS


@BOTH
def test_a_scan_without_carry_and_results(run: Call, capsys: Any) -> None:
    run(lambda xs: td.scan(lambda _, x: (None, td.debug.print("{}", x)), None, xs) and 1.0)(ROWS)
    assert lines(capsys) == ["0.0", "1.0", "2.0"]


@BOTH
def test_what_does_not_change_in_a_loop_is_printed_in_each_step(run: Call, capsys: Any) -> None:
    def function(y: Any) -> Any:
        return td.fori_loop(0, 3, lambda i, v: td.debug.print("{}", td.sin(y)) or v + 1, 0)

    run(function)(0.0)
    assert lines(capsys) == ["0.0"] * 3


@BOTH
def test_while_loops_body_and_condition(run: Call, capsys: Any) -> None:
    def goes_on(i: Any) -> Any:
        td.debug.print("asked {}", i)
        return i < 2

    run(lambda n: td.while_loop(goes_on, lambda i: td.debug.print("i={}", i) or i + 1, n))(0)
    assert lines(capsys) == ["asked 0", "i=0", "asked 1", "i=1", "asked 2"]


@BOTH
def test_a_for_loop_without_a_carry(run: Call, capsys: Any) -> None:
    run(lambda n: td.fori_loop(0, n, lambda i, _: td.debug.print("{}", i), None))(3)
    assert lines(capsys) == ["0", "1", "2"]


def test_a_while_loop_without_a_carry_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="need a carry"):
        td.while_loop(lambda _: False, lambda _: td.debug.print("never"), None)


@BOTH
def test_the_branch_that_is_taken(run: Call, capsys: Any) -> None:
    f = run(lambda x: td.cond(x > 0, lambda x: td.debug.print("positive {}", x), lambda x: None, x))
    assert (f(1.0), f(-1.0)) == (None, None)
    assert lines(capsys) == ["positive 1.0"]


@BOTH
def test_rows_of_a_batch_and_what_they_share(run: Call, capsys: Any) -> None:
    def function(x: Any) -> Any:
        td.debug.print("row {}", x)
        td.debug.print("once")
        td.debug.print("again {}", x)
        return x

    assert run(td.vmap(function))(ROWS).tolist() == [0, 1, 2]
    rows = ["0.0", "1.0", "2.0"]
    assert lines(capsys) == [*(f"row {r}" for r in rows), "once", *(f"again {r}" for r in rows)]


def test_a_batch_of_while_loops_prints_all_rows_until_the_last_is_done(capsys: Any) -> None:
    def until(n: Any) -> Any:
        return td.while_loop(lambda i: i < n, lambda i: td.debug.print("{}", i) or i + 1, 0)

    assert td.vmap(until)(np.int32([1, 2])).tolist() == [1, 2]
    assert lines(capsys) == ["0", "0", "1", "1"]


@BOTH
@pytest.mark.parametrize(
    "derivative",
    [
        td.grad,
        td.value_and_grad,
        lambda f: lambda x: td.jvp(f, (x,), (1.0,)),
        lambda f: lambda x: td.vjp(f, x)[1](1.0),
        lambda f: lambda x: td.linearize(f, x)[1](1.0),
        lambda f: td.grad(td.checkpoint(f)),
        lambda f: td.grad(td.grad(f)),
        lambda f: td.jacrev(f),
        lambda f: td.jacfwd(f),
    ],
)
def test_derivatives_print_in_their_forward_part(run: Call, derivative: Call, capsys: Any) -> None:
    run(derivative(shown))(3.0)
    assert lines(capsys) == ["x=3.0"]


@BOTH
@pytest.mark.parametrize("checkpoint", [None, "sqrt", "none", ("bisect", 1)])
def test_gradients_of_scans_print_each_step_once(run: Call, checkpoint: Any, capsys: Any) -> None:
    run(td.grad(lambda s: td.scan(step, s, ROWS, checkpoint=checkpoint)[0] ** 2))(0.0)
    assert lines(capsys) == STEPS


@BOTH
def test_a_gradient_whose_value_nobody_needs(run: Call, capsys: Any) -> None:
    assert run(td.grad(lambda x: td.debug.print("x={}", x) or x * 2))(3.0).item() == 2
    assert lines(capsys) == ["x=3.0"]


@BOTH
def test_custom_rules_print(run: Call, capsys: Any) -> None:
    @td.custom_vjp
    def f(x: Any) -> Any:
        return x

    def forward(x: Any) -> Any:
        td.debug.print("forward {}", x)
        return x, None

    def backward(_: Any, ct: Any) -> Any:
        td.debug.print("backward {}", ct)
        return (ct,)

    f.defvjp(forward, backward)
    run(td.grad(f))(2.0)
    assert lines(capsys) == ["forward 2.0", "backward 1.0"]


def test_a_derivative_on_values_prints_at_once(capsys: Any) -> None:
    def function(x: Any) -> Any:
        td.debug.print("before {}", x)
        print("python")
        return x * x

    td.grad(function)(3.0)
    assert lines(capsys) == ["before 3.0", "python"]


@BOTH
@pytest.mark.parametrize("dtype", [td.float64, td.float16, td.bfloat16, td.int8, td.bool])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_any_dtype_and_shape(run: Call, dtype: Any, shape: Any, capsys: Any) -> None:
    x = td.ones(shape, dtype=dtype)
    assert run(lambda x: td.debug.print("{}", x) or x)(x).dtype is dtype
    assert "\n".join(lines(capsys)) == f"{np.asarray(x)}"


def test_complex_numbers(capsys: Any) -> None:
    assert td.jit(lambda x: td.debug.print("{}", x) or x * 2j)(np.complex64(1)).item() == 2j
    assert lines(capsys) == ["(1+0j)"]


def test_symbolic_sizes(capsys: Any) -> None:
    f = td.jit(lambda x: td.debug.print("{}", x) or x + 1, dims=({0: td.Dim("n", max=8)},))
    f(ROWS)
    f(ROWS[:1])
    assert lines(capsys) == ["[0. 1. 2.]", "[0.]"]
    assert f.compiles == 1


@pytest.mark.parametrize(
    ("fmt", "args", "named", "said"),
    [
        ("x", (1,), {}, "no field for these values: number 0"),
        ("{}", (), {}, "fields without a value: 0"),
        ("{x}", (), {"y": 1}, "fields without a value: x"),
        ("{} {0}", (1,), {}, "mixes"),
        ("{", (), {}, "no format"),
        (7, (), {}, "not a string"),
    ],
)
def test_a_wrong_format_is_told_while_tracing(fmt: Any, args: Any, named: Any, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        td.debug.print(fmt, *args, **named)


def test_nested_fields_and_attributes(capsys: Any) -> None:
    td.debug.print("{x.shape[0]:>{width}} {{}}", x=ROWS, width=3)
    assert lines(capsys) == ["  3 {}"]


# -- callbacks -------------------------------------------------------------------------------------


@BOTH
def test_lines_go_to_the_log_once_a_step(run: Call, caplog: pytest.LogCaptureFixture) -> None:
    def step(total: Any, x: Any) -> Any:
        td.debug.log("{:.0f}% of {f}", total, f=x)
        return total + x, None

    with caplog.at_level("INFO", "tetrad.debug"):
        run(lambda xs: td.scan(step, 0.0, xs)[0])(ROWS)
    told = [(line.name, line.levelname, line.getMessage()) for line in caplog.records]
    wanted = ["0% of 0.0", "0% of 1.0", "1% of 2.0"]
    assert told == [("tetrad.debug", "INFO", text) for text in wanted]


def test_a_wrong_format_of_the_log_is_told_by_its_name() -> None:
    with pytest.raises(TraceError, match=r"debug.log: .* no field(.|\n)*td.debug.log\(\"x = "):
        td.debug.log("x", 1.0)
    with pytest.raises(TraceError, match=r"debug.log: the format is float"):
        td.debug.log(1.0)  # type: ignore[arg-type]


def test_the_log_by_the_name_of_jax() -> None:
    import tetrad.jax as jax

    assert jax.debug.log is td.debug.log


def test_what_a_callback_raises_reaches_the_caller_with_its_traceback() -> None:
    def broken(x: Any) -> None:
        raise ValueError(f"mine {x}")

    f = td.jit(lambda x: td.debug.callback(broken, x) or x)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"mine 1\.0") as caught:
            f(1.0)
        assert caught.traceback[-1].name == "broken"


def test_callbacks_run_on_the_calling_thread_and_may_call_programs() -> None:
    other, seen = td.jit(lambda x: x + 1), []
    f = td.jit(lambda x: td.debug.callback(lambda x: seen.append((threading.get_ident(), other(x).item())), x) or x @ x)  # fmt: skip  # noqa: E501
    f(np.ones((300, 300), np.float32)[:1, :1])
    assert seen == [(threading.get_ident(), 2.0)]


def test_an_exception_in_a_step_stops_the_loop() -> None:
    seen: list[float] = []

    def broken(x: Any) -> None:
        seen.append(x.item())
        if x == 1:
            raise KeyError("stop")

    f = td.jit(lambda xs: td.scan(lambda c, x: (td.debug.callback(broken, x) or c, None), 0, xs)[0])
    with pytest.raises(KeyError):
        f(ROWS)
    assert seen == [0, 1]


@BOTH
def test_io_callbacks_are_never_shared_or_dropped(run: Call) -> None:
    numbers = count()

    def read() -> Any:
        return td.io_callback(lambda: next(numbers), td.Spec((), td.int32))

    f = run(lambda x: (read(), read(), read())[:2])
    first, second = f(1.0), f(1.0)
    assert [x.item() for x in (*first, *second)] == [0, 1, 3, 4]
    assert next(numbers) == 6


def test_what_happens_later_has_no_value_while_tracing() -> None:
    with pytest.raises(TraceError, match="truth value"):
        td.jit(lambda: bool(td.io_callback(lambda: 1, td.Spec((), td.int32))))()


@BOTH
def test_io_callbacks_in_batches_and_loops(run: Call) -> None:
    numbers = count(10)

    def add(x: Any) -> Any:
        return td.io_callback(lambda x: next(numbers) + x, td.Spec((), td.int32), x)

    assert run(td.vmap(add))(np.int32([0, 100])).tolist() == [10, 111]
    assert run(lambda: td.fori_loop(0, 3, lambda _, v: add(v), 0))().item() == 12 + 13 + 14


def test_an_io_callback_without_a_result(capsys: Any) -> None:
    f = td.jit(lambda x: (td.io_callback(print, None, x, ordered=True), x)[1])
    f(3)
    assert lines(capsys) == ["3"]


def test_an_io_callback_has_no_derivative() -> None:
    def read(x: Any) -> Any:
        return td.io_callback(lambda x: x, td.Spec(()), x)

    with pytest.raises(UnsupportedError, match="stop_gradient"):
        td.jit(td.grad(read))(1.0)
    assert td.jit(td.grad(lambda x: x * read(td.stop_gradient(x))))(3.0).item() == 3


def test_a_checkpoint_refuses_to_read_again() -> None:
    def body(c: Any, x: Any) -> Any:
        y = td.io_callback(lambda x: x, td.Spec(()), td.stop_gradient(x))
        return c * y, None

    with pytest.raises(UnsupportedError, match="needed again"):
        td.grad(lambda s: td.scan(body, s, ROWS, checkpoint="sqrt")[0])(1.0)
    assert td.grad(lambda s: td.scan(body, s, ROWS + 1)[0])(1.0).item() == 6


@BOTH
def test_pure_callbacks_by_the_name_of_jax(run: Call) -> None:
    f = run(lambda x: td.pure_callback(np.sort, x, x, vmap_method="expand_dims"))
    assert f(np.float32([3, 1])).tolist() == [1, 3]
    assert td.vmap(f)(np.float32([[3, 1], [0, -1]])).tolist() == [[1, 3], [-1, 0]]


def test_promises_are_checked() -> None:
    with pytest.raises(ShapeError, match=r"io_callback: .* promised was f32\[2\]"):
        td.jit(lambda: td.io_callback(lambda: np.float32(1), td.Spec((2,))))()


def test_a_breakpoint_stops_in_the_debugger(monkeypatch: Any) -> None:
    stops: list[Any] = []
    monkeypatch.setattr("pdb.Pdb.set_trace", lambda self, frame=None: stops.append(frame.f_locals))
    td.jit(lambda x: stop(x, y=x * 2) or x)(3.0)
    assert stops[0]["values"][0] == 3
    assert stops[0]["named"]["y"] == 6
