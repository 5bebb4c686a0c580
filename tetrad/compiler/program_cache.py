"""The driver, recalling: a graph in, a program that runs out, from the disk if it was compiled
there before.

Here is the key under which a program is kept. `compiler.reading` makes it from its entry; what is
not there goes through `compiler.driver`, and `compiler.keep` writes it down for the next process.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tetrad.backends.cpu.cache import cache_key
from tetrad.backends.cpu.code_cache import made_by
from tetrad.compiler.reading import Recalled, Wanted, recall
from tetrad.core import lazy, show
from tetrad.core.floats import own_floats
from tetrad.graph.infer import dim_names
from tetrad.graph.nested import innermost_first
from tetrad.graph.nodes import Graph, Literal
from tetrad.graph.text import structural_hash

if TYPE_CHECKING:
    from tetrad.compiler.driver import Compiled

# Whatever has a hand in a schedule; tracing, explain and others do not.
MAKERS = (
    "backends",
    "compiler",
    "core",
    "graph",
    "kernel",
    "loopnest",
    "lower",
    "ops",
    "passes",
    "quant",
    "schedule",
)


def compile_graph(graph: Graph, donated: tuple[int, ...] = ()) -> Compiled | Recalled:
    """The program of a graph, recalled or compiled; `donated` inputs may be overwritten."""
    with own_floats():
        key = program_key(graph, donated)
        found = None if key is None else recall(key, wanted_of(graph, donated))
        if found is not None:
            return found
        compiled = compile_fully(graph, donated)
        if key is not None:
            lazy.module("tetrad.compiler.keep").keep(key, compiled)
        return compiled


def compile_fully(graph: Graph, donated: tuple[int, ...]) -> Compiled:
    """By the driver, and with it passes, lowering and code generation: loaded when there is
    something to compile."""
    compiled: Compiled = lazy.module("tetrad.compiler.driver").compile_graph(graph, donated)
    return compiled


def wanted_of(graph: Graph, donated: tuple[int, ...]) -> Wanted:
    size = len(graph.inputs), dim_names(graph)
    return Wanted(
        graph.name, *size, donated, large_literals(graph), lambda: compile_fully(graph, donated)
    )


# -- the key ---------------------------------------------------------------------------------------


def program_key(graph: Graph, donated: tuple[int, ...]) -> str | None:
    """Names everything a schedule depends on; None for programs that are not kept."""
    makers = made_by(MAKERS)
    if makers is None or show.are_watched() or not is_plain(graph):
        return None
    return cache_key(*makers, str(donated), structural_hash(graph), *large_constants(graph))


def is_plain(graph: Graph) -> bool:
    """Are all ops our own (the key does not see other sources), and large constants only in the
    outermost graph?

    Tracing hands them to inner graphs as arguments. Inside, the hash could not tell which of two
    equal ones is called.
    """
    *inner, outer = innermost_first(graph)
    nodes = (node for part in (*inner, outer) for node in part.nodes())
    own = all(node.op.reference.__module__.startswith("tetrad.") for node in nodes)
    return own and not any(True for part in inner for _ in large_uses(part))


def large_constants(graph: Graph) -> list[str]:
    """Which constant is which, their types, and all that a compilation may know of their content:
    is it one value?"""
    uses = list(large_uses(graph))
    numbers = {literal: i for i, literal in enumerate(dict.fromkeys(uses))}
    order = " ".join(str(numbers[literal]) for literal in uses)
    return [order, *(f"{literal.key[:2]} {splat_bits(literal)}" for literal in numbers)]


def splat_bits(literal: Literal) -> str | None:
    value = literal.splat
    return None if value is None else value.tobytes().hex()


def large_literals(graph: Graph) -> list[Literal]:
    """The large constants in the order of their first use. A kept program knows them by their
    numbers in it."""
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
