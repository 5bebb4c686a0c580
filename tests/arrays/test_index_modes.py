"""An index out of range: compiled code says what eager code says: the user's index, axis, size,
call and line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td

X = np.arange(12, dtype=np.float32).reshape(3, 4)
CUBE = np.zeros((2, 5, 3), np.float32)


def at(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


Case = tuple[Callable[..., Any], tuple[Any, ...], str]
CASES: dict[str, Case] = {
    "take": (
        lambda x, i: td.take(x, i, axis=0),
        (X, at(1, 7)),
        "gather: index 7 is out of range for axis 0 of size 3",
    ),
    "take, negative": (
        lambda x, i: td.take(x, i, axis=1),
        (X, at(1, -9)),
        "index -9 is out of range for axis 1 of size 4",
    ),
    "take, 64 bits": (
        lambda x, i: td.take(x, i, axis=0),
        (X, np.array([1 << 40])),
        "index 1099511627776 is out of range",
    ),
    "take_along_axis": (
        lambda x, i: td.take_along_axis(x, i, axis=1),
        (X, at([1, 2], [0, 9], [0, 1])),
        "take_along_axis: index 9 is out of range for axis 1 of size 4",
    ),
    "take_along_axis, first axis": (
        lambda x, i: td.take_along_axis(x, i, axis=0),
        (X, at([1, 2, 0, -5])),
        "take_along_axis: index -5 is out of range for axis 0 of size 3",
    ),
    "take_along_axis, middle axis": (
        lambda x, i: td.take_along_axis(x, i, axis=1),
        (CUBE, np.full((2, 1, 3), 6, np.int32)),
        "take_along_axis: index 6 is out of range for axis 1 of size 5",
    ),
    "take_along_axis, one axis": (
        lambda x, i: td.take_along_axis(x[0], i),
        (X, at(4)),
        "take_along_axis: index 4 is out of range for axis 0 of size 4",
    ),
    "index": (
        lambda x, i: x[:, i],
        (X, at(5)),
        "gather: index 5 is out of range for axis 1 of size 4",
    ),
    "index after a new axis": (
        lambda x, i: x[None, :, i],
        (X, at(5)),
        "index: index 5 is out of range for axis 1 of size 4",
    ),
    "two indices": (
        lambda x, i, j: x[i, j],
        (X, at(1, 2), at(0, 4)),
        "index: index 4 is out of range for axis 1 of size 4",
    ),
    "indices apart": (
        lambda x, i, j: x[i, :, j],
        (CUBE, at(0, 2), at(1, 1)),
        "index: index 2 is out of range for axis 0 of size 2",
    ),
    "two numbers": (
        lambda x, i: x[1, i],
        (X, np.int32(-5)),
        "index: index -5 is out of range for axis 1 of size 4",
    ),
    "at, set": (
        lambda x, i: x.at[i].set(1.0),
        (X, at(5)),
        r"at[...].set: index 5 is out of range for axis 0 of size 3",
    ),
    "at, add": (
        lambda x, i: x.at[:, i].add(1.0),
        (X, at(-5)),
        r"at[...].add: index -5 is out of range for axis 1 of size 4",
    ),
    "at, two": (
        lambda x, i, j: x.at[i, j].add(1.0),
        (X, at(1), at(9)),
        r"at[...].add: index 9 is out of range for axis 1 of size 4",
    ),
    "scatter_add": (
        lambda x, i: td.scatter_add(x, i, 3),
        (X, at(0, 3, 1)),
        "scatter_add: index 3 is out of range for axis 0 of size 3",
    ),
    "vmap": (
        lambda x, i: td.vmap(lambda row, j: row[j])(x, i),
        (X, at(1, 7, 0)),
        "index 7 is out of range for axis 0 of size 4",
    ),
    "vmap, take_along_axis": (
        lambda x, i: td.vmap(lambda r, j: td.take_along_axis(r, j, axis=0))(x, i),
        (X, at([1], [7], [0])),
        "take_along_axis: index 7 is out of range for axis 0 of size 4",
    ),
    "vmap, scatter_add": (
        lambda x, i: td.vmap(lambda r, j: td.scatter_add(r, j, 4))(x, i),
        (X, at([0] * 4, [0, 1, 2, -5], [0] * 4)),
        "scatter_add: index -5 is out of range for axis 0 of size 4",
    ),
    "gradient": (
        lambda x, i: td.grad(lambda x: td.sum(td.take_along_axis(x, i, axis=1) ** 2))(x),
        (X, at([1], [9], [0])),
        "take_along_axis: index 9 is out of range for axis 1 of size 4",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_compiled_code_says_what_eager_code_says(name: str) -> None:
    function, arguments, told = CASES[name]
    texts = []
    for call in (function, td.jit(function)):
        with pytest.raises(IndexError) as caught:
            call(*map(td.asarray, arguments))
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    assert (
        told in texts[0]
        and "test_index_modes.py line" in texts[0]
        and "hint: indices go from -" in texts[0]
    )


def test_the_size_of_a_dim_is_named() -> None:
    f = td.jit(lambda x, i, j: x[i, j], dims=({0: td.Dim("rows", max=10)}, None, None))
    assert f(X, at(2), at(3)).tolist() == [11.0]
    with pytest.raises(IndexError, match="index: index 3 is out of range for axis 0 of size rows"):
        f(X, at(3), at(0))


def test_what_is_in_range_is_taken() -> None:
    f = td.jit(lambda x, i, j: (x[i, j], td.take_along_axis(x, i[None, :] * 0 + j, axis=1)))
    picked, along = f(X, at(-1, 0, 2), at(-4, 3, 1))
    np.testing.assert_array_equal(np.asarray(picked), X[[-1, 0, 2], [-4, 3, 1]])
    np.testing.assert_array_equal(np.asarray(along), X[:, [-4, 3, 1]])
