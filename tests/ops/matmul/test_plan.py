"""Plans of products: types choose the generator, sizes and the machine the rest; every plan can be
followed."""

from __future__ import annotations

import pytest

import tetrad as td
from tetrad.backends.cpu.isa import LEVELS
from tetrad.core.dtypes import DType, bf16, f16, f32, f64, i8
from tetrad.core.machine import Machine
from tetrad.core.record import replace
from tetrad.core.sizes import Dim, Size
from tetrad.graph.group import holds
from tetrad.graph.nodes import Node
from tetrad.ops.matmul.kernel import GENERATORS
from tetrad.ops.matmul.op import CHUNK, matmul
from tetrad.ops.matmul.plan import COLUMNS, ROWS, MatmulSize, ProductShape, plan_matmul, product_of
from tetrad.quant.lanes import DTYPES, q8_row

seq = Dim("seq", max=4096)
MACHINES = pytest.mark.parametrize(
    "machine", [level.machine for level in LEVELS.values()], ids=list(LEVELS)
)
WHICH = {
    "a matrix": (f32, f32, 64, False, "tiles"),
    "any number of rows": (f64, f64, seq, False, "tiles"),
    "bytes": (i8, i8, 5, False, "tiles"),
    "few rows": (f16, f16, 4, False, "few_rows"),
    "a float weight": (f32, bf16, 1, True, "weight_rows"),
    "float rows, a low-bit weight": (f32, DTYPES["q4_k"], 1, True, "decoded_rows"),
    "float rows, a low-bit weight of columns": (f32, DTYPES["q4_k"], 1, False, "decoded_columns"),
    "rows in 8 bits": (q8_row, DTYPES["q4_k"], 1, True, "int8_rows"),
}


def product(
    left: DType, right: DType, m: Size, transposed: bool, n: int = 512, k: int = 512
) -> ProductShape:
    return ProductShape(left, right, MatmulSize((), m, n, k), transposed)


@MACHINES
@pytest.mark.parametrize("name", WHICH)
def test_types_and_rows_choose_the_generator(name: str, machine: Machine) -> None:
    *given, generator = WHICH[name]
    plan = plan_matmul(product(*given), machine)
    assert plan.generator == generator and generator in GENERATORS


@MACHINES
def test_panels_are_for_many_rows_where_tiles_are_small(machine: Machine) -> None:
    many, plain = (product(q8_row, DTYPES[name], 64, True) for name in ("q4_k", "q8_0"))
    is_small = machine.lowbit_tokens < 8
    assert plan_matmul(many, machine).generator == ("panels" if is_small else "int8_rows")
    assert plan_matmul(plain, machine).generator == "int8_rows"


@MACHINES
@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize("m", [5, 64, 1000, seq], ids=str)
def test_blocks_of_tiles_keep_within_their_bounds(m: Size, threads: int, machine: Machine) -> None:
    given = product(f32, f32, m, False, n=2000, k=3000)
    plan = plan_matmul(given, replace(machine, parallel_groups=threads))
    assert plan.tile.rows <= plan.rows <= ROWS + plan.tile.rows and plan.columns <= COLUMNS
    assert CHUNK % plan.depth == 0 and plan.depth & plan.depth - 1 == 0
    assert plan.stretch % plan.tile.rows == 0


def traced(transposed: bool, dtype: DType) -> Node:
    w = td.Spec((16, 32) if transposed else (32, 16), dtype)
    graph = td.trace(lambda x, w: matmul(x, w, **({"transposed": True} if transposed else {})))(
        td.Spec((8, 32)), w
    )
    return graph.outputs[0]


def test_traits_follow_from_the_types() -> None:
    plain, weight = traced(False, f32), traced(True, f16)
    assert holds(matmul.prologue, plain) and holds(matmul.epilogue, plain)
    assert not holds(matmul.prologue, weight) and not holds(matmul.epilogue, weight)
    assert product_of(weight, weight.inputs).transposed
