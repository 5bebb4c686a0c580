"""The public functions against NumPy, eager and traced, on ranks 0 to 4 with sizes 0 and 1 among
them."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tetrad as td
from tests.compiler.engine import jit
from tetrad.core.dtypes import as_dtype
from tetrad.core.errors import CopyError, ShapeError, TraceError, UnsupportedError
from tetrad.core.op import REGISTRY

SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
WITH_AXES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)
NUMBERS = st.integers(-8, 8)  # sums and products of these are exact in f32
DTYPES = st.sampled_from([np.float32, np.float64, np.int32, np.int64])


def arrays(shapes: Any = SHAPES, dtypes: Any = DTYPES) -> st.SearchStrategy[np.ndarray]:
    pairs = st.tuples(shapes if isinstance(shapes, st.SearchStrategy) else st.just(shapes), dtypes)
    return pairs.flatmap(lambda p: hnp.arrays(p[1], p[0], elements=NUMBERS.map(p[1])))


def check(function: Callable[..., Any], want: Any, *args: Any, dtype: bool = True) -> None:
    """Eager and traced results are NumPy's."""
    for got in (function(*args), jit(function)(*args)):
        expected = want if isinstance(want, list | tuple) else [want]
        results = got if isinstance(got, list | tuple) else [got]
        assert len(results) == len(expected)
        for one, other in zip(results, expected, strict=True):
            assert one.shape == np.shape(other)
            assert not dtype or one.dtype.np == np.asarray(other).dtype
            np.testing.assert_array_equal(one, other)


# elementwise

NUMPY_NAMES = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": None,
}
ELEMENTWISE = [
    name
    for name in td.functions.elementwise_names()
    if NUMPY_NAMES.get(name, getattr(np, name, None))
]
UNARY_RANGE = {
    "acosh": (1, 9),
    "log": (1, 9),
    "log2": (1, 9),
    "log10": (1, 9),
    "sqrt": (0, 9),
    "rsqrt": (1, 9),
}


def operand_dtype(op: Any) -> Any:
    return {"bool": np.bool_, "float": np.float64}.get(
        op.promote, np.float64 if td.float64 in op.dtypes else np.int32
    )


@pytest.mark.parametrize("name", ELEMENTWISE)
@settings(max_examples=15)
@given(st.data())
def test_elementwise_broadcasts_as_numpy(name: str, data: st.DataObject) -> None:
    op = REGISTRY[name]
    count = len(inspect.signature(op.reference).parameters)
    drawn = data.draw(
        hnp.mutually_broadcastable_shapes(num_shapes=count, max_dims=3, min_side=0, max_side=3)
    )
    shapes = drawn.input_shapes
    low, high = UNARY_RANGE.get(name, (0, 1) if name in ("asin", "acos", "atanh") else (1, 6))
    rng = np.random.default_rng(len(shapes))
    dtype = (
        np.float32 if td.float64 not in op.dtypes and op.promote == "float" else operand_dtype(op)
    )
    args = [np.asarray(rng.integers(low, high, shape), dtype) for shape in shapes]
    if name == "where":
        args[0] = args[0] > 3
    with np.errstate(all="ignore"):
        want = (NUMPY_NAMES.get(name) or getattr(np, name))(*args)
    for got in (getattr(td, name)(*args), jit(getattr(td, name))(*args)):
        assert got.shape == want.shape and got.dtype.np == want.dtype
        np.testing.assert_allclose(
            np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=1e-6, atol=1e-7
        )


def test_every_public_elementwise_op_is_a_function_with_its_docs() -> None:
    for name in td.functions.elementwise_names():
        function = getattr(td, name)
        assert function.__doc__ and function.__name__ == name and name in dir(td)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no function 'nonsense'"):
        td.nonsense  # noqa: B018


@pytest.mark.parametrize(
    ("left", "right", "want"),
    [
        (np.array(1, np.int8), 2, td.int8), (np.int8([1]), np.int64(2), td.int8),
        (np.float16([1]), np.float32(2), td.float16), (np.int32([1]), np.float64(2), td.float32),
        (np.int8(1), 2, td.int32), (np.float64(1), np.float32(2), td.float32),
        (np.float16([1]), 2.5, td.float16), (np.int32([1]), 2.5, td.float32),
        (np.int32([1]), np.float16([1]), td.float16), (np.uint8([1]), np.int32([1]), td.int32),
        (np.bool_([True]), 1, td.int32), (np.float32([1]), np.float64(2), td.float32),
    ],
)  # fmt: skip
def test_promotion_of_operands(left: Any, right: Any, want: Any) -> None:
    assert td.add(left, right).dtype is want
    assert td.add(right, left).dtype is want
    assert jit(td.add)(left, right).dtype is want
    assert td.result_type(left, right) is want


