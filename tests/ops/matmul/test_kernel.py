"""Products whose sides lie the other way round, and what an epilogue reads: the same bits, however
they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiled import difference, run
from tetrad.backends.cpu import backend
from tetrad.backends.cpu.isa import LEVELS, current_target
from tetrad.backends.llvm.target import Target
from tetrad.compiler import driver
from tetrad.compiler.pipeline import lower_graph, optimise
from tetrad.core.dtypes import f32
from tetrad.core.record import replace
from tetrad.kernel.math.fma import fma
from tetrad.lower.lower import Lowerer
from tetrad.ops.matmul import plan
from tetrad.ops.matmul.plan import COLUMNS, ROWS, MatmulSize, choose_blocks, choose_tile
from tetrad.schedule.evaluate import evaluate as evaluate_schedule
from tetrad.schedule.nodes import programs_of


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def texts(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[str]:
    graph = optimise(td.trace(function)(*map(td.Spec, shapes)))
    return [str(p) for p in programs_of(lower_graph(graph, Lowerer(current_target().machine)))]


# Each of them is a product of matrices that NumPy can write down: function, its left side, its
# right side.
TURNED = {
    "left": (lambda x, y: x.T @ y, lambda x: x.T, lambda y: y),
    "left of work": (
        lambda x, y: td.maximum(x, 0).T @ y,
        lambda x: np.maximum(x, 0).T,
        lambda y: y,
    ),
    "left, work on the right": (
        lambda x, y: x.T @ td.maximum(y, 0),
        lambda x: x.T,
        lambda y: np.maximum(y, 0),
    ),
}


@pytest.mark.parametrize("name", TURNED)
@pytest.mark.parametrize(
    ("k", "m", "n"), [(256, 512, 64), (300, 130, 70), (70, 9, 33), (1100, 40, 90)]
)
def test_a_side_that_lies_otherwise_gives_the_same_bits(name: str, k: int, m: int, n: int) -> None:
    function, left, right = TURNED[name]
    x, y = random(k, m), random(k, n, seed=1)
    plain = td.jit(lambda a, b: a @ b)(np.ascontiguousarray(left(x)), right(y))
    assert np.asarray(td.jit(function)(x, y)).tobytes() == np.asarray(plain).tobytes()


@pytest.mark.parametrize(("m", "k", "n"), [(20, 256, 512), (65, 70, 33), (33, 1100, 40)])
def test_a_right_side_turned_in_memory_or_in_place(m: int, k: int, n: int) -> None:
    x, w = random(m, k), random(n, k, seed=1)
    plain = td.jit(lambda a, b: a @ b)
    in_place, in_memory = td.jit(lambda x, w: x @ w.T), td.jit(lambda x, w: x @ td.maximum(w, 0).T)
    assert (
        np.asarray(in_place(x, w)).tobytes()
        == np.asarray(plain(x, np.ascontiguousarray(w.T))).tobytes()
    )
    want = plain(x, np.ascontiguousarray(np.maximum(w, 0).T))
    assert np.asarray(in_memory(x, w)).tobytes() == np.asarray(want).tobytes()


# Sizes beside those of tiles, panels, stretches, blocks of k, chunks and workgroups: m, k, n.
EDGES = [
    (5, 3, 63), (6, 255, 17), (7, 256, 16), (11, 257, 15), (12, 1023, 5), (13, 1024, 6), (6, 1025,
    7), (5, 2047, 11),
    (5, 2048, 12), (5, 2049, 13), (95, 7, 97), (96, 2, 95), (97, 13, 33), (191, 2, 129), (193, 1,
    128), (513, 2, 65),
    (1023, 3, 17), (1024, 2, 15), (1025, 3, 16), (2049, 1, 5), (17, 2, 511), (31, 3, 513), (33, 2,
    1023), (16, 1, 1025),
    (5, 0, 33), (0, 5, 33), (33, 5, 0), (130, 129, 31), (127, 65, 127),
]  # fmt: skip


def in_order(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """k ascending in chunks of 1024, a chain of fma from zero in each, chunk sums added in
    order."""
    total = np.zeros((len(a), b.shape[1]), a.dtype)
    for chunk in range(0, a.shape[1], 1024):
        chain = np.zeros_like(total)
        for k in range(chunk, min(chunk + 1024, a.shape[1])):
            chain = fma(a[:, k : k + 1], b[k : k + 1], chain)
        total = total + chain if chunk else chain
    return total


@pytest.mark.parametrize(("m", "k", "n"), EDGES)
def test_the_order_of_additions_at_the_edges_of_blocks(
    m: int, k: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain and with both sides turned; blocks of one to four threads, run by another number of
    them."""
    a, b = random(m, k), random(k, n, seed=1)
    want = in_order(a, b)
    for threads in range(1, 5):
        monkeypatch.setattr(backend, "available_threads", lambda threads=threads: threads)
        is_plain = threads % 2
        sides = [a, b] if is_plain else [np.ascontiguousarray(a.T), np.ascontiguousarray(b.T)]
        made = driver.compile_graph(
            td.trace((lambda a, b: a @ b) if is_plain else (lambda a, b: a.T @ b.T))(*sides)
        )
        for running in (threads, 3 - threads % 2):
            (got,) = run(made, sides, threads=running)
            assert difference(got, want) is None


SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -3e-39, 3e38, 1.5]


def test_special_values_stay_in_their_rows_and_columns() -> None:
    """Rows and columns that are padding hold anything; no NaN of theirs comes near a result."""
    rng = np.random.default_rng(5)
    a, b = (
        np.where(rng.random(s) < 0.02, rng.choice(SPECIAL, s), 1.0).astype("f4")
        for s in ((71, 300), (300, 37))
    )
    (got,) = run(driver.compile_graph(td.trace(lambda a, b: a @ b)(a, b)), [a, b], threads=2)
    with np.errstate(all="ignore"):
        assert difference(got, in_order(a, b)) is None


def test_a_size_known_late_is_split_the_same_way() -> None:
    """One program for every size of every axis, zero too."""
    m, k, n = (td.Dim(name, max=2048) for name in "mkn")
    made = driver.compile_graph(td.trace(lambda a, b: a @ b)(td.Spec((m, k)), td.Spec((k, n))))
    for sizes in [
        (0, 3, 4),
        (3, 0, 4),
        (3, 4, 0),
        (257, 5, 33),
        (13, 1025, 7),
        (2, 300, 257),
        (600, 2, 300),
    ]:
        dims = dict(zip("mkn", sizes, strict=True))
        a, b = random(dims["m"], dims["k"]), random(dims["k"], dims["n"], seed=1)
        (got,) = run(made, [a, b], dims, threads=2)
        assert difference(got, in_order(a, b)) is None


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_every_block_has_a_thread(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of rows that threads do not share evenly, known early and late; each is computed
    once."""
    monkeypatch.setattr(plan, "choose_blocks", lambda *_: (16, 64))
    machine = replace(current_target().machine, parallel_groups=threads)
    m, a, b = td.Dim("m", max=256), random(70, 5), random(5, 150, seed=1)
    for rows in (70, m):
        graph = td.trace(lambda a, b: a @ b)(td.Spec((rows, 5)), td.Spec((5, 150)))
        schedule = lower_graph(graph, Lowerer(machine))
        (got,) = evaluate_schedule(schedule, [a, b], {"m": 70} if rows is m else {})
        assert difference(got, in_order(a, b)) is None


def test_a_thread_writes_rows_of_its_own_where_that_costs_little() -> None:
    """A weight's gradient, which an update by rows follows; not few rows, for which all columns
    would be copied twice."""
    assert choose_blocks(MatmulSize((), 1024, 1024, 256), 8, 2, True)[0] == 512
    assert choose_blocks(MatmulSize((), 256, 1024, 1024), 8, 2, True)[0] == 256


def test_what_an_epilogue_reads_is_fetched_ahead() -> None:
    """All lines of the tile, of every array as large as the product, some at each step of k; a bias
    is near anyway."""
    shapes = (64, 128), (128, 64)
    (plain,) = texts(lambda x, w: x @ w, *shapes)
    (with_bias,) = texts(lambda x, w, b: x @ w + b, *shapes, (64,))
    (with_two,) = texts(lambda x, w, y, z: x @ w * y + z, *shapes, (64, 64), (64, 64))
    assert "prefetch" not in plain and "prefetch" not in with_bias
    assert with_two.count("prefetch") == 2  # more steps than lines: one of each array
    (short,) = texts(lambda x, w, y, z: x @ w * y + z, (64, 2), (2, 64), (64, 64), (64, 64))
    tile = choose_tile(current_target().machine, f32, 64, 64)
    # two steps, half of the lines at each
    assert short.count("prefetch") == 2 * -(-tile.rows * tile.vectors // 2)


@pytest.mark.parametrize("target", LEVELS.values(), ids=lambda target: target.name)
@pytest.mark.parametrize("n", [16, 32, 48, 80, 144])
def test_the_last_tile_of_columns_ends_inside_a_vector_or_between_two(
    n: int, target: Target
) -> None:
    """A tile has two vectors on AVX-512; the second may lie beyond the last column, and is not
    stored."""
    x, w = random(14, 5), random(5, n, seed=1)
    for function in (lambda x, w: x @ w, lambda x, w: x @ w * 2 + 1):
        graph = optimise(td.trace(function)(x, w))
        # the evaluator refuses what lies outside
        (got,) = evaluate_schedule(lower_graph(graph, Lowerer(target.machine)), [x, w], {})
        assert got.tobytes() == np.asarray(td.jit(function)(x, w)).tobytes()


# -- workgroups ------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("is_staged", [False, True])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(512, 512, 512), (640, 640, 640), (64, 4096, 4096), (5, 7, 9), (1, 1, 0)]
)
def test_blocks_are_whole_tiles_of_a_size_that_caches_hold(
    m: int, n: int, k: int, threads: int, is_staged: bool
) -> None:
    high, wide = choose_blocks(MatmulSize((), m, n, k), 6, threads, is_staged)
    assert high % 6 == 0 and wide % 64 == 0 and 0 < high <= ROWS + 6 and 0 < wide <= COLUMNS
    assert high < m + 6 and wide < n + 64


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("size", [256, 512, 640, 1024, 2048])
def test_threads_get_equal_shares(size: int, threads: int) -> None:
    high, wide = choose_blocks(MatmulSize((), size, size, size), 6, threads, size > 768)
    groups = -(-size // high) * -(-size // wide)
    most = -(-groups // threads) * high * wide  # of one thread
    assert most * threads <= 1.1 * size * size


# -- few rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 3, 4])
@pytest.mark.parametrize("k", [0, 1, 1024, 1025, 2048, 3000])
@pytest.mark.parametrize("n", [1, 17, 512, 4100])
def test_a_thin_product_has_the_bits_of_its_rows_among_many(m: int, k: int, n: int) -> None:
    x, y = random(8, k), random(k, n, seed=1)
    plain = td.jit(lambda a, b: a @ b)
    assert np.asarray(plain(x[:m], y)).tobytes() == np.asarray(plain(x, y))[:m].tobytes()


def test_the_sums_of_chunks_keep_the_sign_of_zero() -> None:
    """A chunk that rounds to -0.0 alone stays -0.0; the sum of it and nothing is not taken from
    +0.0."""
    x, y = np.zeros((1, 2048), np.float32), np.zeros((2048, 16), np.float32)
    x[0, 1023], y[1023] = -1e-30, 1e-30  # the product is below every number
    x[0, 2047], y[2047] = -1e-30, 1e-30
    got = np.asarray(td.jit(lambda a, b: a @ b)(x, y))
    assert np.signbit(got).all() and (got == 0).all()


def test_a_long_thin_product_with_work_on_its_result() -> None:
    x, y, bias = random(2, 3000), random(3000, 70, seed=1), random(70, seed=2)
    got = td.jit(lambda x, y, b: td.maximum(x @ y + b, 0) * x[:, :1])(x, y, bias)
    product = np.asarray(td.jit(lambda x, y: x @ y)(x, y))
    assert np.asarray(got).tobytes() == (np.maximum(product + bias, 0) * x[:, :1]).tobytes()


def test_a_thin_product_over_a_dim() -> None:
    k = td.Dim("k", max=5000)
    open_, plain = td.jit(lambda a, b: a @ b, dims=({1: k}, {0: k})), td.jit(lambda a, b: a @ b)
    for length in (1, 3, 1024, 2500):
        x, y = random(2, length), random(length, 40, seed=1)
        assert np.asarray(open_(x, y)).tobytes() == np.asarray(plain(x, y)).tobytes()


@pytest.mark.parametrize("length", [1500, 4096])
def test_long_products_of_two_vectors(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All lanes share the address of the only element, and have to agree on what is stored
    there."""
    monkeypatch.setenv("TETRAD_CHECK", "1")
    x, y = random(2, length), random(length, 1, seed=1)
    function = td.jit(lambda a, b: (a @ b, td.exp(a @ b) + a[..., :1]))
    for one, both in zip(function(x[:1], y), function(x, y), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(both)[:1].tobytes()


def test_thin_products_of_a_batch() -> None:
    x, y = random(3, 2, 1500), random(3, 1500, 33, seed=1)
    got = np.asarray(td.jit(lambda a, b: a @ b)(x, y))
    for one, a, b in zip(got, x, y, strict=True):
        assert one.tobytes() == np.asarray(td.jit(lambda a, b: a @ b)(a, b)).tobytes()
