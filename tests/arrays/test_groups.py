"""Integers of four bits as arrays, and quantised arrays as trees: what users do with both."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tetrad as td


def random(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


CODES = td.asarray([[1, 2, 15], [0, 7, 8]], dtype=td.uint4)
SIGNED = td.asarray([-8, -1, 0, 7], dtype=td.int4)


# -- integers of four bits -------------------------------------------------------------------------


def test_what_an_array_of_four_bits_is() -> None:
    assert (CODES.shape, CODES.size, CODES.ndim, CODES.nbytes) == ((2, 3), 6, 2, 3)
    assert CODES.dtype is td.uint4 and str(td.int4) == "int4"
    assert CODES.to_bytes() == bytes([0x21, 0x0F, 0x87]) and SIGNED.to_bytes() == b"\xf8\x70"
    assert repr(SIGNED) == "Array([-8, -1,  0,  7], int4)" and str(SIGNED) == "[-8 -1  0  7]"
    assert td.asarray([3], dtype=td.uint4).to_bytes() == b"\x03"
    assert td.iinfo(td.uint4).max == 15 and td.iinfo(td.int4).min == -8
    assert CODES.tolist() == [[1, 2, 15], [0, 7, 8]] and int(SIGNED[1]) == -1
    assert td.uint4 != td.int4 and td.uint4 == "uint4" and hash(td.uint4) != hash(td.int4)
    assert td.can_cast(td.uint4, td.uint4) and not td.can_cast(td.uint4, td.int8)


def test_numpy_sees_a_byte_for_each() -> None:
    for array, dtype in ((CODES, np.uint8), (SIGNED, np.int8)):
        seen = np.asarray(array)
        assert seen.dtype == dtype and seen.shape == array.shape
        assert (np.from_dlpack(array) == seen).all() and seen.tolist() == array.tolist()
    other = np.asarray(CODES, ml_dtypes.uint4)
    assert other.dtype == ml_dtypes.uint4
    back = td.asarray(other)
    assert back.dtype is td.uint4 and back.to_bytes() == CODES.to_bytes()
    assert td.asarray(np.array([-8, 7], ml_dtypes.int4)).tolist() == [-8, 7]


@pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_conversions(run: Any) -> None:
    for dtype in (td.int8, td.uint8, td.float32, td.float16, td.int64, td.bool):
        wide = run(lambda x, dtype=dtype: x.astype(dtype))(CODES)
        want = np.asarray(CODES).astype(dtype.np)
        assert wide.dtype is dtype and (np.asarray(wide) == want).all()
    x = td.asarray([-100.0, -8.4, -0.9, 7.9, 15.9, 100.0, float("nan")])
    assert run(lambda x: x.astype(td.int4))(x).tolist() == [-8, -8, 0, 7, 7, 7, 0]
    assert run(lambda x: x.astype(td.uint4))(x).tolist() == [0, 0, 0, 7, 15, 15, 0]
    ints = td.asarray([-9, -1, 8, 17])
    assert run(lambda x: x.astype(td.int4))(ints).tolist() == [7, -1, -8, 1]
    assert run(lambda x: x.astype(td.uint4))(SIGNED).tolist() == [8, 15, 0, 7]


@pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_elements_are_moved(run: Any) -> None:
    whole = np.asarray(CODES)
    for function in (
        lambda x: x[1], lambda x: x[:, 1:], lambda x: x[::-1, ::2], lambda x: x.reshape(3, 2),
        lambda x: x.T, lambda x: td.concat([x, x], axis=1), lambda x: td.stack([x, x]),
        lambda x: td.flip(x), lambda x: x[td.asarray([1, 0, 1])],
    ):  # fmt: skip
        found = run(function)(CODES)
        assert found.dtype is td.uint4
        want = np.asarray(run(function)(td.asarray(whole)))
        assert (np.asarray(found) == want).all()


def test_creation() -> None:
    assert td.zeros((2,), dtype=td.int4).tolist() == [0, 0]
    assert td.full((3,), -8, dtype=td.int4).tolist() == [-8] * 3
    assert td.arange(5, dtype=td.uint4).tolist() == [0, 1, 2, 3, 4]
    assert td.asarray(CODES, copy=True).tolist() == CODES.tolist()
    assert td.jit(lambda: td.ones((3,), dtype=td.uint4))().tolist() == [1, 1, 1]
    for wrong in ([16], [-1], [[3], [99]]):
        with pytest.raises(td.errors.DtypeError, match="does not fit uint4"):
            td.asarray(wrong, dtype=td.uint4)
    with pytest.raises(td.errors.DtypeError, match="does not fit int4"):
        td.full((2,), 8, dtype=td.int4)


def test_they_are_stored_only() -> None:
    for function in (
        lambda x: x + x, lambda x: -x, lambda x: x * 2, lambda x: x == x, td.sort,
        lambda x: x.max(), lambda x: x + td.asarray([1]),
    ):  # fmt: skip
        for run in (lambda f: f, td.jit):
            with pytest.raises(td.errors.DtypeError, match="stored only: convert with astype"):
                run(function)(SIGNED)
    assert td.sum(SIGNED.astype(td.int32)).item() == -2 and td.sum(CODES).item() == 33
    assert td.nonzero(SIGNED)[0].tolist() == [0, 1, 3]


# -- quantised arrays ------------------------------------------------------------------------------


def quantized(shape: tuple[int, ...] = (4, 64), **settings: Any) -> td.quant.GroupQuantized:
    given = {"name": "int4", "group": 32} | settings
    return td.quant.quantize(random(shape), given.pop("name"), **given)


def test_what_a_quantised_array_is() -> None:
    q = quantized()
    assert (q.shape, q.ndim, q.size, q.dtype) == ((4, 64), 2, 256, td.float32)
    assert q.nbytes == 128 + 2 * 8 * 4 and not q.symmetric and q.group == 32
    assert (q.codes.dtype, q.codes.shape, q.scale.shape) == (td.uint4, (4, 64), (8,))
    assert repr(q) == "GroupQuantized(int4[4,64], group=32, float32)"
    assert quantized(symmetric=True).zero_point is None
    assert td.quant.quantize(random((3,)), "nf4").group == 64
    with pytest.raises(AttributeError):
        q.group = 3  # type: ignore[misc]


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 4), (5,), (2, 3, 5), (1, 1, 7)], ids=str)
@pytest.mark.parametrize("name", ["int4", "nf4"])
@pytest.mark.parametrize("group", [1, 3, 64])
def test_any_rank_and_group(name: str, shape: tuple[int, ...], group: int) -> None:
    x = random(shape)
    q = td.quant.quantize(x, name, group=group)
    back = np.asarray(q.dequantize())
    assert back.shape == shape == q.shape and q.scale.shape == (-(-x.size // group),)
    assert back.size == 0 or np.abs(back - x).max() <= np.asarray(q.scale).max()
    if group == 1:  # a group of one keeps its ends, and those of an affine group zero and itself
        np.testing.assert_allclose(back, x, rtol=1e-6)


def test_all_equal_groups_and_small_numbers() -> None:
    for value in (0.0, -0.0, 1.5, -3.0, 1e-45, 3e-39, 1e30):
        x = np.full(40, value, np.float32)
        for name, settings in (("int4", {}), ("int4", {"symmetric": True}), ("nf4", {}),
                               ("int4", {"zero_point": "float"})):  # fmt: skip
            back = np.asarray(td.quant.quantize(x, name, group=16, **settings).dequantize())
            assert np.isfinite(back).all()
            slack = 0 if abs(value) > 1e-38 else 1e-44  # steps of subnormal numbers are whole units
            if settings != {"zero_point": "float"}:  # whose equal numbers have a range of nothing
                assert (np.abs(back - x) <= 1e-6 * np.abs(x) + slack).all()


def test_zero_scales_decode_to_zero() -> None:
    q = td.quant.from_parts(b"\x21\x43", [0.0], [3.0], group=4, shape=(4,))
    assert np.asarray(q.dequantize()).tolist() == [-0.0, -0.0, 0.0, 0.0]


@pytest.mark.parametrize("settings", [{}, {"symmetric": True}, {"name": "nf4"}], ids=str)
@pytest.mark.parametrize("dtype", [td.float32, td.float16, td.float64], ids=str)
def test_bytes_and_parts_go_round(settings: dict[str, Any], dtype: Any) -> None:
    for shape in ((3, 7), (0,), (64,)):
        given = {"name": "int4"} | settings
        name = given.pop("name")
        x = td.asarray(random(shape)).astype(dtype)
        q = td.quant.quantize(x, name, group=5, **given)
        back = td.quant.from_bytes(q.to_bytes(), name, shape=shape, group=5, dtype=dtype, **given)
        same = td.quant.from_parts(*q.parts, scheme=name, group=5, dtype=dtype)
        for other in (back, same):
            assert other.dtype is dtype
            assert (np.asarray(other.dequantize()) == np.asarray(q.dequantize())).all()
        with pytest.raises(td.errors.ShapeError, match=r"takes .* bytes"):
            td.quant.from_bytes(
                q.to_bytes() + b"0", name, shape=shape, group=5, dtype=dtype, **given
            )
    with pytest.raises(td.errors.ShapeError, match="not of shape"):
        td.quant.from_parts(CODES, [1.0], group=8, shape=(3, 2))


def test_it_is_a_tree() -> None:
    q, x = quantized((6, 64)), td.asarray(random((2, 64), 1))
    want = np.asarray(x) @ np.asarray(q.dequantize()).T
    leaves = td.tree.leaves(q)
    assert [leaf.dtype for leaf in leaves] == [td.uint4, td.float32, td.float32]
    for same in (td.tree.map(lambda a: a, q), pickle.loads(pickle.dumps(q)), copy.deepcopy(q),
                 td.jit(lambda q: q)(q), td.jit(lambda q: {"q": q})(q)["q"]):  # fmt: skip
        assert repr(same) == repr(q)
        np.testing.assert_allclose(np.asarray(td.quant.matmul(x, same)), want, rtol=1e-5)
    looped = td.jit(lambda q, x: td.fori_loop(0, 2, lambda i, c: td.quant.matmul(x, q), x[:, :6]))
    np.testing.assert_allclose(np.asarray(looped(q, x)), want, rtol=1e-5, atol=1e-5)
    chosen = td.jit(
        lambda p, q: td.cond(p, lambda q: x @ q.dequantize().T, lambda q: td.zeros((2, 6)), q)
    )
    np.testing.assert_allclose(np.asarray(chosen(td.asarray(True), q)), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "compiled"])
def test_stacks_of_weights(run: Any) -> None:
    """Quantised by vmap or scan, multiplied by vmap or scan."""
    w, x = td.asarray(random((3, 8, 64))), td.asarray(random((2, 64), 1))
    alone = [td.quant.quantize(one, "int4", group=32) for one in w]
    want = np.stack([np.asarray(x) @ np.asarray(q.dequantize()).T for q in alone])

    def quantize(w: td.Array) -> td.quant.GroupQuantized:
        return td.quant.quantize(w, "int4", group=32)  # type: ignore[no-any-return]

    def product(x: td.Array, q: td.quant.GroupQuantized) -> td.Array:
        return x @ q.dequantize().T  # type: ignore[no-any-return]

    for stacked in (
        run(td.vmap(quantize))(w),
        run(lambda w: td.scan(lambda c, one: (c, quantize(one)), td.asarray(0.0), w)[1])(w),
    ):
        assert stacked.shape == (3, 8, 64) and stacked.scale.shape == (3, 16)
        assert (np.asarray(stacked.codes) == np.stack([np.asarray(q.codes) for q in alone])).all()
        for found in (
            run(td.vmap(product, in_axes=(None, 0)))(x, stacked),
            run(lambda x, q: td.scan(lambda c, one: (c, product(x, one)), 0.0, q)[1])(x, stacked),
        ):
            np.testing.assert_allclose(np.asarray(found), want, rtol=1e-5, atol=1e-5)
    with pytest.raises(td.errors.ShapeError, match="do not end with a byte"):
        run(lambda w: td.scan(lambda c, one: (c, quantize(one)), td.asarray(0.0), w)[1])(
            w[:, :1, :3]
        )


def test_derivatives_of_numbers_and_their_reasons() -> None:
    q = quantized((2, 64))
    gradient = td.grad(lambda s: td.sum(
        td.quant.from_parts(q.codes, s, q.zero_point, group=32).dequantize() ** 2
    ))  # fmt: skip
    numbers = np.asarray(q.dequantize()).reshape(4, 32).astype(np.float64)
    want = (2 * numbers**2).sum(1) / np.asarray(q.scale)
    np.testing.assert_allclose(np.asarray(gradient(q.scale)), want, rtol=1e-5)
    hessian = td.hessian(lambda s: td.sum(
        td.quant.from_parts(q.codes, s, q.zero_point, group=32).dequantize() ** 2
    ))(q.scale)  # fmt: skip
    np.testing.assert_allclose(np.diag(np.asarray(hessian)), want / np.asarray(q.scale), rtol=1e-5)
    with pytest.raises(td.errors.TetradError, match="do not change smoothly"):
        td.grad(lambda x: td.sum(td.quant.quantize(x, "int4", group=4).dequantize()))(td.ones((8,)))


@pytest.mark.parametrize("run", [lambda f: f, td.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize("group", [32, 24])
def test_second_derivatives_by_both_factors(run: Any, group: int) -> None:
    """Of the sum of ((code - zero) scale)**2: rules of dequantize_groups and reduce_groups, both
    ways."""
    q = td.quant.quantize(random((2, 64)).astype(np.float64), "int4", group=group)

    def loss(scale: td.Array, zero: td.Array) -> td.Array:
        return td.sum(td.quant.from_parts(q.codes, scale, zero, group=group).dequantize() ** 2)

    found = run(td.hessian(loss, argnums=(0, 1)))(q.scale, q.zero_point)
    scale, zero = np.asarray(q.scale), np.asarray(q.zero_point)
    padded = np.full(scale.size * group, np.nan)
    padded[:128] = np.asarray(q.codes).reshape(-1)
    steps = padded.reshape(-1, group) - zero[:, None]
    counts = np.isfinite(steps).sum(1)
    want = [
        [2 * np.nansum(steps**2, axis=1), -4 * scale * np.nansum(steps, axis=1)],
        [-4 * scale * np.nansum(steps, axis=1), 2 * scale**2 * counts],
    ]
    for i in range(2):
        for j in range(2):
            np.testing.assert_allclose(np.asarray(found[i][j]), np.diag(want[i][j]), atol=1e-9)


def test_products_of_the_public_function() -> None:
    q = quantized((6, 64))
    for x in (random((64,), 1), random((2, 3, 64), 1)):
        want = x @ np.asarray(q.dequantize()).T
        np.testing.assert_allclose(np.asarray(td.quant.matmul(x, q)), want, rtol=1e-4, atol=1e-5)
        close = np.asarray(td.quant.matmul(x, q, activations="int8"))
        assert close.shape == want.shape and np.abs(close - want).max() < 0.5
    with pytest.raises(td.errors.ShapeError, match="does not fit"):
        td.quant.matmul(td.ones((2, 63)), q)
    with pytest.raises(td.errors.UnsupportedError, match="activations 'int4'"):
        td.quant.matmul(td.ones((2, 64)), q, activations="int4")


def test_factors_keep_leading_axes_of_the_codes() -> None:
    x, y = random((6, 32)), random((4, 32), 1)
    for group in (100, 64, 32, 16, 5):
        stacked = td.vmap(lambda x, group=group: td.quant.quantize(x, "int4", group=group))(x)
        same = td.quant.from_parts(*stacked.parts, group=group)
        want = np.asarray(stacked.dequantize())
        assert same.scale.shape == stacked.scale.shape and same.scale.ndim == 2
        np.testing.assert_array_equal(np.asarray(same.dequantize()), want)
        for activations, most in ((None, 1e-5), ("int8", 0.2)):
            for run in (lambda f: f, td.jit):
                found = run(lambda q, a=activations: td.quant.matmul(y, q, activations=a))(same)
                assert np.abs(np.asarray(found) - y @ want.T).max() < most
        if 32 % group:
            with pytest.raises(td.errors.ShapeError, match=r"begins its groups anew at each"):
                stacked.to_bytes()
        else:
            back = td.quant.from_bytes(stacked.to_bytes(), "int4", shape=(6, 32), group=group)
            np.testing.assert_array_equal(np.asarray(back.dequantize()), want)


def test_factors_of_another_shape_are_refused() -> None:
    codes = td.zeros((4, 6), dtype=td.uint4)
    assert td.quant.from_parts(codes, td.ones((4, 2)), group=3).scale.shape == (4, 2)
    for shape in ((2, 4), (8, 1), (4, 2, 1), (4, 6, 1, 1), (1, 8)):
        with pytest.raises(td.errors.ShapeError, match=r"do not belong to codes uint4\[4,6\]"):
            td.quant.from_parts(codes, td.ones(shape), group=3)
    with pytest.raises(td.errors.ShapeError, match=r"zeros f32\[8\] beside scales f32\[4,2\]"):
        td.quant.from_parts(codes, td.ones((4, 2)), td.ones(8), group=3)
    with pytest.raises(td.errors.DtypeError, match="scales are real numbers"):
        td.quant.from_parts(codes, [1j] * 8, group=3)


def test_codes_of_one_and_of_two_in_a_byte() -> None:
    """Integers in the shape of the codes are one each; bytes of the packed length are two."""
    want = [[1, 2, 15], [0, 7, 8]]
    wide = np.array(want)
    packed = np.frombuffer(CODES.to_bytes(), np.uint8)
    for codes in (wide, wide.astype(np.uint8), wide.T.copy().T, want, td.asarray(wide), CODES):
        for shape in ({"shape": (2, 3)}, {}):
            if shape or getattr(codes, "dtype", None) not in (np.uint8, td.uint8):
                assert td.quant.from_parts(codes, [1.0], group=6, **shape).codes.tolist() == want
    spread = np.repeat(packed, 2)[::2]
    for codes in (packed, td.asarray(packed), packed.tobytes(), bytearray(packed), spread,
                  memoryview(packed), packed.reshape(3, 1), np.append(packed, packed)):  # fmt: skip
        found = td.quant.from_parts(codes, [1.0], group=6, shape=(2, 3)).codes
        assert found.tolist() == want


@pytest.mark.parametrize(
    ("codes", "error", "text"),
    [
        (np.full((2, 3), 16), "DtypeError", "codes are from 0 to 15, got 16"),
        (np.full((2, 3), 17, np.uint8), "DtypeError", "codes are from 0 to 15, got 17"),
        ([[-1] * 3] * 2, "DtypeError", "codes are from 0 to 15, got -1"),
        (np.ones(6), "ShapeError", "not of shape"),
        (np.ones((2, 3)), "DtypeError", "codes are uint4 or bytes, got f64"),
        (np.ones((2, 2), np.uint8), "ShapeError", "not of shape"),
        (np.ones(3, np.int64), "ShapeError", "not of shape"),
        (np.ones(2, np.uint8), "ShapeError", "packed input too small: expected 3, actual 2"),
        (memoryview(np.ones(3, np.int64)), "DtypeError", "expected bytes, got elements of format"),
        (None, "DtypeError", "expected bytes, got a NoneType"),
    ],
    ids=range(10),
)
def test_what_no_codes_are(codes: Any, error: str, text: str) -> None:
    with pytest.raises(getattr(td.errors, error), match=text):
        td.quant.from_parts(codes, [1.0], group=6, shape=(2, 3))
    with pytest.raises(td.errors.DtypeError, match="got i32"):
        td.jit(lambda c: td.quant.from_parts(c, [1.0], group=6).dequantize())(np.ones((2, 3), "i4"))


def test_shapes_that_cannot_be() -> None:
    q = quantized((4, 16), group=8)
    for shape, text in (((-4, -16), "negative size"), ((4.0, 16), "holds ints"), (None, "ints")):
        with pytest.raises(td.errors.ShapeError, match=text):
            td.quant.from_bytes(q.to_bytes(), "int4", shape=shape, group=8)  # type: ignore[arg-type]
        with pytest.raises(td.errors.ShapeError, match=text):
            td.quant.from_bytes(bytes(18), "q4_0", shape=shape)  # type: ignore[arg-type]
        if shape is not None:
            with pytest.raises(td.errors.ShapeError, match=text):
                td.quant.from_parts(bytes(32), q.scale, group=8, shape=shape)  # type: ignore[arg-type]
    flat = td.quant.from_bytes(q.to_bytes(), "int4", shape=64, group=np.int64(8))  # type: ignore[arg-type]
    assert flat.shape == (64,)
    for wrong in (np.zeros(12, np.int64), [1, 2]):
        with pytest.raises(td.errors.DtypeError, match="from_bytes: expected bytes"):
            td.quant.from_bytes(wrong, "int4", shape=(4, 16), group=8)
    x = td.quant.quantize(random((9,)), "int4", group=4, zero_point="float")
    back = td.quant.from_bytes(x.to_bytes(), "int4", shape=(9,), group=4, zero_point="float")
    assert back.dequantize().tolist() == x.dequantize().tolist()


def test_settings_of_the_class_are_checked() -> None:
    q = quantized((4, 16), group=8)
    make = td.quant.GroupQuantized
    with pytest.raises(td.errors.UnsupportedError, match="unknown scheme 'int9'"):
        make(q.codes, q.scale, q.zero_point, "int9", 8, td.float32)
    with pytest.raises(td.errors.ShapeError, match="group_size must be non-zero"):
        make(q.codes, q.scale, q.zero_point, "int4", 0, td.float32)
    same = make(*q.parts, "int4", np.int64(8), "float32")
    assert repr(same) == repr(q) and same.dequantize().tolist() == q.dequantize().tolist()


@pytest.mark.parametrize("inputs", [20, 32, 128])
@pytest.mark.parametrize("activations", [None, "int8"])
def test_products_of_a_batch_of_nothing(inputs: int, activations: str | None) -> None:
    q = td.quant.quantize(random((6, inputs)), "int4", group=inputs // 4)

    def call(x: Any) -> Any:
        return td.quant.matmul(x, q, activations=activations)

    for run in (call, td.jit(call)):
        assert run(np.ones((0, inputs), np.float32)).shape == (0, 6)
        assert run(np.ones((2, 0, inputs), np.float32)).shape == (2, 0, 6)
