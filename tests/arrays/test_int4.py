"""Packed nibbles for users: the vectors and sweeps of the specification (quant 1.1, 1.5, 1.6),
eager and compiled, derivatives, batches, and errors before any kernel runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import DtypeError, SettingError, ShapeError, UnsupportedError

int4 = td.quant.int4

P = np.array([-8, -3, -1, 0, 1, 3, 7, 6, 5, 4, 2, -2, -4, -6, -7, -5], np.int8)
Q = np.array([7, 5, 3, 1, -1, -3, -5, -7, 6, 4, 2, 0, -2, -4, -6, -8], np.int8)
COLUMNS = (1, 7, 8, 9, 16, 17, 31, 32, 33)
ROWS = np.array(
    [
        [1, 2, 3, 4, -1, -2, -3, -4, 5],
        [4, 3, 2, 1, -4, -3, -2, -1, -5],
        [-8, -7, -6, -5, -4, -3, -2, -1, 0],
    ],
    np.int8,
)
ITEMS = np.array([[1, -1, 2, -2, 3, -3, 4, -4, 5], [-5, 4, -4, 3, -3, 2, -2, 1, -1]], np.int8)
SCALES, BATCH_SCALES = np.float32([0.5, 0.25, 0.125]), np.float32([0.75, 0.375])
X = np.float32([1, -0.5, 0.25, 2, -1.5, 0.75, 1.25, -2, 0.5])
VECTORS = [
    ([1, 2, 3, 4, -1, -2, -3, -4], "CDEF4321"),
    ([4, 3, 2, 1, -4, -3, -2, -1], "FEDC1234"),
    ([-8, -7, -1, 0, 1, 2, 6, 7], "76210F98"),
    ([1, 2, 3, 4, -1, -2, -3, -4, 5], "CDEF4321 00000005"),
    ([4, 3, 2, 1, -4, -3, -2, -1, -5], "FEDC1234 0000000B"),
    ([-8, -7, -6, -5, -4, -3, -2, -1, 0], "FEDCBA98 00000000"),
    ([1, -1, 2, -2, 3, -3, 4, -4, 5], "C4D3E2F1 00000005"),
    ([-5, 4, -4, 3, -3, 2, -2, 1, -1], "1E2D3C4B 0000000F"),
    ([-32, -9, -8, 7, 8, 31], "00777888"),
]


def cycled(pattern: np.ndarray, count: int, start: int = 0) -> np.ndarray:
    return pattern[(np.arange(count) + start) % len(pattern)]


def rotated(pattern: np.ndarray, rows: int, columns: int, step: int, first: int = 0) -> np.ndarray:
    """Row r is the pattern rotated by step * r + first."""
    return np.stack([cycled(pattern, columns, step * r + first) for r in range(rows)])


def words(text: str) -> np.ndarray:
    return np.array([int(word, 16) for word in text.split()], np.uint32)


def same(got: object, want: np.ndarray) -> None:
    """Bit for bit."""
    got = np.asarray(got)
    assert got.dtype == want.dtype and got.shape == want.shape
    assert got.tobytes() == want.tobytes(), (got, want)


def sums(rows: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The order of the specification: products rounded, added one after the other; [..., rows]."""
    total = np.zeros((*x.shape[:-1], len(rows)), x.dtype)
    for c in range(rows.shape[1]):
        total = total + x[..., c, None] * rows[:, c].astype(x.dtype)
    return total


# -- packing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lanes", "text"), VECTORS)
def test_pack_gives_the_words_of_the_specification(lanes: list[int], text: str) -> None:
    for dtype in (np.int8, np.int16, np.int64):
        same(int4.pack(np.array(lanes, dtype)), words(text))
    same(td.jit(int4.pack)(np.array(lanes, np.int8)), words(text))
    same(int4.unpack(words(text), len(lanes)), np.clip(lanes, -8, 7).astype(np.int8))


