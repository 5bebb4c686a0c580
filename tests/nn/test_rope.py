"""Rotary embeddings: the vectors of the specification, layouts and tables against the formula in
float64, derivatives, and what does not fit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.nn import axial_rope2d, rope, rope_tables

RNG = np.random.default_rng(5)
ANGLES = np.array([[0.0, 0.0], [math.pi / 2, math.pi / 6]])
DTYPES = [("float64", 2e-6), ("float32", 1e-5)]
B, S, H, D = 3, 5, 2, 6


def formula(x: np.ndarray, angles: np.ndarray, width: int, interleaved: bool) -> np.ndarray:
    """x [B,S,H,D], angles [B or 1, S, pairs]."""
    out, pairs = x.copy(), width // 2
    for i in range(pairs):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + pairs)
        c, s = np.cos(angles[..., i])[..., None], np.sin(angles[..., i])[..., None]
        out[..., a] = x[..., a] * c - x[..., b] * s
        out[..., b] = x[..., b] * c + x[..., a] * s
    return out


@pytest.mark.parametrize(("dtype", "atol"), DTYPES)
def test_vectors(dtype: str, atol: float) -> None:
    x = np.broadcast_to(np.arange(1.0, 5.0), (1, 2, 1, 4)).astype(dtype)
    tables = [f(ANGLES).astype(dtype) for f in (np.cos, np.sin)]
    for apply in (rope, td.jit(rope)):
        got = np.asarray(apply(x, *tables))[0, :, 0]
        want = [[1, 2, 3, 4], [-3, -0.267949, 1, 4.464102]]
        np.testing.assert_allclose(got, want, atol=atol)
    got = np.asarray(rope(x, *tables, rotary_dim=2))[0, 1, 0]
    np.testing.assert_allclose(got, [-2, 1, 3, 4], atol=atol)
    gradient = td.grad(lambda x: td.sum(rope(x, *tables)))(x)
    want = [[1, 1, 1, 1], [1, 1.366025, -1, 0.366025]]
    np.testing.assert_allclose(np.asarray(gradient)[0, :, 0], want, atol=atol)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("width", [6, 4, 0])
def test_layouts_give_the_formula(width: int, interleaved: bool) -> None:
    x, angles = RNG.standard_normal((B, S, H, D)), RNG.standard_normal((S + 2, D // 2))
    want = formula(x, angles[None, :S], width, interleaved)
    settings: dict[str, Any] = {"rotary_dim": width, "interleaved": interleaved}
    for columns in {D // 2, width // 2}:  # rows as wide as a head, or as what turns
        cos, sin = np.cos(angles[:, :columns]), np.sin(angles[:, :columns])
        np.testing.assert_allclose(np.asarray(rope(x, cos, sin, **settings)), want, atol=1e-14)
        turned = rope(np.swapaxes(x, 1, 2), cos, sin, layout="bnsh", **settings)
        np.testing.assert_allclose(np.swapaxes(np.asarray(turned), 1, 2), want, atol=1e-14)
        flat = rope(x.reshape(B, S, H * D), cos, sin, layout="bsh", head_dim=D, **settings)
        np.testing.assert_allclose(np.asarray(flat).reshape(want.shape), want, atol=1e-14)
        alone = td.jit(lambda x, c, s: rope(x, c, s, **settings))(x[1], cos, sin)
        np.testing.assert_allclose(np.asarray(alone), want[1], atol=1e-14)


def test_positions_choose_rows() -> None:
    x, angles = RNG.standard_normal((B, S, H, D)), RNG.standard_normal((20, D // 2))
    cos, sin = np.cos(angles), np.sin(angles)
    at = RNG.integers(0, 20, (B, S))
    want = formula(x, angles[at], D, False)
    np.testing.assert_allclose(np.asarray(rope(x, cos, sin, positions=at)), want, atol=1e-14)
    rows = rope(x, cos[at], sin[at])  # tables with a batch
    np.testing.assert_allclose(np.asarray(rows), want, atol=1e-14)
    shifted = td.jit(lambda x, p: rope(x, cos, sin, positions=p))(x, np.int32(7))
    want = formula(x, angles[None, 7 : 7 + S], D, False)
    np.testing.assert_allclose(np.asarray(shifted), want, atol=1e-14)
    with pytest.raises(IndexError):
        rope(x, cos, sin, positions=17)


def test_derivatives_by_x_and_by_the_tables() -> None:
    x, angles, weights = (RNG.standard_normal(s) for s in ((2, 3, 1, 4), (3, 2), (2, 3, 1, 4)))
    operands = (x, np.cos(angles), np.sin(angles))

    def weighted(*operands: Any) -> Any:
        return td.sum(td.sin(rope(*operands)) * weights)

    gradients = td.jit(td.grad(weighted, argnums=(0, 1, 2)))(*operands)
    step = [RNG.standard_normal(o.shape) for o in operands]
    along = sum(np.sum(np.asarray(g) * d) for g, d in zip(gradients, step, strict=True))
    above, below = (
        float(weighted(*(o + h * d for o, d in zip(operands, step, strict=True))))
        for h in (1e-6, -1e-6)
    )
    np.testing.assert_allclose(along, (above - below) / 2e-6, atol=1e-6)
    _, tangent = td.jvp(weighted, operands, tuple(step))
    np.testing.assert_allclose(float(tangent), along, atol=1e-9)
    second = td.hessian(lambda x: weighted(x, *operands[1:]))(x)
    assert second.shape == (*x.shape, *x.shape)


def test_halves_round_once_and_batches_are_vmap() -> None:
    x = RNG.standard_normal((2, 3, 2, 8)).astype(np.float16)
    cos, sin = rope_tables(3, 8)
    got = rope(x, cos, sin)
    wide = np.asarray(rope(x.astype(np.float32), cos, sin)).astype(np.float16)
    assert got.dtype is td.float16 and np.asarray(got).tobytes() == wide.tobytes()
    rows = td.vmap(lambda x: rope(x, cos, sin))(x)
    assert np.asarray(rows).tobytes() == wide.tobytes()


def test_tables() -> None:
    cos, sin = rope_tables(4, 8, base=100.0, dtype="float64")
    angles = np.arange(4)[:, None] * 100.0 ** (-np.arange(0, 8, 2) / 8)
    np.testing.assert_allclose(np.asarray(cos), np.cos(angles), atol=1e-15)
    np.testing.assert_allclose(np.asarray(sin), np.sin(angles), atol=1e-15)
    chosen = td.jit(lambda p: rope_tables(p, 8, base=100.0)[0])(np.int32([3, 0]))
    np.testing.assert_allclose(np.asarray(chosen), np.cos(angles)[[3, 0]], atol=1e-6)


@pytest.mark.parametrize(
    ("scaling", "fastest", "slowest", "amplitude"),
    [
        ({"rope_type": "linear", "factor": 4.0}, 0.25, 0.25, 1.0),
        ({"rope_type": "ntk", "factor": 4.0}, 1.0, 0.25, 1.0),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048},
            1.0, 0.25, 0.1 * math.log(4) + 1,
        ),
        (
            {
                "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192,
                "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            },
            1.0, 1 / 8, 1.0,
        ),
    ],
)  # fmt: skip
def test_scaling(scaling: Any, fastest: float, slowest: float, amplitude: float) -> None:
    """The fastest pair keeps its speed where the rule says so, the slowest is interpolated."""
    size, base = 64, 500000.0
    _, sin = rope_tables(np.array([1e-3]), size, base=base, scaling=scaling, dtype="float64")
    got = np.arcsin(np.asarray(sin)[0] / amplitude) / 1e-3
    plain = base ** (-np.arange(0, size, 2) / size)
    np.testing.assert_allclose(got[0] / plain[0], fastest, rtol=1e-6)
    np.testing.assert_allclose(got[-1] / plain[-1], slowest, rtol=1e-6)
    assert (np.diff(got) <= 0).all()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"rotary_dim": 3}, "even"),
        ({"rotary_dim": 8}, "at most"),
        ({"layout": "bhsd"}, "layout"),
        ({"x": np.zeros((B, S, H * D)), "layout": "bsh", "head_dim": 5}, "whole heads"),
        ({"x": np.zeros((B, S, H * D)), "layout": "bsh"}, "whole heads"),
        ({"cos": np.zeros((2, D // 2))}, "no row for the last of 5"),
        ({"sin": np.zeros((S, D))}, "does not fit"),
        ({"x": np.zeros((B, S, H, D), np.int32)}, "floats"),
        ({"positions": np.zeros((B, S + 1), np.int32)}, "positions"),
        ({"positions": np.zeros(S)}, "integers"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], text: str) -> None:
    given = {
        "x": np.zeros((B, S, H, D)),
        "cos": np.zeros((S, D // 2)),
        "sin": np.zeros((S, D // 2)),
    }
    given.update(change)
    with pytest.raises(td.errors.TetradError, match=text):
        rope(given.pop("x"), given.pop("cos"), given.pop("sin"), **given)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "long"},
        {"rope_type": "linear"},
        {"rope_type": "linear", "factor": -1.0},
        {"rope_type": "yarn", "factor": 2.0},
        {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 8,
         "low_freq_factor": 4, "high_freq_factor": 1},
    ],
)  # fmt: skip
def test_scaling_that_cannot_be(scaling: Any) -> None:
    with pytest.raises(td.errors.TetradError, match="rope_tables"):
        rope_tables(4, 8, scaling=scaling)


# -- two axes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "atol"), DTYPES)
def test_axial_vectors(dtype: str, atol: float) -> None:
    x = np.broadcast_to(np.array([1.0, 0, 1, 0]), (1, 4, 4)).astype(dtype)
    c, s = 0.540302, 0.841471
    want = [[1, 0, 1, 0], [c, s, 1, 0], [1, 0, c, s], [c, s, c, s]]
    got = axial_rope2d(x, end_x=2, end_y=2, num_heads=1)
    np.testing.assert_allclose(np.asarray(got)[0], want, atol=atol)
    x = np.broadcast_to(np.array([1.0, 0, 1, 0, 0, 1, 0, 1]), (1, 2, 8)).astype(dtype)
    got = axial_rope2d(x, end_x=1, end_y=2, num_heads=1, theta=100.0)
    want = [1, 0, 1, 0, -0.841471, 0.540302, -0.099833, 0.995004]
    np.testing.assert_allclose(np.asarray(got)[0, 1], want, atol=atol)


@pytest.mark.parametrize("repeat", ["repeat", "tile"])
def test_axial_batches_and_both_ways_to_repeat(repeat: str) -> None:
    """FIX-18 and FIX-34: batches are turned alike; places come r times each, or the grid does."""
    ex, ey, r, heads, size = 3, 2, 2, 2, 8
    x = RNG.standard_normal((3, ex * ey * r, heads * size))
    turn = td.jit(lambda x: axial_rope2d(
        x, end_x=ex, end_y=ey, num_heads=heads, repeat_factor=r, repeat=repeat
    ))  # fmt: skip
    got = np.asarray(turn(x)).reshape(3, ex * ey * r, heads, size)
    once = [axial_rope2d(x[:, places], end_x=ex, end_y=ey, num_heads=heads) for places in (
        (slice(0, None, 2), slice(1, None, 2)) if repeat == "repeat"
        else (slice(0, ex * ey), slice(ex * ey, None))
    )]  # fmt: skip
    pieces = [np.asarray(part).reshape(3, ex * ey, heads, size) for part in once]
    want = (
        np.stack(pieces, 2).reshape(got.shape) if repeat == "repeat" else np.concatenate(pieces, 1)
    )
    np.testing.assert_allclose(got, want, atol=1e-14)
    back = td.grad(lambda x: td.sum(td.square(turn(x))))(x)
    np.testing.assert_allclose(np.asarray(back), 2 * x, atol=1e-12)  # turning keeps lengths


@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ((1, 5, 8), {}),
        ((1, 4, 6), {}),
        ((4, 8), {}),
        ((1, 4, 8), {"num_heads": 3}),
        ((1, 4, 8), {"repeat": "both"}),
        ((1, 4, 8), {"repeat_factor": 2}),
    ],
)
def test_axial_what_does_not_fit(shape: tuple[int, ...], settings: dict[str, Any]) -> None:
    with pytest.raises(td.errors.TetradError, match="axial_rope2d"):
        axial_rope2d(np.zeros(shape), **{"end_x": 2, "end_y": 2, "num_heads": 1, **settings})
