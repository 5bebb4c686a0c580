"""td.callback: Python from inside a program, eagerly and compiled, in loops and batches; what it
sees, what it may return, what it raises."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.modules import ROOT
from tetrad.backends.cpu import code_cache
from tetrad.core.errors import DtypeError, ShapeError, TraceError, UnsupportedError
from tetrad.schedule.nodes import Callback
from tetrad.schedule.parse import parse
from tetrad.schedule.text import to_text

Call = Callable[..., Any]
BOTH = pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "jit"])
X = np.float32([3, 1, 2])


def backwards(x: np.ndarray) -> np.ndarray:
    return x[::-1]


# -- what it computes ------------------------------------------------------------------------------


@BOTH
def test_a_function_of_numpy_inside_a_program(run: Call) -> None:
    f = run(lambda x: td.callback(backwards, td.Spec((3,)), x * 2) + x)
    assert f(X).tolist() == (X[::-1] * 2 + X).tolist()
    assert f(X * 3).tolist() == (X[::-1] * 6 + X * 3).tolist()


@BOTH
def test_trees_in_and_out_and_arguments_by_name(run: Call) -> None:
    def both(pair: dict[str, Any], *, scale: Any) -> Any:
        return {"sum": (pair["a"] + pair["b"]) * scale, "count": np.int64(len(pair))}

    result = {"sum": td.Spec((3,)), "count": td.Spec((), td.int64)}
    got = run(lambda a, b: td.callback(both, result, {"a": a, "b": b}, scale=np.float32(2)))(X, X)
    assert got["sum"].tolist() == (X * 4).tolist()
    assert got["count"].item() == 2


@BOTH
def test_without_arguments(run: Call) -> None:
    f = run(lambda: td.callback(lambda: np.arange(3), td.Spec((3,), td.int64)))
    assert f().tolist() == [0, 1, 2]


@BOTH
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "bfloat16", "complex64"])
def test_every_type_of_element(run: Call, dtype: str) -> None:
    kind = getattr(td, dtype)
    x = td.asarray([1, 0, 1], dtype=kind)
    got = run(lambda x: td.callback(backwards, td.Spec((3,), kind), x))(x)
    assert got.dtype is kind
    assert got.tolist() == x.tolist()[::-1]


@BOTH
def test_numbers_of_python_and_sizes_of_zero(run: Call) -> None:
    assert run(lambda x: td.callback(lambda x: 1.5, td.Spec(()), x))(X).item() == 1.5
    empty = run(lambda x: td.callback(lambda x: x[:, :0], td.Spec((2, 0)), x))
    assert empty(np.ones((2, 3), np.float32)).shape == (2, 0)


@BOTH
def test_it_cannot_change_what_it_is_given_nor_keep_it(run: Call) -> None:
    held: list[np.ndarray] = []

    def spoil(x: np.ndarray) -> np.ndarray:
        assert type(x) is np.ndarray
        held.append(x)
        x[:] = 99
        return x

    x = td.asarray(X)
    f = run(lambda x: (td.callback(spoil, td.Spec((3,)), x), x + 0))
    for _ in range(3):
        spoilt, same = f(x)
        assert spoilt.tolist() == [99.0] * 3
        assert same.tolist() == X.tolist() == x.tolist()
    assert all(array.tolist() == [99.0] * 3 for array in held)


@BOTH
@pytest.mark.parametrize("given", [(), (X,)])
def test_what_it_returned_may_change_later(run: Call, given: tuple[Any, ...]) -> None:
    back = np.float32([1, 2])
    got = run(lambda *xs: td.callback(lambda *xs: back, td.Spec((2,)), *xs))(*given)
    back[0] = 99
    assert got.tolist() == [1.0, 2.0]


@BOTH
@pytest.mark.parametrize(
    ("dtype", "seen", "values"),
    [("int4", np.int8, [[1, -2, 3], [-8, 7, 0]]), ("uint4", np.uint8, [[1, 2, 3], [15, 7, 0]])],
)
def test_four_bits_are_bytes_to_it(run: Call, dtype: str, seen: Any, values: Any) -> None:
    kind = getattr(td, dtype)

    def turned(x: np.ndarray) -> np.ndarray:
        assert x.dtype == seen and x.shape == (2, 3)
        return x[::-1]

    x = td.asarray(values, dtype=kind)
    got = run(lambda x: td.callback(turned, td.Spec((2, 3), kind), x))(x)
    assert got.dtype is kind and got.tolist() == values[::-1]
    with pytest.raises(DtypeError, match="returned result of float32"):
        run(lambda x: td.callback(lambda x: x.astype("f4"), td.Spec((2, 3), kind), x))(x)


@BOTH
def test_blocks_of_quantised_numbers_are_refused(run: Call) -> None:
    q = td.quant.quantize(td.ones((1, 32)), "q8_0")
    with pytest.raises(DtypeError, match=r"args\[0\]\[0\] is (.|\n)*astype"):
        run(lambda q: td.callback(lambda x: x, td.Spec((1, 32)), q))(q)


@BOTH
def test_errors_about_results_name_the_line_of_the_user(run: Call) -> None:
    for wrong in (lambda x: x[:1], lambda x: x.astype(np.float64), lambda x: (x, x)):
        with pytest.raises((ShapeError, DtypeError, TraceError), match=r"test_callbacks\.py line"):
            run(lambda x, f=wrong: td.callback(f, td.Spec((3,)), x))(X)


@BOTH
def test_a_stopped_result_needs_no_derivative(run: Call) -> None:
    def f(x: Any) -> Any:
        return td.sum(x * td.stop_gradient(td.callback(backwards, td.Spec((3,)), x * 2)))

    assert run(td.grad(f))(X).tolist() == (X[::-1] * 2).tolist()
    _, tangent = td.jvp(f, (X,), (np.ones(3, np.float32),))
    assert tangent.item() == 12.0
    with pytest.raises(UnsupportedError, match="around its result"):
        run(td.grad(lambda x: td.sum(td.callback(backwards, td.Spec((3,)), x))))(X)


class Unhashable:
    """A function object that equals others, so it has no hash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x + 1


