"""Conformance: every op of the registry, in every dtype it lists, compiled and compared. A new op
needs no line here.

For each drawn case: machine code = kernel evaluator to the bit; 1, 2 and 3 threads and a second
call, same bits, whatever memory held before; the result is what the reference says, exactly or
within the error the op declares (sums: tests/oracle.py); every kernel obeys the rules of the kernel
language.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator

import numpy as np
import pytest

import tetrad.ops  # noqa: F401  (fills the registry)
from tests.compiled import difference, run, run_on_evaluator
from tests.oracle import disagreement
from tetrad.backends.cpu.executable import Executable
from tetrad.backends.cpu.isa import LEVELS, current_target
from tetrad.compiler.driver import compile_graph
from tetrad.compiler.pipeline import optimise
from tetrad.core.dtypes import (
    ARRAY_DTYPES,
    COMPILED_DTYPES,
    DType,
    as_dtype,
    bf16,
    f16,
    f32,
    f64,
    i32,
    i64,
    u8,
    u32,
)
from tetrad.core.errors import DtypeError
from tetrad.core.op import REGISTRY, Case, Op, op
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_graph, make_parameter
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Graph
from tetrad.graph.text import parse, to_text
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.verify import verify
from tetrad.lower.lower import Lowerer
from tetrad.ops.cases import pick, random_array, same_shaped
from tetrad.ops.rules import NUMBERS, ieee, same_type
from tetrad.passes.fused import fuse_program
from tetrad.schedule.evaluate import evaluate as evaluate_schedule
from tetrad.schedule.nodes import programs_of

OPS = [o for o in REGISTRY.values() if o.kind != "structural"]
EACH = [pytest.param(o, d, id=f"{o.name}-{d}") for o in OPS for d in o.dtypes]
CASES = 2  # of each op and dtype; the code of one is not the code of another
LARGEST = 3000  # elements of an operand: the evaluator is slow
LARGEST_CACHE = 13000  # of attention, whose caches have at least a block of 256 keys
LONGEST = 40  # steps along the axis of ops that walk it
# around vectors, workgroups, chunks
EDGES = (0, 1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 255, 256, 257, 1000)


def data_operand(op: Op) -> int:
    """The operand whose dtype is the op's: the condition of `where` is no data."""
    return 1 if op.name == "where" else 0


