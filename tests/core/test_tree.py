"""Trees: flatten and unflatten are inverse, shapes are hashable and tell structure apart."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetrad.core import tree
from tetrad.core.errors import TraceError
from tetrad.core.tree import (
    flatten,
    refuse_cycle,
    register,
    register_dataclass,
    tree_map,
    unflatten,
)


class Point(NamedTuple):
    x: Any
    y: Any


@register_dataclass
@dataclasses.dataclass
class Layer:
    weight: Any
    bias: Any


class Bag:
    def __init__(self, *items: Any, label: str = "") -> None:
        self.items, self.label = items, label


register(Bag, lambda bag: (bag.items, bag.label), lambda label, items: Bag(*items, label=label))

TREES = st.recursive(
    st.integers() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3)
        | st.builds(Point, inner, inner)
        | st.builds(Layer, inner, inner)
    ),
    max_leaves=12,
)


@given(TREES)
def test_unflatten_inverts_flatten(tree: Any) -> None:
    leaves, shape = flatten(tree)
    assert unflatten(shape, leaves) == tree
    assert flatten(unflatten(shape, leaves)) == (leaves, shape)
    assert hash(shape) == hash(flatten(tree)[1])
    assert len(list(shape.leaf_names())) == len(leaves)


def test_shapes_tell_containers_and_keys_apart() -> None:
    trees = [1, (1,), [1], {"a": 1}, {"b": 1}, (1, None), (1, 2), Point(1, 2), Layer(1, 2)]
    assert len({flatten(tree)[1] for tree in trees}) == len(trees)


def test_dicts_are_sorted_by_key() -> None:
    assert flatten({"b": 1, "a": 2}) == flatten({"a": 2, "b": 1})
    assert flatten({"b": 1, "a": 2})[0] == [2, 1]


def test_leaf_names_say_how_to_reach_a_leaf() -> None:
    names = list(flatten({"w": [1, Layer(2, Point(3, 4))]})[1].leaf_names("p"))
    assert names == ["p['w'][0]", "p['w'][1].weight", "p['w'][1].bias.x", "p['w'][1].bias.y"]


def test_a_registered_class_keeps_its_settings() -> None:
    leaves, shape = flatten(Bag(1, [2], label="kept"))
    again = unflatten(shape, leaves)
    assert (again.items, again.label) == ((1, [2]), "kept")
    assert shape != flatten(Bag(1, [2], label="other"))[1]


def test_static_fields_are_part_of_the_shape() -> None:
    @dataclasses.dataclass
    class Norm:
        weight: Any
        eps: float

    register_dataclass(Norm, static=["eps"])
    leaves, shape = flatten(Norm(1, 0.5))
    assert leaves == [1] and unflatten(shape, [2]) == Norm(2, 0.5)


def test_tree_map_refuses_different_shapes() -> None:
    with pytest.raises(
        TraceError, match=r"^tree.map: the first tree has a list, another has a tuple\n"
    ):
        tree_map(lambda a, b: a, [1], (1,))


def test_keys_that_do_not_sort_are_refused() -> None:
    with pytest.raises(TraceError, match="cannot be sorted"):
        flatten({1: 0, "a": 0})


def test_dicts_of_other_kinds_keep_their_kind() -> None:
    leaves, shape = flatten(OrderedDict(b=1, a=2))
    assert leaves == [1, 2]  # in its own order
    assert unflatten(shape, [3, 4]) == OrderedDict(b=3, a=4)
    assert shape is not flatten(OrderedDict(a=2, b=1))[1]
    leaves, shape = flatten(defaultdict(list, b=1, a=2))
    assert leaves == [2, 1]
    made = unflatten(shape, leaves)
    assert (type(made), made["c"], list(shape.leaf_names())) == (
        defaultdict,
        [],
        ["['a']", "['b']"],
    )


def test_the_names_of_jax_tree() -> None:
    model = {"w": 1, "b": [2, None]}
    assert tree.map(lambda x: x + 1, model) == {"w": 2, "b": [3, None]} and tree.leaves(model) == [
        2,
        1,
    ]
    assert tree.unflatten(tree.structure(model), [4, 5]) == {"w": 5, "b": [4, None]}


def test_a_container_in_itself_is_refused() -> None:
    inside: list[Any] = [1, {"here": []}]
    inside[1]["here"].append(inside)
    with pytest.raises(
        TraceError, match=r"^a (list|dict) contains itself\n  in .*\n  hint: trees of arrays end"
    ):
        flatten({"w": inside})


def test_a_container_met_twice_is_no_circle() -> None:
    shared = [1, 2]
    refuse_cycle({"a": shared, "b": (shared, [shared])})
    assert flatten((shared, shared))[0] == [1, 2, 1, 2]


def test_parts_that_are_leaves_as_they_are() -> None:
    model = {"a": None, "b": (1, [2])}
    assert tree.leaves(model, is_leaf=lambda part: part is None) == [None, 1, 2]
    assert tree.map(lambda x: 0 if x is None else x, model, is_leaf=lambda x: x is None) == {
        "a": 0,
        "b": (1, [2]),
    }
    assert (
        tree.map(lambda p, q: (p, q), model, model, is_leaf=lambda x: isinstance(x, tuple))["b"]
        == ((1, [2]),) * 2
    )
    assert tree.structure(model, is_leaf=lambda part: isinstance(part, dict)) == tree.structure(0)


def test_leaves_joined() -> None:
    assert tree.reduce(lambda a, b: a + b, {"b": 2, "a": [1, None]}) == 3
    assert tree.reduce(lambda a, b: [*a, b], {"b": 2, "a": [1]}, []) == [1, 2]
    assert tree.all({"a": True, "b": []})
    assert not tree.all([True, (0,)])
