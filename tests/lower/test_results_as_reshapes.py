"""Results that are reshapes of other results, or of what a kernel writes beside them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.compiled import run, run_on_evaluator
from tetrad.compiler.driver import compile_graph
from tetrad.core.dtypes import f32
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_graph, make_parameter
from tetrad.graph.nodes import Node
from tetrad.ops.arithmetic import add, negative
from tetrad.ops.movement import reshape, transpose

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def sum_and_its_reshape(x: Node) -> list[Node]:
    twice = add(x, x)
    return [twice, reshape(twice, shape=(2, 6))]


def reshape_beside_its_negative(x: Node) -> list[Node]:
    turned = reshape(transpose(x, perm=(1, 0)), shape=(2, 6))
    return [negative(turned), turned]


WANTED = {
    sum_and_its_reshape: [X * 2, (X * 2).reshape(2, 6)],
    reshape_beside_its_negative: [-X.T.reshape(2, 6), X.T.reshape(2, 6)],
}


@pytest.mark.parametrize("made", WANTED, ids=lambda f: f.__name__)
def test_every_result_is_written_in_its_own_shape(made: Callable[[Node], list[Node]]) -> None:
    x = make_parameter(ArrayType(f32, X.shape), 0)
    compiled = compile_graph(make_graph("f", [x], made(x)))
    for found in (run_on_evaluator(compiled, [X]), run(compiled, [X])):
        for got, want in zip(found, WANTED[made], strict=True):
            assert got.shape == want.shape and got.tobytes() == want.tobytes()
