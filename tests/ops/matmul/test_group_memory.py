"""Products with weights in groups: wherever the weight comes from and whatever is asked of the
product, no array of the weight's size is in memory, and the numbers are those of an argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.ops.groups.test_kernel import same
from tetrad.graph.evaluate import evaluate

SIZE = 256  # square weights, so that loops can feed a product its result
ELEMENTS = SIZE * SIZE
Weight = td.quant.GroupQuantized
DTYPES = [td.float32, td.float16, td.bfloat16, td.float64]


def random(shape: tuple[int, ...], dtype: Any = td.float32, seed: int = 0) -> td.Array:
    numbers = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return td.asarray(numbers / 8).astype(dtype)


def weight(dtype: Any = td.float32, **settings: Any) -> Weight:
    return td.quant.quantize(random((SIZE, SIZE), dtype), "int4", group=64, **settings)  # type: ignore[no-any-return]


def product(x: td.Array, q: Weight) -> td.Array:
    return x @ q.dequantize().T  # type: ignore[no-any-return]


def check(function: Callable[..., Any], *args: Any, least: int = 4) -> None:
    """No memory for the weight at `least` bytes a number; compiled as NumPy has it, but for
    rounding."""
    assert td.explain(function)(*args).arena_bytes < ELEMENTS * least
    leaves = [x.memory for x in td.tree.leaves(args)]
    (meant,) = evaluate(td.trace(function)(*args), leaves)
    got, want = (np.asarray(x).astype(np.float64) for x in (td.jit(function)(*args), meant))
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3 * np.abs(want).max())


def total(x: td.Array) -> td.Array:
    return td.sum(td.tanh(x.astype(td.float32)))


# -- a weight that is closed over ------------------------------------------------------------------


def linear(x: td.Array, q: Weight) -> td.Array:
    """Its derivative does not depend on x: it is known while tracing."""
    return td.sum(product(x, q))


def curved(x: td.Array, q: Weight) -> td.Array:
    return total(product(x, q))


@pytest.mark.parametrize("rows", [1, 8, 33])
@pytest.mark.parametrize("settings", [{}, {"symmetric": True}], ids=["affine", "symmetric"])
@pytest.mark.parametrize("function", [product, td.grad(linear), td.grad(curved)])
def test_a_weight_closed_over_gives_the_bits_of_an_argument(
    function: Callable[..., Any], settings: dict[str, Any], rows: int
) -> None:
    q, x = weight(**settings), random((rows, SIZE), seed=1)
    assert td.explain(lambda x: function(x, q))(x).arena_bytes < ELEMENTS * 4
    same(np.asarray(td.jit(lambda x: function(x, q))(x)), np.asarray(td.jit(function)(x, q)))


def test_a_weight_closed_over_is_no_constant_of_floats() -> None:
    q = weight()
    graph = td.trace(lambda x: product(x, q))(td.Spec((2, SIZE), td.float32))
    constants = [n for n in graph.nodes() if n.op.name == "constant" and n.type.dtype.is_float]
    assert all(n.type.size < ELEMENTS for n in constants)


# -- dtypes ----------------------------------------------------------------------------------------


def by_einsum(x: td.Array, q: Weight) -> td.Array:
    return td.einsum("bk,nk->bn", x, q.dequantize())  # type: ignore[no-any-return]


def by_tensordot(x: td.Array, q: Weight) -> td.Array:
    return td.tensordot(x, q.dequantize(), axes=((1,), (1,)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("of_weight", DTYPES, ids=str)
@pytest.mark.parametrize("of_rows", DTYPES, ids=str)
def test_any_two_dtypes(of_rows: Any, of_weight: Any) -> None:
    q, x = weight(of_weight), random((8, SIZE), of_rows, seed=1)
    for function in (product, by_einsum, by_tensordot):
        check(function, x, q, least=2)
        check(td.grad(lambda x, q, f=function: total(f(x, q))), x, q, least=2)


@pytest.mark.parametrize("of_weight", DTYPES, ids=str)
@pytest.mark.parametrize("of_rows", DTYPES, ids=str)
def test_derivatives_by_factors_of_any_dtype(of_rows: Any, of_weight: Any) -> None:
    q, x = weight(of_weight), random((8, SIZE), of_rows, seed=1)

    def by_scale(scale: td.Array, x: td.Array) -> td.Array:
        return curved(x, Weight(q.codes, scale, q.zero_point, "int4", 64, q.dtype))

    def by_zero(zero: td.Array, x: td.Array) -> td.Array:
        return curved(x, Weight(q.codes, q.scale, zero, "int4", 64, q.dtype))

    def by_scale_of_einsum(scale: td.Array, x: td.Array) -> td.Array:
        return total(by_einsum(x, Weight(q.codes, scale, q.zero_point, "int4", 64, q.dtype)))

    check(td.grad(by_scale), q.scale, x, least=2)
    check(td.grad(by_scale_of_einsum), q.scale, x, least=2)
    check(td.grad(by_zero), q.zero_point, x, least=2)


# -- loops and branches ----------------------------------------------------------------------------


def looped(x: td.Array, q: Weight) -> td.Array:
    return td.scan(lambda c, _: (td.tanh(product(c, q)), None), x, None, length=3)[0]  # type: ignore[no-any-return]


def looped_over(x: td.Array, q: Weight) -> td.Array:
    return td.scan(lambda c, q: (td.tanh(product(c, q)), None), x, q)[0]  # type: ignore[no-any-return]


def there_and_back(x: td.Array, q: Weight) -> td.Array:
    return td.scan(lambda c, _: (product(c, q) @ q.dequantize(), None), x, None, length=3)[0]  # type: ignore[no-any-return]


def branched(x: td.Array, q: Weight) -> td.Array:
    return td.cond(x[0, 0] > 9, lambda x: x * 2, lambda x: product(x, q), x)  # type: ignore[no-any-return]


def nested(x: td.Array, q: Weight) -> td.Array:
    return td.scan(lambda c, _: (looped(branched(c, q), q), None), x, None, length=2)[0]  # type: ignore[no-any-return]


def counted(x: td.Array, q: Weight) -> td.Array:
    return td.fori_loop(0, 3, lambda i, c: td.tanh(product(c, q)), x)  # type: ignore[no-any-return]


LOOPS = [looped, there_and_back, branched, nested, counted]


@pytest.mark.parametrize("is_closed", [False, True], ids=["argument", "closed"])
@pytest.mark.parametrize("loop", LOOPS)
def test_loops_and_branches_and_their_derivatives(
    loop: Callable[..., Any], is_closed: bool
) -> None:
    q, x = weight(), random((8, SIZE), seed=1)
    if is_closed:
        check(lambda x: loop(x, q), x)
        check(td.grad(lambda x: total(loop(x, q))), x)
    else:
        check(loop, x, q)
        check(td.grad(lambda x, q: total(loop(x, q))), x, q)


def test_a_loop_over_weights_and_its_derivative() -> None:
    parts = [td.stack([part] * 3) for part in weight().parts]
    stacked = Weight(*parts, "int4", 64, td.float32)
    x = random((8, SIZE), seed=1)
    check(looped_over, x, stacked)
    check(td.grad(lambda x, q: total(looped_over(x, q))), x, stacked)


def test_a_while_loop() -> None:
    q, x = weight(), random((8, SIZE), seed=1)

    def function(x: td.Array, q: Weight) -> td.Array:
        start = (td.asarray(0), x)
        return td.while_loop(  # type: ignore[no-any-return]
            lambda s: s[0] < 3, lambda s: (s[0] + 1, td.tanh(product(s[1], q))), start
        )[1]

    check(function, x, q)
    check(lambda x: function(x, q), x)


def test_numbers_that_a_loop_reads_otherwise_still_leave_it() -> None:
    """Decoded once, not in every step."""
    q, x = weight(), random((SIZE, SIZE), seed=1)

    def function(x: td.Array, q: Weight) -> td.Array:
        return td.scan(lambda c, _: (c * q.dequantize(), None), x, None, length=3)[0]  # type: ignore[no-any-return]

    names = [n.op.name for n in td.explain(function)(x, q).graph.nodes()]
    assert "dequantize_groups" in names
