"""Functions that choose, join, count and place elements, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.arrays.numpy.against import check, floats, same
from tetrad.core.errors import BoundsError, DtypeError, SettingError, ShapeError, TraceError

X = floats(3, 4)
Y = floats(3, 4)
CUBE = floats(2, 3, 4)
INTS = np.array([3, 1, 3, 0, 5, 1])


def other(function: Any) -> Any:
    """NumPy's function that changes its argument, as one that gives another array."""

    def call(x: Any, *args: Any, inplace: bool = False, **settings: Any) -> Any:
        copied = np.array(x)
        function(copied, *args, **settings)
        return copied

    return call


def test_choices() -> None:
    conditions = [X < -0.5, X > 0.5]
    same(td.select(conditions, [X, Y]), np.select(conditions, [X, Y]))
    check("select", conditions, [X, Y], 7.0)
    same(
        td.jit(lambda a, b: td.select([a < 0, a > b], [a, b], 3.0))(X, Y),
        np.select([X < 0, X > Y], [X, Y], 3.0),
    )
    pieces = [lambda x: -x, lambda x: x**2, 5.0]
    for functions in (pieces, pieces[:2]):
        want = np.piecewise(X, conditions, functions)
        same(td.piecewise(X, conditions, functions), want)
        same(td.jit(lambda x, f=functions: td.piecewise(x, [x < -0.5, x > 0.5], f))(X), want)
    for where in (X[0] < 0, [X[0] < 0, X[0] > 1], np.stack([X[0] < 0, X[0] > 1])):
        same(td.piecewise(X[0], where, [1.0, 2.0]), np.piecewise(X[0], where, [1.0, 2.0]))
    at = np.array([[0, 1, 0, 1]] * 3)
    same(td.choose(at, [X, Y]), np.choose(at, [X, Y]))
    for mode in ("wrap", "clip"):
        same(td.choose(at * 5 - 2, [X, Y], mode=mode), np.choose(at * 5 - 2, [X, Y], mode=mode))
    with pytest.raises(BoundsError):
        td.choose(at + 1, [X, Y])
    with pytest.raises(DtypeError, match="select: conditions are bools"):
        td.select([X], [X])
    with pytest.raises(ShapeError, match="select: 1 conditions for 2"):
        td.select([X > 0], [X, Y])


def test_elements_where_a_condition_holds() -> None:
    keeps = np.array([True, False, True])
    same(td.compress(keeps, X, 0), np.compress(keeps, X, 0))
    same(td.compress(keeps, X), np.compress(keeps, X))
    same(td.extract(X > 0, X), np.extract(X > 0, X))
    sized = td.jit(lambda x: td.extract(x > 0, x, size=11, fill_value=-1.0))(X)
    count = int((X > 0).sum())
    same(sized[:count], X[X > 0])
    assert (np.asarray(sized[count:]) == -1).all() and sized.shape == (11,)
    same(td.extract(X > 0, X, size=2), X[X > 0][:2])
    with pytest.raises(TraceError, match="compress: how many"):
        td.jit(lambda x: td.compress(x > 0, x))(X[0])


def test_values_put_in_places() -> None:
    mask, places = X > 0, np.array([1, -2, 5])
    for values in ([1.0], [1.0, 2.0, 3.0], floats(30)):
        check("place", X, mask, values, inplace=False, reference=other(np.place))
        check("put", X, places, values, inplace=False, reference=other(np.put), vmap=False)
    for mode in ("clip", "wrap"):
        check("put", X, places * 7, [1.0, 2.0], mode, inplace=False, reference=other(np.put),
              vmap=False)  # fmt: skip
    at = np.argmax(X, axis=1, keepdims=True)
    check("put_along_axis", X, at, 9.0, 1, inplace=False, reference=other(np.put_along_axis),
          vmap=False)  # fmt: skip
    check("put_along_axis", X, at, floats(3, 1), 1, inplace=False, vmap=False,
          reference=other(np.put_along_axis))  # fmt: skip
    for value in (5.0, [1.0, 2.0, 3.0]):
        for x in (X, X.T, floats(7, 3), floats(3, 3, 3)):
            for wrap in (False, True):
                check("fill_diagonal", x, value, wrap, inplace=False,
                      reference=other(np.fill_diagonal))  # fmt: skip
    for name, args in (("place", (X, mask, [1.0])), ("put", (X, 0, 1)), ("fill_diagonal", (X, 1))):
        with pytest.raises(TraceError, match=f"{name}: arrays do not change in place"):
            getattr(td, name)(*args)


