"""Register tiles: every accumulator of a matmul's inner loop stays in a register, on every target."""

from __future__ import annotations

import re

import pytest

from tetrad.codegen.llvm import assembly
from tetrad.codegen.module import emit_module
from tetrad.codegen.targets.x86_64 import V3, V4
from tetrad.core.dtypes import DType, f32, f64
from tetrad.core.target import Target
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_graph, make_parameter
from tetrad.lower.launch import Launch
from tetrad.lower.lower import Lowerer
from tetrad.ops.special import matmul

SIZE = 512


def inner_loop(target: Target, dtype: DType) -> list[str]:
    """The basic block of a square product with the most multiply-adds, up to the last of them."""
    a, b = (make_parameter(ArrayType(dtype, (SIZE, SIZE)), i, fresh=True) for i in range(2))
    (launch,) = Lowerer(target).lower(make_graph("product", (a, b), (matmul(a, b),))).steps
    assert isinstance(launch, Launch)
    text = assembly(emit_module({"product": launch.program}, target), target)
    blocks = re.split(r"^\.LBB\w+:.*$", text, flags=re.M)
    lines = max(blocks, key=lambda block: block.count("vfmadd")).splitlines()
    return lines[: max(i for i, line in enumerate(lines) if "vfmadd" in line) + 1]


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
@pytest.mark.parametrize("target", [V3, V4], ids=lambda target: target.name)
def test_the_inner_loop_does_not_spill(target: Target, dtype: DType) -> None:
    lines = inner_loop(target, dtype)
    tile = target.f64_tile if dtype is f64 else target.f32_tile
    registers = tile.rows * tile.vectors * 16 * dtype.bits // target.vector_bits
    assert sum("vfmadd" in line for line in lines) % registers == 0
    touched = [line for line in lines if not line.lstrip().startswith("lea")]  # which computes, and reads nothing
    assert [line for line in touched if "(%rsp)" in line or "(%rbp)" in line] == []
