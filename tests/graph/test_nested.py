"""graph.nested: graphs inside graphs are found once, innermost first, and replaced."""

from __future__ import annotations

from tests.graph.graphs import arg, close
from tetrad.core.dtypes import f32
from tetrad.graph.build import make_call, make_graph, make_item
from tetrad.graph.nested import graphs_in, innermost_first, replace_graphs
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.arithmetic import add, negative

x = arg(0, f32, 2)


def calling(graph: Graph, value: Node) -> Node:
    return make_item(make_call(graph, [value]), 0)


leaf, other = make_graph("leaf", [x], [negative(x)]), make_graph("other", [x], [x])
middle = make_graph("middle", [x], [calling(leaf, calling(leaf, x))])
top = close(add(calling(middle, x), calling(leaf, x)), name="top")


def test_innermost_first_and_each_once() -> None:
    assert innermost_first(top) == (leaf, middle, top)
    assert innermost_first(leaf) == (leaf,)


def test_graphs_are_found_within_tuples() -> None:
    assert list(graphs_in((1, (leaf, "x"), middle))) == [leaf, middle]


def test_replacing() -> None:
    assert replace_graphs(top, {leaf: leaf}) is top
    changed = replace_graphs(top, {leaf: other})
    assert innermost_first(changed) == (leaf, middle, other, changed)
    every = replace_graphs(middle, {leaf: other})
    assert innermost_first(every) == (other, every)
    assert replace_graphs(every, {other: leaf}) is middle


def test_a_deep_chain_of_graphs() -> None:
    graph = leaf
    for depth in range(2000):
        graph = make_graph(f"level{depth}", [x], [calling(graph, x)])
    assert len(innermost_first(graph)) == 2001
