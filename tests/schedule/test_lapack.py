"""LAPACK is found beside NumPy, whatever its names and integers look like; its threads come
back."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

import numpy as np
import pytest
import scipy

from tests.compiled import run
from tests.test_conformance import graph_of
from tetrad.compiler.driver import compile_graph
from tetrad.core.errors import UnsupportedError
from tetrad.core.op import REGISTRY, Case
from tetrad.schedule import lapack

SCIPYS = glob.glob(os.path.join(f"{os.path.dirname(scipy.__file__)}.libs", "*openblas*"))
CACHED = (lapack.library, lapack.address, lapack.thread_function)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Nothing is known yet, and nothing found here is known afterwards."""
    for function in CACHED:
        function.cache_clear()
    yield monkeypatch
    for function in CACHED:
        function.cache_clear()


def test_a_routine_is_called() -> None:
    a, pivots, info = (
        np.array([[0.0, 2.0], [4.0, 1.0]]),
        np.zeros(2, np.int64),
        np.zeros(1, np.int64),
    )
    i = lapack.integer()
    pointers = [x.ctypes.data for x in (a, pivots, info)]
    lapack.invoke(lapack.address("dgetrf"), f"{i}{i}m{i}mm", [2, 2, 2], pointers)
    assert a.tolist() == [[2.0, 0.0], [1.0, 4.0]]


def test_threads_come_back() -> None:
    count = lapack.thread_function("get")
    before = count()
    with lapack.one_thread():
        with lapack.one_thread():
            assert count() == 1
        assert count() == 1
    assert count() == before


@pytest.mark.skipif(not SCIPYS, reason="this SciPy brought no OpenBLAS")
def test_short_integers(fresh: pytest.MonkeyPatch) -> None:
    """SciPy's own OpenBLAS has integers of 32 bits, as the wheel we fall back on."""
    fresh.setattr(lapack, "candidates", lambda: iter(SCIPYS))
    assert lapack.library().bits == 32
    a = np.random.default_rng(0).standard_normal((2, 20, 20))
    factors, pivots = run(compile_graph(graph_of(REGISTRY["lu"], Case((a,)))), [a], threads=2)
    assert (pivots == REGISTRY["lu"](a)[1]).all()
    given = (a, factors, pivots, a[..., :2].copy())
    (x,) = run(
        compile_graph(graph_of(REGISTRY["linear_solve"], Case(given))), list(given), threads=2
    )
    np.testing.assert_allclose(x, np.broadcast_to(np.eye(20)[:, :2], x.shape), atol=1e-11)
    assert lapack.thread_function("get")() >= 1
    with lapack.one_thread():
        assert lapack.thread_function("get")() == 1


def test_no_lapack_is_a_clear_error(fresh: pytest.MonkeyPatch) -> None:
    fresh.setattr(lapack, "candidates", lambda: iter(()))
    with pytest.raises(
        UnsupportedError, match=r"no LAPACK was found(.|\n)*pip install scipy-openblas32"
    ):
        lapack.library()
