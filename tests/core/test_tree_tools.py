"""Trees, tools: prefixes, transposes and structures, as `jax.tree` has them."""

from __future__ import annotations

import copy
import gc
import pickle
from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import pytest
from hypothesis import given

from tests.core.test_tree import TREES
from tetrad.core import tree
from tetrad.core.errors import TraceError, TreeError


class Pair(NamedTuple):
    a: Any
    b: Any


class Twin(NamedTuple):
    a: Any
    b: Any


class Held:
    """A class whose settings need not have a hash."""

    def __init__(self, x: Any, setting: Any) -> None:
        self.x, self.setting = x, setting


tree.register(Held, lambda h: ((h.x,), h.setting), lambda setting, xs: Held(xs[0], setting))


def pairs(first: Any, other: Any) -> Any:
    return tree.map(lambda x, y: (x, y), first, other)


def test_a_tree_may_go_on_where_the_first_ends() -> None:
    assert pairs({"w": 0, "b": [1]}, {"w": [2, {"x": 3}], "b": [None]}) == {
        "w": (0, [2, {"x": 3}]),
        "b": [(1, None)],
    }
    assert pairs(5, None) == (5, None)
    assert pairs(None, None) is None


@pytest.mark.parametrize(
    ("first", "other", "message"),
    [
        ({"a": 1}, OrderedDict(a=1), "the first tree has a dict, another has an OrderedDict"),
        ({"a": 1}, {"b": 1}, "the first tree has {'a': *}, another has {'b': *}"),
        ((1, 2), (1, 2, 3), "the first tree has (*, *), another has (*, *, *)"),
        ((1, 2), Pair(1, 2), "the first tree has a tuple, another has a Pair"),
        (Pair(1, 2), Twin(1, 2), "the first tree has a Pair, another has a Twin"),
        (None, 5, "the first tree has None, another has an int, which is a leaf"),
        ([1], 5, "the first tree has a list, another has an int, which is a leaf"),
        ({"a": [1, {"x": ()}]}, {"a": [1, {"x": []}]}, "at ['a'][1]['x'] the first tree has a t"),
        (Held(1, 2), Held(1, 3), "the first tree has Held[2](*), another has Held[3](*)"),
        (
            defaultdict(int, a=1),
            defaultdict(list, a=1),
            "the first tree has defaultdict[int]('a': *), another has defaultdict[list]('a': *)",
        ),
        (
            OrderedDict(b=1, a=2),
            OrderedDict(a=1, b=2),
            "the first tree has OrderedDict('b': *, 'a': *), another has OrderedDict('a': *, 'b'",
        ),
    ],
)
def test_trees_that_part_are_told_where(first: Any, other: Any, message: str) -> None:
    with pytest.raises(TreeError) as error:
        pairs(first, other)
    assert str(error.value).startswith(f"tree.map: {message}")
    assert isinstance(error.value, ValueError) and isinstance(error.value, TraceError)


def test_none_can_be_a_leaf() -> None:
    with pytest.raises(TreeError, match="is_leaf=lambda x: x is None"):
        pairs({"a": None}, {"a": 1})
    assert tree.map(lambda x, y: (x, y), {"a": None}, {"a": 1}, is_leaf=lambda x: x is None) == {
        "a": (None, 1)
    }


def test_structures_count_compare_and_print() -> None:
    shape = tree.structure({"b": (1, None), "a": [Pair(1, 2)]})
    assert (shape.num_leaves, shape.num_nodes) == (3, 8)
    assert repr(shape) == "TreeDef({'a': [Pair(a=*, b=*)], 'b': (*, None)})"
    assert shape == tree.structure({"a": [Pair(3, 4)], "b": (5, None)})
    assert shape.children() == [tree.structure([Pair(1, 2)]), tree.structure((1, None))]
    assert tree.structure(Pair(1, 2)).node_data() == (Pair, None)
    assert tree.structure({"b": 1, "a": 2}).node_data() == (dict, ("a", "b"))
    assert (tree.structure(1).node_data(), tree.structure(None).num_leaves) == (None, 0)
    assert shape != 3


@given(TREES)
def test_structures_survive_pickle_and_copies(made: Any) -> None:
    leaves, shape = tree.flatten(made)
    assert copy.deepcopy(shape) is shape
    if "Layer" not in repr(shape) and "Bag" not in repr(shape):
        assert pickle.loads(pickle.dumps(shape)) is shape
    assert shape.unflatten(iter(leaves)) == made
    assert shape.flatten_up_to(made) == leaves
    assert shape.compose(tree.structure(0)) is shape


