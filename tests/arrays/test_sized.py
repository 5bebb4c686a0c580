"""How many results there are: known from values, or told by `size=`, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import ShapeError, TraceError

X = td.asarray([3, 0, 5, 0, 7])
M = td.asarray([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]])
EMPTY = td.zeros((0,))
FLAGS = td.asarray([True, False, True, False, True])


def told(found: Any) -> Any:
    return [x.tolist() for x in found] if isinstance(found, tuple) else found.tolist()


def both(function: Callable[..., Any], *args: Any) -> Any:
    """The result, which compiled code gives as well."""
    found = told(function(*args))
    assert told(td.jit(function)(*args)) == found
    return found


def test_places_are_cut_and_filled() -> None:
    assert both(lambda x: td.nonzero(x, size=2), X) == [[0, 2]]
    assert both(lambda x: td.nonzero(x, size=5), X) == [[0, 2, 4, 0, 0]]
    assert both(lambda x: td.nonzero(x, size=4, fill_value=-1), X) == [[0, 2, 4, -1]]
    filled = [[0, 0, 1, 7], [1, 2, 0, 8]]
    assert both(lambda x: td.nonzero(x, size=4, fill_value=(7, 8)), M) == filled
    assert both(lambda x: td.where(x > 1, size=3, fill_value=-2), M) == [[0, 1, -2], [2, 0, -2]]
    assert both(lambda x: td.flatnonzero(x, size=4), M) == [1, 2, 3, 0]
    assert both(lambda x: td.argwhere(x, size=2), M) == [[0, 1], [0, 2]]
    assert both(lambda x: td.nonzero(x, size=0), X) == [[]]
    assert both(lambda x: td.nonzero(x, size=2), EMPTY) == [[0, 0]]
    assert td.argwhere(td.asarray(3)).shape == (1, 0)


def test_places_without_a_size_are_those_of_numpy() -> None:
    for x in (X, M, EMPTY, td.zeros((2, 0, 3)), td.asarray([True, False])):
        n = np.asarray(x)
        assert told(td.nonzero(x)) == [a.tolist() for a in np.nonzero(n)]
        assert told(td.argwhere(x)) == np.argwhere(n).tolist()
        assert told(td.flatnonzero(x)) == np.flatnonzero(n).tolist()
        assert told(td.where(x)) == [a.tolist() for a in np.where(n)]


@pytest.mark.parametrize("size", [0, 1, 7, 40, 61])
def test_many_places(size: int) -> None:
    x = td.asarray(np.random.default_rng(size).integers(0, 2, (3, 13)))
    wanted = np.full((size, 2), -1)
    found = np.argwhere(np.asarray(x))[:size]
    wanted[: len(found)] = found
    assert both(lambda x: td.argwhere(x, size=size, fill_value=-1), x) == wanted.tolist()


def test_rows_of_a_batch_have_their_own_places() -> None:
    rows = td.asarray([[0, 1, 1], [1, 0, 0]])
    assert td.vmap(lambda r: td.nonzero(r, size=2, fill_value=9)[0])(rows).tolist() == [
        [1, 2],
        [0, 9],
    ]


def test_elements_are_selected() -> None:
    assert both(lambda c, x: td.compress(c, x, size=4), FLAGS, X) == [3, 5, 7, 0]
    assert both(lambda x: td.extract(x > 1, x, size=4, fill_value=-1), M) == [2, 3, -1, -1]
    columns = [[0.0, 2.0, 9.0], [3.0, 0.0, 9.0]]
    chosen = FLAGS[:3]
    assert both(lambda c, x: td.compress(c, x, 1, size=3, fill_value=9), chosen, M) == columns
    assert told(td.compress(np.asarray([True, False]), M, axis=0)) == [[0, 1, 2]]
    assert told(td.extract(M > 1, M)) == [2, 3]
    gradient = td.grad(lambda x: td.sum(td.extract(x > 1, x, size=4) ** 2))(M)
    assert told(gradient) == [[0, 0, 4], [6, 0, 0]]


def test_where_of_three_stays() -> None:
    assert both(lambda x: td.where(x > 1, x, 0), X) == [3, 0, 5, 0, 7]
    with pytest.raises(TraceError, match="expected one argument or three"):
        td.where(X > 1, X)
    with pytest.raises(TraceError, match=r"belong to where\(condition\) alone"):
        td.where(X > 1, X, 0, size=3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: td.nonzero(x, size=-1), "nonzero: size must be at least 0"),
        (lambda x: td.nonzero(x, size=2.0), "nonzero: size must be an int, got 2.0"),
        (lambda x: td.nonzero(x, size=2, fill_value=(1, 2)), "fill_value has 2 entries for 1 axes"),
        (lambda x: td.nonzero(x[0]), "an array without axes has no places"),
        (lambda x: td.compress(x, x, size=6), "size is 6, there are 5 places"),
        (lambda x: td.compress(x, x[:2]), "longer than the axis of size 2"),
        (lambda x: td.compress(M, x), "the condition has one axis"),
    ],
)
def test_sizes_that_do_not_fit_are_told(call: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        call(X)


@pytest.mark.parametrize(
    "call",
    [
        td.nonzero, td.argwhere, td.flatnonzero, td.where, td.unique, td.unique_all,
        lambda x: td.compress(x, x), lambda x: td.extract(x, x), lambda x: td.union1d(x, x),
        lambda x: td.intersect1d(x, x), lambda x: td.setdiff1d(x, x), lambda x: x[x > 0],
    ],
)  # fmt: skip
def test_compiled_code_asks_for_a_size(call: Any) -> None:
    with pytest.raises(TraceError, match=r"(?s)only known when the program runs.*size=n"):
        td.jit(call)(X)


# -- repeat ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("total", [0, 2, 6, 9])
def test_repeats_may_be_traced_when_their_sum_is_known(total: int) -> None:
    counts = td.asarray([1, 0, 2, 3, 0])
    whole = np.repeat(np.asarray(X), np.asarray(counts))
    wanted = [*whole.tolist(), 7, 7, 7][:total]  # cut, or the last place again
    assert both(lambda x, n: td.repeat(x, n, total_repeat_length=total), X, counts) == wanted
    pairs = [3, 3, 0, 0, 5, 5, 0, 0, 7][:total]
    assert both(lambda x, n: td.repeat(x, n, total_repeat_length=total), X, 2) == pairs


def test_rows_are_repeated() -> None:
    counts = td.asarray([2, 1])
    found = both(lambda x, n: td.repeat(x, n, axis=0, total_repeat_length=3), M, counts)
    assert found == [[0, 1, 2], [0, 1, 2], [3, 0, 0]]
    assert told(td.repeat(EMPTY, td.asarray([], dtype=td.int32), total_repeat_length=0)) == []
    gradient = td.grad(lambda x: td.sum(td.repeat(x, counts, 0, total_repeat_length=4) ** 2))(M)
    assert told(gradient) == [[0, 4, 8], [12, 0, 0]]
    with pytest.raises(ShapeError, match="total_repeat_length="):
        td.jit(lambda x, n: td.repeat(x, n))(X, td.asarray([1, 1, 1, 1, 1]))
