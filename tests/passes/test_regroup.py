"""passes.regroup: what must stay where it is, and slices of every kind against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.graph.graphs import arg, close
from tetrad.core.dtypes import f32
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Node
from tetrad.ops.arithmetic import add
from tetrad.ops.matmul.op import matmul
from tetrad.ops.movement import expand, reshape, slice_
from tetrad.ops.reduce import reduce_sum
from tetrad.ops.transcendental import tanh
from tetrad.passes.regroup import regroup


def product() -> Node:
    return matmul(arg(0, f32, 6, 4), arg(1, f32, 4, 8))


def untouched() -> dict[str, Node]:
    groups = reshape(product(), shape=(2, 3, 8))
    row = expand(arg(2, f32, 2, 1, 8), shape=(2, 3, 8))  # differs between rows
    return {
        "no product": add(reshape(arg(0, f32, 6, 4), shape=(2, 3, 4)), arg(1, f32, 2, 3, 4)),
        "rows are cut": tanh(reshape(product(), shape=(6, 2, 4))),
        "a bias for each group": add(groups, row),
        "reduced over groups": reduce_sum(groups, axes=(1,)),
        "reduced over all": reduce_sum(groups, axes=(1, 2)),
        "a slice between heads": reshape(
            slice_(product(), starts=(0, 3), sizes=(6, 4), steps=(1, 1)), shape=(6, 2, 2)
        ),
        "a slice with steps": reshape(
            slice_(product(), starts=(0, 0), sizes=(6, 4), steps=(1, 2)), shape=(6, 2, 2)
        ),
        "rows of a slice become one axis": reshape(
            slice_(product(), starts=(0, 4), sizes=(6, 4), steps=(1, 1)), shape=(24,)
        ),
    }


@pytest.mark.parametrize("name", untouched())
def test_what_stays(name: str) -> None:
    graph = close(untouched()[name])
    assert regroup.apply(graph) is graph


SPLITS = [(6, 8), (2, 3, 8), (6, 2, 4), (3, 2, 4, 2), (6, 1, 8), (6, 8, 1), (48,), (2, 24), (12, 4)]


@pytest.mark.parametrize("shape", SPLITS, ids=str)
def test_slices_of_every_kind(shape: tuple[int, ...]) -> None:
    """Axis and start of the slice vary; the elements do not."""
    x = np.arange(12 * 16, dtype=np.float32).reshape(12, 16)
    for rows, columns in itertools.product((0, 1, 6), (0, 4, 5, 8)):
        part = slice_(arg(0, f32, 12, 16), starts=(rows, columns), sizes=(6, 8), steps=(1, 1))
        after = regroup.apply(close(reshape(part, shape=shape)))
        want = x[rows : rows + 6, columns : columns + 8].reshape(shape)
        np.testing.assert_array_equal(evaluate(after, [x])[0], want)
