"""Attention over arrays: the vectors of the specification, every way of hiding keys against a plain
formula, odd sizes, and the same bits however rows, batches, blocks, tiles and threads are put
together."""

from __future__ import annotations

from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiled import difference, run, run_on_evaluator
from tests.ops.caches import interleaved
from tetrad.backends.cpu.executable import Executable
from tetrad.backends.cpu.isa.x86_64 import BASELINE, V3, V4
from tetrad.compiler.driver import compile_graph
from tetrad.compiler.pipeline import lower_graph
from tetrad.core.dtypes import DType, as_dtype, bf16, f16, f32, f64
from tetrad.core.errors import DtypeError, SettingError, ShapeError
from tetrad.core.sizes import plain
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_graph, make_parameter
from tetrad.graph.nodes import Graph
from tetrad.kernel.verify import verify
from tetrad.lower.lower import Lowerer
from tetrad.ops.attention.op import attention
from tetrad.schedule.evaluate import evaluate as evaluate_schedule
from tetrad.schedule.nodes import programs_of

Array = np.ndarray
RNG = np.random.default_rng(7)
HALF = 2**-0.5
Q = np.float32([[1, 0], [0, 1], [1, 1]]).reshape(1, 3, 1, 2)
K = np.float32([[1, 0], [0, 1], [1, -1]]).reshape(1, 3, 1, 2)
V = np.float32([[1, 2], [3, 4], [5, 6]]).reshape(1, 3, 1, 2)
BIAS = np.float32([[0, 1, 0], [0, 0, 0], [-1, 0, 2]]).reshape(1, 1, 3, 3)
CAUSAL = [[1, 2], [2.339523, 3.339523], [2.593327, 3.593327]]


def attend(*operands: Array, **settings: Any) -> Array:
    found: Array = attention(*operands, **{"layout": "bsnh", "scale": HALF, **settings})[0]
    return found


@pytest.mark.parametrize(
    ("optional", "settings", "want"),
    [
        ((), {}, [[3, 4], [2.712068, 3.712068], [2.593327, 3.593327]]),
        ((), {"causal": "top_left"}, CAUSAL),
        ((), {"causal": "top_left", "before": 0}, V.reshape(3, 2)),
        ((), {"causal": "top_left", "before": 1}, [*CAUSAL[:2], [3.660477, 4.660477]]),
        (
            (np.array([True, True, False]).reshape(1, 1, 1, 3),),
            {"given": ("mask",)},
            [[1.660477, 2.660477], [2.339523, 3.339523], [2, 3]],
        ),
        ((np.zeros((1, 1, 1, 1), bool),), {"given": ("mask",)}, np.zeros((3, 2))),
        (
            (BIAS,),
            {"given": ("bias",)},
            [[3, 4], [2.712068, 3.712068], [4.307247, 5.307247]],
        ),
    ],
)
def test_masks_of_the_specification(
    optional: tuple[Array, ...], settings: dict[str, Any], want: Any
) -> None:
    for layout in ("bsnh", "bnsh"):
        q, k, v = (x if layout == "bsnh" else x.swapaxes(1, 2) for x in (Q, K, V))
        found = attend(q, k, v, *optional, **settings, layout=layout)
        np.testing.assert_allclose(found.reshape(3, 2), want, atol=1e-6)


def test_alignment_scale_softcap_and_groups_of_the_specification() -> None:
    last = attend(Q[:, :2], K, V, causal="bottom_right").reshape(2, 2)
    np.testing.assert_allclose(last, [[1.660477, 2.660477], [2.712068, 3.712068]], atol=1e-6)
    eye = np.eye(2, dtype=np.float32).reshape(1, 2, 1, 2)
    scaled = attend(eye, eye, V[:, :2], scale=1.0).reshape(2, 2)
    np.testing.assert_allclose(scaled, [[1.537883, 2.537883], [2.462117, 3.462117]], atol=1e-6)
    capped = attend(eye, eye, V[:, :2], softcap=1.0).reshape(2, 2)
    np.testing.assert_allclose(capped, [[1.704639, 2.704639], [2.295361, 3.295361]], atol=1e-6)
    q = np.float32([[1, 0, 0, 1], [0, 1, 1, 0]]).reshape(1, 2, 2, 2)
    want = [[1.660477, 2.660477, 2.339523, 3.339523], [2.339523, 3.339523, 1.660477, 2.660477]]
    np.testing.assert_allclose(attend(q, eye, V[:, :2]).reshape(2, 4), want, atol=1e-6)