def test_unsigned_integers_are_clamped_from_above() -> None:
    same(int4.pack(np.array([0, 7, 8, 255], np.uint8)), words("00007770"))
    same(int4.pack(np.array([0, 7, 2**63], np.uint64)), words("00000770"))


def test_unpack_extends_the_sign() -> None:
    same(int4.unpack(words("0000000F"), 4), np.array([-1, 0, 0, 0], np.int8))


def test_every_length_survives_packing() -> None:
    for count in range(257):
        lanes = cycled(P, count)
        packed = int4.pack(lanes)
        assert packed.shape == (-(-count // 8),)
        same(int4.unpack(packed, count), lanes)


def test_rows_never_share_a_word() -> None:
    stack = np.stack([ROWS, -ROWS])
    packed = int4.pack(stack)
    assert packed.shape == (2, 3, 2)
    same(packed[0, 1], words("FEDC1234 0000000B"))
    same(td.vmap(int4.pack)(stack), np.asarray(packed))
    same(int4.unpack(packed, 9), np.clip(stack, -8, 7))


def test_packing_agrees_with_pairs_of_nibbles_less_eight() -> None:
    """Layouts: bytes of offset nibbles are the bytes of a row, each nibble with its highest bit
    turned."""
    lanes = cycled(P, 64)
    offset = (lanes + 8).astype(np.uint8)
    pairs = offset[0::2] | offset[1::2] << 4
    assert (pairs ^ 0x88).tobytes() == np.asarray(int4.pack(lanes)).tobytes()


# -- dots ------------------------------------------------------------------------------------------


def test_fixtures_of_dots() -> None:
    a, b = words("CDEF4321"), words("FEDC1234")
    same(int4.dot(a, b, 8), np.array(40, np.int32))
    same(int4.dot_scaled(a, b, 0.5, 0.25, 8), np.array(5, np.float32))
    same(int4.dot(words("76210F98"), words("76210F98"), 8), np.array(204, np.int32))
    same(int4.dot_scaled(words("76210F98"), words("76210F98"), 1.0, 1.0, 8), np.float32(204)[...])
    lhs = np.array([-8, -4, -1, 0, 1, 2, 6, 7, 5, -7, 3, -3])
    rhs = np.array([7, -2, -1, 4, -8, 6, 2, 1, -5, 3, -4, 2])
    same(int4.dot(int4.pack(lhs), int4.pack(rhs), 12), np.array(-88, np.int32))


def test_dots_of_every_length() -> None:
    known = {0: 0, 1: -56, 8: -161, 9: -131, 16: 3, 17: -53, 100: -56, 256: 48}
    for count in range(257):
        p, q = cycled(P, count), cycled(Q, count)
        exact = int((p.astype(int) * q).sum())
        assert exact == known.get(count, exact)
        a, b = int4.pack(p), int4.pack(q)
        same(int4.dot(a, b, count), np.array(exact, np.int32))
        scales = np.float32(0.125 + (count % 7) * 0.03125), np.float32(0.25 + (count % 5) * 0.0625)
        want = np.float32(exact) * scales[0] * scales[1]
        same(int4.dot_scaled(a, b, *scales, count), np.asarray(want, np.float32))


@pytest.mark.parametrize("count", [0, 1, 9, 127, 128, 129, 256, 300])
def test_compiled_dots(count: int) -> None:
    p, q = (rotated(each, 19, count, 3) for each in (P, Q))
    a, b = int4.pack(p), int4.pack(q)
    want = (p.astype(np.int32) * q).sum(axis=1, dtype=np.int32)
    same(td.jit(lambda a, b: int4.dot(a, b, count))(a, b), want)
    same(int4.dot(a, b, count), want)
    alone = (p.astype(np.int32) * q[0]).sum(axis=1, dtype=np.int32)
    same(td.jit(lambda a, b: int4.dot(a, b, count))(a, b[0]), alone)
    same(int4.dot(b[0], a, count), alone)
    same(td.vmap(lambda a, b: int4.dot(a, b, count))(a, b), want)


def test_leading_axes_of_dots_broadcast() -> None:
    p, q = rotated(P, 6, 33, 3).reshape(2, 3, 33), rotated(Q, 3, 33, 5)
    want = (p.astype(np.int32) * q).sum(axis=-1, dtype=np.int32)
    same(int4.dot(int4.pack(p), int4.pack(q), 33), want)
    same(int4.dot_scaled(int4.pack(p), int4.pack(q), 1, 0.5, 33), (want / 2).astype(np.float32))


def test_what_stands_behind_the_last_nibble_does_not_count() -> None:
    a, b = words("FFFFF321"), words("88888321")
    same(int4.dot(a, b, 3), np.array(14, np.int32))
    same(int4.unpack(a, 3), np.array([1, 2, 3], np.int8))
    same(int4.matvec(a[None], np.float32([1, 1, 1]), np.float32([1])), np.float32([6]))


def test_long_dots_keep_the_order_of_floats() -> None:
    """From 2**24 on f32 cannot count: ones that are added there one by one are lost."""
    count = 262144 + 8
    lanes = np.full(count, -8, np.int8)
    lanes[-8:] = 1
    packed = int4.pack(lanes)
    scaled = td.jit(lambda a: int4.dot_scaled(a, a, 1.0, 1.0, count))
    same(scaled(packed), np.asarray(2.0**24, np.float32))
    one = td.ones(1)
    product = td.jit(lambda a: int4.batched_matmul(a, a, one, one, count))
    same(product(packed[None]), np.float32([[2**24]]))
    assert int(td.jit(lambda a: int4.dot(a, a, count))(packed)) == 2**24 + 8
    short = td.jit(lambda a: int4.dot_scaled(a, a, 1.0, 1.0, count - 8))
    same(short(packed[:-1]), np.asarray(2.0**24, np.float32))


def test_a_dot_wraps() -> None:
    """-8 * -8 * 2**25 is 2**31."""
    many = td.broadcast_to(td.asarray([0x88888888], dtype=td.uint32), (2**22,))
    assert int(td.jit(lambda a: int4.dot(a, a, 2**25))(many)) == -(2**31)


# -- products --------------------------------------------------------------------------------------


def test_fixtures_of_products() -> None:
    w = words("CDEF4321 FEDC1234")[:, None]
    scales = np.float32([0.5, 0.25])
    same(int4.matvec(w, np.ones(8, np.float32), scales), np.zeros(2, np.float32))
    same(int4.batched_matvec(w, np.ones((2, 8), np.float32), scales), np.zeros((2, 2), np.float32))
    none = np.zeros((2, 1), np.uint32)
    batch_scales = np.float32([0.125, 0.25])
    zeros = np.zeros((2, 2), np.float32)
    same(int4.batched_matmul(none, none, scales, batch_scales, 8), zeros)
    scores, best = int4.top1(none, none, scales, batch_scales, 8)
    same(scores, zeros[0])
    assert np.asarray(best).tolist() == [0, 0]


def test_fixtures_of_sixteen_equal_words() -> None:
    w, lanes = np.tile(words("76210F98"), (4, 1)), np.array([-8, -7, -1, 0, 1, 2, 6, 7])
    same(int4.matvec(w, lanes.astype(np.float32), td.ones(4)), np.full(4, 204, np.float32))
    got = int4.batched_matmul(w, w[:2], td.ones(4), td.ones(2), 8)
    same(got, np.full((2, 4), 204, np.float32))
    scores, best = int4.top1(w, w[:2], td.ones(4), td.ones(2), 8)
    same(scores, np.full(2, 204, np.float32))
    assert np.asarray(best).tolist() == [0, 0]  # all tie: the lowest wins


@pytest.mark.parametrize("wrapped", [lambda f: f, td.jit], ids=["eager", "jit"])
def test_vectors_of_products(wrapped: object) -> None:
    w, a = int4.pack(ROWS), int4.pack(ITEMS)
    want = np.array([0x40F80000, 0x3FB80000, 0xBFCC0000], np.uint32).view(np.float32)
    same(wrapped(int4.matvec)(w, X, SCALES), want)  # type: ignore[operator]
    both = wrapped(int4.batched_matvec)(w, np.stack([X, -X]), SCALES)  # type: ignore[operator]
    same(both, np.stack([want, -want]))
    want = np.float32([[10.875, -5.4375, -0.9375], [-0.1875, 0.09375, 1.40625]])
    product = wrapped(lambda *each: int4.batched_matmul(*each, 9))  # type: ignore[operator]
    same(product(w, a, SCALES, BATCH_SCALES), want)
    scores, best = wrapped(lambda *each: int4.top1(*each, 9))(w, a, SCALES, BATCH_SCALES)  # type: ignore[operator]
    same(scores, np.float32([10.875, 1.40625]))
    assert np.asarray(best).tolist() == [0, 2]


@pytest.mark.parametrize("columns", [*COLUMNS, 65])
def test_sweep_of_matvec(columns: int) -> None:
    x = ((np.arange(columns) % 11) * 0.125 - 0.5).astype(np.float32)
    for rows in range(1, 9):
        lanes = rotated(P, rows, columns, 1)
        scales = (0.125 + 0.0625 * np.arange(rows)).astype(np.float32)
        want = sums(lanes, x) * scales
        same(int4.matvec(int4.pack(lanes), x, scales), want)
        if rows in (1, 8):
            same(td.jit(int4.matvec)(int4.pack(lanes), x, scales), want)


@pytest.mark.parametrize("columns", COLUMNS)
def test_sweep_of_batched_matvec(columns: int) -> None:
    for batch in range(1, 5):
        xs = ((np.arange(batch * columns) % 13) * 0.125 - 0.75).astype(np.float32)
        xs = xs.reshape(batch, columns)
        for rows in range(1, 6):
            lanes = rotated(P, rows, columns, 2)
            scales = (0.125 + 0.0625 * np.arange(rows)).astype(np.float32)
            want = sums(lanes, xs) * scales
            same(int4.batched_matvec(int4.pack(lanes), xs, scales), want)
            if rows == 5:
                same(td.jit(int4.batched_matvec)(int4.pack(lanes), xs, scales), want)


@pytest.mark.parametrize("columns", COLUMNS)
def test_sweep_of_batched_matmul(columns: int) -> None:
    for batch in range(1, 5):
        items = rotated(P, batch, columns, 5, 1)
        batch_scales = (0.25 + 0.03125 * np.arange(batch)).astype(np.float32)
        for rows in range(1, 6):
            lanes = rotated(P, rows, columns, 3)
            scales = (0.125 + 0.0625 * np.arange(rows)).astype(np.float32)
            want = sums(lanes, items.astype(np.float32)) * scales * batch_scales[:, None]
            args = int4.pack(lanes), int4.pack(items), scales, batch_scales
            same(int4.batched_matmul(*args, columns), want)
            if rows == 5 and batch in (1, 4):
                same(td.jit(lambda *each: int4.batched_matmul(*each, columns))(*args), want)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (2, 2, 7), (3, 3, 8), (4, 4, 9), (5, 5, 17), (6, 6, 33), (3, 7, 65)]
)
def test_sweep_of_top1(sizes: tuple[int, int, int]) -> None:
    batch, rows, columns = sizes
    lanes, items = rotated(P, rows, columns, 5), rotated(Q, batch, columns, 7)
    scales = (0.125 + 0.0625 * np.arange(rows)).astype(np.float32)
    batch_scales = (0.25 + 0.03125 * np.arange(batch)).astype(np.float32)
    args = int4.pack(lanes), int4.pack(items), scales, batch_scales
    product = np.asarray(int4.batched_matmul(*args, columns))
    for found in (int4.top1(*args, columns), td.jit(lambda *a: int4.top1(*a, columns))(*args)):
        same(found[0], product.max(axis=1))
        assert np.asarray(found[1]).tolist() == product.argmax(axis=1).tolist()


