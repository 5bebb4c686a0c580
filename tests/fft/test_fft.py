"""td.fft: NumPy's results, the vectors of the specification, derivatives, batches, errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tetrad as td
from tetrad.core.errors import DtypeError, ShapeError, TetradError

Array = np.ndarray
NORMS = ("backward", "ortho", "forward")
EPS = {
    np.dtype(np.complex64): 2e-6,
    np.dtype(np.complex128): 4e-15,
    np.dtype(np.float32): 2e-6,
    np.dtype(float): 4e-15,
}


def numbers(*shape: int, dtype: Any = np.complex64, seed: int = 0) -> Array:
    parts = np.random.default_rng(seed).standard_normal((*shape, 2))
    values = parts[..., 0] + 1j * parts[..., 1] if np.dtype(dtype).kind == "c" else parts[..., 0]
    return values.astype(dtype)


def close(got: Any, want: Any, within: float | None = None) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape and got.dtype == want.dtype
    limit = EPS[got.dtype] if within is None else within
    assert np.linalg.norm(got - want) <= limit * np.linalg.norm(want) + 1e-30


# -- against NumPy ---------------------------------------------------------------------------------

ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = ("fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2")


def operand(name: str, *shape: int, wide: bool = False) -> Array:
    is_real = name.startswith(("rfft", "ihfft"))
    narrow, broad = (np.float32, np.float64) if is_real else (np.complex64, np.complex128)
    return numbers(*shape, dtype=broad if wide else narrow, seed=len(name))


@pytest.mark.parametrize("name", ONE)
@given(data=st.data())
def test_transforms_along_an_axis_are_numpys(name: str, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(2, 9), min_size=1, max_size=3)))
    x = operand(name, *shape, wide=data.draw(st.booleans()))
    settings = {
        "n": data.draw(st.none() | st.integers(1, 12)),
        "axis": data.draw(st.integers(-len(shape), len(shape) - 1)),
        "norm": data.draw(st.sampled_from((None, *NORMS))),
    }
    close(getattr(td.fft, name)(x, **settings), getattr(np.fft, name)(x, **settings))


@pytest.mark.parametrize("name", MANY)
@given(data=st.data())
def test_transforms_along_several_axes_are_numpys(name: str, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(2, 6), min_size=2, max_size=3)))
    x = operand(name, *shape, wide=data.draw(st.booleans()))
    count = 2 if name.endswith("2") else data.draw(st.integers(1, len(shape)))
    axes = tuple(data.draw(st.permutations(range(len(shape)))))[:count]
    s = data.draw(st.none() | st.tuples(*[st.integers(2, 7)] * count))
    settings = {"s": s, "axes": axes, "norm": data.draw(st.sampled_from(NORMS))}
    close(getattr(td.fft, name)(x, **settings), getattr(np.fft, name)(x, **settings))


@pytest.mark.parametrize("name", MANY)
def test_all_axes_are_the_default(name: str) -> None:
    x = operand(name, 3, 4, 6)
    close(getattr(td.fft, name)(x), getattr(np.fft, name)(x))


@pytest.mark.parametrize("name", ONE + MANY)
def test_compiled_is_eager(name: str) -> None:
    x = operand(name, 3, 20, 18)
    function = getattr(td.fft, name)
    close(td.jit(lambda x: function(x, norm="ortho"))(x), function(x, norm="ortho"))


@given(n=st.integers(1, 20), d=st.floats(0.1, 10))
def test_frequencies_are_numpys(n: int, d: float) -> None:
    np.testing.assert_array_equal(td.fft.fftfreq(n, d=d, dtype="float64"), np.fft.fftfreq(n, d))
    np.testing.assert_array_equal(td.fft.rfftfreq(n, d=d, dtype="float64"), np.fft.rfftfreq(n, d))
    assert td.fft.fftfreq(n).dtype is td.float32


@pytest.mark.parametrize("axes", [None, 0, 1, (0, 1), (-1,)])
def test_shifts_are_numpys_and_undo_each_other(axes: Any) -> None:
    x = np.arange(35).reshape(5, 7)
    np.testing.assert_array_equal(td.fft.fftshift(x, axes=axes), np.fft.fftshift(x, axes))
    np.testing.assert_array_equal(td.fft.ifftshift(x, axes=axes), np.fft.ifftshift(x, axes))
    np.testing.assert_array_equal(td.fft.ifftshift(td.fft.fftshift(x, axes=axes), axes=axes), x)


def test_dtypes_of_results() -> None:
    for given_, wanted in [
        ("int32", "c64"),
        ("bool", "c64"),
        ("float16", "c64"),
        ("float32", "c64"),
        ("float64", "c128"),
    ]:
        assert td.fft.fft(td.ones((4,), dtype=given_)).dtype.short_name == wanted
    assert td.fft.rfft(td.ones((4,), dtype="int32")).dtype is td.complex64
    assert td.fft.irfft(td.ones((3,), dtype="complex128")).dtype is td.float64


def test_names_and_settings_are_the_array_apis() -> None:
    shifts = {"fftfreq", "rfftfreq", "fftshift", "ifftshift"}
    assert {*ONE, *MANY, *shifts} < set(dir(td.fft))
    for name in ONE:
        assert list(inspect.signature(getattr(td.fft, name)).parameters) == [
            "x",
            "n",
            "axis",
            "norm",
        ]


# -- vectors of the specification, 4.1 -------------------------------------------------------------

ROOT3 = 1.7320508
VECTORS = [
    ([1, 2, 3, 4], [10, -2 + 2j, -2, -2 - 2j]),
    ([1, 2, 3], [6, -1.5 + 0.8660254j, -1.5 - 0.8660254j]),
    ([1, 0, 0, 0, 0, 2], [3, 2 + ROOT3 * 1j, ROOT3 * 1j, -1, -ROOT3 * 1j, 2 - ROOT3 * 1j]),
]


@pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize(("x", "want"), VECTORS)
def test_vectors(run: Callable[..., Any], x: list[int], want: list[complex]) -> None:
    x = np.asarray(x, np.complex64)
    close(run(lambda x: td.fft.fft(x, norm="none"))(x), np.asarray(want, np.complex64))
    close(run(lambda x: td.fft.ifft(td.fft.fft(x, norm="none"), norm="none"))(x), x * len(x))


BLOCK = np.float32([1, 2, 3, 4, 0, 0, 0, 0])


@pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_a_real_block_and_its_gradient(run: Callable[..., Any]) -> None:
    close(run(td.fft.real_block)(BLOCK), np.float32([10, -2, -2, -2, 0, 2, 0, -2]))

    def energy(x: Any) -> Any:
        return td.sum(td.fft.real_block(x) ** 2) / 2

    assert float(run(energy)(BLOCK)) == pytest.approx(60)
    close(run(td.grad(energy))(BLOCK), np.float32([4, 8, 12, 16, 0, 0, 0, 0]))


@pytest.mark.parametrize("norm", ["none", *NORMS])
def test_norms_of_real_blocks(norm: str) -> None:
    z, n = numbers(2, 6, dtype=np.complex128), 6
    block = np.concatenate([z.real, z.imag], -1)
    for inverse in (False, True):
        scale = {"none": 1, "ortho": n**-0.5}.get(
            norm, 1 / n if (norm == "backward") == inverse else 1
        )
        want = (np.fft.ifft(z) * n if inverse else np.fft.fft(z)) * scale
        close(
            td.fft.real_block(block, inverse=inverse, norm=norm),
            np.concatenate([want.real, want.imag], -1),
        )


def test_a_real_block_is_even() -> None:
    with pytest.raises(
        ShapeError, match=r"real_block: the last axis holds real, then imaginary parts.*f32\[5\]"
    ):
        td.fft.real_block(np.ones(5, np.float32))


# -- derivatives -----------------------------------------------------------------------------------


def matrix(function: Callable[[Array], Any], count: int, unit: complex) -> Array:
    """What a linear function does to each unit vector."""
    return np.stack([np.asarray(function(unit * row)) for row in np.eye(count)], 1)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft"])
@pytest.mark.parametrize("n", [4, 5])
def test_cotangents_are_not_conjugated(name: str, norm: str, n: int) -> None:
    def function(z: Any) -> Any:
        return getattr(td.fft, name)(z, norm=norm)

    cotangent = numbers(n, dtype=np.complex128)
    _, pull = td.vjp(function, numbers(n, dtype=np.complex128, seed=1))
    close(pull(cotangent)[0], matrix(function, n, 1 + 0j).T @ cotangent)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [1, 2, 4, 5])
def test_cotangents_of_real_transforms(norm: str, n: int) -> None:
    def half(x: Any) -> Any:
        return td.fft.rfft(x, norm=norm)

    cotangent = numbers(n // 2 + 1, dtype=np.complex128)
    _, pull = td.vjp(half, numbers(n, dtype=np.float64))
    close(pull(cotangent)[0], (matrix(half, n, 1.0).T @ cotangent).real)

    def whole(z: Any) -> Any:
        return td.fft.irfft(z, n=n, norm=norm)

    real, imag = matrix(whole, n // 2 + 1, 1 + 0j), matrix(whole, n // 2 + 1, 1j)
    given_ = numbers(n, dtype=np.float64)
    _, pull = td.vjp(whole, cotangent)
    close(pull(given_)[0], real.T @ given_ - 1j * (imag.T @ given_))


@pytest.mark.parametrize("name", ONE)
def test_a_tangent_goes_the_same_way(name: str) -> None:
    x, t = (operand(name, 3, 6, wide=True) * k for k in (1.0, 0.5))
    function = getattr(td.fft, name)
    value, change = td.jvp(function, (x,), (t[::-1].copy(),))
    close(value, function(x))
    close(change, function(t[::-1].copy()))


LOSSES = {
    "fft": lambda x: td.sum(td.abs(td.fft.fft(x)) ** 4),
    "rfft": lambda x: td.sum(td.abs(td.fft.rfft(x, n=7)) ** 4),
    "irfft": lambda x: td.sum(td.fft.irfft(td.complex(x, x * x), n=9) ** 3),
    "hfft": lambda x: td.sum(td.fft.hfft(td.complex(x, -x)) ** 3),
    "ihfft": lambda x: td.sum(td.real(td.fft.ihfft(x)) ** 3),
    "filter": lambda x: td.sum(td.fft.irfft(td.fft.rfft(x) ** 2, n=6) ** 2),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_gradients_are_differences(name: str, run: Callable[..., Any]) -> None:
    loss, x, step = LOSSES[name], numbers(6, dtype=np.float64), 1e-6
    differences = [
        (float(loss(x + step * e)) - float(loss(x - step * e))) / (2 * step) for e in np.eye(6)
    ]
    np.testing.assert_allclose(run(td.grad(loss))(x), differences, rtol=1e-7, atol=1e-7)


def test_second_derivatives() -> None:
    x = numbers(5, dtype=np.float64)
    hessian = np.asarray(td.hessian(lambda x: td.sum(td.abs(td.fft.fft(x)) ** 2) / 2)(x))
    np.testing.assert_allclose(hessian, 5 * np.eye(5), atol=1e-12)


# -- batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_batch_is_a_loop(name: str, axis: int) -> None:
    x = operand(name, 4, 5, 6, wide=True)

    def function(row: Any) -> Any:
        return getattr(td.fft, name)(row, axis=axis % 2)

    for place in (0, 1, 2):
        want = np.stack([np.asarray(function(row)) for row in np.moveaxis(x, place, 0)])
        close(td.vmap(function, in_axes=place)(x), want)


def test_rows_of_any_number_share_a_program() -> None:
    rows = td.Dim("rows", max=64)
    function = td.jit(lambda x: td.fft.irfft(td.fft.rfft(x) * 2, n=20), dims=({0: rows},))
    for count in (1, 5, 64):
        x = numbers(count, 20, dtype=np.float32)
        close(function(x), 2 * x)
    columns = td.jit(lambda x: td.fft.fft(x, axis=0), dims=({1: rows},))
    for count in (1, 33):
        x = numbers(12, count)
        close(columns(x), np.fft.fft(x, axis=0))


def test_equal_transforms_share_kernels_and_tables() -> None:
    x, y = numbers(2, 512, dtype=np.float32), numbers(2, 512, dtype=np.float32, seed=1)
    got = td.jit(lambda x, y: td.fft.irfft(td.fft.rfft(x) * td.fft.rfft(y)))(x, y)
    close(got, np.fft.irfft(np.fft.rfft(x) * np.fft.rfft(y)).astype(np.float32))


def test_an_empty_batch_is_empty() -> None:
    x = np.zeros((0, 8), np.complex64)
    assert td.fft.fft(x).shape == td.jit(td.fft.fft)(x).shape == (0, 8)


# -- one stage of radix 2, specification 4.2 -------------------------------------------------------


def stage_vectors(n: int, stage: int) -> tuple[Array, Array]:
    s = 1 << stage
    w = np.exp(-2j * np.pi * (np.arange(n // 2) % s) / (2 * s))
    return w.real.astype(np.float32), w.imag.astype(np.float32)


def by_hand(state: Array, gate: Array, rev: Array, w: Array, stage: int) -> Array:
    result, s = state.astype(np.complex128), 1 << stage
    for f in range(len(w)):
        i = f // s * 2 * s + f % s
        if gate[f] != 0:
            low = state[:, i + s] * w[f]
            pair = state[:, i] + low, state[:, i] - low
            result[:, i], result[:, i + s] = pair[::-1] if rev[f] >= 0.5 else pair
    return result


@pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_all_stages_are_a_transform(run: Callable[..., Any]) -> None:
    n, order = 8, [0, 4, 2, 6, 1, 5, 3, 7]
    z = numbers(2, n)
    ones, zeros = np.ones(n // 2, np.float32), np.zeros(n // 2, np.float32)

    def transform(state: Any) -> Any:
        for stage in range(3):
            state = td.fft.butterfly_stage(
                state, ones, zeros, *stage_vectors(n, stage), stage=stage, n_fft=n
            )
        return state

    got = np.asarray(run(transform)(np.stack([z.real, z.imag], -1)[:, order]))
    close(got[..., 0] + 1j * got[..., 1], np.fft.fft(z))


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_gates_and_reversals(stage: int) -> None:
    rng = np.random.default_rng(stage)
    z, w = numbers(3, 8, dtype=np.complex128), numbers(4, dtype=np.complex128, seed=9)
    gate, rev = np.array([1, 0, 0.5, -0.0]), rng.permutation([0, 0.5, 1, 0.49])
    state = np.stack([z.real, z.imag], -1)
    got = np.asarray(td.fft.butterfly_stage(state, gate, rev, w.real, w.imag, stage=stage, n_fft=8))
    close(got[..., 0] + 1j * got[..., 1], by_hand(z, gate, rev, w, stage))


def test_gradients_of_a_stage_are_those_of_the_specification() -> None:
    stage, s = 1, 2
    z, g = (numbers(2, 8, dtype=np.complex128, seed=i) for i in (1, 2))
    w = numbers(4, dtype=np.complex128, seed=3)
    gate, rev = np.array([1.0, 0, 1, 1]), np.array([0.0, 1, 1, 0])
    parts = (np.stack([z.real, z.imag], -1), gate, rev, w.real.copy(), w.imag.copy())
    _, pull = td.vjp(lambda *a: td.fft.butterfly_stage(*a, stage=stage, n_fft=8), *parts)
    d_state, d_gate, d_rev, d_re, d_im = (
        np.asarray(d) for d in pull(np.stack([g.real, g.imag], -1))
    )
    want, d_w = g.copy(), np.zeros(4, complex)
    for f in np.flatnonzero(gate):
        i = f // s * 2 * s + f % s
        g0, g1 = (g[:, i + s], g[:, i]) if rev[f] >= 0.5 else (g[:, i], g[:, i + s])
        want[:, i], want[:, i + s] = g0 + g1, (g0 - g1) * np.conj(w[f])
        d_w[f] = np.sum((g0 - g1) * np.conj(z[:, i + s]))
    close(d_state, np.stack([want.real, want.imag], -1))
    close(d_re + 1j * d_im, d_w)
    assert not d_gate.any() and not d_rev.any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_fft": 6}, "n_fft is a power of two, at least 2, got 6"),
        ({"stage": 3}, "8 numbers have stages 0 to 2, got 3"),
        ({"stage": -1}, "8 numbers have stages 0 to 2, got -1"),
        ({"state": np.zeros((1, 8), np.float32)}, "the state is .batch, 8, 2., got f32.1,8."),
        ({"tw": np.zeros(3, np.float32)}, "have 4 numbers each, got (.|\n)*f32.3."),
        ({"tw": np.zeros(4, np.int32)}, "of one float dtype, got (.|\n)*i32.4."),
    ],
)
def test_stages_are_checked(changes: dict[str, Any], message: str) -> None:
    state, tw = (
        changes.get("state", np.zeros((1, 8, 2), np.float32)),
        changes.get("tw", np.ones(4, np.float32)),
    )
    ones = np.ones(4, np.float32)
    settings = {"stage": changes.get("stage", 0), "n_fft": changes.get("n_fft", 8)}
    with pytest.raises(TetradError, match=f"butterfly_stage: .*{message}"):
        td.fft.butterfly_stage(state, ones, ones, ones, tw, **settings)


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x: td.fft.fft(x, n=0),
            ShapeError,
            "fft: the length of a transform is an int, at least 1, got 0",
        ),
        (
            lambda x: td.fft.rfft(x, n=2.5),
            ShapeError,
            "rfft: the length of a transform is an int, at least 1, got 2.5",
        ),
        (
            lambda x: td.fft.ifft(x, axis=2),
            ShapeError,
            "ifft: axis 2 is out of range for an array with 2 axes",
        ),
        (
            lambda x: td.fft.fft(x, norm="max"),
            ShapeError,
            "unknown norm 'max'(.|\n)*norms: none, backward, ortho, forward",
        ),
        (
            lambda x: td.fft.rfft(x * 1j),
            DtypeError,
            r"rfft: takes real numbers, got c64\[2,4\](.|\n)*use fft",
        ),
        (
            lambda x: td.fft.irfft(x[:, :1]),
            ShapeError,
            "irfft: .* one number along axis 1(.|\n)*n=1",
        ),
        (
            lambda x: td.fft.fftn(x, s=(2, 2, 2)),
            ShapeError,
            "fftn: 3 lengths for an array with 2 axes",
        ),
        (lambda x: td.fft.fftn(x, s=(2,), axes=(0, 1)), ShapeError, "fftn: 1 lengths for 2 axes"),
        (lambda x: td.fft.fftn(x, axes=()), ShapeError, "fftn: needs at least one axis"),
        (
            lambda x: td.fft.fft(x[:, :0]),
            ShapeError,
            "fft: a transform has at least 1 element, got 0",
        ),
        (
            lambda x: td.fft.fftfreq(0),
            ShapeError,
            "fftfreq: the length of a transform is an int, at least 1, got 0",
        ),
    ],
)
@pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "traced"])
def test_errors_say_what_to_do(run: Any, call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        run(call)(td.ones((2, 4)))


def test_a_length_that_is_a_dim_is_refused() -> None:
    with pytest.raises(
        ShapeError, match=r"fft: the length of a transform must be a number(.|\n)*other axes"
    ):
        td.jit(lambda x: td.fft.fft(x), dims=({0: td.Dim("n", max=9)},))(np.ones(4, np.complex64))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: td.fft.fftn(td.ones((2, 3)), axes=0), "fftn: axes is a sequence"),
        (lambda: td.fft.irfftn(td.ones((2, 3)), s=2), "irfftn: s is a sequence"),
        (lambda: td.fft.ihfft(td.ones(3), n=0), "ihfft: the length"),
        (lambda: td.fft.irfft(td.ones(0)), "has no numbers along axis 0"),
        (lambda: td.fft.fftfreq(4, d=0), "at a distance of 0"),
        (lambda: td.fft.rfftfreq(4, dtype="int32"), "frequencies are real floats, got i32"),
    ],
)
def test_settings_that_make_no_sense_are_named(call: Any, message: str) -> None:
    with pytest.raises((ShapeError, DtypeError), match=message):
        call()
