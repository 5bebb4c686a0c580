"""The compiler, program cache: a graph in, a program that runs out, from the disk if it was
compiled before.

Here are the key under which a program is kept and the entry it is kept in; what is not there goes
through `compiler.driver`. An entry is the text of a schedule, so that it serves every size of its
Dims, under a head that says in which entries the code of its kernels is and what its constants
are. Making a program of it needs no pass, no lowering, no LLVM, and no graph.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.backends.cpu import code_cache as objects
from tetrad.backends.cpu.cache import KEY, cache_key
from tetrad.backends.cpu.code_cache import OBJECTS, loading_runtime, made_by
from tetrad.backends.cpu.executable import Executable
from tetrad.core import lazy, show
from tetrad.core.dtypes import named
from tetrad.core.errors import ParseError
from tetrad.core.floats import own_floats
from tetrad.core.sizes import Dim, dims_of, parse_size
from tetrad.core.types import ArrayType
from tetrad.graph.infer import dim_names
from tetrad.graph.nested import innermost_first
from tetrad.graph.nodes import Graph, Literal

if TYPE_CHECKING:
    from tetrad.schedule import parse, text
else:  # a start that finds its programs prints none, one that finds nothing reads none
    parse, text = lazy.later("tetrad.schedule.parse"), lazy.later("tetrad.schedule.text")

MOST_BYTES = 1 << 20  # of constants in an entry
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


def compile_graph(graph: Graph, donated: tuple[int, ...] = ()) -> Executable:
    """The program of a graph, recalled or compiled; `donated` inputs may be overwritten."""
    with own_floats():
        key = program_key(graph, donated)

        def recompile() -> Executable:
            return compile_fully(graph, donated)

        if key is None:
            return recompile()
        large = large_literals(graph)
        found = load(key, graph.name, dim_names(graph), donated, large, recompile)
        if found is None:
            found = recompile()
            save(key, found, large)
        return found


def compile_fully(graph: Graph, donated: tuple[int, ...]) -> Executable:
    """By the driver, and with it passes, lowering and code generation: loaded when there is
    something to compile."""
    compiled: Executable = lazy.module("tetrad.compiler.driver").compile_graph(graph, donated)
    return compiled


# -- from the disk ---------------------------------------------------------------------------------


def load(
    key: str,
    name: str,
    dims: tuple[str, ...],
    donated: tuple[int, ...],
    large: Sequence[Literal],  # its large constants, in the order of their first use
    recompile: Callable[[], Executable],
) -> Executable | None:
    """The program kept under the key, if it and all its objects are there."""
    with show.recording(show.Clock()), show.timed("recall"):
        runtime = loading_runtime()
        body = objects.disk_cache().get(key)
        if body is None:
            return None
        symbols, homes, constants, schedule_text = entry_parts(body.decode(errors="replace"))
        if not OBJECTS.recall(homes):
            return None
        schedule, found = parse.parse_program(schedule_text, literals_of(constants, large))
        if len(found) != len(symbols):
            raise ParseError(f"expected code for {len(found)} kernels, got {len(symbols)}")
        pairs = zip(found.values(), symbols, strict=True)
        addresses = {kernel: OBJECTS.addresses[symbol] for kernel, symbol in pairs}
        runtime.result()
        return Executable(name, schedule, addresses, dims, donated, recompile=recompile)


# -- the entry -------------------------------------------------------------------------------------


def save(key: str, compiled: Executable, large: Sequence[Literal]) -> None:
    """Write a program, unless it depends on the content of large constants or has made large ones
    itself."""
    if any(literal.is_read for literal in large):
        return
    numbers = {literal: str(i) for i, literal in enumerate(large)}
    constants = list(text.literals(compiled.schedule).values())
    if sum(c.held.nbytes for c in constants if c not in numbers) <= MOST_BYTES:
        words = [numbers.get(c) or f"x{c.held.tobytes().hex()}" for c in constants]
        body = f"{entry_head(compiled, words)}\n\n{text.to_text(compiled.schedule, sources=False)}"
        objects.disk_cache().put(key, body.encode())


def entry_head(compiled: Executable, constants: Sequence[str]) -> str:
    """Symbol and home of the code of each kernel, in the order of the text; then a word for each
    constant: the number of a large one of the graph, or the bytes of another."""
    code, addresses = compiled.code, compiled.encoder.addresses
    # others add to it
    symbols = {address: symbol for symbol, address in code.addresses.copy().items()}
    found = [symbols[addresses[kernel]] for kernel in text.kernels(compiled.schedule).values()]
    lines = [f"code {symbol} {code.homes[symbol]}" for symbol in found]
    return "\n".join([*lines, " ".join(["constants", *constants])])


def entry_parts(body: str) -> tuple[list[str], dict[str, str], list[str], str]:
    """The symbols of the kernels, where their code is, words for the constants, and the text."""
    head, _, rest = body.partition("\n\n")
    *lines, constants = [line.split(" ") for line in head.split("\n")]
    are_code = all(len(w) == 3 and w[0] == "code" and KEY.fullmatch(w[2]) for w in lines)
    if constants[0] != "constants" or not are_code:
        raise ParseError("expected code SYMBOL ENTRY lines and constants, then a schedule")
    return [w[1] for w in lines], {w[1]: w[2] for w in lines}, constants[1:], rest


def literals_of(words: Sequence[str], large: Sequence[Literal]) -> dict[str, Literal]:
    try:
        found = [
            large[int(word)]
            if word[0] != "x"
            else Literal(np.frombuffer(bytes.fromhex(word[1:]), np.uint8))
            for word in words
        ]
    except (ValueError, IndexError):
        raise ParseError(
            "expected constants by the number of a large one, or x and bytes"
        ) from None
    return dict(zip(map("#{}".format, range(len(found))), found, strict=True))


# -- notes -----------------------------------------------------------------------------------------


def note(key: str, graph: Graph, donated: tuple[int, ...], arrays: Sequence[np.ndarray]) -> None:
    """Write which program a known function is, if that is kept: its key, its name, the types of its
    results, and which of the arrays its large constants are."""
    program = program_key(graph, donated)
    places: dict[object, set[int]] = {}
    for i, array in enumerate(arrays):
        places.setdefault(place_of(array), set()).add(i)
    found = [places.get(place_of(literal.held), set()) for literal in large_literals(graph)]
    if (
        program is None
        or objects.disk_cache().get(program) is None
        or any(len(which) != 1 for which in found)
    ):
        # a constant from elsewhere, or one of two arrays in one place: nobody could know which it
        # is
        return
    outputs = [type_told(o.type) for o in graph.outputs]
    objects.disk_cache().put(
        key, json.dumps([program, graph.name, outputs, [min(which) for which in found]]).encode()
    )


def place_of(array: np.ndarray) -> tuple[int, int, tuple[int, ...], str]:
    return array.__array_interface__["data"][0], array.nbytes, array.shape, str(array.dtype)


def type_told(kind: ArrayType) -> list[Any]:
    """The name of the dtype, the sizes as they print, and the bounds of their Dims."""
    dims = {d.name: d.max for n in kind.shape for d in dims_of(n)}
    return [kind.dtype.short_name, [str(n) for n in kind.shape], dims]


def type_from(dtype: str, shape: Sequence[str], bounds: Mapping[str, int]) -> ArrayType:
    """A type as `type_told` wrote it."""
    dims = {name: Dim(name, max=most) for name, most in bounds.items()}
    return ArrayType(named(dtype), tuple([parse_size(n, dims) for n in shape]))


# -- the key ---------------------------------------------------------------------------------------


def program_key(graph: Graph, donated: tuple[int, ...]) -> str | None:
    """Names everything a schedule depends on; None for programs that are not kept."""
    makers = made_by(MAKERS)
    if makers is None or show.are_watched() or not is_plain(graph):
        return None
    # loaded here: programs that are found by name need no text of graphs
    identity: str = lazy.module("tetrad.graph.text").structural_hash(graph)
    return cache_key(*makers, str(donated), identity, *large_constants(graph))


def is_plain(graph: Graph) -> bool:
    """Are all ops our own (the key does not see other sources) without objects of this process, and
    large constants only in the outermost graph?

    Tracing hands them to inner graphs as arguments. Inside, the hash could not tell which of two
    equal ones is called.
    """
    *inner, outer = innermost_first(graph)
    nodes = (node for part in (*inner, outer) for node in part.nodes())
    own = all(
        node.op.portable and node.op.reference.__module__.startswith("tetrad.") for node in nodes
    )
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
