"""Programs recalled from the disk are the programs that were compiled, and only those."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.compiler.caches import empty_cache
from tests.explain.programs import loops
from tests.modules import ROOT
from tetrad.backends.cpu import code_cache as objects
from tetrad.backends.cpu.cache import ObjectCache
from tetrad.backends.cpu.executable import Executable
from tetrad.backends.cpu.memory import Storage
from tetrad.compiler.program_cache import (
    compile_fully,
    compile_graph,
    entry_parts,
    program_key,
)
from tetrad.core.dtypes import f32
from tetrad.core.errors import ParseError
from tetrad.core.op import REGISTRY
from tetrad.core.sizes import bind
from tetrad.core.types import ArrayType
from tetrad.graph.build import make_call, make_constant, make_graph, make_item, make_parameter
from tetrad.graph.nodes import Graph, Literal
from tetrad.schedule.text import kernels, to_text
from tetrad.tracing.array import Array


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ObjectCache:
    return empty_cache(monkeypatch, tmp_path)


def spec(*shape: Any) -> td.Spec:
    return td.Spec(shape)


layer = td.jit(lambda x, w: td.tanh(x @ w))
TABLE = np.arange(24, dtype=np.float32).reshape(4, 6)

LARGE = np.random.default_rng(1).standard_normal((2, 40, 60)).astype(np.float32)
n = td.Dim("n", max=500)
m = td.Dim("m", max=300)

FUNCTIONS: dict[str, tuple[Any, tuple[tuple[Any, ...], ...], tuple[int, ...]]] = {
    "elementwise": (lambda x, y: td.exp(x) * y + 1, ((50,), (50,)), ()),
    "chain": (lambda x, w: td.sum(td.tanh(x @ w) @ w, axis=0), ((7, 40), (40, 40)), ()),
    "calls": (lambda x, w: layer(layer(x, w), w), ((7, 40), (40, 40)), ()),
    "constant": (lambda x: x + td.asarray(TABLE), ((4, 6),), ()),
    "lapack": (lambda a, b: td.linalg.solve(a, b), ((20, 20), (20, 3)), ()),
    "systems": (lambda a, b: td.linalg.solve(a, b), ((20, 3, 3), (20, 3, 1)), ()),
    "recurrence": (lambda c, xs: td.scan(lambda c, x: (c * x, c), c, xs), ((9,), (4, 9)), ()),
    "loops": (loops, ((6,), (5, 6)), ()),
    "in place": (
        lambda x: td.fori_loop(0, 3, lambda i, x: td.dynamic_update_slice(x, x[:1], (i,)), x),
        ((9,),),
        (),
    ),
    "results": (lambda x: (x, x + 1, x, td.asarray(TABLE), x + 1), ((4, 6),), ()),
    "donated": (lambda x, y: x + y, ((50,), (50,)), (0,)),
    "empty": (lambda x: x[:0] + 1, ((9, 4),), ()),
    "large": (lambda x: (x * LARGE[0], td.asarray(LARGE[1])), ((40, 60),), ()),
    "siblings": (lambda x, v, w: (x @ v) @ w, ((24, 784), (784, 512), (512, 512)), ()),
    "large called": (lambda x: layer(x.T, LARGE[0]) + layer(x.T, LARGE[1]), ((40, 9),), ()),
}


def graph_of(name: str) -> Graph:
    function, shapes, _ = FUNCTIONS[name]
    return td.trace(function)(*(spec(*shape) for shape in shapes))


def results(program: Executable, graph: Graph, **dims: int) -> list[bytes]:
    g = np.random.default_rng(0)
    shapes = [[bind(n, dims) for n in i.type.shape] for i in graph.inputs]
    arrays = [g.standard_normal(shape).astype(np.float32) for shape in shapes]
    made = program.run(
        [Storage.from_numpy(a.copy()) for a in arrays], tuple(dims[name] for name in program.dims)
    )
    return [bytes(held.as_numpy(np.dtype(np.uint8), (held.nbytes,))) for held in made]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_recalled_program_gives_the_same_bytes(name: str) -> None:
    graph, donated = graph_of(name), FUNCTIONS[name][2]
    first, second = compile_graph(graph, donated), compile_graph(graph, donated)
    assert first.is_full and not second.is_full
    assert results(second, graph) == results(first, graph) == results(second, graph)


def test_a_new_process_compiles_nothing_and_loads_no_compiler(tmp_path: Path) -> None:
    lines = [
        "import sys, numpy as np, tetrad as td",
        "f = td.jit(lambda x, w: td.tanh(x @ w))",
        "print(np.asarray(f(np.ones((8, 40), np.float32), np.eye(40, "
        "dtype=np.float32))).tobytes().hex())",
        "print([m for m in ('tetrad.lower.lower', 'tetrad.compiler.pipeline') if m in "
        "sys.modules])",
        "print('libllvmlite' in open('/proc/self/maps').read())",
    ]
    environment = {
        **os.environ,
        "TETRAD_CACHE_DIR": str(tmp_path / "other"),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", "\n".join(lines)]
    cold, warm = (
        subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for _ in range(2)
    )
    assert warm[0] == cold[0]
    assert warm[1:] == ["[]", "False"] and cold[2] == "True"


SIZED: dict[str, tuple[Any, tuple[tuple[Any, ...], ...], tuple[int, ...]]] = {
    "elementwise": (lambda x, y: td.exp(x) * y + 1, ((n,), (n,)), ()),
    "rows": (lambda x: x / td.sum(td.exp(x), axis=-1, keepdims=True), ((m, n),), ()),
    "called": (lambda x, w: layer(layer(x, w), w) @ LARGE[0], ((n, 40), (40, 40)), ()),
    "large": (lambda x, y: (x * LARGE[1], y + LARGE[0, 0, 0]), ((n, 40, 60), (m, n)), ()),
    "donated": (lambda x, y: (x + 1, y), ((n, m), (n,)), (0,)),
}


def sized_graph(name: str) -> Graph:
    function, shapes, _ = SIZED[name]
    return td.trace(function)(*(spec(*shape) for shape in shapes))


@pytest.mark.parametrize("name", SIZED)
def test_a_recalled_program_serves_every_size(name: str) -> None:
    graph, donated = sized_graph(name), SIZED[name][2]
    first, second = compile_graph(graph, donated), compile_graph(graph, donated)
    # a constant right side of a product is packed, so its content is in the program
    if name == "called":
        assert second.is_full
        return
    assert first.is_full and not second.is_full
    for sizes in ({"n": 7, "m": 3}, {"n": 1, "m": 1}, {"n": 64, "m": 129}, {"n": 7, "m": 3}):
        assert results(second, graph, **sizes) == results(first, graph, **sizes)


@pytest.mark.parametrize("byte", range(0, 4000, 97))
@pytest.mark.parametrize("name", ["elementwise", "large"])
def test_a_damaged_entry_is_a_compilation(
    own_cache: ObjectCache, tmp_path: Path, name: str, byte: int
) -> None:
    graph = graph_of(name)
    expected = results(compile_graph(graph), graph)
    for path in (tmp_path / "cache").iterdir():
        data = bytearray(path.read_bytes())
        data[byte % len(data)] ^= 1 << byte % 8
        path.write_bytes(data)
    objects.OBJECTS.addresses.clear()
    again = compile_graph(graph)
    assert again.is_full
    assert results(again, graph) == expected


def test_an_object_that_is_gone_is_a_compilation(own_cache: ObjectCache) -> None:
    graph = graph_of("chain")
    key = program_key(graph, ())
    compile_graph(graph)
    body = own_cache.get(key)
    own_cache.clear()
    own_cache.put(key, body)
    objects.OBJECTS.addresses.clear()
    assert compile_graph(graph).is_full


def test_the_key_tells_programs_apart() -> None:
    keys = {program_key(graph_of(name), ()) for name in FUNCTIONS}
    assert None not in keys and len(keys) == len(FUNCTIONS)
    graph = graph_of("elementwise")
    assert program_key(graph, ()) != program_key(graph, (0,))


@pytest.mark.parametrize(
    ("name", "value"), [("TETRAD_CHECK", "bounds"), ("TETRAD_TARGET", "x86-64")]
)
def test_flags_that_change_code_have_programs_of_their_own(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    graph = graph_of("elementwise")
    before = program_key(graph, ())
    monkeypatch.setenv(name, value)
    assert program_key(graph, ()) not in (None, before)


def test_a_bound_of_a_dim_is_part_of_the_key() -> None:
    keys = {
        program_key(td.trace(lambda x: x + 1)(spec(td.Dim("n", max=most))), ()) for most in (64, 65)
    }
    assert None not in keys and len(keys) == 2


# -- large constants -------------------------------------------------------------------------------


def with_constants(
    *arrays: np.ndarray, f: Any = lambda x, *constants: sum(constants, start=x)
) -> Graph:
    """x and the constants, as a graph."""
    held = {id(a): Array.from_numpy(a) for a in arrays}
    return td.trace(lambda x: f(x, *(held[id(a)] for a in arrays)))(spec(40, 60))


def test_a_program_serves_any_content_of_its_large_constants() -> None:
    first, second = with_constants(LARGE[0], LARGE[1]), with_constants(LARGE[1], LARGE[0] + 1)
    assert compile_graph(first).is_full
    program = compile_graph(second)
    assert not program.is_full
    assert results(program, second) == results(compile_fully(second, ()), second)


def test_large_constants_are_used_where_they_lie() -> None:
    lines = np.zeros(40 * 60 + 16, np.float32)
    start = -(lines.ctypes.data // 4) % 16
    array = lines[start : start + 40 * 60].reshape(40, 60)
    array[...] = LARGE[0]
    graph = with_constants(array)
    compile_graph(graph)
    program = compile_graph(graph)
    results(program, graph)
    assert not program.is_full
    assert [held.ptr for held in program.constants.storage.values()] == [array.ctypes.data]


def test_one_constant_twice_is_not_two_constants() -> None:
    a, b = LARGE[0], LARGE[1]

    def subtract(x: Any, *c: Any) -> Any:
        return (x - c[0]) * c[1] - c[2]

    graphs = [
        with_constants(*arrays, f=subtract)
        for arrays in ((a, b, a), (a, b, b), (a, a, b), (a, b, a + b))
    ]
    assert len({program_key(graph, ()) for graph in graphs}) == len(graphs)


def test_a_large_constant_of_one_value_is_that_value() -> None:
    arrays = [np.full((40, 60), value, np.float32) for value in (0.0, -0.0, 1.0, 2.0)]
    arrays.append(np.where(np.arange(60) < 59, arrays[2], arrays[3]))
    graphs = [with_constants(array) for array in arrays]
    assert len({program_key(graph, ()) for graph in graphs}) == len(graphs)
    for graph in graphs:
        compile_graph(graph)
    for graph in graphs:
        assert results(compile_graph(graph), graph) == results(compile_fully(graph, ()), graph)


def applied(name: str, *operands: Any, **settings: Any) -> Any:
    return REGISTRY[name](*operands, **settings)


# Of nodes: an op on arrays that are known while tracing is computed at once.
READERS = {
    "packed": lambda x, c: applied("matmul", applied("transpose", x, perm=(1, 0)), c),
    "folded": lambda x, c: applied("add", x, applied("multiply", c, c)),
    "moved": lambda x, c: applied("matmul", x, applied("transpose", c, perm=(1, 0))),
}


@pytest.mark.parametrize("name", READERS)
def test_a_program_that_depends_on_a_large_constant_is_not_kept(name: str) -> None:
    for array in (LARGE[0], LARGE[1]):
        x = make_parameter(ArrayType(f32, (40, 60)), 0)
        graph = make_graph(name, [x], [READERS[name](x, make_constant(array))])
        program = compile_graph(graph)
        assert program.is_full
        assert results(program, graph) == results(compile_fully(graph, ()), graph)


def test_who_asks_for_the_content_of_a_constant_is_remembered() -> None:
    literal = Literal(LARGE)
    assert literal.splat is None and literal.held is not None and not literal.is_read
    assert literal.array is literal.held and literal.is_read


def test_a_large_constant_in_another_shape_is_still_that_constant() -> None:
    literal = Literal(LARGE)
    flat = literal.reshaped((-1,)).reshaped((4, -1))
    assert flat.origin is literal and np.shares_memory(flat.held, LARGE) and not literal.is_read
    assert flat.array.shape == (4, 1200) and literal.is_read

    graphs = []
    for array in (LARGE[0], LARGE[1]):
        x = make_parameter(ArrayType(f32, (60, 40)), 0)
        graphs.append(
            make_graph(
                "turned",
                [x],
                [applied("add", x, applied("reshape", make_constant(array), shape=(60, 40)))],
            )
        )
    assert compile_graph(graphs[0]).is_full
    program = compile_graph(graphs[1])
    assert not program.is_full
    assert results(program, graphs[1]) == results(compile_fully(graphs[1], ()), graphs[1])


def test_a_large_constant_inside_a_called_graph_is_compiled() -> None:
    inner = td.trace(lambda x: x * LARGE[0])(spec(40, 60))
    x = make_parameter(inner.inputs[0].type, 0)
    outer = make_graph("outer", [x], [make_item(make_call(inner, [x]), 0)])
    assert program_key(inner, ()) is not None
    assert program_key(outer, ()) is None


def test_an_op_from_elsewhere_is_compiled_because_its_source_is_not_in_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = graph_of("elementwise")
    assert program_key(graph, ()) is not None
    monkeypatch.setattr(REGISTRY["exp"], "reference", lambda x: np.exp(x))
    assert program_key(graph, ()) is None


@pytest.mark.parametrize("name", ["TETRAD_INTERPRET", "TETRAD_CHECK", "TETRAD_SHOW", "TETRAD_DUMP"])
def test_flags_that_watch_a_compilation_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    value = {"TETRAD_SHOW": "graph", "TETRAD_DUMP": str(tmp_path)}.get(name, "1")
    monkeypatch.setenv(name, value)
    assert program_key(graph_of("elementwise"), ()) is None


def test_without_knowledge_of_the_processor_nothing_is_recalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(objects, "processor_identity", lambda: None)
    assert program_key(graph_of("elementwise"), ()) is None


def test_a_trap_names_the_users_line_all_the_same() -> None:
    graph = td.trace(lambda x, i: td.take(x, i, axis=0))(spec(5), td.Spec((2,), td.int32))
    assert compile_graph(graph).is_full
    program = compile_graph(graph)
    assert not program.is_full
    bad = [
        Storage.from_numpy(np.zeros(5, np.float32)),
        Storage.from_numpy(np.array([1, 7], np.int32)),
    ]
    with pytest.raises(IndexError, match="7") as caught:
        program.run(bad)
    assert Path(__file__).name in str(caught.value)


def test_a_trap_at_a_later_size_names_the_users_line() -> None:
    def picked(x: Any, i: Any, j: Any) -> Any:
        first = td.take(x, i, axis=0)
        return first, td.take(x + 1, j, axis=0)

    kinds = spec(5), td.Spec((n,), td.int32), td.Spec((n,), td.int32)
    graph = td.trace(picked)(*kinds)
    programs = compile_graph(graph), compile_graph(graph)
    assert not programs[1].is_full
    told = []
    for program in programs:
        for size in (3, 2, 4):
            good, bad = np.zeros(size, np.int32), np.full(size, 9, np.int32)
            arrays = np.zeros(5, np.float32), good, good if size < 4 else bad
            run = partial(program.run, [Storage.from_numpy(a) for a in arrays], (size,))
            if size < 4:
                run()
        with pytest.raises(IndexError, match="9") as caught:
            run()
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_an_entry_holds_the_text_of_the_schedule(own_cache: ObjectCache) -> None:
    graph = graph_of("calls")
    compiled = compile_graph(graph)
    symbols, homes, constants, text = entry_parts(own_cache.get(program_key(graph, ())).decode())
    assert text == to_text(compiled.schedule, sources=False) and constants == []
    assert set(homes) == set(symbols) and len(symbols) == len(kernels(compiled.schedule))
    recalled = compile_graph(graph)
    assert not recalled.is_full and str(recalled.schedule) == text


@pytest.mark.parametrize("head", ["", "constants", "code a b\nconstants y", "constants 9"])
def test_a_malformed_entry_is_one_clear_error(own_cache: ObjectCache, head: str) -> None:
    """Entries have checksums: this is what a defect of ours would do."""
    graph = graph_of("elementwise")
    key = program_key(graph, ())
    own_cache.put(key, f"{head}\n\nschedule f(%0):\n".encode())
    with pytest.raises(ParseError, match="expected"):
        compile_graph(graph)