def test_division_of_integers_gives_floats() -> None:
    assert (td.asarray([7]) / 2).tolist() == [3.5]
    assert (td.asarray([7, -7]) // 2).tolist() == [3, -4]
    assert (td.asarray([7, -7]) % 4).tolist() == [3, 1]


# creation


def test_defaults() -> None:
    assert td.asarray([1, 2]).dtype is td.int32 and td.asarray([1.0]).dtype is td.float32
    assert td.asarray(np.zeros(1)).dtype is td.float64 and td.asarray([True]).dtype is td.bool
    assert td.asarray([1 << 40]).dtype is td.int64 and td.zeros(1).dtype is td.float32
    assert (
        td.asarray([]).dtype is td.float32
        and td.arange(3).dtype is td.int32
        and td.arange(3.0).dtype is td.float32
    )
    assert td.asarray([1, 2], dtype="float16").dtype is td.float16
    assert td.asarray(np.array([1.5, 2.5]), dtype=td.int32).tolist() == [1, 2]


def test_asarray_of_arrays_in_lists() -> None:
    check(lambda x: td.asarray([x[0], x[1], 3.0]), np.float32([1, 2, 3]), np.float32([1, 2]))
    check(
        lambda x: td.asarray([[x[0], 1.0], [x[1], 2.0]]),
        np.float32([[1, 1], [2, 2]]),
        np.float32([1, 2]),
    )


@given(SHAPES, st.sampled_from(["float32", "int64", "bool", "bfloat16"]))
def test_filled(shape: tuple[int, ...], dtype: str) -> None:
    np_dtype = as_dtype(dtype).np
    check(lambda: td.zeros(shape, dtype=dtype), np.zeros(shape, np_dtype))
    check(lambda: td.ones(shape, dtype=dtype), np.ones(shape, np_dtype))
    check(lambda: td.full(shape, 1, dtype=dtype), np.full(shape, 1, np_dtype))
    x = np.zeros(shape, np_dtype)
    check(td.zeros_like, x, x)
    check(td.ones_like, np.ones_like(x), x)
    check(lambda x: td.full_like(x, 1), np.full_like(x, 1), x)
    check(lambda: td.empty(shape, dtype=dtype), x)
    check(td.empty_like, x, x)


@given(st.integers(-9, 9), st.integers(-9, 9), st.sampled_from([-3, -1, 1, 2]))
def test_arange(start: int, stop: int, step: int) -> None:
    check(lambda: td.arange(start, stop, step), np.arange(start, stop, step, dtype=np.int32))
    check(
        lambda: td.arange(start, stop, step / 2),
        np.arange(start, stop, step / 2).astype(np.float32),
    )


@given(st.integers(0, 4), st.integers(0, 4), st.integers(-5, 5))
def test_matrices(rows: int, columns: int, k: int) -> None:
    check(lambda: td.eye(rows, columns, k=k), np.eye(rows, columns, k, np.float32))
    x = np.arange(2 * rows * columns).reshape(2, rows, columns)
    check(lambda x: td.tril(x, k=k), np.tril(x, k), x)
    check(lambda x: td.triu(x, k), np.triu(x, k), x)


def test_linspace_and_meshgrid() -> None:
    check(lambda: td.linspace(0, 2, 5), np.linspace(0, 2, 5, dtype=np.float32))
    check(
        lambda: td.linspace(0, 2, 4, endpoint=False), np.linspace(0, 2, 4, False, dtype=np.float32)
    )
    xs = [np.arange(2), np.arange(3), np.arange(4)]
    for indexing in ("xy", "ij"):
        check(
            lambda *xs, how=indexing: td.meshgrid(*xs, indexing=how),
            np.meshgrid(*xs, indexing=indexing),
            *xs,
        )


# manipulation


@given(arrays(WITH_AXES), st.data())
def test_axes(x: np.ndarray, data: st.DataObject) -> None:
    perm = tuple(data.draw(st.permutations(range(x.ndim))))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    other = data.draw(st.integers(-x.ndim, x.ndim - 1))
    check(lambda x: td.permute_dims(x, perm), np.transpose(x, perm), x)
    check(td.transpose, np.transpose(x), x)
    check(lambda x: td.moveaxis(x, axis, other), np.moveaxis(x, axis, other), x)
    check(lambda x: td.expand_dims(x, axis=axis), np.expand_dims(x, axis), x)
    check(lambda x: td.squeeze(td.expand_dims(x, axis=axis), axis), x, x)
    check(lambda x: td.squeeze(x), np.squeeze(x), x)
    check(lambda x: td.flip(x, axis=axis), np.flip(x, axis), x)
    check(lambda x: td.flip(x), np.flip(x), x)
    check(
        lambda x: td.unstack(x, axis=axis), [np.take(x, i, axis) for i in range(x.shape[axis])], x
    )
    if x.ndim > 1:
        check(td.matrix_transpose, np.swapaxes(x, -1, -2), x)


@given(arrays(WITH_AXES), st.data())
def test_repeating(x: np.ndarray, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    count = data.draw(st.integers(0, 3))
    times = tuple(data.draw(st.lists(st.integers(0, 2), max_size=4)))
    shift = data.draw(st.integers(-5, 5))
    check(lambda x: td.repeat(x, count, axis=axis), np.repeat(x, count, axis), x)
    check(lambda x: td.repeat(x, count), np.repeat(x, count), x)
    check(lambda x: td.tile(x, times), np.tile(x, times), x)
    check(lambda x: td.roll(x, shift, axis=axis), np.roll(x, shift, axis), x)
    check(lambda x: td.roll(x, shift), np.roll(x, shift), x)
    widths = [tuple(data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))) for _ in x.shape]
    check(lambda x: td.pad(x, widths, value=3), np.pad(x, widths, constant_values=3), x)


@given(arrays(), st.data())
def test_reshape(x: np.ndarray, data: st.DataObject) -> None:
    check(lambda x: td.reshape(x, (-1,)), x.reshape(-1), x)
    sizes = (*x.shape[::-1], 1)
    check(lambda x: td.reshape(x, sizes), x.reshape(sizes), x)
    if x.size:
        at = data.draw(st.integers(0, len(sizes) - 1))
        open_sizes = tuple(-1 if i == at else n for i, n in enumerate(sizes))
        check(lambda x: td.reshape(x, open_sizes), x.reshape(open_sizes), x)


