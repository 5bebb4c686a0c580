"""Convolutions against their formula in float64, written as loops over taps; known vectors, what
does not fit, derivatives of both orders, batches."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

import numpy as np
import pytest

import tetrad as td
from tetrad import nn

RNG = np.random.default_rng(5)
FOUR = np.arange(1.0, 17.0).reshape(1, 1, 4, 4)
THREE = np.arange(1.0, 10.0).reshape(1, 1, 3, 3)
K = np.array([[[[1.0, 0.0], [0.0, -1.0]]]])
LINE = np.arange(1.0, 6.0).reshape(1, 1, 5)
EDGE = np.array([[[1.0, 0.0, -1.0]]])
BOTH = ("float32", "float64")


def formula(
    x: np.ndarray, w: np.ndarray, stride: Any, low: Any, dilation: Any, size: Any, groups: int = 1
) -> np.ndarray:
    """y[n, o, p] = sum over c, k of x[n, c, p * stride + k * dilation - low] * w[o, c, k], zero
    outside x."""
    outputs, inputs, *taps = w.shape
    found = np.zeros((len(x), outputs, *size))
    for o, c, tap, place in product(
        range(outputs), range(inputs), np.ndindex(*taps), np.ndindex(*size)
    ):
        at = [p * s + k * d - b for p, s, k, d, b in zip(place, stride, tap, dilation, low,
                                                          strict=True)]  # fmt: skip
        if all(0 <= i < n for i, n in zip(at, x.shape[2:], strict=True)):
            channel = o // (outputs // groups) * inputs + c
            found[(slice(None), o, *place)] += x[(slice(None), channel, *at)] * w[(o, c, *tap)]
    return found


def eager_and_compiled(function: Any, *arrays: Any) -> list[np.ndarray]:
    given = [td.asarray(a) for a in arrays]
    return [np.asarray(function(*given)), np.asarray(td.jit(function)(*given))]


# -- vectors ---------------------------------------------------------------------------------------

VECTORS: dict[str, tuple[np.ndarray, np.ndarray, dict[str, Any], Any]] = {
    "default": (FOUR, K, {}, np.full((3, 3), -5)),
    "stride": (FOUR, K, {"stride": 2}, np.full((2, 2), -5)),
    "dilation": (FOUR, K, {"dilation": 2}, np.full((2, 2), -10)),
    "padding": (FOUR, K, {"padding": 1}, [
        [-1, -2, -3, -4, 0], [-5, -5, -5, -5, 4], [-9, -5, -5, -5, 8], [-13, -5, -5, -5, 12],
        [0, 13, 14, 15, 16]]),
    "groups": (np.arange(1.0, 9.0).reshape(1, 2, 2, 2),
               np.array([[[[1.0, 1.0], [1.0, 1.0]]], [[[1.0, 0.0], [0.0, 1.0]]]]), {"groups": 2},
               [[[10]], [[13]]]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name: str, dtype: str) -> None:
    x, w, settings, want = VECTORS[name]
    for got in eager_and_compiled(
        lambda x, w: nn.conv2d(x, w, **settings), x.astype(dtype), w.astype(dtype)
    ):
        assert got.dtype == dtype
        assert got.tolist() == np.broadcast_to(want, got.shape).tolist()


@pytest.mark.parametrize("dtype", BOTH)
def test_vectors_of_one_axis(dtype: str) -> None:
    x, w = LINE.astype(dtype), EDGE.astype(dtype)
    for got in eager_and_compiled(nn.conv1d, x, w):
        assert got.tolist() == [[[-2, -2, -2]]]
    for got in eager_and_compiled(lambda x, w: nn.conv1d(x, w, padding=1, stride=2), x, w):
        assert got.tolist() == [[[-2, -2, 4]]]
    (flat,) = eager_and_compiled(lambda x, w: nn.conv1d(x, w), x[0], w)[:1]  # no batch
    assert flat.tolist() == [[-2, -2, -2]]


@pytest.mark.parametrize("dtype", BOTH)
def test_vectors_of_the_derivatives(dtype: str) -> None:
    x, w, ct = (a.astype(dtype) for a in (THREE, K, np.arange(1.0, 5.0).reshape(1, 1, 2, 2)))

    def back(x: Any, w: Any, ct: Any) -> Any:
        return td.vjp(nn.conv2d, x, w)[1](ct)

    for function in (back, td.jit(back)):
        dx, dw = function(td.asarray(x), td.asarray(w), td.asarray(ct))
        assert np.asarray(dx)[0, 0].tolist() == [[1, 2, 0], [3, 3, -2], [0, -3, -4]]
        assert np.asarray(dw)[0, 0].tolist() == [[37, 47], [67, 77]]


BACK_VECTORS: dict[str, tuple[Any, Any, dict[str, Any], Any]] = {
    "one": ([[2]], [[1, 0], [0, 1]], {"stride": 2}, [[2, 0], [0, 2]]),
    "four": ([[1, 2], [3, 4]], [[1, 2], [3, 4]], {}, [[1, 4, 4], [6, 20, 16], [9, 24, 16]]),
    "all": ([[1, 2], [3, 4]], np.ones((3, 3)), {"stride": 2, "padding": 1, "output_padding": 1},
            [[1, 3, 2, 2], [4, 10, 6, 6], [3, 7, 4, 4], [3, 7, 4, 4]]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("name", BACK_VECTORS)
def test_vectors_of_the_transpose(name: str, dtype: str) -> None:
    x, w, settings, want = BACK_VECTORS[name]
    given = (np.array(a, dtype)[None, None] for a in (x, w))
    for got in eager_and_compiled(lambda x, w: nn.conv_transpose2d(x, w, **settings), *given):
        assert got[0, 0].tolist() == want


def test_a_transpose_does_not_hide_what_is_not_finite() -> None:
    x, w = np.zeros((1, 1, 2, 2), np.float32), np.full((1, 1, 2, 2), np.inf, np.float32)
    for got in eager_and_compiled(nn.conv_transpose2d, x, w):
        assert np.isnan(got).all()


@pytest.mark.parametrize("dtype", BOTH)
def test_vectors_of_windows(dtype: str) -> None:
    for got in eager_and_compiled(lambda x: nn.im2col(x, 2), THREE.astype(dtype)):
        assert got.tolist() == [[1, 2, 4, 5], [2, 3, 5, 6], [4, 5, 7, 8], [5, 6, 8, 9]]
    two = np.array([[[[1, 2], [3, 4]]]], dtype)
    for got in eager_and_compiled(lambda x: nn.im2col(x, 2, stride=2, padding=1), two):
        assert got.tolist() == [[0, 0, 0, 1], [0, 0, 2, 0], [0, 3, 0, 0], [4, 0, 0, 0]]


def test_windows_of_any_batch_times_a_weight_are_a_convolution() -> None:
    x, w = RNG.standard_normal((3, 2, 5, 6)), RNG.standard_normal((4, 2, 3, 2))
    columns = np.asarray(nn.im2col(td.asarray(x), (3, 2), stride=(2, 1), padding=1))
    y = np.asarray(nn.conv2d(td.asarray(x), td.asarray(w), stride=(2, 1), padding=1))
    rows = columns @ w.reshape(4, -1).T
    assert np.allclose(rows.reshape(3, 3, 7, 4).transpose(0, 3, 1, 2), y, atol=1e-12)


# -- any settings ----------------------------------------------------------------------------------

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strides": {"stride": (2, 3)},
    "one entry for all": {"stride": [2], "padding": [1], "dilation": [2]},
    "pairs": {"padding": ((2, 0), (1, 3))},
    "dilation": {"dilation": (3, 2), "padding": 2},
    "groups": {"groups": 3, "padding": 1},
    "depthwise": {"groups": 6, "padding": 1, "stride": (1, 2)},
}
LAYOUTS = [("NCHW", "OIHW"), ("NHWC", "HWIO"), ("NHWC", "OIHW"), ("NCHW", "HWOI")]


def arrays_of(groups: int, batch: int = 2) -> tuple[np.ndarray, np.ndarray]:
    x = RNG.standard_normal((batch, 6, 9, 11))
    return x, RNG.standard_normal((6 if groups == 6 else 9, 6 // groups, 3, 2))


def ordered(x: np.ndarray, letters: str, wanted: str) -> np.ndarray:
    return np.ascontiguousarray(x.transpose([letters.index(c) for c in wanted]))


def expected(x: np.ndarray, w: np.ndarray, settings: dict[str, Any]) -> np.ndarray:
    pairs = settings.get("padding", 0)
    pairs = [pairs] * 2 if isinstance(pairs, int) else list(pairs) * (2 // len(pairs))
    pairs = [(p, p) if isinstance(p, int) else p for p in pairs]
    stride, dilation = (np.broadcast_to(settings.get(key, 1), 2) for key in ("stride", "dilation"))
    each = zip(x.shape[2:], w.shape[2:], pairs, stride, dilation, strict=True)
    size = [(n + a + b - (k - 1) * d - 1) // s + 1 for n, k, (a, b), s, d in each]
    low = [a for a, _ in pairs]
    return formula(x, w, stride, low, dilation, size, settings.get("groups", 1))


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("layouts", LAYOUTS, ids="-".join)
def test_it_is_the_formula(name: str, layouts: tuple[str, str]) -> None:
    settings = SETTINGS[name]
    groups = settings.get("groups", 1)
    x, w = arrays_of(groups)
    want = expected(x, w, settings)
    layout, weight_layout = layouts
    if weight_layout == "HWOI":  # the outer channels are the inputs of all groups
        w = w.reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2).reshape(6, -1, *w.shape[2:])
        w = ordered(w, "IOHW", "HWOI")
    else:
        w = ordered(w, "OIHW", weight_layout)
    for got in eager_and_compiled(
        lambda x, w: nn.conv2d(x, w, **settings, layout=layout, weight_layout=weight_layout),
        ordered(x, "NCHW", layout), w,
    ):  # fmt: skip
        assert np.allclose(ordered(got, layout, "NCHW"), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("batch", [1, 3])
def test_three_axes(batch: int) -> None:
    x, w = RNG.standard_normal((batch, 2, 4, 5, 6)), RNG.standard_normal((3, 2, 2, 3, 2))
    want = formula(x, w, (1, 2, 1), (1, 0, 2), (2, 1, 1), (4, 2, 9))
    for got in eager_and_compiled(
        lambda x, w: nn.conv3d(
            x, w, stride=(1, 2, 1), padding=(1, 0, 2), dilation=(2, 1, 1)
        ), x, w,
    ):  # fmt: skip
        assert np.allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("stride", "taps", "dilation"), [(1, 3, 1), (2, 3, 1), (3, 4, 1), (2, 2, 3)]
)
def test_same_padding_keeps_the_size_over_the_stride(stride: int, taps: int, dilation: int) -> None:
    x, w = RNG.standard_normal((1, 2, 10)), RNG.standard_normal((2, 2, taps))
    total = max((-(-10 // stride) - 1) * stride + (taps - 1) * dilation + 1 - 10, 0)
    want = formula(x, w, (stride,), (total // 2,), (dilation,), (-(-10 // stride),))
    got = nn.conv1d(td.asarray(x), td.asarray(w), stride=stride, dilation=dilation, padding="same")
    assert np.allclose(np.asarray(got), want, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_accumulate_in_f32(dtype: str) -> None:
    ones = td.ones((1, 300, 3, 3), dtype=dtype)
    for function in (nn.conv2d, td.jit(nn.conv2d)):
        got = function(ones, td.ones((1, 300, 3, 3), dtype=dtype))
        assert float(got[0, 0, 0, 0]) == float(td.asarray(2700.0, dtype=dtype))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_bias_activation_and_residual_are_one_kernel_with_the_product(layout: str) -> None:
    x = td.asarray(RNG.standard_normal((2, 18, 10, 10) if layout == "NCHW" else (2, 10, 10, 18),
                                       dtype=np.float32))  # fmt: skip
    w, b = (td.asarray(RNG.standard_normal(s, dtype=np.float32)) for s in ((18, 18, 3, 3), (18,)))

    def block(x: Any, w: Any, b: Any) -> Any:
        return nn.relu(nn.conv2d(x, w, b, padding=1, layout=layout)) + x

    got, want = td.jit(block)(x, w, b), block(x, w, b)
    assert np.allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-5)
    names = [kernel.name for kernel in td.explain(block)(x, w, b).kernels]
    assert len(names) == 2, names  # the weight is packed, then one kernel does the rest


def test_results_do_not_depend_on_the_batch() -> None:
    x, w = (RNG.standard_normal(s, dtype=np.float32) for s in ((5, 20, 9, 9), (24, 20, 3, 3)))
    jitted = td.jit(lambda x, w: nn.conv2d(x, w, padding=1))
    all_of_them = np.asarray(jitted(x, w))
    assert np.asarray(jitted(x[3:4], w)).tobytes() == all_of_them[3:4].tobytes()


def test_the_batch_may_be_a_dim() -> None:
    """FIX-14: every image has its rows."""
    w = td.asarray(RNG.standard_normal((4, 3, 3, 3)))

    def step(x: Any) -> Any:
        y = nn.conv2d(x, w, padding=1, stride=2)
        return y, nn.im2col(y, 2), td.grad(lambda w: td.sum(nn.conv2d(x, w) ** 2))(w)

    jitted = td.jit(step, dims=({0: td.Dim("n", max=64)},))
    for batch in (1, 3):
        x = td.asarray(RNG.standard_normal((batch, 3, 6, 6)))
        for got, want in zip(jitted(x), step(x), strict=True):
            assert np.allclose(np.asarray(got), np.asarray(want), atol=1e-9)


# -- empty arrays ----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_empty_arrays_give_empty_or_zero_results(layout: str) -> None:
    def shaped(n: int, c: int, h: int, w: int) -> Any:
        return td.ones((n, c, h, w) if layout == "NCHW" else (n, h, w, c))

    for function in (nn.conv2d, td.jit(nn.conv2d, static_argnames=("layout", "padding"))):
        assert function(shaped(0, 2, 5, 5), td.ones((3, 2, 3, 3)), layout=layout).size == 0
        assert function(shaped(1, 2, 0, 5), td.ones((3, 2, 1, 3)), layout=layout).size == 0
        assert function(shaped(1, 2, 5, 5), td.ones((0, 2, 3, 3)), layout=layout).size == 0
        none = function(shaped(1, 0, 4, 5), td.ones((3, 0, 3, 3)), layout=layout)
        assert none.size == 3 * 2 * 3
        assert not np.asarray(none).any()
    empty = td.grad(lambda w: td.sum(nn.conv2d(shaped(0, 2, 5, 5), w, layout=layout)))
    assert not np.asarray(td.jit(empty)(td.ones((3, 2, 3, 3)))).any()


# -- errors ----------------------------------------------------------------------------------------

X, W = td.ones((1, 4, 5, 5)), td.ones((6, 4, 3, 3))
WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "lists of another length (FIX-1)": (
        lambda: nn.conv2d(X, W, stride=[1, 2, 3]), td.errors.SettingError, "1 entry or 2"),
    "padding of another length (FIX-1)": (
        lambda: nn.conv2d(X, W, padding=[1, 2, 3]), td.errors.SettingError, "1 entry or 2"),
    "dilation of no entry (FIX-1)": (
        lambda: nn.conv2d(X, W, dilation=[]), td.errors.SettingError, "1 entry or 2"),
    "a stride of 0": (lambda: nn.conv2d(X, W, stride=0), td.errors.SettingError, "at least 1"),
    "negative padding": (
        lambda: nn.conv2d(X, W, padding=-1), td.errors.SettingError, "at least 0"),
    "integers (FIX-2)": (
        lambda: nn.conv2d(td.ones((1, 4, 5, 5), dtype="int32"), td.ones((6, 4, 3, 3), dtype="int32")
        ), td.errors.DtypeError, "takes floats"),
    "another rank (FIX-3)": (
        lambda: nn.conv2d(td.ones((1, 4, 5)), td.ones((6, 4, 3))), td.errors.ShapeError, "4 axes"),
    "taps of another rank (FIX-3)": (
        lambda: nn.conv1d(td.ones((1, 4, 5)), W), td.errors.ShapeError, "3 axes"),
    "four spatial axes (FIX-3)": (
        lambda: nn.conv_general_dilated(td.ones((1,) * 6), td.ones((1,) * 6), (1,) * 4, "VALID"),
        td.errors.ShapeError, "1 to 3"),
    "channels of x and weight (FIX-4)": (
        lambda: nn.conv2d(X, td.ones((6, 3, 3, 3))), td.errors.ShapeError, r"\[6, 4, 3, 3\]"),
    "bias of another size (FIX-4)": (
        lambda: nn.conv2d(X, W, td.ones(5)), td.errors.ShapeError, "6 elements"),
    "channels in groups (FIX-13)": (
        lambda: nn.conv2d(X, td.ones((6, 1, 3, 3)), groups=3), td.errors.ShapeError,
        "4 channels of x are not 3 equal groups"),
    "outputs in groups (FIX-13)": (
        lambda: nn.conv2d(X, td.ones((7, 2, 3, 3)), groups=2), td.errors.ShapeError,
        "7 outputs are not 2 equal groups"),
    "a window that does not fit (FIX-13)": (
        lambda: nn.conv2d(X, td.ones((6, 4, 7, 7))), td.errors.ShapeError, "window of 7"),
    "an unknown layout": (
        lambda: nn.conv2d(X, W, layout="CNHW"), td.errors.SettingError, "NCHW or NHWC"),
    "an unknown order of a weight": (
        lambda: nn.conv2d(X, W, weight_layout="OHWI"), td.errors.SettingError, "OIHW or IOHW"),
    "an unknown padding": (
        lambda: nn.conv2d(X, W, padding="full"), td.errors.SettingError, "'SAME' or 'VALID'"),
    "output_padding of a stride (FIX-15)": (
        lambda: nn.conv_transpose2d(X, td.ones((4, 2, 3, 3)), output_padding=1),
        td.errors.SettingError, "less than stride"),
    "a transpose of other channels (FIX-15)": (
        lambda: nn.conv_transpose2d(X, td.ones((5, 2, 3, 3))), td.errors.ShapeError, "weight"),
    "a transpose with one entry too many (FIX-15)": (
        lambda: nn.conv_transpose1d(td.ones((1, 4, 5)), td.ones((4, 2, 3)), stride=(1, 2)),
        td.errors.SettingError, "1 entry"),
    "a stride that is no whole number": (
        lambda: nn.conv2d(X, td.ones((2, 4, 3, 3)), stride=cast("Any", 1.5)),
        td.errors.SettingError, "stride: expected a whole number or a list of them, got 1.5"),
    "a padding that is no whole number": (
        lambda: nn.conv2d(X, td.ones((2, 4, 3, 3)), padding=cast("Any", 0.5)),
        td.errors.SettingError, "padding: expected for each axis a number or a pair"),
}  # fmt: skip


def test_whole_numbers_of_numpy_are_settings() -> None:
    x, w, two = td.ones((1, 4, 5, 5)), td.ones((4, 2, 3, 3)), np.int64(2)
    settings = {"stride": two, "padding": np.array([1, 2]), "groups": two}
    got = nn.conv2d(x, w, **cast("Any", settings))
    np.testing.assert_array_equal(got, nn.conv2d(x, w, stride=2, padding=(1, 2), groups=2))
    np.testing.assert_array_equal(nn.max_pool2d(x, cast("Any", two)), nn.max_pool2d(x, 2))
    np.testing.assert_array_equal(nn.resize(x, cast("Any", two)), nn.resize(x, 2))


@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str) -> None:
    function, kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
        function()
    with pytest.raises(kind, match=message):
        td.jit(function)()


# -- derivatives -----------------------------------------------------------------------------------

Function = Any
DERIVED: dict[str, tuple[Function, tuple[int, ...], tuple[int, ...]]] = {
    "strides, pads, dilation, groups": (
        lambda x, w: nn.conv2d(x, w, stride=(2, 1), padding=((1, 0), (2, 1)), dilation=(1, 2),
                               groups=3), (2, 3, 5, 7), (6, 1, 3, 2)),
    "channels last": (
        lambda x, w: nn.conv2d(x, w, stride=2, padding=1, layout="NHWC", weight_layout="HWIO"),
        (2, 5, 7, 3), (3, 3, 3, 2)),
    "one axis": (lambda x, w: nn.conv1d(x, w, padding=1, stride=3), (2, 3, 11), (2, 3, 4)),
    "three axes": (lambda x, w: nn.conv3d(x, w, stride=2), (1, 2, 3, 4, 5), (2, 2, 2, 1, 3)),
    "a transpose": (
        lambda x, w: nn.conv_transpose2d(x, w, stride=(2, 3), padding=1, output_padding=(1, 2),
                                         groups=2), (2, 4, 3, 4), (4, 3, 3, 2)),
    "depthwise": (lambda x, w: nn.conv2d(x, w, padding=1, groups=3), (2, 3, 5, 7), (3, 1, 3, 3)),
    "one tap": (lambda x, w: nn.conv2d(x, w), (2, 3, 5, 7), (2, 3, 1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", DERIVED)
def test_derivatives_are_differences(name: str) -> None:
    """In float64: both operands, both modes, both orders, eager and compiled."""
    function, *shapes = DERIVED[name]
    x, w, dx, dw = (td.asarray(RNG.standard_normal(shape)) for shape in shapes * 2)
    ct = td.asarray(RNG.standard_normal(function(x, w).shape))

    def loss(x: Any, w: Any) -> Any:
        return td.sum(ct * function(x, w) ** 2)

    step = 1e-6
    slope = (loss(x + step * dx, w + step * dw) - loss(x - step * dx, w - step * dw)) / (2 * step)
    for grad in (td.grad(loss, argnums=(0, 1)), td.jit(td.grad(loss, argnums=(0, 1)))):
        gx, gw = grad(x, w)
        assert np.isclose(float(td.sum(gx * dx) + td.sum(gw * dw)), float(slope), rtol=1e-6)
    tangent = td.jit(lambda x, w, dx, dw: td.jvp(loss, (x, w), (dx, dw))[1])(x, w, dx, dw)
    assert np.isclose(float(tangent), float(slope), rtol=1e-6)

    def along(x: Any, w: Any) -> Any:
        gx, gw = td.grad(loss, argnums=(0, 1))(x, w)
        return td.sum(gx * dx) + td.sum(gw * dw)

    second = (along(x + step * dx, w + step * dw) - along(x - step * dx, w - step * dw)) / (
        2 * step
    )
    gx, gw = td.jit(td.grad(along, argnums=(0, 1)))(x, w)
    assert np.isclose(float(td.sum(gx * dx) + td.sum(gw * dw)), float(second), rtol=1e-5)


def test_windows_go_back_to_where_they_came_from() -> None:
    x = td.asarray(RNG.standard_normal((2, 3, 5, 4)))
    back = td.jit(td.grad(lambda x: td.sum(nn.im2col(x, 3, padding=1))))(x)
    counts = np.asarray(td.grad(lambda x: td.sum(nn.conv2d(x, td.ones((1, 3, 3, 3)), padding=1)))(
        td.astype(x, "float32")))  # fmt: skip
    assert np.array_equal(np.asarray(back), counts)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_vmap_is_a_loop(axes: tuple[int | None, int | None], layout: str) -> None:
    weight_layout = "OIHW" if layout == "NCHW" else "HWIO"

    def function(x: Any, w: Any) -> Any:
        y = nn.conv2d(x, w, padding=1, groups=2, layout=layout, weight_layout=weight_layout)
        return td.grad(lambda x, w: td.sum(
            nn.conv2d(x, w, padding=1, groups=2, layout=layout, weight_layout=weight_layout) ** 2
        ), argnums=(0, 1))(x, w), y  # fmt: skip

    x = RNG.standard_normal((3, 2, 4, 5, 5) if layout == "NCHW" else (3, 2, 5, 5, 4))
    w = RNG.standard_normal((3, 6, 2, 3, 3) if layout == "NCHW" else (3, 3, 3, 2, 6))
    rows = [(a if i is not None else a[0]) for a, i in zip((x, w), axes, strict=True)]
    batch = td.jit(td.vmap(function, in_axes=axes))(*(td.asarray(r) for r in rows))
    for i in range(3):
        one = function(
            *(td.asarray(r if a is None else r[i]) for r, a in zip(rows, axes, strict=True))
        )
        for got, want in zip((*batch[0], batch[1]), (*one[0], one[1]), strict=True):
            assert np.allclose(np.asarray(got)[i], np.asarray(want), atol=1e-9)


def test_a_general_convolution_is_that_of_any_order() -> None:
    x, w = RNG.standard_normal((2, 5, 6, 3)), RNG.standard_normal((3, 2, 3, 4))
    numbers = ("NHWC", "HWIO", "NCHW")
    got = td.jit(
        lambda x, w: nn.conv_general_dilated(
            x, w, (2, 1), [(1, -1), (2, 0)], lhs_dilation=(1, 2), rhs_dilation=(1, 2),
            dimension_numbers=numbers,
        )
    )(td.asarray(x), td.asarray(w))  # fmt: skip
    first = x.transpose(0, 3, 1, 2)
    apart = np.zeros((2, 3, 5, 11))
    apart[..., ::2] = first
    kept = np.pad(apart[:, :, :-1], ((0, 0), (0, 0), (1, 0), (2, 0)))
    want = formula(kept, w.transpose(3, 2, 0, 1), (2, 1), (0, 0), (1, 2), got.shape[2:])
    assert np.allclose(np.asarray(got), want, atol=1e-12)