def test_what_never_wins() -> None:
    """NaN and -inf are no scores; where nothing else is, the lowest float and row 0."""
    w, a = int4.pack(np.array([[1], [2], [3]])), int4.pack(np.array([[1], [1]]))
    least = np.float32(-3.4028235e38)
    scales = np.float32([np.nan, 1, -np.inf])
    scores, best = int4.top1(w, a, scales, np.float32([1, 1]), 1)
    same(scores, np.float32([2, 2]))
    assert np.asarray(best).tolist() == [1, 1]
    scores, best = int4.top1(w, a, np.float32([-np.inf, np.nan, -np.inf]), np.float32([1, 2]), 1)
    same(scores, np.full(2, least))
    assert np.asarray(best).tolist() == [0, 0]
    scores, best = int4.top1(w, a, np.float32([1, np.inf, 1]), np.float32([1, -1]), 1)
    same(scores, np.float32([np.inf, -1]))
    assert np.asarray(best).tolist() == [1, 0]


def test_the_score_of_a_tie_is_that_of_the_first() -> None:
    w, a = int4.pack(np.array([[0], [0]])), int4.pack(np.array([[1]]))
    scores, best = int4.top1(w, a, np.float32([-1, 1]), np.float32([1]), 1)
    same(scores, np.float32([-0.0]))
    assert int(best[0]) == 0


