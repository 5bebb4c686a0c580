"""Kernels of arrays in groups: machine code, the kernel evaluator and NumPy agree to the bit, for
sizes around vectors, bytes and groups. Ops: unpack_nibbles, pack_nibbles, quantize_groups,
dequantize_groups, reduce_groups, product_groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiled import difference
from tetrad.backends.cpu.isa import LEVELS, current_target
from tetrad.compiler.pipeline import lower_graph
from tetrad.core.dtypes import f32, named
from tetrad.core.machine import Machine
from tetrad.lower.lower import Lowerer
from tetrad.ops.groups.op import (
    dequantize_groups,
    pack_nibbles,
    product_groups,
    quantize_groups,
    reduce_groups,
    unpack_nibbles,
)
from tetrad.schedule.evaluate import evaluate as evaluate_schedule

SCHEMES = ("int4", "int4_float", "int4_symmetric", "nf4")
SIZES = sorted({n + d for n in (0, 4, 8, 16, 32, 64, 256) for d in (-1, 0, 1) if n + d >= 0})
GROUPS = (3, 32, 1000)
# elements, group, and whether there are zero points
DECODED = (
    (0, 4, True), (1, 3, False), (65, 5, True), (256, 64, True), (96, 96, False),
    (4096, 4096, True), (128, 1000, True),
)  # fmt: skip


def numbers(n: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(n).astype(dtype)


def on_evaluator(
    function: Callable[..., Any], arrays: list[td.Array], machine: Machine | None = None
) -> list[np.ndarray]:
    """What the kernels mean, as they are written for a machine."""
    graph = td.trace(function)(*[td.Spec(a.shape, a.dtype) for a in arrays])
    schedule = lower_graph(graph, Lowerer(machine or current_target().machine))
    return evaluate_schedule(schedule, [np.asarray(a.memory) for a in arrays], {})


def same(got: Any, want: Any) -> None:
    problem = difference(np.asarray(got).reshape(-1), np.asarray(want).reshape(-1))
    assert problem is None, problem


def bytes_of(x: td.Array) -> np.ndarray:
    return np.asarray(x.memory)


@pytest.mark.parametrize("dtype", [td.uint4, td.int4], ids=str)
def test_integers_of_four_bits_of_every_size(dtype: Any) -> None:
    low = 0 if dtype is td.uint4 else -8
    for n in SIZES:
        values = (np.arange(n) * 7 % 16 + low).astype(np.uint8 if low == 0 else np.int8)
        wide = td.asarray(values)
        packed = td.jit(pack_nibbles)(wide)
        same(bytes_of(packed), bytes_of(pack_nibbles(wide)))
        same(td.jit(unpack_nibbles)(packed).memory, values)
        same(unpack_nibbles(packed).memory, values)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_codes_and_factors_are_those_of_numpy(scheme: str, dtype: str) -> None:
    for group in GROUPS:
        quantized = td.jit(lambda x, group=group: quantize_groups(x, scheme=scheme, group=group))
        every = dtype == "float32" and group == (3 if scheme == "nf4" else 32)
        for n in SIZES if every else (1, 64):
            x = td.asarray(numbers(n)).astype(named(dtype))
            for got, want in zip(
                quantized(x), quantize_groups(x, scheme=scheme, group=group), strict=True
            ):
                same(got.memory, want.memory)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_evaluator_and_other_machines_give_the_same_codes(scheme: str) -> None:
    for n, group in ((256, 64), (96, 96), (33, 7)):
        x = td.asarray(numbers(n))

        def quantized(x: td.Array, group: int = group) -> Any:
            return quantize_groups(x, scheme=scheme, group=group)

        want = [np.asarray(part.memory) for part in td.jit(quantized)(x)]
        for machine in {target.machine for target in LEVELS.values()}:
            for got, part in zip(on_evaluator(quantized, [x], machine), want, strict=True):
                same(got, part)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("scheme", ["int4", "nf4", "ones"])
def test_numbers_are_those_of_numpy(scheme: str, dtype: str) -> None:
    for factors in (np.float32, np.float64)[: 2 if dtype in ("float32", "float64") else 1]:
        for n, group, has_zero in DECODED:
            codes = td.asarray(np.arange(n, dtype=np.uint8) * 7 % 16).astype(td.uint4)
            count = -(-n // group)
            parts = [td.asarray(numbers(count, factors)), td.asarray(numbers(count, factors, 1))]
            used = parts[: 2 if has_zero and scheme == "int4" else 1]

            def decoded(codes: td.Array, *parts: td.Array, group: int = group) -> td.Array:
                return dequantize_groups(  # type: ignore[no-any-return]
                    codes, *parts, scheme=scheme, group=group, dtype=named(dtype)
                )

            want = decoded(codes, *used)
            same(td.jit(decoded)(codes, *used).memory, want.memory)
            if n <= 256:
                same(on_evaluator(decoded, [codes, *used])[0], want.memory)


def test_factors_below_leading_axes() -> None:
    """Each matrix has groups of its own, whose last is short."""
    x = td.asarray(numbers(3 * 35).reshape(3, 5, 7))
    for run in (lambda f: f, td.jit):
        codes, scale, zero = run(lambda x: quantize_groups(x, scheme="int4", group=4, lead=1))(x)
        assert scale.shape == zero.shape == (3, 9)
        back = run(lambda *q: dequantize_groups(*q, scheme="int4", group=4, dtype=f32))(
            codes, scale, zero
        )
        for i in range(3):
            alone = td.quant.quantize(x[i], "int4", group=4)
            same(back[i].memory, alone.dequantize().memory)


@pytest.mark.parametrize("lead", [0, 1])
@pytest.mark.parametrize("scheme", ["int4", "nf4", "ones"])
def test_sums_over_groups(scheme: str, lead: int) -> None:
    for shape, group in (((6, 8), 4), ((3, 7), 5), ((2, 64), 64), ((4, 6), 100)):
        x = td.asarray(numbers(int(np.prod(shape))).reshape(shape))
        codes = td.asarray(np.arange(x.size, dtype=np.uint8).reshape(shape) % 16).astype(td.uint4)
        each = shape[1] if lead else x.size
        sizes = (*shape[:lead], -(-each // group))
        zero = [td.asarray(numbers(int(np.prod(sizes)), seed=2).reshape(sizes))]

        def sums(x: td.Array, codes: td.Array, *zero: td.Array, group: int = group) -> td.Array:
            settings = {"scheme": scheme, "group": group, "lead": lead}
            return reduce_groups(x, codes, *zero, **settings)  # type: ignore[no-any-return]

        used = zero if scheme == "int4" else []
        want, got = sums(x, codes, *used), td.jit(sums)(x, codes, *used)
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-5, atol=1e-5)
        same(on_evaluator(sums, [x, codes, *used])[0], got.memory)
        a, b = td.asarray(numbers(shape[0] * 3, seed=3)), td.asarray(numbers(3 * shape[1], seed=4))
        a, b = a.reshape(shape[0], 3), b.reshape(3, shape[1])

        def of_product(
            a: td.Array, b: td.Array, codes: td.Array, *zero: td.Array, group: int = group
        ) -> td.Array:
            settings = {"scheme": scheme, "group": group, "lead": lead}
            return product_groups(a, b, codes, *zero, **settings)  # type: ignore[no-any-return]

        found, want = td.jit(of_product)(a, b, codes, *used), of_product(a, b, codes, *used)
        np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=1e-4, atol=1e-4)
        same(on_evaluator(of_product, [a, b, codes, *used])[0], found.memory)


@pytest.mark.parametrize("scheme", ["int4", "nf4", "ones"])
@pytest.mark.parametrize(
    ("dtype", "through"),
    [
        (td.float16, (td.float32,)),
        (td.bfloat16, (td.float32,)),
        (td.float64, ()),
        (td.float64, (td.float32,)),
        (td.float32, (td.float16, td.float32)),
        (td.float64, (td.bfloat16, td.float32)),
    ],
)
def test_sums_over_groups_of_a_product_that_is_rounded(
    dtype: Any, through: tuple[Any, ...], scheme: str
) -> None:
    """Products of few integers are exact in any order, so the roundings after them are seen to the
    bit."""
    for shape, group in (((6, 8), 4), ((3, 7), 5), ((5, 64), 32)):
        rng = np.random.default_rng(0)
        a = td.asarray(rng.integers(-99, 99, (shape[0], 3)).astype(np.float32)).astype(dtype)
        b = td.asarray(rng.integers(-99, 99, (3, shape[1])).astype(np.float32)).astype(dtype)
        codes = td.asarray(rng.integers(0, 16, shape).astype(np.uint8)).astype(td.uint4)
        groups = -(-shape[0] * shape[1] // group)
        zero = [td.asarray(rng.integers(0, 16, groups)).astype((dtype, *through)[-1])]

        def apart(a: td.Array, b: td.Array, *rest: td.Array, group: int = group) -> td.Array:
            whole = a @ b
            for kind in through:
                whole = whole.astype(kind)
            settings = {"scheme": scheme, "group": group, "lead": 0}
            return reduce_groups(whole, *rest, **settings)  # type: ignore[no-any-return]

        def together(a: td.Array, b: td.Array, *rest: td.Array, group: int = group) -> td.Array:
            settings = {"scheme": scheme, "group": group, "lead": 0, "through": through}
            return product_groups(a, b, *rest, **settings)  # type: ignore[no-any-return]

        operands = [a, b, codes, *(zero if scheme == "int4" else [])]
        found, want = td.jit(together)(*operands), apart(*operands)
        assert found.dtype is (dtype, *through)[-1]
        near = {"rtol": 1e-5, "atol": 1e-2} if scheme == "nf4" else {"rtol": 0, "atol": 0}
        np.testing.assert_allclose(np.asarray(found), np.asarray(want), **near)
        same(np.asarray(together(*operands)), np.asarray(want))
        same(on_evaluator(together, operands)[0], found.memory)


def test_operands_that_do_not_belong_together() -> None:
    codes, scale = td.zeros((2, 8), dtype=td.uint4), td.ones((4,))
    for wrong in (td.ones((3,)), td.ones((3, 1)), td.ones(())):
        with pytest.raises(td.errors.ShapeError, match="dequantize_groups"):
            dequantize_groups(codes, wrong, scheme="int4", group=4, dtype=f32)
    with pytest.raises(td.errors.ShapeError, match="zero points"):
        dequantize_groups(codes, scale, td.ones((3,)), scheme="int4", group=4, dtype=f32)
    with pytest.raises(td.errors.DtypeError, match="codes of uint4"):
        dequantize_groups(td.zeros((8,), dtype=td.uint8), scale, scheme="int4", group=2, dtype=f32)
