"""Register tiles: every accumulator of a product's inner loop stays in a register, on every
target."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tetrad as td
from tetrad.backends.cpu.isa.aarch64 import BASELINE, DOTPROD, I8MM
from tetrad.backends.cpu.isa.x86_64 import V3, V4
from tetrad.backends.cpu.llvm import assembly
from tetrad.backends.llvm.module import emit_module
from tetrad.backends.llvm.target import Target
from tetrad.compiler.pipeline import lower_graph, optimise
from tetrad.core.dtypes import DType, f32, f64
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_graph, make_parameter
from tetrad.graph.nodes import Graph
from tetrad.lower.lower import Lowerer
from tetrad.ops.matmul.op import matmul
from tetrad.ops.quantized.op import quantize_rows
from tetrad.passes.inline_custom import inline_custom
from tetrad.schedule.nodes import programs_of

SIZE = 512
TOKENS = 64
MULTIPLY_ADD = {"x86_64": "vfmadd", "aarch64": "fmla\t"}
STACK = {"x86_64": r"\(%r[sb]p\)", "aarch64": r"\[sp\b"}


def family(target: Target) -> str:
    return target.triple.partition("-")[0]


def inner_loop(graph: Graph, target: Target, instruction: str) -> list[str]:
    """The basic block of a graph's kernels with the most of these instructions, up to the last of
    them."""
    programs = dict.fromkeys(programs_of(lower_graph(graph, Lowerer(target.machine))))
    text = assembly(
        emit_module({f"k{i}": program for i, program in enumerate(programs)}, target), target
    )
    blocks = re.split(r"^\.LBB\w+:.*$", text, flags=re.M)
    lines = max(blocks, key=lambda block: block.count(instruction)).splitlines()
    return lines[: max(i for i, line in enumerate(lines) if instruction in line) + 1]


def spills(target: Target, lines: list[str]) -> list[str]:
    # which computes, and reads nothing
    touched = [line for line in lines if not line.lstrip().startswith("lea")]
    return [line for line in touched if re.search(STACK[family(target)], line)]


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("target", [V3, V4, BASELINE], ids=lambda target: target.name)
def test_the_inner_loop_does_not_spill(target: Target, dtype: DType) -> None:
    a, b = (make_parameter(ArrayType(dtype, (SIZE, SIZE)), i, fresh=True) for i in range(2))
    instruction = MULTIPLY_ADD[family(target)]
    lines = inner_loop(make_graph("product", (a, b), (matmul(a, b),)), target, instruction)
    tile = target.machine.f64_tile if dtype is f64 else target.machine.f32_tile
    registers = tile.rows * tile.vectors * 16 * dtype.bits // target.vector_bits
    assert sum(instruction in line for line in lines) % registers == 0
    assert spills(target, lines) == []


@pytest.mark.parametrize("format", ["q4_0", "q8_0", "q4_k"])
@pytest.mark.parametrize("target", [DOTPROD, I8MM], ids=lambda target: target.name)
def test_the_inner_loop_of_a_low_bit_product_does_not_spill(target: Target, format: str) -> None:
    """A block of 32 weights, for each token of a tile: eight dot products in each of four
    registers."""
    numbers = np.random.default_rng(0).standard_normal((SIZE, SIZE), np.float32)
    weight = td.quant.quantize(numbers, format)
    graph = td.trace(lambda x: matmul(quantize_rows(x), weight, transposed=True))(
        td.Spec((TOKENS, SIZE))
    )
    lines = inner_loop(optimise(inline_custom(graph)), target, "dot\t")
    assert sum("dot\t" in line for line in lines) == 4 * 8 * target.machine.lowbit_tokens
    assert spills(target, lines) == []
