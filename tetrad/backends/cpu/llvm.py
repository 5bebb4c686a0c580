"""Code generation, LLVM: module text in, object file out, and object files made callable.

Talks to LLVM (`backends.llvm.binding`) only when something has to be compiled. The pass pipeline is
short on purpose and LLVM's vectorisers never run: in the LLVM of llvmlite 0.45 to 0.50 they
miscompile (a regression test tells).
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from tetrad.backends.cpu import elf
from tetrad.backends.cpu.isa import host_isa
from tetrad.backends.llvm.binding import know_other_processors, llvm
from tetrad.backends.llvm.isa import isa_of
from tetrad.core import lazy
from tetrad.core.errors import CompileError
from tetrad.core.floats import own_floats
from tetrad.core.locks import process_lock
from tetrad.core.machine import Target
from tetrad.core.pattern import LazyPattern

PASSES = ("SROA", "InstCombine", "SimplifyCFG")
LIBM = (
    "fma", "fmaf", "floorf", "floor", "ceilf", "ceil", "truncf", "trunc", "roundf", "round",
    "roundevenf", "roundeven",
)  # fmt: skip
LIBC = ("memset", "memcpy", "memmove", "syscall", "sigaction")
KNOWN_EXTERNS = frozenset(LIBM + LIBC)

DECLARED = LazyPattern(r"^declare [^@]*@([\w.$-]+)", re.M)
REPORT = "please report this with TETRAD_SHOW=llvm"

_lock = process_lock()  # of loading; compiling needs none
_libraries = itertools.count()
# machines nobody uses now, as many as ever worked at once
_idle: dict[tuple[Target, bool], list[int]] = {}


def compile_object(text: str, target: Target, optimise: bool = True) -> bytes:
    """The relocatable object file of a module; not to optimise code is several times as quick.

    Any number of threads may compile at once.
    """
    return compiled(text, target, optimise, is_object=True)


def assembly(text: str, target: Target) -> str:
    return compiled(text, target, optimise=True, is_object=False).decode()


def compiled(text: str, target: Target, optimise: bool, is_object: bool) -> bytes:
    unknown = undeclared_externs(text)
    if unknown:
        raise CompileError(f"generated code calls unknown functions: {', '.join(unknown)}")
    lib = llvm()
    with (
        own_floats(),
        lib.owned(lib.ContextCreate(), "ContextDispose") as context,
        lib.owned(parsed(text, context), "DisposeModule") as module,
        machine(target, optimise) as engine,
    ):
        optimised(module, engine)
        buffer, message = lib.told("TargetMachineEmitToMemory", engine, module, int(is_object))
        if not buffer:
            raise CompileError(f"LLVM cannot generate code: {message}", hint=REPORT)
        with lib.owned(buffer, "DisposeMemoryBuffer"):
            return ctypes.string_at(lib.GetBufferStart(buffer), lib.GetBufferSize(buffer))


def undeclared_externs(text: str) -> list[str]:
    """An unresolved symbol yields a bogus address, so only names on the list may be declared."""
    return [
        name
        for name in DECLARED.findall(text)
        if not name.startswith("llvm.") and name not in KNOWN_EXTERNS
    ]


def parsed(text: str, context: int) -> int:
    module, message = llvm().told("ParseAssembly", context, text.encode())
    if not message and not module:
        message = "no module"
    if not message:
        is_wrong, message = llvm().told("VerifyModule", module)
        if not is_wrong:
            return int(module)
        llvm().DisposeModule(module)
    raise CompileError(f"generated LLVM is not valid: {message}", hint=REPORT)


@contextmanager
def machine(target: Target, optimise: bool) -> Iterator[int]:
    """What emits code for a target: for this block alone, then for another. It holds what LLVM
    knows of a processor, which takes a millisecond to write down. After an error it is not used
    again."""
    idle = _idle.setdefault((target, optimise), [])
    try:
        made = idle.pop()
    except IndexError:
        made = new_machine(target, optimise)
    try:
        yield made
    except BaseException:
        llvm().DisposeTargetMachine(made)
        raise
    idle.append(made)


def new_machine(target: Target, optimise: bool) -> int:
    """Level 1 of code generation takes a fifth less time than level 3, for code that is as quick:
    what matters (what lies in registers, the order of instructions) our kernels have settled."""
    if isa_of(target) is not host_isa():
        know_other_processors()
    found, message = llvm().told("GetTargetFromTriple", target.triple.encode())
    if not found:
        raise CompileError(f"LLVM knows no target {target.triple}: {message}")
    words = (target.triple.encode(), target.cpu.encode(), target.features.encode())
    made = llvm().CreateTargetMachine(
        found, *words, 1 if optimise else 0, b"pic", b"small", 0, 1, b""
    )
    if not made:
        raise CompileError(f"LLVM cannot generate code for {target.name}")
    return int(made)


def optimised(module: int, engine: int) -> None:
    """The module, changed in place by our passes."""
    lib = llvm()
    with (
        lib.owned(lib.CreateNewModulePassManager(), "DisposeNewModulePassManger") as passes,
        lib.owned(lib.CreatePipelineTuningOptions(), "DisposePipelineTuningOptions") as options,
        lib.owned(lib.CreatePassBuilder(engine, options), "DisposePassBuilder") as builder,
    ):
        for name in PASSES:
            getattr(lib, f"module_Add{name}Pass")(passes)
        lib.RunNewModulePassManager(passes, module, builder)


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
