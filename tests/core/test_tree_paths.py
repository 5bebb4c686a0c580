"""Trees, paths: keys that lead to leaves."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import pytest
from hypothesis import given

from tests.core.test_tree import TREES, Bag
from tetrad.core import tree
from tetrad.core.tree import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey, keystr


class Point(NamedTuple):
    x: Any
    y: Any


class Named:
    def __init__(self, left: Any, right: Any) -> None:
        self.left, self.right = left, right


tree.register_pytree_with_keys(
    Named,
    lambda n: (((GetAttrKey("left"), n.left), (GetAttrKey("right"), n.right)), None),
    lambda _, parts: Named(*parts),
)


def paths(made: Any) -> list[str]:
    return [keystr(path) for path, _ in tree.leaves_with_path(made)]


def test_every_container_has_its_keys() -> None:
    made = {
        "a": [1, Point(2, (3,))],
        "b": None,
        "c": OrderedDict(z=4),
        "d": defaultdict(int, y=5),
        "e": Bag(6, [7]),
        "f": Named(8, 9),
    }
    assert paths(made) == [
        "['a'][0]", "['a'][1].x", "['a'][1].y[0]", "['c']['z']", "['d']['y']",
        "['e'][<flat index 0>]", "['e'][<flat index 1>][0]", "['f'].left", "['f'].right",
    ]  # fmt: skip
    assert tree.leaves_with_path(made)[2] == (
        (DictKey("a"), SequenceKey(1), GetAttrKey("y"), SequenceKey(0)),
        3,
    )
    assert tree.leaves_with_path(made)[5][0] == (DictKey("e"), FlattenedIndexKey(0))
    assert list(tree.structure(made).leaf_names())[5:] == [
        "['e'][0]", "['e'][1][0]", "['f'].left", "['f'].right",
    ]  # fmt: skip


def test_paths_without_brackets() -> None:
    path = (DictKey("a"), SequenceKey(1), GetAttrKey("x"), FlattenedIndexKey(2), "own")
    assert keystr(path, simple=True, separator="/") == "a/1/x/2/own"
    assert keystr(()) == ""


@given(TREES)
def test_paths_go_with_the_leaves_of_flatten(made: Any) -> None:
    leaves, shape = tree.flatten(made)
    found, same = tree.flatten_with_path(made)
    assert ([leaf for _, leaf in found], same) == (leaves, shape)
    assert [keystr(path) for path, _ in found] == list(shape.leaf_names())
    assert tree.map_with_path(lambda _, x: x, made) == made


def test_map_with_paths_takes_other_trees_and_questions() -> None:
    made = {"w": (1, 2), "b": None}
    assert tree.map_with_path(lambda p, x, y: (keystr(p), x, y), {"w": 1}, {"w": [2]}) == {
        "w": ("['w']", 1, [2])
    }
    ends = {"is_leaf": lambda path, part: len(path) == 1, "is_leaf_takes_path": True}
    assert tree.map_with_path(lambda p, x: x, made, **ends) == made
    assert tree.leaves_with_path(made, **ends) == [
        ((DictKey("b"),), None),
        ((DictKey("w"),), (1, 2)),
    ]
    assert tree.leaves_with_path(made, is_leaf=lambda part: part is None)[0] == (
        (DictKey("b"),),
        None,
    )


def test_a_container_in_itself_is_refused() -> None:
    made: list[Any] = []
    made.append(made)
    with pytest.raises(TypeError, match="contains itself"):
        tree.leaves_with_path(made)