@BOTH
@pytest.mark.parametrize("f", [np.negative, functools.partial(np.add, 1), Unhashable()])
def test_any_callable_will_do(run: Call, f: Call) -> None:
    got = run(lambda x: td.callback(f, td.Spec((3,)), x))(X)
    assert got.tolist() == f(X).astype(np.float32).tolist()


def test_one_program_serves_every_size_of_a_dim() -> None:
    f = td.jit(
        lambda x: td.callback(backwards, td.Spec(x.shape), x), dims=({0: td.Dim("n", max=9)},)
    )
    for size in (1, 3, 9):
        assert f(np.arange(size, dtype=np.float32)).tolist() == [*range(size)][::-1]
    assert f.compiles == 1


# -- loops, branches, batches ----------------------------------------------------------------------


def test_in_scan_cond_while_and_nested_jit() -> None:
    spec = td.Spec((3,))
    scanned = td.jit(
        lambda xs: td.scan(lambda c, x: (c + td.callback(backwards, spec, x), c), td.zeros(3), xs)
    )
    total, _ = scanned(np.tile(X, (500, 1)))
    assert total.tolist() == (X[::-1] * 500).tolist()
    chosen = td.jit(
        lambda p, x: td.cond(p, lambda x: td.callback(backwards, spec, x), lambda x: x, x)
    )
    assert chosen(True, X).tolist() == X[::-1].tolist()
    assert chosen(False, X).tolist() == X.tolist()
    below = td.jit(
        lambda x: td.while_loop(
            lambda c: td.callback(lambda a: a.sum() < 100, td.Spec((), td.bool), c),
            lambda c: c * 2,
            x,
        )
    )
    assert below(X).tolist() == (X * 32).tolist()
    inner = td.jit(lambda x: td.callback(backwards, spec, x))
    assert td.jit(lambda x: inner(inner(x)) + inner(x))(X).tolist() == (X + X[::-1]).tolist()


def shapes_seen(method: str, run: Call) -> tuple[list[Any], np.ndarray]:
    seen: list[Any] = []

    def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        seen.append((a.shape, b.shape))
        return a + b

    xs = np.arange(12, dtype=np.float32).reshape(4, 3)
    f = td.vmap(
        lambda x, y: td.callback(add, td.Spec((3,)), x, y, vmap_method=method), in_axes=(0, None)
    )
    got = run(f)(xs, X)
    assert np.array_equal(np.asarray(got), xs + X)
    return seen, xs


@BOTH
@pytest.mark.parametrize(
    ("method", "seen"),
    [
        ("sequential", [((3,), (3,))] * 4),
        ("expand_dims", [((4, 3), (1, 3))]),
        ("broadcast_all", [((4, 3), (4, 3))]),
    ],
)
def test_batches_by_each_method(run: Call, method: str, seen: list[Any]) -> None:
    assert shapes_seen(method, run)[0] == seen


def test_a_batch_of_batches() -> None:
    xs = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    for method in ("sequential", "expand_dims", "broadcast_all"):
        f = td.vmap(td.vmap(functools.partial(turn, method=method)))
        assert np.array_equal(np.asarray(td.jit(f)(xs)), xs[..., ::-1])


