"""x @ w of a low-bit weight: the bits of a float product, on every processor, for any number of
rows; other dtypes read the weight element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiled import evaluate_lowered
from tests.ops.groups.test_kernel import same
from tetrad.backends.cpu.isa import LEVELS
from tetrad.backends.cpu.llvm import assembly
from tetrad.backends.llvm.module import emit_module
from tetrad.backends.llvm.target import Target
from tetrad.compiler.pipeline import lower_graph, optimise
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.lower.lower import Lowerer
from tetrad.ops.matmul.op import matmul
from tetrad.quant.lanes import LANES
from tetrad.schedule.nodes import programs_of

SHAPES = [(40, 2304), (1030, 256)]  # the last sixteen rows are not all there; two chunks of a sum
columns = td.jit(lambda x, w: x @ w.dequantize())
floats = td.jit(lambda x, w: x @ w)


def random(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", LANES)
def test_the_bits_of_a_float_product(name: str, shape: tuple[int, int]) -> None:
    q, x = td.quant.quantize(random(shape), name), random((13, shape[0]), 1)
    together = np.asarray(columns(x, q))
    same(together, np.asarray(floats(x, np.asarray(q.dequantize()))))
    same(np.asarray(columns(x[5:6], q))[0], together[5])


def test_the_bits_do_not_depend_on_how_many_rows_there_are() -> None:
    q, x = td.quant.quantize(random((1040, 64)), "q8_0"), random((270, 1040), 1)
    any_rows = td.jit(lambda x, w: x @ w.dequantize(), dims=({0: td.Dim("rows", max=512)}, None))
    together = np.asarray(columns(x, q))
    same(np.asarray(any_rows(x, q)), together)
    for rows in (slice(0, 1), slice(120, 140), slice(261, 270)):
        same(np.asarray(columns(x[rows], q)), together[rows])


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, td.float64) for name in LANES), ("q4_k", td.float16)], ids=str
)
def test_other_dtypes_read_elements(name: str, dtype: Any) -> None:
    q, x = td.quant.quantize(random((40, 512)), name), random((3, 40), 1)
    rows = td.asarray(x).astype(dtype)
    product = td.jit(lambda x, w: x @ w.dequantize().astype(dtype))
    same(np.asarray(product(rows, q)), np.asarray(floats(rows, q.dequantize().astype(dtype) * 1)))
    assert td.explain(product)(rows, q).arena_bytes < 40 * 512 * 2


@pytest.mark.parametrize("name", ["q4_k", "q3_k", "mxfp4"])
def test_compiled_code_and_kernel_evaluator_agree(name: str) -> None:
    q, x = td.quant.quantize(random((24, 256)), name), random((9, 24), 1)
    for function, given in (
        (lambda x, w: x @ w.dequantize() + 1, x),
        (lambda x, w: x @ w.dequantize().astype(td.float64), x.astype(np.float64)),
    ):
        (want,) = evaluate_lowered(td.trace(function)(given, q), [given, q.memory])
        same(np.asarray(td.jit(function)(given, q)), want)


@pytest.mark.parametrize("target", LEVELS.values(), ids=lambda target: target.name)
def test_it_compiles_for_every_machine(target: Target) -> None:
    q = td.quant.quantize(random((32, 256)), "q6_k")
    graph = td.trace(lambda x, w: x @ w.dequantize())(random((9, 32)), q)
    programs = programs_of(lower_graph(graph, Lowerer(target.machine)))
    named = {f"k{i}": program for i, program in enumerate(programs)}
    assert "ret" in assembly(emit_module(named, target), target)


def test_the_weight_stays_in_place() -> None:
    q = td.quant.quantize(random((32, 256)), "q4_k")
    graph = optimise(td.trace(lambda x, w: x @ w.dequantize())(random((3, 32)), q))
    (product,) = [n for n in graph.nodes() if n.op.name != "parameter"]
    assert product.op.name == "matmul" and product.inputs[1].type.dtype.is_quantized


def test_derivatives_read_it_in_place_too() -> None:
    q, x = td.quant.quantize(random((32, 256)), "q4_k"), random((3, 32))
    slope = td.grad(lambda x: td.sum(matmul(x, q) ** 2))
    w = np.asarray(q.dequantize(), np.float64)
    np.testing.assert_allclose(np.asarray(slope(x)), 2 * (x @ w) @ w.T, rtol=1e-4, atol=1e-4)


def test_what_does_not_fit_is_said() -> None:
    q = td.quant.quantize(random((32, 256)), "q4_k")
    with pytest.raises(DtypeError, match="takes rows of f32"):
        matmul(td.zeros((2, 32), dtype=td.float64), q)
    with pytest.raises(ShapeError, match="inner sizes differ"):
        matmul(td.zeros((2, 33)), q)