def test_joined() -> None:
    check("append", X, Y)
    check("append", X, Y, 1)
    check("append", X[0], 5.0)
    for obj in (1, -1, [0, 2], [], slice(0, 4, 2)):
        check("delete", X, obj, 1)
    some = np.array([True, False, True, False])
    same(td.delete(X, some, 1), np.delete(X, some, 1))
    check("delete", X, 5)
    for place, values, axis in (
        (1, 7.0, None), (1, 7.0, 0), ([0, 2], 7.0, 1), (-1, [1.0, 2.0, 3.0], 1), (4, 1.0, 1),
        ([1, 1], [[1.0, 2.0]] * 3, 1), (slice(0, 2), 5.0, 1), ([2, 0], [8.0, 9.0], 1),
        (0, [[1.0], [2.0], [3.0]], 1), ([1], [[1.0], [2.0], [3.0]], 1),
    ):  # fmt: skip
        check("insert", X, place, values, axis)
    check("insert", X[0], [1, 3], [5.0, 6.0])
    same(td.block([[X, Y], [Y, X]]), np.block([[X, Y], [Y, X]]))
    same(td.block([X[0], 5.0]), np.block([X[0], 5.0]))
    same(td.block([[CUBE, CUBE]]), np.block([[CUBE, CUBE]]))
    same(td.block(X), np.block(X))
    with pytest.raises(ShapeError, match="block: lists are nested equally"):
        td.block([[X], X])
    with pytest.raises(TraceError, match="delete: places that are traced"):
        td.jit(lambda x, i: td.delete(x, i))(X, np.array(1))
    with pytest.raises(BoundsError, match="insert: places go from"):
        td.insert(X, 9, 1.0, axis=0)


def test_parts() -> None:
    for sections, axis in ((3, 1), (5, 0), ([1, 2], -1), (1, 0)):
        check("array_split", X, sections, axis)
    check("vsplit", X, 3)
    check("hsplit", X, 2)
    check("hsplit", X[0], [1])
    check("dsplit", CUBE, 2)
    for shape in ((2, 3), (5, 5), 3, (0,), (2, 2, 2)):
        check("resize", X, shape)
    line = np.array([0, 0, 1, 0, 2, 0])
    for trim in ("fb", "f", "b"):
        same(td.trim_zeros(line, trim), np.trim_zeros(line, trim))
    assert td.trim_zeros(np.zeros(3)).shape == (0,)
    with pytest.raises(TraceError, match="trim_zeros"):
        td.jit(td.trim_zeros)(line)
    with pytest.raises(ShapeError, match="dsplit: needs at least 3 axes"):
        td.dsplit(X, 2)


@pytest.mark.parametrize("k", [-2, 0, 1])
def test_triangles(k: int) -> None:
    check("tri", 3, 4, k)
    check("tri", 3, k=k, dtype=np.int32)
    for name in ("tril_indices", "triu_indices"):
        check(name, 4, k)
        check(name, 3, k, 5)
        same(getattr(td, f"{name}_from")(X, k), getattr(np, f"{name}_from")(X, k))
    check("diagflat", X, k)
    same(td.mask_indices(4, td.triu, k), np.mask_indices(4, np.triu, k))


def test_coordinates() -> None:
    check("diag_indices", 3)
    check("diag_indices", 3, 3)
    same(td.diag_indices_from(X[:, :3]), np.diag_indices_from(X[:, :3]))
    for sparse in (False, True):
        check("indices", (2, 3), sparse=sparse)
    check("fromfunction", lambda i, j: i * 10 + j, (2, 3), dtype=float)
    for count in (None, 0, 1, 3):
        for increasing in (False, True):
            check("vander", X[0], count, increasing)
    check("logspace", 0.5, 2, 5, rtol=1e-5)
    check("logspace", floats(2), floats(2), 4, base=2.0)
    check("logspace", 0, 3, 4, False, 3.0, rtol=1e-5)
    low, high = np.abs(floats(3)), np.abs(floats(3))
    for endpoint in (True, False):
        check("geomspace", low, high, 5, endpoint)
        check("geomspace", low, high, 1, endpoint)
    check("geomspace", 1, 1000, 4, rtol=1e-5)
    check("geomspace", -low, -high, 4, axis=-1)
    same(td.ix_([0, 2], [True, False, True]), np.ix_([0, 2], [True, False, True]))
    same(td.mgrid[0:3, 1:7:2], np.mgrid[0:3, 1:7:2])
    same(td.ogrid[0:3, 1:7:2], np.ogrid[0:3, 1:7:2])
    same(td.mgrid[-1:1:5j], np.mgrid[-1:1:5j], 1e-6)
    same(td.mgrid[0:2, 0:1:3j], np.mgrid[0:2, 0:1:3j], 1e-6)
    same(td.r_[1:4, 0, [7, 8]], np.r_[1:4, 0, [7, 8]])
    same(td.r_["0,2", [1, 2], [3, 4]], np.r_["0,2", [1, 2], [3, 4]])
    same(td.r_["1,2,0", [1, 2], [3, 4]], np.r_["1,2,0", [1, 2], [3, 4]])
    same(td.r_[0:1:3j, 5.0], np.r_[0:1:3j, 5.0], 1e-6)
    same(td.c_[[1, 2], [3, 4]], np.c_[[1, 2], [3, 4]])
    same(td.c_[X, Y], np.c_[X, Y])
    assert td.s_[1:, ::2] == np.s_[1:, ::2] and td.index_exp[1] == np.index_exp[1]
    with pytest.raises(ShapeError, match="mgrid: takes slices"):
        td.mgrid[3]