# -- sizes, types, bits ----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (1, 129), (16, 128), (17, 130), (40, 300)])
def test_a_row_has_the_same_bits_in_any_batch(shape: tuple[int, int]) -> None:
    rows, columns = shape
    rng = np.random.default_rng(rows + columns)
    lanes = rng.integers(-8, 8, shape)
    w, scales = int4.pack(lanes), rng.standard_normal(rows).astype(np.float32)
    xs = rng.standard_normal((11, columns)).astype(np.float32)
    want = sums(lanes, xs) * scales
    compiled = td.jit(int4.matvec)
    for batch in (1, 2, 5, 11):
        same(compiled(w, xs[:batch], scales), want[:batch])
    same(compiled(w, xs[3], scales), want[3])
    same(int4.matvec(w, xs.reshape(1, 11, columns), scales), want[None])
    dim = td.Dim("batch", max=64)
    symbolic = td.jit(int4.matvec, dims=(None, {0: dim}, None))
    for batch in (1, 3, 4, 11):
        same(symbolic(w, xs[:batch], scales), want[:batch])


def test_floats_of_other_widths() -> None:
    rng = np.random.default_rng(5)
    lanes, x = rng.integers(-8, 8, (5, 20)), rng.standard_normal(20)
    w, scales = int4.pack(lanes), rng.standard_normal(5)
    same(int4.matvec(w, x, scales), sums(lanes, x) * scales)
    half, half_scales = x.astype(np.float16), scales.astype(np.float16)
    wide = sums(lanes, half.astype(np.float32)) * half_scales.astype(np.float32)
    same(int4.matvec(w, half, half_scales), wide.astype(np.float16))
    same(td.jit(int4.matvec)(w, half, half_scales), wide.astype(np.float16))
    assert (
        int4.matvec(w, td.asarray(half).astype(td.bfloat16), 1.0 * td.ones(5)).dtype is td.float32
    )
    assert int4.matvec(w, np.arange(20), td.ones(5)).dtype is td.float32


