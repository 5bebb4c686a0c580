"""The driver, reading: an entry of the disk cache and the large constants of a graph in, a program
that runs out.

An entry is JSON, written by `compiler.keep`: the lowered steps with formulas for sizes, and names
of the objects with their kernels. Reading one needs no pass, no lowering, no LLVM, and no graph: it
is encoded as ever.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tetrad.backends.cpu import code_cache as objects
from tetrad.backends.cpu.code_cache import OBJECTS, loading_runtime
from tetrad.backends.cpu.encode import Constants, TableEncoder, address_of
from tetrad.backends.cpu.executable import MOST_PREPARED, TURNS, Ready, least_used
from tetrad.backends.cpu.memory import Arenas, Storage
from tetrad.backends.cpu.pool import Trapped
from tetrad.core import show
from tetrad.core.dtypes import named
from tetrad.core.locks import object_lock
from tetrad.core.record import record
from tetrad.core.sizes import Atom, CeilDiv, Named, SizeExpr
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Graph, Literal
from tetrad.kernel.nodes import Buffer, Program
from tetrad.schedule.nodes import Call, Launch, Loop, Schedule, Slot, Step, Switch, While
from tetrad.schedule.outputs import Outputs

if TYPE_CHECKING:
    from tetrad.compiler.driver import Compiled


@record(eq=False)
class Wanted:
    """What a recalled program has to know of its graph."""

    name: str
    inputs: int
    dims: tuple[str, ...]
    donated: tuple[int, ...]
    large: Sequence[Literal]  # its large constants, in the order of their first use
    full: Callable[[], Compiled]


def recall(key: str, wanted: Wanted) -> Recalled | None:
    """The program kept under the key, if it and all its objects are there."""
    with show.recording(show.Clock()), show.timed("recall"):
        runtime = loading_runtime()
        body = objects.disk_cache().get(key)
        if body is None:
            return None
        told = json.loads(body)
        if not OBJECTS.recall(told["homes"]):
            return None
        runtime.result()
        return Recalled(wanted, told)


class Recalled:
    """A program from the disk. Whoever wants to know more than its results asks for the `full`
    compilation."""

    def __init__(self, wanted: Wanted, told: Mapping[str, Any]) -> None:
        self.wanted, self.dims = wanted, wanted.dims
        read = Reading(told, wanted.large)
        self.schedule, self.constants = read.parts[-1], Constants()
        self.encoder = TableEncoder(read.addresses, self.constants)
        self.memory = Outputs(self.schedule, wanted.donated)
        self.made: dict[tuple[int, ...], Ready] = {}  # at most MOST_PREPARED
        self.latest: Ready | None = None
        self.arenas = Arenas()
        self.lock = object_lock()

    def run(self, storages: Sequence[Storage], dims: tuple[int, ...] = ()) -> list[Storage]:
        ready = self.latest
        if ready is None or ready.sizes != dims:
            ready = self.latest = self.turned_to(dims)
        return ready.run(storages)

    def turned_to(self, dims: tuple[int, ...]) -> Ready:
        """What is ready for other sizes than those of the call before."""
        ready = self.made.get(dims) or self.ready(dims)
        ready.turn = next(TURNS)
        return ready

    def ready(self, dims: tuple[int, ...] = ()) -> Ready:
        with self.lock:
            if dims not in self.made:
                if len(self.made) >= MOST_PREPARED:
                    self.give_up(least_used(self.made))
                made = self.make_ready(dims)
                made.sizes = dims
                self.made[dims] = made
            return self.made[dims]

    def give_up(self, dims: tuple[int, ...]) -> None:
        del self.made[dims]
        self.encoder.forget(dict(zip(self.dims, dims, strict=True)))

    def make_ready(self, dims: tuple[int, ...]) -> Ready:
        sizes = dict(zip(self.dims, dims, strict=True))
        encoded = self.encoder.encode(self.schedule, sizes)
        return Ready(
            self.wanted.name,
            encoded.table,
            encoded.arena_bytes,
            self.arenas,
            self.wanted.inputs,
            self.memory.plans(sizes),
            self.memory.copied,
            partial(address_of, self.constants, self.schedule.outputs),
            partial(explained, self.wanted, dims),
        )

    def full(self) -> Compiled:
        return self.wanted.full()


def explained(wanted: Wanted, dims: tuple[int, ...], trap: Trapped) -> Exception:
    """Schedules are deterministic: the code means the same in a new compilation, which knows the
    user's lines."""
    full = wanted.full()
    return full.runner(dims).explained(trap)


