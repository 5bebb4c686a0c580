"""`x[i] = v`: this handle changes, and nothing else that was made of it or from it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tetrad as td
from tetrad.core.errors import BoundsError, DtypeError, ShapeError, TraceError

LARGE = 5000  # more elements than a constant that programs hold as a copy
Case = tuple[Any, Any]

CASES: dict[str, Case] = {
    "number": (0, 9),
    "negative": (-1, 9),
    "row": (1, [1, 2, 3, 4]),
    "slice": (slice(1, None), 5),
    "steps": (slice(None, None, -2), np.arange(4)),
    "ellipsis": (Ellipsis, 7),
    "column": ((Ellipsis, 1), 7.9),
    "nothing": ((), 4),
    "element": ((1, 2), np.float64(6)),
    "list": ([0, 2], 8),
    "lists": (([0, 2], [1, 3]), [5, 6]),
    "twice": ([1, 1], [[1] * 4, [2] * 4]),
    "rows of a mask": (np.array([True, False, True]), 3),
    "new axis": ((None, 0), [[1, 2, 3, 4]]),
    "empty": (slice(2, 2), 1),
}


def matrix(dtype: Any = None) -> td.Array:
    return td.reshape(td.arange(12, dtype=dtype), (3, 4))


@pytest.mark.parametrize(
    "dtype", ["int32", "float32", "float64", "float16", "bfloat16", "complex64"]
)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_is_what_numpy_does(case: Case, dtype: str) -> None:
    key, value = case
    x = matrix(dtype)
    want = np.array(x)
    want[key] = value
    x[key] = value
    np.testing.assert_array_equal(np.asarray(x), want)


def test_masks_and_indices_may_be_arrays() -> None:
    x = matrix()
    x[x > 5] = 0
    x[td.asarray([0, 1]), td.asarray([0, 1])] = td.asarray([50, 60])
    x[td.asarray(2)] = td.asarray(-1)
    assert x.tolist() == [[50, 1, 2, 3], [4, 60, 0, 0], [-1] * 4]


def test_operators_in_place() -> None:
    x = td.ones(3)
    kept = x
    x[1] += 2
    x[:2] *= 10
    assert x.tolist() == [10, 30, 1] and kept is x
    x += 1
    assert kept is not x and kept.tolist() == [10, 30, 1]


def test_without_axes_and_narrow() -> None:
    x = td.asarray(1.0)
    x[()] = 2
    assert float(x) == 2
    nibbles = td.asarray([1, 2, 3], dtype=td.int4)
    nibbles[1] = 7
    assert nibbles.tolist() == [1, 7, 3]


SHARED: dict[str, Callable[[Any], Any]] = {
    "asarray": td.asarray,
    "reshape": lambda x: td.reshape(x, x.shape),
    "rows": lambda x: x[1:],
    "whole": lambda x: x[...],
    "all": lambda x: x[:],
    "transpose": lambda x: x.T,
    "same dtype": lambda x: x.astype(x.dtype, copy=False),
    "plus": lambda x: +x,
    "positive": td.positive,
    "device": lambda x: x.to_device("cpu"),
    "broadcast": lambda x: td.broadcast_to(x, x.shape),
    "squeeze": td.squeeze,
    "clip": td.clip,
    "real": td.real,
    "copy": copy.copy,
    "numpy": np.asarray,
    "dlpack": np.from_dlpack,
    "compiled": td.jit(lambda x: x),
    "unchanged": lambda x: td.jit(lambda x: (x, x + 1))(x)[0],
    "iterated": lambda x: next(iter(x)),
    "unstacked": lambda x: td.unstack(x)[1],
    "grad": lambda x: td.vjp(lambda x: x * 1, x)[0],
}


@pytest.mark.parametrize("size", [4, LARGE])
@pytest.mark.parametrize("made", SHARED.values(), ids=SHARED)
def test_what_was_made_before_keeps_its_contents(made: Callable[[Any], Any], size: int) -> None:
    x = td.ones((3, size))
    for value in (5, 6):  # the second time the memory is our own
        other = made(x)
        before = np.array(other)
        x[1] = value
        x[:, 0] = value
        np.testing.assert_array_equal(np.asarray(other), before)
        assert x[1, 1] == value


@pytest.mark.parametrize("size", [4, LARGE])
def test_the_other_way_round(size: int) -> None:
    x = td.ones((3, size))
    other = x[1:]
    other[...] = 9
    assert x[1, 0] == 1 and other[0, 0] == 9


@pytest.mark.parametrize("size", [4, LARGE])
def test_programs_keep_the_constants_they_saw(size: int) -> None:
    x = td.ones(size)
    x[0] = 2
    inner = td.jit(lambda y: y + x)
    outer = td.jit(lambda y: inner(y) * 2)
    given = td.zeros(size)
    assert inner(given)[0] == 2 and outer(given)[0] == 4
    x[0] = 100
    assert inner(given)[0] == 2 and outer(given)[0] == 4
    again = td.jit(lambda y: inner(y) * 3)
    assert again(given)[0] == 6
    assert td.jit(lambda y: y + x)(given)[0] == 100


@pytest.mark.parametrize("size", [4, LARGE])
def test_a_trace_sees_each_value_in_its_time(size: int) -> None:
    x = td.ones(size)

    @td.jit
    def f(y: td.Array) -> tuple[td.Array, td.Array]:
        first = y + x
        x[0] = 5
        return first, y + x

    first, second = f(td.zeros(size))
    assert first[0] == 1 and second[0] == 5 and x[0] == 5


def test_derivatives_keep_what_they_were_taken_at() -> None:
    x, w = td.asarray([1.0, 2.0]), td.asarray([3.0, 4.0])
    _, pulled = td.vjp(lambda x: td.sum(x * x * w), x)
    _, pushed = td.linearize(lambda x: x * x * w, x)
    x[...] = 100
    w[...] = 100
    assert pulled(td.asarray(1.0))[0].tolist() == [6, 16]
    assert pushed(td.ones(2)).tolist() == [6, 16]


def test_arguments_of_a_program_are_read_at_the_call() -> None:
    f = td.jit(lambda x: x * 2)
    x = td.ones(3)
    first = f(x)
    x[0] = 7
    assert f(x).tolist() == [14, 2, 2] and first.tolist() == [2, 2, 2]
    first[1] = 9
    assert f(x).tolist() == [14, 2, 2]


def test_results_of_a_program_are_apart() -> None:
    first, second = td.jit(lambda x: (x + 1, x + 1))(td.zeros(3))
    first[0] = 50
    assert second.tolist() == [1, 1, 1]


def test_donated_memory() -> None:
    f = td.jit(lambda x: x + 1, donate_argnums=0)
    x = td.zeros(4)
    x[0] = 3
    shared = td.asarray(x)
    y = f(x)
    y[1] = 8
    assert shared.tolist() == [3, 0, 0, 0] and y.tolist() == [4, 8, 1, 1]
    with pytest.raises(TraceError, match="donated"):
        x[0] = 1


def test_an_array_is_in_a_list_as_itself() -> None:
    x = td.zeros(2)
    held = {"x": x}
    x[0] = 1
    assert held["x"] is x and held["x"][0] == 1


def test_own_memory_is_written_in_place() -> None:
    x = td.zeros(1000)
    x[0] = 1
    place = x.memory.__array_interface__["data"][0]
    x[1] = 2
    alone = threading.active_count() == 1
    assert (x.memory.__array_interface__["data"][0] == place) is alone
    seen = np.asarray(x)
    x[2] = 3
    assert seen[2] == 0 and x[2] == 3


def test_threads_see_whole_states() -> None:
    x = td.zeros(2000)
    torn: list[float] = []

    def look() -> None:
        for _ in range(300):
            y = x + 0
            if float(y[0]) != float(y[-1]):
                torn.append(float(y[0]))

    thread = threading.Thread(target=look)
    thread.start()
    for i in range(300):
        x[...] = i
    thread.join()
    assert torn == []


ERRORS: dict[str, tuple[Any, Any, type[Exception]]] = {
    "index": (3, 1, BoundsError),
    "index error": (3, 1, IndexError),
    "axes": ((0, 0, 0), 1, IndexError),
    "shape": (0, [1, 2, 3], ShapeError),
    "mask": (np.ones(2, bool), 1, IndexError),
    "kind": (0, "a", DtypeError),
    "float index": (1.5, 1, IndexError),
}


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS)
def test_an_error_changes_nothing(case: tuple[Any, Any, type[Exception]]) -> None:
    key, value, kind = case
    x = matrix()
    with pytest.raises(kind):
        x[key] = value
    assert x.tolist() == matrix().tolist()


def set_first(x: Any) -> Any:
    x[0] = 1.0
    return x.sum()


TRACES: dict[str, Callable[[Any], Any]] = {
    "jit": lambda x: td.jit(set_first)(x),
    "grad": lambda x: td.grad(set_first)(x),
    "vmap": lambda x: td.vmap(set_first)(td.reshape(x, (1, -1))),
    "scan": lambda x: td.scan(lambda c, _: (set_first(c), None), x, length=2),
}


@pytest.mark.parametrize("run", TRACES.values(), ids=TRACES)
def test_traced_arrays_say_what_to_write(run: Callable[[Any], Any]) -> None:
    with pytest.raises(TraceError, match=r"x\.at\[index\]\.set\(value\)"):
        run(td.zeros(3))


def test_a_traced_value_or_index_into_an_array_from_outside() -> None:
    x = td.zeros(3)

    def by_value(v: td.Array) -> td.Array:
        x[0] = v
        return v

    def by_index(i: td.Array) -> td.Array:
        x[i] = 1
        return i

    for function, number in ((by_value, 1.0), (by_index, 1)):
        with pytest.raises(TraceError, match=r"x\.at\[index\]\.set\(value\)"):
            td.jit(function)(number)
    assert x.tolist() == [0, 0, 0]


@given(st.data())
def test_any_order_of_aliases_and_changes(data: st.DataObject) -> None:
    """Each handle goes with an array of NumPy of its own."""
    pairs = [(td.zeros((3, 2)), np.zeros((3, 2), np.float32))]
    for step in range(data.draw(st.integers(1, 12))):
        x, want = data.draw(st.sampled_from(pairs))
        what = data.draw(st.sampled_from(["set", "alias", "rows", "turn", "jit", "seen"]))
        if what == "set":
            key = data.draw(st.sampled_from([0, -1, slice(1), (Ellipsis, 0), [0, 1], ()]))
            x[key] = want[key] = step + 1
        elif what == "alias":
            pairs.append((td.asarray(x), want.copy()))
        elif what == "rows":
            pairs.append((x[:], want[:].copy()))
        elif what == "turn":
            pairs.append((x.T.T, want.copy()))
        elif what == "jit":
            pairs.append((td.jit(lambda x: x + 1)(x), want + 1))
        else:
            np.asarray(x)
        for found, expected in pairs:
            np.testing.assert_array_equal(np.asarray(found), expected)
