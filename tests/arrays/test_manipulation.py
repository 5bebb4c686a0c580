"""Tracing, manipulation: compiled arrangements of many parts against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import ShapeError, TraceError


@pytest.mark.parametrize("axis", [0, 1])
def test_very_many_parts_are_joined(axis: int) -> None:
    rng = np.random.default_rng(3)
    parts = [
        np.asarray(rng.random((n, 3) if axis == 0 else (3, n)), np.float32)
        for n in [2, 0, 5, 1, 17] * 9
    ]
    joined = td.jit(lambda *x: td.concat(x, axis=axis) * 2)(*parts)
    np.testing.assert_array_equal(joined, np.concatenate(parts, axis) * 2)


def test_many_parts_of_symbolic_size_are_joined() -> None:
    rows = td.Dim("rows", max=9)
    join = td.jit(lambda x: td.concat([x + i for i in range(20)]), dims=({0: rows},))
    for n in (1, 3, 9):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(
            join(x), np.concatenate([x + np.float32(i) for i in range(20)])
        )
    assert join.compiles == 1


@pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_places_are_repeated_as_often_as_an_array_says(way: Any) -> None:
    x, counts = np.arange(12.0).reshape(3, 4), np.array([2, 0, 1, 3])
    for given in (counts, td.asarray(counts)):
        np.testing.assert_array_equal(
            way(lambda x, g=given: td.repeat(x, g, axis=1))(x), np.repeat(x, counts, 1)
        )
    np.testing.assert_array_equal(
        way(lambda x: td.repeat(x, np.array([2]), axis=-2))(x), np.repeat(x, [2], 0)
    )
    np.testing.assert_array_equal(
        way(lambda x: td.repeat(x, np.arange(12)))(x), np.repeat(x, np.arange(12))
    )
    slope = way(td.grad(lambda x: td.sum(td.repeat(x, counts, axis=1))))(x)
    np.testing.assert_array_equal(slope, np.broadcast_to(counts, (3, 4)))
    rows = way(td.vmap(lambda row: td.repeat(row, counts)))(x)
    np.testing.assert_array_equal(rows, np.repeat(x, counts, 1))


def test_repeats_that_make_no_sense() -> None:
    x = td.zeros(3)
    for repeats, message in (
        (np.array([1, 2]), r"one for each of 3 places, got i64\[2\]"),
        (np.array([1.0, 2.0, 3.0]), r"expected integers(.|\n)*f64\[3\]"),
        (np.array([1, -2, 3]), r"at least 0, got \[1, -2, 3\]"),
        (-1, "at least 0, or an array of such, got -1"),
    ):
        with pytest.raises(ShapeError, match=message):
            td.repeat(x, repeats)
    with pytest.raises(
        ShapeError, match=r"repeats that are traced give no shape(.|\n)*test_manipulation\.py"
    ):
        td.jit(lambda x, n: td.repeat(x, n))(x, np.array([1, 2, 3]))


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
def test_borders_of_elements(mode: Any) -> None:
    x = np.arange(12.0).reshape(3, 4)
    for widths in (0, 1, (2, 1), ((1, 0), (0, 5)), 7):
        want = np.pad(x, widths, mode=mode)
        np.testing.assert_array_equal(td.pad(x, widths, mode), want)
        np.testing.assert_array_equal(td.jit(lambda x, w=widths: td.pad(x, w, mode=mode))(x), want)
    weights = np.arange(20.0).reshape(5, 4)
    slope = td.jit(td.grad(lambda x: td.sum(td.pad(x, ((1, 1), (0, 0)), mode) * weights)))(
        td.asarray(x)
    )
    places = np.pad(np.arange(3), (1, 1), mode=mode)
    np.testing.assert_array_equal(slope, [weights[places == i].sum(0) for i in range(3)])


def test_the_value_of_a_border_by_either_name() -> None:
    x = np.arange(3, dtype=np.float32)
    for value in (0, -1.5, float("inf")):
        want = np.pad(x, 2, constant_values=value)
        np.testing.assert_array_equal(td.pad(x, 2, value=value), want)
        np.testing.assert_array_equal(
            td.jit(lambda x, v=value: td.pad(x, 2, constant_values=v))(x), want
        )


def test_borders_that_make_no_sense() -> None:
    with pytest.raises(
        ShapeError, match=r"expected one number for all sides, got \(1, 2\)(.|\n)*one side after"
    ):
        td.pad(td.zeros(3), 1, constant_values=(1, 2))  # type: ignore[arg-type]
    with pytest.raises(
        TraceError, match=r"there is no mode 'mirror'(.|\n)*one of constant, edge, reflect"
    ):
        td.pad(td.zeros(3), 1, mode="mirror")
    with pytest.raises(ShapeError, match=r"axis 0 of f32\[0,3\] has no known elements"):
        td.pad(td.zeros((0, 3)), 1, mode="edge")
