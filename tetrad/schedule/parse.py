"""The schedule language, parse: the text of a schedule in, the schedule out, or a `ParseError` with
the line.

`schedule.text` prints it. Kernels have no bodies here, constants are given by whoever has them, and
a function of Python's cannot be read from a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tetrad.core.dtypes import named
from tetrad.core.errors import ParseError, TetradError
from tetrad.core.sizes import Dim, Size, parse_size
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Graph, Literal
from tetrad.kernel.nodes import Buffer, Program
from tetrad.schedule.nodes import (
    COMMENT,
    Call,
    Callback,
    HostCall,
    HostMemory,
    HostRoom,
    Launch,
    Loop,
    Schedule,
    Slot,
    Step,
    Switch,
    TrapSite,
    While,
    arena_slot,
    unknown_function,
)

# Lines are taken apart by splitting: a language model's schedule is read at every start, and
# expressions would have to be compiled first.

EXPECTED = {
    "dim": "dim NAME max=N",
    "kernel": "kernel NAME(BUFFER: DTYPE ACCESS, ...) workgroup=X,Y,Z args=NAME,...",
    "schedule": "schedule NAME(%0, %1):",
    "launch": "launch KERNEL(%0, %1) groups=SIZE args=NAME:SIZE,... writes=BUFFER,...",
    "host": "host ROUTINE form=LETTERS numbers=SIZE,... memory=%0:ACCESS:SIZE:SIZE:SIZE,... ...",
    "python": "python NAME(%0:TYPE -> %1)",
    "call": "call @NAME(%0 -> %1)",
    "loop": "loop @NAME(%0 -> %1) consts=N carries=N length=SIZE spares=... rows=...",
    "while": "while @CONDITION @BODY(%0 -> %1) condition_consts=N body_consts=N ...",
    "switch": "switch @NAME @NAME(%0 -> %1) index=%3",
    "return": "return %0, %1",
}
PROBLEMS = (TetradError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


def parse(text: str, literals: Mapping[str, Literal] | None = None) -> Schedule:
    """The schedule that `text` describes (the last one in it); the inverse of `to_text`, sources
    aside. Kernels have no bodies, and constants that `literals` does not give have no bytes."""
    return parse_program(text, literals)[0]


def parse_program(
    text: str, literals: Mapping[str, Literal] | None = None
) -> tuple[Schedule, dict[str, Program]]:
    """As `parse`, with the kernels by their labels."""
    parser = _Parser(literals)
    lines = text.split("\n")
    if COMMENT in text:
        lines = [line.partition(COMMENT)[0] for line in lines]
    try:
        parser.read(lines)
    except PROBLEMS as problem:
        raise _error(parser.number, lines[parser.number - 1], problem) from None
    if parser.label is not None or not parser.schedules:
        wanted = "a schedule" if parser.label is None else "return"
        raise ParseError(f"line {parser.number}: expected {wanted}, got the end of the text")
    return list(parser.schedules.values())[-1], parser.kernels


def _error(number: int, line: str, problem: Exception) -> ParseError:
    if isinstance(problem, TetradError):
        return ParseError(f"line {number}: {problem.message}")
    text = line.strip()
    form = EXPECTED.get(text.partition(" ")[0], "%0: TYPE temp NAME, or a step")
    return ParseError.in_line(number, text, form)


Marks = tuple[int, ...]  # positions among the slots of a launch
# what launches of one kernel mostly share: arguments, groups, writes, in place, updates, partly,
# operations, extents
Shared = tuple[
    dict[str, Size], Size, Marks, tuple[tuple[int, int], ...], Marks, Marks, Size,
    tuple[Size, Size] | None,
]  # fmt: skip


class _Parser:
    """Reads line by line: dims, kernels, then schedules; the one being read is `label` until its
    return."""

    def __init__(self, literals: Mapping[str, Literal] | None) -> None:
        self.literals = _NoBytes() if literals is None else literals
        self.dims: dict[str, Size] = {}
        self.kernels: dict[str, Program] = {}
        self.schedules: dict[str, Schedule] = {}
        self.slots: dict[str, Slot] = {}
        self.sizes = _Sizes(self.dims)
        self.types = _Types(self.sizes)
        self.shared: dict[tuple[str, str], Shared] = {}
        self.number = 0  # of the line
        self.declared = 0  # lines of slots
        self.label: str | None = None
        self.inputs: list[str] = []
        self.steps: list[Step] = []

    def read(self, lines: Iterable[str]) -> None:
        slots, types, literals = self.slots, self.types, self.literals
        for self.number, line in enumerate(lines, 1):
            words = line.split()
            first = words[0] if words else "#"
            if first[0] == "%":  # most lines of a large schedule, so they are read here
                text, kind, name = words[1], words[2], words[-1]
                if kind == "constant":
                    position, literal = -1, literals[words[3]]
                else:
                    position, literal = -1 if kind == "temp" else int(words[3]), None
                if name[0] == '"':
                    name = _name(name)
                slots[first[:-1]] = Slot(name, types[text], kind, position, literal)
                self.declared += KINDS[kind] == len(words)
            elif first[0] != "#":
                _READERS[first](self, line.strip()[len(first) + 1 :])

    # declarations

    def dim(self, rest: str) -> None:
        name, most = rest.split(" max=")
        if name in self.dims:
            raise ParseError(f"expected a new dim, {name} is taken")
        self.dims[name] = Dim(name, max=_number(most))

    def kernel(self, rest: str) -> None:
        label, rest = rest.split("(", 1)
        buffers, _, rest = rest.rpartition(") ")
        settings = _settings(rest)
        x, y, z = map(_number, settings.pop("workgroup").split(","))
        args = [_name(word) for word in _words(settings.pop("args", ""), ",")]
        made = [self.buffer(*text.split(" ")) for text in _words(buffers, ", ")]
        if settings or label in self.kernels:
            raise ParseError(f"expected a kernel with a new label, got {label}")
        self.kernels[label] = Program(_label_name(label), tuple(made), tuple(args), (x, y, z), ())

    def buffer(self, name: str, dtype: str, access: str, *rest: str) -> Buffer:
        count, zeroed = None, False
        for word in rest:
            if word == "zeroed":
                zeroed = True
            else:
                count = self.sizes[word.removeprefix("count=")]
        if name[-1] != ":":
            raise ParseError(f"expected NAME: DTYPE ACCESS, got {name}")
        return Buffer(_name(name[:-1]), named(dtype), access, count, zeroed)

    def header(self, rest: str) -> None:
        label, _, inputs = rest.partition("(")
        if self.label is not None or label in self.schedules or inputs[-2:] != "):":
            raise ParseError(f"expected {EXPECTED['schedule']} with a new name, got {rest!r}")
        self.label, self.steps = label, []
        self.inputs = _words(inputs[:-2], ", ")

    def end(self, rest: str) -> None:
        if self.label is None or len(self.slots) != self.declared:
            raise ParseError(
                "expected return at the end of a schedule whose slots are declared once"
            )
        graph = Graph(_label_name(self.label), (), ())
        slots = self.at(self.inputs), self.at(_words(rest, ", "))
        self.schedules[self.label] = Schedule(graph, tuple(self.steps), *slots)
        self.label = None

    # steps

    def at(self, words: Iterable[str]) -> tuple[Slot, ...]:
        return tuple(map(self.slots.__getitem__, words))

    def add(self, step: Step) -> None:
        if self.label is None:
            raise ParseError("expected a step inside a schedule")
        self.steps.append(step)

    def launch(self, rest: str) -> None:
        head, _, text = rest.partition(") ")
        label, _, words = head.partition("(")
        slots = self.at(words.split(", ")) if words else ()
        shared = self.shared.get((label, text)) or self.settings(label, text)
        args, groups, writes, inplace, updates, partly, flops, extents = shared
        self.add(Launch(
            self.kernels[label], slots, args, groups, _chosen(slots, writes),
            tuple([(slots[result], slots[source]) for result, source in inplace]),
            _chosen(slots, updates), _chosen(slots, partly), NO_TRAPS, flops, None, None, extents,
        ))  # fmt: skip

    def settings(self, label: str, text: str) -> Shared:
        """What stands behind the slots of a launch."""
        storage = [b.name for b in self.kernels[label].buffers if not b.is_scratch]
        places = {name: i for i, name in enumerate(storage)}
        words = _settings(text)
        args, pairs = words.pop("args", ""), words.pop("inplace", "")
        formulas = [pair.split(":") for pair in _words(args, ",")]
        taken = [pair.split(":") for pair in _words(pairs, ",")]
        across = [self.sizes[n] for n in _words(words.pop("extents", ""), ",")]
        made: Shared = (
            {_name(name): self.sizes[n] for name, n in formulas},
            self.sizes[words.pop("groups")],
            _places(words.pop("writes", ""), places),
            tuple([(places[_name(r)], places[_name(s)]) for r, s in taken]),
            _places(words.pop("updates", ""), places),
            _places(words.pop("partly", ""), places),
            self.sizes[words.pop("flops", "0")],
            (across[0], across[1]) if across else None,
        )
        if words:
            raise ParseError(f"expected {EXPECTED['launch']}, got {text!r}")
        self.shared[label, text] = made
        return made

    def host(self, rest: str) -> None:
        routine, _, text = rest.partition(" ")
        words = _settings(text)
        form, systems = words.pop("form"), self.sizes[words.pop("systems")]
        numbers = tuple([self.sizes[n] for n in _words(words.pop("numbers"), ",")])
        memory = tuple([self.memory(part) for part in _words(words.pop("memory"), ",")])
        split, flops = words.pop("split", ""), self.sizes[words.pop("flops", "0")]
        which, _, most = split.partition(":")
        blocks = (_number(which), _number(most)) if split else None
        if words:
            raise ParseError(f"expected {EXPECTED['host']}, got {text!r}")
        self.add(HostCall(routine, form, numbers, memory, systems, blocks, flops))

    def memory(self, text: str) -> HostMemory | HostRoom:
        slot, *words = text.split(":")
        if slot == "room":
            (nbytes,) = words
            return HostRoom(self.sizes[nbytes])
        access, offset, per_system, per_block = words
        moves = self.sizes[offset], self.sizes[per_system], self.sizes[per_block]
        return HostMemory(self.slots[slot], access, *moves)

    def python(self, rest: str) -> None:
        name, _, slots = rest.removesuffix(")").partition("(")
        given, made = (_words(part.strip(), ", ") for part in slots.split("->"))
        pairs = [word.split(":") for word in given]
        kinds = tuple([self.types[kind] for _, kind in pairs])
        inputs, outputs = self.at(slot for slot, _ in pairs), self.at(made)
        self.add(Callback(_name(name), unknown_function(_name(name)), inputs, outputs, kinds))

    def call(self, rest: str) -> None:
        (body,), slots, _ = self.control(rest)
        self.add(Call(body, *slots, None, arena_slot()))

    def loop(self, rest: str) -> None:
        (body,), slots, words = self.control(rest)
        consts, carries = _number(words["consts"]), _number(words["carries"])
        spares, rows = self.spares(words["spares"]), _words(words["rows"], ",")
        walk = self.sizes[words["length"]], words.get("reverse") == "true"
        whole = tuple([_number(row) for row in rows])
        self.add(Loop(body, *slots, consts, carries, *walk, spares, whole))

    def whilst(self, rest: str) -> None:
        (condition, body), slots, words = self.control(rest)
        counts = _number(words["condition_consts"]), _number(words["body_consts"])
        spares, flag = self.spares(words["spares"]), self.slots[words["flag"]]
        self.add(While(condition, body, *slots, *counts, spares, flag))

    def switch(self, rest: str) -> None:
        branches, slots, words = self.control(rest)
        self.add(Switch(self.slots[words["index"]], tuple(branches), *slots))

    def control(
        self, rest: str
    ) -> tuple[list[Schedule], tuple[tuple[Slot, ...], tuple[Slot, ...]], dict[str, str]]:
        """The sub-schedules, the slots of inputs and outputs, and the settings of a step."""
        head, _, settings = rest.partition(")")
        bodies, _, slots = head.partition("(")
        inputs, outputs = slots.split("->")
        parts = [self.schedules[word[1:]] for word in bodies.split(" ")]
        given = self.at(_words(inputs.strip(), ", ")), self.at(_words(outputs.strip(), ", "))
        return parts, given, _settings(settings[1:]) if settings else {}

    def spares(self, text: str) -> tuple[Slot | None, ...]:
        words = _words(text, ",")
        return tuple([None if word == "none" else self.slots[word] for word in words])


# Not bound to a parser, which would then hold itself, and the weights of a model with it.
_READERS: dict[str, Callable[[_Parser, str], None]] = {
    "dim": _Parser.dim, "kernel": _Parser.kernel, "schedule": _Parser.header,
    "launch": _Parser.launch, "host": _Parser.host, "python": _Parser.python,
    "call": _Parser.call, "loop": _Parser.loop,
    "while": _Parser.whilst, "switch": _Parser.switch, "return": _Parser.end,
}  # fmt: skip


NONE: frozenset[Slot] = frozenset()
NO_TRAPS: dict[int, TrapSite] = {}
KINDS = {"input": 5, "output": 5, "constant": 5, "temp": 4}  # of slots; words of their lines


class _Sizes(dict[str, Size]):
    """Sizes by their text: most lines repeat one."""

    def __init__(self, dims: Mapping[str, Size]) -> None:
        self.dims = dims

    def __missing__(self, text: str) -> Size:
        made = self[text] = parse_size(text, self.dims)
        return made


class _Types(dict[str, ArrayType]):
    """Types by their text."""

    def __init__(self, sizes: _Sizes) -> None:
        self.sizes = sizes

    def __missing__(self, text: str) -> ArrayType:
        dtype, _, shape = text.partition("[")
        if shape[-1:] != "]":
            raise ParseError(f"expected a type such as f32[8,seq], got {text!r}")
        sizes = tuple([self.sizes[n] for n in _words(shape[:-1], ",")])
        made = self[text] = ArrayType(named(dtype), sizes)
        return made


class _NoBytes(dict[str, Literal]):
    """Constants that nobody has given: each an empty one of its own."""

    def __missing__(self, word: str) -> Literal:
        _number(word.removeprefix("#"))
        made = self[word] = Literal(np.empty(0, np.uint8))
        return made


def _words(text: str, separator: str) -> list[str]:
    return text.split(separator) if text else []


def _chosen(slots: Sequence[Slot], marks: Marks) -> frozenset[Slot]:
    return frozenset([slots[i] for i in marks]) if marks else NONE


def _places(text: str, places: Mapping[str, int]) -> Marks:
    return tuple([places[_name(name)] for name in text.split(",")]) if text else ()


def _settings(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in text.split(" "):
        name, value = word.split("=")
        if name in found:
            raise ParseError(f"expected {name} once")
        found[name] = value
    return found


def _number(text: str) -> int:
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > 18:
        raise ParseError(f"expected a number, got {text!r}")
    return int(text)


def _name(word: str) -> str:
    if word[0] != '"':
        return word
    name: Any = json.loads(word)
    if not isinstance(name, str):
        raise ParseError(f"expected a name, got {word!r}")
    return name


def _label_name(label: str) -> str:
    """The name of a kernel or a schedule, without the number that tells it from others."""
    return _name(label.partition("#")[0])
