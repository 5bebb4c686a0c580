"""Canary: the loop that LLVM's vectorisers miscompile (docs: backends/cpu/llvm.py). Ours must be
right, and never use them.

In the LLVM of llvmlite 0.45 to 0.50, `y[i] = a[i % 64] + c[i % 16]` over 64 elements gives 48 wrong
values at O2; so do many loops with one or two power-of-two moduli. We write vectors ourselves and
leave the vectorisers off.
"""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tests.compiled import run
from tests.graph.graphs import arg
from tetrad.backends.cpu import llvm
from tetrad.backends.cpu.compile import KERNELS
from tetrad.backends.cpu.isa import current_target
from tetrad.backends.cpu.pool import run as run_table
from tetrad.backends.cpu.table import KernelEntry, Table, Word
from tetrad.backends.llvm.compile import PASSES
from tetrad.backends.llvm.module import emit_module
from tetrad.compiler.driver import compile_graph
from tetrad.core.dtypes import f32, i32, i64
from tetrad.graph.build import make_graph
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.nodes import Program
from tetrad.ops.arithmetic import add
from tetrad.ops.movement import expand, reshape

MODULI = [
    (64, 16),
    (16, 64),
    (8, 32),
    (32, 32),
    (64, 1),
    (1, 2),
    (7, 16),
    (4, 5),
    (256, 64),
    (2, 4),
]
LENGTHS = (1, 15, 16, 17, 63, 64, 65, 200)


def two_moduli(first: int, second: int, lanes: int, dtype: td.DType) -> Program:
    """y[i] = a[i % first] + c[i % second]"""
    k = KernelBuilder("canary", lanes)
    a, c = k.buffer("a", dtype, "read", first), k.buffer("c", dtype, "read", second)
    y = k.buffer("y", dtype, "write")
    i, count = k.global_id(), k.arg("count")
    with k.when(i < count, guard=True):
        k.store(y, i, k.load(a, i % first) + k.load(c, i % second))
    return k.finish()


def run_kernel(program: Program, arrays: list[np.ndarray], count: int) -> None:
    """Buffers, index argument, grid, counts, tag: the words of a kernel."""
    address = KERNELS.load([program], current_target())[program]
    groups = -(-count // program.lanes)
    words = [Word(i, 0) for i in range(3)] + [
        Word(-1, v) for v in (count, groups, 1, *(a.size for a in arrays), 0)
    ]
    run_table(
        Table([KernelEntry(address, tuple(words), groups)]),
        [a.ctypes.data for a in arrays],
        threads=1,
    )


@pytest.mark.parametrize("dtype", [f32, i32, i64], ids=str)
@pytest.mark.parametrize(("first", "second"), MODULI)
def test_two_moduli_in_a_kernel(first: int, second: int, dtype: td.DType) -> None:
    a, c = np.arange(first).astype(dtype.np), (100 * np.arange(second)).astype(dtype.np)
    for lanes in (4, 16):
        program = two_moduli(first, second, lanes, dtype)
        for count in LENGTHS:
            i = np.arange(count)
            y, meant = np.full(count, -1, dtype.np), np.full(count, -1, dtype.np)
            run_kernel(program, [a, c, y], count)
            evaluate(
                program, {"a": a, "c": c, "y": meant}, {"count": count}, (-(-count // lanes), 1, 1)
            )
            np.testing.assert_array_equal(y, (i % first + 100 * (i % second)).astype(dtype.np))
            np.testing.assert_array_equal(meant, y)


@pytest.mark.parametrize(
    ("rows", "first", "second"), [(1, 64, 16), (4, 64, 16), (3, 32, 8), (2, 16, 4)]
)
def test_two_broadcasts_in_a_graph(rows: int, first: int, second: int) -> None:
    """The same as a program of arrays: both operands are repeated, by different powers of two."""
    a, c = arg(0, f32, first), arg(1, f32, second)
    shape = (rows, first // second, second)
    left = expand(reshape(a, shape=shape[1:]), shape=shape)
    graph = make_graph(
        "broadcasts", [a, c], [reshape(add(left, expand(c, shape=shape)), shape=(rows * first,))]
    )
    x, y = np.arange(first, dtype=np.float32), 100 * np.arange(second, dtype=np.float32)
    i = np.arange(rows * first)
    np.testing.assert_array_equal(
        run(compile_graph(graph), [x, y])[0], x[i % first] + y[i % second]
    )


def test_the_pass_list_has_no_vectoriser() -> None:
    assert PASSES == ("SROA", "InstCombine", "SimplifyCFG")
    assert not any("vector" in name or "slp" in name for name in PASSES)


def test_scalar_loops_stay_scalar() -> None:
    """A loop over memory that LLVM could vectorise: after our passes there is still no vector in
    it."""
    k = KernelBuilder("scalar", 1)
    a, y = k.buffer("a", f32, "read", 64), k.buffer("y", f32, "write", 1024)
    with k.loop(1024) as i:
        k.store(y, i, k.load(a, i % 64))
    text = emit_module({"scalar": k.finish()}, current_target())
    code = llvm.assembly(text, current_target())
    assert "movss" in code
    assert "ymm" not in code and "movups" not in code and "movaps" not in code
