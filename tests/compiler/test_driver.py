"""Compiled programs as callers see them: from several threads, with donated memory, with odd
outputs, after errors."""

from __future__ import annotations

import gc
import inspect
import itertools
import threading
from collections.abc import Sequence

import numpy as np
import pytest

import tetrad as td
from tests.compiled import difference, run, run_on_evaluator
from tests.graph.graphs import arg
from tetrad.backends.cpu.compile import KERNELS
from tetrad.backends.cpu.executable import Executable
from tetrad.backends.cpu.memory import Storage
from tetrad.compiler.driver import compile_graph
from tetrad.core.dtypes import f32, i32
from tetrad.core.errors import BoundsError
from tetrad.graph.build import make_call, make_constant, make_graph, make_item
from tetrad.graph.evaluate import evaluate
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.arithmetic import add, multiply, square, subtract
from tetrad.ops.gather import gather
from tetrad.ops.matmul.op import matmul
from tetrad.ops.movement import expand, flipped, reshape, transpose
from tetrad.ops.reduce import reduce_sum
from tetrad.ops.scatter.op import scatter_add
from tetrad.ops.transcendental import tanh

SHAPE = (6, 35)


def call(compiled: Executable, *arrays: np.ndarray) -> list[np.ndarray]:
    """As jit calls it: no say about threads."""
    results = compiled.run([Storage.from_numpy(a) for a in arrays])
    return [s.as_numpy(t.dtype.np, t.shape) for s, t in zip(results, compiled.outputs, strict=True)]  # type: ignore[arg-type]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)


def graph_of(*outputs: Node, inputs: Sequence[Node]) -> Graph:
    return make_graph("f", inputs, outputs)


# -- several threads -------------------------------------------------------------------------------


def chain(x: Node) -> Node:
    """Several kernels with memory in between."""
    total = expand(
        reshape(reduce_sum(transpose(x, perm=(1, 0)), axes=(1,)), shape=(1, 35)), shape=SHAPE
    )
    return tanh(subtract(square(x), transpose(transpose(add(total, x), perm=(1, 0)), perm=(1, 0))))


