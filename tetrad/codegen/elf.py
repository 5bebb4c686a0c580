"""Code generation, ELF: an object file in, addresses of its functions out, without LLVM.

LLVM's own linker would do the same, but loading LLVM takes longer than all the rest of a program that was compiled
before. Objects come from `codegen.llvm` and hold little: code, constants, some zeroed data, calls of a few C functions.
What is not understood here is said by `understands`, and left to LLVM. The layout is that of the System V ABI, the
relocations those of its x86-64 supplement, section 4.4.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tetrad.core.errors import CompileError

HEADER = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian, version 1
X86_64 = 62
PROGBITS, SYMTAB, RELA, NOBITS, UNWIND = 1, 2, 4, 8, 0x70000001
WRITE, ALLOC = 1, 2
UNDEFINED = 0
ABSOLUTE, RELATIVE = (1,), (2, 4)  # R_X86_64_64; R_X86_64_PC32, R_X86_64_PLT32
JUMP = b"\xff\x25\x00\x00\x00\x00"  # jmp *[rip]: to the address behind it
STUB = 16  # bytes of a jump and its address


class Section(NamedTuple):
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


class Symbol(NamedTuple):
    name: str
    section: int
    value: int


class Relocation(NamedTuple):
    section: int
    offset: int
    symbol: int
    type: int
    addend: int


def understands(image: bytes) -> bool:
    """Is this an object for Linux on x86-64 with relocations we know?"""
    if image[:7] != HEADER or struct.unpack_from("<H", image, 18) != (X86_64,):
        return False
    sections = sections_of(image)
    known = {PROGBITS, NOBITS}
    return all(s.type in known for s in sections if s.is_loaded) and all(
        r.type in ABSOLUTE + RELATIVE for r in relocations_of(image, sections)
    )


def load(image: bytes, externs: Mapping[str, int]) -> dict[str, int]:
    """Map the object and return the address of each symbol it defines. It stays for the life of the process."""
    sections = sections_of(image)
    symbols = symbols_of(image, sections)
    calls = [s.name for s in symbols if s.section == UNDEFINED and s.name]
    unknown = [name for name in calls if name not in externs]
    if unknown:
        raise CompileError(f"an object calls unknown functions: {', '.join(unknown)}")
    places, stubs, written, total = layout(sections, len(calls))
    base = mapped(total)
    places = {number: base + offset for number, offset in places.items()}
    for number, place in places.items():
        section = sections[number]
        if section.type == PROGBITS:
            ctypes.memmove(place, image[section.offset : section.offset + section.size], section.size)
    jumps = {name: base + stubs + STUB * i for i, name in enumerate(calls)}
    for name, place in jumps.items():
        ctypes.memmove(place, JUMP + struct.pack("<Q", externs[name]), len(JUMP) + 8)
    found = [jumps.get(s.name, 0) if s.section == UNDEFINED else places.get(s.section, 0) + s.value for s in symbols]
    for r in relocations_of(image, sections):
        relocate(r, places[r.section] + r.offset, found[r.symbol])
    protect(base, written)
    return {s.name: address for s, address in zip(symbols, found, strict=True) if s.name and s.section in places}


def sections_of(image: bytes) -> list[Section]:
    (start,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    return [Section(*struct.unpack_from("<IIQQQQIIQQ", image, start + size * i)) for i in range(count)]


def symbols_of(image: bytes, sections: list[Section]) -> list[Symbol]:
    (table,) = (s for s in sections if s.type == SYMTAB)
    names = sections[table.link].offset
    found = []
    for at in range(table.offset, table.offset + table.size, 24):
        name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", image, at)
        end = image.index(b"\0", names + name)
        found.append(Symbol(image[names + name : end].decode(), section, value))
    return found


def relocations_of(image: bytes, sections: list[Section]) -> Iterator[Relocation]:
    for s in sections:
        if s.type == RELA and sections[s.info].is_loaded:
            for at in range(s.offset, s.offset + s.size, 24):
                offset, info, addend = struct.unpack_from("<QQq", image, at)
                yield Relocation(s.info, offset, info >> 32, info & 0xFFFFFFFF, addend)


def layout(sections: list[Section], calls: int) -> tuple[dict[int, int], int, int, int]:
    """Offset of each section that is loaded; of the stubs; of the first page that may be written; the total."""
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


def relocate(r: Relocation, place: int, target: int) -> None:
    """S + A, or S + A - P in 32 bits: all of an object lies in one mapping, so it fits."""
    absolute = r.type in ABSOLUTE
    value = struct.pack("<Q", target + r.addend) if absolute else struct.pack("<i", target + r.addend - place)
    ctypes.memmove(place, value, len(value))


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
        raise CompileError(f"this system does not let memory become executable (error {ctypes.get_errno()})")
