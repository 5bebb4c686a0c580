"""Numbers of low-bit weights outside of `jit`: products, their derivatives, loops and compiled
functions that take them never have them in memory, and give the bits of compiled products."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.ops.groups.test_kernel import same
from tetrad.core.errors import ShapeError, TraceError
from tetrad.tracing.deferred import Deferred

SIZE = 256
NAMES = ["int4", "nf4", "q4_k", "q8_0", "mxfp4"]
Weight = Any


def random(shape: tuple[int, ...], dtype: Any = td.float32, seed: int = 0) -> td.Array:
    numbers = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return td.asarray(numbers / 8).astype(dtype)


def weight(name: str, rows: int = SIZE, columns: int = SIZE) -> Weight:
    return td.quant.quantize(random((rows, columns)), name)


@pytest.fixture
def undecoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whoever asks for the elements fails."""

    def refuse(self: Deferred) -> None:
        raise AssertionError(f"{self.type} was decoded")

    monkeypatch.setattr(Deferred, "_compute", refuse)
    yield


# -- products --------------------------------------------------------------------------------------


def transposed(x: td.Array, q: Weight) -> td.Array:
    return x @ q.dequantize().T  # type: ignore[no-any-return]


def straight(x: td.Array, q: Weight) -> td.Array:
    return x @ q.dequantize()  # type: ignore[no-any-return]


def from_the_left(x: td.Array, q: Weight) -> td.Array:
    return td.matmul(q.dequantize(), x.T).T  # type: ignore[no-any-return]


def by_einsum(x: td.Array, q: Weight) -> td.Array:
    return td.einsum("bk,nk->bn", x, q.dequantize())  # type: ignore[no-any-return]


def by_tensordot(x: td.Array, q: Weight) -> td.Array:
    return td.tensordot(x, q.dequantize(), axes=((1,), (1,)))  # type: ignore[no-any-return]


def of_batches(x: td.Array, q: Weight) -> td.Array:
    return td.reshape(x, (2, -1, SIZE)) @ q.dequantize().mT  # type: ignore[no-any-return]


def of_a_vector(x: td.Array, q: Weight) -> td.Array:
    return x[0] @ q.dequantize()


PRODUCTS = [
    transposed, straight, from_the_left, by_einsum, by_tensordot, of_batches, of_a_vector,
]  # fmt: skip