def drawn(op: Op, dtype: DType, count: int) -> list[Case]:
    """Cases of the op with data of the dtype, small enough, as different in size as can be had."""
    rng = np.random.default_rng(zlib.crc32(f"conformance {op.name} {dtype}".encode()))
    found: dict[tuple[int, ...], Case] = {}
    for _ in range(3000):
        case = op.cases(rng)  # type: ignore[misc]
        if as_dtype(case.args[data_operand(op)].dtype) is dtype and is_small(op, case):
            found.setdefault(case.args[0].shape, case)
        if len(found) == 3 * count:
            break
    by_size = sorted(found.values(), key=lambda c: -c.args[0].size)
    return by_size[: count // 2] + by_size[-(count - count // 2) :]


def is_small(op: Op, case: Case) -> bool:
    sizes = [n for a in case.args for n in a.shape]
    most = max((a.size for a in case.args), default=0)
    if op.name == "attention":
        return most <= LARGEST_CACHE
    if op.name == "panel_matmul":  # a line of a panel of bytes has 64
        return most <= LARGEST
    return most <= LARGEST and (op.kind != "special" or max(sizes, default=0) <= LONGEST)


def graph_of(op: Op, case: Case) -> Graph:
    kinds = [ArrayType(as_dtype(a.dtype), a.shape) for a in case.args]
    inputs = [make_parameter(kind, i, fresh=True) for i, kind in enumerate(kinds)]
    made = op(*inputs, **case.params)
    return make_graph(op.name, inputs, made if isinstance(made, tuple) else [made])


def conforms(op: Op, case: Case) -> None:
    """Everything this file promises, for one case."""
    compiled = compile_graph(graph_of(op, case))
    for program in programs_of(compiled.schedule):
        verify(program, current_target().machine.workgroup_bytes)
    arrays = [np.ascontiguousarray(a).reshape(a.shape) for a in case.args]
    wanted = run_on_evaluator(compiled, arrays)
    for results, how in every_run(compiled, arrays):
        for got, want in zip(results, wanted, strict=True):
            assert difference(got, want) is None, f"{how}: {difference(got, want)}"
    wrong = disagreement(op, arrays, case.params, wanted)
    assert wrong is None, f"{[a.shape for a in arrays]} {case.params}: {wrong}"


def every_run(
    compiled: Executable, arrays: list[np.ndarray]
) -> Iterator[tuple[list[np.ndarray], str]]:
    for threads, poison in ((1, 0xFF), (2, 0x00), (3, 0xA7), (1, 0xFF)):
        yield (
            run(compiled, arrays, threads=threads, poison=poison),
            f"{threads} threads, memory holding {poison:#x}",
        )


@pytest.mark.parametrize(("op", "dtype"), EACH)
def test_compiled_op_is_its_reference(op: Op, dtype: DType) -> None:
    cases = drawn(op, dtype, CASES)
    assert cases
    for case in cases:
        conforms(op, case)


@pytest.mark.parametrize("op", [op for op in OPS if op.kind == "special"], ids=lambda op: op.name)
def test_kernels_for_other_processors_give_the_same_bits(op: Op) -> None:
    """Tiles differ between processors: where kernels do, the evaluator runs those of each."""
    lowerers = [
        Lowerer(machine)
        for machine in {t.machine: None for t in (current_target(), *LEVELS.values())}
    ]
    for case in (case for dtype in op.dtypes for case in drawn(op, dtype, 1)):
        arrays = [np.ascontiguousarray(a).reshape(a.shape) for a in case.args]
        lowered = [
            lowerer.lower(fuse_program(optimise(graph_of(op, case)))) for lowerer in lowerers
        ]
        kinds = {tuple(map(str, programs_of(each))): each for each in lowered}
        results = [evaluate_schedule(each, arrays, {}) for each in kinds.values() if len(kinds) > 1]
        pairs = (pair for other in results[1:] for pair in zip(other, results[0], strict=True))
        for got, want in pairs:
            assert difference(got, want) is None, (
                f"{[a.shape for a in arrays]} {case.params}: {difference(got, want)}"
            )


@pytest.mark.parametrize("dtype", [f32, f64, i32, i64, u8, u32, f16, bf16], ids=str)
def test_sizes_around_vectors_and_workgroups(dtype: DType) -> None:
    rng = np.random.default_rng(3)
    for size in EDGES:
        conforms(
            REGISTRY["add"],
            Case((random_array(rng, dtype, (size,)), random_array(rng, dtype, (size,)))),
        )


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_max"])
def test_sizes_around_the_chunks_of_reductions(name: str) -> None:
    rng = np.random.default_rng(4)
    rows = [(n,) for n in (*EDGES, 4095, 4096, 4097, 8193)]
    columns = [(n, 3) for n in (0, 1, 255, 256, 257, 513)]
    for shape in rows + columns:
        conforms(REGISTRY[name], Case((random_array(rng, f32, shape),), {"axes": (0,)}))


def test_a_long_row_is_split_over_workgroups_and_gives_the_same_sum() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((2, 40001)).astype(np.float32)
    conforms(REGISTRY["reduce_sum"], Case((x,), {"axes": (1,)}))
    (together,) = run(
        compile_graph(graph_of(REGISTRY["reduce_sum"], Case((x,), {"axes": (1,)}))), [x], threads=3
    )
    alone = compile_graph(graph_of(REGISTRY["reduce_sum"], Case((x[:1],), {"axes": (1,)})))
    assert run(alone, [x[1:].copy()])[0][0] == together[1]


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_a_row_of_a_product_does_not_depend_on_the_rows_beside_it(dtype: DType) -> None:
    rng = np.random.default_rng(6)
    a, b = (random_array(rng, dtype, shape, special=0) for shape in ((21, 37), (37, 50)))
    (whole,) = run(compile_graph(graph_of(REGISTRY["matmul"], Case((a, b)))), [a, b], threads=2)
    for count in (1, 2, 5, 14):
        few = compile_graph(graph_of(REGISTRY["matmul"], Case((a[:count], b))))
        (part,) = run(few, [a[3 : 3 + count].copy(), b])
        assert difference(part, whole[3 : 3 + count]) is None


MISSING = [d for d in ARRAY_DTYPES if d not in COMPILED_DTYPES]


@pytest.mark.parametrize("dtype", MISSING, ids=str)
def test_a_dtype_that_is_not_compiled_is_a_clear_error(dtype: DType) -> None:
    x = make_parameter(ArrayType(dtype, (3,)), 0)
    with pytest.raises(DtypeError, match=f"{dtype} is not compiled yet(.|\n)*hint: compiled: f32"):
        compile_graph(make_graph("same", [x], [x]))


def test_a_dtype_an_op_does_not_take_is_a_clear_error() -> None:
    for (name, count), dtype in itertools.product({"sqrt": 1, "atan2": 2}.items(), (u8, u32)):
        op_, inputs = (
            REGISTRY[name],
            [make_parameter(ArrayType(dtype, (3, 3)), i) for i in range(count)],
        )
        wanted = f"^{op_.name}: takes f32.*, got {dtype}\n(.|\n)*hint: convert with astype"
        with pytest.raises(DtypeError, match=wanted):
            op_(*inputs)


# -- an op that did not exist a line ago -----------------------------------------------------------


@pytest.fixture
def fresh_op() -> Iterator[Op]:
    """One definition, in one place: a name, a type, cases, a meaning, a lowering."""

    @op(type=same_type("blend"), cases=same_shaped(3, NUMBERS), dtypes=NUMBERS)
    @ieee
    def blend(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        return np.subtract(np.add(x, y), z)

    @blend.lower
    def blend_lower(k: KernelBuilder, x: Val, y: Val, z: Val) -> Val:
        return x + y - z

    yield blend
    del REGISTRY["blend"]


def test_a_new_op_is_covered_on_the_day_it_is_written(fresh_op: Op) -> None:
    for dtype in fresh_op.dtypes:
        for case in drawn(fresh_op, dtype, CASES):
            conforms(fresh_op, case)


def test_a_new_op_that_computes_something_else_is_caught(fresh_op: Op) -> None:
    fresh_op.lower(lambda k, x, y, z: x + y + z)
    with pytest.raises(AssertionError, match="differ"):
        conforms(fresh_op, drawn(fresh_op, f32, CASES)[0])


def test_a_new_op_prints_parses_and_fuses(fresh_op: Op) -> None:
    rng = np.random.default_rng(7)
    arrays = [random_array(rng, pick(rng, (f32,)), (5, 9)) for _ in range(3)]
    x, y, z = (make_parameter(ArrayType(f32, (5, 9)), i) for i in range(3))
    graph = make_graph("fused", [x, y, z], [REGISTRY["sqrt"](fresh_op(REGISTRY["abs"](x), y, z))])
    assert parse(to_text(graph)) is graph
    compiled = compile_graph(graph)
    assert len(programs_of(compiled.schedule)) == 1
    assert difference(run(compiled, arrays)[0], evaluate(graph, arrays)[0]) is None
