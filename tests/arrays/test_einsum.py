"""einsum agrees with NumPy's on every kind of subscript."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tetrad as td
from tests.compiler.engine import jit
from tetrad.core.errors import ShapeError

SIZES = {"i": 2, "j": 3, "k": 4, "l": 1, "m": 0, "b": 2, "...": 2}
CASES = [
    "ij,jk->ik", "ij,kj->ik", "bij,bjk->bik", "ij,ij->", "ij->ji", "ii->i", "ii", "ii->", "iij->ji",
    "ij->", "i,j->ij",
    "ij,j", "ijk,kl->ijl", "ij,jk,kl->il", "ij,jk,kl,li->", "bij,bkj,bk->bi", "bjik,bjlk->bjil",
    "i,i,i->i", "ij,ik,il->jkl", "m,m->", "mi,mj->ij", "ijk,jl->ikl", "i->", "...i,...i->...",
    "...ij,...jk->...ik",
    "i...->...i", "...,i->...i", "ij...,jk->ik...", ",i->i", "ijij->ij", "iii->i",
]  # fmt: skip


def operands(subscripts: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    terms = subscripts.replace(" ", "").partition("->")[0].split(",")
    shapes = [[SIZES[c] for c in term.replace("...", "")] for term in terms]
    for shape, term in zip(shapes, terms, strict=True):
        if "..." in term:
            at = term.index("...")
            shape[at:at] = [2, 5]
    return [rng.integers(-3, 4, shape).astype(np.float64) for shape in shapes]


@pytest.mark.parametrize("subscripts", CASES)
def test_agrees_with_numpy(subscripts: str) -> None:
    arrays = operands(subscripts)
    want = np.einsum(subscripts, *arrays)
    for got in (
        td.einsum(subscripts, *arrays),
        jit(lambda *xs: td.einsum(subscripts, *xs))(*arrays),
    ):
        assert got.shape == want.shape
        np.testing.assert_array_equal(got, want)


@given(st.data())
def test_random_subscripts(data: st.DataObject) -> None:
    letters = st.text("ijkl", min_size=0, max_size=3)
    terms = data.draw(st.lists(letters, min_size=1, max_size=4))
    known = "".join(sorted(set("".join(terms))))
    output = "".join(data.draw(st.permutations(known)))[: data.draw(st.integers(0, len(known)))]
    subscripts = ",".join(terms) + "->" + output
    arrays = operands(subscripts)
    np.testing.assert_array_equal(td.einsum(subscripts, *arrays), np.einsum(subscripts, *arrays))


def test_booleans_are_joined_by_or() -> None:
    a = np.array([[True, False], [False, False]])
    for subscripts in ("ij->i", "ij->", "ij->ji", "ij->j"):
        found = td.einsum(subscripts, a)
        assert found.dtype is td.bool and found.tolist() == np.einsum(subscripts, a).tolist()


def test_an_axis_of_size_one_broadcasts() -> None:
    a, b = np.ones((2, 1)), np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(
        td.einsum("ij,jk->ik", a, b), np.einsum("ij,jk->ik", np.ones((2, 3)), b)
    )


@pytest.mark.parametrize(
    ("subscripts", "shapes", "text"),
    [
        ("ij,jk->ik", [(2, 3)], "2 operands, got 1"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "has sizes 3 and 4"),
        ("ij->ik", [(2, 3)], "unknown one"),
        ("ij->ii", [(2, 3)], "repeats a letter"),
        ("ijk->i", [(2, 3)], "3 letters for"),
        ("i?->i", [(2, 3)], "cannot read"),
        ("ii->i", [(2, 3)], "sizes 2 and 3"),
    ],
)
def test_errors(subscripts: str, shapes: list[tuple[int, ...]], text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        td.einsum(subscripts, *(np.zeros(shape) for shape in shapes))


def test_symbolic_sizes() -> None:
    b = td.Dim("b", max=8)
    f = jit(lambda x, y: td.einsum("bi,bj->ij", x, y), dims=({0: b}, {0: b}))
    for n in (1, 5):
        x, y = np.ones((n, 2)), np.arange(3.0 * n).reshape(n, 3)
        np.testing.assert_array_equal(f(x, y), x.T @ y)
    assert f.compiles == 1


def test_letters_as_lists_of_numbers() -> None:
    x, y = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    for parts in (
        (x, [0, 1], y, [1, 2], [0, 2]), (x, [2, 1], y, [1, 0]), (x, [..., 1], y, [1, 2], [..., 2]),
        (y, [30, 2], [2, 30]), (x, (0, 1), ()),
    ):  # fmt: skip
        np.testing.assert_allclose(td.einsum(*parts), np.einsum(*parts))
    with pytest.raises(td.errors.ShapeError, match="axes are numbers from 0 to 51, got 52"):
        td.einsum(x, [0, 52], [0])
    with pytest.raises(td.errors.ShapeError, match="a text of letters first"):
        td.einsum(x, y)
