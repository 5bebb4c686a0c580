"""Compiled Fourier transforms: every way to run one gives the true result and the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compiled import difference, run, run_on_evaluator
from tests.norms import exact, line_errors
from tests.test_conformance import conforms, graph_of
from tetrad.backends.cpu.executable import Executable
from tetrad.backends.cpu.isa import LEVELS
from tetrad.backends.cpu.llvm import compile_object
from tetrad.backends.llvm.module import emit_module
from tetrad.backends.llvm.target import Target
from tetrad.compiler.driver import compile_graph
from tetrad.compiler.pipeline import lower_graph, optimise
from tetrad.core.dtypes import DType, as_dtype, c64, c128
from tetrad.core.op import Case, Op
from tetrad.lower.lower import Lowerer
from tetrad.ops.fft import kernel as lowering
from tetrad.ops.fft.op import fft, irfft, rfft
from tetrad.ops.fft.plan import (
    AT_ONCE,
    LEAST,
    convolution_length,
    pass_twiddles,
    radices,
    roots,
    smooth,
    split,
    split_cost,
)  # fmt: skip
from tetrad.schedule.evaluate import evaluate as evaluate_schedule
from tetrad.schedule.nodes import Launch

Array = np.ndarray
FORWARD = {"axis": 1, "inverse": False, "norm": "none"}


def numbers(shape: tuple[int, ...], dtype: DType, seed: int = 0) -> Array:
    parts = np.random.default_rng(seed).standard_normal((*shape, 2))
    values = parts[..., 0] + 1j * parts[..., 1] if dtype.is_complex else parts[..., 0]
    return values.astype(dtype.np)


def compiled(op: Op, x: Array, **params: Any) -> Executable:
    return compile_graph(graph_of(op, Case((x,), params)))


def result(op: Op, x: Array, **params: Any) -> Array:
    return run(compiled(op, x, **params), [x], threads=2)[0]


def worst(op: Op, x: Array, **params: Any) -> float:
    return float(line_errors(result(op, x, **params), exact(op, x, params), params["axis"]).max())


# -- values ----------------------------------------------------------------------------------------

LENGTHS = (1, 2, 3, 5, 12, 16, 17, 31, 97, 128, 1000)  # of spec 4.1
# around the split, without one, prime, in launches
MORE = (255, 256, 257, 343, 2187, 2197, 4096, 4099, 65536)


@pytest.mark.parametrize("n", LENGTHS)
def test_a_transform_is_the_sum_of_its_definition(n: int) -> None:
    x = numbers((2, n), c64)
    angles = -2 * np.pi * (np.outer(np.arange(n), np.arange(n)) % n) / n
    want = x.astype(c128.np) @ np.exp(1j * angles)
    got = result(fft, x, **FORWARD)
    assert np.linalg.norm(got - want) <= 1e-6 * np.linalg.norm(want)


@pytest.mark.parametrize("n", LENGTHS + MORE)
@pytest.mark.parametrize("dtype", [c64, c128], ids=str)
def test_a_transform_is_accurate_to_the_last_places(n: int, dtype: DType) -> None:
    assert worst(fft, numbers((1, n), dtype), axis=1, inverse=True, norm="ortho") <= fft.ulps[dtype]


@pytest.mark.parametrize("n", [1, 2, 3, 16, 34, 255, 512, 514, 4096])
@pytest.mark.parametrize("dtype", [c64, c128], ids=str)
def test_real_transforms_of_even_and_odd_lengths(n: int, dtype: DType) -> None:
    assert worst(rfft, numbers((3, n), dtype.real), axis=1, norm="none") <= rfft.ulps[dtype]
    half = numbers((3, n // 2 + 1), dtype)
    assert worst(irfft, half, axis=1, n=n, norm="backward") <= irfft.ulps[dtype]


@pytest.mark.parametrize(("n", "inner"), [(12, 2), (12, 8), (12, 19), (29, 2), (29, 19), (256, 9)])
def test_machine_code_is_the_evaluator_along_any_axis(n: int, inner: int) -> None:
    conforms(
        fft, Case((numbers((2, n, inner), c64),), {"axis": 1, "inverse": True, "norm": "forward"})
    )
    conforms(rfft, Case((numbers((1, n, inner), c64.real),), {"axis": 1, "norm": "ortho"}))
    conforms(
        irfft, Case((numbers((1, n // 2 + 1, inner), c64),), {"axis": 1, "n": n, "norm": "none"})
    )


@pytest.mark.parametrize(
    ("n", "dtype"), [(7, c64), (64, c128), (137, c64), (512, c64), (441, c64)], ids=str
)
def test_machine_code_is_the_evaluator_along_the_last_axis(n: int, dtype: DType) -> None:
    conforms(fft, Case((numbers((3, n), dtype),), FORWARD))
    conforms(rfft, Case((numbers((3, n), dtype.real),), {"axis": 1, "norm": "backward"}))
    conforms(
        irfft, Case((numbers((3, n // 2 + 1), dtype),), {"axis": 1, "n": n, "norm": "backward"})
    )


# -- the same bits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [15, 343, 512, 641])
def test_a_line_does_not_depend_on_the_lines_beside_it(n: int) -> None:
    x = numbers((19, n), c64)
    together = result(fft, x, **FORWARD)
    for i in (0, 7, 18):
        assert difference(result(fft, x[i : i + 1], **FORWARD), together[i : i + 1]) is None


@pytest.mark.parametrize("n", [30, 512, 641])
@pytest.mark.parametrize("inner", [3, 16, 20])
def test_a_line_does_not_depend_on_where_its_axis_is(n: int, inner: int) -> None:
    x = numbers((inner, n), c64)
    across = result(fft, np.ascontiguousarray(x.T), axis=0, inverse=False, norm="none")
    assert difference(np.ascontiguousarray(across.T), result(fft, x, **FORWARD)) is None


@pytest.mark.parametrize(
    ("op", "n"), [(fft, 256), (fft, 137), (rfft, 576), (rfft, 274), (rfft, 441)]
)
def test_many_launches_are_one(op: Op, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = numbers((2, n), c64 if op is fft else c64.real)
    params: dict[str, Any] = FORWARD if op is fft else {"axis": 1, "norm": "none"}
    assert_launches_are_one(op, x, params, monkeypatch)


@pytest.mark.parametrize("n", [576, 441, 274])
def test_many_launches_back_to_reals_are_one(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    params = {"axis": 1, "n": n, "norm": "backward"}
    assert_launches_are_one(irfft, numbers((2, n // 2 + 1), c64), params, monkeypatch)


def assert_launches_are_one(
    op: Op, x: Array, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = compiled(op, x, **params)
    monkeypatch.setattr(lowering, "KEPT_BYTES", 0)
    many = compiled(op, x, **params)
    assert len(one.schedule.steps) == 1 < len(many.schedule.steps)
    assert difference(run(many, [x], threads=2)[0], run(one, [x])[0]) is None
    assert difference(run_on_evaluator(many, [x])[0], run(one, [x])[0]) is None


@pytest.mark.parametrize("n", [31, 137, 384])
def test_every_machine_has_the_same_bits(n: int) -> None:
    x = numbers((3, n), c64)
    graph = optimise(graph_of(fft, Case((x,), FORWARD)))
    results = [
        evaluate_schedule(lower_graph(graph, Lowerer(target.machine)), [x], {})[0]
        for target in LEVELS.values()
    ]
    assert all(difference(results[0], other) is None for other in results[1:])


@pytest.mark.parametrize("target", LEVELS.values(), ids=lambda target: target.name)
def test_every_level_compiles(target: Target) -> None:
    for op, x, params in (
        (fft, numbers((3, 60), c64), FORWARD),
        (fft, numbers((3, 137), c128), FORWARD),
        (rfft, numbers((3, 512), c64.real), {"axis": 1, "norm": "none"}),
        (irfft, numbers((3, 7, 20), c64), {"axis": 1, "n": 13, "norm": "none"}),
    ):
        for step in lower_graph(graph_of(op, Case((x,), params)), Lowerer(target.machine)).steps:
            assert isinstance(step, Launch)
            assert compile_object(emit_module({"transform": step.program}, target), target)


# -- the plan --------------------------------------------------------------------------------------


@given(st.integers(1, 20_000))
def test_radices_multiply_to_the_length(n: int) -> None:
    found = radices(n)
    rest = n
    for prime in (2, 3, 5, 7, 11, 13, 17, 19, 23):
        while rest % prime == 0:
            rest //= prime
    assert (found is None) == (rest > 1)
    assert found is None or int(np.prod(found, dtype=np.int64)) == n


@given(st.integers(1, 20_000))
def test_factors_of_a_split_fill_vectors(n: int) -> None:
    found = split(n)
    possible = any(n % a == 0 and n // a >= LEAST for a in range(LEAST, n // LEAST + 1))
    assert (found is not None) == possible
    assert found is None or (found[0] * found[1] == n and min(found) >= LEAST)


@given(st.integers(29, 5000))
def test_a_convolution_is_long_enough_and_smooth(n: int) -> None:
    m = convolution_length(n)
    assert m >= 2 * n - 1
    assert radices(m) is not None and (m < LEAST * LEAST or split(m) is not None)


def test_smooth_lengths_are_all_of_them() -> None:
    wanted = [m for m in range(10, 100) if all(p in (2, 3, 5, 7) for p in primes(m))]
    assert smooth(10, 99) == wanted


def primes(n: int) -> list[int]:
    return [p for p in range(2, n + 1) if n % p == 0 and all(p % q for q in range(2, p))]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8, 12, 4096, 4099])
def test_roots_are_right_to_the_last_place_and_symmetric(n: int) -> None:
    e = np.arange(n)
    angle = 2 * np.pi * np.longdouble(1) * e / n
    got = roots(n, e)
    assert np.abs(got - (np.cos(angle) - 1j * np.sin(angle))).max() < 4e-16
    assert (got[1:] == np.conj(got[:0:-1])).all()  # opposite frequencies
    if n % 4 == 0:
        assert got[n // 4] == -1j and got[n // 2] == -1


@pytest.mark.parametrize("n", [255, 256, 257, 300, 1024, 4096, 5040, 65520, 100800])
def test_a_split_is_the_cheapest_of_all_pairs(n: int) -> None:
    pairs = [(a, n // a) for a in range(16, n // 16 + 1) if n % a == 0]
    assert split(n) == min(pairs, key=lambda p: (split_cost(*p), abs(p[0] - p[1]), p), default=None)


def test_long_lengths_are_planned_and_their_roots_are_those_of_short_blocks() -> None:
    """A prime of seven digits took ten seconds when every number below each candidate was tried as
    its factor."""
    assert convolution_length(1_000_003) >= 2_000_005
    exponents = np.arange(3 * AT_ONCE + 5)
    one_by_one = np.concatenate([roots(40_000, part) for part in np.array_split(exponents, 50)])
    assert roots(40_000, exponents).tobytes() == one_by_one.tobytes()


def test_twiddles_start_with_one() -> None:
    table = pass_twiddles(12, 3).reshape(4, 2)
    assert (table[0] == 1).all()
    np.testing.assert_allclose(table[2], np.exp(-2j * np.pi * 2 * np.array([1, 2]) / 12))


def test_results_are_of_the_declared_dtype() -> None:
    assert as_dtype(result(fft, numbers((1, 8), c64), **FORWARD).dtype) is c64