@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, min_side=0, max_side=3))
def test_broadcasting(shapes: hnp.BroadcastableShapes) -> None:
    a, b = (np.arange(np.prod(s), dtype=np.float32).reshape(s) for s in shapes.input_shapes)
    check(td.broadcast_arrays, list(np.broadcast_arrays(a, b)), a, b)
    check(
        lambda a: td.broadcast_to(a, shapes.result_shape),
        np.broadcast_to(a, shapes.result_shape),
        a,
    )


@given(arrays(WITH_AXES), st.data())
def test_joining(x: np.ndarray, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    check(lambda x: td.concat([x, x + 1, x], axis=axis), np.concatenate([x, x + 1, x], axis), x)
    check(lambda x: td.concat([x, x], axis=None), np.concatenate([x, x], None), x)
    check(lambda x: td.stack([x, x + 1], axis=axis), np.stack([x, x + 1], axis), x)


# statistics


@st.composite
def array_and_axis(draw: st.DrawFn, min_side: int = 0) -> tuple[np.ndarray, Any]:
    x = draw(arrays(hnp.array_shapes(min_dims=0, max_dims=4, min_side=min_side, max_side=4)))
    axes = st.none()
    if x.ndim:
        one = st.integers(-x.ndim, x.ndim - 1)
        axes |= one | st.sets(st.integers(0, x.ndim - 1), min_size=1).map(lambda s: tuple(s))
    return x, draw(axes)


@given(array_and_axis(), st.booleans())
def test_sums(case: tuple[np.ndarray, Any], keepdims: bool) -> None:
    x, axis = case
    settings = {"axis": axis, "keepdims": keepdims}
    check(lambda x: td.sum(x, **settings), np.sum(x, dtype=x.dtype, **settings), x)
    check(lambda x: td.any(x, **settings), np.any(x, **settings), x)
    check(lambda x: td.all(x, **settings), np.all(x, **settings), x)
    check(
        lambda x: td.count_nonzero(x, **settings), np.count_nonzero(x, **settings), x, dtype=False
    )
    check(
        lambda x: td.prod(td.remainder(x, 3), **settings),
        np.prod(x % 3, dtype=x.dtype, **settings),
        x,
    )


@given(array_and_axis(min_side=1), st.booleans())
def test_extremes_and_means(case: tuple[np.ndarray, Any], keepdims: bool) -> None:
    x, axis = case
    settings = {"axis": axis, "keepdims": keepdims}
    check(lambda x: td.max(x, **settings), np.max(x, **settings), x)
    check(lambda x: td.min(x, **settings), np.min(x, **settings), x)
    wide = x.astype(np.float64)
    for name, want in (
        ("mean", wide.mean(**settings)),
        ("var", wide.var(**settings)),
        ("std", wide.std(**settings)),
    ):
        got = getattr(td, name)(x, **settings)
        assert got.shape == want.shape and got.dtype.is_float
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


@given(arrays(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)), st.data())
def test_searching_and_running_sums(x: np.ndarray, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    for name in ("argmax", "argmin"):
        numpy = getattr(np, name)
        check(lambda x, n=name: getattr(td, n)(x, axis=axis), numpy(x, axis), x, dtype=False)
        kept = numpy(x, axis, keepdims=True)
        check(lambda x, n=name: getattr(td, n)(x, axis=axis, keepdims=True), kept, x, dtype=False)
        check(lambda x, n=name: getattr(td, n)(x), numpy(x), x, dtype=False)
    check(lambda x: td.cumulative_sum(x, axis=axis), np.cumsum(x, axis, dtype=x.dtype), x)
    initial = np.cumulative_sum(x, axis=axis, dtype=x.dtype, include_initial=True)
    check(lambda x: td.cumulative_sum(x, axis=axis, include_initial=True), initial, x)
    check(lambda x: td.cumulative_prod(x, axis=axis), np.cumprod(x, axis, dtype=x.dtype), x)
    initial = np.cumulative_prod(x, axis=axis, dtype=x.dtype, include_initial=True)
    check(lambda x: td.cumulative_prod(x, axis=axis, include_initial=True), initial, x)
    check(lambda x: td.diff(x, axis=axis, n=2), np.diff(x, 2, axis), x)
    two = np.ones([2 if i == axis % x.ndim else n for i, n in enumerate(x.shape)], x.dtype)
    beside = np.diff(x, axis=axis, prepend=two, append=x.dtype.type(3))
    check(lambda x, two: td.diff(x, axis=axis, prepend=two, append=3), beside, x, two)
    order = np.argsort(x, axis)
    check(
        lambda x, i: td.take_along_axis(x, i, axis=axis),
        np.take_along_axis(x, order, axis),
        x,
        order,
    )


def test_small_integers_are_summed_without_wrapping() -> None:
    x = np.full(300, 250, np.uint8)
    assert int(td.sum(x)) == 75000 and td.sum(x).dtype is td.uint32
    assert int(td.sum(np.ones(300, bool))) == 300
    assert td.sum(x, dtype=td.uint8).dtype is td.uint8


MASKED = ("sum", "prod", "mean", "var", "std", "any", "all")


# NumPy's, of a mask that leaves nothing of a column
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)])
def test_statistics_of_the_elements_of_a_mask(name: str, axis: Any) -> None:
    x, mask = np.arange(12.0).reshape(3, 4), np.array([True, False, True, True])
    ours, numpys = getattr(td, name), getattr(np, name)
    for keepdims in (False, True):
        for where in (mask, x % 3 > 0):
            want = numpys(x, axis=axis, keepdims=keepdims, where=where)
            got = [ours(x, axis=axis, keepdims=keepdims, where=where)]
            got.append(
                td.jit(lambda x, m, k=keepdims: getattr(x, name)(axis, keepdims=k, where=m))(
                    x, where
                )
            )
            for one in got:
                assert one.shape == want.shape
                np.testing.assert_allclose(one, want, rtol=1e-14)


