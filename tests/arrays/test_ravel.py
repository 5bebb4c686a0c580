"""Trees as one array, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import DtypeError, ShapeError

TREE: dict[str, Any] = {
    "a": td.asarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "b": (td.asarray([7, 8, 9]), 2.5),
    "c": None,
    "d": td.zeros((0, 4)),
}


def test_leaves_follow_each_other_and_come_back() -> None:
    flat, unravel = td.ravel_pytree(TREE)
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 9, 2.5]
    again = unravel(flat)
    assert td.tree.structure(again) == td.tree.structure(TREE)
    kinds = [(x.dtype, x.shape) for x in td.tree.leaves(again)]
    assert kinds == [(td.float32, (2, 3)), (td.int32, (3,)), (td.float32, ()), (td.float32, (0, 4))]
    assert again["b"][0].tolist() == [7, 8, 9]


@pytest.mark.parametrize(
    ("leaves", "dtype"),
    [
        ([td.ones(2, dtype=td.bfloat16), td.ones(1, dtype=td.float16)], td.float32),
        ([td.asarray([True]), td.ones(1, dtype=td.int8)], td.int8),
        ([td.ones(1, dtype=td.float16), td.ones(1, dtype=td.int32)], td.float16),
        ([td.ones(2, dtype=td.complex64), td.ones(2)], td.complex64),
        ([td.ones(2, dtype=td.float64), td.ones(2)], td.float64),
        ([], td.float32),
        ([3], td.int32),
    ],
)
def test_dtypes_meet_and_part(leaves: list[Any], dtype: Any) -> None:
    flat, unravel = td.ravel_pytree(leaves)
    assert flat.dtype == dtype
    for x, y in zip(leaves, unravel(flat), strict=True):
        assert getattr(x, "dtype", td.int32) == y.dtype
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def test_ravel_and_unravel_are_traced() -> None:
    flat, unravel = td.ravel_pytree(TREE)
    assert td.jit(lambda t: td.ravel_pytree(t)[0])(TREE).tolist() == flat.tolist()
    assert td.jit(unravel)(flat)["b"][0].tolist() == [7, 8, 9]
    assert td.jit(lambda u, x: u(x)["a"], static_argnums=0)(unravel, flat).shape == (2, 3)
    rows = td.vmap(unravel)(td.stack([flat, 2 * flat]))
    assert rows["a"].shape == (2, 2, 3) and rows["b"][0].tolist() == [[7, 8, 9], [14, 16, 18]]
    gradient = td.grad(lambda x: td.sum(unravel(x)["a"] ** 2))(flat)
    assert gradient.tolist() == [0, 2, 4, 6, 8, 10, 0, 0, 0, 0]
    through = td.grad(lambda t: td.sum(td.ravel_pytree(t)[0] ** 2))({"w": td.ones((2, 2))})
    assert through["w"].tolist() == [[2, 2], [2, 2]]


def test_equal_trees_have_equal_functions() -> None:
    one, two = (td.ravel_pytree([td.ones(2) * n])[1] for n in (1, 2))
    assert one == two and hash(one) == hash(two)
    assert one != td.ravel_pytree([td.ones(3)])[1]
    assert repr(one) == "<unravel to TreeDef([*])>"


def test_what_does_not_fit_is_told() -> None:
    _, unravel = td.ravel_pytree(TREE)
    with pytest.raises(
        ShapeError, match=r"unravel: expected 10 elements on one axis, got f32\[9\]"
    ):
        unravel(td.ones(9))
    with pytest.raises(DtypeError, match=r"unravel: expected f32, got f16\[10\]"):
        unravel(td.ones(10, dtype=td.float16))
    _, same = td.ravel_pytree(td.ones((2, 2)))
    assert same(td.ones(4, dtype=td.float64)).dtype == td.float64
