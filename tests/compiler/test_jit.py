"""jit: one program per signature, trees in and out, symbolic sizes, donation, threads."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from typing import Any, NamedTuple

import numpy as np
import pytest

import tetrad as td
from tests.compiler.engine import Evaluator, jit
from tetrad.compiler.jit import Jitted
from tetrad.core.errors import DtypeError, ShapeError, TraceError


class Pair(NamedTuple):
    a: Any
    b: Any


def test_one_program_per_signature() -> None:
    f = jit(lambda x: x + 1)
    for size in (2, 3, 2, 3):
        assert f(td.zeros(size)).shape == (size,)
    f(td.zeros(2, dtype=td.int32))
    f(np.zeros(2, np.float32))  # NumPy arrays have the same types
    assert f.compiles == 3
    assert f.signatures == ["(x: f32[2])", "(x: f32[3])", "(x: i32[2])"]
    assert repr(f) == "<jitted <lambda>, compiled 3 times>"


def test_trees_keywords_and_none() -> None:
    def f(params: Any, x: Any, *, scale: Any = None) -> Any:
        y = x @ params["w"] + params["b"][0]
        return Pair(y if scale is None else y * scale, {"none": None, "x": [x, 1.5]})

    params = {"w": td.ones((2, 3)), "b": [td.zeros(3)]}
    jitted = jit(f)
    for settings in ({}, {"scale": 2.0}, {"scale": td.asarray(3.0)}):
        got, want = (
            jitted(params, td.ones((4, 2)), **settings),
            f(params, td.ones((4, 2)), **settings),
        )
        assert isinstance(got, Pair) and got.b["none"] is None and float(got.b["x"][1]) == 1.5
        np.testing.assert_array_equal(got.a, want.a)
    assert jitted.compiles == 3


def test_static_values_select_the_program() -> None:
    f = jit(
        lambda x, n, how="add": x + n if how == "add" else x * n,
        static_argnums=1,
        static_argnames="how",
    )
    x = td.asarray([1.0, 2.0])
    assert (
        f(x, 2).tolist() == [3, 4]
        and f(x, 2, how="mul").tolist() == [2, 4]
        and f(x, 3, "mul").tolist() == [3, 6]
    )
    assert f(x, n=2).tolist() == [3, 4]
    assert (
        f(td.asarray([1, 2]), 2).dtype is td.int32
        and f(td.asarray([1, 2]), 2.0).dtype is td.float32
    )
    assert "n=2" in f.signatures[0] and "how='mul'" in f.signatures[1]


def test_a_function_without_arguments_and_one_without_arrays() -> None:
    assert jit(lambda: td.arange(3))().tolist() == [0, 1, 2]
    assert jit(lambda a, b: a + b)(1, 2).item() == 3
    assert jit(lambda x: ())(td.zeros(2)) == ()


def test_methods() -> None:
    class Model:
        def __init__(self) -> None:
            self.weight = td.asarray([2.0])

        @(lambda f: jit(f, static_argnums=0))
        def __call__(self, x: Any) -> Any:
            return x * self.weight

    assert Model()(td.asarray([3.0])).tolist() == [6]


def test_wrapping_keeps_name_and_docs() -> None:
    def documented(x: Any) -> Any:
        """Says what it does."""
        return x

    f = jit(documented)
    assert f.__name__ == "documented" and f.__doc__ == "Says what it does."  # type: ignore[attr-defined]


def test_the_decorator_takes_settings() -> None:
    @td.jit(static_argnames="n")
    def f(x: Any, n: int) -> Any:
        return x + n

    assert isinstance(f, Jitted) and isinstance(td.jit(lambda x: x), Jitted)


def test_trace_of_a_jitted_function() -> None:
    f = jit(lambda x: x + 1, dims=({0: td.Dim("n")},))
    assert str(f.trace(td.Spec((3,))).graph.inputs[0].type) == "f32[n]"
    assert f.compiles == 0


# symbolic sizes


def test_one_program_for_all_sizes() -> None:
    batch = td.Dim("batch", max=16)
    f = jit(lambda x, y: x + y, dims=({0: batch}, {0: batch}))
    for size in (1, 5, 16, 5):
        assert f(td.ones((size, 2)), td.ones((size, 2))).shape == (size, 2)
    assert f.compiles == 1 and f.signatures == ["(x: f32[batch,2], y: f32[batch,2])"]
    with pytest.raises(ShapeError, match=r"batch is 17 \(axis 0 of x\), it must lie in 1 to 16"):
        f(td.ones((17, 2)), td.ones((17, 2)))
    with pytest.raises(
        ShapeError,
        match=r"axis 0 of y is 4, but it should be batch where batch is 3 \(axis 0 of x\)",
    ):
        f(td.ones((3, 2)), td.ones((4, 2)))
    with pytest.raises(ShapeError, match="batch is 0"):
        f(td.ones((0, 2)), td.ones((0, 2)))


def test_dims_by_name_by_prefix_and_none() -> None:
    n = td.Dim("n", max=9)
    f = jit(lambda p, x, *, z: (p["a"] + p["b"][0], x, z), dims={"p": {0: n}, "z": {1: 2 * n}})
    for size in (1, 3):
        f({"a": td.zeros(size), "b": [td.zeros(size)]}, td.zeros(2), z=td.zeros((1, 2 * size)))
    assert f.compiles == 1
    with pytest.raises(ShapeError, match=r"axis 1 of z is 5, but it should be 2\*n where n is 3"):
        f({"a": td.zeros(3), "b": [td.zeros(3)]}, td.zeros(2), z=td.zeros((1, 5)))
    g = jit(lambda t: t[0] + t[1]["x"], dims=(({0: n}, {"x": {0: n}}),))
    assert g((td.zeros(4), {"x": td.zeros(4)})).shape == (4,)


def test_dims_that_do_not_fit() -> None:
    n = td.Dim("n")
    with pytest.raises(ShapeError, match="has no axis 3"):
        jit(lambda x: x, dims=({3: n},))(td.zeros((2, 2)))
    with pytest.raises(ShapeError, match="no axis has the size n by itself"):
        jit(lambda x: x, dims=({0: 2 * n},))(td.zeros(4))
    with pytest.raises(ShapeError, match="2 entries for a container of 1"):
        jit(lambda x: x[0], dims=([{0: n}, {0: n}],))([td.zeros(2)])
    with pytest.raises(ShapeError, match=r"the size -3\+n is -1"):
        jit(lambda x: x[3:], dims=({0: n},))(td.zeros(2))


# donation


def test_donated_arguments_are_gone() -> None:
    f = jit(lambda state, x: ([state[0] + x, state[1]], x), donate_argnums=0)
    state, x = [td.zeros(3), td.ones(2)], td.ones(3)
    (state_again, _), (first, second) = f(state, x), state
    assert first.is_deleted and second.is_deleted and not x.is_deleted
    assert repr(first) == "Array(donated f32[3])"
    for use in (
        lambda: first + 1,
        lambda: np.asarray(first),
        lambda: f([first, second], x),
        lambda: float(first[0]),
    ):
        with pytest.raises(TraceError, match=r"f32\[3\] was donated"):
            use()
    (third, _), _ = f(state_again, x)
    assert third.tolist() == [2, 2, 2]
    engine = f.engine
    assert isinstance(engine, Evaluator) and engine.donated == [(0, 1)]


def test_donating_never_harms_what_others_see() -> None:
    class Overwriting(Evaluator):
        """Writes into donated memory, as compiled code may."""

        def compile_graph(self, graph: Any, donated: tuple[int, ...]) -> Any:
            compiled = super().compile_graph(graph, donated)
            inner = compiled.run

            def run(storages: Any, dims: Any) -> Any:
                results = inner(storages, dims)
                for i in donated:
                    storages[i].as_numpy(np.dtype(np.uint8), (storages[i].nbytes,))[:] = 0xEE
                return results

            compiled.run = run  # type: ignore[method-assign]
            return compiled

    f = Jitted(lambda x: x + 1, Overwriting(), donate_argnums=0)
    source = np.ones(4, np.float32)
    f(source)
    assert source.tolist() == [1, 1, 1, 1]
    x = f(source)
    part, seen = x[1:3], np.asarray(x)
    f(x)
    assert part.tolist() == [2, 2] and seen.tolist() == [2, 2, 2, 2]


def test_a_result_that_nobody_has_seen_is_donated_in_place() -> None:
    taken: list[Any] = []

    class Watching(Evaluator):
        def compile_graph(self, graph: Any, donated: tuple[int, ...]) -> Any:
            compiled = super().compile_graph(graph, donated)
            inner = compiled.run
            compiled.run = lambda storages, dims: (
                taken.append(storages[0]),
                inner(storages, dims),
            )[1]  # type: ignore
            return compiled

    f = Jitted(lambda x: x + 1, Watching(), donate_argnums=0)
    x = f(np.zeros(3, np.float32))
    own = x._storage
    address = own.ptr
    del own
    y = f(x)
    assert taken[-1].ptr == address and x.is_deleted
    held, address = y._storage, y._storage.ptr  # a second holder, as when two outputs are one
    f(y)
    assert held.ptr == address and taken[-1].ptr != address


@pytest.mark.parametrize("view", [False, True])
def test_an_array_donated_twice_does_not_change_what_numpy_sees(view: bool) -> None:
    f = td.jit(lambda x, y: (x + 1, y * 2), donate_argnums=(0, 1))
    x = td.jit(lambda x: x + 1)(np.arange(4, dtype=np.float32))
    seen = np.asarray(x) if view else None
    a, b = f(x, x)
    assert a.tolist() == [2, 3, 4, 5] and b.tolist() == [2, 4, 6, 8] and x.is_deleted
    assert seen is None or seen.tolist() == [1, 2, 3, 4]


def test_shared_memory_is_not_donated() -> None:
    mine = np.frombuffer(np.arange(4, dtype=np.float32).tobytes(), np.float32)
    x = td.asarray(mine, copy=False)
    td.jit(lambda x, y: (x + 1, y * 2), donate_argnums=(0, 1))(x, x)
    assert mine.tolist() == [0, 1, 2, 3]


def test_donated_arguments_by_name_by_keyword_and_from_the_end() -> None:
    for settings in ({"donate_argnums": -1}, {"donate_argnames": "y"}, {"donate_argnames": ["y"]}):
        f = td.jit(lambda x, y: x + y, **settings)
        for call in (lambda x, y, f=f: f(x, y), lambda x, y, f=f: f(x, y=y)):
            x, y = td.ones(3), td.ones(3)
            call(x, y)
            assert y.is_deleted and not x.is_deleted


def test_what_cannot_be_donated() -> None:
    with pytest.raises(TraceError, match=r"donate_argnums has 3, there are 1 positional"):
        td.jit(lambda x: x, donate_argnums=3)
    with pytest.raises(TraceError, match=r"donate_argnames has 'z', the parameters are x"):
        td.jit(lambda x: x, donate_argnames="z")
    with pytest.raises(TraceError, match=r"n is static, only arrays can be donated"):
        td.jit(lambda x, n: x * n, static_argnames="n", donate_argnums=1)


# arguments


def test_only_functions_are_compiled() -> None:
    with pytest.raises(TraceError, match="expected a function, got an int"):
        td.jit(3)  # type: ignore[arg-type]


def test_a_spec_has_no_values_also_after_arrays_of_its_type() -> None:
    f = td.jit(lambda x: x + 1)
    f(td.zeros(3))
    with pytest.raises(TraceError, match=r"Spec\(f32\[3\]\) has no values to run with"):
        f(td.Spec((3,)))


def test_python_ints_that_do_not_fit_are_refused_not_cut_off() -> None:
    inner = td.jit(lambda x, n: x * n)
    for f in (td.jit(lambda x, n: x + n), inner, td.jit(lambda x, n: inner(x, n))):
        x = td.asarray([1, 2])
        assert f(x, 7).dtype is td.int32
        with pytest.raises(DtypeError, match=r"n is 1099511627776, which does not fit i32"):
            f(x, 1 << 40)
        with pytest.raises(DtypeError, match=r"n is -1, which does not fit u8"):
            f(td.asarray([1, 2], dtype=td.uint8), -1)
        f(td.asarray([1, 2], dtype=td.int64), 1 << 40)
        f(td.asarray([1.0, 2.0]), 1 << 40)
    with pytest.raises(DtypeError, match=r"9223372036854775808 does not fit i64"):
        td.jit(lambda n: n + 1)(1 << 63)


def test_numpy_arrays_in_the_other_byte_order() -> None:
    x = np.arange(3, dtype=np.float32)
    for other in (x.astype(">f4"), x.astype(x.dtype.newbyteorder())):
        assert (
            td.jit(lambda x: x + 1)(other).tolist() == [1, 2, 3] == (td.asarray(other) + 1).tolist()
        )


@td.jit
def public_function(x: td.Array) -> td.Array:
    return x + 1


def test_compiled_functions_are_copied_and_sent_as_functions_are() -> None:
    assert copy.deepcopy({"f": public_function})["f"] is public_function
    public_function.__module__ = "tests.tracing.here"
    sys.modules["tests.tracing.here"] = sys.modules[__name__]
    assert pickle.loads(pickle.dumps(public_function)) is public_function
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(td.jit(lambda x: x))


def test_marks_of_axes_are_dims_of_different_names() -> None:
    wrong = [(3, "expected a tuple with one entry per argument"), (({0: 5},),
    "axis 0 of x is marked with 5"),
             (({0: "n"},), "axis 0 of x is marked with 'n'")]  # fmt: skip
    for dims, message in wrong:
        with pytest.raises(ShapeError, match=message):
            td.jit(lambda x: x, dims=dims)(td.zeros(4))
    with pytest.raises(ShapeError, match="two Dims are named k, with max 4 and 9"):
        td.jit(lambda x, y: x, dims=({0: td.Dim("k", max=4)}, {0: td.Dim("k", max=9)}))(
            td.zeros(4), td.zeros(4)
        )


def test_a_symbolic_size_is_a_number_beside_arrays() -> None:
    f = td.jit(lambda x: (x.shape[0] * x, x.shape[0] / x, x.shape[0] - x), dims=({0: td.Dim("n")},))
    for size in (2, 3):
        x = np.arange(1, size + 1, dtype=np.float32)
        for got, want in zip(f(x), (size * x, size / x, size - x), strict=True):
            np.testing.assert_array_equal(got, want)


# threads


def test_traced_arrays_stay_on_their_thread() -> None:
    box: list[Any] = []

    def f(x: Any) -> Any:
        def other() -> None:
            try:
                _ = x + 1
            except TraceError as error:
                box.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return x

    jit(f)(td.zeros(2))
    assert "a traced f32[2] was used on another thread than that of f" in box[0]


def test_threads_share_one_program() -> None:
    f = jit(lambda x: td.tanh(x) + x)
    x = td.ones(100)
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append([f(x) for _ in range(20)])) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert f.compiles == 1 and len(results) == 4
    assert all(np.array_equal(y, results[0][0]) for ys in results for y in ys)


def test_tracing_on_one_thread_does_not_touch_another() -> None:
    inside, done = threading.Event(), threading.Event()

    def f(x: Any) -> Any:
        inside.set()
        done.wait(10)
        return x

    thread = threading.Thread(target=lambda: td.trace(f)(td.Spec((2,))))
    thread.start()
    inside.wait(10)
    assert isinstance(td.zeros(2) + 1, td.Array) and (td.zeros(2) + 1).tolist() == [1, 1]
    done.set()
    thread.join()


def test_recursion_through_static_arguments() -> None:
    @td.jit(static_argnums=1)
    def f(x: Any, n: int) -> Any:
        return x if n == 0 else f(x * 2, n - 1)

    graph = f.trace(td.Spec((2,)), 3).graph
    assert sum(node.op.name == "call" for node in graph.nodes()) == 1


def test_recursion_that_never_ends_is_an_error_at_the_users_line() -> None:
    @td.jit
    def f(x: Any) -> Any:
        return td.where(x > 0, f(x - 1), x)

    x, derivative = td.zeros(2), td.grad(lambda x: td.sum(f(x)))
    for call in (lambda: f(x), lambda: derivative(x), lambda: f.trace(x)):
        with pytest.raises(TraceError, match="calls nest deeper than Python allows") as caught:
            call()
        assert caught.value.source is not None and caught.value.source.file == __file__
        assert "td.while_loop" in str(caught.value)
    assert (td.jit(lambda x: x + 1)(td.zeros(2))).tolist() == [1, 1]  # no trace is left open


def test_functions_may_nest_deeply() -> None:
    def nested(depth: int) -> Any:
        function = td.jit(lambda x: x + 1)
        for _ in range(depth):
            function = td.jit(lambda x, inner=function: inner(x) + 1, static_argnames="inner")
        return function

    assert nested(60)(td.zeros(2)).tolist() == [61, 61]


def test_a_spec_has_no_values() -> None:
    with pytest.raises(TraceError, match="no values to run with"):
        jit(lambda x: x)(td.Spec((2,)))


# -- constants -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 1000, 5000])
def test_a_program_keeps_the_value_it_saw(size: int) -> None:
    k = np.full(size, 2.0, np.float32)
    f = td.jit(lambda x: x * k)
    ones = np.ones(size, np.float32)
    assert f(ones).tolist() == [2] * size
    k[...] = 100
    assert f(ones).tolist() == [2] * size
    assert f(ones.astype(np.float64)).tolist() == [100] * size  # a new program sees the new value


@pytest.mark.parametrize("size", [1, 5000])
def test_a_value_that_changes_while_it_is_traced_is_seen_as_it_is_then(size: int) -> None:
    k = np.ones(size, np.float32)

    def f(x: td.Array) -> td.Array:
        first = x + k
        k[...] += 9
        return first * 0 + (x + k) - first

    assert td.jit(f)(np.zeros(size, np.float32)).tolist() == [9] * size


def test_a_large_constant_is_copied_once_for_all_its_uses() -> None:
    k = np.arange(5000, dtype=np.float32)
    graph = td.trace(lambda x: (x + k) * k - td.jit(lambda y: y * k)(x))(td.Spec((5000,)))
    held = {id(node.param("value")) for node in graph.nodes() if node.op.name == "constant"}
    assert len(held) == 1
    (literal,) = [node.param("value") for node in graph.nodes() if node.op.name == "constant"]
    assert not np.shares_memory(literal.held, k) and literal.held.ctypes.data % 64 == 0


def test_constants_of_ours_are_not_copied() -> None:
    w = td.jit(lambda x: x + 1)(np.zeros(5000, np.float32))
    graph = td.trace(lambda x: x * w)(td.Spec((5000,)))
    (literal,) = [node.param("value") for node in graph.nodes() if node.op.name == "constant"]
    assert np.shares_memory(literal.held, np.asarray(w))


def test_a_constant_shared_by_content_is_nobody_elses() -> None:
    one = np.array(1.0, np.float32)
    first = td.jit(lambda x: x * one)
    ones = np.ones(3, np.float32)
    first(ones)
    one[...] = 100
    assert td.jit(lambda x: x + 1.0)(ones).tolist() == [2, 2, 2]
    assert td.grad(lambda x: td.sum(x * 1.0))(ones).tolist() == [1, 1, 1]
    assert td.scan(lambda c, x: (c + x * 1.0, c), 0.0, ones)[0].item() == 3
