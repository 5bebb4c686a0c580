"""The driver, keeping: a compiled program in, an entry of the disk cache out, which
`compiler.program_cache` makes it from.

The entry is JSON: the lowered steps with their formulas, so that it serves every size of its Dims;
of each kernel what a launch needs to know and the entry with its object. Large constants of the
graph are numbers, others their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tetrad.backends.cpu import code_cache as objects
from tetrad.backends.cpu.code_cache import Objects
from tetrad.compiler.driver import Compiled
from tetrad.compiler.program_cache import large_literals, program_key
from tetrad.core.sizes import Named, Size
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Graph, Literal
from tetrad.kernel.nodes import Program
from tetrad.schedule.nodes import (
    Call,
    Control,
    Launch,
    Loop,
    Schedule,
    Slot,
    Step,
    Switch,
    While,
)

MOST_BYTES = 1 << 20  # of constants in an entry


def keep(key: str, compiled: Compiled) -> None:
    """Write a program, unless it depends on the content of large constants or has made large ones
    itself."""
    large = large_literals(compiled.graph)
    if any(literal.is_read for literal in large):
        return
    told = Telling(
        compiled.encoder.addresses, compiled.code, {literal: i for i, literal in enumerate(large)}
    )
    told.part(compiled.schedule)
    if sum(map(len, told.constants)) <= MOST_BYTES:
        objects.disk_cache().put(key, json.dumps(told.everything(), separators=(",", ":")).encode())


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


class Telling:
    """Numbers slots, kernels, constants and parts in order of appearance; parts after those they
    call."""

    def __init__(
        self, addresses: Mapping[Program, int], code: Objects, large: Mapping[Literal, int]
    ) -> None:
        self.addresses, self.code, self.large = addresses, code, large
        # others add to it
        self.symbols = {address: symbol for symbol, address in code.addresses.copy().items()}
        self.homes: dict[str, str] = {}
        self.constants: list[bytes] = []
        self.numbers: dict[object, int] = {}  # of slots, kernels and parts, each in their list
        self.types: dict[ArrayType, int] = {}
        self.slots: list[Any] = []
        self.kernels: list[Any] = []
        self.parts: list[Any] = []

    def everything(self) -> dict[str, Any]:
        constants = [data.hex() for data in self.constants]
        types = [type_told(kind) for kind in self.types]
        lists = {"types": types, "slots": self.slots, "kernels": self.kernels, "parts": self.parts}
        return {"homes": self.homes, "constants": constants, **lists}

    def part(self, schedule: Schedule) -> int:
        if schedule not in self.numbers:
            steps = [self.step(step) for step in schedule.steps]
            inputs, outputs = (
                [self.slot(s) for s in schedule.inputs],
                [self.slot(s) for s in schedule.outputs],
            )
            self.numbers[schedule] = len(self.parts)
            self.parts.append([schedule.graph.name, steps, inputs, outputs])
        return self.numbers[schedule]

    def step(self, step: Step) -> list[Any]:
        if isinstance(step, Launch):
            return ["launch", *self.launch(step)]
        inputs, outputs = [self.slot(s) for s in step.inputs], [self.slot(s) for s in step.outputs]
        bodies = [self.part(body) for body in step.bodies]
        return [
            type(step).__name__,
            bodies,
            inputs,
            outputs,
            self.slot(step.arena),
            *self.rest(step),
        ]

    def rest(self, step: Control) -> list[Any]:
        """What a step with sub-graphs has beyond them and its slots, in the order in which it is
        read."""
        match step:
            case Call():
                return []
            case Loop():
                spares = [None if s is None else self.slot(s) for s in step.spares]
                return [
                    step.consts,
                    step.carries,
                    size_told(step.length),
                    step.reverse,
                    spares,
                    step.rows,
                ]
            case While():
                spares = [None if s is None else self.slot(s) for s in step.spares]
                return [step.condition_consts, step.body_consts, spares, self.slot(step.flag)]
            case Switch():
                return [self.slot(step.index)]

    def launch(self, launch: Launch) -> list[Any]:
        return [
            self.kernel(launch.program),
            [self.slot(s) for s in launch.slots],
            {name: size_told(size) for name, size in launch.args.items()},
            size_told(launch.groups),
            sorted(map(self.slot, launch.writes)),
            [[self.slot(result), self.slot(source)] for result, source in launch.inplace],
            sorted(map(self.slot, launch.updates)),
            sorted(map(self.slot, launch.partly)),
            size_told(launch.flops),
        ]

    def slot(self, slot: Slot) -> int:
        if slot not in self.numbers:
            self.numbers[slot] = len(self.slots)
            kind = self.types.setdefault(slot.type, len(self.types))
            self.slots.append([slot.name, kind, slot.kind, slot.position, self.literal(slot)])
        return self.numbers[slot]

    def literal(self, slot: Slot) -> list[Any] | None:
        if slot.literal is None:
            return None
        if slot.literal.origin in self.large:
            return ["graph", self.large[slot.literal.origin]]
        self.constants.append(slot.literal.held.tobytes())
        return ["own", len(self.constants) - 1]

    def kernel(self, program: Program) -> int:
        if program not in self.numbers:
            self.numbers[program] = len(self.kernels)
            symbol = self.symbols[self.addresses[program]]
            self.homes[symbol] = self.code.homes[symbol]
            buffers = [
                [b.name, b.dtype.name, b.access, size_told(b.count)] for b in program.buffers
            ]
            self.kernels.append([symbol, program.name, buffers, program.args, program.workgroup])
        return self.numbers[program]


def type_told(kind: ArrayType) -> list[Any]:
    return [kind.dtype.name, [size_told(n) for n in kind.shape]]


def size_told(size: Size | None) -> Any:
    """A number, or the terms of a formula: [[atoms], factor]; an atom is [Dim, its bound] or [size,
    divisor]."""
    if size is None or isinstance(size, int):
        return size
    return [
        [
            [
                [a.name, a.max] if isinstance(a, Named) else [size_told(a.size), a.divisor]
                for a in atoms
            ],
            factor,
        ]
        for atoms, factor in size.terms
    ]