def test_what_a_mask_leaves_out_has_no_part_in_derivatives() -> None:
    x, mask = np.array([1.0, np.inf, 3.0, np.nan]), np.array([True, False, True, False])
    for name, want in {"sum": [1, 0, 1, 0], "mean": [0.5, 0, 0.5, 0], "var": [-1, 0, 1, 0]}.items():
        for way in (lambda f: f, td.jit):
            slope = way(td.grad(lambda x, name=name: getattr(x, name)(where=mask)))(td.asarray(x))
            np.testing.assert_allclose(slope, want)
    assert math.isnan(td.mean(td.ones(2), where=np.zeros(2, bool)))


def test_what_statistics_begin_with() -> None:
    x, mask = np.array([[1.0, 5.0], [7.0, 3.0]]), np.array([[True, False], [False, False]])
    for name, initial in (("max", -2.0), ("min", 9.0), ("sum", 4.0), ("prod", 4.0)):
        function, numpys = getattr(td, name), getattr(np, name)
        for axis in (None, 0, 1):
            want = numpys(x, axis=axis, initial=initial, where=mask)
            check(
                lambda x, m, f=function, a=axis, i=initial: f(x, axis=a, initial=i, where=m),
                want,
                x,
                mask,
            )
            whole = numpys(x, axis=axis, initial=initial)
            check(lambda x, f=function, a=axis, i=initial: f(x, axis=a, initial=i), whole, x)
    assert td.max(td.zeros((0, 3)), axis=0, initial=2, keepdims=True).tolist() == [[2, 2, 2]]
    with pytest.raises(TraceError, match=r"max: where may leave no element(.|\n)*initial="):
        td.max(x, where=mask)
    with pytest.raises(
        ShapeError, match=r"sum: where is bool\[2,3\], which does not broadcast to f32\[3\]"
    ):
        td.sum(td.zeros(3), where=np.ones((2, 3), bool))


def test_half_precision_statistics_are_computed_wide() -> None:
    x = np.full(5000, 100, np.float16)
    assert float(td.mean(x)) == 100 and td.mean(x).dtype is td.float16 and float(td.std(x)) == 0


def test_var_with_correction() -> None:
    x = np.float64([1, 2, 4])
    np.testing.assert_allclose(float(td.var(x, correction=1)), np.var(x, ddof=1))
    assert np.isnan(float(td.mean(np.float32([]))))


def test_nonzero_and_clip() -> None:
    x = np.array([[0, 3], [5, 0]])
    for got, want in zip(td.nonzero(x), np.nonzero(x), strict=True):
        np.testing.assert_array_equal(got, want)
    check(lambda x: td.clip(x, 1, 4), np.clip(x, 1, 4), x)
    check(lambda x: td.clip(x, max=4), np.minimum(x, 4), x)


# gathering and scattering


@given(arrays(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)), st.data())
def test_take(x: np.ndarray, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    n = x.shape[axis]
    indices = data.draw(hnp.arrays(np.int32, SHAPES, elements=st.integers(-n, n - 1)))
    check(lambda x, i: td.take(x, i, axis=axis), np.take(x, indices, axis), x, indices)


def test_scatter_add() -> None:
    updates, indices = np.arange(6.0).reshape(3, 2), np.array([1, 0, 1])
    want = np.zeros((4, 2))
    np.add.at(want, indices, updates)
    check(lambda u, i: td.scatter_add(u, i, 4), want, updates, indices)


# linear algebra

MATMUL = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3),
    (3,)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((6, 1, 2, 3), (5, 3, 4)), ((2, 3), (5, 3, 4)),
    ((0, 3), (3, 4)), ((2, 0), (0, 4)),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), MATMUL)
def test_matmul_of_every_rank(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in (left, right))
    check(td.matmul, a @ b, a, b)
    check(lambda a, b: a @ b, a @ b, td.asarray(a), td.asarray(b))


@pytest.mark.parametrize(
    "dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
)
def test_products_of_integers_wrap_in_their_own_type(dtype: str) -> None:
    rng, info = np.random.default_rng(3), np.iinfo(dtype)
    a, b = (
        rng.integers(info.min, info.max, s, dtype, endpoint=True) for s in ((2, 7, 40), (40, 33))
    )
    for turned in (
        lambda a, b: td.matmul(a, b),
        lambda a, b: td.einsum("bik,kj->bij", a, b),
        lambda a, b: a @ b.T.T,
    ):
        check(turned, a @ b, td.asarray(a), td.asarray(b))


