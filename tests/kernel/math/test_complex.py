"""Functions of complex numbers: parts within the declared ulps of the magnitude, special values as
in C99."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tetrad.core.dtypes import DType, f32, f64
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.math import complex as kc
from tetrad.kernel.math.ulps import COMPLEX_ULPS
from tetrad.kernel.nodes import If
from tetrad.kernel.verify import verify
from tetrad.ops.cases import joined

INF, NAN = math.inf, math.nan
EACH = [
    pytest.param(name, dtype, id=f"{name}-{dtype}") for name in kc.FUNCTIONS for dtype in (f32, f64)
]
NUMPY = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh, "pow": np.power, "abs": np.abs, "angle": np.angle, "divide": np.divide,
}  # fmt: skip
HAS_WIDE_OF_F64 = np.finfo(np.longdouble).nmant > np.finfo(np.float64).nmant


def compute(name: str, *parts: np.ndarray) -> np.ndarray:
    """The function on arrays of parts, by the kernel evaluator; a complex array."""
    (count,), dtype = parts[0].shape, f32 if parts[0].dtype == np.float32 else f64
    k = KernelBuilder(name)
    given = [k.buffer(f"x{i}", dtype, count=count) for i in range(len(parts))]
    made = [k.buffer(f"y{i}", dtype, "write", count) for i in range(2)]
    at = k.global_id()
    with k.when(at < count):
        for buffer, value in zip(
            made, kc.FUNCTIONS[name](k, *(k.load(b, at) for b in given)), strict=True
        ):
            k.store(buffer, at, value)
    program = k.finish()
    verify(program)
    memory = {b.name: p.copy() for b, p in zip(given, parts, strict=True)}
    memory |= {b.name: np.empty(count, dtype.np) for b in made}
    evaluate(program, memory, {}, (-(-count // 16), 1, 1))
    return joined(memory["y0"], memory["y1"])


def exact(name: str, *numbers: np.ndarray) -> np.ndarray:
    """The function in extended precision."""
    wide = [z.astype(np.clongdouble) for z in numbers]
    a, b = wide[0].real, wide[0].imag
    if name == "log1p":
        near = (np.abs(a) < 0.5) & (np.abs(b) < 0.5)
        length = np.where(near, np.log1p(a * (a + 2) + b * b) / 2, np.log(np.hypot(1 + a, b)))
        return joined(length, np.arctan2(b, 1 + a))
    if name == "expm1":
        return joined(
            np.expm1(a) * np.cos(b) - 2 * np.sin(b / 2) ** 2,
            np.where(b == 0, b, np.exp(a) * np.sin(b)),
        )
    if name in ("log2", "log10"):
        base = np.log(np.longdouble(2 if name == "log2" else 10))
        return joined(np.log(wide[0]).real / base, np.log(wide[0]).imag / base)
    return (NUMPY.get(name) or getattr(np, name))(*wide)


def points(dtype: DType, count: int, seed: int) -> list[np.ndarray]:
    """Around 1 and the unit circle, near the axes, ordinary ones, and any magnitude there is."""
    rng = np.random.default_rng(seed)

    def spread(low: int, high: int) -> np.ndarray:
        return rng.standard_normal(count) * np.exp2(rng.integers(low, high, count))

    beside, turn = (
        1 + spread(-30, -2),
        rng.uniform(-4, 4, count) * np.exp2(rng.integers(-20, 1, count)),
    )
    low, high = (-140, 125) if dtype is f32 else (-1060, 1020)
    one = rng.choice((-1, 1), count) * (1 + spread(-40, 0))
    pairs = [
        (spread(-20, 12), spread(-20, 12)),
        (beside * np.cos(turn), beside * np.sin(turn)),
        tuple(
            rng.choice((-1, 1), count) * np.exp2(rng.uniform(low, high, count)) for _ in range(2)
        ),
        (one, spread(-60, 0)),
        (spread(-60, 0), one),
        (spread(-20, 12), np.zeros(count)),
    ]
    with np.errstate(all="ignore"):
        return [np.concatenate(p).astype(dtype.np) for p in zip(*pairs, strict=True)]


@pytest.mark.parametrize(("name", "dtype"), EACH)
def test_error_in_units_of_the_magnitude(name: str, dtype: DType) -> None:
    if dtype is f64 and not HAS_WIDE_OF_F64:
        pytest.skip("longdouble is no wider than f64 here: no oracle")
    parts = points(dtype, 500, seed=1)
    rng = np.random.default_rng(2)
    if name == "divide":
        parts += [rng.permutation(p) for p in points(dtype, 500, seed=3)]
    if name == "pow":  # the bound is for |w log z| up to 200
        parts = [p[:1000] for p in parts]
        parts += [rng.uniform(-5, 5, 1000).astype(dtype.np) for _ in range(2)]
    got = compute(name, *parts)
    with np.errstate(all="ignore"):
        want = exact(name, *(joined(*parts[i : i + 2]) for i in range(0, len(parts), 2)))
        size, info = np.abs(want), np.finfo(dtype.np)
        unit = np.spacing(np.clip(size, info.tiny, info.max).astype(dtype.np)).astype(np.longdouble)
        apart = np.maximum(np.abs(got.real - want.real), np.abs(got.imag - want.imag)) / unit
    inside = size < info.max
    assert inside.mean() > 0.2
    assert (apart[inside] <= COMPLEX_ULPS[name][dtype]).all(), (np.nanmax(apart[inside]), name)


def test_nothing_overflows_on_the_way() -> None:
    big, tiny = 1e308, 1e-308
    cases = {
        ("abs", (big, big)): (1.414213562373095e308, 0.0),
        ("sqrt", (big, big)): (1.0986841134678098e154, 4.550898605622274e153),
        ("sqrt", (5e-324, 0.0)): (2.2227587494850775e-162, 0.0),
        ("log", (big, big)): (709.5427820588625, math.pi / 4),
        ("exp", (710.0, math.pi / 2 - 1e-3)): (2.2339943e305, 2.2339943e308),
        ("divide", (big, big, big, big)): (1.0, 0.0),
        ("divide", (tiny, tiny, tiny, -tiny)): (0.0, 1.0),
        ("divide", (5e-324, 0.0, 5e-324, 0.0)): (1.0, 0.0),
        ("reciprocal", (big, 0.0)): (1e-308, 0.0),
        ("sign", (big, big)): (math.sqrt(0.5), math.sqrt(0.5)),
        ("atanh", (1.0, 1e-300)): (345.7343, math.pi / 4),
        ("asin", (big, big)): (math.pi / 4, 710.23592924),
        ("tanh", (800.0, 1.0)): (1.0, 0.0),
    }
    for (name, parts), want in cases.items():
        got = compute(name, *(np.array([p]) for p in parts))[0]
        finite = [w for w in want if math.isfinite(w)]
        assert np.allclose(
            [got.real, got.imag], want, rtol=1e-6, atol=1e-6 * max(map(abs, finite))
        ), (name, parts, got)


VALUES = (0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 2.5, -0.5)
# Where C99 is silent or NumPy differs from it, our rule is in the docstring of the function.
OWN = ("divide", "pow", "reciprocal", "expm1")


@pytest.mark.parametrize("name", [n for n in kc.FUNCTIONS if n not in OWN])
def test_special_values_are_those_of_numpy(name: str) -> None:
    a, b = (np.array(v) for v in zip(*((x, y) for x in VALUES for y in VALUES), strict=True))
    got = compute(name, a, b)
    with np.errstate(all="ignore"):
        want = np.asarray(exact(name, joined(a, b))).astype(np.complex128)
    for x, y in ((got.real, want.real), (got.imag, want.imag)):
        with np.errstate(invalid="ignore"):
            assert ((x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) < 1e-13)).all()


@pytest.mark.parametrize("name", ["sqrt", "log", "asin", "acos", "atanh", "acosh"])
def test_signed_zeros_choose_the_side_of_a_cut(name: str) -> None:
    a, b = np.array([-2.0, -2.0, 2.0, 2.0, -0.5, -0.5]), np.array([0.0, -0.0] * 3)
    got, want = compute(name, a, b), exact(name, joined(a, b)).astype(np.complex128)
    assert np.allclose(got.real, want.real) and np.allclose(got.imag, want.imag)
    assert (np.signbit(got.imag) == np.signbit(want.imag)).all()


def test_sine_and_cosine_share_the_branch_of_huge_angles() -> None:
    k = KernelBuilder("both")
    x, y = k.buffer("x", f64, count=16), k.buffer("y", f64, "write", 16)
    re, im = kc.exp(k, k.load(x, k.lane()), k.load(x, k.lane()))
    k.store(y, k.lane(), re + im)
    assert sum(isinstance(instr, If) for instr in k.finish().body) == 1


def test_quotients_of_infinities_and_zeros() -> None:
    cases = {
        (1.0, 0.0, 0.0, 0.0): (INF, NAN),
        (1.0, 2.0, INF, NAN): (0.0, 0.0),
        (INF, 1.0, 2.0, 0.0): (INF, NAN),
        (0.0, 0.0, 3.0, 4.0): (0.0, 0.0),
    }
    for parts, want in cases.items():
        got = compute("divide", *(np.array([p]) for p in parts))[0]
        assert np.array_equal([got.real, got.imag], want, equal_nan=True), (parts, got)


def test_powers_of_zero_and_to_zero() -> None:
    cases = {
        (0.0, 0.0, 0.0, 0.0): (1, 0),
        (NAN, 0.0, 0.0, 0.0): (1, 0),
        (0.0, 0.0, 2.0, 1.0): (0, 0),
    }
    cases |= {(0.0, 0.0, -1.0, 0.0): (NAN, NAN), (0.0, 1.0, 2.0, 0.0): (-1, 0)}
    for parts, want in cases.items():
        got = compute("pow", *(np.array([p]) for p in parts))[0]
        assert np.allclose([got.real, got.imag], want, equal_nan=True, atol=1e-15), (parts, got)
