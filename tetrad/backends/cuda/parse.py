"""CUDA back end, reading PTX: the text of a module with one entry in, its parts out.

It reads what this back end writes, one statement a line, and no more of the language. `check` asks
whether the parts fit each other.
"""

from __future__ import annotations

import re

from tetrad.core.errors import ParseError
from tetrad.core.record import field, record

REGISTERS = re.compile(r"\.reg \.(\w+)\s+(%\w+)(?:<(\d+)>)?;")
ARRAY = re.compile(
    r"(?:\.extern |\.visible )?\.(shared|local|const|global) \.align (\d+) \.b8\s+"
    r"([\w$]+)\[(\d*)\](?: = \{([\d, ]*)\})?;"
)
BOUNDS = re.compile(r"\.maxntid (\d+), (\d+), (\d+)")
PARAM = re.compile(r"\.param \.(\w+)(?: \.ptr(?: \.\w+)? \.align \d+)? ([\w$]+),?")
INSTRUCTION = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z][\w.]*)\s*(.*);")
SCOPED = re.compile(r"\{ \.reg \.b(?:16|32) tmp; (.*) \}")  # how older versions drop half a value
OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")


@record
class PtxArray:
    """Memory that the module declares; `size` 0: as much as the launch brings."""

    space: str
    size: int
    content: bytes = b""


@record
class PtxInstruction:
    """`guard` is the predicate register, with a ! before it where it must be false; operands are
    words, `{a, b}` and `[address]` included."""

    guard: str
    name: tuple[str, ...]  # cut at the points
    operands: tuple[str, ...]
    line: int


@record(frozen=False)
class PtxModule:
    """A module with one entry. `labels` are positions in `body`; `registers` maps a name, or a stem
    such as %r, to its type and how many there are."""

    version: str = ""
    target: str = ""
    address_size: str = ""
    entry: str = ""
    bounds: tuple[int, ...] = ()
    params: dict[str, str] = field(default_factory=dict)
    registers: dict[str, tuple[str, int]] = field(default_factory=dict)
    arrays: dict[str, PtxArray] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    body: list[PtxInstruction] = field(default_factory=list)

    def type_of(self, register: str) -> str | None:
        """The declared type of a register."""
        if register in self.registers and self.registers[register][1] == 0:
            return self.registers[register][0]
        stem = register.rstrip("0123456789")
        kind, count = self.registers.get(stem, ("", 0))
        return kind if register != stem and int(register[len(stem) :]) < count else None


def parse_ptx(text: str) -> PtxModule:
    """The parts of a module; a line that is not understood is an error that quotes it."""
    module = PtxModule()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("//")[0].strip()
        if words and not any(read(module, words, number) for read in READERS):
            raise ParseError(f"ptx line {number} is not understood: {words}")
    return module


def once(found: object, what: str, number: int) -> None:
    if found:
        raise ParseError(f"ptx line {number}: a second {what}")


def read_header(module: PtxModule, words: str, number: int) -> bool:
    key, _, value = words.partition(" ")
    if key not in (".version", ".target", ".address_size"):
        return False
    once(getattr(module, key[1:]), key, number)
    setattr(module, key[1:], value)
    return True


def read_entry(module: PtxModule, words: str, number: int) -> bool:
    if words.startswith(".visible .entry "):
        once(module.entry, "entry", number)
        module.entry = words.removeprefix(".visible .entry ").rstrip("()")
        return True
    if found := BOUNDS.fullmatch(words):
        once(module.bounds or module.registers, ".maxntid, or one inside the body", number)
        module.bounds = tuple(int(size) for size in found.groups())
        return True
    return words in ("{", "}", ")", "(")


def read_declaration(module: PtxModule, words: str, number: int) -> bool:
    if found := PARAM.fullmatch(words):
        once(found[2] in module.params, f"parameter {found[2]}", number)
        module.params[found[2]] = found[1]
    elif found := REGISTERS.fullmatch(words):
        once(found[2] in module.registers, f"register {found[2]}", number)
        module.registers[found[2]] = (found[1], int(found[3] or 0))
    elif found := ARRAY.fullmatch(words):
        once(found[3] in module.arrays, f"array {found[3]}", number)
        given = bytes(int(b) for b in (found[5] or "").split(",") if b.strip())
        size = int(found[4] or 0)
        module.arrays[found[3]] = PtxArray(found[1], size, given + bytes(size - len(given)))
    else:
        return False
    return True


def read_label(module: PtxModule, words: str, number: int) -> bool:
    if not (words.startswith("$") and words.endswith(":")):
        return False
    once(words[:-1] in module.labels, f"label {words[:-1]}", number)
    module.labels[words[:-1]] = len(module.body)
    return True


def read_instruction(module: PtxModule, words: str, number: int) -> bool:
    if scoped := SCOPED.fullmatch(words):
        words = scoped[1].replace("tmp", "_")
    found = INSTRUCTION.fullmatch(words)
    if found is None:
        return False
    operands = tuple(OPERAND.findall(found[4].replace("|", ", ")))
    guard = (found[1] or "") + (found[2] or "")
    module.body.append(PtxInstruction(guard, tuple(found[3].split(".")), operands, number))
    return True


READERS = (read_header, read_entry, read_declaration, read_label, read_instruction)