WAYS = (lambda f: f, td.jit)
PRODUCTS = {
    "matmul": (td.matmul, np.matmul),
    "operator": (lambda a, b, **to: td.matmul(a, b, **to) if to else a @ b, np.matmul),
    "tensordot": (lambda a, b, **to: td.tensordot(a, b, axes=((2,), (0,)), **to), lambda a,
    b: np.tensordot(a, b, 1)),
    "vecdot": (lambda a, b, **to: td.vecdot(a, b[:, 0], **to), lambda a, b: a @ b[:, 0]),
    "einsum": (lambda a, b, **to: td.einsum("bik,kj->bij", a, b, **to), np.matmul),
    "summed": (lambda a, b, **to: td.einsum("bik,kj->j", a, b, **to), lambda a,
    b: np.einsum("bik,kj->j", a, b)),
    "outer": (lambda a, b, **to: td.einsum("bik,lj->bjl", a, b, **to), lambda a,
    b: np.einsum("bik,lj->bjl", a, b)),
    "three": (
        lambda a, b, **to: td.einsum("bik,kj,bik->j", a, b, a, **to),
        lambda a, b: np.einsum("bik,kj,bik->j", a, b, a),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_bytes_are_bytes_or_what_is_asked_for(name: str) -> None:
    rng, (ours, numpys) = np.random.default_rng(8), PRODUCTS[name]
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((2, 7, 40), (40, 33)))
    check(ours, numpys(a, b), td.asarray(a), td.asarray(b))
    for wide in (np.int16, np.int32, np.int64, np.float64):
        want = numpys(a.astype(wide), b.astype(wide))
        for setting in ("dtype", "preferred_element_type"):
            got = [
                way(lambda a, b, s=setting, w=wide: ours(a, b, **{s: w}))(*map(td.asarray, (a, b)))
                for way in WAYS
            ]
            for found in got:
                np.testing.assert_array_equal(np.asarray(found), want, strict=True)
    with pytest.raises(td.errors.DtypeError, match=r"dtype=i32 cannot hold products of f32"):
        ours(td.asarray(a, dtype=td.float32), td.asarray(b, dtype=td.float32), dtype=td.int32)


def test_a_product_of_truth_values_says_whether_any_is_true() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.random(s) < 0.1 for s in ((9, 300), (300, 21)))
    check(td.matmul, a @ b, a, b)
    check(td.matmul, np.ones((9, 21), bool), np.ones((9, 256), bool), np.ones((256, 21), bool))


def test_products() -> None:
    rng = np.random.default_rng(2)
    a, b = (
        rng.integers(-4, 5, (2, 3, 4)).astype(np.float64),
        rng.integers(-4, 5, (4, 3, 5)).astype(np.float64),
    )
    check(lambda a, b: td.tensordot(a, b, axes=1), np.tensordot(a, b, 1), a, b)
    check(
        lambda a, b: td.tensordot(a, b, axes=((1, 2), (1, 0))),
        np.tensordot(a, b, ((1, 2), (1, 0))),
        a,
        b,
    )
    check(lambda a, b: td.tensordot(a, b, axes=0), np.tensordot(a, b, 0), a, b)
    check(lambda a: td.vecdot(a, a), np.sum(a * a, -1), a)
    check(lambda a: td.vecdot(a, a, axis=0), np.sum(a * a, 0), a)


# dtypes


def test_dtype_functions() -> None:
    assert td.can_cast(td.int8, td.int32) and not td.can_cast(td.zeros(1), td.int32)
    assert td.isdtype(td.float16, "real floating") and not td.isdtype(td.int8, "unsigned integer")
    assert td.isdtype(td.int8, (td.int16, "integral")) and td.isdtype(td.bool, "bool")
    assert (
        td.finfo(td.float32).max == float(np.finfo(np.float32).max)
        and td.finfo(td.zeros(1)).bits == 32
    )
    assert td.finfo(td.bfloat16).eps == 0.0078125
    assert (td.iinfo(td.int8).min, td.iinfo(td.uint8).max) == (-128, 255)
    assert td.astype(np.float32([1.5, -1.5, np.nan, 1e20]), td.int32).tolist() == [
        1,
        -1,
        0,
        2**31 - 1,
    ]


def test_isin() -> None:
    rng = np.random.default_rng(3)
    for known in (
        [],
        [3],
        rng.integers(0, 40, 7),
        rng.integers(0, 400, (9, 9)),
        np.float64([1, np.nan, -0.0, 7]),
    ):
        for wanted in (np.arange(12).reshape(3, 4), np.float32([0, np.nan, 7]), np.int32(3)):
            other = np.asarray(known)
            if len(other):
                check(td.isin, np.isin(wanted, other), wanted, other)
                check(
                    lambda a, b: td.isin(a, b, invert=True),
                    np.isin(wanted, other, invert=True),
                    wanted,
                    other,
                )
    check(td.isin, np.zeros(3, bool), np.arange(3), np.zeros(0, np.int32))
    long = np.arange(0, 3000, 3, dtype=np.int16)
    check(td.isin, np.isin(np.arange(4000), long), np.arange(4000, dtype=np.int32), long)
    with_nan = np.concatenate([np.arange(20.0), [np.nan, np.inf]])
    check(
        td.isin,
        np.array([[True, False, True, False]]),
        np.float64([[3, np.nan, np.inf, 30]]),
        with_nan,
    )
    check(
        td.isin,
        np.array([True, False]),
        np.complex64([1j, 2]),
        1j * np.arange(30, dtype=np.complex64),
    )
    assert td.isin(3, td.asarray([1, 3])).shape == () and bool(td.isin(3, td.asarray([1, 3])))
    assert td.isin(td.asarray([1, 3]), 3).tolist() == [False, True]
    assert td.isin(td.asarray([True, False]), True).tolist() == [True, False]
    n = td.Dim("n", max=64)
    free = td.jit(td.isin, dims=({0: n}, {0: n}))
    np.testing.assert_array_equal(free(np.arange(20), np.arange(10, 30)), np.arange(20) > 9)