def test_no_columns_no_rows_and_what_is_not_finite() -> None:
    none = np.zeros((3, 0), np.uint32)
    same(int4.matvec(none, np.zeros(0, np.float32), SCALES), np.zeros(3, np.float32))
    empty = int4.matvec(np.zeros((0, 2), np.uint32), X, np.zeros(0, np.float32))
    assert empty.shape == (0,)
    assert int4.matvec(int4.pack(ROWS), np.zeros((0, 9), np.float32), SCALES).shape == (0, 3)
    x = X.copy()
    x[3] = np.nan
    assert np.isnan(np.asarray(int4.matvec(int4.pack(ROWS), x, SCALES))).all()
    same(int4.matvec(int4.pack(ROWS), X, np.zeros(3, np.float32)), np.float32([0, 0, -0.0]))


# -- transforms ------------------------------------------------------------------------------------


def finite_difference(f: object, x: np.ndarray, step: float = 1e-5) -> np.ndarray:
    found = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[at] += step
        down[at] -= step
        found[at] = (float(f(up)) - float(f(down))) / (2 * step)  # type: ignore[operator]
    return found


def test_derivatives_by_x_and_scales() -> None:
    rng = np.random.default_rng(6)
    w = int4.pack(rng.integers(-8, 8, (5, 20)))
    xs, scales = rng.standard_normal((3, 20)), rng.standard_normal(5)

    def loss(xs: object, scales: object) -> td.Array:
        return td.sum(td.sin(int4.batched_matvec(w, xs, scales)))

    for argnum, operand in enumerate((xs, scales)):
        other = [xs, scales]

        def alone(x: np.ndarray, i: int = argnum, other: list = other) -> td.Array:
            return loss(*(x if j == i else other[j] for j in range(2)))

        want = finite_difference(alone, operand)
        for wrapped in (lambda f: f, td.jit):
            got = wrapped(td.grad(loss, argnums=argnum))(xs, scales)
            assert np.allclose(np.asarray(got), want, atol=1e-7)
    hessian = np.asarray(td.hessian(lambda x: loss(x, scales))(xs))
    forward = np.asarray(td.jacfwd(td.jacfwd(lambda x: loss(x, scales)))(xs))
    assert np.allclose(hessian, forward, atol=1e-10)