def test_places_along_one_line() -> None:
    at = np.array([[0, 5], [23, 11]])
    check("unravel_index", at, (2, 3, 4))
    parts = np.unravel_index(at, (2, 3, 4))
    same(td.ravel_multi_index(parts, (2, 3, 4)), at)
    same(td.ravel_multi_index(parts, (2, 3, 4), order="F"),
         np.ravel_multi_index(parts, (2, 3, 4), order="F"))  # fmt: skip
    for mode in ("clip", "wrap", ("clip", "wrap", "wrap")):
        wide = tuple(part * 3 - 1 for part in parts)
        want = np.ravel_multi_index(wide, (2, 3, 4), mode=mode)
        same(td.jit(lambda *p, m=mode: td.ravel_multi_index(p, (2, 3, 4), m))(*wide), want)
    with pytest.raises(BoundsError, match="ravel_multi_index: an index is out of range"):
        td.ravel_multi_index(parts, (2, 2, 4))
    with pytest.raises(TraceError, match="only known when the program runs"):
        td.jit(lambda *p: td.ravel_multi_index(p, (2, 3, 4)))(*parts)


def test_counts() -> None:
    weights = floats(6)
    check("bincount", INTS, jit=False)
    check("bincount", INTS, weights, jit=False)
    check("bincount", INTS, minlength=9, jit=False)
    check("bincount", INTS[:0], jit=False)
    same(td.jit(lambda x: td.bincount(x, length=4))(INTS), np.bincount(INTS)[:4])
    same(td.jit(lambda x, w: td.bincount(x, w, length=8))(INTS, weights),
         np.bincount(INTS, weights, 8))  # fmt: skip
    slope = td.grad(lambda w: td.sum(td.bincount(INTS, w, length=4) * td.arange(4.0)))(weights)
    same(slope, np.where(INTS < 4, INTS, 0).astype(float))
    with pytest.raises(TraceError, match="bincount: the largest number is only known"):
        td.jit(td.bincount)(INTS)
    with pytest.raises(BoundsError, match="-1 is negative"):
        td.bincount(INTS - 1)
    edges = np.array([-1.0, -0.5, 0.0, 0.7, 2.0])
    for bins in (edges, edges[::-1].copy()):
        for right in (False, True):
            check("digitize", np.append(X, edges), bins, right, vmap=False, grad=False)


@pytest.mark.parametrize("density", [None, True])
def test_histograms(density: bool | None) -> None:
    edges = np.array([-1.0, -0.5, 0.0, 0.7, 2.0])
    weights = np.abs(floats(3, 4))
    for bins in (10, 3, edges):
        check("histogram", X, bins, None, density, vmap=False, grad=False)
        check("histogram", X, bins, None, density, weights, vmap=False, grad=False)
    check("histogram", X, 4, (-0.5, 1.0), density, vmap=False, grad=False)
    check("histogram", np.ones(3), 4, None, density, vmap=False, grad=False)
    check("histogram", edges, edges, None, density, vmap=False, grad=False)
    check("histogram2d", X[0], Y[0], 3, None, density, vmap=False, grad=False)
    check("histogram2d", X.ravel(), Y.ravel(), [edges, edges + 0.1], None, density, vmap=False,
          grad=False)  # fmt: skip
    check("histogram2d", X.ravel(), Y.ravel(), (3, 4), [[-1, 1], [-2, 2]], density,
          weights.ravel(), vmap=False, grad=False)  # fmt: skip
    counts, sides = td.histogramdd(floats(9, 3), 2, density=density)
    assert counts.shape == (2, 2, 2) and len(sides) == 3
    points = floats(20, 3)
    want = np.histogramdd(points, (2, 3, 4), density=density)
    same(td.histogramdd(points, (2, 3, 4), density=density), (want[0], list(want[1])))