def test_broadcast_shapes() -> None:
    assert td.broadcast_shapes() == () and td.broadcast_shapes(3, (2, 1), (1, 1, 1)) == (1, 2, 3)
    assert td.broadcast_shapes((0, 1), (1, 5)) == (0, 5)
    n = td.Dim("n", max=8)
    assert td.broadcast_shapes((n, 1), (3,)) == (n, 3)
    with pytest.raises(ValueError, match=r"broadcast_shapes: \(2, 3\) and \(4,\) do not broadcast"):
        td.broadcast_shapes((2, 3), (4,))
    with pytest.raises(td.errors.ShapeError, match="negative size"):
        td.broadcast_shapes((-1,))


def test_new_axes_and_axes_from_the_end() -> None:
    x = np.zeros((2, 3), np.float32)
    for axis in (0, -1, (0, 2), (-1, 0), (-1, -4), ()):
        check(lambda x, axis=axis: td.expand_dims(x, axis=axis), np.expand_dims(x, axis), x)
    check(lambda x: td.permute_dims(x, (-1, 0)), x.T, x)
    for wrong in (3, -4, (0, 5)):
        with pytest.raises(IndexError, match=r"expand_dims: axis -?. is out of range"):
            td.expand_dims(x, axis=wrong)
        with pytest.raises(td.errors.ShapeError, match="expand_dims"):
            td.expand_dims(x, axis=wrong)
    with pytest.raises(td.errors.ShapeError, match="names an axis twice"):
        td.expand_dims(x, axis=(0, -4))


def test_searchsorted_takes_numbers() -> None:
    line = np.float32([1, 3, 5])
    for number in (3, 3.5, 9):
        want = np.searchsorted(line, number)
        check(lambda x, number=number: td.searchsorted(x, number), want, line, dtype=False)
    assert td.searchsorted(td.asarray([1, 3, 5]), 2.5).tolist() == 1


@pytest.mark.parametrize("k", [2**31 - 1, 2**31, -(2**40), 2**70])
def test_diagonals_far_outside(k: int) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    check(lambda x: td.tril(x, k=k), x if k > 0 else x * 0, x)
    check(lambda x: td.triu(x, k=k), x * 0 if k > 0 else x, x)
    assert not np.asarray(td.eye(3, k=k)).any() and td.eye(0, k=k).shape == (0, 0)


def test_a_mask_is_as_large_as_what_it_selects_from() -> None:
    x = td.reshape(td.arange(6), (2, 3))
    wrong = {"[3]": [True, False, True], "[2, 2]": np.ones((2, 2), bool)}
    for shape, mask in wrong.items():
        with pytest.raises(
            IndexError, match=rf"a mask of shape {re.escape(shape)} selects from axes of sizes \[2"
        ):
            x[mask]
    with pytest.raises(
        IndexError, match=r"a mask of shape \[2\] selects from axes of sizes \[3\], of i32\[2,3\]"
    ):
        x[..., None, np.array([True, False])]
    two, three = np.array([True, False]), np.array([True, False, True])
    for key in ((..., three), (None, two), (0, three)):
        np.testing.assert_array_equal(x[key], np.asarray(x)[key])
    assert x[np.zeros(0, bool)].shape == (0, 3)


def test_masks_without_axes() -> None:
    x = np.arange(3, dtype=np.int32)
    for mask in (True, False, np.bool_(True), np.array(False)):
        check(lambda x, mask=mask: x[mask], x[mask], td.asarray(x))
    check(lambda x: x[np.array(True)], np.float32(2)[None], td.asarray(2.0))
    assert td.asarray(x)[td.asarray(False)].shape == (0, 3) and td.asarray(x)[
        td.asarray(True)
    ].shape == (1, 3)
    for key in (
        (np.array(True), 0),
        (0, True),
        ([0, 2], True),
        (False, slice(1)),
        (None, True, ..., [1, 0, 1]),
    ):
        check(lambda x, key=key: x[key], x[key], td.asarray(x))


STANDARD = """
__array_namespace_info__ __array_api_version__ e inf nan newaxis pi bool int8 int16 int32 int64
uint8 uint16 uint32 uint64 float32 float64 complex64 complex128 arange asarray empty empty_like eye
from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros zeros_like astype
can_cast finfo iinfo isdtype result_type abs acos acosh add asin asinh atan atan2 atanh bitwise_and
bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign
cos cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf
isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor
maximum minimum multiply negative nextafter not_equal positive pow real reciprocal remainder round
sign signbit sin sinh square sqrt subtract tan tanh trunc take take_along_axis matmul
matrix_transpose tensordot vecdot broadcast_arrays broadcast_shapes broadcast_to concat expand_dims
flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack argmax argmin
count_nonzero nonzero searchsorted where isin unique_all unique_counts unique_inverse unique_values
argsort sort cumulative_prod cumulative_sum max mean min prod std sum var all any diff linalg fft
"""  # of the array API, 2025.12


def test_every_name_of_the_standard_is_there() -> None:
    assert [name for name in STANDARD.split() if not hasattr(td, name)] == []