def test_derivatives_of_packed_products_by_their_scales() -> None:
    w, a = int4.pack(ROWS), int4.pack(ITEMS)
    by_rows, by_batch = td.grad(
        lambda s, b: td.sum(int4.batched_matmul(w, a, s, b, 9)), argnums=(0, 1)
    )(SCALES, BATCH_SCALES)
    dots = np.float32([[29, -29, -10], [-1, 1, 30]])
    same(by_rows, (dots * BATCH_SCALES[:, None]).sum(axis=0))
    same(by_batch, (dots * SCALES).sum(axis=1))
    best = td.grad(lambda s: td.sum(int4.top1(w, a, s, BATCH_SCALES, 9)[0]))(SCALES)
    same(best, np.float32([21.75, 0, 11.25]))
    left = td.grad(lambda s: int4.dot_scaled(w[0], w[1], s, 2.0, 9))(3.0)
    assert float(left) == 2 * int((ROWS[0].astype(int) * ROWS[1]).sum())


@pytest.mark.parametrize(
    "axes", [(0, None, None), (None, 0, None), (0, 0, None), (0, 0, 0), (0, None, 0)]
)
@pytest.mark.parametrize("activations", [None, "int8"])
def test_batches_of_everything(axes: tuple[int | None, ...], activations: str | None) -> None:
    rng = np.random.default_rng(7)
    w = rng.integers(0, 1 << 32, (3, 18, 17), dtype=np.uint32)
    x, scales = (rng.standard_normal((3, n)).astype(np.float32) for n in (131, 18))
    args = [a if axis == 0 else a[0] for a, axis in zip((w, x, scales), axes, strict=True)]

    def product(w: object, x: object, scales: object) -> td.Array:
        return int4.matvec(w, x, scales, activations=activations)

    each = [
        product(*(a[i] if axis == 0 else a for a, axis in zip(args, axes, strict=True)))
        for i in range(3)
    ]
    want = np.stack([np.asarray(e) for e in each])
    same(td.vmap(product, in_axes=axes)(*args), want)
    same(td.jit(td.vmap(product, in_axes=axes))(*args), want)
    twice = td.vmap(td.vmap(product, in_axes=axes), in_axes=(None, 0, None))
    more = [np.stack([args[1], -args[1]]) if i == 1 else a for i, a in enumerate(args)]
    same(td.jit(twice)(*more)[0], want)


