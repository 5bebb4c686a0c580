"""Kernel language, bytes: a program as bytes, for files and other machines, and back.

Receives a program, returns bytes: the same for equal programs. Or receives bytes from anywhere and
returns the verified program, or raises a `FileFormatError` with the offset. Reading is bounded by
the length of what is read, and every program has one form: what was read writes the same bytes.

    magic "TKRN", u16 version, u32 length of the payload, 16 bytes of its SHA-256, the payload

The payload is the name, workgroup, arguments, Dims, buffers, body and whether it is guarded, in
that order. A number is seven bits in a byte, the lowest first, the highest bit set where more
follow; a signed one is folded (0, -1, 1, -2, ...). A string is its length and UTF-8. Tags are in
`kernel.tags`. Values are numbered in the order of their definitions.
"""

from __future__ import annotations

import hashlib
import math
import struct
from itertools import pairwise
from typing import Any, TypeVar

from tetrad.core.dtypes import DType, index, named
from tetrad.core.errors import (
    DtypeError,
    FileFormatError,
    ParseError,
    ShapeError,
    TetradError,
    TraceError,
    an,
)
from tetrad.core.floats import guarded
from tetrad.core.sizes import Dim, Named, Size, dims_of, parse_size
from tetrad.kernel import nodes as n
from tetrad.kernel import tags
from tetrad.kernel.text import FORMS
from tetrad.kernel.verify import MAX_NESTING, verify

MAGIC, VERSION = b"TKRN", 1
HEADER = struct.Struct("<4sHI16s")
# Of what is read; the writer refuses what the reader would.
MAX_PAYLOAD, MAX_NAME, MAX_DECLARED, MAX_SIZE_TEXT = 1 << 24, 1 << 12, 1 << 10, 1 << 8
MAX_BITS = 64
NAN = struct.pack("<d", math.nan)
FALSE, TRUE, WHOLE, FLOAT = range(4)  # tags of literals
NO_COUNT, FIXED, SYMBOLIC = range(3)  # tags of element counts

T = TypeVar("T")


@guarded
def to_bytes(program: n.Program) -> bytes:
    """The program as bytes; one that is not valid is refused, as nobody could read it.

    >>> from tetrad.kernel.build import KernelBuilder
    >>> data = to_bytes(KernelBuilder("empty").finish())
    >>> data[:6], from_bytes(data).name
    (b'TKRN\\x01\\x00', 'empty')
    """
    if not isinstance(program, n.Program):
        hint = "td.kernel.build makes one, td.kernel.parse reads one"
        came = an(type(program).__name__)
        raise TraceError(f"to_bytes: expected a program, got {came}", hint=hint)
    verify(program)
    writer = ByteWriter(program)
    writer.program(program)
    payload = bytes(writer.out)
    if len(payload) > MAX_PAYLOAD:
        raise refused(f"{program.name} takes {len(payload)} bytes, {MAX_PAYLOAD} are allowed", 0)
    return HEADER.pack(MAGIC, VERSION, len(payload), checksum(payload)) + payload