def test_the_namespace_tells_about_itself() -> None:
    info = td.__array_namespace_info__()
    assert (info.default_device(), info.devices()) == ("cpu", ("cpu",))
    assert info.capabilities() == {
        "boolean indexing": True,
        "data-dependent shapes": True,
        "max dimensions": None,
    }
    kinds = {kind: td.zeros(1, dtype=dtype).dtype for kind, dtype in info.default_dtypes().items()}
    assert kinds["real floating"] is td.zeros(1).dtype and kinds["integral"] is td.asarray(1).dtype
    assert (
        kinds["complex floating"] is td.asarray(1j).dtype
        and kinds["indexing"] is td.argmax(td.zeros(1)).dtype
    )
    assert info.dtypes(kind=("bool", "unsigned integer")) == {
        "bool": td.bool, "uint8": td.uint8, "uint16": td.uint16, "uint32": td.uint32,
        "uint64": td.uint64,
    }  # fmt: skip
    assert all(getattr(td, name) is dtype for name, dtype in info.dtypes(device="cpu").items())
    with pytest.raises(td.errors.UnsupportedError, match="there is no device 'gpu'"):
        info.dtypes(device="gpu")


def test_functions_at_their_edges() -> None:
    inf, nan = np.inf, np.nan
    x, y = np.float64([3, inf, -inf, nan, 1e200, 0]), np.float64([4, nan, 1, 1, 1e200, 0])
    for run in (lambda f: f, td.jit):
        np.testing.assert_array_equal(
            run(td.hypot)(x, y)[:5], [5, inf, inf, nan, np.hypot(1e200, 1e200)]
        )
        sums = run(td.logaddexp)(
            np.float64([inf, -inf, inf, nan, -1000]), np.float64([inf, -inf, -inf, 0, -1000])
        )
        np.testing.assert_allclose(sums, [inf, -inf, inf, nan, np.log(2) - 1000], rtol=1e-15)
        near = run(td.nextafter)(
            np.float32([0, -0.0, 1, inf, nan, -1]), np.float32([-1, 0, 1, 0, 0, 0])
        )
        np.testing.assert_array_equal(
            near, np.float32([-1e-45, 0, 1, 3.4028235e38, nan, -0.99999994])
        )
        assert np.signbit(np.asarray(run(td.nextafter)(np.float32(0), np.float32(-0.0))))
    x, y = (np.random.default_rng(seed).standard_normal(2000) * 2 for seed in (1, 2))
    exact = np.logaddexp(x.astype(np.longdouble), y.astype(np.longdouble))
    within = 4 * np.spacing(
        np.maximum(np.abs(exact), np.maximum(np.abs(x), np.abs(y))).astype(np.float64)
    )
    for run in (lambda f: f, td.jit):
        assert (np.abs(np.asarray(run(td.logaddexp)(x, y)) - exact) <= within).all()
    assert float(td.logaddexp(np.float32(0), np.float32(-20))) == np.float32(
        np.log1p(np.exp(-20.0))
    )
    with pytest.raises(td.errors.DtypeError, match="nextafter: takes f32, f64, got f16"):
        td.nextafter(td.zeros(1, dtype=td.float16), td.zeros(1, dtype=td.float16))
    assert td.positive(-3).item() == -3 and td.positive(1j).item() == 1j
    with pytest.raises(td.errors.DtypeError, match="positive: takes numbers, got bool"):
        td.positive(True)


# symbolic sizes


def test_symbolic_sizes() -> None:
    n = td.Dim("n", max=100)

    def f(x: Any) -> Any:
        rows = x.shape[0]
        return (
            td.mean(x, axis=0), td.var(x), td.zeros((rows, 2)) + td.ones((rows, 1)),
            td.arange(rows), x * rows,
            td.reshape(x, (-1,)), td.reshape(x, (rows, 3, -1)), td.tril(x @ x.mT), td.flip(x),
            td.concat([x, x]),
            td.repeat(x, 2, axis=0), td.roll(x, 1, axis=0), x + td.arange(rows)[:, None],
            td.argmax(x, axis=0),
        )  # fmt: skip

    compiled = jit(f, dims=({0: n},))
    for rows in (1, 2, 7):
        x = np.arange(rows * 6, dtype=np.float64).reshape(rows, 6)
        for got, want in zip(compiled(x), f(td.asarray(x)), strict=True):
            assert got.shape == want.shape and got.dtype is want.dtype
            np.testing.assert_array_equal(got, want)
    assert compiled.compiles == 1


# -- every integer type ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.uint64], ids=lambda d: d.__name__)
def test_small_and_large_integers_are_like_the_others(dtype: type) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, 0, 1, 7, limits.max // 2 + 1], dtype)
    y = np.array([3, 3, 5, 2, 2, limits.max], dtype)
    cases = [(td.add, np.add), (td.subtract, np.subtract), (td.multiply, np.multiply),
    (td.remainder, np.remainder),
             (td.floor_divide, np.floor_divide), (td.less, np.less), (td.maximum,
             np.maximum)]  # fmt: skip
    with np.errstate(all="ignore"):
        for ours, numpys in cases:
            for call in (ours, td.jit(ours)):
                np.testing.assert_array_equal(call(x, y), numpys(x, y))
    for call in (td.sort, td.jit(td.sort)):
        np.testing.assert_array_equal(call(x), np.sort(x))
    assert td.sum(td.asarray(x)).dtype is {"int16": td.int32, "uint16": td.uint32}.get(
        dtype.__name__, td.uint64
    )


def test_bytes_with_and_without_sign_meet_in_16_bits() -> None:
    a, b = np.array([-128, 127], np.int8), np.array([255, 0], np.uint8)
    for call in (td.add, td.jit(td.add)):
        assert call(a, b).dtype is td.int16 and call(a, b).tolist() == [127, 127]


