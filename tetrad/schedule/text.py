"""The schedule language, text: print a schedule, parse it back.

Receives a `Schedule`, returns its text, one typed line per slot and per step, schedules that others
run first; or receives text and returns the schedule, or a `ParseError` with the line. This text is
what TETRAD_SHOW=schedule prints and what the program cache holds. Kernels stand in it with what a
launch has to know of them, constants by their numbers; both come from elsewhere. The meaning of
trap codes and the user's lines are left out: a new compilation knows them.

    dim seq max=4096
    kernel add(x: f32 read, y: f32 write) workgroup=16,1,1 args=n
    schedule f(%0):
      %0: f32[seq,4] input 0 x
      %1: f32[4] constant #0 c
      %2: f32[seq,4] output 0 y
      launch add(%0, %2) groups=ceil(seq/4) args=n:4*seq writes=y inplace=y:x flops=4*seq
      host spotrf form=Uimim numbers=4,4 memory=%2:readwrite:0:16:0,room:64 systems=ceil(seq/4)
      return %2
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tetrad.core.dtypes import named
from tetrad.core.errors import ParseError, TetradError
from tetrad.core.pattern import LazyPattern
from tetrad.core.sizes import Dim, Named, Size, dims_of, parse_size
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Graph, Literal
from tetrad.kernel.nodes import Buffer, Program
from tetrad.schedule.nodes import (
    Call,
    Control,
    HostCall,
    HostMemory,
    HostRoom,
    Launch,
    Leaf,
    Loop,
    Schedule,
    Slot,
    Step,
    Switch,
    TrapSite,
    While,
    arena_slot,
    innermost_first,
    programs_of,
)

_WORD = LazyPattern(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
COMMENT = "   # "  # before the user's line of a step


# -- printing --------------------------------------------------------------------------------------


def to_text(schedule: Schedule, *, sources: bool = True) -> str:
    """The complete schedule with all it runs. Constants print as `#0`, `#1`, ...; `literals` says
    which is which, and `kernels` which kernel has which label."""
    return _Printer(sources).program(schedule)


def literals(schedule: Schedule) -> dict[str, Literal]:
    """The constants by the names they have in the text, ready to hand to `parse`."""
    printer = _Printer(False)
    printer.program(schedule)
    return {printer.literals[key]: literal for key, literal in printer.held.items()}


def kernels(schedule: Schedule) -> dict[str, Program]:
    """The kernels by the labels they have in the text."""
    labels = _Labels()
    return {labels.of(program, program.name): program for program in programs_of(schedule)}


class _Labels:
    """Names, numbered when another object has taken them."""

    def __init__(self) -> None:
        self.given: dict[object, str] = {}
        self.taken: dict[str, int] = {}

    def of(self, what: object, name: str) -> str:
        if what not in self.given:
            count = self.taken.get(name, 0)
            self.taken[name] = count + 1
            self.given[what] = f"{_word(name)}#{count}" if count else _word(name)
        return self.given[what]


class _Printer:
    """Numbers slots and constants, names kernels and schedules in order of appearance."""

    def __init__(self, sources: bool) -> None:
        self.sources = sources
        self.kernels, self.schedules = _Labels(), _Labels()
        self.slots: dict[Slot, str] = {}
        # By identity: equal bytes of two types are two constants, so that printing what was parsed
        # without them gives the same text.
        self.literals: dict[int, str] = {}
        self.held: dict[int, Literal] = {}
        self.dims: set[Named] = set()

    def program(self, schedule: Schedule) -> str:
        found = [
            self.kernel(p, self.kernels.of(p, p.name)) for p in dict.fromkeys(programs_of(schedule))
        ]
        parts = ["\n".join(self.schedule(part)) for part in innermost_first(schedule)]
        dims = sorted(f"dim {d.name} max={d.max}" for d in self.dims)
        return "\n".join([*dims, *found, "\n\n".join(parts)]) + "\n"

    def schedule(self, schedule: Schedule) -> list[str]:
        lines = [self.new_slot(s) for s in slots_of(schedule) if s not in self.slots]
        steps = [self.step(step) for step in schedule.steps]
        label = self.schedules.of(schedule, schedule.graph.name)
        head = f"schedule {label}({self.used(schedule.inputs)}):"
        return [head, *lines, *steps, f"  return {self.used(schedule.outputs)}".rstrip()]

    def new_slot(self, slot: Slot) -> str:
        number = self.slots[slot] = f"%{len(self.slots)}"
        place = {"temp": "", "constant": f" {self.literal(slot)}"}.get(
            slot.kind, f" {slot.position}"
        )
        return f"  {number}: {self.type(slot.type)} {slot.kind}{place} {_word(slot.name)}"

    def literal(self, slot: Slot) -> str:
        if slot.literal is None:
            return "#none"  # no schedule of ours; shown so that it can be looked at
        origin = slot.literal.origin
        self.held.setdefault(id(origin), origin)
        return self.literals.setdefault(id(origin), f"#{len(self.literals)}")

    def used(self, slots: Iterable[Slot]) -> str:
        return ", ".join([self.slots[s] for s in slots])

    def size(self, size: Size) -> str:
        self.dims |= dims_of(size)
        return str(size)

    def type(self, kind: ArrayType) -> str:
        return f"{kind.dtype.name}[{','.join(map(self.size, kind.shape))}]"

    def kernel(self, program: Program, label: str) -> str:
        buffers = ", ".join(map(self.buffer, program.buffers))
        args = f" args={','.join(map(_word, program.args))}" if program.args else ""
        workgroup = ",".join(map(str, program.workgroup))
        return f"kernel {label}({buffers}) workgroup={workgroup}{args}"

    def buffer(self, buffer: Buffer) -> str:
        """Storage has the size of its slot; scratch has one of its own."""
        size = buffer.count if buffer.is_scratch else None
        count = "" if size is None else f" count={self.size(size)}"
        zeroed = " zeroed" if buffer.zeroed else ""
        return f"{_word(buffer.name)}: {buffer.dtype.name} {buffer.access}{count}{zeroed}"

    def step(self, step: Step) -> str:
        match step:
            case Launch():
                line = self.launch(step)
            case HostCall():
                line = self.host(step)
            case _:
                line = self.control(step)
        source = f"{COMMENT}{step.source}" if self.sources and step.source is not None else ""
        return f"  {line}{source}"

    def launch(self, launch: Launch) -> str:
        words = [f"groups={self.size(launch.groups)}"]
        if launch.args:
            formulas = [f"{_word(name)}:{self.size(n)}" for name, n in launch.args.items()]
            words.append(f"args={','.join(formulas)}")
        names: dict[Slot, str] = {}
        for buffer, slot in launch.buffers():
            names.setdefault(slot, _word(buffer.name))
        for word in ("writes", "updates", "partly"):
            marked: frozenset[Slot] = getattr(launch, word)
            words += [f"{word}={','.join(_named_in(names, marked))}"] if marked else []
        pairs = [":".join((names[result], names[source])) for result, source in launch.inplace]
        words += [f"inplace={','.join(pairs)}"] if pairs else []
        words += [f"flops={self.size(launch.flops)}"] if launch.flops != 0 else []
        label = self.kernels.of(launch.program, launch.program.name)
        return f"launch {label}({self.used(launch.slots)}) {' '.join(words)}"

    def host(self, call: HostCall) -> str:
        words = [f"form={call.form}", f"numbers={','.join(map(self.size, call.numbers))}"]
        words += [f"memory={','.join(map(self.memory, call.memory))}"]
        words += [f"systems={self.size(call.systems)}"]
        words += [f"split={call.split[0]}:{call.split[1]}"] if call.split is not None else []
        words += [f"flops={self.size(call.flops)}"] if call.flops != 0 else []
        return f"host {call.routine} {' '.join(words)}"

    def memory(self, part: HostMemory | HostRoom) -> str:
        """A slot, how it is used, where the memory starts, how far it moves for each system and
        each block."""
        if isinstance(part, HostRoom):
            return f"room:{self.size(part.nbytes)}"
        moves = map(self.size, (part.offset, part.per_system, part.per_block))
        return ":".join((self.slots[part.slot], part.access, *moves))

    def control(self, step: Control) -> str:
        bodies = " ".join(f"@{self.schedules.of(b, b.graph.name)}" for b in step.bodies)
        given = f"({self.used(step.inputs)} -> {self.used(step.outputs)})"
        rest = "".join(f" {name}={value}" for name, value in self.settings(step).items())
        return f"{type(step).__name__.lower()} {bodies}{given}{rest}"

    def settings(self, step: Control) -> dict[str, str]:
        """What a step with sub-schedules has beyond them and its slots; its arena is its own."""
        found: dict[str, str] = {}
        match step:
            case Loop():
                found |= {"consts": str(step.consts), "carries": str(step.carries)}
                found |= {"length": self.size(step.length), "spares": self.spares(step.spares)}
                found |= {"rows": ",".join(map(str, step.rows))}
                found |= {"reverse": "true"} if step.reverse else {}
            case While():
                found |= {"condition_consts": str(step.condition_consts)}
                found |= {"body_consts": str(step.body_consts)}
                found |= {"spares": self.spares(step.spares), "flag": self.slots[step.flag]}
            case Switch():
                found |= {"index": self.slots[step.index]}
        return found

    def spares(self, spares: Iterable[Slot | None]) -> str:
        return ",".join("none" if s is None else self.slots[s] for s in spares)


def slots_of(schedule: Schedule) -> list[Slot]:
    """Every slot of a schedule, in order of appearance."""
    found = list(schedule.inputs)
    for step in schedule.steps:
        if isinstance(step, Leaf):
            found += step.slots
            continue
        found += [*step.inputs, *step.outputs]
        if isinstance(step, Loop | While):
            found += [s for s in step.spares if s is not None]
        found += [step.flag] if isinstance(step, While) else []
        found += [step.index] if isinstance(step, Switch) else []
    return list(dict.fromkeys([*found, *schedule.outputs]))


def _named_in(names: Mapping[Slot, str], marked: frozenset[Slot]) -> list[str]:
    return [name for slot, name in names.items() if slot in marked]


def _word(name: str) -> str:
    """The name, or a string in quotes without characters that separate words."""
    if _WORD.match(name):
        return name
    quoted = json.dumps(name)
    for sign in " (),:=#@%":
        quoted = quoted.replace(sign, f"\\u{ord(sign):04x}")
    return quoted


# -- parsing ---------------------------------------------------------------------------------------

# Lines are taken apart by splitting: a language model's schedule is read at every start, and
# expressions would have to be compiled first.

EXPECTED = {
    "dim": "dim NAME max=N",
    "kernel": "kernel NAME(BUFFER: DTYPE ACCESS, ...) workgroup=X,Y,Z args=NAME,...",
    "schedule": "schedule NAME(%0, %1):",
    "launch": "launch KERNEL(%0, %1) groups=SIZE args=NAME:SIZE,... writes=BUFFER,...",
    "host": "host ROUTINE form=LETTERS numbers=SIZE,... memory=%0:ACCESS:SIZE:SIZE:SIZE,... ...",
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
    shown = line.strip() if len(line) <= 80 else line.strip()[:77] + "..."
    form = EXPECTED.get(line.strip().partition(" ")[0], "%0: TYPE temp NAME, or a step")
    return ParseError(f"line {number}: expected {form}, got {shown!r}")


Marks = tuple[int, ...]  # positions among the slots of a launch
# what launches of one kernel mostly share: arguments, groups, writes, in place, updates, partly,
# operations
Shared = tuple[dict[str, Size], Size, Marks, tuple[tuple[int, int], ...], Marks, Marks, Size]


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
        args, groups, writes, inplace, updates, partly, flops = shared
        self.add(Launch(
            self.kernels[label], slots, args, groups, _chosen(slots, writes),
            tuple([(slots[result], slots[source]) for result, source in inplace]),
            _chosen(slots, updates), _chosen(slots, partly), NO_TRAPS, flops, None, None,
        ))  # fmt: skip

    def settings(self, label: str, text: str) -> Shared:
        """What stands behind the slots of a launch."""
        storage = [b.name for b in self.kernels[label].buffers if not b.is_scratch]
        places = {name: i for i, name in enumerate(storage)}
        words = _settings(text)
        args, pairs = words.pop("args", ""), words.pop("inplace", "")
        formulas = [pair.split(":") for pair in _words(args, ",")]
        taken = [pair.split(":") for pair in _words(pairs, ",")]
        made = (
            {_name(name): self.sizes[n] for name, n in formulas},
            self.sizes[words.pop("groups")],
            _places(words.pop("writes", ""), places),
            tuple([(places[_name(r)], places[_name(s)]) for r, s in taken]),
            _places(words.pop("updates", ""), places),
            _places(words.pop("partly", ""), places),
            self.sizes[words.pop("flops", "0")],
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
    "launch": _Parser.launch, "host": _Parser.host, "call": _Parser.call, "loop": _Parser.loop,
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
