"""Systems of equations and factors, compiled: the kernel evaluator's bits, and right by the
equations they solve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiled import difference, run, run_on_evaluator
from tests.test_conformance import graph_of
from tetrad.backends.cpu.executable import Executable
from tetrad.compiler.driver import compile_graph
from tetrad.core.op import REGISTRY, Case
from tetrad.kernel.verify import verify
from tetrad.schedule.nodes import HostCall, programs_of

Arrays = list[np.ndarray]
# One system, fewer than 16, some more, tiles of 16 elements; above 16 rows LAPACK works.
SIZES = [(1, ()), (2, (3,)), (3, (2, 9)), (4, (17,)), (17, ()), (21, (3,))]
EPS = {np.float32: 2e-5, np.float64: 1e-13}
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
SHAPES = pytest.mark.parametrize(("rows", "batch"), SIZES, ids=str)


def compiled(name: str, *args: np.ndarray, **params: Any) -> tuple[Executable, Arrays]:
    """The results of machine code, after a comparison with the evaluator to the bit, for 1 and 2
    threads."""
    program = compile_graph(graph_of(REGISTRY[name], Case(args, params)))
    for kernel in programs_of(program.schedule):
        verify(kernel)
    wanted = run_on_evaluator(program, list(args))
    for threads, poison in ((1, 0xFF), (2, 0x00)):
        results = run(program, list(args), threads=threads, poison=poison)
        for got, want in zip(results, wanted, strict=True):
            assert difference(got, want) is None
    return program, results


def results(name: str, *args: np.ndarray, **params: Any) -> Arrays:
    return compiled(name, *args, **params)[1]


def well_posed(
    rng: np.random.Generator, batch: tuple[int, ...], rows: int, dtype: Any
) -> np.ndarray:
    return (
        rng.standard_normal((*batch, rows, rows)) + 3 * np.eye(rows)[rng.permutation(rows)]
    ).astype(dtype)


def turned(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a, -1, -2)


def close(got: np.ndarray, want: np.ndarray, factor: float = 1) -> None:
    np.testing.assert_allclose(
        got,
        want,
        atol=factor * EPS[got.real.dtype.type] * max(1, np.abs(want).max(initial=0)),
        rtol=0,
    )


@DTYPES
@SHAPES
def test_factors_and_solutions(rows: int, batch: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(rows)
    a = well_posed(rng, batch, rows, dtype)
    factors, pivots = results("lu", a)
    close(factors, REGISTRY["lu"](a)[0], 20)
    assert (pivots == REGISTRY["lu"](a)[1]).all()
    for columns in (1, 3, 18):
        b = rng.standard_normal((*batch, rows, columns)).astype(dtype)
        for transposed in (False, True):
            (x,) = results("linear_solve", a, factors, pivots, b, transposed=transposed)
            close((turned(a) if transposed else a) @ x, b, 20)
            close(REGISTRY["linear_solve"](a, factors, pivots, b, transposed=transposed), x, 50)


@DTYPES
@SHAPES
def test_triangles(rows: int, batch: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(rows)
    a = (rng.standard_normal((*batch, rows, rows)) / 4 + 2 * np.eye(rows)).astype(dtype)
    for columns, lower, unit, transposed in (
        (1, True, False, True),
        (2, False, True, False),
        (20, True, True, False),
    ):
        b = rng.standard_normal((*batch, rows, columns)).astype(dtype)
        settings = {"lower": lower, "unit": unit, "transposed": transposed}
        (x,) = results("triangular_solve", a, b, **settings)
        t = np.tril(a, -unit) if lower else np.triu(a, unit)
        t = t + np.eye(rows, dtype=dtype) * unit
        close((turned(t) if transposed else t) @ x, b, 20)
        close(REGISTRY["triangular_solve"](a, b, **settings), x, 20)


@DTYPES
@SHAPES
def test_cholesky_and_determinants(rows: int, batch: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(rows)
    a = well_posed(rng, batch, rows, dtype)
    definite = (a @ turned(a) + np.eye(rows, dtype=dtype)).astype(dtype)
    (lower,) = results("cholesky", np.tril(definite))
    close(lower @ turned(lower), definite, 5)
    assert (np.triu(lower, 1) == 0).all()
    factors, pivots = REGISTRY["lu"](a)
    det, sign, size = results("lu_det", a, factors, pivots)
    wanted = np.linalg.slogdet(a.astype(np.float64))
    close(sign, wanted[0])
    close(size, wanted[1], 10)
    np.testing.assert_allclose(det, wanted[0] * np.exp(wanted[1]), rtol=100 * EPS[dtype])


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (2, 3, 5), (3, 18, 18)], ids=str)
def test_orthogonal_factors(shape: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(shape[-1])
    a = rng.standard_normal(shape).astype(dtype)
    for complete in (False, True):
        q, r = results("qr", a, complete=complete)
        close(q @ r, a, 10)
        close(
            turned(q) @ q,
            np.broadcast_to(np.eye(q.shape[-1]), (*shape[:-2], q.shape[-1], q.shape[-1])),
            10,
        )
        assert (np.tril(r, -1) == 0).all()
        u, s, vh = results("svd", a, full=complete)
        least = s.shape[-1]
        close((u[..., :least] * s[..., None, :]) @ vh[..., :least, :], a, 20)
        close(
            turned(u) @ u,
            np.broadcast_to(np.eye(u.shape[-1]), (*shape[:-2], u.shape[-1], u.shape[-1])),
            10,
        )
    close(results("svdvals", a)[0], np.linalg.svd(a, compute_uv=False), 10)
    whole = a @ turned(a)
    values, vectors = results("eigh", whole)
    close(whole @ vectors, vectors * values[..., None, :], 20)
    close(results("eigvalsh", whole)[0], np.linalg.eigvalsh(whole), 20)


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1), (2, 5, 5), (3, 18, 18)], ids=str)
def test_values_and_vectors_of_any_matrix(shape: tuple[int, ...], dtype: Any) -> None:
    """Bit for bit what LAPACK gives to eager code; their order and the turn of the vectors too."""
    a = np.random.default_rng(shape[-1]).standard_normal(shape).astype(dtype)
    values, vectors = results("eig", a)
    close(a @ vectors, vectors * values[..., None, :], 30)
    for got, want in zip((values, vectors), REGISTRY["eig"](a), strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(results("eigvals", a)[0], REGISTRY["eigvals"](a))


# -- what the code is made of ----------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "wanted"), [(16, 0), (17, 1)])
def test_small_systems_need_no_lapack(rows: int, wanted: int) -> None:
    a = np.eye(rows, dtype=np.float32)
    program = compile_graph(graph_of(REGISTRY["lu"], Case((a,))))
    assert sum(isinstance(step, HostCall) for step in program.schedule.steps) == wanted


def test_the_largest_of_the_small_systems() -> None:
    rng = np.random.default_rng(16)
    a, b = (
        well_posed(rng, (17,), 16, np.float32),
        rng.standard_normal((17, 16, 1)).astype(np.float32),
    )
    factors, pivots = results("lu", a)
    (x,) = results("linear_solve", a, factors, pivots, b)
    close(a @ x, b, 20)


def test_a_system_has_the_same_bits_in_any_batch() -> None:
    rng = np.random.default_rng(3)
    a = well_posed(rng, (40,), 7, np.float32)
    (whole, _), (alone, _), (few, _) = (results("lu", x) for x in (a, a[33:34], a[20:36]))
    assert difference(whole[33:34], alone) is None
    assert difference(whole[20:36], few) is None


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_lapack_takes_operands_of_one_value(dtype: type) -> None:
    """Such a constant may be in no memory: it is written out where LAPACK wants it."""
    number = 2 + 1j if np.dtype(dtype).kind == "c" else 2

    def triangles(b: td.Array) -> td.Array:
        return td.linalg.triangular_solve(td.full((17, 17), number, dtype=dtype), b)

    def right_side(a: td.Array) -> td.Array:
        return td.linalg.triangular_solve(a, td.full((17, 70), number, dtype=dtype))

    lower = np.tril(np.ones((17, 17), dtype)) + np.eye(17, dtype=dtype)
    for function, x in ((triangles, np.ones((17, 70), dtype)), (right_side, lower)):
        assert (
            difference(np.asarray(td.jit(function)(x)), np.asarray(function(td.asarray(x)))) is None
        )
