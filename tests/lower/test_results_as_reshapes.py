"""Results that are reshapes of other results, or of what a kernel writes beside them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.compiled import run, run_on_evaluator
from tetrad.compiler.driver import compile_graph
from tetrad.core.dtypes import f32
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_constant, make_graph, make_parameter
from tetrad.graph.nodes import Node
from tetrad.ops.arithmetic import add, negative
from tetrad.ops.movement import reshape, transpose
from tetrad.ops.scatter.update import add_at, maximum_at
from tetrad.schedule.nodes import programs_of

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def sum_and_its_reshape(x: Node) -> list[Node]:
    twice = add(x, x)
    return [twice, reshape(twice, shape=(2, 6))]


def reshape_beside_its_negative(x: Node) -> list[Node]:
    turned = reshape(transpose(x, perm=(1, 0)), shape=(2, 6))
    return [negative(turned), turned]


def changed(x: Node) -> Node:
    """Two updates of all elements in a line, each by itself, and each joined with itself."""
    line = reshape(x, shape=(12,))
    return add_at(maximum_at(line, negative(line), PLACES), line, PLACES)


def reshape_of_an_update(x: Node) -> list[Node]:
    return [reshape(changed(x), shape=(3, 4))]


def reshapes_beside_their_update(x: Node) -> list[Node]:
    line = changed(x)
    return [reshape(line, shape=(2, 6)), line, reshape(line, shape=(4, 3))]


def reshape_of_what_is_changed_again(x: Node) -> list[Node]:
    line = changed(x)
    return [reshape(line, shape=(3, 4)), add_at(line, line, PLACES), reshape(x, shape=(12,))]


PLACES = make_constant(np.arange(12, dtype=np.int32))
C = np.maximum(X, -X) + X

WANTED = {
    sum_and_its_reshape: [X * 2, (X * 2).reshape(2, 6)],
    reshape_beside_its_negative: [-X.T.reshape(2, 6), X.T.reshape(2, 6)],
    reshape_of_an_update: [C],
    reshapes_beside_their_update: [C.reshape(2, 6), C.reshape(12), C.reshape(4, 3)],
    reshape_of_what_is_changed_again: [C, (C + C).reshape(12), X.reshape(12)],
}


def test_an_update_lies_where_its_reshape_is_wanted() -> None:
    x = make_parameter(ArrayType(f32, X.shape), 0)
    schedule = compile_graph(make_graph("f", [x], reshape_of_an_update(x))).schedule
    assert "reshape" not in {program.name for program in programs_of(schedule)}


@pytest.mark.parametrize("made", WANTED, ids=lambda f: f.__name__)
def test_every_result_is_written_in_its_own_shape(made: Callable[[Node], list[Node]]) -> None:
    x = make_parameter(ArrayType(f32, X.shape), 0)
    compiled = compile_graph(make_graph("f", [x], made(x)))
    for found in (run_on_evaluator(compiled, [X]), run(compiled, [X])):
        for got, want in zip(found, WANTED[made], strict=True):
            assert got.shape == want.shape and got.tobytes() == want.tobytes()
