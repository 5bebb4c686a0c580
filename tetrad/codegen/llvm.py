"""Code generation, LLVM: module text in, object file out, and object files made callable.

The only file that talks to llvmlite, and only when something has to be compiled. The pass pipeline is short on purpose
and LLVM's vectorisers never run: in the LLVM of llvmlite 0.45 to 0.50 they miscompile (a regression test tells).
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any

from tetrad.codegen import elf
from tetrad.core.errors import CompileError
from tetrad.core.target import Target

PASSES = ("sroa", "instruction_combine", "simplify_cfg")
LIBM = (
    "fma", "fmaf", "floorf", "floor", "ceilf", "ceil", "truncf", "trunc", "roundf", "round", "roundevenf", "roundeven",
)  # fmt: skip
LIBC = ("memset", "memcpy", "memmove", "syscall", "sigaction")
KNOWN_EXTERNS = frozenset(LIBM + LIBC)

_lock = threading.RLock()
_libraries = itertools.count()


@cache
def llvm() -> Any:
    """llvmlite's binding, loaded when first used: that takes longer than running a program that is on disk."""
    found = importlib.import_module("llvmlite.binding")
    found.initialize_native_target()
    found.initialize_native_asmprinter()
    return found


def machine(target: Target, optimise: bool) -> Any:
    """A fresh target machine: one must not be reused after it was handed to an engine.

    Level 1 of code generation takes a fifth less time than level 3, for code that is as quick: what matters (what lies
    in registers, the order of instructions) our kernels have settled.
    """
    found = llvm().Target.from_triple(target.triple)
    return found.create_target_machine(
        cpu=target.cpu, features=target.features, opt=1 if optimise else 0, reloc="pic", codemodel="small", jit=True
    )


def optimised(text: str, target: Target, optimise: bool = True) -> tuple[Any, Any]:
    """The module after our passes, and the machine to emit it with."""
    with _lock:
        try:
            module = llvm().parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            hint = "please report this with TETRAD_SHOW=llvm"
            raise CompileError(f"generated LLVM is not valid: {error}", hint=hint) from error
        unknown = undeclared_externs(module)
        if unknown:
            raise CompileError(f"generated code calls unknown functions: {', '.join(unknown)}")
        engine = machine(target, optimise)
        passes = llvm().create_new_module_pass_manager()
        for name in PASSES:
            getattr(passes, f"add_{name}_pass")()
        options = llvm().create_pipeline_tuning_options(speed_level=2)
        passes.run(module, llvm().create_pass_builder(engine, options))
        return module, engine


def undeclared_externs(module: Any) -> list[str]:
    """An unresolved symbol yields a bogus address, so only names on the list may be declared."""
    declared = (f.name for f in module.functions if f.is_declaration)
    return [name for name in declared if not name.startswith("llvm.") and name not in KNOWN_EXTERNS]


def compile_object(text: str, target: Target, optimise: bool = True) -> bytes:
    """The relocatable object file of a module; not to optimise code is several times as quick."""
    with _lock:
        module, engine = optimised(text, target, optimise)
        return bytes(engine.emit_object(module))


def assembly(text: str, target: Target) -> str:
    with _lock:
        module, engine = optimised(text, target)
        return str(engine.emit_assembly(module))


class Library:
    """Loaded code: the addresses of its functions, and what keeps them alive."""

    def __init__(self, address: Mapping[str, int], owner: object = None) -> None:
        self.address, self.owner = dict(address), owner
        if 0 in self.address.values():
            raise CompileError("a compiled symbol has no address")


def load_object(image: bytes, symbols: tuple[str, ...]) -> Library:
    """Make the functions of an object file callable; the caller vouches for the bytes."""
    with _lock:
        if not elf.understands(image):
            return linked(image, symbols)
        found = elf.load(image, extern_addresses())
        return Library({name: found.get(name, 0) for name in symbols})


def linked(image: bytes, symbols: tuple[str, ...]) -> Library:
    """The same by LLVM's own linker, which knows every kind of object."""
    builder = llvm().JITLibraryBuilder().add_object_img(image)
    for name, address in extern_addresses().items():
        builder.import_symbol(name, address)
    for name in symbols:
        builder.export_symbol(name)
    tracker = builder.link(linker(), f"tetrad{next(_libraries)}")
    return Library({name: int(tracker[name]) for name in symbols}, tracker)


@cache
def linker() -> Any:
    return llvm().create_lljit_compiler()


@cache
def extern_addresses() -> dict[str, int]:
    """Where the C functions are; the interpreter itself is linked with both libraries."""
    process = ctypes.CDLL(None)
    found = {name: getattr(process, name, None) for name in (*LIBM, *LIBC)}
    return {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in found.items() if f is not None}