def test_edges_of_histograms() -> None:
    check("histogram_bin_edges", X, 5, vmap=False, grad=False)
    same(td.histogram_bin_edges(X, "sturges"), np.histogram_bin_edges(X, "sturges"))
    with pytest.raises(TraceError, match="bins='auto'"):
        td.jit(lambda x: td.histogram(x, "auto"))(X)
    with pytest.raises(ShapeError, match="at least 1"):
        td.histogram(X, 0)


def test_orders() -> None:
    a, b = np.array([2, 1, 2, 1, 3]), np.array([1, 1, 0, 0, 1])
    same(td.lexsort((a, b)), np.lexsort((a, b)))
    same(td.jit(lambda a, b: td.lexsort((a, b)))(a, b), np.lexsort((a, b)))
    check("lexsort", floats(3, 4))
    check("lexsort", CUBE, axis=0)
    same(td.partition(X, 2), np.sort(X))
    same(td.argpartition(X, 1, None), np.argsort(X, None))
    check("sort_complex", np.array([2 + 1j, 1 + 5j, 2 - 1j, 1]))
    with pytest.raises(BoundsError, match="partition: kth 7 is out of range"):
        td.partition(X, 7)


def test_bits_in_bytes() -> None:
    bits = (floats(3, 11) > 0).astype(np.uint8)
    for axis in (None, 0, -1):
        for order in ("big", "little"):
            check("packbits", bits, axis, bitorder=order)
            check("unpackbits", np.packbits(bits, axis), axis, bitorder=order)
            for count in (3, 20, -2):
                check("unpackbits", np.packbits(bits, -1), -1, count, order)
    with pytest.raises(DtypeError, match="unpackbits: takes uint8"):
        td.unpackbits(X)
    with pytest.raises(SettingError, match="bitorder"):
        td.packbits(bits, bitorder="middle")


@pytest.mark.parametrize("name", ["union1d", "intersect1d", "setdiff1d", "setxor1d"])
def test_sets(name: str) -> None:
    check(name, INTS, np.array([1, 7, 5, 7]), jit=False)
    check(name, X, X[1:], jit=False)
    check(name, INTS, INTS[:0], jit=False)
    with pytest.raises(TraceError, match=f"{name}: how many elements"):
        td.jit(getattr(td, name))(INTS, INTS)


def test_members() -> None:
    same(td.intersect1d(INTS, np.array([5, 3]), return_indices=True),
         np.intersect1d(INTS, np.array([5, 3]), return_indices=True))  # fmt: skip
    same(td.in1d(X, X[0]), np.isin(X, X[0]).ravel())
    same(td.in1d(INTS, [1], invert=True), np.isin(INTS, [1], invert=True))


def test_equality() -> None:
    holes = np.array([1.0, np.nan])
    for a, b in ((X, X), (X, Y), (X, X[0]), (holes, holes), (INTS, INTS * 1.0), (X, X[:, :3])):
        for equal_nan in (False, True):
            check("array_equal", a, b, equal_nan, vmap=False, grad=False)
        check("array_equiv", a, b, vmap=False, grad=False)
    check("array_equiv", np.ones((3, 1)), np.ones(4), vmap=False, grad=False)
    for value in (X, X + 1j, 1j, 2, [1j], td.ones(2), td.ones(2, td.complex64)):
        want = td.asarray(value).dtype.is_complex
        assert td.iscomplexobj(value) == want and td.isrealobj(value) != want
    assert td.isscalar(3.0) and td.isscalar(np.float32(3)) and td.isscalar("a")
    assert not td.isscalar([3]) and not td.isscalar(X)
    assert td.iterable(td.ones(2)) and not td.iterable(td.ones(())) and not td.iterable(3)


def test_windows() -> None:
    for size in (0, 1, 2, 7):
        for name in ("bartlett", "blackman", "hamming", "hanning"):
            np.testing.assert_allclose(getattr(td, name)(size), getattr(np, name)(size), atol=1e-6)
        np.testing.assert_allclose(td.kaiser(size, 8.6), np.kaiser(size, 8.6), atol=1e-6)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_sliding(mode: str) -> None:
    for m, n in ((5, 3), (3, 5), (4, 4), (6, 2), (2, 7), (1, 1), (7, 4), (4, 7), (1, 3)):
        x, y = floats(m), floats(n)
        for name in ("convolve", "correlate"):
            check(name, x, y, mode, vmap=False)
            check(name, np.arange(m) - 1, np.arange(n) + 2, mode, vmap=False)
            check(name, x + 1j, y * (1 + 2j), mode, vmap=False)
    check("convolve", floats(5), floats(3), mode)
    for name in ("convolve", "correlate"):
        with pytest.raises(SettingError, match=f"{name}: mode"):
            getattr(td, name)(X[0], X[0], "half")
        with pytest.raises(ShapeError, match=f"{name}: expected vectors"):
            getattr(td, name)(X, X[0])
