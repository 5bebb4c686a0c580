"""Kernel language, text: print a program, parse it back, take its fingerprint.

Receives a `Program`, returns its canonical text, one typed line per instruction. Or receives text
and returns the program, or raises a `ParseError` with the line and what was expected. Printing is
generic: operands and required attributes in field order, optional attributes by name if they differ
from the default. Only blocks have a syntax of their own.

    kernel "double"
    workgroup 16 1 1
    args n
    buffer x: f32 read
    buffer y: f32 write count=64
    body:
      %0: index = arg("n")
      for %1 in range(%2, %0, step=16):
        %3: f32 = load(x, %1)
        store(y, %1, %3)
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from tetrad.core.dtypes import DType, index, named
from tetrad.core.errors import DtypeError, ParseError, ShapeError
from tetrad.core.floats import guarded
from tetrad.core.pattern import LazyPattern
from tetrad.core.record import defaults, field, fields, record
from tetrad.core.sizes import Dim, Named, Size, dims_of, parse_size
from tetrad.kernel import nodes as n

MAX_DEPTH = 100  # nested blocks the parser follows; verify allows fewer
ACCESSES = ("read", "write", "readwrite", "workgroup", "private")
_WORD = LazyPattern(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


@record
class Form:
    """How the instructions of one class print: the field that gives the word, and the other fields
    in order."""

    cls: type[n.Instr]
    is_value: bool
    has_op: bool
    kinds: dict[str, str]  # field -> value, buffer, or the name of a plain type
    required: tuple[str, ...]
    optional: dict[str, object]  # field -> default


def _form(cls: type[n.Instr]) -> Form:
    names = [name for name in fields(cls) if name not in ("dtype", "op")]
    # Annotations as strings: evaluating them takes longer than importing the rest of the file.
    hints = {
        name: hint
        for part in reversed(cls.__mro__[:-1])
        for name, hint in part.__annotations__.items()
    }
    kinds = {name: _kind(hints[name]) for name in names}
    optional = {name: default for name, default in defaults(cls).items() if name in kinds}
    required = tuple(name for name in names if name not in optional)
    return Form(cls, issubclass(cls, n.Value), "op" in hints, kinds, required, optional)


def _kind(hint: str) -> str:
    named = getattr(n, hint, None)
    if isinstance(named, type) and issubclass(named, n.Value) and named is not n.Local:
        return "value"
    return KINDS.get(hint, "number")


KINDS = {
    "Local": "local", "Value | None": "value", "Buffer": "buffer", "int": "int", "bool": "bool",
    "str": "str", "tuple[int, ...]": "ints",
}  # fmt: skip


FORMS = {cls: _form(cls) for cls in n.INSTRUCTIONS if cls not in (n.For, n.Repeat, n.If, n.Region)}
WORDS: dict[str, Form] = {cls.__name__.lower(): s for cls, s in FORMS.items() if not s.has_op}
WORDS |= dict.fromkeys(n.BINARY, FORMS[n.Binary])
WORDS |= dict.fromkeys(n.COMPARISONS, FORMS[n.Compare])
WORDS |= dict.fromkeys(n.UNARY, FORMS[n.Unary])
WORDS |= dict.fromkeys(("any", "all"), FORMS[n.Vote])
WORDS |= dict.fromkeys(n.ATOMIC, FORMS[n.Atomic])


# -- printing --------------------------------------------------------------------------------------


@guarded
def to_text(program: n.Program) -> str:
    """The canonical text: equal programs print alike."""
    return f"kernel {json.dumps(program.name)}\n{_without_name(program)}"


@guarded
def fingerprint(program: n.Program) -> str:
    """The hash of what the program does. Kernels that differ only in name share it, and share
    machine code."""
    found = _fingerprints.get(program)
    if found is None:
        found = _fingerprints[program] = hashlib.sha256(_without_name(program).encode()).hexdigest()
    return found


_fingerprints: WeakKeyDictionary[n.Program, str] = WeakKeyDictionary()


def line_of(program: n.Program, instr: n.Instr) -> str:
    """The line of `instr` in the text of the program, for error messages."""
    printer = _KernelPrinter([])
    printer.block(program.body, "")
    return printer.printed.get(instr, type(instr).__name__.lower())


def regions_of(program: n.Program, instr: n.Instr) -> str:
    """The generators of the regions around `instr`, the outermost first; "" if there are none."""
    waiting: list[tuple[n.Block, tuple[str, ...]]] = [(program.body, ())]
    while waiting:
        block, path = waiting.pop()
        for held in block:
            if held is instr:
                return "/".join(path)
            inside = (*path, held.generator) if isinstance(held, n.Region) else path
            waiting += [(body, inside) for body in n.inner_blocks(held)]
    return ""


def _without_name(program: n.Program) -> str:
    lines = [f"workgroup {' '.join(map(str, program.workgroup))}"]
    lines += ["guarded"] if program.guarded else []
    lines += [f"args {', '.join(map(_name, program.args))}"] if program.args else []
    lines += _dims(program.buffers)
    lines += [_buffer(b) for b in program.buffers]
    lines.append("body:")
    _KernelPrinter(lines).block(program.body, "  ")
    return "\n".join(lines) + "\n"


def _name(name: str) -> str:
    return name if _WORD.match(name) else json.dumps(name)


def _dims(buffers: Iterable[n.Buffer]) -> list[str]:
    dims: set[Named] = set().union(*(dims_of(b.count) for b in buffers if b.count is not None))
    return sorted(f"dim {d.name} max={d.max}" for d in dims)


def _buffer(b: n.Buffer) -> str:
    count = "" if b.count is None else f" count={b.count}"
    return f"buffer {_name(b.name)}: {b.dtype} {b.access}{count}{' zeroed' if b.zeroed else ''}"


class _KernelPrinter:
    """Appends lines; numbers values in order of appearance."""

    def __init__(self, lines: list[str]) -> None:
        self.lines, self.numbers, self.printed = lines, dict[n.Instr, str](), dict[n.Instr, str]()

    def block(self, block: n.Block, indent: str) -> None:
        for instr in block:
            if isinstance(instr, n.For | n.Repeat | n.If | n.Region):
                self.nested(instr, indent)
            else:
                self.append(instr, self.line(instr), indent)

    def nested(self, instr: n.For | n.Repeat | n.If | n.Region, indent: str) -> None:
        inner = indent + "  "
        if isinstance(instr, n.For):
            bounds = f"{self.use(instr.start)}, {self.use(instr.stop)}, step={instr.step}"
            self.append(instr, f"for {self.define(instr.counter)} in range({bounds}):", indent)
            self.block(instr.body, inner)
        elif isinstance(instr, n.Repeat):
            self.append(instr, f"repeat while {self.use(instr.local)}:", indent)
            self.block(instr.body, inner)
        elif isinstance(instr, n.Region):
            source = f" from {json.dumps(instr.source)}" if instr.source else ""
            self.append(instr, f"region {json.dumps(instr.generator)}{source}:", indent)
            self.block(instr.body, inner)
        else:
            self.append(instr, f"if {self.use(instr.cond)}:", indent)
            self.block(instr.then, inner)
            if instr.orelse:
                self.lines.append(f"{indent}else:")
                self.block(instr.orelse, inner)

    def append(self, instr: n.Instr, text: str, indent: str) -> None:
        self.lines.append(indent + text)
        self.printed[instr] = text

    def line(self, instr: n.Instr) -> str:
        form = FORMS[type(instr)]
        operands = [self.operand(getattr(instr, name)) for name in form.required]
        for name, default in form.optional.items():
            value = getattr(instr, name)
            if value != default:
                operands.append(f"{name}={self.operand(value)}")
        word = instr.op if form.has_op else form.cls.__name__.lower()  # type: ignore[attr-defined]
        call = f"{word}({', '.join(operands)})"
        return (
            f"{self.define(instr)}: {instr.dtype.short_name} = {call}"
            if isinstance(instr, n.Value)
            else call
        )

    def operand(self, value: object) -> str:
        if isinstance(value, tuple):
            return "[" + ", ".join(map(self.operand, value)) + "]"
        number = self.numbers.get(value) if isinstance(value, n.Instr) else None
        return number or _PRINTERS.get(type(value), _plain)(value)

    def define(self, value: n.Instr) -> str:
        number = self.numbers[value] = f"%{len(self.numbers)}"
        return number

    def use(self, value: n.Instr) -> str:
        return self.numbers.get(value, "%undefined")


def _plain(value: object) -> str:
    """Prints anything else: an undefined operand, or a NumPy number instead of a Python one."""
    if isinstance(value, n.Instr):
        return "%undefined"
    return _PRINTERS[type(item := value.item())](item) if hasattr(value, "item") else repr(value)


_PRINTERS: dict[type, Callable[[Any], str]] = {
    n.Buffer: lambda b: _name(b.name),
    str: json.dumps,
    int: str,
    bool: lambda v: "true" if v else "false",
    float: repr,  # the shortest text that reads back as the same float; nan, inf and -0.0 too
}


# -- parsing ---------------------------------------------------------------------------------------


@record
class _KernelLine:
    number: int
    indent: int
    text: str

    def expected(self, what: str) -> ParseError:
        return ParseError.in_line(self.number, self.text, what)


@record(frozen=False)
class _Header:
    name: str = ""
    workgroup: tuple[int, int, int] | None = None
    args: tuple[str, ...] = ()
    guarded: bool = False
    dims: dict[str, Size] = field(default_factory=dict)
    buffers: dict[str, n.Buffer] = field(default_factory=dict)


_STRING = r'"(?:[^"\\]|\\.)*"'
_NAME = rf"[A-Za-z_][A-Za-z0-9_.]*|{_STRING}"
_KERNEL = LazyPattern(rf"kernel ({_STRING})\Z")
_WORKGROUP = LazyPattern(r"workgroup (\d{1,9}) (\d{1,9}) (\d{1,9})\Z")
_ARGS = LazyPattern(rf"args ((?:{_NAME})(?:, (?:{_NAME}))*)\Z")
_DIM = LazyPattern(r"dim (\w+) max=(\d{1,18})\Z")
_BUFFER = LazyPattern(rf"buffer ({_NAME}): (\w+) (\w+)(?: count=(\S+))?( zeroed)?\Z")
_FOR = LazyPattern(r"for (%\d+) in range\((%\d+), (%\d+), step=(-?\d{1,18})\):\Z")
_REPEAT = LazyPattern(r"repeat while (%\d+):\Z")
_IF = LazyPattern(r"if (%\d+):\Z")
_REGION = LazyPattern(rf"region ({_STRING})(?: from ({_STRING}))?:\Z")
_CALL = LazyPattern(r"(?:(%\d+): (\w+) = )?(\w+)\((.*)\)\Z")
_TOKEN = LazyPattern(
    rf"(?:(\w+)=)?(%\d+|{_STRING}|\[(?:{_STRING}|[^\s,()\"\[\]=]|, )*\]|[^\s,()\"%\[\]=]+)(?:, |\Z)"
)


@guarded
def parse(text: str) -> n.Program:
    """The program that `text` describes; the inverse of `to_text`."""
    lines = [
        _line(i, line)
        for i, line in enumerate(text.split("\n"), 1)
        if line.strip() and line.lstrip()[0] != "#"
    ]
    header = _Header()
    for position, line in enumerate(lines):
        if line.text == "body:" and line.indent == 0:
            return _parse_body(header, lines, position)
        _parse_header_line(header, line)
    raise ParseError(f"line {len(text.split(chr(10)))}: expected body:, got the end of the text")


def _line(number: int, text: str) -> _KernelLine:
    bare = text.strip(" ")
    return _KernelLine(number, len(text.rstrip(" ")) - len(bare), bare)


def _parse_body(header: _Header, lines: list[_KernelLine], position: int) -> n.Program:
    if header.workgroup is None:
        raise lines[position].expected("a workgroup line before the body")
    parser = _KernelParser(header.buffers, lines, position + 1)
    body = parser.block(2)
    if parser.position < len(lines):
        raise lines[parser.position].expected("an indentation of 2 inside body:")
    buffers = tuple(header.buffers.values())
    return n.Program(header.name, buffers, header.args, header.workgroup, body, header.guarded)


def _parse_header_line(header: _Header, line: _KernelLine) -> None:
    if match := _KERNEL.match(line.text):
        header.name = _string(line, match[1])
    elif match := _WORKGROUP.match(line.text):
        header.workgroup = (int(match[1]), int(match[2]), int(match[3]))
    elif line.text == "guarded":
        header.guarded = True
    elif match := _ARGS.match(line.text):
        header.args = tuple(_unquoted(line, m[0]) for m in re.finditer(_NAME, match[1]))
    elif match := _DIM.match(line.text):
        _parse_dim(header, line, match)
    elif match := _BUFFER.match(line.text):
        _parse_buffer(header, line, match)
    else:
        raise line.expected("kernel, workgroup, guarded, args, dim, buffer or body:")


def _parse_dim(header: _Header, line: _KernelLine, match: re.Match[str]) -> None:
    if match[1] in header.dims:
        raise line.expected(f"a new dim, {match[1]} is taken,")
    header.dims[match[1]] = _checked(line, lambda: Dim(match[1], max=int(match[2])))


def _parse_buffer(header: _Header, line: _KernelLine, match: re.Match[str]) -> None:
    name, access = _unquoted(line, match[1]), match[3]
    if access not in ACCESSES:
        raise line.expected(f"an access out of {', '.join(ACCESSES)}")
    if name in header.buffers:
        raise line.expected(f"a new buffer name, {name} is taken")
    count = None if match[4] is None else _parse_size(line, match[4], header.dims)
    header.buffers[name] = n.Buffer(
        name, _dtype(line, match[2]), access, count, match[5] is not None
    )


def _checked(line: _KernelLine, make: Callable[[], Any]) -> Any:
    """make(); its error becomes a ParseError of this line."""
    try:
        return make()
    except (ShapeError, DtypeError, ValueError) as problem:
        raise ParseError(f"line {line.number}: {str(problem).splitlines()[0]}") from None


def _dtype(line: _KernelLine, name: str) -> DType:
    return _checked(line, lambda: named(name))  # type: ignore[no-any-return]


def _string(line: _KernelLine, quoted: str) -> str:
    return _checked(line, lambda: json.loads(quoted))  # type: ignore[no-any-return]


def _unquoted(line: _KernelLine, name: str) -> str:
    return _string(line, name) if name.startswith('"') else name


def _parse_size(line: _KernelLine, text: str, dims: dict[str, Size]) -> Size:
    return _checked(line, lambda: parse_size(text, dims))  # type: ignore[no-any-return]


class _KernelParser:
    """Walks the lines of the body; `values` holds the values defined so far (verify checks
    scopes)."""

    def __init__(
        self, buffers: dict[str, n.Buffer], lines: list[_KernelLine], position: int
    ) -> None:
        self.buffers, self.lines, self.position = buffers, lines, position
        self.values: dict[str, n.Value] = {}

    def block(self, indent: int) -> n.Block:
        instrs = []
        while self.position < len(self.lines) and self.lines[self.position].indent >= indent:
            line = self.lines[self.position]
            if line.indent != indent:
                raise line.expected(f"an indentation of {indent}")
            self.position += 1
            instrs.append(self.instr(line))
        return tuple(instrs)

    def instr(self, line: _KernelLine) -> n.Instr:
        if line.text.endswith(":"):
            return self.nested(line)
        match = _CALL.match(line.text)
        if match is None or match[3] not in WORDS:
            raise line.expected("an instruction such as %3: f32 = fma(%1, %2, %0)")
        return self.call(line, WORDS[match[3]], match)

    def nested(self, line: _KernelLine) -> n.Instr:
        if line.indent > 2 * MAX_DEPTH:
            raise line.expected(f"at most {MAX_DEPTH} nested blocks")
        if match := _FOR.match(line.text):
            start, stop = self.use(line, match[2]), self.use(line, match[3])
            counter = n.Counter(index)
            self.define(line, match[1], counter)
            return n.For(counter, start, stop, int(match[4]), self.block(line.indent + 2))
        if match := _REGION.match(line.text):
            source = "" if match[2] is None else _string(line, match[2])
            return n.Region(_string(line, match[1]), self.block(line.indent + 2), source)
        if match := _REPEAT.match(line.text):
            local = self.operand(line, "local", match[1])
            return n.Repeat(local, self.block(line.indent + 2))  # type: ignore[arg-type]
        if match := _IF.match(line.text):
            cond = self.use(line, match[1])
            return n.If(cond, self.block(line.indent + 2), self.orelse(line))
        raise line.expected(
            "for %1 in range(%2, %3, step=1):, repeat while %1:, if %1:, else: after an if, or "
            'region "name":'
        )

    def orelse(self, opening: _KernelLine) -> n.Block:
        if self.position < len(self.lines):
            line = self.lines[self.position]
            if line.text == "else:" and line.indent == opening.indent:
                self.position += 1
                return self.block(line.indent + 2)
        return ()

    def call(self, line: _KernelLine, form: Form, match: re.Match[str]) -> n.Instr:
        number, dtype, word, operands = match.groups()
        if form.is_value != (number is not None):
            raise line.expected(
                f"%0: dtype = {word}(...)" if form.is_value else f"{word}(...) without a result"
            )
        attributes = self.operands(line, form, operands)
        if form.has_op:
            attributes["op"] = word
        if number is None:
            return form.cls(**attributes)
        result = form.cls(dtype=_dtype(line, dtype), **attributes)  # type: ignore[call-arg]
        self.define(line, number, result)  # type: ignore[arg-type]
        return result

    def operands(self, line: _KernelLine, form: Form, text: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        position = 0
        while position < len(text):
            token = _TOKEN.match(text, position)
            if token is None:
                raise line.expected("operands separated by ', '")
            name = token[1] or next((f for f in form.required if f not in found), None)
            if name is None or name in found or (token[1] is not None) != (name in form.optional):
                raise line.expected(_signature(form))
            found[name] = self.operand(line, form.kinds[name], token[2])
            position = token.end()
        if text.endswith(", ") or len(found.keys() & set(form.required)) < len(form.required):
            raise line.expected(_signature(form))
        return found

    def operand(self, line: _KernelLine, kind: str, token: str) -> object:
        if kind in ("value", "local"):
            value = self.use(line, token)
            if kind == "local" and not isinstance(value, n.Local):
                raise line.expected(f"a local, {token} is not one,")
            return value
        if kind == "buffer":
            buffer = self.buffers.get(_unquoted(line, token))
            if buffer is None:
                raise line.expected(f"a declared buffer, {token} is none,")
            return buffer
        return _checked(line, lambda: _ATTRIBUTES[kind](token))

    def define(self, line: _KernelLine, number: str, value: n.Value) -> None:
        if number in self.values:
            raise line.expected(f"a new number, {number} is taken,")
        self.values[number] = value

    def use(self, line: _KernelLine, number: str) -> n.Value:
        if number not in self.values:
            raise line.expected(f"a value defined before, {number} is none,")
        return self.values[number]


def _signature(form: Form) -> str:
    word = "op" if form.has_op else form.cls.__name__.lower()
    operands = [f"{name}: {form.kinds[name]}" for name in form.required]
    operands += [f"{name}={default!r}" for name, default in form.optional.items()]
    return f"{word}({', '.join(operands)})"


def _parse_number(token: str) -> bool | int | float:
    if token in ("true", "false"):
        return token == "true"
    return int(token) if re.fullmatch(r"-?\d+", token) else float(token)


def _parse_bool(token: str) -> bool:
    if token not in ("true", "false"):
        raise ValueError(f"expected true or false, got {token}")
    return token == "true"


def _parse_string(token: str) -> str:
    value = json.loads(token)
    if not isinstance(value, str):
        raise ValueError(f"expected a string, got {token}")
    return value


def _parse_ints(token: str) -> tuple[int, ...]:
    if not token.startswith("["):
        raise ValueError(f"expected integers in brackets, got {token}")
    return tuple(int(item) for item in token[1:-1].split(", ")) if token != "[]" else ()


_ATTRIBUTES: dict[str, Callable[[str], object]] = {
    "int": int,
    "bool": _parse_bool,
    "str": _parse_string,
    "ints": _parse_ints,
    "number": _parse_number,
}
