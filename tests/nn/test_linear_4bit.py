"""4-bit linear layers: the vectors, sweeps and errors of the specification (quant 2.1 to 2.5),
eager and compiled, derivatives by finite differences, batches, and rows in 8 bits."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tetrad.core.errors import (
    DtypeError,
    SettingError,
    ShapeError,
    TetradError,
    TraceError,
    UnsupportedError,
)
from tetrad.kernel.library.linear_4bit import QuantizedLinear4BitSpec, affine_grouped
from tetrad.kernel.library.quantized_type import PerGroup, PerTensor, QuantizedType

linear, grouped = td.nn.linear_4bit, td.nn.linear_4bit_affine_grouped
OUTPUTS, SIZES, SEEDS = (1, 2, 3, 5, 8, 13, 21, 32), (1, 2, 4, 8, 16, 32), 48
Arrays = tuple[np.ndarray, ...]


def words(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint32)


def generated(inputs: int, outputs: int, size: int, seed: int) -> Arrays:
    """x, words, scale, zero point and bias of the sweep (quant 2.5)."""
    k, o = np.arange(inputs)[:, None], np.arange(outputs)[None]
    g = np.arange(-(-inputs // size))[:, None]
    nibbles = ((7 * k + 11 * o + seed) & 15).astype(np.uint32)
    shifts = np.arange(0, 32, 4, dtype=np.uint32)[:, None]
    packed = (nibbles.reshape(-1, 8, outputs) << shifts).sum(axis=1, dtype=np.uint32)
    return (
        ((3 * k[:, 0] + seed) % 19).astype(np.float32),
        packed,
        np.float32([0.25, 0.5, 1, 2])[(g + o + seed) & 3],
        ((5 * g + o + seed) & 15).astype(np.uint32),
        ((o[0] + seed) & 7).astype(np.float32),
    )


def nibbles_of(w: np.ndarray) -> np.ndarray:
    shifts = np.arange(0, 32, 4, dtype=np.uint32)[:, None]
    return ((w[..., :, None, :] >> shifts) & 15).reshape(*w.shape[:-2], -1, w.shape[-1])


def oracle(
    x: np.ndarray, w: np.ndarray, scale: np.ndarray, zero: np.ndarray, b: np.ndarray, size: int
) -> np.ndarray:
    """The order of the program: (nibble - zero) rounded, times scale, times x, added; k ascends."""
    kind = x.dtype
    total = np.broadcast_to(b, (*x.shape[:-1], w.shape[-1])).astype(kind)
    for k, line in enumerate(nibbles_of(w)):
        number = (line.astype(kind) - zero[k // size].astype(kind)) * scale[k // size]
        total = total + x[..., k, None] * number
    return total


def same(got: object, want: np.ndarray) -> None:
    got = np.asarray(got)
    assert got.dtype == want.dtype and got.shape == want.shape
    assert got.tobytes() == want.tobytes(), (got, want)


def drawn(
    inputs: int, outputs: int, size: int, rows: tuple[int, ...] = (), kind: type = np.float32
) -> Arrays:
    rng = np.random.default_rng(inputs + outputs + size)
    groups = -(-inputs // size)
    return (
        rng.standard_normal((*rows, inputs)).astype(kind),
        rng.integers(0, 1 << 32, (inputs // 8, outputs), dtype=np.uint32),
        rng.standard_normal((groups, outputs)).astype(kind),
        (rng.random((groups, outputs)) * 15).astype(kind),
        rng.standard_normal(outputs).astype(kind),
    )


# -- vectors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrapped", [lambda f: f, td.jit], ids=["eager", "jit"])
def test_vectors(wrapped: Callable[..., Any]) -> None:
    w = words(0x87654321, 0)
    x = np.arange(1, 9, dtype=np.float32)
    same(wrapped(linear)(x, w, np.zeros(2, np.float32)), np.float32([204, 0]))
    four = words(0x76543210, 0xFEDCBA98, 0x11111111, 0)
    same(wrapped(linear)(x - 1, four, np.zeros(4, np.float32)), np.float32([140, 364, 28, 0]))
    scale, zero, b = np.float32([0.5, 1, 2, 1]), words(1, 0, 4, 0), np.float32([0, 3])
    flat = wrapped(lambda *each: grouped(*each, group_size=4))
    same(flat(x, w, scale, zero, b), np.float32([150, 3]))
    same(flat(x, w[None], scale.reshape(2, 2), zero.reshape(2, 2), b), np.float32([150, 3]))
    same(wrapped(linear)(x, w[None]), np.float32([204, 0]))
    same(wrapped(linear)(x, w), np.float32([204, 0]))
    same(flat(x, w, scale, zero), np.float32([150, 0]))


SAMPLES = {
    (32, 1, 1, 0): [-125],
    (32, 2, 4, 1): [-281.75, 529],
    (32, 3, 8, 5): [-1198.75, -1.25, 197],
    (32, 3, 4, 5): [-728.25, -1079.75, -406.25],
    (32, 5, 16, 7): [198.5, -370.25, -1110.5, -2499, -821.5],
    (32, 5, 8, 17): [-0.75, 436, 583.25, 124.75, -1176.75],
    (32, 2, 32, 47): [-4461, 580.5],
    (256, 2, 1, 3): [-649.5, -607.5],  # 256 groups
    (264, 2, 1, 3): [-651, -414],
    (24, 2, 10, 3): [673.75, -188],  # ragged
}


@pytest.mark.parametrize("sizes", SAMPLES, ids=str)
def test_samples_of_the_sweep(sizes: tuple[int, int, int, int]) -> None:
    want = np.float32(SAMPLES[sizes])
    args = generated(*sizes)
    same(grouped(*args, group_size=sizes[2]), want)
    same(td.jit(lambda *each: grouped(*each, group_size=sizes[2]))(*args), want)


def test_first_words_of_the_sweep() -> None:
    assert [f"{word:08X}" for word in generated(32, 1, 1, 0)[1][:2, 0]] == ["1A3C5E70", "92B4D6F8"]


def test_the_whole_sweep() -> None:
    """24,480 outputs: all seeds of a size at once, as a batch of everything; three alone."""
    total, absolute, count = 0.0, 0.0, 0
    for outputs, size in itertools.product(OUTPUTS, SIZES):
        stacked = [
            np.stack(each)
            for each in zip(*(generated(32, outputs, size, s) for s in range(SEEDS)), strict=True)
        ]
        found = np.asarray(td.vmap(lambda *each, n=size: grouped(*each, group_size=n))(*stacked))
        for seed in (0, 1, 47):
            same(grouped(*generated(32, outputs, size, seed), group_size=size), found[seed])
        total, absolute = total + found.sum(dtype="f8"), absolute + np.abs(found).sum(dtype="f8")
        count += found.size
    assert (total, absolute, count) == (-4886897.25, 13920170.75, 24480)


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_the_compiled_sweep(outputs: int) -> None:
    for size in SIZES:
        cases = [generated(32, outputs, size, seed) for seed in range(SEEDS)]
        want = np.stack([oracle(*case, size) for case in cases])
        stacked = [np.stack(each) for each in zip(*cases, strict=True)]
        compiled = td.jit(td.vmap(lambda *each, n=size: grouped(*each, group_size=n)))
        same(compiled(*stacked), want)


def test_the_order_of_products_is_that_of_the_program() -> None:
    """0.1 * (7 * 0.3) is not (0.1 * 7) * 0.3."""
    x, w = np.zeros(8, np.float32), words(7)
    x[0] = 0.1
    got = grouped(x, w, np.float32([[0.3]]), words(0)[None], np.float32([0]), group_size=8)
    assert np.asarray(got).view(np.uint32).tolist() == [0x3E570A3F]


def test_zero_points_beyond_15_are_converted() -> None:
    x, w, scale, _, b = generated(16, 3, 8, 1)
    zero = np.array([[16, 2**24 + 1, 2**32 - 1], [100, 0, 15]], np.uint32)
    want = oracle(x, w, scale, zero, b, 8)
    same(grouped(x, w, scale, zero, b, group_size=8), want)
    same(td.jit(lambda *each: grouped(*each, group_size=8))(x, w, scale, zero, b), want)


# -- sizes, types, bits ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "outputs", "size"),
    [
        (8, 1, 8),
        (8, 17, 3),
        (40, 64, 100),
        (64, 65, 16),
        (64, 130, 24),
        (72, 31, 72),
        (256, 40, 64),
    ],
)
def test_a_row_has_the_same_bits_in_any_batch(inputs: int, outputs: int, size: int) -> None:
    x, *rest = drawn(inputs, outputs, size, (19,))
    want = oracle(x, *rest, size)
    f = td.jit(lambda *each: grouped(*each, group_size=size))
    for rows in (1, 2, 7, 8, 9, 19):
        same(f(x[:rows], *rest), want[:rows])
    same(f(x[5], *rest), want[5])
    same(
        grouped(x[:6].reshape(2, 3, inputs), *rest, group_size=size),
        want[:6].reshape(2, 3, outputs),
    )
    symbolic = td.jit(f, dims=({0: td.Dim("rows", max=64)}, None, None, None, None))
    for rows in (1, 8, 11):
        same(symbolic(x[:rows], *rest), want[:rows])
    plain = oracle(
        x, rest[0], np.ones((1, outputs), "f4"), np.zeros((1, outputs), "f4"), rest[3], inputs
    )
    same(td.jit(linear)(x, rest[0], rest[3]), plain)
    same(linear(x, rest[0].ravel(), rest[3]), plain)


def test_floats_of_other_widths() -> None:
    x, w, scale, zero, b = drawn(40, 19, 8, (3,), np.float64)
    want = oracle(x, w, scale, zero, b, 8)
    same(grouped(x, w, scale, zero, b, group_size=8), want)
    same(td.jit(lambda *each: grouped(*each, group_size=8))(x, w, scale, zero, b), want)
    halves = [a.astype(np.float16) for a in (x, scale, zero, b)]
    wide = [a.astype(np.float32) for a in halves]
    want = oracle(wide[0], w, *wide[1:], 8).astype(np.float16)
    for f in (
        grouped,
        td.jit(
            lambda *each, group_size: grouped(*each, group_size=8), static_argnames="group_size"
        ),
    ):
        same(f(halves[0], w, *halves[1:], group_size=8), want)
    assert grouped(halves[0], w, wide[1], wide[2], group_size=8).dtype is td.float32
    assert linear(td.asarray(x).astype(td.bfloat16), w).dtype is td.bfloat16
    assert linear(np.ones(40, np.int32), w).dtype is td.float32


def test_zero_scales_and_what_is_not_finite() -> None:
    x, w, scale, zero, b = drawn(16, 5, 8)
    same(grouped(x, w, 0 * scale, zero, b, group_size=8), oracle(x, w, 0 * scale, zero, b, 8))
    x[3], scale[1, 2] = np.nan, np.inf
    for f in (
        grouped,
        td.jit(
            lambda *each, group_size: grouped(*each, group_size=8), static_argnames="group_size"
        ),
    ):
        assert np.isnan(np.asarray(f(x, w, scale, zero, b, group_size=8))).all()
    assert grouped(np.zeros((0, 16), np.float32), w, scale, zero, b, group_size=8).shape == (0, 5)


def test_an_activation_is_part_of_the_kernel() -> None:
    from tetrad.compiler.pipeline import optimise
    from tetrad.passes.fuse import fuse

    x, w, scale, zero, b = drawn(16, 40, 8, (2, 3))
    f = lambda *each: td.nn.silu(grouped(*each, group_size=8))  # noqa: E731
    graph = optimise(td.trace(f)(x, w, scale, zero, b))
    assert [group.name for group in fuse(graph)] == ["linear_4bit_silu"]


# -- transforms ------------------------------------------------------------------------------------


def finite_difference(f: Callable[..., Any], args: list[np.ndarray], which: int) -> np.ndarray:
    found, step = np.zeros_like(args[which]), 1e-5
    for at in np.ndindex(found.shape):
        values = []
        for sign in (step, -step):
            moved = [a.copy() for a in args]
            moved[which][at] += sign
            values.append(float(f(*moved)))
        found[at] = (values[0] - values[1]) / (2 * step)
    return found


@pytest.mark.parametrize(("inputs", "size"), [(24, 10), (24, 8), (16, 100), (8, 1)])
def test_derivatives(inputs: int, size: int) -> None:
    x, w, scale, zero, b = drawn(inputs, 5, size, (3,), np.float64)

    def loss(*floats: Any) -> td.Array:
        x, scale, zero, b = floats
        return td.sum(td.sin(grouped(x, w, scale, zero, b, group_size=size) / 10))

    args = [x, scale, zero, b]
    gradient = td.grad(loss, argnums=(0, 1, 2, 3))
    eager, compiled = gradient(*args), td.jit(gradient)(*args)
    for i in range(4):
        want = finite_difference(loss, args, i)
        assert np.allclose(np.asarray(eager[i]), want, atol=1e-6), i
        assert np.allclose(np.asarray(compiled[i]), want, atol=1e-6), i


def test_second_derivatives_agree_forward_and_backward() -> None:
    x, w, scale, zero, b = drawn(16, 3, 6, (2,), np.float64)

    def loss(*floats: Any) -> td.Array:
        x, scale, zero, b = floats
        return td.sum(td.sin(grouped(x, w, scale, zero, b, group_size=6) / 10))

    every = (0, 1, 2, 3)
    backward = td.hessian(loss, argnums=every)(x, scale, zero, b)
    forward = td.jacfwd(td.jacfwd(loss, argnums=every), argnums=every)(x, scale, zero, b)
    reverse = td.jacrev(td.grad(loss, argnums=every), argnums=every)(x, scale, zero, b)
    for row, other, third in zip(backward, forward, reverse, strict=True):
        for got, want, too in zip(row, other, third, strict=True):
            assert np.allclose(np.asarray(got), np.asarray(want), atol=1e-11)
            assert np.allclose(np.asarray(too), np.asarray(want), atol=1e-11)


def test_derivatives_of_the_plain_layer() -> None:
    x, w, _, _, b = drawn(16, 5, 16, (3,))
    by_x, by_b = td.grad(lambda x, b: td.sum(linear(x, w, b)), argnums=(0, 1))(x, b)
    assert np.allclose(np.asarray(by_x), nibbles_of(w).sum(axis=1))
    same(by_b, np.full(5, 3, np.float32))


def test_the_gradient_by_x_does_not_hold_the_weight_in_floats() -> None:
    x, w, scale, zero, b = drawn(64, 4096, 64, (2,))
    loss = lambda x: td.sum(grouped(x, w, scale, zero, b, group_size=64) ** 2)  # noqa: E731
    told = td.explain(td.grad(loss))(x)
    assert told.arena_bytes < 64 * 4096  # bytes; in floats the weight has four times as many


AXES = [
    (0, None, None, None, None),
    (None, 0, None, None, None),
    (None, None, 0, None, None),
    (0, None, None, 0, 0),
    (0, 0, 0, 0, 0),
]


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("activations", [None, "int8"])
def test_batches_of_everything(axes: tuple[int | None, ...], activations: str | None) -> None:
    whole = [np.stack([a, a[..., ::-1], a]) for a in drawn(24, 18, 8, (2,))]
    whole[1][1] ^= 5
    args = [a if axis == 0 else a[0] for a, axis in zip(whole, axes, strict=True)]

    def layer(*each: Any) -> td.Array:
        return grouped(*each, group_size=8, activations=activations)

    rows = [
        [a[i] if axis == 0 else a for a, axis in zip(args, axes, strict=True)] for i in range(3)
    ]
    want = np.stack([np.asarray(layer(*row)) for row in rows])
    same(td.vmap(layer, in_axes=axes)(*args), want)
    same(td.jit(td.vmap(layer, in_axes=axes))(*args), want)
    twice = td.vmap(td.vmap(layer, in_axes=axes), in_axes=(None, 0, None, None, 0))
    more = [np.stack([a, a]) if i in (1, 4) else a for i, a in enumerate(args)]
    same(td.jit(twice)(*more), np.stack([want, want]))


def test_gradients_of_batches() -> None:
    whole = [
        np.stack([a, 2 * a if a.dtype.kind == "f" else a])
        for a in drawn(16, 3, 6, (2,), np.float64)
    ]

    def gradient(*each: Any) -> Any:
        def loss(x: Any, scale: Any, zero: Any, b: Any) -> td.Array:
            return td.sum(td.sin(grouped(x, each[1], scale, zero, b, group_size=6) / 10))

        return td.grad(loss, argnums=(0, 1, 2, 3))(each[0], *each[2:])

    together = td.vmap(gradient)(*whole)
    for i in range(2):
        alone = gradient(*(a[i] for a in whole))
        for got, want in zip(together, alone, strict=True):
            assert np.allclose(np.asarray(got)[i], np.asarray(want), atol=1e-12)


# -- rows in 8 bits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "outputs", "size", "block"),
    [
        (8, 1, 8, 8),
        (64, 40, 32, 32),
        (64, 17, 16, 16),
        (72, 33, 24, 24),
        (80, 16, 40, 8),
        (40, 5, 100, 32),
    ],
)
def test_rows_in_8_bits_are_off_by_at_most_their_bound(
    inputs: int, outputs: int, size: int, block: int
) -> None:
    """Each x by half a step of its block, max|x| / 254."""
    x, w, scale, zero, b = drawn(inputs, outputs, size, (5,))
    wide = [a.astype(np.float64) for a in (x, scale, zero, b)]
    exact = oracle(wide[0], w, *wide[1:], size)
    k = np.arange(inputs)
    weights = np.abs((nibbles_of(w) - wide[2][k // size]) * wide[1][k // size])
    tops = np.repeat(
        [np.abs(x[:, i : i + block]).max(axis=1) for i in range(0, inputs, block)], block, axis=0
    )
    bound = tops[:inputs].T @ weights / 254
    layer = lambda *each: grouped(*each, group_size=size, activations="int8")  # noqa: E731
    got = layer(x, w, scale, zero, b)
    same(td.jit(layer)(x, w, scale, zero, b), np.asarray(got))
    assert (np.abs(np.asarray(got) - exact) <= bound * 1.001 + 1e-5).all()
    assert np.abs(np.asarray(got) - exact).max() > 0 or outputs == 1
    plain = linear(x, w, b, activations="int8")
    same(td.jit(lambda *each: linear(*each, activations="int8"))(x, w, b), np.asarray(plain))
    top = np.abs(x).max(axis=1, keepdims=True) * nibbles_of(w).sum(axis=0) / 254
    exact = wide[0] @ nibbles_of(w) + wide[3]
    assert (np.abs(np.asarray(plain) - exact) <= top * 1.001 + 1e-4).all()


def test_rows_in_8_bits_take_integer_zero_points_and_other_floats() -> None:
    x, w, scale, zero, b = generated(32, 5, 8, 3)
    layer = td.jit(lambda *each: grouped(*each, group_size=8, activations="int8"))
    same(layer(x, w, scale, zero, b), np.asarray(layer(x, w, scale, zero.astype(np.float32), b)))
    for call in (lambda x: layer(x, w, scale, zero, b), lambda x: linear(x, w, activations="int8")):
        with pytest.raises(UnsupportedError, match="float64 is not rounded to 8 bits"):
            call(x.astype(np.float64))
    half = [a.astype(np.float16) for a in (x, scale, b)]
    assert layer(half[0], w, half[1], zero, half[2]).dtype is td.float16
    bad = x.copy()
    bad[9] = np.nan
    assert np.isnan(np.asarray(layer(bad, w, scale, zero, b))).all()


@pytest.mark.parametrize("size", [8, 16, 100])
@pytest.mark.parametrize("wrapped", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_derivatives_of_rows_in_8_bits_are_those_without_rounding(
    size: int, wrapped: Callable[..., Any]
) -> None:
    x, w, scale, zero, b = drawn(48, 5, size, (3,))
    weight = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)

    def of_layers(activations: str | None) -> Callable[..., Any]:
        def loss(x: Any, scale: Any, zero: Any, b: Any) -> td.Array:
            found = grouped(x, w, scale, zero, b, group_size=size, activations=activations)
            return td.sum((found + linear(x, w, b, activations=activations)) * weight)

        return loss

    for derivative in (td.grad, td.hessian):
        args = (x[:1], scale, zero, b) if derivative is td.hessian else (x, scale, zero, b)
        found, want = (
            wrapped(derivative(of_layers(a), argnums=(0, 1, 2, 3)))(*args) for a in ("int8", None)
        )
        for got, exact in zip(td.tree.leaves(found), td.tree.leaves(want), strict=True):
            np.testing.assert_allclose(np.asarray(got), np.asarray(exact), rtol=1e-5, atol=1e-5)
    change = td.jvp(of_layers("int8"), (x, scale, zero, b), (x, scale, zero, b))[1]
    want = td.jvp(of_layers(None), (x, scale, zero, b), (x, scale, zero, b))[1]
    np.testing.assert_allclose(float(change), float(want), rtol=1e-4)


@pytest.mark.parametrize("activations", [None, "int8"])
def test_a_batch_of_nothing(activations: str | None) -> None:
    x = np.ones((0, 16), np.float32)
    for call in (
        lambda x: linear(x, W, B, activations=activations),
        lambda x: grouped(x, W, SCALE, ZERO, B, group_size=8, activations=activations),
    ):
        for run in (call, td.jit(call), td.vmap(call)):
            assert run(x).shape == (0, 3)
        assert td.grad(lambda x, call=call: td.sum(call(x)))(x).shape == x.shape


# -- errors ----------------------------------------------------------------------------------------


X, W, SCALE, ZERO, B = generated(16, 3, 8, 0)
NONE = np.zeros((2, 0), np.uint32)
FIXES = [
    (lambda: linear(X[:0], W, B), ("linear_4bit:", "in_dim=0", "reduction is empty")),
    (lambda: linear(X, NONE, B[:0]), ("linear_4bit:", "out_dim=0", "output is empty")),
    (lambda: linear(X[:7], W, B), ("linear_4bit:", "in_dim=7", "divisible by 8", "pad")),
    (lambda: grouped(X[:0], W, SCALE, ZERO, B, group_size=0), ("_grouped:", "in_dim=0", "empty")),
    (lambda: grouped(X, NONE, SCALE, ZERO, B, group_size=0), ("_grouped:", "out_dim=0", "empty")),
    (lambda: grouped(X[:7], W, SCALE, ZERO, B, group_size=0), ("group_size=0", "> 0")),
    (lambda: grouped(X[:7], W, SCALE, ZERO, B, group_size=4), ("in_dim=7", "divisible by 8")),
]  # fmt: skip


@pytest.mark.parametrize(("call", "texts"), FIXES)
def test_sizes_that_cannot_be_say_how_to_fix_them(
    call: Callable[[], Any], texts: tuple[str, ...]
) -> None:
    for f in (call, lambda: td.jit(lambda x: call())(1.0)):
        with pytest.raises(ShapeError) as raised:
            f()
        assert str(raised.value).startswith("Fix: linear_4bit")
        assert all(text in str(raised.value) for text in texts)


def test_counts_beyond_32_bits() -> None:
    x, w = td.Spec((1 << 20,)), td.Spec((1 << 17, 1 << 15), td.uint32)
    with pytest.raises(ShapeError, match=r"Fix: linear_4bit: .*4294967296, overflows u32"):
        td.eval_shape(linear, x, w)
    w, side = td.Spec((1 << 17, 1 << 14), td.uint32), td.Spec((1 << 20, 1 << 14))
    with pytest.raises(ShapeError, match=r"linear_4bit_affine_grouped: .*scales.*overflows u32"):
        td.eval_shape(lambda *each: grouped(*each, group_size=1), x, w, side, side)


BAD = [
    (lambda: linear(X, W[:1], B), ShapeError, r"16 inputs and 3 outputs take words \[2, 3\]"),
    (lambda: linear(X, W.ravel()[:5], B), ShapeError, r"take words \[2, 3\], got u32\[5\]"),
    (lambda: linear(X, W.astype(np.int32), B), DtypeError, "packed words, uint32, got i32"),
    (lambda: linear(X, W[None], B), ShapeError, r"words \[inputs / 8, outputs\] or flat"),
    (lambda: linear(X, W, B[:2]), ShapeError, r"a bias of shape \[3\], got f32\[2\]"),
    (lambda: linear(1j * X, W, B), DtypeError, "expected real numbers"),
    (lambda: linear(X, W, B, activations="q8"), SettingError, "activations: expected None or"),
    (lambda: grouped(X, W, SCALE[:1], ZERO, B, group_size=8), ShapeError, r"scales.*\[2, 3\]"),
    (lambda: grouped(X, W, SCALE, ZERO.T, B, group_size=8), ShapeError, r"zero points.*\[2, 3\]"),
    (lambda: grouped(X, W, SCALE, ZERO, B, group_size=8.0), SettingError, "group_size: expected"),
    (
        lambda: grouped(X, W, SCALE, ZERO, B, group_size=np.True_),
        SettingError,
        "group_size: expected",
    ),
    (
        lambda: grouped(X, W, *(np.ones((6, 3), "f4"),) * 2, B, group_size=3, activations="int8"),
        ShapeError,
        "rows in 8 bits take groups of whole words, got group_size=3",
    ),
    (
        lambda: grouped(X, W, SCALE, ZERO + 9, B, group_size=8, strict=True),
        SettingError,
        "zero_point: expected numbers from 0 to 15, got",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), BAD)
def test_wrong_operands_are_errors_before_any_kernel_runs(
    call: Callable[[], Any], error: type[Exception], text: str
) -> None:
    for f in (call, lambda: td.jit(lambda x: call())(1.0)):
        with pytest.raises(error, match=text):
            f()


def test_strict_zero_points() -> None:
    same(grouped(X, W, SCALE, ZERO, B, group_size=8, strict=True), oracle(X, W, SCALE, ZERO, B, 8))
    with pytest.raises(TraceError, match="strict asks for the values of zero points under jit"):
        td.jit(lambda z: grouped(X, W, SCALE, z, B, group_size=8, strict=True))(ZERO)


def test_symbolic_inputs_are_an_error() -> None:
    f = td.jit(lambda x: linear(x, W, B), dims=({0: td.Dim("n", max=32)},))
    with pytest.raises(ShapeError, match="inputs and outputs must be known, got the size n"):
        f(X)


def test_integers_have_no_derivative() -> None:
    with pytest.raises(DtypeError, match="only floats have derivatives"):
        td.grad(lambda w: td.sum(linear(X, w, B)))(W)
    with pytest.raises(DtypeError, match="only floats have derivatives"):
        td.grad(lambda z: td.sum(grouped(X, W, SCALE, z, B, group_size=8)))(ZERO)


# -- typed -----------------------------------------------------------------------------------------


TYPED = [
    (QuantizedType("i4", PerTensor(), PerGroup(8)), (8, 2), "expected weights of type quantized<"),
    (QuantizedType("i4", PerGroup(8)), (0, 2), r"zp:absent>"),
    ("int4", (8, 2), "got int4"),
    (QuantizedType("i8", PerGroup(8), PerGroup(16)), (8, 2), "storage I4 or U4, got i8"),
    (QuantizedType("u4", PerGroup(8), PerGroup(16)), (0, 2), "group sizes to match, got 8 .* 16"),
    (QuantizedType("u4", PerGroup(0), PerGroup(0)), (0, 2), "group_size > 0"),
    (QuantizedType("u4", PerGroup(8), PerGroup(8)), (0, 0), "in_dim=0, so the reduction is empty"),
    (QuantizedType("u4", PerGroup(8), PerGroup(8)), (7, 0), "out_dim=0, so the output is empty"),
    (QuantizedType("u4", PerGroup(8), PerGroup(8)), (7, 2), "in_dim=7 is not divisible by 8"),
    (QuantizedType("u4", PerGroup(8), PerGroup(8)), (1 << 20, 1 << 15), "words.*overflows u32"),
    (QuantizedType("u4", PerGroup(1), PerGroup(1)), (1 << 20, 1 << 13), "scales.*overflows u32"),
    (QuantizedType("u4", PerGroup(8), PerGroup(8)), (8, 3), "the operands are of 16 and 3"),
]


@pytest.mark.parametrize(("type", "sizes", "text"), TYPED)
def test_the_type_of_a_weight_is_checked_first(type: Any, sizes: Any, text: str) -> None:
    spec = QuantizedLinear4BitSpec(*sizes, type)
    with pytest.raises(TetradError, match=rf"^Fix: linear_4bit_affine_grouped_typed: .*{text}"):
        td.nn.linear_4bit_affine_grouped_typed(spec, X, W, SCALE, ZERO, B)


@pytest.mark.parametrize("storage", ["i4", "u4"])
@pytest.mark.parametrize("activations", [None, "int8"])
def test_a_typed_layer_is_the_layer(storage: str, activations: str | None) -> None:
    spec = QuantizedLinear4BitSpec(16, 3, QuantizedType(storage, PerGroup(8), PerGroup(8)))
    typed = td.nn.linear_4bit_affine_grouped_typed
    layer = lambda *each: typed(spec, *each, activations=activations)  # noqa: E731
    want = np.asarray(grouped(X, W, SCALE, ZERO, B, group_size=8, activations=activations))
    for run in (layer, td.jit(layer)):
        same(run(X, W, SCALE, ZERO, B), want)
        same(run(X, W.ravel(), SCALE.ravel(), ZERO.ravel(), B), want)
    with pytest.raises(DtypeError, match="expected a QuantizedLinear4BitSpec, got a tuple"):
        typed((16, 3), X, W, SCALE, ZERO, B)


@pytest.mark.parametrize("inputs", [8, 10, 16, 18, 24, 32, 64, 128])
def test_the_sweep_of_typed_layers(inputs: int) -> None:
    for outputs, size in itertools.product((1, 2, 3, 7, 16, 31), (1, 2, 4, 8, 16, 32)):
        spec, groups = affine_grouped(inputs, outputs, size), -(-inputs // size)
        args = (
            td.Spec((inputs,)), td.Spec((inputs // 8, outputs), td.uint32),
            *(td.Spec((groups, outputs)),) * 2, td.Spec((outputs,)),
        )  # fmt: skip
        layer = lambda *each, spec=spec: td.nn.linear_4bit_affine_grouped_typed(spec, *each)  # noqa: E731
        if inputs % 8:
            with pytest.raises(ShapeError, match="divisible by 8"):
                td.eval_shape(layer, *args)
        else:
            assert td.eval_shape(layer, *args).shape == (outputs,)
