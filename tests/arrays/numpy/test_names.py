"""Names of NumPy: other names are the same functions, arguments stand where they do there, and
arrays have their methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.arrays.numpy.against import check, floats, same
from tetrad.arrays.numpy import ALIASES
from tetrad.core.errors import AxisError, DtypeError, ShapeError, TraceError, UnsupportedError

X = floats(3, 4)
N = np.arange(12).reshape(3, 4)


@pytest.mark.parametrize("name", ALIASES)
def test_other_names_are_the_same_functions(name: str) -> None:
    assert getattr(td, name) is getattr(td, ALIASES[name])
    assert name in dir(td)


def test_operands_have_the_names_of_numpy() -> None:
    for name, settings in (
        ("sum", {"a": X, "axis": 0}), ("mean", {"a": X}), ("argmax", {"a": X}), ("sort", {"a": X}),
        ("reshape", {"a": X, "shape": (4, 3)}), ("squeeze", {"a": X}), ("flip", {"m": X}),
        ("repeat", {"a": X, "repeats": 2}), ("pad", {"array": X, "pad_width": 1}),
        ("broadcast_to", {"array": X, "shape": (2, 3, 4)}), ("split", {"ary": N,
         "indices_or_sections": 3}), ("zeros_like", {"a": X}), ("take", {"a": X, "indices": 1}),
        ("searchsorted", {"a": np.sort(X[0]), "v": X}), ("quantile", {"a": X, "q": 0.5}),
        ("isin", {"element": N, "test_elements": N[0]}), ("diff", {"a": X}), ("tril", {"m": X}),
        ("tensordot", {"a": X, "b": X.T, "axes": 1}), ("concatenate", {"arrays": [X, X]}),
        ("linspace", {"start": 0.0, "stop": 1.0, "num": 3}), ("eye", {"N": 2, "M": 3}),
        ("full", {"shape": (2,), "fill_value": 1.0}), ("tile", {"A": X, "reps": 2}),
    ):  # fmt: skip
        same(getattr(td, name)(**settings), getattr(np, name)(*settings.values()))


def test_dtypes_stand_where_they_do_in_numpy() -> None:
    assert td.zeros(3, td.int32).dtype is td.int32
    assert td.ones((2,), "uint8").dtype is td.uint8
    assert td.empty(2, bool).dtype is td.bool
    assert td.full((2,), 3, td.float64).dtype is td.float64
    assert td.eye(2, 3, 1, td.int8).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert td.identity(2, td.int32).dtype is td.int32
    assert td.arange(0, 6, 2, td.float32).tolist() == [0, 2, 4]
    assert td.arange(start=1, stop=3).tolist() == [1, 2]
    assert td.asarray([1, 2], td.float64).dtype is td.float64
    assert td.array([1, 2], td.float64, ndmin=3).shape == (1, 1, 2)
    assert td.zeros_like(X, td.int32, (2,)).shape == (2,)
    assert td.ones_like([1, 2]).tolist() == [1, 1]
    assert td.full_like(X, floats(4)).shape == (3, 4)


@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("num", [0, 1, 2, 5])
def test_evenly_spaced(num: int, endpoint: bool) -> None:
    check("linspace", floats(2), floats(2), num, endpoint)
    check("linspace", floats(), floats(3, 2), num, endpoint, axis=-1)
    same(td.linspace(-3, 5, num, endpoint, dtype=int), np.linspace(-3, 5, num, endpoint, dtype=int))
    got, step = td.linspace(0, 2, num, endpoint, True)
    want, apart = np.linspace(0, 2, num, endpoint, True)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(step, apart, rtol=1e-6)


def test_axes_stand_where_they_do_in_numpy() -> None:
    check("sum", X, 0)
    check("sum", X, 0, np.float64, None, True)
    check("prod", X, 1)
    check("mean", X, 0, None, None, True)
    check("max", X, 0, None, True)
    check("min", X, -1)
    check("var", X, 0, None, None, 1)
    check("std", X, ddof=1)
    check("std", X, 1, None, None, 2, True)
    check("var", X, correction=1)
    check("var", X, 0, mean=X.mean(0, keepdims=True), reference=lambda x, i, mean: np.var(x, i))
    check("any", X > 0, 0, None, True)
    check("all", X > 0, 1)
    check("argmax", X, 0)
    check("argmin", X, 1, None, keepdims=True)
    check("diff", X, 2)
    check("diff", X, 1, 0)
    check("diff", X > 0)
    check("sort", X, None)
    check("argsort", X, None)
    check("sort", X, 0, "stable")
    check("searchsorted", np.sort(X[0]), X, "right", grad=False, vmap=False)
    check("isin", N, N[0], False, True, vmap=False)
    check("count_nonzero", N, 0)
    check("count_nonzero", N, 0, keepdims=True)
    check("stack", [X, X], 1)
    check("concatenate", [X, X], 1)
    check("concatenate", [X, N], dtype=np.float64)
    check("repeat", X, repeats=2, axis=0)
    check("tile", X, 2)
    check("roll", X, shift=1, axis=0)
    check("reshape", X, (4, 3), "F")
    check("reshape", floats(2, 3, 4), (-1, 2), order="F")
    check("transpose", X, axes=(1, 0))
    check("moveaxis", X, source=0, destination=1)
    check("pad", X, pad_width=1)
    check("split", X, indices_or_sections=2, axis=1)
    check("meshgrid", X[0], X[1], sparse=True)
    with pytest.raises(TraceError, match="ddof and correction are two names"):
        td.var(X, ddof=1, correction=1)
    for name in ("sum", "mean", "max", "std", "cumsum"):
        with pytest.raises(UnsupportedError, match=f"{name}: out= is not supported"):
            getattr(td, name)(X, out=np.zeros(3))


def test_elements_out_of_range() -> None:
    places = np.array([5, -1, 0, -9])
    for mode in ("clip", "wrap"):
        check("take", N, places, 1, None, mode, vmap=False)
        check("take", N, places, mode=mode, vmap=False)
    filled = td.take(X, places, 1, mode="fill")
    assert np.isnan(filled[:, 0]).all() and np.isnan(filled[:, 3]).all()
    same(filled[:, 1:3], X[:, [3, 0]])
    assert td.take(N, places, 1, mode="fill", fill_value=-7)[0].tolist() == [-7, 3, 0, -7]
    with pytest.raises(TraceError, match="take: there is no mode 'other'"):
        td.take(X, places, mode="other")


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_truth(name: str, axis: Any) -> None:
    flags = X > 0.3
    check(name, flags, axis)
    check(name, flags, axis, initial=True)
    check(name, flags, axis, initial=False, where=X > 0)
    check(name, flags, axis, keepdims=True)


@pytest.mark.parametrize("decimals", [-2, -1, 0, 1, 3])
def test_rounding(decimals: int) -> None:
    check("round", 100 * X, decimals, grad=False)
    check("round", 100 * X + 30j * X, decimals, grad=False)
    check("round", np.array([5, 15, 25, 249, 250, 251, -5, -15, -150]), decimals)
    check("around", 100 * X, decimals, grad=False)
    assert td.round(td.asarray([1.26, 2.0], dtype=td.float16), 1).dtype is td.float16


def test_integers_are_rounded_exactly() -> None:
    big = np.array([2**62 + 5, -(2**62) - 5, 15, 25])
    assert np.asarray(td.round(big, -1)).tolist() == [round(int(n), -1) for n in big]
    assert np.asarray(td.round(big, -30)).tolist() == [0, 0, 0, 0]


METHODS: list[tuple[str, tuple[Any, ...]]] = [
    ("ravel", ()), ("ravel", ("F",)), ("flatten", ()), ("copy", ()), ("clip", (-0.5, 0.5)),
    ("dot", (floats(4, 2),)), ("repeat", (2, 0)), ("cumsum", ()), ("cumsum", (0,)),
    ("cumprod", (1,)), ("argsort", (0,)), ("argmax", ()), ("argmin", (0,)), ("std", ()),
    ("var", (0,)), ("std", (0, None, None, 1)), ("trace", ()), ("trace", (1,)),
    ("swapaxes", (0, 1)), ("squeeze", ()), ("take", ([1, 2],)), ("take", ([1, 2], 0)),
    ("round", (1,)), ("conj", ()), ("conjugate", ()), ("diagonal", (1,)), ("sum", (0,)),
    ("mean", (1,)), ("prod", ()), ("max", (0,)), ("min", ()), ("any", ()), ("all", (0,)),
    ("reshape", (2, 6)), ("reshape", ((2, 6),)), ("reshape", (-1,)), ("transpose", ()),
    ("transpose", (1, 0)), ("tolist", ()), ("astype", (np.int32,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), METHODS)
def test_methods(name: str, args: tuple[Any, ...]) -> None:
    want = getattr(X, name)(*args)
    same(getattr(td.asarray(X), name)(*args), want)
    if name != "tolist":
        same(td.jit(lambda x: getattr(x, name)(*args))(X), want)


def test_methods_that_numpy_has_not_so() -> None:
    x = td.asarray(X)
    assert x.block_until_ready() is x and x.device == "cpu" and x.devices() == {x.device}
    same(x.sort(0), np.sort(X, 0))
    same(td.asarray(np.sort(X[0])).searchsorted(X[1]), np.searchsorted(np.sort(X[0]), X[1]))
    same(round(x, 1), np.round(X, 1))
    for rank in range(4):
        wide = floats(*range(2, 2 + rank))
        same(td.asarray(wide).T, wide.T)
        same(td.jit(lambda x: x.T)(wide), wide.T)
    turned = td.jit(lambda x: x.reshape(6, 2, order="F"))(X)
    same(turned, X.reshape(6, 2, order="F"))


def test_shapes() -> None:
    assert td.shape([[1, 2, 3]]) == (1, 3) and td.ndim(3.0) == 0 and td.size(X, 1) == 4
    assert td.jit(lambda x: x + td.size(x) + td.ndim(x))(np.zeros((2, 2))).tolist() == [[6, 6]] * 2
    with pytest.raises(AxisError):
        td.size(X, 2)


def test_arranging() -> None:
    cube = floats(2, 3, 4)
    for k in range(-1, 5):
        check("rot90", X, k)
        check("rot90", cube, k, (2, 0))
    check("flipud", X)
    check("fliplr", cube)
    check("swapaxes", cube, 0, -1)
    for start in (-3, -1, 0, 1, 2, 3):
        check("rollaxis", cube, 1, start)
    for x in (floats(), floats(3), X, cube):
        check("ravel", x)
        check("copy", x)
        for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
            check(name, x)
    same(td.atleast_2d(X[0], 1.0), np.atleast_2d(X[0], 1.0))
    for name in ("vstack", "hstack", "dstack", "column_stack"):
        check(name, [X, X])
        check(name, [X[0], X[0]])
        check(name, (X[:0], X[:0]))
    check("vstack", [X, X[0]])
    check("column_stack", [X, X[:, 0]])
    check("hstack", [np.float64(1), X[0]])
    for name in ("vstack", "hstack", "dstack", "column_stack"):
        with pytest.raises(ShapeError, match=f"{name}: expected a list"):
            getattr(td, name)(1.0)
        with pytest.raises(ShapeError, match=f"{name}: needs at least one"):
            getattr(td, name)([])
    with pytest.raises(ShapeError, match="fliplr: needs at least 2 axes"):
        td.fliplr(X[0])


def test_products() -> None:
    cube = floats(2, 4, 3)
    for a, b in (
        (X, cube), (X, floats(4)), (floats(4), floats(4)), (X, floats()), (floats(2, 3, 4), cube),
        (X[:, :0], cube[:, :0]), (N, N.T), (X, X.T + 1j * X.T),
    ):  # fmt: skip
        check("dot", a, b)
    for a, b in ((X, floats(2, 5, 4)), (floats(4), floats(4)), (floats(), X)):
        check("inner", a, b)
    check("vdot", X, floats(4, 3))
    check("vdot", X + 2j * X, X * 3j)
    check("outer", X, floats(2))
    check("outer", floats(0), floats(2))
    for a, b in ((X, cube), (floats(2), floats(3)), (floats(), X), (N, N[:2, :2]), (X[:0], X)):
        check("kron", a, b)
    check("cross", floats(5, 3), floats(5, 3))
    check("cross", floats(3, 5), floats(3, 5), axis=0)
    check("cross", floats(3, 5), floats(2, 5, 3), 0, 2, 1)
    check("identity", 3, dtype=np.float32)
    two = floats(5, 2)
    same(td.cross(two, two[::-1]), two[:, 0] * two[::-1, 1] - two[:, 1] * two[::-1, 0])
    same(td.cross(two, floats(5, 3) * 0 + 1)[:, 2], two[:, 0] - two[:, 1])
    for offset in (-5, -1, 0, 2, 7):
        check("diagonal", X, offset)
        check("diagonal", cube, offset, 2, 0)
    with pytest.raises(ShapeError, match="cross: vectors have two or three"):
        td.cross(X, X)
    with pytest.raises(ShapeError, match="diagonal: axis1 and axis2 are the same"):
        td.diagonal(X, 0, 1, -1)


def test_running() -> None:
    for name in ("cumsum", "cumprod"):
        for axis in (None, 0, -1):
            check(name, X, axis)
            check(name, N.astype(np.int32), axis)
        check(name, X > 0, dtype=np.int64)
        check(name, X[:0], 0)


def test_norms() -> None:
    for order in (None, 1, 2, np.inf, -np.inf, 0, 3):
        check("linalg.norm", X[0], order, vmap=False, grad=order not in (0,))
        check("linalg.norm", X, order, axis=1, keepdims=True, grad=order not in (0,))
    for order in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        check("linalg.norm", X, order)
        check("linalg.norm", floats(3, 2, 4), order, (2, 0), True)
    check("linalg.norm", floats(2, 3, 4))
    with pytest.raises(ShapeError, match="norm: vectors have one axis"):
        td.linalg.norm(floats(2, 3, 4), 2)


def test_kinds_of_dtypes() -> None:
    assert td.dtype("float32") is td.float32 and td.dtype(np.int8) is td.int8
    assert isinstance(td.float32, td.dtype) and isinstance(np.dtype("f4"), td.dtype)
    assert not isinstance("float32", td.dtype)
    for given in (
        td.float32,
        td.bfloat16,
        td.int8,
        td.uint8,
        td.bool,
        td.complex64,
        td.float8_e5m2,
    ):
        assert td.issubdtype(given, given) and td.issubdtype(given, td.generic)
        known = {"f": np.float32, "i": np.int8, "u": np.uint8, "b": np.bool_, "c": np.complex64}
        letter = "f" if given.is_float8 else given.kind
        for above in (
            td.floating, td.integer, td.inexact, td.complexfloating, td.number,
            td.signedinteger, td.unsignedinteger, np.floating,
        ):  # fmt: skip
            assert td.issubdtype(given, above) == np.issubdtype(known[letter], above)
    assert td.issubdtype(td.floating, td.number) and not td.issubdtype(td.integer, td.floating)
    assert td.issubdtype(td.ones(2), td.floating)
    assert td.promote_types("int8", td.uint8) is td.int16
    with pytest.raises(DtypeError):
        td.dtype("float33")


def test_devices() -> None:
    (cpu,) = td.devices()
    assert cpu == "cpu" and (cpu.platform, cpu.id, cpu.process_index) == ("cpu", 0, 0)
    assert repr(cpu) == "CpuDevice(id=0)" and td.devices("cpu") == td.local_devices()
    assert td.device_count() == td.local_device_count() == td.process_count() == 1
    assert td.process_index() == 0 and td.default_backend() == "cpu"
    put = td.device_put({"w": X, "b": 1.5}, cpu)
    assert isinstance(put["w"], td.Array) and put["b"].dtype is td.float32
    back = td.device_get({"w": put["w"], "n": 3})
    assert type(back["w"]) is np.ndarray and back["n"] == 3
    assert td.block_until_ready(put) is put
    assert td.zeros(2, device=cpu).shape == (2,)
    with pytest.raises(UnsupportedError, match="there is no back end 'gpu'"):
        td.devices("gpu")
    assert len(td.device_put((X, X), (cpu, None))) == 2
    for where in ("gpu", [cpu, "gpu"], {"w": "gpu"}):
        with pytest.raises(UnsupportedError, match=r"there is no device .*gpu"):
            td.device_put(X, where)


def test_types_to_annotate_with() -> None:
    assert td.ndarray is td.Array and td.ShapeDtypeStruct is td.Spec
    assert isinstance(td.ones(2), td.typing.ArrayLike) and isinstance(1.0, td.typing.ArrayLike)
    assert not isinstance("text", td.typing.ArrayLike)
    assert td.tree_map is td.tree.map and td.tree_leaves([1, (2,)]) == [1, 2]
    assert td.logsumexp is td.nn.logsumexp