@pytest.mark.usefixtures("undecoded")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("product", PRODUCTS)
def test_products_have_the_bits_of_compiled_ones(
    product: Callable[..., td.Array], name: str
) -> None:
    q, x = weight(name), random((4, SIZE), seed=1)
    found = product(x, q)
    assert type(found) is td.Array
    same(np.asarray(found), np.asarray(td.jit(product)(x, q)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("product", PRODUCTS)
def test_products_are_those_with_the_numbers(product: Callable[..., td.Array], name: str) -> None:
    class Numbers:
        def __init__(self, values: np.ndarray) -> None:
            self.values = td.asarray(values)

        def dequantize(self) -> td.Array:
            return self.values

    q, x = weight(name), random((4, SIZE), td.float64, seed=1)
    want = product(x, Numbers(np.asarray(q.dequantize(), np.float64)))
    got = product(x.astype(td.float32), q)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("undecoded")
@pytest.mark.parametrize("name", ["int4", "q4_k"])
@pytest.mark.parametrize("dtype", [td.float64, td.float16, td.bfloat16], ids=str)
def test_other_dtypes(dtype: Any, name: str) -> None:
    q, x = weight(name), random((4, SIZE), dtype, seed=1)
    for product in (transposed, straight, by_einsum):
        same(np.asarray(product(x, q)), np.asarray(td.jit(product)(x, q)))


def test_errors_are_those_of_arrays() -> None:
    with pytest.raises(ShapeError, match="inner sizes differ") as caught:
        random((4, 7)) @ weight("q4_k").dequantize().T
    assert caught.value.source is not None and caught.value.source.file == __file__


# -- derivatives, batches, loops -------------------------------------------------------------------


def total(product: Callable[..., td.Array]) -> Callable[..., td.Array]:
    return lambda x, q: td.sum(td.tanh(product(x, q)))


def slope(x: td.Array, q: Weight) -> td.Array:
    return td.grad(total(transposed))(x, q)  # type: ignore[no-any-return]


def slope_of_straight(x: td.Array, q: Weight) -> td.Array:
    return td.grad(lambda x: total(straight)(x, q))(x)  # type: ignore[no-any-return]


def curve(x: td.Array, q: Weight) -> td.Array:
    along = td.ones(x.shape)
    return td.jvp(lambda x: td.grad(total(transposed))(x, q), (x,), (along,))[1]  # type: ignore[no-any-return]


def in_rows(x: td.Array, q: Weight) -> td.Array:
    return td.vmap(lambda row: td.tanh(row @ q.dequantize().T))(x)  # type: ignore[no-any-return]


def looped(x: td.Array, q: Weight) -> td.Array:
    w = q.dequantize().T
    return td.scan(lambda c, _: (td.tanh(c @ w), None), x, None, length=3)[0]  # type: ignore[no-any-return]


def slope_of_loop(x: td.Array, q: Weight) -> td.Array:
    return td.grad(lambda x: td.sum(looped(x, q)))(x)  # type: ignore[no-any-return]


def branched(x: td.Array, q: Weight) -> td.Array:
    w = q.dequantize()
    return td.cond(x[0, 0] > 9, lambda x: x * 2, lambda x: x @ w.T, x)  # type: ignore[no-any-return]


def counted(x: td.Array, q: Weight) -> td.Array:
    w = q.dequantize()
    return td.fori_loop(0, 3, lambda i, c: td.tanh(c @ w), x)  # type: ignore[no-any-return]


def handed_over(x: td.Array, q: Weight) -> td.Array:
    return td.jit(lambda x, params: td.tanh(x @ params["w"]))(x, {"w": q.dequantize().T})  # type: ignore[no-any-return]


USES = [
    slope, slope_of_straight, curve, in_rows, looped, slope_of_loop, branched, counted, handed_over,
]  # fmt: skip


@pytest.mark.usefixtures("undecoded")
@pytest.mark.parametrize("name", ["nf4", "q4_k"])
@pytest.mark.parametrize("use", USES)
def test_uses_have_the_bits_of_compiled_ones(use: Callable[..., td.Array], name: str) -> None:
    q, x = weight(name), random((4, SIZE), seed=1)
    same(np.asarray(use(x, q)), np.asarray(td.jit(use)(x, q)))
    assert td.explain(use)(x, q).arena_bytes < SIZE * SIZE * 4


@pytest.mark.parametrize("name", ["int4", "q5_k"])
def test_gradients_are_those_with_the_numbers(name: str) -> None:
    q, x = weight(name), random((4, SIZE), seed=1)
    w, rows = np.asarray(q.dequantize(), np.float64), np.asarray(x, np.float64)
    want = (1 - np.tanh(rows @ w.T) ** 2) @ w
    np.testing.assert_allclose(np.asarray(slope(x, q)), want, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("undecoded")
@pytest.mark.parametrize("name", ["int4", "q4_k"])
def test_what_closes_over_the_numbers_holds_the_codes(name: str) -> None:
    q, x = weight(name), random((4, SIZE), seed=1)
    w = q.dequantize().T

    def product(x: td.Array) -> td.Array:
        return x @ w

    same(np.asarray(td.jit(product)(x)), np.asarray(td.jit(transposed)(x, q)))
    nodes = td.trace(product)(x).nodes()
    floats = [n for n in nodes if n.op.leaf and n.type.dtype.is_float]
    assert all(n.type.size < SIZE * SIZE for n in floats)


# -- elements --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_elements_are_computed_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    compute = Deferred._compute
    monkeypatch.setattr(Deferred, "_compute", lambda self: (counts.append(id(self)), compute(self)))
    w = weight(name).dequantize()
    assert not counts and repr(w) == repr(w) and w[3, 5].item() == w.tolist()[3][5]
    assert counts.count(id(w)) == 1
    want = np.asarray(w)
    np.testing.assert_array_equal(np.asarray(w + 1), want + 1)
    np.testing.assert_array_equal(np.asarray(w.T[2:4]), want.T[2:4])
    np.testing.assert_array_equal(np.asarray(pickle.loads(pickle.dumps(w))), want)
    np.testing.assert_array_equal(np.from_dlpack(w), want)
    assert counts.count(id(w)) == 1


def test_a_donated_one_is_gone_and_its_codes_are_not() -> None:
    q = weight("int4")
    w = q.dequantize()
    td.jit(lambda w: w + 1, donate_argnums=0)(w)
    assert w.is_deleted and not q.codes.is_deleted
    with pytest.raises(TraceError, match="donated"):
        np.asarray(w)


def test_a_function_compiled_for_floats_gives_the_same_bits_later() -> None:
    q, x = weight("int4"), random((4, SIZE), seed=1)
    fresh, used = (td.jit(lambda x, w: x @ w) for _ in range(2))
    used(x, td.asarray(np.asarray(q.dequantize().T)))
    same(np.asarray(used(x, q.dequantize().T)), np.asarray(fresh(x, q.dequantize().T)))


# -- memory ----------------------------------------------------------------------------------------


def peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system keeps no peak")
@pytest.mark.parametrize("name", ["int4", "nf4", "q4_k"])
def test_memory_of_products_and_gradients(name: str) -> None:
    """4096 x 2048 numbers are 32 MB of floats, and 4 MB of codes."""
    q, x, y = weight(name, 4096, 2048), random((4, 2048), seed=1), random((4, 4096), seed=2)
    for function in (
        lambda: transposed(x, q), lambda: straight(y, q), lambda: slope(x, q)
    ):  # fmt: skip
        function()  # compiled now
        Path("/proc/self/clear_refs").write_text("5")
        before = peak()
        function()
        assert peak() - before < 8 << 20
