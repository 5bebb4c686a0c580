"""CPU back end, ELF: an object file in, addresses of its functions out, without LLVM.

LLVM's own linker would do the same, but loading LLVM takes longer than all the rest of a program
that was compiled before. Objects come from `backends.cpu.llvm` and hold little: code, constants,
some zeroed data, calls of a few C functions. What is not `understood` here is left to LLVM. The
layout is that of the System V ABI; which relocations there are, the processor says
(`backends.cpu.isa`).
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Mapping

from tetrad.backends.cpu.isa import host_family
from tetrad.core.errors import CompileError
from tetrad.core.record import record

HEADER = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian, version 1
PROGBITS, SYMTAB, RELA, NOBITS, UNWIND = 1, 2, 4, 8, 0x70000001
WRITE, ALLOC = 1, 2
UNDEFINED = 0
STUB = 32  # bytes of a jump and its address, at most, in any family of processors


SECTION, SYMBOL, RELOCATION = (
    struct.Struct("<IIQQQQIIQQ"),
    struct.Struct("<IBBHQQ"),
    struct.Struct("<QQq"),
)

Symbol = tuple[str, int, int]  # name, section, value
Relocation = tuple[int, int, int, int, int]  # section, offset in it, symbol, type, addend


@record
class Section:
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int

    @property
    def is_loaded(self) -> bool:
        # Nothing unwinds through kernels: what they call raises no exceptions.
        return bool(self.flags & ALLOC) and self.size > 0 and self.type != UNWIND

    def of(self, image: bytes) -> bytes:
        return image[self.offset : self.offset + self.size]


@record(eq=False)
class Object:
    """What is in an object file for Linux and this processor, with relocations we know."""

    image: bytes
    sections: list[Section]
    relocations: list[Relocation]


def understood(image: bytes) -> Object | None:
    """None for objects of other systems, or with more in them than we know."""
    known = host_family().relocations
    if image[:7] != HEADER or struct.unpack_from("<H", image, 18) != (known.machine,):
        return None
    sections = sections_of(image)
    relocations = relocations_of(image, sections)
    is_known = all(s.type in (PROGBITS, NOBITS) for s in sections if s.is_loaded) and all(
        type in known.known for _, _, _, type, _ in relocations
    )
    return Object(image, sections, relocations) if is_known else None


def load(found: Object, externs: Mapping[str, int]) -> dict[str, int]:
    """Map the object and return the address of each symbol it defines. It stays for the life of the
    process."""
    image, sections, processor = found.image, found.sections, host_family().relocations
    symbols = symbols_of(image, sections)
    calls = [name for name, section, _ in symbols if section == UNDEFINED and name]
    unknown = [name for name in calls if name not in externs]
    if unknown:
        raise CompileError(f"an object calls unknown functions: {', '.join(unknown)}")
    places, stubs, written, total = layout(sections, len(calls))
    base, made = mapped(total), bytearray(total)
    for number, place in places.items():
        if sections[number].type == PROGBITS:
            made[place : place + sections[number].size] = sections[number].of(image)
    jumps = {name: base + stubs + STUB * i for i, name in enumerate(calls)}
    for name, address in jumps.items():
        jump = processor.stub(externs[name])
        made[address - base : address - base + len(jump)] = jump
    starts = {number: base + place for number, place in places.items()}
    targets = [
        jumps.get(name, 0) if s == UNDEFINED else starts.get(s, 0) + value
        for name, s, value in symbols
    ]
    for section, offset, symbol, type, addend in found.relocations:
        processor.fill(made, places[section] + offset, type, targets[symbol] + addend, base)
    ctypes.memmove(base, bytes(made), total)
    protect(base, written)
    return {
        name: address
        for (name, s, _), address in zip(symbols, targets, strict=True)
        if name and s in places
    }


def sections_of(image: bytes) -> list[Section]:
    (start,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    return [Section(*SECTION.unpack_from(image, start + size * i)) for i in range(count)]


def symbols_of(image: bytes, sections: list[Section]) -> list[Symbol]:
    (table,) = (s for s in sections if s.type == SYMTAB)
    names = sections[table.link].offset
    found = []
    for name, _, _, section, value, _ in SYMBOL.iter_unpack(table.of(image)):
        end = image.index(b"\0", names + name)
        found.append((image[names + name : end].decode(), section, value))
    return found


def relocations_of(image: bytes, sections: list[Section]) -> list[Relocation]:
    return [
        (s.info, offset, info >> 32, info & 0xFFFFFFFF, addend)
        for s in sections
        if s.type == RELA and sections[s.info].is_loaded
        for offset, info, addend in RELOCATION.iter_unpack(s.of(image))
    ]


def layout(sections: list[Section], calls: int) -> tuple[dict[int, int], int, int, int]:
    """Offset of each section that is loaded; of the stubs; of the first page that may be written;
    the total."""
    places: dict[int, int] = {}
    end = 0
    for number, s in enumerate(sections):
        if s.is_loaded and not s.flags & WRITE:
            places[number] = end = aligned(end, s.align)
            end += s.size
    stubs = aligned(end, STUB)
    written = end = aligned(stubs + STUB * calls, mmap.PAGESIZE)
    for number, s in enumerate(sections):
        if s.is_loaded and s.flags & WRITE:
            places[number] = end = aligned(end, s.align)
            end += s.size
    return places, stubs, written, end


def aligned(offset: int, to: int) -> int:
    return -(-offset // max(1, to)) * max(1, to)


_libc = ctypes.CDLL(None, use_errno=True)
_mmap, _mprotect = _libc.mmap, _libc.mprotect
_word, _int = ctypes.c_size_t, ctypes.c_int
_mmap.argtypes, _mmap.restype = [_word, _word, _int, _int, _int, ctypes.c_long], _word
_mprotect.argtypes, _mprotect.restype = [_word, _word, _int], _int


def mapped(size: int) -> int:
    """Zeroed pages; never unmapped: a worker may be in them until the process ends."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = int(_mmap(0, max(1, size), mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0))
    if address == _word(-1).value:
        raise MemoryError(f"no memory for {size} bytes of code")
    return address


def protect(address: int, size: int) -> None:
    if size and _mprotect(address, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise CompileError(
            f"this system does not let memory become executable (error {ctypes.get_errno()})"
        )
