"""CPU back end, code: module text in, object file out, and object files made callable.

Receives text for a target, or bytes of an object file that somebody vouches for; gives addresses.
`backends.llvm.compile` compiles, `elf` loads what it understands, LLVM's linker the rest.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping
from functools import cache
from typing import Any

from tetrad.backends.cpu import elf
from tetrad.backends.llvm.binding import llvm
from tetrad.backends.llvm.target import Target
from tetrad.core import lazy
from tetrad.core.errors import CompileError
from tetrad.core.locks import process_lock

LIBM = (
    "fma", "fmaf", "floorf", "floor", "ceilf", "ceil", "truncf", "trunc", "roundf", "round",
    "roundevenf", "roundeven",
)  # fmt: skip
LIBC = ("memset", "memcpy", "memmove", "syscall", "sigaction")
KNOWN_EXTERNS = frozenset(LIBM + LIBC)

_lock = process_lock()  # of loading; compiling needs none
_libraries = itertools.count()


def compile_object(text: str, target: Target, optimise: bool = True) -> bytes:
    """The relocatable object file of a module."""
    made: bytes = compiling().compile_module(text, target, KNOWN_EXTERNS, optimise=optimise)
    return made


def assembly(text: str, target: Target) -> str:
    made: bytes = compiling().compile_module(text, target, KNOWN_EXTERNS, is_object=False)
    return made.decode()


def compiling() -> Any:
    """Loaded when something has to be compiled: a start that finds its objects on disk does not."""
    return lazy.module("tetrad.backends.llvm.compile")


class Library:
    """Loaded code: the addresses of its functions, and what keeps them alive."""

    def __init__(self, address: Mapping[str, int], owner: object = None) -> None:
        self.address, self.owner = dict(address), owner
        if 0 in self.address.values():
            raise CompileError("a compiled symbol has no address")


def load_object(image: bytes, symbols: tuple[str, ...]) -> Library:
    """Make the functions of an object file callable; the caller vouches for the bytes."""
    with _lock:
        understood = elf.understood(image)
        if understood is None:
            return linked(image, symbols)
        found = elf.load(understood, extern_addresses())
        return Library({name: found.get(name, 0) for name in symbols})


def linked(image: bytes, symbols: tuple[str, ...]) -> Library:
    """The same by LLVM's own linker, which knows every kind of object."""
    builder = lazy.module("llvmlite.binding").JITLibraryBuilder().add_object_img(image)
    for name, address in extern_addresses().items():
        builder.import_symbol(name, address)
    for name in symbols:
        builder.export_symbol(name)
    tracker = builder.link(linker(), f"tetrad{next(_libraries)}")
    return Library({name: int(tracker[name]) for name in symbols}, tracker)


@cache
def linker() -> Any:
    """JITLink puts all of an object side by side. LLVM's older linker does not: it ends the process
    where one part lies too far from another for an instruction of AArch64 (`overflow check failed
    for relocation`)."""
    llvm()  # knows the processor from then on
    return lazy.module("llvmlite.binding").create_lljit_compiler(use_jit_link=True)


@cache
def extern_addresses() -> dict[str, int]:
    """Where the C functions are; the interpreter itself is linked with both libraries."""
    process = ctypes.CDLL(None)
    found = {name: getattr(process, name, None) for name in (*LIBM, *LIBC)}
    return {
        name: ctypes.cast(f, ctypes.c_void_p).value or 0
        for name, f in found.items()
        if f is not None
    }
