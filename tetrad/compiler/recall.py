"""The driver, recalling: a graph in, a program that runs out, from the disk if it was compiled there before.

An entry of the disk cache is JSON: the lowered steps with formulas for sizes, and names of the objects with their
kernels. A hit needs no pass, no lowering, no LLVM; it is scheduled as ever. What is not recalled goes through
`compiler.driver`, and `compiler.keep` writes it down for the next process.
"""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tetrad.codegen.targets.x86_64 import processor_identity
from tetrad.compiler import objects, stations
from tetrad.compiler.objects import OBJECTS, build_identity, loading_runtime
from tetrad.compiler.outputs import Outputs
from tetrad.compiler.ready import Ready
from tetrad.compiler.schedule import Constants, Scheduler
from tetrad.core.dtypes import named
from tetrad.core.flags import code_key, flag, flag_words
from tetrad.core.sizes import Atom, CeilDiv, Named, SizeExpr
from tetrad.core.types import ArrayType
from tetrad.graph.infer import dim_names
from tetrad.graph.nested import innermost_first
from tetrad.graph.nodes import Graph, Literal
from tetrad.graph.text import structural_hash
from tetrad.kernel.nodes import Buffer, Program
from tetrad.lower.launch import Choose, Invoke, Launch, Lowered, Repeat, Slot, Step, While
from tetrad.runtime.cache import cache_key
from tetrad.runtime.limits import available_threads
from tetrad.runtime.memory import Storage
from tetrad.runtime.pool import Trapped

if TYPE_CHECKING:
    from tetrad.compiler.driver import Compiled

# Whatever has a hand in a schedule; tracing, explain and others do not.
MAKERS = ("codegen", "compiler", "core", "graph", "kernel", "lower", "ops", "passes", "quant", "runtime")


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
        self.graph, self.donated, self.dims = graph, donated, dim_names(graph)
        read = Reading(told, large_literals(graph))
        self.lowered, self.constants = read.parts[-1], Constants()
        self.scheduler = Scheduler(read.addresses, self.constants)
        self.memory = Outputs(self.lowered, donated)
        self.made: dict[tuple[int, ...], Ready] = {}
        self.lock = threading.Lock()

    def run(self, storages: Sequence[Storage], dims: tuple[int, ...] = ()) -> list[Storage]:
        ready = self.made.get(dims) or self.ready(dims)
        return ready.run(storages)

    def ready(self, dims: tuple[int, ...] = ()) -> Ready:
        with self.lock:
            if dims not in self.made:
                self.made[dims] = self.make_ready(dims)
            return self.made[dims]

    def make_ready(self, dims: tuple[int, ...]) -> Ready:
        sizes = dict(zip(self.dims, dims, strict=True))
        scheduled = self.scheduler.schedule(self.lowered, sizes)
        return Ready(
            self.graph.name,
            scheduled.table,
            scheduled.arena_bytes,
            len(self.graph.inputs),
            self.memory.plans(sizes),
            self.memory.copied,
            lambda i: self.constants.address(self.lowered.outputs[i]),
            lambda trap: self.explained(trap, dims),
        )

    def full(self) -> Compiled:
        return compile_fully(self.graph, self.donated)

    def explained(self, trap: Trapped, dims: tuple[int, ...]) -> Exception:
        """Schedules are deterministic: the code means the same in a new compilation, which knows the user's lines."""
        return self.full().runner(dims).explained(trap)


# -- the key ----------------------------------------------------------------------------------------------------------


def program_key(graph: Graph, donated: tuple[int, ...]) -> str | None:
    """Names everything a schedule depends on; None for programs that are not kept."""
    processor = processor_identity()
    if processor is None or is_watched() or not is_plain(graph):
        return None
    libraries = f"numpy {np.__version__}, ml_dtypes {ml_dtypes.__version__}"  # they compute folded constants
    made_by = (build_identity(MAKERS), code_key(), processor, libraries, f"{available_threads()} threads")
    return cache_key(*made_by, str(donated), structural_hash(graph), *large_constants(graph))


def is_watched() -> bool:
    """Do flags ask for something that happens while a program is compiled, or instead of running it?"""
    return stations.wants("graph", "passes", "kernel", "llvm", "asm", "schedule") or (
        flag("TETRAD_INTERPRET") == "1" or "1" in flag_words("TETRAD_CHECK")
    )


def is_plain(graph: Graph) -> bool:
    """Are all ops our own (the key does not see other sources), and large constants only in the outermost graph?

    Tracing hands them to inner graphs as arguments. Inside, the hash could not tell which of two equal ones is called.
    """
    *inner, outer = innermost_first(graph)
    nodes = (node for part in (*inner, outer) for node in part.nodes())
    own = all(node.op.reference.__module__.startswith("tetrad.") for node in nodes)
    return own and not any(True for part in inner for _ in large_uses(part))