# -- rows in 8 bits --------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [1, 8, 31, 32, 33, 200])
def test_rows_in_8_bits_are_off_by_at_most_their_bound(columns: int) -> None:
    """Each x by half a step of its 32 columns, max|x| / 254."""
    rng = np.random.default_rng(columns)
    lanes, x = rng.integers(-8, 8, (19, columns)), rng.standard_normal((4, columns)).astype("f4")
    x[0] *= 1e-3
    scales = rng.standard_normal(19).astype(np.float32)
    w = int4.pack(lanes)
    exact = sums(lanes, x.astype(np.float64)) * scales
    tops = [np.abs(x[:, i : i + 32]).max(axis=1) for i in range(0, columns, 32)]
    weights = [np.abs(lanes[:, i : i + 32]).sum(axis=1) for i in range(0, columns, 32)]
    pairs = zip(tops, weights, strict=True)
    bound = sum(top[:, None] * weight for top, weight in pairs) / 254 * np.abs(scales)
    eager = int4.matvec(w, x, scales, activations="int8")
    compiled = td.jit(lambda *a: int4.matvec(*a, activations="int8"))(w, x, scales)
    same(compiled, np.asarray(eager))
    assert (np.abs(np.asarray(eager) - exact) <= bound * 1.001 + 1e-6 * np.abs(exact)).all()


def test_rows_in_8_bits_that_are_zero_tiny_or_not_finite() -> None:
    w = int4.pack(np.tile(P, (2, 4)))
    x = np.zeros((5, 64), np.float32)
    x[1, 40], x[2, 40], x[3, 40], x[4] = np.nan, np.inf, 1e-40, 2.0**-109
    got = np.asarray(int4.matvec(w, x, td.ones(2), activations="int8"))
    assert (got[0] == 0).all() and np.isnan(got[1:3]).all() and (got[3] == 0).all()
    assert np.isfinite(got[4]).all()
    half = int4.matvec(w, x.astype(np.float16), td.ones(2), activations="int8")
    assert half.dtype is td.float32


# -- errors ----------------------------------------------------------------------------------------


W = int4.pack(ROWS)
BAD = [
    (lambda: int4.pack(X), DtypeError, "int4.pack: expected integers, got f32"),
    (lambda: int4.pack(3), ShapeError, "int4.pack: expected an axis to pack along, got i32"),
    (lambda: int4.unpack(W, 17), ShapeError, "17 nibbles take 3 words of 32 bits, got u32.3,2."),
    (lambda: int4.unpack(W, 8), ShapeError, "8 nibbles take 1 words of 32 bits, got u32.3,2."),
    (lambda: int4.unpack(ROWS, 9), DtypeError, "expected packed words, uint32, got i8"),
    (lambda: int4.unpack(W, -1), SettingError, "int4.unpack: n: expected a number of nibbles"),
    (lambda: int4.unpack(W, 9.0), SettingError, "int4.unpack: n: expected a number of nibbles"),
    (lambda: int4.dot(W, W[:, :1], 9), ShapeError, "int4.dot: 9 nibbles take 2 words"),
    (lambda: int4.dot(W, W[:2], 9), ShapeError, "do not broadcast"),
    (lambda: int4.matvec(W, X[:8], SCALES), ShapeError, "int4.matvec: 8 nibbles take 1 words"),
    (lambda: int4.matvec(W[0], X, SCALES), ShapeError, "expected words .rows, 2., got u32.2."),
    (lambda: int4.matvec(W, X, SCALES[:2]), ShapeError, r"row scales of shape \[3\], got f32\[2\]"),
    (lambda: int4.matvec(W, 1j * X, SCALES), DtypeError, "expected real numbers"),
    (lambda: int4.matvec(W, 1.0, SCALES), ShapeError, "expected x with an axis of columns"),
    (lambda: int4.matvec(ROWS, X, SCALES), DtypeError, "expected packed words, uint32"),
    (lambda: int4.batched_matvec(W, X, SCALES), ShapeError, r"rows \[batch, columns\], got f32"),
    (
        lambda: int4.matvec(W, X, SCALES, activations="int4"),
        SettingError,
        "int4.matvec: activations: expected None or 'int8', got 'int4'",
    ),
    (
        lambda: int4.batched_matmul(W, W, SCALES, BATCH_SCALES, 9),
        ShapeError,
        r"batch scales of shape \[3\], got f32\[2\]",
    ),
    (
        lambda: int4.top1(W[:0], W, SCALES[:0], SCALES, 9),
        ShapeError,
        "int4.top1: there is no best of no rows",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), BAD)
