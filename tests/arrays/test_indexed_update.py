"""x.at[index]: against NumPy's assignments, at once and compiled; traced places, derivatives,
batches, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import BoundsError, DtypeError, ShapeError, TraceError, UnsupportedError

WAYS = pytest.mark.parametrize("way", [lambda f: f, td.jit], ids=["eager", "compiled"])
RNG = np.random.default_rng(6)
X = RNG.standard_normal((4, 5))
NUMPY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "min": np.minimum,
    "max": np.maximum,
}  # fmt: skip
PARTS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "a row": (1, (5,)),
    "an element": ((1, -1), ()),
    "rows": (slice(1, 3), (2, 5)),
    "a block": ((slice(None), slice(1, 4)), (4, 3)),
    "repeated values": ((slice(None), slice(1, 4)), (3,)),
    "steps": ((slice(None, None, 2), slice(4, None, -2)), (2, 3)),
    "a column": ((..., 0), (4,)),
    "a new axis": ((None, 1), (1, 5)),
    "nothing": (slice(2, 2), ()),
    "no indices": (np.array([], int), ()),
    "listed rows": (np.array([3, 0]), (2, 5)),
    "listed columns": ((slice(None), np.array([[3], [0]])), (4, 2, 1)),
    "from the end": (np.array([-1, 1]), (5,)),
    "listed elements": ((np.array([0, 1, 0]), np.array([1, 1, 3])), (3,)),
    "a grid": ((np.array([[0], [2]]), np.array([1, 4])), (2, 2)),
    "columns of rows": ((slice(1, 3), np.array([0, 4])), (2, 2)),
    "a mask": (X > 0, ()),
    "a mask of rows": (X[:, 0] > 0, (5,)),
}


@WAYS
@pytest.mark.parametrize("part", PARTS)
def test_parts_are_changed_as_by_assignment(way: Any, part: str) -> None:
    key, shape = PARTS[part]
    values = RNG.standard_normal(shape)
    for name in ("set", *NUMPY):
        want = X.copy()
        want[key] = values if name == "set" else NUMPY[name](X[key], values)
        got = way(lambda x, v, name=name: getattr(x.at[key], name)(v))(
            td.asarray(X), td.asarray(values)
        )
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-14)
    assert td.asarray(X).at[key].get().tolist() == X[key].tolist()


@WAYS
def test_elements_that_are_named_twice(way: Any) -> None:
    index, values = np.array([2, 0, -2, 1]), RNG.standard_normal((4, 5))
    last, summed = X.copy(), X.copy()
    last[index] = values
    np.add.at(summed, index, values)
    for given in (lambda i: index, lambda i: i):  # known now, or traced
        got = way(lambda x, i, v, g=given: (x.at[g(i)].set(v), x.at[g(i)].add(v)))(
            td.asarray(X), td.asarray(index), td.asarray(values)
        )
        assert got[0].tolist() == last.tolist()
        np.testing.assert_allclose(np.asarray(got[1]), summed, rtol=1e-14)


@WAYS
@pytest.mark.parametrize("index", [0, 3, -4])
def test_places_that_are_data(way: Any, index: int) -> None:
    want = X.copy()
    want[index, 1:3] = 9
    got = way(lambda x, i: x.at[i, 1:3].set(9))(td.asarray(X), td.asarray(index))
    assert got.tolist() == want.tolist()


@WAYS
def test_places_out_of_range_are_errors(way: Any) -> None:
    for key in (4, -5, np.array([0, 4]), np.array([-5, 0])):
        with pytest.raises(BoundsError, match=r"out of (range|bounds)"):
            way(lambda x, i: x.at[i].set(0.0))(td.asarray(X), td.asarray(key))
        with pytest.raises(BoundsError, match=r"out of (range|bounds)"):
            way(lambda x, key=key: x.at[key].set(0.0))(td.asarray(X))


def test_loops_fill_arrays_in_place() -> None:
    def grow(a: Any) -> Any:
        return td.fori_loop(1, 50, lambda i, a: a.at[i, 3].set(a[i - 1, 3] + 1).at[i].add(1.0), a)

    story = str(td.explain(td.jit(grow, donate_argnums=0))(td.zeros((50, 100))))
    assert "dynamic_update_slice" in story and "copy" not in story
    found = np.asarray(td.jit(grow)(td.zeros((50, 100))))
    assert found[:, 3].tolist() == [2.0 * i for i in range(50)] and (found[1:, 4] == 1).all()


@WAYS
def test_derivatives_and_batches(way: Any) -> None:
    index = td.asarray([2, 0, 2])
    x, v = td.asarray(X), td.asarray(RNG.standard_normal((3, 5)))
    by_x, by_v = way(td.grad(lambda x, v: td.sum(x.at[index].set(v) ** 2), argnums=(0, 1)))(x, v)
    np.testing.assert_allclose(np.asarray(by_x), 2 * X * np.array([[0], [1], [0], [1]]))
    np.testing.assert_allclose(np.asarray(by_v), 2 * np.asarray(v) * np.array([[0], [1], [1]]))
    row = way(td.grad(lambda x, v: td.sum(x.at[1].multiply(v) ** 2), argnums=1))(x, v[0])
    np.testing.assert_allclose(np.asarray(row), 2 * X[1] ** 2 * np.asarray(v)[0])
    places = td.asarray([0, 4, -1, 2])
    rows = way(td.vmap(lambda x, i, v: x.at[i].set(v)))(x, places, td.arange(4, dtype=td.float64))
    want = X.copy()
    want[np.arange(4), np.asarray(places)] = np.arange(4)
    assert rows.tolist() == want.tolist()


@pytest.mark.parametrize("key", [0, -1, slice(1, None), slice(None, -1), "traced"])
def test_axes_of_any_size(key: Any) -> None:
    def change(x: Any, i: Any) -> Any:
        return x.at[i if key == "traced" else key].set(9.0)

    run = td.jit(change, dims=({0: td.Dim("n", max=16)}, None))
    slope = td.jit(
        td.grad(lambda x, i: td.sum(change(x, i) * x)), dims=({0: td.Dim("n", max=16)}, None)
    )
    for count in (2, 5):
        x, want = np.arange(count, dtype=np.float32) + 1, np.arange(count, dtype=np.float32) + 1
        want[1 if key == "traced" else key] = 9
        assert run(x, np.int32(1)).tolist() == want.tolist()
        assert slope(x, np.int32(1)).tolist() == (want + np.where(want == 9, 0, x)).tolist()


def test_any_dtype_to_the_bit() -> None:
    z = td.asarray([1 + 1j, 2, 3])
    assert z.at[td.asarray([0, 2])].set(td.asarray([-0.0, 1j])).tolist() == [0, 2, 1j]
    assert np.signbit(np.asarray(td.ones(3).at[td.asarray([1])].set(-0.0)))[1]
    assert td.asarray([True, False]).at[1].set(True).tolist() == [True, True]
    assert td.asarray([1, 2]).at[0].apply(lambda e: e * 10).tolist() == [10, 2]
    assert td.asarray([2.0, 3.0]).at[1].power(2).tolist() == [2, 9]


def test_values_are_converted_with_a_warning_where_promotion_would_not() -> None:
    x, i = td.ones(3), td.asarray([1, 2])
    with pytest.warns(UserWarning, match=r"at\[...\].set: a float is converted to") as told:
        assert i.at[0].set(2.7).tolist() == [2, 2]
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match=r"at\[...\].add: f64 is converted to"):
        assert x.at[0].add(td.asarray(1.0, dtype=td.float64)).dtype is td.float32
    with pytest.warns(UserWarning, match="converted"):
        jitted = td.jit(lambda i, x: i.at[0].set(x[0]))(i, x * 3.9)
    assert jitted.tolist() == [3, 2] and jitted.dtype is td.int32
    half = td.ones(2, dtype=td.bfloat16)  # without a warning, which would be an error here
    for value in (2.5, np.float64(2.5), np.float32(2.5), 2, True, td.ones(2, td.int8)):
        assert half.at[:].set(value).dtype is td.bfloat16


def test_errors() -> None:
    x = td.ones(3)
    with pytest.raises(DtypeError, match=r"at\[...\].set: a str is no value for f32\[3\]"):
        x.at[0].set("1")
    with pytest.raises(
        ShapeError, match=r"at\[...\].set: values f32\[3\] for a part of shape \[2\]"
    ):
        x.at[:2].set(x)
    with pytest.raises(ShapeError, match=r"a mask bool\[2\] for f32\[3,2\]"):
        td.ones((3, 2)).at[td.asarray([True, False])].set(1.0)
    with pytest.raises(BoundsError, match="2 indices for"):
        x.at[0, 0].set(1.0)
    with pytest.raises(UnsupportedError, match=r"axis 0 of .* is symbolic"):
        td.jit(lambda x: x.at[td.asarray([0])].set(1.0), dims=({0: td.Dim("n", max=9)},))(x)


@WAYS
@pytest.mark.parametrize("method", ["multiply", "divide", "min", "max"])
def test_elements_named_several_times_take_all_values(way: Any, method: str) -> None:
    index, values = np.array([0, 2, 2, -4, 1]), RNG.uniform(0.5, 2, (5, 5))
    want = np.abs(X)
    NUMPY[method].at(want, index, values)
    change = way(lambda x, i, v: getattr(x.at[i], method)(v))
    np.testing.assert_allclose(
        np.asarray(change(td.asarray(np.abs(X)), index, values)), want, rtol=1e-14
    )
    columns = np.abs(X).T.copy()
    NUMPY[method].at(columns, index, values[:, :4])
    by_axis = way(lambda x, v: getattr(x.at[:, index], method)(v))
    np.testing.assert_allclose(
        np.asarray(by_axis(td.asarray(np.abs(X)), values[:, :4].T)), columns.T, rtol=1e-14
    )


@WAYS
def test_derivatives_where_elements_are_named_several_times(way: Any) -> None:
    index = np.array([1, 1, 0])
    x, v = np.array([1.0, 2.0, 3.0]), np.array([2.0, 5.0, 4.0])
    by_x, by_v = way(td.grad(lambda x, v, i: td.sum(x.at[i].multiply(v)), argnums=(0, 1)))(
        x, v, index
    )
    assert by_x.tolist() == [4, 10, 1] and by_v.tolist() == [10, 4, 1]
    by_x, by_v = way(td.grad(lambda x, v, i: td.sum(x.at[i].max(v)), argnums=(0, 1)))(x, v, index)
    assert by_x.tolist() == [0, 0, 1] and by_v.tolist() == [0, 1, 1]
    rows = way(td.vmap(lambda i, v: td.zeros(3, dtype=td.float64).at[i].max(v)))(
        np.array([[0, 0], [1, 2]]), v[:2] * np.ones((2, 1))
    )
    assert rows.tolist() == [[5, 0, 0], [0, 2, 5]]


def test_out_of_range_where_elements_are_named_several_times() -> None:
    with pytest.raises(BoundsError, match=r"index 9 is out of range(.|\n)*test_indexed_update\.py"):
        td.jit(lambda x, i: x.at[i].max(1.0))(np.zeros(3), np.array([0, 9]))
    with pytest.raises(BoundsError, match=r"index 9 is out of range(.|\n)*test_indexed_update\.py"):
        td.zeros(3).at[np.array([9, 9])].max(1.0)


WIDE = RNG.standard_normal((4, 5, 3))
AWAY = np.array([0, 7, -1, -9, 3]), np.array([1, 2, 9, 0, -5]), np.array([2, 1, 0, 0, -7])
MODED: dict[str, Any] = {
    "a row": lambda i, j, k: i[1],
    "a row that is there": lambda i, j, k: i[2],
    "a known row": lambda i, j, k: -9,
    "an element": lambda i, j, k: (i[0], j[2], 1),
    "a part of a row": lambda i, j, k: (i[1], slice(1, 4)),
    "rows": lambda i, j, k: i,
    "columns": lambda i, j, k: (slice(1, 3), j),
    "elements": lambda i, j, k: (i, j, k),
    "pairs": lambda i, j, k: (slice(None), j, k),
    "pairs apart": lambda i, j, k: (i, slice(None, None, 2), k),
    "beside a number": lambda i, j, k: (i, 9),
    "a grid": lambda i, j, k: (i[:, None], j),
    "a new axis": lambda i, j, k: (None, i, None, j),
}


def by_assignment(key: tuple[Any, ...], mode: str, name: str, value: float) -> np.ndarray:
    """One element after the other, in Python."""
    flat = np.arange(WIDE.size).reshape(WIDE.shape)
    padded = np.pad(flat, 9, constant_values=-1)  # out of range is -1
    shifted, axis = [], 0
    for item in key:
        if item is None or isinstance(item, slice):
            start, stop, step = (slice(None) if item is None else item).indices(WIDE.shape[axis])
            shifted.append(item if item is None else slice(start + 9, stop + 9, step))
        else:
            at = np.where(np.less(item, 0), np.add(item, WIDE.shape[axis]), item)
            shifted.append(np.clip(at, 0, WIDE.shape[axis] - 1) + 9 if mode == "clip" else at + 9)
        axis += item is not None
    shifted += [slice(9, n + 9) for n in WIDE.shape[axis:]]
    picked = padded[tuple(shifted)]
    if name == "get":
        return np.where(picked >= 0, WIDE.ravel()[picked], np.nan)
    made = WIDE.ravel().copy()
    for place in picked.ravel():
        if place >= 0:
            made[place] = {
                "set": value,
                "add": made[place] + value,
                "max": max(made[place], value),
            }[name]
    return made.reshape(WIDE.shape)


@WAYS
@pytest.mark.parametrize("mode", ["drop", "clip"])
@pytest.mark.parametrize("part", MODED)
def test_what_is_out_of_range_in_every_mode(way: Any, mode: str, part: str) -> None:
    known = MODED[part](*AWAY)
    known = known if isinstance(known, tuple) else (known,)

    def all_ways(x: Any, *index: Any) -> list[Any]:
        place = x.at[MODED[part](*index)]
        read = "fill" if mode == "drop" else mode  # one for what is read, one for what is written
        return [
            place.get(mode=read),
            *(getattr(place, name)(0.5, mode=mode) for name in ("set", "add", "max")),
        ]

    found = way(all_ways)(td.asarray(WIDE), *map(td.asarray, AWAY))
    for name, got in zip(("get", "set", "add", "max"), found, strict=True):
        np.testing.assert_allclose(
            np.asarray(got), by_assignment(known, mode, name, 0.5), rtol=1e-14, err_msg=name
        )


@WAYS
def test_modes_are_differentiated_batched_and_kept_in_loops(way: Any) -> None:
    x, index = td.asarray(X[0]), td.asarray([4, 9, -7, 0])

    def loss(x: Any, v: Any) -> Any:
        return td.sum(x.at[index].set(v, mode="drop") ** 2) + td.sum(
            x.at[index].get(mode="fill", fill_value=0.0)
        )

    by_x, by_v = way(td.grad(loss, argnums=(0, 1)))(
        x, td.asarray([1.0, 2.0, 3.0, 4.0]).astype(td.float64)
    )
    np.testing.assert_allclose(np.asarray(by_x), [1, *(2 * X[0, 1:4]), 1])
    assert by_v.tolist() == [2, 0, 0, 8]
    rows = way(td.vmap(lambda row, i: row.at[i].add(1.0, mode="drop")))(X, np.array([0, 9, -1, -7]))
    np.testing.assert_array_equal(
        np.asarray(rows), X + np.array([[1, 0, 0, 0, 0], [0] * 5, [0, 0, 0, 0, 1], [0] * 5])
    )
    filled = way(lambda x: td.fori_loop(0, 8, lambda i, b: b.at[i].set(i, mode="drop"), x))(
        np.zeros(5, np.int32)
    )
    assert filled.tolist() == [0, 1, 2, 3, 4]


def test_what_stands_for_elements_that_are_not_there() -> None:
    for dtype, want in [("int8", -128), ("uint8", 255), ("bool", True), ("float32", np.nan)]:
        got = td.ones(3, dtype=getattr(td, dtype)).at[td.asarray([5])].get(mode="fill")
        np.testing.assert_array_equal(np.asarray(got), [want])
    assert td.arange(3).at[5].get(mode="fill", fill_value=7).item() == 7
    assert td.arange(3).at[td.asarray([1, 5])].apply(lambda v: v * 10, mode="drop").tolist() == [
        0,
        10,
        2,
    ]


def test_a_promise_is_checked_and_settings_are_named() -> None:
    x = td.arange(3)
    assert x.at[1].set(
        5, mode="promise_in_bounds", indices_are_sorted=True, unique_indices=True
    ).tolist() == [0, 5, 2]
    with pytest.raises(BoundsError, match="7 is out of range"):
        x.at[7].set(5, mode="promise_in_bounds")
    with pytest.raises(
        TraceError, match=r"at\[...\].add: mode is 'wrap'(.|\n)*'clip', 'drop', 'fill'"
    ):
        x.at[7].add(5, mode="wrap")
    with pytest.raises(
        TraceError, match=r"there is no setting 'modes'(.|\n)*it takes mode, indices_are_sorted"
    ):
        x.at[7].max(5, modes="clip")


# -- one after the other ---------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "complex64"]
)
def test_sums_are_made_one_after_the_other(way: Any, dtype: str) -> None:
    kind = td.asarray(0, dtype=dtype).dtype.np
    x = np.array([-0.0, 2048, 1, -0.0, 3]).astype(kind)
    index, values = np.array([1, 1, 1, 4, -4, 2]), np.array([1, 1, 1, 0.1, 1, -1]).astype(kind)
    want = x.copy()
    with np.errstate(all="ignore"):
        np.add.at(want, index, values)
    for given in (lambda i: index, lambda i: i):
        change = way(lambda x, i, v, g=given: x.at[g(i)].add(v))
        got = np.asarray(change(*map(td.asarray, (x, index, values))))
        assert got.tobytes() == want.tobytes()


@WAYS
def test_sums_in_a_batch_and_for_any_number_of_threads(way: Any) -> None:
    rng = np.random.default_rng(1)
    x, v = (
        rng.standard_normal((3, 7, 40)).astype(np.float32),
        rng.standard_normal((3, 500, 40)).astype(np.float32),
    )
    index = rng.integers(-7, 7, (3, 500))
    shared, own = x.copy(), x.copy()
    for row in range(3):
        np.add.at(shared[row], index[0], v[row])
        np.add.at(own[row], index[row], v[row])
    one = td.asarray(index[0])

    def both(x: Any, i: Any, v: Any) -> Any:
        return td.vmap(lambda x, v: x.at[one].add(v))(x, v), td.vmap(
            lambda x, i, v: x.at[i].add(v)
        )(x, i, v)

    got = way(both)(td.asarray(x), td.asarray(index), td.asarray(v))
    assert (
        np.asarray(got[0]).tobytes() == shared.tobytes()
        and np.asarray(got[1]).tobytes() == own.tobytes()
    )


@WAYS
def test_derivatives_of_sums(way: Any) -> None:
    index, x, v = td.asarray([2, 0, 2]), td.asarray(X), td.asarray(RNG.standard_normal((3, 5)))
    after = np.asarray(x.at[index].add(v))
    by_x, by_v = way(td.grad(lambda x, v: td.sum(x.at[index].add(v) ** 2), argnums=(0, 1)))(x, v)
    np.testing.assert_allclose(np.asarray(by_x), 2 * after)
    np.testing.assert_allclose(np.asarray(by_v), 2 * after[np.array([2, 0, 2])])
    _, change = way(lambda x, v: td.jvp(lambda v: x.at[index].add(v), (v,), (td.ones_like(v),)))(
        x, v
    )
    assert change.tolist() == [[1] * 5, [0] * 5, [2] * 5, [0] * 5]


@WAYS
def test_a_function_is_applied_as_often_as_an_element_is_named(way: Any) -> None:
    want = np.array([1.0, 2.0, 3.0])
    for key in (np.array([0, 2, 0]), np.array([-3, -3, 0])):
        expected = want.copy()
        for place in key:
            expected[place] *= 10
        got = way(lambda x, i: x.at[i].apply(lambda e: e * 10))(td.asarray(want), td.asarray(key))
        assert got.tolist() == expected.tolist()
    dropped = way(lambda x, i: x.at[i].apply(lambda e: e * 10, mode="drop"))(
        td.asarray(want), td.asarray([0, 9, 0])
    )
    assert dropped.tolist() == [100, 2, 3]


@WAYS
def test_arrays_and_masks_without_axes(way: Any) -> None:
    x = td.asarray(2.0)
    for key in (..., (), None, (None, ...), True, np.array(True), td.asarray(True), (..., True)):
        found = way(
            lambda x, key=key: (x.at[key].set(5.0), x.at[key].add(1.0), x.at[key].max(9.0))
        )(x)
        assert [float(f) for f in found] == [5, 3, 9] and {f.shape for f in found} == {()}
    for key in (False, np.array(False), (..., False)):
        assert float(way(lambda x, key=key: x.at[key].add(1.0))(x)) == 2
    picked = td.jit(lambda x, m: x.at[m].set(7.0))
    assert picked(td.zeros((2, 2)), td.asarray(True)).tolist() == [[7, 7], [7, 7]]
    assert picked(td.zeros((2, 2)), td.asarray(False)).tolist() == [[0, 0], [0, 0]]


def test_numbers_are_taken_from_unsigned_integers() -> None:
    assert td.asarray([5, 6], dtype=td.uint8).at[0].subtract(1).tolist() == [4, 6]


def test_a_traced_number_along_an_axis_of_size_1_is_checked() -> None:
    change, read = td.jit(lambda x, i: x.at[:, i].add(1.0)), td.jit(lambda x, i, j: x[i, j])
    x = td.zeros((3, 1))
    for bad in (1, -2):
        with pytest.raises(BoundsError, match="out of range"):
            change(x, td.asarray(bad))
        with pytest.raises(BoundsError, match="out of range"):
            read(x, td.asarray(0), td.asarray(bad))
    assert change(x, td.asarray(-1)).tolist() == [[1], [1], [1]]


@pytest.mark.parametrize("key", [..., (), np.True_])
def test_what_is_set_in_an_array_without_axes_is_no_longer_its_owners(key: Any) -> None:
    owned = np.array(1.0, np.float32)
    made = td.asarray(np.float32(5)).at[key].set(owned)
    owned[...] = 100
    assert float(made) == 1.0