def turn(x: Any, method: str) -> Any:
    return td.callback(lambda a: a[..., ::-1], td.Spec((3,)), x, vmap_method=method)


def test_derivatives_need_a_rule() -> None:
    def f(x: Any) -> Any:
        return td.callback(np.sin, td.Spec((3,)), x)

    for grad in (td.grad, lambda g: td.jit(td.grad(g))):
        with pytest.raises(
            UnsupportedError, match=r"callback is not differentiable(.|\n)*custom_vjp"
        ):
            grad(lambda x: td.sum(f(x)))(X)
    sine = td.custom_vjp(f)
    sine.defvjp(lambda x: (f(x), x), lambda x, g: (g * td.cos(x),))
    got = td.jit(td.grad(lambda x: td.sum(sine(x))))(X)
    assert np.allclose(np.asarray(got), np.cos(X), atol=1e-6)


# -- what it raises --------------------------------------------------------------------------------


class Odd(Exception):
    """An error of a user's own, with arguments of its own."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(a, b)


@BOTH
def test_what_it_raises_reaches_the_caller_as_it_is(run: Call) -> None:
    error = Odd(1, 2)
    fails = [True]

    def picky(x: np.ndarray) -> np.ndarray:
        if fails[0]:
            raise error
        return x

    f = run(lambda x: td.sum(td.callback(picky, td.Spec((3,)), x * 2)) + 1)
    for _ in range(3):
        fails[0] = True
        with pytest.raises(Odd) as caught:
            f(X)
        assert caught.value is error
        assert "picky" in [entry.name for entry in caught.traceback]
        fails[0] = False
        assert f(X).item() == 13.0
    assert td.jit(lambda x: x + 1)(X).tolist() == (X + 1).tolist()


@BOTH
def test_the_causes_of_an_error_stay(run: Call) -> None:
    def chained(x: np.ndarray) -> np.ndarray:
        try:
            raise KeyError("first")
        except KeyError as first:
            if x[0] > 0:
                raise ValueError("second") from first
            raise ValueError("third")  # noqa: B904  (its context is what is looked at)

    f = run(lambda x: td.callback(chained, td.Spec((3,)), x))
    with pytest.raises(ValueError, match="second") as error:
        f(X)
    assert isinstance(error.value.__cause__, KeyError)
    with pytest.raises(ValueError, match="third") as error:
        f(-X)
    assert isinstance(error.value.__context__, KeyError)
    assert not error.value.__suppress_context__


def test_a_raise_ends_a_loop_at_once() -> None:
    calls: list[int] = []

    def third(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        if len(calls) == 3:
            raise KeyError("third")
        return x

    f = td.jit(
        lambda x: td.scan(lambda c, _: (td.callback(third, td.Spec((3,)), c), None), x, length=50)
    )
    with pytest.raises(KeyError, match="third"):
        f(X)
    assert len(calls) == 3
    assert f(X)[0].tolist() == X.tolist()


@BOTH
@pytest.mark.parametrize(
    ("result", "returned", "error", "match"),
    [
        (td.Spec((3,)), X[:1], ShapeError, r"returned result of shape \[1\], .* f32\[3\]"),
        (td.Spec((3,)), np.ones(3), DtypeError, "returned result of float64, promised was f32"),
        (td.Spec((3,)), np.ones((3, 1), np.float32), ShapeError, r"shape \[3, 1\]"),
        (td.Spec(()), "text", DtypeError, "promised was f32"),
        (td.Spec((3,)), None, TraceError, "returned nothing, promised was result"),
        ((td.Spec((3,)),) * 2, X, TraceError, r"returned result, .* result\[0\], result\[1\]"),
    ],
)  # fmt: skip
def test_what_it_returns_is_checked(
    run: Call, result: Any, returned: Any, error: type[Exception], match: str
) -> None:
    def wrong(x: np.ndarray) -> Any:
        return returned

    with pytest.raises(error, match=f"callback: wrong {match}" if "returned" in match else match):
        run(lambda x: td.callback(wrong, result, x))(X)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: td.callback(3, td.Spec(()), X), "callback: f"),
        (lambda: td.callback(np.sin, (3,), X), r"result\[0\] is 3, which has no shape"),
        (lambda: td.callback(np.sin, (), X), "promises no array"),
        (lambda: td.callback(np.sin, td.Spec((3,)), "x"), "is 'x', not an array"),
        (lambda: td.callback(np.sin, td.Spec((3,)), X, vmap_method="all"), "no vmap_method 'all'"),
    ],
)
def test_what_is_refused(make: Call, match: str) -> None:
    with pytest.raises((TraceError, TypeError), match=match):
        make()


INTERRUPTED = """
import os, signal, threading, time, numpy as np, tetrad as td
def slow(x):
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    for _ in range(2000):
        time.sleep(0.01)
    return x
