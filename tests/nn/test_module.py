"""Modules: trees with settings that transforms take, objects that do not change, classes that
inherit."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.nn import Module, static_field


class Affine(Module):
    weight: Any
    bias: Any = None
    power: int = static_field(default=1)

    def __call__(self, x: Any) -> Any:
        y = x @ self.weight
        y = y if self.bias is None else y + self.bias
        return y**self.power


class Deep(Module):
    layers: list[Any]
    name: str = static_field()
    scale: Any

    def __init__(self, key: Any, sizes: tuple[int, ...], name: str = "deep") -> None:
        keys = td.random.split(key, len(sizes))
        self.layers = [
            Affine(td.random.normal(keys[i], pair), td.zeros(pair[1]))
            for i, pair in enumerate(itertools.pairwise(sizes))
        ]
        self.name = name
        self.scale = td.asarray(2.0)

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = td.tanh(layer(x))
        return x * self.scale


MODEL = Deep(td.random.key(0), (3, 4, 2))
X = np.ones((5, 3), np.float32)


def test_it_is_a_tree() -> None:
    leaves = td.tree.leaves(MODEL)
    assert [leaf.shape for leaf in leaves] == [(3, 4), (4,), (4, 2), (2,), ()]
    back = td.tree.map(lambda x: x, MODEL)
    assert type(back) is Deep and back.name == "deep" and back == MODEL
    assert type(back.layers[0]) is Affine
    assert td.tree.leaves(Affine(1.0, power=3)) == [1.0]


def test_transforms_take_it() -> None:
    def loss(model: Deep, x: Any) -> Any:
        return td.sum(model(x) ** 2)

    want = float(loss(MODEL, X))
    np.testing.assert_allclose(float(td.jit(loss)(MODEL, X)), want, rtol=1e-6)
    gradient = td.jit(td.grad(loss))(MODEL, X)
    assert type(gradient) is Deep and gradient.name == "deep"
    np.testing.assert_allclose(float(gradient.scale), want, rtol=1e-5)  # of scale^2 at 2
    better = td.tree.map(lambda p, g: p - 0.001 * g, MODEL, gradient)
    assert float(loss(better, X)) < want
    rows = td.vmap(lambda x: MODEL(x))(X)
    np.testing.assert_allclose(np.asarray(rows), np.asarray(MODEL(X)), atol=1e-6)
    stacked = td.tree.map(lambda *x: td.stack(x), MODEL, better)
    two = td.vmap(lambda m: loss(m, X))(stacked)
    np.testing.assert_allclose(np.asarray(two)[0], want, rtol=1e-5)


def test_settings_are_part_of_the_program() -> None:
    called = []

    @td.jit
    def apply(layer: Affine, x: Any) -> Any:
        called.append(layer.power)
        return layer(x)

    w = td.ones((3, 2))
    one = np.asarray(apply(Affine(w), X))
    two = np.asarray(apply(Affine(w, power=2), X))
    np.testing.assert_allclose(two, one**2)
    apply(Affine(w * 2, power=2), X)
    assert called == [1, 2]


def test_it_does_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="replace"):
        MODEL.name = "other"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del MODEL.scale
    with pytest.raises(AttributeError, match="no field 'widht'"):
        MODEL.widht = 3  # type: ignore[attr-defined]
    other = MODEL.replace(name="other")
    assert other.name == "other" and MODEL.name == "deep" and other.layers is MODEL.layers
    assert other != MODEL
    with pytest.raises(td.errors.TetradError, match="name"):
        MODEL.replace(nam="x")


def test_every_field_gets_a_value() -> None:
    class Half(Module):
        a: Any
        b: Any

        def __init__(self) -> None:
            self.a = 1

    with pytest.raises(td.errors.TetradError, match=r"a value for each field, got \['b'\]"):
        Half()


def test_classes_inherit() -> None:
    class Wide(Affine):
        extra: Any = 0.0

        def __call__(self, x: Any) -> Any:
            return super().__call__(x) + self.extra

    class Named(Deep):
        title: str = static_field(default="")

        def __init__(self, key: Any, title: str) -> None:
            super().__init__(key, (3, 2))
            self.title = title

    wide = Wide(td.ones((3, 2)), extra=td.asarray(1.0))
    np.testing.assert_allclose(np.asarray(wide(X)), 4.0)
    assert len(td.tree.leaves(wide)) == 2
    named = Named(td.random.key(0), "best")
    assert named.title == "best" and len(td.tree.leaves(named)) == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        named.title = "worse"  # type: ignore[misc]


def test_it_prints_types_of_arrays() -> None:
    text = repr(MODEL)
    assert text.startswith("Deep(layers=[Affine(weight=f32[3,4], bias=f32[4], power=1)")
    assert "name='deep'" in text