@guarded
def from_bytes(data: bytes) -> n.Program:
    """The verified program that `to_bytes` has written."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise refused(f"expected bytes, got {an(type(data).__name__)}", 0)
    held = bytes(data[: HEADER.size + MAX_PAYLOAD + 1])
    reader = ByteReader(held[HEADER.size :], HEADER.size)
    check_header(held, reader.data)
    program = reader.program()
    if reader.at < len(reader.data):
        raise refused("expected the end of the program", HEADER.size + reader.at)
    try:
        verify(program)
    except TetradError as error:
        raise refused(f"not a valid program: {error.message}", HEADER.size) from error
    return program


def check_header(held: bytes, payload: bytes) -> None:
    if held[:4] != MAGIC:
        raise refused(f"expected {MAGIC!r}, got {held[:4]!r}", 0)
    if len(held) < 6:
        raise refused("the version is missing", 4)
    (version,) = struct.unpack_from("<H", held, 4)
    if version != VERSION:
        hint = "write the program again with this version of tetrad"
        raise refused(f"version {version} of the form, this is version {VERSION}", 4, hint)
    if len(held) < HEADER.size:
        raise refused(f"a header of {HEADER.size} bytes, got {len(held)} bytes", len(held))
    _, _, length, digest = HEADER.unpack_from(held)
    if length != len(payload) or length > MAX_PAYLOAD:
        most = f" of at most {MAX_PAYLOAD}" if length > MAX_PAYLOAD else ""
        raise refused(f"expected {length}{most} bytes after the header, got {len(payload)}", 6)
    if digest != checksum(payload):
        raise refused("the checksum does not fit: the bytes were changed", 10)


def checksum(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest()[:16]


def refused(message: str, offset: int, hint: str = "") -> FileFormatError:
    hint = hint or "read the bytes that td.kernel.to_bytes wrote, unchanged and whole"
    return FileFormatError(message, file="program", offset=offset, hint=hint)


# -- writing ---------------------------------------------------------------------------------------


class ByteWriter:
    """Appends to `out`; `numbers` holds the values defined so far."""

    def __init__(self, program: n.Program) -> None:
        self.out = bytearray()
        self.args = {name: i for i, name in enumerate(program.args)}
        self.buffers = {buffer: i for i, buffer in enumerate(program.buffers)}
        self.numbers: dict[n.Instr, int] = {}

    def program(self, program: n.Program) -> None:
        self.string(program.name)
        for size in program.workgroup:
            self.number(size)
        self.count(program.args, MAX_DECLARED)
        for name in program.args:
            self.string(name)
        dims = dims_used(program.buffers)
        self.count(dims, MAX_DECLARED)
        for dim in dims:
            self.string(dim.name)
            self.number(dim.max)
        self.count(program.buffers, MAX_DECLARED)
        for buffer in program.buffers:
            self.buffer(buffer)
        self.block(program.body)
        self.out.append(program.guarded)

    def buffer(self, buffer: n.Buffer) -> None:
        self.string(buffer.name)
        self.dtype(buffer.dtype)
        self.out += bytes((tags.ACCESSES[buffer.access], buffer.zeroed))
        if buffer.count is None:
            self.out.append(NO_COUNT)
        elif isinstance(buffer.count, int):
            self.out.append(FIXED)
            self.number(buffer.count)
        else:
            self.out.append(SYMBOLIC)
            self.string(str(buffer.count), MAX_SIZE_TEXT)

    def block(self, block: n.Block) -> None:
        self.number(len(block))
        for instr in block:
            self.out.append(tags.NODES[type(instr)])
            if isinstance(instr, n.For | n.Repeat | n.If | n.Region):
                self.nested(instr)
            else:
                self.instr(instr)

    def nested(self, instr: n.For | n.Repeat | n.If | n.Region) -> None:
        if isinstance(instr, n.For):
            self.use(instr.start)
            self.use(instr.stop)
            self.signed(instr.step)
            self.define(instr.counter)
            self.block(instr.body)
        elif isinstance(instr, n.Repeat):
            self.use(instr.local)
            self.block(instr.body)
        elif isinstance(instr, n.If):
            self.use(instr.cond)
            self.block(instr.then)
            self.block(instr.orelse)
        else:
            self.string(instr.generator)
            self.string(instr.source)
            self.block(instr.body)

    def instr(self, instr: n.Instr) -> None:
        form = FORMS[type(instr)]
        if isinstance(instr, n.Value):
            self.dtype(instr.dtype)
        if form.has_op:
            self.out.append(tags.OPERATORS[form.cls][instr.op])  # type: ignore[attr-defined]
        for name, kind in form.kinds.items():
            self.field(form.cls, name, kind, getattr(instr, name))
        if isinstance(instr, n.Value):
            self.define(instr)

    def field(self, cls: type[n.Instr], name: str, kind: str, held: Any) -> None:
        if (cls, name) in tags.WORDS:
            self.out.append(tags.WORDS[cls, name][held])
        elif kind in ("value", "local"):
            self.number(0) if held is None else self.use(held)
        elif kind == "buffer":
            self.number(self.buffers[held])
        elif kind == "str":
            self.number(self.args[held])  # the name of an argument
        elif kind == "ints":
            self.number(len(held))
            for item in held:
                self.signed(item)
        elif kind == "int":
            self.signed(held)
        else:
            self.literal(held)

    def literal(self, value: bool | int | float) -> None:
        if isinstance(value, bool):
            self.out.append(TRUE if value else FALSE)
        elif isinstance(value, int):
            self.out.append(WHOLE)
            self.signed(value)
        else:
            self.out.append(FLOAT)
            self.out += NAN if value != value else struct.pack("<d", value)

    def define(self, value: n.Instr) -> None:
        self.numbers[value] = len(self.numbers)

    def use(self, value: n.Instr) -> None:
        """Values count from 1: 0 stands for an operand that is not there."""
        self.number(self.numbers[value] + 1)

    def dtype(self, dtype: DType) -> None:
        if dtype.short_name not in tags.DTYPES:
            raise refused(f"there is no tag for the type {dtype}", len(self.out))
        self.out.append(tags.DTYPES[dtype.short_name])

    def count(self, held: Any, most: int) -> None:
        if len(held) > most:
            raise refused(f"{len(held)} declarations, {most} are allowed", len(self.out))
        self.number(len(held))

    def string(self, text: str, most: int = MAX_NAME) -> None:
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise refused(f"the name {text!r} is not Unicode text", len(self.out)) from None
        if len(data) > most:
            raise refused(f"a name of {len(data)} bytes, {most} are allowed", len(self.out))
        self.number(len(data))
        self.out += data

    def signed(self, value: int) -> None:
        self.number(value << 1 if value >= 0 else (-value << 1) - 1)

    def number(self, value: int) -> None:
        while value > 0x7F:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)


def dims_used(buffers: tuple[n.Buffer, ...]) -> list[Named]:
    """The Dims of all counts, by name."""
    found: set[Named] = set().union(*(dims_of(b.count) for b in buffers if b.count is not None))
    dims = sorted(found, key=lambda dim: (dim.name, dim.max))
    for dim, following in pairwise(dims):
        if dim.name == following.name:
            raise refused(f"two Dims are called {dim.name}", 0, "give each a name of its own")
    return dims


# -- reading ---------------------------------------------------------------------------------------


class ByteReader:
    """Walks `data`, which begins `start` bytes into the file; `values` holds those defined so
    far."""

    def __init__(self, data: bytes, start: int) -> None:
        self.data, self.start, self.at = data, start, 0
        self.began = 0  # where what was read last begins
        self.args: tuple[str, ...] = ()
        self.buffers: tuple[n.Buffer, ...] = ()
        self.values: list[n.Value] = []

    def program(self) -> n.Program:
        name = self.string()
        workgroup = (self.number(), self.number(), self.number())
        self.args = tuple(self.string() for _ in range(self.count(MAX_DECLARED)))
        dims = self.dims()
        self.buffers = tuple(self.buffer(dims) for _ in range(self.count(MAX_DECLARED)))
        used = [dim.name for dim in dims_used(self.buffers)]
        self.require(used == [*dims], "the Dims that counts mention, by name")
        body, is_guarded = self.block(0), self.byte()
        self.require(is_guarded < 2, "0 or 1 for a guarded program")
        return n.Program(name, self.buffers, self.args, workgroup, body, bool(is_guarded))

    def dims(self) -> dict[str, Size]:
        found: dict[str, Size] = {}
        for _ in range(self.count(MAX_DECLARED)):
            name, most = self.string(), self.number()
            try:
                found[name] = Dim(name, max=most)
            except ShapeError as error:
                raise self.wrong(error.message) from None
        return found

    def buffer(self, dims: dict[str, Size]) -> n.Buffer:
        name, dtype = self.string(), self.dtype()
        access, zeroed = self.word(tags.ACCESSES, "an access"), self.byte()
        self.require(zeroed < 2, "0 or 1 for zeroed scratch")
        return n.Buffer(name, dtype, access, self.size(dims), bool(zeroed))

    def size(self, dims: dict[str, Size]) -> Size | None:
        kind = self.byte()
        if kind in (NO_COUNT, FIXED):
            return None if kind == NO_COUNT else self.number()
        self.require(kind == SYMBOLIC, "an element count")
        text = self.string(MAX_SIZE_TEXT)
        try:
            size = parse_size(text, dims)
        except (ParseError, ShapeError, DtypeError, ValueError) as error:
            raise self.wrong(f"a count that is no size: {error}") from None
        self.require(not isinstance(size, int) and str(size) == text, "a count in its one form")
        return size

    def block(self, depth: int) -> n.Block:
        self.require(depth <= MAX_NESTING, f"at most {MAX_NESTING} nested blocks")
        return tuple([self.instr(depth) for _ in range(self.count(len(self.data) - self.at))])

    def instr(self, depth: int) -> n.Instr:
        tag = self.byte()
        cls = NODES.get(tag)
        if cls is None:
            raise self.unknown(tag, "an instruction")
        if cls in (n.For, n.Repeat, n.If, n.Region):
            return self.nested(cls, depth + 1)
        form = FORMS[cls]
        attributes: dict[str, Any] = {"dtype": self.dtype()} if form.is_value else {}
        if form.has_op:
            attributes["op"] = self.word(tags.OPERATORS[cls], "an operator")
        for name, kind in form.kinds.items():
            attributes[name] = self.field(cls, name, kind, name in form.optional)
        made = cls(**attributes)
        if isinstance(made, n.Value):
            self.values.append(made)
        return made

    def nested(self, cls: type[n.Instr], depth: int) -> n.Instr:
        if cls is n.Region:
            generator, source = self.string(), self.string()
            return n.Region(generator, self.block(depth), source)
        if cls is n.Repeat:
            local = self.operand("local", False)
            return n.Repeat(local, self.block(depth))  # type: ignore[arg-type]
        if cls is n.If:
            cond = self.use()
            then = self.block(depth)
            return n.If(cond, then, self.block(depth))
        start, stop, step, counter = self.use(), self.use(), self.signed(), n.Counter(index)
        self.values.append(counter)
        return n.For(counter, start, stop, step, self.block(depth))

    def field(self, cls: type[n.Instr], name: str, kind: str, is_optional: bool) -> Any:
        if (cls, name) in tags.WORDS:
            return self.word(tags.WORDS[cls, name], f"{name} of {cls.__name__}")
        if kind in ("value", "local"):
            return self.operand(kind, is_optional)
        if kind == "buffer":
            return self.chosen(self.buffers, "a buffer")
        if kind == "str":
            return self.chosen(self.args, "an argument")
        if kind == "ints":
            return tuple([self.signed() for _ in range(self.count(len(self.data) - self.at))])
        return self.signed() if kind == "int" else self.literal(kind == "bool")

    def operand(self, kind: str, is_optional: bool) -> n.Value | None:
        if is_optional and self.at < len(self.data) and self.data[self.at] == 0:
            self.at += 1
            return None
        value = self.use()
        self.require(kind == "value" or isinstance(value, n.Local), "a local")
        return value

    def literal(self, is_bool: bool) -> bool | int | float:
        kind = self.byte()
        if kind in (FALSE, TRUE):
            return kind == TRUE
        self.require(kind <= FLOAT and not is_bool, "a literal")
        if kind == WHOLE:
            return self.signed()
        data = self.take(8)
        value: float = struct.unpack("<d", data)[0]
        self.require(value == value or data == NAN, "NaN in its one form")
        return value

    def use(self) -> n.Value:
        number = self.number()
        self.require(1 <= number <= len(self.values), "a value defined before")
        return self.values[number - 1]

    def chosen(self, held: tuple[T, ...], what: str) -> T:
        number = self.number()
        self.require(number < len(held), f"{what} of the {len(held)} declared")
        return held[number]

    def dtype(self) -> DType:
        return named(self.word(tags.DTYPES, "a type"))

    def word(self, table: dict[str, int], what: str) -> str:
        tag = self.byte()
        found = next((word for word, known in table.items() if known == tag), None)
        if found is None:
            raise self.unknown(tag, what)
        return found

    def unknown(self, tag: int, what: str) -> FileFormatError:
        if tag < tags.EXTENSION:
            return self.wrong(f"expected {what}, {tag:02X} hex stands for none")
        hint = "extensions are not read: write the program with registered programs inlined"
        return refused(f"{tag:02X} hex is the tag of an extension", self.start + self.began, hint)

    def count(self, most: int) -> int:
        """How many elements follow; each takes a byte at least, so no more than there are bytes."""
        number = self.number()
        left = len(self.data) - self.at
        self.require(number <= min(most, left), f"at most {min(most, left)} elements")
        return number

    def string(self, most: int = MAX_NAME) -> str:
        data = self.take(self.count(most))
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise self.wrong("a name that is not UTF-8") from None

    def signed(self) -> int:
        number = self.number()
        return -(number >> 1) - 1 if number & 1 else number >> 1

    def number(self) -> int:
        value, shift, byte, began = 0, 0, 0x80, self.at
        while byte & 0x80:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            self.began = began
            self.require(value >> MAX_BITS + 1 == 0 and shift <= 70, "a number of 64 bits")
        self.require(byte != 0 or shift == 7, "a number in its shortest form")
        return value

    def byte(self) -> int:
        return self.take(1)[0]

    def take(self, count: int) -> bytes:
        self.began = self.at
        self.require(count <= len(self.data) - self.at, f"{count} more bytes")
        self.at += count
        return self.data[self.at - count : self.at]

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            raise self.wrong(f"expected {what}")

    def wrong(self, message: str) -> FileFormatError:
        return refused(message, self.start + self.began)


NODES = {tag: cls for cls, tag in tags.NODES.items()}
