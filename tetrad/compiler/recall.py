"""The driver, recalling: a graph in, a program that runs out, from the disk if it was compiled there before.

An entry of the disk cache is a whole schedule as JSON: tables, memory, names of the objects with its kernels. A hit
needs no pass, no lowering, no LLVM. What is not recalled goes through `compiler.driver`, and `compiler.keep` writes it
down for the next process.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tetrad.codegen.targets.x86_64 import processor_identity
from tetrad.compiler import objects, stations
from tetrad.compiler.objects import OBJECTS, build_identity, loading_runtime
from tetrad.compiler.ready import Ready
from tetrad.core.flags import code_key, flag, flag_words
from tetrad.graph.nested import innermost_first
from tetrad.graph.nodes import Graph, Literal
from tetrad.graph.text import structural_hash
from tetrad.runtime.cache import cache_key
from tetrad.runtime.memory import Storage
from tetrad.runtime.pool import Trapped
from tetrad.runtime.table import CallEntry, Entry, KernelEntry, Table, Word

if TYPE_CHECKING:
    from tetrad.compiler.driver import Compiled

# Whatever has a hand in a schedule; tracing, explain and others do not.
MAKERS = ("codegen", "compiler", "core", "graph", "kernel", "lower", "ops", "passes", "quant", "runtime")
CONSTANT = -2  # base of a word that is the address of a constant


def compile_graph(graph: Graph, donated: tuple[int, ...] = ()) -> Compiled | Recalled:
    """The program of a graph, recalled or compiled; `donated` inputs may be overwritten."""
    key = program_key(graph, donated)
    found = None if key is None else recall(key, graph, donated)
    if found is not None:
        return found
    compiled = compile_fully(graph, donated)
    if key is not None:
        importlib.import_module("tetrad.compiler.keep").keep(key, compiled)
    return compiled


def compile_fully(graph: Graph, donated: tuple[int, ...]) -> Compiled:
    """By the driver, and with it passes, lowering and code generation: loaded when there is something to compile."""
    compiled: Compiled = importlib.import_module("tetrad.compiler.driver").compile_graph(graph, donated)
    return compiled


class Recalled:
    """A program from the disk. Whoever wants to know more than its results asks for the `full` compilation."""

    def __init__(self, graph: Graph, donated: tuple[int, ...], told: Mapping[str, Any]) -> None:
        self.graph, self.donated = graph, donated
        held = self.constants = [stored(bytes.fromhex(text)) for text in told["constants"]]
        table = tables_from(told["tables"], [constant.ptr for constant in held])[-1]
        plan = [(str(kind), int(detail)) for kind, detail in told["plan"]]
        copied, addresses = frozenset(told["copied"]), {int(i): held[c].ptr for i, c in told["results"].items()}
        self.ready = Ready(
            graph.name, table, told["arena"], len(graph.inputs), plan, copied, addresses.__getitem__, self.explained
        )

    def run(self, storages: Sequence[Storage], dims: tuple[int, ...] = ()) -> list[Storage]:
        return self.ready.run(storages)

    def full(self) -> Compiled:
        return compile_fully(self.graph, self.donated)

    def explained(self, trap: Trapped) -> Exception:
        """Schedules are deterministic: the code means the same in a new compilation, which knows the user's lines."""
        return self.full().runner().explained(trap)


def stored(data: bytes) -> Storage:
    return Storage.from_numpy(np.frombuffer(data, np.uint8).copy())


# -- the key ----------------------------------------------------------------------------------------------------------


def program_key(graph: Graph, donated: tuple[int, ...]) -> str | None:
    """Names everything a schedule depends on; None for programs that are not kept."""
    processor = processor_identity()
    if processor is None or is_watched() or not is_plain(graph):
        return None
    libraries = f"numpy {np.__version__}, ml_dtypes {ml_dtypes.__version__}"  # they compute folded constants
    made_by = (build_identity(MAKERS), code_key(), processor, libraries)
    return cache_key(*made_by, str(donated), structural_hash(graph))


def is_watched() -> bool:
    """Do flags ask for something that happens while a program is compiled, or instead of running it?"""
    return stations.wants("graph", "passes", "kernel", "llvm", "asm", "schedule") or (
        flag("TETRAD_INTERPRET") == "1" or "1" in flag_words("TETRAD_CHECK")
    )


def is_plain(graph: Graph) -> bool:
    """Are all sizes known, all constants small, and all ops our own (the key does not see other sources)?"""
    if not all(node.type.is_static for node in graph.inputs):
        return False
    for part in innermost_first(graph):
        for node in part.nodes():
            own = node.op.reference.__module__.startswith("tetrad.")
            if not own or any(isinstance(v, Literal) and not v.is_small for _, v in node.params):
                return False
    return True


# -- reading ----------------------------------------------------------------------------------------------------------


def recall(key: str, graph: Graph, donated: tuple[int, ...]) -> Recalled | None:
    """The program kept under the key, if it and all its objects are there."""
    with stations.recording(stations.Clock()), stations.timed("recall"):
        runtime = loading_runtime()
        body = objects.disk_cache().get(key)
        if body is None:
            return None
        told = json.loads(body)
        if not OBJECTS.recall(told["homes"]):
            return None
        runtime.result()
        return Recalled(graph, donated, told)


def tables_from(told: Iterable[Mapping[str, Any]], constants: Sequence[int]) -> list[Table]:
    """Each table after those it calls."""
    made: list[Table] = []

    def words(flat: Sequence[int]) -> tuple[Word, ...]:
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return tuple([Word(-1, constants[v]) if base == CONSTANT else Word(base, v) for base, v in pairs])

    def entry(what: Sequence[Any]) -> Entry:
        if what[0] == "call":
            _, number, flat, name = what
            return CallEntry(made[number], words(flat), name)
        _, symbol, flat, *rest = what
        return KernelEntry(OBJECTS.addresses[symbol], words(flat), *rest)

    for table in told:
        made.append(Table([entry(e) for e in table["entries"]], table["scratch"], table["heavy"]))
    return made
