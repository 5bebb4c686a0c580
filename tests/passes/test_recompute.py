"""What rows need not store: what their readers compute again from the row and its few numbers."""

from __future__ import annotations

import numpy as np

import tetrad as td
from tetrad.compiler.pipeline import optimise
from tetrad.graph.group import Group
from tetrad.passes.fuse import fuse

SHAPE = (32, 100)


def rows_of(function: object, *shapes: tuple[int, ...]) -> list[Group]:
    graph = optimise(td.trace(function)(*map(td.Spec, shapes)))
    return [group for group in fuse(graph) if group.kind == "rows"]


def full_outputs(groups: list[Group]) -> list[str]:
    return [o.op.name for g in groups for o in g.outputs if o.type.shape == SHAPE]


def test_the_gradient_of_a_norm_reads_numbers_of_a_row() -> None:
    """The product reads the norm; x - mean and the scale in every place are computed again."""

    def loss(x: td.Array, weight: td.Array, w: td.Array) -> td.Array:
        return td.sum(td.sin(td.nn.layer_norm(x, weight) @ w))

    groups = rows_of(td.grad(loss), SHAPE, SHAPE[1:], (SHAPE[1], 50))
    forward, *backward = groups
    assert full_outputs([forward]) == ["multiply"]
    assert {o.type.size for o in forward.outputs} == {SHAPE[0], SHAPE[0] * SHAPE[1]}
    assert full_outputs(backward) == ["add"]  # the gradient


def test_dear_values_are_stored() -> None:
    def spread(x: td.Array, y: td.Array) -> tuple[td.Array, td.Array]:
        weights = td.exp(x - td.max(x, axis=-1, keepdims=True))
        return td.sum(weights, axis=-1), td.sum(weights * y, axis=0)

    (group,) = rows_of(spread, SHAPE, SHAPE)
    assert full_outputs([group]) == ["multiply"]


def test_what_a_product_reads_is_stored() -> None:
    def product(x: td.Array, w: td.Array) -> td.Array:
        return (x - td.mean(x, axis=-1, keepdims=True)) @ w

    (group,) = rows_of(product, SHAPE, (SHAPE[1], 50))
    assert full_outputs([group]) == ["subtract"]


def test_results_are_stored() -> None:
    def both(x: td.Array) -> tuple[td.Array, td.Array]:
        apart = x - td.mean(x, axis=-1, keepdims=True)
        return apart, td.sum(apart * 2, axis=0)

    (group,) = rows_of(both, SHAPE)
    assert full_outputs([group]) == ["subtract"]


def test_computed_again_the_bits_are_the_same() -> None:
    def apart(x: td.Array) -> td.Array:
        return td.sum(td.square(x - td.mean(x, axis=-1, keepdims=True)), axis=0)

    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    mean = td.jit(lambda x: td.mean(x, axis=-1, keepdims=True))(x)
    want = td.jit(lambda x, mean: td.sum(td.square(x - mean), axis=0))(x, mean)
    assert np.asarray(td.jit(apart)(x)).tobytes() == np.asarray(want).tobytes()
