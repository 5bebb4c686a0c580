"""graph.verify: each rule of the language, broken once."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.graph.graphs import arg, close
from tetrad.core.dtypes import f32, i32
from tetrad.core.errors import VerifyError
from tetrad.core.op import Op
from tetrad.core.sizes import Dim
from tetrad.core.types import ArrayType
from tetrad.graph import verify as verify_module
from tetrad.graph.build import (
    call,
    constant,
    item,
    make_call,
    make_graph,
    make_item,
    make_parameter,
)
from tetrad.graph.nodes import Graph, Literal, Node
from tetrad.graph.verify import verify
from tetrad.ops.arithmetic import add, negative
from tetrad.ops.movement import expand, transpose

x, y = arg(0, f32, 2, 3), arg(1, f32, 2, 3)
KIND = x.type
seq = Dim("seq", max=8)


def raw(op: Op, *inputs: Node, types: tuple[ArrayType, ...] = (KIND,), **params: Any) -> Node:
    """A node as no builder would make it."""
    return Node(op, inputs, tuple(sorted(params.items())), types, None)


def graph(*outputs: Node, inputs: tuple[Node, ...] = (x, y)) -> Graph:
    return Graph("broken", inputs, outputs)


inner = make_graph("inner", [x], [negative(x), transpose(x, perm=(1, 0))])
broken_inner = Graph("inner", (x,), (raw(add, x),))
stranger = Op("add", "elementwise", np.add, add.type)
literal = Literal(np.zeros((2, 3), np.float32))

BROKEN = [
    ("G001", graph(x, inputs=(y,))),
    ("G001", graph(x, inputs=(x, negative(x)))),
    ("G002", graph(negative(make_parameter(KIND, 0, fresh=True)))),
    ("G003", graph(add(x, y), inputs=(x,))),
    ("G004", graph(raw(transpose, x, perm=[0, 1]))),
    ("G004", graph(Node(transpose, (x,), (("perm", (0, 1)), ("perm", (0, 1))), (KIND,), None))),
    ("G004", graph(Node(transpose, (x,), (("perm", (0, 1)), ("axis", 1)), (KIND,), None))),
    ("G005", graph(raw(add, x))),
    ("G005", graph(raw(negative, x, y))),
    ("G005", graph(raw(add, x, arg(1, i32, 2, 3)), inputs=(x, arg(1, i32, 2, 3)))),
    ("G005", graph(raw(transpose, x))),
    ("G005", graph(raw(transpose, x, perm=(0, 0)))),
    ("G005", graph(raw(transpose, x, perm=(0, 1), axis=1))),
    ("G006", graph(raw(add, x, y, types=(ArrayType(f32, (3, 2)),)))),
    ("G006", graph(raw(call, x, types=(KIND,), graph=inner))),
    ("G007", graph(raw(call, x, y, graph=inner))),
    ("G007", graph(raw(call, transpose(x, perm=(1, 0)), graph=inner))),
    ("G007", graph(raw(call, x))),
    ("G007", graph(raw(call, x, graph=3))),
    ("G008", graph(negative(make_call(inner, [x])))),
    ("G008", graph(make_call(inner, [x]))),
    ("G008", graph(raw(item, make_call(inner, [x]), index=2))),
    ("G008", graph(raw(item, make_call(inner, [x]), index=-1))),
    ("G008", graph(raw(item, index=0))),
    ("G009", graph(raw(constant, value=3))),
    ("G009", graph(raw(constant))),
    ("G009", graph(raw(constant, value=literal, types=(ArrayType(f32, (3, 2)),)))),
    ("G009", graph(raw(constant, value=literal, types=(ArrayType(i32, (2, 3)),)))),
    ("G010", graph(expand(arg(0, f32, 1), shape=(seq,)), inputs=(arg(0, f32, 1),))),
    ("G010", graph(arg(0, f32, seq), inputs=(arg(0, f32, seq), arg(1, f32, Dim("seq", max=9))))),
    ("G011", graph(raw(stranger, x, y))),
    ("G005", graph(raw(call, x, types=(KIND,), graph=broken_inner))),
]


@pytest.mark.parametrize(
    ("code", "broken"), BROKEN, ids=[f"{c}-{i}" for i, (c, _) in enumerate(BROKEN)]
)
def test_a_broken_rule_is_named(code: str, broken: Graph) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(broken)
    assert caught.value.code == code


def test_every_code_is_documented_and_tested() -> None:
    documented = re.findall(r"^    (G\d+)  ", verify_module.__doc__ or "", re.MULTILINE)
    assert sorted(set(documented)) == documented == sorted({code for code, _ in BROKEN})


def test_the_users_line_is_told() -> None:
    node = negative(arg(7, f32, 2, 3))
    with pytest.raises(
        VerifyError, match=r"G003: parameter: f32\[2,3\] number 7 is not an input of graph broken"
    ):
        verify(graph(node))
    wrong = Node(add, (x, y), (), (ArrayType(i32, ()),), node.source)
    with pytest.raises(
        VerifyError, match=r"G006: add: has type i32\[\], its rule infers f32\[2,3\]\n.*test_verify"
    ):
        verify(graph(wrong))


def test_good_graphs_pass() -> None:
    verify(close(make_item(make_call(inner, [add(x, y)]), 1)))
    verify(make_graph("unused", [x, y], [x]))
    verify(close(expand(arg(0, f32, 1, seq), shape=(seq, seq))))
    verify(make_graph("nothing", [], []))