# -- compiled --------------------------------------------------------------------------------------


def operands(
    sizes: tuple[int, ...], dtype: DType = f32, given: tuple[str, ...] = (), seed: int = 0
) -> list[Array]:
    """q, k, v of sizes B, T, S, N, G, D, W, and the optional operands that are given."""
    rng, (b, t, s, n, g, d, w) = np.random.default_rng(seed), sizes
    made = [
        rng.standard_normal(shape).astype(dtype.np)
        for shape in ((b, t, n, d), (b, s, g, d), (b, s, g, w))
    ]
    other = {
        "bias": lambda: rng.standard_normal((b, 1, t, s)).astype(dtype.np),
        "mask": lambda: rng.random((1, n, t, s)) < 0.8,
        "query_lengths": lambda: rng.integers(0, t + 2, b).astype(np.int32),
        "key_lengths": lambda: rng.integers(0, s + 2, b),
        "key_starts": lambda: rng.integers(-1, s, (b, t)),
        "key_stops": lambda: rng.integers(0, s + 2, (1, t)).astype(np.int32),
    }
    return [*made, *(other[name]() for name in given)]


def graph_of(arrays: list[Array], settings: tuple[tuple[str, Any], ...]) -> Graph:
    kinds = [ArrayType(as_dtype(a.dtype), a.shape) for a in arrays]
    inputs = [make_parameter(kind, i, fresh=True) for i, kind in enumerate(kinds)]
    return make_graph("attention", inputs, attention(*inputs, **dict(settings)))


@cache
def compiled(graph: Graph) -> Executable:
    return compile_graph(graph)


def as_settings(**settings: Any) -> tuple[tuple[str, Any], ...]:
    return tuple({"layout": "bsnh", "scale": 0.25, **settings}.items())


def results(arrays: list[Array], threads: int = 1, **settings: Any) -> list[Array]:
    return run(compiled(graph_of(arrays, as_settings(**settings))), arrays, {}, threads)


def assert_close(got: list[Array], arrays: list[Array], **settings: Any) -> None:
    """Within 32 units in the last place of the largest value; 2 where the result is a half."""
    want = attention(*arrays, **dict(as_settings(**settings)))
    eps = 2.0**-52 if arrays[0].dtype == np.float64 else 2.0**-23
    top = float(np.abs(arrays[2].astype(np.float64)).max(initial=1.0))
    half = {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(arrays[0].dtype.name, 0.0)
    for found, meant, slack in zip(got, want, (half, 0.0), strict=True):
        np.testing.assert_allclose(
            found.astype(np.float64), meant.astype(np.float64), rtol=slack * 2,
            atol=32 * eps * max(top, 8.0),
        )  # fmt: skip


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"causal": "top_left"},
    "bottom right": {"causal": "bottom_right"},
    "window": {"causal": "bottom_right", "before": 40},
    "both sides": {"before": 3, "after": 20},
    "behind": {"after": -2},
    "softcap": {"causal": "top_left", "softcap": 1.5},
    "mask": {"given": ("mask",)},
    "bias": {"given": ("bias",)},
    "lengths": {"given": ("query_lengths", "key_lengths")},
    "packed": {"given": ("key_starts", "key_stops")},
    "all": {
        "given": ("bias", "mask", "query_lengths", "key_lengths", "key_starts"),
        "causal": "top_left", "before": 100,
    },
}  # fmt: skip