def test_indices_without_sign_never_count_from_the_end() -> None:
    x = td.asarray([1.0, 2.0, 3.0])
    for call in (
        td.take,
        td.jit(td.take),
        lambda x, i: x[i],
        lambda x, i: td.scatter_add(x[i], i, 3),
    ):
        assert call(x, np.array([2], np.uint64)).tolist()[-1] == 3
        with pytest.raises(IndexError):
            call(x, np.array([(1 << 64) - 1], np.uint64))
    with pytest.raises(td.errors.DtypeError, match="indices are integers"):
        td.scatter_add(x, np.zeros(3, np.float32), 3)


# -- odd settings ----------------------------------------------------------------------------------


def test_numpy_integers_are_settings_too() -> None:
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    one, two = np.int64(1), np.int32(2)
    np.testing.assert_array_equal(td.roll(x, one, axis=one), np.roll(x, 1, 1))
    np.testing.assert_array_equal(td.repeat(x, two, axis=0), np.repeat(x, 2, 0))
    np.testing.assert_array_equal(
        td.pad(x, np.array([[1, 0], [0, 2]])), np.pad(x, [(1, 0), (0, 2)])
    )
    np.testing.assert_array_equal(td.pad(x, (one, two)), np.pad(x, (1, 2)))
    np.testing.assert_array_equal(td.moveaxis(x, np.int64(0), one), x.T)
    assert td.asarray(range(3)).tolist() == [0, 1, 2]
    assert td.arange(1 << 60, (1 << 60) + 2).tolist() == [1 << 60, (1 << 60) + 1]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: td.asarray([1 << 63]), td.errors.DtypeError, "an int does not fit int64"),
        (lambda: td.asarray([1 << 70]), td.errors.DtypeError, "an int does not fit int64"),
        (
            lambda: td.asarray([math.nan], dtype=td.int32),
            td.errors.DtypeError,
            "cannot convert float NaN",
        ),
        (lambda: td.arange(math.inf), td.errors.ShapeError, "arange: no steps from 0 to inf by 1"),
        (lambda: td.arange(math.nan), td.errors.ShapeError, "arange: no steps from 0 to nan"),
        (lambda: td.arange("a"), td.errors.ShapeError, "arange: no steps"),
        (
            lambda: td.reshape(td.zeros(4), (1 << 40, 1 << 40)),
            td.errors.ShapeError,
            "reshape: .* exceed the limit",
        ),
    ],
)
def test_values_that_do_not_fit_are_named(call, error: type, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message) as caught:
        call()
    assert "test_functions.py line" in str(caught.value)


def test_a_device_that_is_not_there_is_refused() -> None:
    x, gpu = td.ones(2), "gpu"
    calls: list[Callable[[], object]] = [
        lambda: td.asarray(1, device=gpu),
        lambda: td.zeros(2, device=gpu),
        lambda: td.ones(2, device=gpu),
        lambda: td.empty(2, device=gpu),
        lambda: td.full(2, 1, device=gpu),
        lambda: td.zeros_like(x, device=gpu),
        lambda: td.ones_like(x, device=gpu),
        lambda: td.empty_like(x, device=gpu),
        lambda: td.full_like(x, 1, device=gpu),
        lambda: td.arange(2, device=gpu),
        lambda: td.linspace(0, 1, 2, device=gpu),
        lambda: td.eye(2, device=gpu),
        lambda: td.astype(x, "int32", device=gpu),
        lambda: td.from_dlpack(np.ones(2), device=gpu),
        lambda: td.fft.fftfreq(2, device=gpu),
    ]
    for call in calls:
        with pytest.raises(UnsupportedError, match="there is no device 'gpu'"):
            call()


def test_whether_memory_is_shared_or_copied_is_kept() -> None:
    source = np.ones(3)
    copied = td.from_dlpack(source, copy=True)
    source[0] = 5
    assert np.asarray(copied).tolist() == [1, 1, 1]
    for call in (
        lambda: td.asarray([1, 2], copy=False),
        lambda: td.asarray(source, dtype="float32", copy=False),
    ):
        with pytest.raises(CopyError, match="copy=False"):
            call()


def test_differences_are_taken_a_number_of_times() -> None:
    assert td.diff(td.asarray([1, 4]), n=0, prepend=0).tolist() == [1, 4]
    assert td.diff(td.asarray([[1, 4], [2, 2]]), prepend=0).tolist() == [[1, 3], [2, 0]]
    with pytest.raises(ShapeError, match="diff: n is how often"):
        td.diff(td.asarray([1, 4]), n=-1)


def test_operands_that_are_missing_or_too_many_and_settings_that_are_unknown() -> None:
    for wrong, text in (
        (lambda: td.exp(), "exp: missing a required argument: 'x'; it is called exp(x)"),
        (lambda: td.add(1), "add: missing a required argument: 'y'; it is called add(x, y)"),
        (lambda: td.add(1, 2, 3), "add: too many positional arguments; it is called add(x, y)"),
        (
            lambda: td.sqrt(1.0, axis=1),
            "sqrt: got an unexpected keyword argument 'axis'; it is called sqrt(x)",
        ),
    ):
        with pytest.raises(TypeError) as caught:
            wrong()
        assert str(caught.value) == text
    assert td.where(td.asarray([True, False]), x=1, y=2).tolist() == [1, 2]


def test_a_list_of_scalars_keeps_every_bit_of_the_dtype_that_is_asked_for() -> None:
    x = np.nextafter(432.0, 0)
    assert td.asarray([x, [x][0]], dtype=td.float64).tolist() == [x, x]
    assert td.asarray([[np.int64(2**40)]], dtype=td.int64).tolist() == [[2**40]]