class Reading:
    """The lists of an entry as the objects they were: kernels without bodies, graphs with names
    only."""

    def __init__(self, told: Mapping[str, Any], large: Sequence[Literal]) -> None:
        own = [Literal(np.frombuffer(bytes.fromhex(data), np.uint8)) for data in told["constants"]]
        self.literals = {"graph": large, "own": own}
        self.types = [type_from(*kind) for kind in told["types"]]
        self.slots = [self.slot(*slot) for slot in told["slots"]]
        self.kernels = [kernel_from(*rest) for _, *rest in told["kernels"]]
        symbols = [symbol for symbol, *_ in told["kernels"]]
        self.addresses = {
            k: OBJECTS.addresses[s] for k, s in zip(self.kernels, symbols, strict=True)
        }
        self.parts: list[Schedule] = []
        for name, steps, inputs, outputs in told["parts"]:
            made = tuple([self.step(*step) for step in steps])
            self.parts.append(
                Schedule(Graph(name, (), ()), made, self.at(inputs), self.at(outputs))
            )

    def slot(
        self, name: str, type: int, kind: str, position: int, constant: tuple[str, int] | None
    ) -> Slot:
        literal = None if constant is None else self.literals[constant[0]][constant[1]]
        return Slot(name, self.types[type], kind, position, literal)

    def at(self, numbers: Iterable[int]) -> tuple[Slot, ...]:
        return tuple([self.slots[i] for i in numbers])

    def step(self, kind: str, *told: Any) -> Step:
        return self.launch(*told) if kind == "launch" else self.control(kind, *told)

    def control(
        self, kind: str, bodies: list[int], inputs: list[int], outputs: list[int], *told: Any
    ) -> Step:
        """As `keep.Telling.rest` wrote it."""
        parts = [self.parts[i] for i in bodies]
        arena, *rest = told
        given, room = (self.at(inputs), self.at(outputs)), self.slots[arena]
        if kind == "Call":
            return Call(parts[0], *given, arena=room)
        if kind == "Switch":
            return Switch(self.slots[rest[0]], tuple(parts), *given, arena=room)
        if kind == "While":
            asked, fixed, spares, flag = rest
            condition, body = parts
            return While(
                condition,
                body,
                *given,
                asked,
                fixed,
                self.perhaps(spares),
                self.slots[flag],
                arena=room,
            )
        consts, carries, length, reverse, spares, rows = rest
        counted = (consts, carries, size_from(length), reverse)
        return Loop(parts[0], *given, *counted, self.perhaps(spares), tuple(rows), arena=room)

    def perhaps(self, numbers: Iterable[int | None]) -> tuple[Slot | None, ...]:
        return tuple([None if i is None else self.slots[i] for i in numbers])

    def launch(
        self, kernel: int, slots: list[int], args: Mapping[str, Any], groups: Any, *rest: Any
    ) -> Launch:
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


def kernel_from(
    name: str, buffers: Iterable[Any], args: list[str], workgroup: list[int]
) -> Program:
    made = [
        Buffer(b, named(dtype), access, size_from(count)) for b, dtype, access, count in buffers
    ]
    x, y, z = workgroup
    return Program(name, tuple(made), tuple(args), (x, y, z), ())


def type_from(dtype: str, shape: Iterable[Any]) -> ArrayType:
    """A type as `keep.type_told` wrote it."""
    return ArrayType(named(dtype), tuple([size_from(n) for n in shape]))


def size_from(told: Any) -> Any:
    """A size as `keep.size_told` wrote it."""
    if not isinstance(told, list):
        return told
    return SizeExpr(
        tuple([(tuple([atom_from(*atom) for atom in atoms]), factor) for atoms, factor in told])
    )


def atom_from(what: Any, number: int) -> Atom:
    return Named(what, number) if isinstance(what, str) else CeilDiv(size_from(what), number)