big = td.jit(lambda x: td.sum(td.callback(slow, td.Spec(x.shape), td.tanh(x))))
try:
    big(np.ones({shape}, np.float32))
except KeyboardInterrupt:
    print("stopped", td.jit(lambda x: x + 1)(np.float32(1)))
"""


@pytest.mark.parametrize("shape", ["3", "(1000, 1000)"], ids=["light", "heavy"])
def test_ctrl_c_reaches_the_function(shape: str) -> None:
    settings = {"cwd": ROOT, "timeout": 60, "stdout": subprocess.PIPE, "text": True, "check": True}
    done = subprocess.run([sys.executable, "-c", INTERRUPTED.format(shape=shape)], **settings)  # type: ignore[call-overload]
    assert done.stdout == "stopped 2.0\n"


# -- threads, programs -----------------------------------------------------------------------------


def test_it_runs_on_the_thread_that_called_the_program() -> None:
    seen: set[int] = set()

    def here(x: np.ndarray) -> np.ndarray:
        seen.add(threading.get_ident())
        return x

    f = td.jit(lambda x: td.sum(td.callback(here, td.Spec(x.shape), td.tanh(x)) * 2))
    big = np.ones((1500, 1000), np.float32)
    f(big)
    assert seen == {threading.get_ident()}
    others = [threading.Thread(target=f, args=(big,)) for _ in range(3)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
    assert seen == {threading.get_ident(), *(thread.ident for thread in others)}


def test_it_may_call_compiled_functions_itself() -> None:
    inner = td.jit(lambda x: td.tanh(x) @ x)
    big = np.ones((400, 400), np.float32) / 400

    def outer(x: np.ndarray) -> np.ndarray:
        return np.asarray(inner(x))

    f = td.jit(lambda x: td.callback(outer, td.Spec(x.shape), x * 1) + 1)
    assert np.array_equal(np.asarray(f(big)), np.asarray(inner(big)) + 1)


def test_equal_calls_are_one_and_what_nobody_needs_is_not_called() -> None:
    calls: list[int] = []

    def count(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        return x

    spec = td.Spec((3,))
    f = td.jit(lambda x: td.callback(count, spec, x) + td.callback(count, spec, x))
    g = td.jit(lambda x: (td.callback(count, spec, x), x)[1])
    assert f(X).tolist() == (X * 2).tolist()
    assert len(calls) == 1
    g(X)
    assert len(calls) == 1
    whole = td.jit(lambda: td.callback(count, td.Spec((3,), td.int32), td.asarray([1, 2, 3])))
    whole()
    whole()
    assert len(calls) == 3  # not folded into a constant


def test_programs_with_it_are_not_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    f = td.jit(lambda x: td.callback(backwards, td.Spec((3,)), x * 7.125))
    keys: list[str] = []
    cache = code_cache.disk_cache()
    monkeypatch.setattr(
        type(cache), "put", lambda self, key, body: keys.append(body[:4].decode("latin1"))
    )
    f(X)
    assert not any(key.startswith("code") for key in keys)


def test_the_schedule_shows_it() -> None:
    schedule = td.jit(lambda x: td.callback(backwards, td.Spec((3,)), x + 1)).bound(X).program
    lowered = schedule.executable.full().schedule
    (step,) = [s for s in lowered.steps if isinstance(s, Callback)]
    assert step.name == "backwards"
    text = to_text(lowered, sources=False)
    assert "  python backwards(%1:f32[3] -> %2)\n" in text
    read = parse(text)
    assert to_text(read) == text
    with pytest.raises(UnsupportedError, match="backwards: a function of Python's"):
        read.steps[-1].function([], [], None)  # type: ignore[union-attr]


def test_explain_and_checks_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        return td.callback(backwards, td.Spec((3,)), x + 1) * 2

    told = td.explain(f)(X)
    assert [kernel.name for kernel in told.kernels] == ["add", "backwards", "multiply"]
    assert "a function of Python's" in told.kernels[1].text
    assert td.bisect(f)(X).agrees
    for name in ("TETRAD_CHECK", "TETRAD_INTERPRET"):
        with monkeypatch.context() as patch:
            patch.setitem(os.environ, name, "1")
            assert td.jit(f)(X).tolist() == ((X + 1)[::-1] * 2).tolist()