def test_wrong_operands_are_errors_before_any_kernel_runs(
    call: object, error: type, text: str
) -> None:
    with pytest.raises(error, match=text):
        call()  # type: ignore[operator]
    with pytest.raises(error, match=text):
        td.jit(lambda x: call())(1.0)  # type: ignore[operator]


def test_words_have_no_derivative() -> None:
    with pytest.raises(DtypeError, match="only floats have derivatives"):
        td.grad(lambda w: td.sum(int4.matvec(w, X, SCALES)))(W)
    zeros = td.grad(lambda w: td.sum(int4.matvec(w, X, SCALES)), allow_int=True)(W)
    assert not np.asarray(zeros).any()


@pytest.mark.parametrize("wrapped", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_derivatives_of_rows_in_8_bits_are_those_without_rounding(wrapped: Any) -> None:
    rng = np.random.default_rng(3)
    w = rng.integers(0, 1 << 32, (2, 18, 6), dtype=np.uint32)
    x, scales = (rng.standard_normal((2, n)).astype(np.float32) for n in (45, 18))
    kept = rng.standard_normal((2, 18)).astype(np.float32)

    def loss(activations: str | None) -> Any:
        def summed(x: Any, scales: Any) -> td.Array:
            one = lambda *each: int4.matvec(*each, activations=activations)  # noqa: E731
            return td.sum(td.vmap(one)(w, x, scales) * kept)

        return summed

    for by in (0, 1):
        found, want = (
            np.asarray(wrapped(td.grad(loss(a), argnums=by))(x, scales)) for a in ("int8", None)
        )
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-4)
    moved = [td.jvp(loss(a), (x, scales), (x, x[:, :18]))[1] for a in ("int8", None)]
    np.testing.assert_allclose(float(moved[0]), float(moved[1]), rtol=1e-5)


def test_rows_in_8_bits_take_no_f64() -> None:
    for f in (int4.matvec, int4.batched_matvec):
        with pytest.raises(UnsupportedError, match="float64 is not rounded to 8 bits"):
            f(W, np.full((2, 9), 1e300), SCALES, activations="int8")


@pytest.mark.parametrize("activations", [None, "int8"])
def test_a_batch_of_nothing(activations: str | None) -> None:
    assert int4.pack(np.zeros((0, 9), np.int8)).shape == (0, 2)
    assert int4.pack(np.zeros((2, 0), np.int8)).shape == (2, 0)
    assert int4.unpack(np.zeros((0, 2), np.uint32), 9).shape == (0, 9)
    call = lambda x: int4.matvec(W, x, SCALES, activations=activations)  # noqa: E731
    for run in (call, td.jit(call), td.vmap(call)):
        assert run(np.ones((0, 9), np.float32)).shape == (0, 3)
    none = int4.matvec(W[:, :0], np.ones((2, 0), np.float32), SCALES, activations=activations)
    same(none, np.zeros((2, 3), np.float32))
