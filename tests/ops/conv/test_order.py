"""Sums of convolutions have the order that docs/numerics.md states: compiled results are those of
the same fma chains in NumPy, to the bit; and plans, which no result depends on, are sensible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.backends.cpu.isa.x86_64 import V4
from tetrad.compiler.driver import compile_graph
from tetrad.core.dtypes import f32
from tetrad.core.machine import LANES
from tetrad.core.types import ArrayType
from tetrad.ops.conv.geometry import ConvGeometry, geometry_of
from tetrad.ops.conv.op import channels_first, conv_weight, met, surrounded
from tetrad.ops.conv.plan import STAGED_BYTES, plan_conv, plan_weight, staged_bytes

RNG = np.random.default_rng(11)
WIDE = np.longdouble  # holds a product of two f32 and a sum with a third nearly exactly


def fma(a: Any, b: Any, c: Any) -> Any:
    return (a.astype(WIDE) * b.astype(WIDE) + c.astype(WIDE)).astype(np.float32)


def form_of(x: np.ndarray, outputs: int, taps: tuple[int, int], **settings: Any) -> ConvGeometry:
    return geometry_of(ArrayType(f32, x.shape), outputs, taps, **settings)


def settings_of(size: tuple[int, int], last: bool, groups: int = 1) -> dict[str, Any]:
    return {
        "stride": (2, 1), "low": (1, 1), "dilation": (1, 1), "holes": (1, 1), "size": size,
        "groups": groups, "last": last, "weight": "oik", "flip": False,
    }  # fmt: skip


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def ordered(x: np.ndarray, last: bool) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("groups", [1, 6])
def test_a_convolution_is_one_chain_taps_first(last: bool, groups: int) -> None:
    x, w = numbers(2, 6, 9, 20), numbers(6, 6 // groups, 3, 3)
    form = form_of(x, 6, (3, 3), **settings_of((5, 20), False, groups))
    wide, before = surrounded(channels_first(x, form), form)
    want = np.zeros((2, groups, 6 // groups, 5, 20), np.float32)
    weights = w.reshape(groups, -1, *w.shape[1:])
    for i, j, c in np.ndindex(3, 3, 6 // groups):
        rows, columns = met(form.axes[0], i, before[0])[1], met(form.axes[1], j, before[1])[1]
        part = wide[:, :, c, rows, columns][:, :, None]
        want = fma(part, weights[None, :, :, c, i, j, None, None], want)
    layout = {"layout": "NHWC"} if last else {}
    got = td.jit(
        lambda x, w: td.nn.conv2d(x, w, stride=(2, 1), padding=1, groups=groups, **layout)
    )(ordered(x, last), w)
    assert np.array_equal(np.asarray(got), ordered(want.reshape(2, 6, 5, 20), last))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("groups", [1, 6])
def test_a_gradient_is_a_chain_for_every_image(last: bool, groups: int) -> None:
    x, y = numbers(2, 6, 9, 20), numbers(2, 6, 5, 20)
    settings = settings_of((5, 20), False, groups)
    form = form_of(x, 6, (3, 3), **settings)
    wide, before = surrounded(channels_first(x, form), form)
    results = channels_first(y, form)
    in_lanes = groups > 1 and not last  # of a row, place p goes to sum p % 16
    shape = (groups, 6 // groups, 6 // groups, 3, 3, LANES if in_lanes else 1)
    want = np.zeros(shape, np.float32)
    for image in range(2):
        sums = np.zeros(shape, np.float32)
        for row, column in np.ndindex(5, 20):
            part = wide[image, :, :, row * 2 : row * 2 + 3, column : column + 3]
            lane = column % LANES if in_lanes else 0
            factor = results[image, :, :, None, row, column][..., None, None]
            sums[..., lane] = fma(part[:, None], factor, sums[..., lane])
        want = want + sums
    while want.shape[-1] > 1:  # joined by halving
        half = want.shape[-1] // 2
        want = want[..., :half] + want[..., half:]
    settings["last"] = last
    got = td.jit(lambda x, y: conv_weight(x, y, taps=(3, 3), **settings))(
        td.asarray(ordered(x, last)), td.asarray(ordered(y, last))
    )
    assert before == (1, 1)
    assert np.array_equal(np.asarray(got), want[..., 0].reshape(6, 6 // groups, 3, 3))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_results_do_not_depend_on_the_box(layout: str) -> None:
    """A large image is cut into boxes, a part of it is one box."""
    x, w = numbers(1, 32, 70, 90), numbers(16, 32, 3, 3)
    last = layout == "NHWC"
    convolve = td.jit(lambda x, w: td.nn.conv2d(x, w, layout=layout))
    whole = np.asarray(convolve(ordered(x, last), w))
    part = np.asarray(convolve(ordered(x[:, :, 30:40, 20:33], last), w))
    whole = np.moveaxis(whole, -1, 1) if last else whole
    part = np.moveaxis(part, -1, 1) if last else part
    assert np.array_equal(whole[:, :, 30:38, 20:31], part)


def test_boxes_stay_near_and_rows_that_are_too_long_are_cut() -> None:
    machine = V4.machine
    x = np.zeros((1, 64, 56, 56), np.float32)
    settings = settings_of((56, 56), False) | {"stride": (1, 1)}
    form = form_of(x, 64, (3, 3), **settings)
    plan = plan_conv(form, f32, machine)
    assert staged_bytes(form, f32, plan.box) <= STAGED_BYTES
    assert plan.box[2] == 56
    assert 56 % plan.rows == 0
    line = np.zeros((1, 64, 1, 100_000), np.float32)
    settings = settings_of((1, 100_000), False) | {"stride": (1, 1), "low": (0, 1)}
    form = form_of(line, 64, (1, 3), **settings)
    assert staged_bytes(form, f32, plan_conv(form, f32, machine).box) <= STAGED_BYTES


POINTS = {  # batch, groups, channels of a group, outputs of a group, sizes, strides
    "flat": (2, 1, 24, 40, (13, 7), (1, 1)),
    "groups": (1, 2, 20, 33, (5, 9), (1, 1)),
    "strided": (2, 1, 24, 16, (9, 31), (2, 2)),
    "fewer than a tile": (1, 1, 24, 16, (1, 5), (1, 1)),
    "one axis": (3, 1, 24, 40, (100,), (3,)),
    "three axes": (1, 1, 24, 40, (3, 4, 5), (1, 1, 1)),
}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", POINTS)
def test_windows_of_one_element_read_in_place_and_staged_are_one_chain(
    name: str, last: bool
) -> None:
    batch, groups, inputs, outputs, sizes, strides = POINTS[name]
    x, w = numbers(batch, groups * inputs, *sizes), numbers(groups * outputs, inputs)
    met_x = x[(..., *(slice(None, None, s) for s in strides))]
    parts = met_x.reshape(batch, groups, inputs, -1)
    want = np.zeros((batch, groups, outputs, parts.shape[-1]), np.float32)
    for c in range(inputs):
        factors = w.reshape(groups, outputs, inputs)[None, :, :, c, None]
        want = fma(parts[:, :, None, c], factors, want)
    ct = numbers(batch, groups * outputs, *met_x.shape[2:])
    slopes = np.zeros((groups, outputs, inputs), np.float32)
    for image, y in zip(parts, ct.reshape(batch, groups, outputs, -1), strict=True):
        sums = np.zeros_like(slopes)
        for place in range(parts.shape[-1]):
            sums = fma(image[:, None, :, place], y[:, :, None, place], sums)
        slopes = slopes + sums
    rank = len(sizes)
    conv = {1: td.nn.conv1d, 2: td.nn.conv2d, 3: td.nn.conv3d}[rank]
    layout = ({1: "NWC", 2: "NHWC", 3: "NDHWC"} if last else {1: "NCW", 2: "NCHW", 3: "NCDHW"})[
        rank
    ]

    def both(x: Any, w: Any, ct: Any, *more: Any) -> Any:
        x = x + more[0] if more else x  # then it is computed as it is read
        y, pullback = td.vjp(
            lambda x, w: conv(x, w, stride=strides, groups=groups, layout=layout), x, w
        )
        return y, pullback(ct)[1]

    given = (ordered(x, last), w.reshape(*w.shape, *(1,) * rank), ordered(ct, last))
    for more in ((), (np.zeros((1,) * (rank + 2), np.float32),)):
        y, dw = td.jit(both)(*given, *more)
        assert np.array_equal(np.asarray(y), ordered(want.reshape(ct.shape), last))
        assert np.array_equal(np.asarray(dw).reshape(w.shape), slopes.reshape(w.shape))


@pytest.mark.parametrize("taps", [1, 3])
@pytest.mark.parametrize("width", [7, 36])
def test_what_follows_a_convolution_is_done_in_its_tiles(taps: int, width: int) -> None:
    x, w, bias, beside = (
        numbers(2, 9, width, 24), numbers(taps, taps, 24, 40), numbers(40), numbers(2, 9, width, 40)
    )  # fmt: skip

    def convolve(x: Any, w: Any) -> Any:
        return td.nn.conv2d(x, w, padding="SAME", layout="NHWC", weight_layout="HWIO")

    def block(x: Any, w: Any, bias: Any, beside: Any) -> Any:
        return td.nn.relu(convolve(x, w) + bias) + beside

    shape = [td.Spec(a.shape) for a in (x, w, bias, beside)]
    assert len(compile_graph(td.trace(block)(*shape)).schedule.steps) == 2  # and packing
    want = np.maximum(np.asarray(td.jit(convolve)(x, w)) + bias, 0) + beside
    assert np.array_equal(np.asarray(td.jit(block)(x, w, bias, beside)), want)


def test_what_is_read_where_it_lies() -> None:
    machine = V4.machine

    def plan(channels: int, last: bool, taps: int = 1, stride: int = 1) -> Any:
        settings = settings_of((56, 56), last) | {"stride": (stride,) * 2, "low": (0, 0)}
        size = 56 * stride + taps - 1
        x = (
            np.zeros((1, size, size, channels), np.float32)
            if last
            else np.zeros((1, channels, size, size), np.float32)
        )
        form = form_of(x, 64, (taps, taps), **settings)
        return plan_conv(form, f32, machine, True), plan_weight(form, f32, machine, True)

    forward, weight = plan(96, True)
    assert forward.in_place and weight.in_place
    assert forward.box == (1, 1, forward.box[2])  # places of all rows are one run
    assert plan(96, True, stride=2)[0].in_place
    forward, weight = plan(96, False)
    assert not forward.in_place and weight.in_place
    assert not any(found.in_place for found in plan(96, True, taps=3))
    assert not any(found.in_place for found in plan(4096, True))  # places would meet in a cache
    form = form_of(np.zeros((1, 56, 56, 96), np.float32), 64, (1, 1),
                   **settings_of((56, 56), True) | {"stride": (1, 1), "low": (0, 0)})  # fmt: skip
    assert not plan_conv(form, f32, machine).in_place


def test_a_known_weight_is_packed_when_the_program_is_compiled() -> None:
    w = td.asarray(numbers(4, 3, 3, 3))
    graph = td.trace(lambda x: td.nn.conv2d(x, w))(td.Spec((1, 3, 8, 8)))
    assert len(compile_graph(graph).schedule.steps) == 1
    graph = td.trace(lambda x, w: td.nn.conv2d(x, w))(td.Spec((1, 3, 8, 8)), td.Spec((4, 3, 3, 3)))
    assert len(compile_graph(graph).schedule.steps) == 2


@pytest.mark.parametrize("donated", [(), (0,)])
def test_what_is_read_where_it_lies_is_not_written_over(donated: tuple[int, ...]) -> None:
    """Each result could take the memory of the array that is added to it, which other places
    read."""
    x, w = numbers(2, 13, 15, 32), numbers(1, 1, 32, 32) / 8

    def blocks(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = td.nn.conv2d(x, w, layout="NHWC", weight_layout="HWIO") + x
        return x

    want = x.astype(np.float64)
    for _ in range(3):
        want = want @ w[0, 0].astype(np.float64) + want
    got = td.jit(blocks, donate_argnums=donated)(td.asarray(x.copy()), w)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())
