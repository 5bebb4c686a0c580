"""The pass that splits complex numbers: nothing but real kernels is left, and the meaning stays."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tetrad as td
from tests.compiled import difference, run, run_on_evaluator
from tetrad.compiler.driver import compile_graph
from tetrad.compiler.pipeline import optimise
from tetrad.core.dtypes import c64, c128
from tetrad.core.op import REGISTRY
from tetrad.core.sizes import Dim
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_graph, make_parameter
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Graph
from tetrad.graph.verify import verify
from tetrad.ops.arithmetic import add, multiply
from tetrad.ops.cases import random_array
from tetrad.ops.complex import join, part
from tetrad.ops.movement import transpose
from tetrad.passes.simplify import simplify
from tetrad.passes.split import split
from tetrad.schedule.nodes import programs_of

EDGES = ("parameter", "constant", "join", "call", "item", "expand")  # what may still be complex


def arg(i: int, *shape: object, dtype: object = c64) -> object:
    return make_parameter(ArrayType(dtype, shape), i)  # type: ignore[arg-type]


def assert_split(graph: Graph) -> Graph:
    made = split(graph)
    verify(made)
    assert {n.op.name for n in made.nodes() if n.type.dtype.is_complex} <= set(EDGES)
    assert [o.type for o in made.outputs] == [o.type for o in graph.outputs]
    return made


def test_every_op_on_complex_numbers_has_a_rule_or_a_generator_of_its_own() -> None:
    takes = [
        o
        for o in REGISTRY.values()
        if o.kind in ("elementwise", "movement", "reduce") and c64 in o.dtypes
    ]
    assert [o.name for o in takes if o.split_rule is None] == []


def test_a_program_without_complex_numbers_stays() -> None:
    graph = td.trace(lambda x: x * 2)(td.Spec((3,)))
    assert split(graph) is graph


@pytest.mark.parametrize("dtype", [c64, c128], ids=str)
def test_a_chain_is_one_kernel(dtype: object) -> None:
    graph = td.trace(lambda z, w: td.exp(z * w) / (z + 1j) + td.conj(w))(
        *(td.Spec((9, 20), dtype) for _ in range(2))
    )
    assert_split(graph)
    compiled = compile_graph(graph)
    assert len(programs_of(compiled.schedule)) == 1
    rng = np.random.default_rng(0)
    arrays = [random_array(rng, dtype, (9, 20), special=0.1) for _ in range(2)]  # type: ignore[arg-type]
    assert difference(run(compiled, arrays)[0], run_on_evaluator(compiled, arrays)[0]) is None


def test_the_meaning_stays_exactly() -> None:
    x, y = arg(0, 4, 5), arg(1, 5, 4)
    outputs = [multiply(x, transpose(y, perm=(1, 0))), add(x, x), x]  # type: ignore[arg-type]
    graph = make_graph("exact", [x, y], outputs)  # type: ignore[list-item]
    rng = np.random.default_rng(1)
    arrays = [random_array(rng, c64, shape, special=0.3) for shape in ((4, 5), (5, 4))]
    before = evaluate(graph, arrays)
    for after in (assert_split(graph), optimise(graph)):
        assert [difference(a, b) for a, b in zip(evaluate(after, arrays), before, strict=True)] == [
            None
        ] * 3


def test_parts_of_what_was_joined() -> None:
    x = arg(0, 3)
    re, im = part(x, which=0), part(x, which=1)  # type: ignore[arg-type]
    assert simplify.apply(join(re, im)) is x
    assert simplify.apply(part(join(im, re), which=0)) is im


def test_an_input_that_is_an_output_takes_no_kernel() -> None:
    compiled = compile_graph(td.trace(lambda z: z)(td.Spec((5,), c64)))
    assert programs_of(compiled.schedule) == []


def test_calls_keep_complex_parameters() -> None:
    inner = td.jit(lambda z: (z * z, td.abs(z)))
    graph = td.trace(lambda z: inner(z + 1)[0] + inner(z)[1])(td.Spec((7,), c128))
    assert "call" in {n.op.name for n in assert_split(graph).nodes()}
    z = random_array(np.random.default_rng(2), c128, (7,), special=0)
    assert np.allclose(run(compile_graph(graph), [z])[0], (z + 1) ** 2 + np.abs(z))


def test_a_new_size_compiles_nothing() -> None:
    dim = Dim("n", max=300)
    x, y = arg(0, dim, 3), arg(1, dim, 3)
    graph = make_graph("dims", [x, y], [multiply(x, y)])  # type: ignore[list-item, arg-type]
    compiled = compile_graph(graph)
    rng = np.random.default_rng(3)
    for n in (1, 17, 300):
        arrays = [random_array(rng, c64, (n, 3), special=0) for _ in range(2)]
        (got,) = run(compiled, arrays, {"n": n})
        assert difference(got, evaluate(graph, arrays)[0]) is None


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_donated_memory_is_used_again(dtype: str) -> None:
    function = td.jit(lambda z, w: z * w + 1, donate_argnums=0)
    z, w = (np.arange(1000).astype(dtype) * (1 + 2j) for _ in range(2))
    given = td.asarray(z.copy(), copy=True)
    got = np.asarray(function(given, td.asarray(w)))
    assert given.is_deleted and np.allclose(got, z * w + 1)


@pytest.mark.parametrize("count", [1, 3, 3000])
def test_constants(count: int) -> None:
    held = (np.arange(count) * (1 - 2j)).astype(np.complex64)
    assert np.array_equal(np.asarray(td.jit(lambda x: x * held)(np.ones(count, np.float32))), held)
    assert np.array_equal(
        np.asarray(td.jit(lambda x: (x, td.full((count,), 2j)))(1.0)[1]), np.full(count, 2j)
    )


def test_loops_and_branches_carry_complex_numbers() -> None:
    z = td.asarray([1 + 2j, 3 - 4j])
    total, steps = td.jit(lambda z: td.scan(lambda c, t: (c * t, c + t), td.asarray(1 + 0j), z))(z)
    assert (total.item(), steps.tolist()) == (11 + 2j, [2 + 2j, 4 - 2j])
    grown = td.jit(lambda z: td.while_loop(lambda c: td.abs(c) < 10, lambda c: c * 2j, z))(
        td.asarray(1 + 1j)
    )
    assert grown.item() == 8 - 8j
    chosen = td.jit(lambda p, z: td.cond(p, lambda z: z * 2, td.conj, z))
    assert chosen(True, z).tolist() == [2 + 4j, 6 - 8j] and chosen(False, z).tolist() == [
        1 - 2j,
        3 + 4j,
    ]


def test_rules_are_there_in_a_process_that_has_loaded_nothing_else() -> None:
    program = "import tetrad as td; print(td.jit(lambda x: td.astype(x, td.complex64))(td.ones(2)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("[1.+0.j 1.+0.j]", "")