@pytest.mark.parametrize("dtype", [f32, f64, f16, bf16], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_hiding(way: str, dtype: DType) -> None:
    settings = WAYS[way]
    arrays = operands((2, 21, 290, 4, 2, 8, 5), dtype, settings.get("given", ()))
    assert_close(results(arrays, **settings), arrays, **settings)


@pytest.mark.parametrize("way", ["causal", "packed", "all"])
def test_machine_code_is_the_evaluator(way: str) -> None:
    """Which looks for races, too."""
    settings = WAYS[way]
    arrays = operands((1, 5, 258, 2, 1, 3, 18), f32, settings.get("given", ()))
    program = compiled(graph_of(arrays, as_settings(**settings)))
    for each in programs_of(program.schedule):
        verify(each)
    for got, want in zip(
        run(program, arrays, {}, 2), run_on_evaluator(program, arrays), strict=True
    ):
        assert difference(got, want) is None


EDGES = (0, 1, 3, 17, 255, 256, 257)


@cache
def any_size(**settings: Any) -> Any:
    t, s = td.Dim("t", max=512), td.Dim("s", max=512)
    function = partial(attention, **dict(as_settings(**settings)))
    return td.jit(lambda q, k, v: function(q, k, v), dims=({1: t}, {1: s}, {1: s}))


@pytest.mark.parametrize("times", EDGES)
def test_odd_sizes(times: int) -> None:
    """One program for all of them, and now and then one for this size alone, with the same bits."""
    for keys, settings in product(EDGES, ({}, {"causal": "bottom_right"})):
        arrays = operands((1, times, keys, 2, 2, 4, 3))
        found = [results(arrays, **settings)] if keys in (0, times, 17) or not times else []
        if keys and times:
            found.append([np.asarray(x) for x in any_size(**settings)(*arrays)])
        for got in found:
            assert_close(got, arrays, **settings)
            for one, other in zip(got, found[0], strict=True):
                assert difference(one, other) is None


@pytest.mark.parametrize("channels", [1, 15, 16, 33])
def test_odd_channels_in_both_layouts(channels: int) -> None:
    arrays = operands((2, 9, 40, 6, 3, channels, 34 - channels))
    turned = [x.swapaxes(1, 2).copy() for x in arrays]
    got = results(arrays, causal="top_left")
    assert_close(got, arrays, causal="top_left")
    for one, other in zip(results(turned, layout="bnsh", causal="top_left"), got, strict=True):
        assert difference(one.swapaxes(1, 2), other) is None


# -- the same bits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["causal", "window", "all"])
def test_a_query_does_not_depend_on_what_is_beside_it(way: str) -> None:
    """Neither on the batch, nor on other queries, heads or threads."""
    settings = WAYS[way]
    b, t, n = 2, 70, 4
    arrays = operands((b, t, 300, n, 2, 8, 16), f32, given := settings.get("given", ()))
    whole = results(arrays, threads=3, **settings)[0]
    for i in range(b):
        one = [x[i : i + 1] if x.shape[0] == b else x for x in arrays]
        assert difference(results(one, **settings)[0], whole[i : i + 1]) is None
    if settings["causal"] == "bottom_right":
        few = [arrays[0][:, 50:], *arrays[1:]]
        assert difference(results(few, **settings)[0], whole[:, 50:]) is None
    for head in range(n) if not given else ():
        group = slice(head // 2, head // 2 + 1)
        one = [arrays[0][:, :, head : head + 1], *(x[:, :, group] for x in arrays[1:3])]
        assert difference(results(one, **settings)[0], whole[:, :, head : head + 1]) is None


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_every_level_gives_the_same_bits(dtype: DType) -> None:
    arrays = operands((1, 7, 258, 1, 1, 2, 3), dtype)
    graph = graph_of(arrays, as_settings(causal="bottom_right"))
    found = [
        evaluate_schedule(lower_graph(graph, Lowerer(level.machine)), arrays, {})[0]
        for level in (BASELINE, V3, V4)
    ]
    for one in found[1:]:
        assert difference(one, found[0]) is None


def test_arrays_and_a_cache_give_the_same_bits() -> None:
    """One order for both forms: queries over arrays, and the same tokens over a cache."""
    q, k, v = operands((1, 300, 300, 6, 2, 16, 16))
    keys, values = (np.zeros((1, 1, 2, 512, 16), np.float32) for _ in range(2))
    keys[0, 0, :, :300], values[0, 0, :, :300] = (x[0].swapaxes(0, 1) for x in (k, v))
    slot, place = np.zeros(300, np.int32), np.arange(300, dtype=np.int32)
    cached = td.jit(lambda *a: attention(*a, scale=0.25, window=290, softcap=2.0))(
        q[0], interleaved(keys), values, np.int32(0), slot, place
    )
    dense = results([q, k, v], causal="top_left", before=289, softcap=2.0)[0]
    assert difference(dense[0], np.asarray(cached)) is None


# -- what is not finite ----------------------------------------------------------------------------


def test_hidden_keys_have_no_effect_and_seen_ones_give_nan() -> None:
    arrays = operands((1, 40, 300, 2, 1, 4, 4))
    clean = results(arrays, causal="bottom_right")
    dirty = [x.copy() for x in arrays]
    dirty[1][:, 270, :, 0], dirty[2][:, 271, :, 1] = -np.inf, np.inf
    got, logs = results(dirty, causal="bottom_right")
    assert difference(got[:, :10], clean[0][:, :10]) is None
    assert np.isnan(got[:, 10:]).all() and np.isnan(logs[:, 10:]).all()


def test_a_row_of_minus_infinity_gives_zeros_and_signs_of_zero_do_not_matter() -> None:
    arrays = operands((1, 3, 20, 1, 1, 4, 4), given=("bias",))
    arrays[3][:, :, 1] = -np.inf
    arrays[0][:, 2] = -0.0
    arrays[2][:, :, :, 3] = -0.0
    got, logs = results(arrays, given=("bias",))
    assert_close([got, logs], arrays, given=("bias",))
    assert not got[:, 1].any() and np.isneginf(logs[:, 1]).all()
    assert not np.signbit(got[..., 3]).any()


# -- memory and errors -----------------------------------------------------------------------------


def test_memory_is_linear_in_the_number_of_keys() -> None:
    """Largest array of the program, scratch included, when everything doubles."""

    def largest(length: int) -> int:
        kinds = [ArrayType(f32, (1, length, 2, 16))] * 3
        inputs = [make_parameter(kind, i, fresh=True) for i, kind in enumerate(kinds)]
        made = attention(*inputs, layout="bsnh", scale=0.25, causal="top_left")
        lowered = compile_graph(make_graph("attention", inputs, made)).schedule
        programs = programs_of(lowered)
        return max(plain(b.count) * b.dtype.nbytes for p in programs for b in p.buffers if b.count)

    assert largest(4096) <= 2 * largest(2048)


def test_what_does_not_fit() -> None:
    q, k, v, mask = operands((2, 3, 5, 4, 2, 4, 4), given=("mask",))
    parameters = {
        name: make_parameter(ArrayType(as_dtype(x.dtype), x.shape), i, fresh=True)
        for i, (name, x) in enumerate((("q", q), ("k", k), ("v", v), ("mask", mask)))
    }
    three = [parameters[name] for name in "qkv"]
    with pytest.raises(ShapeError, match="do not fit"):
        attention(three[0], three[2], three[0], layout="bsnh", scale=1.0)
    with pytest.raises(SettingError, match="layout"):
        attention(*three, layout="bhsd", scale=1.0)
    with pytest.raises(SettingError, match="causal"):
        attention(*three, layout="bsnh", scale=1.0, causal="yes")
    with pytest.raises(SettingError, match="given"):
        attention(*three, layout="bsnh", scale=1.0, given=("masks",))
    with pytest.raises(ShapeError, match=r"mask .* does not broadcast"):
        attention(*three, three[0], layout="bsnh", scale=1.0, given=("mask",))
    with pytest.raises(DtypeError, match="bias may not be bool"):
        attention(*three, parameters["mask"], layout="bsnh", scale=1.0, given=("bias",))
