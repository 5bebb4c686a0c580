"""The schedule language, text: print a schedule; `schedule.parse` reads it back.

Receives a `Schedule`, returns its text, one typed line per slot and per step, schedules that others
run first. This text is what TETRAD_SHOW=schedule prints and what the program cache holds. Kernels
stand in it with what a launch has to know of them, constants by their numbers; both come from
elsewhere. The meaning of trap codes and the user's lines are left out: a new compilation knows
them.

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
from collections.abc import Iterable, Mapping

from tetrad.core.pattern import LazyPattern
from tetrad.core.sizes import Named, Size, dims_of
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Literal
from tetrad.kernel.nodes import Buffer, Program
from tetrad.schedule.nodes import (
    COMMENT,
    Callback,
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
    While,
    innermost_first,
    programs_of,
)

_WORD = LazyPattern(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


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
        return f"{kind.dtype.short_name}[{','.join(map(self.size, kind.shape))}]"

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
        return f"{_word(buffer.name)}: {buffer.dtype.short_name} {buffer.access}{count}{zeroed}"

    def step(self, step: Step) -> str:
        match step:
            case Launch():
                line = self.launch(step)
            case HostCall():
                line = self.host(step)
            case Callback():
                pairs = zip(step.inputs, step.given, strict=True)
                given = ", ".join([f"{self.slots[s]}:{self.type(kind)}" for s, kind in pairs])
                line = f"python {_word(step.name)}({given} -> {self.used(step.outputs)})"
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
        if launch.extents is not None:
            words.append(f"extents={','.join(map(self.size, launch.extents))}")
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
