"""Trees, classes: the ways a class becomes a container."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import pytest

import tetrad as td
from tetrad.core import tree
from tetrad.core.errors import TreeError


def test_a_class_with_methods() -> None:
    @tree.register_pytree_node_class
    class Scale:
        def __init__(self, factor: Any, power: int) -> None:
            self.factor, self.power = factor, power

        def tree_flatten(self) -> Any:
            return [self.factor], {"power": self.power}  # settings without a hash

        @classmethod
        def tree_unflatten(cls, settings: Any, children: Any) -> Scale:
            return cls(*children, **settings)

    double = td.jit(lambda s, x: s.factor * x**s.power)
    x = td.asarray(3.0)
    assert float(double(Scale(2.0, 2), x)) == 18
    assert float(double(Scale(2.0, 3), x)) == 54
    assert float(double(Scale(5.0, 2), x)) == 45
    assert double.compiles == 2
    assert float(td.grad(lambda s: s.factor**2)(Scale(x, 1)).factor) == 6
    assert td.jit(lambda s: s)(Scale(x, 7)).power == 7
    assert td.vmap(lambda s: s.factor + s.power)(Scale(td.zeros(3), 2)).tolist() == [2, 2, 2]


def test_a_class_with_keys_in_a_method() -> None:
    @tree.register_pytree_with_keys_class
    class Keyed:
        def __init__(self, w: Any) -> None:
            self.w = w

        def tree_flatten_with_keys(self) -> Any:
            return ((tree.GetAttrKey("w"), self.w),), None

        @classmethod
        def tree_unflatten(cls, settings: Any, children: Any) -> Keyed:
            return cls(*children)

    assert tree.keystr(tree.leaves_with_path([Keyed(1)])[0][0]) == "[0].w"
    assert tree.leaves(Keyed((1, 2))) == [1, 2]


def test_a_class_is_registered_once_and_as_a_pair() -> None:
    class Odd:
        pass

    with pytest.raises(TreeError, match="dict is a container already"):
        tree.register_pytree_node(dict, lambda d: ((), None), lambda _, __: {})
    tree.register_pytree_node(Odd, lambda o: 3, lambda _, __: Odd())  # type: ignore[arg-type, return-value]
    with pytest.raises(TreeError, match="the flatten function of Odd gave 3"):
        tree.leaves(Odd())


def test_static_objects_have_no_leaves() -> None:
    @tree.register_static
    @dataclasses.dataclass(frozen=True)
    class Mode:
        power: int

    f = td.jit(lambda mode, x: x**mode.power)
    assert [float(f(Mode(n), td.asarray(2.0))) for n in (2, 3, 2)] == [4, 8, 4]
    assert f.compiles == 2


# -- dataclasses -----------------------------------------------------------------------------------


@partial(tree.register_dataclass, data_fields=["x"], meta_fields=["name"])
@dataclasses.dataclass
class Split:
    x: Any
    name: str


@tree.register_dataclass
@dataclasses.dataclass
class Inferred:
    x: Any
    power: int = tree.static(default=2)
    done: bool = dataclasses.field(init=False, default=False)


def test_fields_are_children_or_settings() -> None:
    leaves, shape = tree.flatten(Split(1, "a"))
    assert (leaves, repr(shape)) == ([1], "TreeDef(Split[('a',)](x=*))")
    assert tree.unflatten(shape, [2]) == Split(2, "a")
    assert tree.leaves(Inferred([1, 2])) == [1, 2]
    assert tree.map(lambda x: x + 1, Inferred(1, 3)) == Inferred(2, 3)
    assert tree.keystr(tree.leaves_with_path(Split({"a": 1}, ""))[0][0]) == ".x['a']"


def test_fields_may_be_dropped() -> None:
    @dataclasses.dataclass
    class Cached:
        x: Any
        cache: Any = None

    tree.register_dataclass(Cached, ["x"], [], drop_fields=["cache"])
    assert tree.map(lambda x: x, Cached(1, "kept")) == Cached(1, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data_fields": ["x"]}, "got data_fields=.*hint: give both, or neither"),
        ({"data_fields": ["x"], "meta_fields": []}, "left out: y"),
        ({"data_fields": ["x", "z"], "meta_fields": ["y"]}, "__init__ takes no z"),
        ({"static": ["z"]}, "it has no field z"),
        ({"data_fields": ["x"], "meta_fields": ["y"], "static": ["y"]}, "static= says what"),
    ],
)
def test_fields_that_do_not_fit_are_named(settings: Any, message: str) -> None:
    @dataclasses.dataclass
    class Two:
        x: Any
        y: Any

    with pytest.raises(TreeError, match=f"(?s)^register_dataclass of Two: {message}"):
        tree.register_dataclass(Two, **settings)


def test_a_plain_class_names_its_fields() -> None:
    class Plain:
        def __init__(self, x: Any) -> None:
            self.x = x

    with pytest.raises(TreeError, match="it is no dataclass"):
        tree.register_dataclass(Plain)
    tree.register_dataclass(Plain, ["x"], [])
    assert tree.map(lambda x: x + 1, Plain(1)).x == 2


# -- Partial ---------------------------------------------------------------------------------------


def test_a_function_with_arguments_is_a_tree() -> None:
    scaled = tree.Partial(lambda a, x, b: a * x + b, 2.0, b=td.asarray(1.0))
    assert [tree.keystr(path) for path, _ in tree.leaves_with_path(scaled)] == [
        "[<flat index 0>][0]", "[<flat index 1>]['b']",
    ]  # fmt: skip
    assert float(scaled(td.asarray(3.0))) == 7
    assert float(td.jit(lambda f, x: f(x))(scaled, 3.0)) == 7
    made = td.jit(lambda a: tree.Partial(td.multiply, a))(td.asarray(4.0))
    assert float(made(2.0)) == 8
    assert tree.Partial(scaled, 5.0).args == (2.0, 5.0)
    _, rows = td.scan(lambda f, x: (f, f(x)), tree.Partial(td.add, 1.0), td.asarray([1.0, 2.0]))
    assert rows.tolist() == [2, 3]
    gradient = td.grad(lambda f: f(td.asarray(3.0)))(scaled)
    assert [float(g) for g in tree.leaves(gradient)] == [3, 1]