def large_constants(graph: Graph) -> list[str]:
    """Which constant is which, their types, and all that a compilation may know of their content: is it one value?"""
    uses = list(large_uses(graph))
    numbers = {literal: i for i, literal in enumerate(dict.fromkeys(uses))}
    order = " ".join(str(numbers[literal]) for literal in uses)
    return [order, *(f"{literal.key[:2]} {splat_bits(literal)}" for literal in numbers)]


def splat_bits(literal: Literal) -> str | None:
    value = literal.splat
    return None if value is None else value.tobytes().hex()


def large_literals(graph: Graph) -> list[Literal]:
    """The large constants in the order of their first use. A kept program knows them by their numbers in it."""
    return list(dict.fromkeys(large_uses(graph)))


def large_uses(graph: Graph) -> Iterator[Literal]:
    """Of a graph, without those inside it."""
    for node in graph.nodes():
        yield from large_in(node.params)


def large_in(value: object) -> Iterator[Literal]:
    if isinstance(value, tuple):
        for part in value:
            yield from large_in(part)
    elif isinstance(value, Literal) and not value.is_small:
        yield value


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


class Reading:
    """The lists of an entry as the objects they were: kernels without bodies, graphs with names only."""

    def __init__(self, told: Mapping[str, Any], large: Sequence[Literal]) -> None:
        own = [Literal(np.frombuffer(bytes.fromhex(data), np.uint8)) for data in told["constants"]]
        self.literals = {"graph": large, "own": own}
        self.slots = [self.slot(*slot) for slot in told["slots"]]
        self.kernels = [kernel_from(*rest) for _, *rest in told["kernels"]]
        symbols = [symbol for symbol, *_ in told["kernels"]]
        self.addresses = {k: OBJECTS.addresses[s] for k, s in zip(self.kernels, symbols, strict=True)}
        self.parts: list[Lowered] = []
        for name, steps, inputs, outputs in told["parts"]:
            made = tuple([self.step(*step) for step in steps])
            self.parts.append(Lowered(Graph(name, (), ()), made, self.at(inputs), self.at(outputs)))

    def slot(
        self, name: str, dtype: str, shape: list[Any], kind: str, position: int, constant: tuple[str, int] | None
    ) -> Slot:
        literal = None if constant is None else self.literals[constant[0]][constant[1]]
        return Slot(name, ArrayType(named(dtype), tuple([size_from(n) for n in shape])), kind, position, literal)

    def at(self, numbers: Iterable[int]) -> tuple[Slot, ...]:
        return tuple([self.slots[i] for i in numbers])

    def step(self, kind: str, *told: Any) -> Step:
        return self.launch(*told) if kind == "launch" else self.control(kind, *told)

    def control(self, kind: str, bodies: list[int], inputs: list[int], outputs: list[int], *told: Any) -> Step:
        """As `keep.Telling.rest` wrote it."""
        parts = [self.parts[i] for i in bodies]
        arena, *rest = told
        given, room = (self.at(inputs), self.at(outputs)), self.slots[arena]
        if kind == "Invoke":
            return Invoke(parts[0], *given, arena=room)
        if kind == "Choose":
            return Choose(self.slots[rest[0]], tuple(parts), *given, arena=room)
        if kind == "While":
            asked, fixed, spares, flag = rest
            condition, body = parts
            return While(condition, body, *given, asked, fixed, self.perhaps(spares), self.slots[flag], arena=room)
        consts, carries, length, reverse, spares, rows = rest
        counted = (consts, carries, size_from(length), reverse)
        return Repeat(parts[0], *given, *counted, self.perhaps(spares), tuple(rows), arena=room)

    def perhaps(self, numbers: Iterable[int | None]) -> tuple[Slot | None, ...]:
        return tuple([None if i is None else self.slots[i] for i in numbers])

    def launch(self, kernel: int, slots: list[int], args: Mapping[str, Any], groups: Any, *rest: Any) -> Launch:
        writes, inplace, updates, partly, flops = rest
        return Launch(
            self.kernels[kernel],
            self.at(slots),
            {name: size_from(size) for name, size in args.items()},
            size_from(groups),
            frozenset(self.at(writes)),
            tuple([(self.slots[result], self.slots[source]) for result, source in inplace]),
            frozenset(self.at(updates)),
            frozenset(self.at(partly)),
            flops=size_from(flops),
        )


def kernel_from(name: str, buffers: Iterable[Any], args: list[str], workgroup: list[int]) -> Program:
    made = [Buffer(b, named(dtype), access, size_from(count)) for b, dtype, access, count in buffers]
    x, y, z = workgroup
    return Program(name, tuple(made), tuple(args), (x, y, z), ())


def size_from(told: Any) -> Any:
    """A size as `keep.size_told` wrote it."""
    if not isinstance(told, list):
        return told
    return SizeExpr(tuple([(tuple([atom_from(*atom) for atom in atoms]), factor) for atoms, factor in told]))


def atom_from(what: Any, number: int) -> Atom:
    return Named(what, number) if isinstance(what, str) else CeilDiv(size_from(what), number)
