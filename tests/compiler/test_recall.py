"""Programs recalled from the disk are the programs that were compiled, and only those."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.modules import ROOT
from tetrad.compiler import objects, recall
from tetrad.compiler.driver import Compiled
from tetrad.compiler.recall import Recalled, compile_graph, program_key
from tetrad.core.op import REGISTRY
from tetrad.graph.nodes import Graph
from tetrad.runtime.cache import ObjectCache
from tetrad.runtime.memory import Storage


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ObjectCache]:
    monkeypatch.delenv("TETRAD_CHECK", raising=False)
    cache = ObjectCache(tmp_path / "cache")
    monkeypatch.setattr(objects, "disk_cache", lambda: cache)
    monkeypatch.setattr(objects.OBJECTS, "addresses", {})
    monkeypatch.setattr(objects.OBJECTS, "homes", {})
    yield cache


def spec(*shape: int) -> td.Spec:
    return td.Spec(shape)


layer = td.jit(lambda x, w: td.tanh(x @ w))
TABLE = np.arange(24, dtype=np.float32).reshape(4, 6)

FUNCTIONS: dict[str, tuple[Any, tuple[tuple[int, ...], ...], tuple[int, ...]]] = {
    "elementwise": (lambda x, y: td.exp(x) * y + 1, ((50,), (50,)), ()),
    "chain": (lambda x, w: td.sum(td.tanh(x @ w) @ w, axis=0), ((7, 40), (40, 40)), ()),
    "calls": (lambda x, w: layer(layer(x, w), w), ((7, 40), (40, 40)), ()),
    "constant": (lambda x: x + td.asarray(TABLE), ((4, 6),), ()),
    "results": (lambda x: (x, x + 1, x, td.asarray(TABLE), x + 1), ((4, 6),), ()),
    "donated": (lambda x, y: x + y, ((50,), (50,)), (0,)),
    "empty": (lambda x: x[:0] + 1, ((9, 4),), ()),
}


def graph_of(name: str) -> Graph:
    function, shapes, _ = FUNCTIONS[name]
    return td.trace(function)(*(spec(*shape) for shape in shapes))


def results(program: Compiled | Recalled, graph: Graph) -> list[bytes]:
    g = np.random.default_rng(0)
    arrays = [g.standard_normal(i.type.shape).astype(np.float32) for i in graph.inputs]
    made = program.run([Storage.from_numpy(a.copy()) for a in arrays])
    return [bytes(held.as_numpy(np.dtype(np.uint8), (held.nbytes,))) for held in made]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_recalled_program_gives_the_same_bytes(name: str) -> None:
    graph, donated = graph_of(name), FUNCTIONS[name][2]
    first, second = compile_graph(graph, donated), compile_graph(graph, donated)
    assert isinstance(first, Compiled) and isinstance(second, Recalled)
    assert results(second, graph) == results(first, graph) == results(second, graph)


def test_a_new_process_compiles_nothing_and_loads_no_compiler(tmp_path: Path) -> None:
    lines = [
        "import sys, numpy as np, tetrad as td",
        "f = td.jit(lambda x, w: td.tanh(x @ w))",
        "print(np.asarray(f(np.ones((8, 40), np.float32), np.eye(40, dtype=np.float32))).tobytes().hex())",
        "print([m for m in ('llvmlite.binding', 'tetrad.lower.lower', 'tetrad.passes.pipeline') if m in sys.modules])",
    ]
    environment = {**os.environ, "TETRAD_CACHE_DIR": str(tmp_path / "other"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", "\n".join(lines)]
    cold, warm = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
        for _ in range(2)
    )
    assert warm[0] == cold[0]
    assert warm[1] == "[]"


@pytest.mark.parametrize("byte", range(0, 4000, 97))
def test_a_damaged_entry_is_a_compilation(own_cache: ObjectCache, tmp_path: Path, byte: int) -> None:
    graph = graph_of("elementwise")
    expected = results(compile_graph(graph), graph)
    for path in (tmp_path / "cache").iterdir():
        data = bytearray(path.read_bytes())
        data[byte % len(data)] ^= 1 << byte % 8
        path.write_bytes(data)
    objects.OBJECTS.addresses.clear()
    again = compile_graph(graph)
    assert isinstance(again, Compiled)
    assert results(again, graph) == expected


def test_an_object_that_is_gone_is_a_compilation(own_cache: ObjectCache) -> None:
    graph = graph_of("chain")
    key = program_key(graph, ())
    compile_graph(graph)
    body = own_cache.get(key)
    own_cache.clear()
    own_cache.put(key, body)
    objects.OBJECTS.addresses.clear()
    assert isinstance(compile_graph(graph), Compiled)


def test_the_key_tells_programs_apart() -> None:
    keys = {program_key(graph_of(name), ()) for name in FUNCTIONS}
    assert None not in keys and len(keys) == len(FUNCTIONS)
    graph = graph_of("elementwise")
    assert program_key(graph, ()) != program_key(graph, (0,))


@pytest.mark.parametrize(("name", "value"), [("TETRAD_CHECK", "bounds"), ("TETRAD_TARGET", "x86-64")])
def test_flags_that_change_code_have_programs_of_their_own(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    graph = graph_of("elementwise")
    before = program_key(graph, ())
    monkeypatch.setenv(name, value)
    assert program_key(graph, ()) not in (None, before)


def test_sizes_and_constants_that_an_entry_cannot_hold_are_compiled() -> None:
    n = td.Dim("n", max=64)
    large = np.zeros(5000, np.float32)
    assert program_key(td.trace(lambda x: x + 1)(td.Spec((n,))), ()) is None
    assert program_key(td.trace(lambda x: x + td.asarray(large))(spec(5000)), ()) is None


def test_an_op_from_elsewhere_is_compiled_because_its_source_is_not_in_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = graph_of("elementwise")
    assert program_key(graph, ()) is not None
    monkeypatch.setattr(REGISTRY["exp"], "reference", lambda x: np.exp(x))
    assert program_key(graph, ()) is None


@pytest.mark.parametrize("name", ["TETRAD_INTERPRET", "TETRAD_CHECK", "TETRAD_SHOW", "TETRAD_DUMP"])
def test_flags_that_watch_a_compilation_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    value = {"TETRAD_SHOW": "graph", "TETRAD_DUMP": str(tmp_path)}.get(name, "1")
    monkeypatch.setenv(name, value)
    assert program_key(graph_of("elementwise"), ()) is None


def test_without_knowledge_of_the_processor_nothing_is_recalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "processor_identity", lambda: None)
    assert program_key(graph_of("elementwise"), ()) is None


def test_a_trap_names_the_users_line_all_the_same() -> None:
    graph = td.trace(lambda x, i: td.take(x, i, axis=0))(spec(5), td.Spec((2,), td.int32))
    assert isinstance(compile_graph(graph), Compiled)
    program = compile_graph(graph)
    assert isinstance(program, Recalled)
    bad = [Storage.from_numpy(np.zeros(5, np.float32)), Storage.from_numpy(np.array([1, 7], np.int32))]
    with pytest.raises(IndexError, match="7") as caught:
        program.run(bad)
    assert Path(__file__).name in str(caught.value)


def test_an_entry_is_plain_json(own_cache: ObjectCache) -> None:
    graph = graph_of("calls")
    compile_graph(graph)
    told = json.loads(own_cache.get(program_key(graph, ())))
    assert [len(table["entries"]) for table in told["tables"]] and told["copied"] == []
    assert set(told["homes"]) == {e[1] for t in told["tables"] for e in t["entries"] if e[0] == "kernel"}