def test_one_program_called_from_many_threads() -> None:
    x = arg(0, f32, *SHAPE)
    compiled = compile_graph(graph_of(chain(x), inputs=[x]))
    arrays = [random(*SHAPE, seed=i) for i in range(8)]
    wanted = [run_on_evaluator(compiled, [a])[0] for a in arrays]
    wrong: list[str] = []

    def caller(i: int) -> None:
        for _ in range(50):
            found = difference(call(compiled, arrays[i])[0], wanted[i])
            if found:
                wrong.append(found)

    threads = [threading.Thread(target=caller, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_many_threads_compile_at_once() -> None:
    """Equal programs are compiled once or found; different ones do not get in each other's way."""
    results: dict[int, np.ndarray] = {}
    x = random(5, 7)

    def compiles(i: int) -> None:
        a = arg(0, f32, 5, 7)
        factor = make_constant(np.full((5, 7), i % 3, np.float32))
        compiled = compile_graph(graph_of(add(a, multiply(a, factor)), inputs=[a]))
        results[i] = call(compiled, x)[0].copy()

    threads = [threading.Thread(target=compiles, args=(i,)) for i in range(9)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(9):
        np.testing.assert_array_equal(results[i], x + x * np.float32(i % 3))


def test_equal_programs_share_their_code() -> None:
    x = arg(0, f32, 3, 11)
    compile_graph(graph_of(square(square(x)), inputs=[x]))
    before = KERNELS.compiled
    compile_graph(make_graph("another", [x], [square(square(x))]))
    assert KERNELS.compiled == before


# -- outputs ---------------------------------------------------------------------------------------


def test_outputs_that_are_inputs_constants_and_each_other() -> None:
    x, y = arg(0, f32, 4, 5), arg(1, f32, 4, 5)
    table = random(4, 5, seed=9)
    total = add(x, y)
    compiled = compile_graph(graph_of(total, x, make_constant(table), total, y, x, inputs=[x, y]))
    a, b = random(4, 5), random(4, 5, seed=1)
    results = call(compiled, a, b)
    for got, want in zip(results, (a + b, a, table, a + b, b, a), strict=True):
        np.testing.assert_array_equal(got, want)
    assert not any(np.shares_memory(r, given) for r in results for given in (a, b, table))


def test_a_result_outlives_the_next_call() -> None:
    x = arg(0, f32, *SHAPE)
    compiled = compile_graph(graph_of(chain(x), inputs=[x]))
    first = call(compiled, random(*SHAPE))[0]
    kept = first.copy()
    for seed in range(5):
        call(compiled, random(*SHAPE, seed=seed))
    np.testing.assert_array_equal(first, kept)


def test_nothing_to_compute_and_nothing_at_all() -> None:
    x = arg(0, f32, 0, 3)
    assert call(compile_graph(graph_of(square(x), inputs=[x])), np.zeros((0, 3), np.float32))[
        0
    ].shape == (0, 3)
    assert call(compile_graph(make_graph("none", [x], [])), np.zeros((0, 3), np.float32)) == []


# -- sub-graphs ------------------------------------------------------------------------------------


def layer() -> Graph:
    x, w = arg(0, f32, 4, 8), arg(1, f32, 8, 8)
    made = tanh(matmul(x, w))
    return make_graph("layer", [x, w], [made, reduce_sum(made, axes=(1,))])


def test_equal_layers_are_compiled_once_and_give_what_inlining_gives() -> None:
    body = layer()
    x, weights = arg(0, f32, 4, 8), [arg(i, f32, 8, 8) for i in (1, 2, 3)]
    value, sums = x, []
    inlined, inlined_sums = x, []
    for w in weights:
        called = make_call(body, [value, w])
        value, sums = make_item(called, 0), [*sums, make_item(called, 1)]
        inlined = tanh(matmul(inlined, w))
        inlined_sums.append(reduce_sum(inlined, axes=(1,)))
    arrays = [random(4, 8), *(random(8, 8, seed=i) for i in range(3))]
    calls = compile_graph(graph_of(value, *sums, inputs=[x, *weights]))
    flat = compile_graph(graph_of(inlined, *inlined_sums, inputs=[x, *weights]))
    for a, b in zip(run(calls, arrays, threads=2), run(flat, arrays), strict=True):
        assert difference(a, b) is None
    assert len({id(step.body) for step in calls.schedule.steps}) == 1  # type: ignore[union-attr]


# -- donation --------------------------------------------------------------------------------------


def test_a_donated_input_becomes_the_result() -> None:
    x, y = arg(0, f32, 4, 5), arg(1, f32, 4, 5)
    graph = graph_of(add(multiply(x, y), x), inputs=[x, y])
    arrays = [random(4, 5), random(4, 5, seed=1)]
    given = [Storage.from_numpy(a.copy()) for a in arrays]
    (result,) = compile_graph(graph, (0,)).run(given)
    assert result is given[0]
    want = evaluate(graph, arrays)[0]
    assert difference(result.as_numpy(np.dtype(np.float32), (4, 5)), want) is None
    np.testing.assert_array_equal(given[1].owner, arrays[1])


def test_a_donated_input_becomes_the_result_beside_numbers_for_all() -> None:
    """A factor or a row that every element reads does not keep an update from its place."""
    x, rate, row = arg(0, f32, 4, 5), arg(1, f32), arg(2, f32, 5)
    spread = [expand(reshape(one, shape=(1, n)), shape=(4, 5)) for one, n in ((rate, 1), (row, 5))]
    graph = graph_of(add(multiply(x, spread[0]), spread[1]), inputs=[x, rate, row])
    arrays = [random(4, 5), random(seed=1), random(5, seed=2)]
    given = [Storage.from_numpy(a.copy()) for a in arrays]
    (result,) = compile_graph(graph, (0,)).run(given)
    assert result is given[0]
    want = evaluate(graph, arrays)[0]
    assert difference(result.as_numpy(np.dtype(np.float32), (4, 5)), want) is None


def test_a_donated_input_that_is_a_result_is_not_copied() -> None:
    """Weights that do not learn, given to a training step and back."""
    x, y = arg(0, f32, 4), arg(1, f32, 4)
    given = [Storage.from_numpy(random(4)), Storage.from_numpy(random(4, seed=1))]
    learnt, frozen, again = compile_graph(graph_of(add(x, y), x, x, inputs=[x, y]), (0,)).run(given)
    assert frozen is given[0] and again is frozen and learnt not in given
    np.testing.assert_array_equal(frozen.as_numpy(np.dtype(np.float32), (4,)), random(4))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_donated_input_that_is_still_read_is_not_overwritten(threads: int) -> None:
    """Elements are read elsewhere than they are written, by a later kernel, or for a second
    result."""
    x = arg(0, f32, 20, 20)
    turned = transpose(x, perm=(1, 0))
    programs = [
        graph_of(turned, inputs=[x]),
        graph_of(square(x), turned, inputs=[x]),
        graph_of(matmul(x, turned), inputs=[x]),
        graph_of(square(x), x, inputs=[x]),
        graph_of(tanh(x), add(x, tanh(x)), multiply(x, x), inputs=[x]),
        graph_of(add(expand(reduce_sum(x, axes=(0,)), shape=(20, 20)), x), inputs=[x]),
        graph_of(add(x, flipped(x, 0)), inputs=[x]),
        graph_of(add(x, turned), inputs=[x]),
    ]
    array = random(20, 20)
    for graph in programs:
        plain, donating = compile_graph(graph), compile_graph(graph, (0,))
        want = run(plain, [array])
        storages = donating.bound(()).run([Storage.from_numpy(array.copy())], threads=threads)
        for storage, wanted in zip(storages, want, strict=True):
            assert difference(storage.as_numpy(wanted.dtype, wanted.shape), wanted) is None, str(
                graph
            )


# -- errors ----------------------------------------------------------------------------------------


def gathering() -> tuple[Graph, int]:
    x, i = arg(0, f32, 5, 3), arg(1, i32, 4)
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    return graph_of(square(gather(x, i, axis=0)), inputs=[x, i]), line


@pytest.mark.parametrize("bad", [5, -6, 2**31 - 1, -(2**31)])
def test_an_index_out_of_range_names_value_axis_and_line(bad: int) -> None:
    graph, line = gathering()
    compiled = compile_graph(graph)
    table, good = random(5, 3), np.array([0, 4, -1, -5], np.int32)
    wrong = good.copy()
    wrong[2] = bad
    for threads in (1, 2):
        with pytest.raises(
            IndexError, match=f"gather: index {bad} is out of range for axis 0 of size 5"
        ) as caught:
            run(compiled, [table, wrong], threads=threads)
        assert isinstance(caught.value, BoundsError)
        assert f"test_driver.py line {line}" in str(caught.value)
        assert (
            difference(
                run(compiled, [table, good], threads=threads)[0], evaluate(graph, [table, good])[0]
            )
            is None
        )
    with pytest.raises(IndexError, match=f"index {bad}"):
        run_on_evaluator(compiled, [table, wrong])


def test_each_trap_of_a_program_has_its_own_line() -> None:
    x, i = arg(0, f32, 5), arg(1, i32, 3)
    j = arg(2, i32, 3)
    picked = gather(x, i, axis=0)
    spread = scatter_add(picked, j, size=2)
    compiled = compile_graph(graph_of(spread, inputs=[x, i, j]))
    fine, off = np.array([0, 1, -1], np.int32), np.array([0, 9, 0], np.int32)
    with pytest.raises(IndexError, match="gather: index 9"):
        run(compiled, [random(5), off, fine])
    with pytest.raises(IndexError, match="scatter_add: index 9"):
        run(compiled, [random(5), fine, off])


def test_a_trap_inside_a_called_graph_names_its_line() -> None:
    graph, line = gathering()
    x, i = arg(0, f32, 5, 3), arg(1, i32, 4)
    outer = graph_of(square(make_item(make_call(graph, [x, i]), 0)), inputs=[x, i])
    with pytest.raises(IndexError, match=f"line {line}"):
        run(compile_graph(outer), [random(5, 3), np.array([0, 0, 7, 0], np.int32)])


@pytest.mark.parametrize(
    "donated", [c for n in (1, 2, 3) for c in itertools.combinations(range(3), n)], ids=str
)
def test_results_of_one_kernel_that_lie_where_the_inputs_of_others_lay(
    donated: tuple[int, ...],
) -> None:
    """An optimiser's update: three results, each from several of the arrays that are given up."""

    def update(p: td.Array, m: td.Array, v: td.Array, g: td.Array) -> tuple[td.Array, ...]:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return p - 0.01 * m / (td.sqrt(v) + 1e-8), m, v

    rng = np.random.default_rng(8)
    arrays = [rng.random(70).astype(np.float32) for _ in range(4)]
    wanted = td.jit(update)(*arrays)
    found = td.jit(update, donate_argnums=donated)(*[td.asarray(a.copy()) for a in arrays])
    for got, want in zip(found, wanted, strict=True):
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()


# -- beside the program ----------------------------------------------------------------------------


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_collected_after_a_compilation_as_before(enabled: bool) -> None:
    x = arg(0, f32, 4)
    before = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        compile_graph(graph_of(square(x), inputs=[x]))
        assert gc.isenabled() == enabled
        with pytest.raises(AttributeError):
            compile_graph(None)  # type: ignore[arg-type]
        assert gc.isenabled() == enabled
    finally:
        gc.enable() if before else gc.disable()