def test_compose_puts_a_structure_in_place_of_leaves() -> None:
    outer, inner = tree.structure([0, None, 0]), tree.structure({"x": 0, "y": 0})
    assert repr(outer.compose(inner)) == "TreeDef([{'x': *, 'y': *}, None, {'x': *, 'y': *}])"
    assert tree.structure(0).compose(inner) is inner


def test_leaves_must_be_as_many_as_there_are_places() -> None:
    shape = tree.structure({"a": 0, "b": (0, None)})
    for count in (1, 3):
        with pytest.raises(TreeError, match=rf"^unflatten: .* has 2 leaves, got {count}"):
            tree.unflatten(shape, range(count))


def test_structures_of_short_lived_settings_are_forgotten() -> None:
    def settings() -> list[Any]:
        return [key for key in tree._shapes if key[0] is Held]

    gc.collect()
    before = len(settings())
    shapes = [tree.structure(Held(1, object())) for _ in range(10)]
    assert len(settings()) == before + 10
    del shapes
    gc.collect()
    assert len(settings()) == before


# -- settings without a hash -----------------------------------------------------------------------


def test_settings_without_a_hash_are_compared() -> None:
    first, second = Held(1, [2, {"a": 3}]), Held(10, [2, {"a": 3}])
    assert tree.map(lambda x, y: x + y, first, second).x == 11
    one, two = tree.structure((first, 1)), tree.structure((second, 1))
    assert one == two and hash(one) == hash(two)
    assert one != tree.structure((Held(1, [2]), 1))
    assert one.unflatten([5, 6])[0].setting is first.setting
    with pytest.raises(TreeError, match=r"has Held\[\[2\]\]"):
        tree.map(lambda x, y: x, Held(1, [2]), Held(1, [3]))


def test_a_setting_that_changes_is_another_setting() -> None:
    setting = [1]
    known = {tree.structure(Held(1, setting)): "first"}
    setting.append(2)
    assert tree.structure(Held(1, setting)) not in known
    assert tree.structure(Held(1, [1])) not in known  # what was kept has changed with its list
    setting.pop()
    assert known[tree.structure(Held(1, setting))] == "first"


def test_a_setting_that_cannot_select_a_program_is_named() -> None:
    class Opaque:
        __hash__ = None  # type: ignore[assignment]

    shape = tree.structure([Held(1, (1, {"a": Opaque()}))])
    with pytest.raises(TreeError, match=r"a Held has a setting of type Opaque, which has no hash"):
        hash(shape)


# -- tools -----------------------------------------------------------------------------------------


def test_broadcast_repeats_what_stands_above() -> None:
    assert tree.broadcast(1, {"a": (2, None)}) == {"a": (1, None)}
    assert tree.broadcast((None, 1), (2, 3), is_leaf=lambda x: x is None) == (None, 1)
    with pytest.raises(TreeError, match=r"^tree.broadcast: the first tree has \(\*, \*\)"):
        tree.broadcast((1, 2), (3, 4, 5))


def test_transpose_exchanges_containers() -> None:
    outer, inner = tree.structure([0, 0]), tree.structure(Pair(0, 0))
    rows = [Pair(1, 2), Pair(3, 4)]
    assert tree.transpose(outer, inner, rows) == Pair([1, 3], [2, 4])
    assert tree.transpose(outer, None, rows) == Pair([1, 3], [2, 4])
    with pytest.raises(TreeError, match=r"^tree.transpose: expected \[P"):
        tree.transpose(outer, inner, [Pair(1, 2), Pair(3, (4, 5))])


def test_reductions_of_leaves() -> None:
    assert tree.reduce(lambda a, b: (a, b), [1], None) == (None, 1)
    assert tree.reduce_associative(lambda a, b: (a, b), [1, 2, 3]) == (1, (2, 3))
    assert tree.reduce_associative(lambda a, b: (a, b), [], identity=0) == 0
    with pytest.raises(TreeError, match="no leaves"):
        tree.reduce_associative(lambda a, b: (a, b), [])


def test_one_level() -> None:
    assert tree.flatten_one_level(Pair(1, [2])) == ((1, [2]), None)
    assert tree.flatten_one_level_with_keys({"a": 1}) == (((tree.DictKey("a"), 1),), ("a",))
    with pytest.raises(TreeError, match="an int is a leaf"):
        tree.flatten_one_level(1)
    assert tree.is_tree_node(Pair) and not tree.is_tree_node(int)
    assert tree.treedef_children(tree.structure([1])) == [tree.structure(1)]


def test_names_are_found_and_listed() -> None:
    for name in dir(tree):
        assert callable(getattr(tree, name)) or name.startswith("Key"), name
    assert tree.tree_map is tree.map and tree.tree_reduce is tree.reduce
    assert tree.tree_leaves_with_path is tree.leaves_with_path
    with pytest.raises(AttributeError, match="no 'maps'"):
        tree.maps  # noqa: B018
