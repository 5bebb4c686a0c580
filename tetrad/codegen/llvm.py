"""Code generation, LLVM: module text in, object file out, and object files made callable.

The only file that talks to llvmlite. The pass pipeline is short on purpose and LLVM's vectorisers never run: in the
LLVM of llvmlite 0.45 to 0.50 they miscompile (a regression test holds us to it).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
import threading

import llvmlite.binding as llvm

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
_jit: list[llvm.orcjit.LLJIT] = []


llvm.initialize_native_target()
llvm.initialize_native_asmprinter()


def machine(target: Target) -> llvm.TargetMachine:
    """A fresh target machine: one must not be reused after it was handed to an engine."""
    found = llvm.Target.from_triple(target.triple)
    return found.create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small", jit=True
    )


def optimised(text: str, target: Target) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    with _lock:
        try:
            module = llvm.parse_assembly(text)
            module.verify()
        except RuntimeError as error:
            hint = "please report this with TETRAD_SHOW=llvm"
            raise CompileError(f"generated LLVM is not valid: {error}", hint=hint) from error
        unknown = undeclared_externs(module)
        if unknown:
            raise CompileError(f"generated code calls unknown functions: {', '.join(unknown)}")
        engine = machine(target)
        passes = llvm.create_new_module_pass_manager()
        for name in PASSES:
            getattr(passes, f"add_{name}_pass")()
        passes.run(module, llvm.create_pass_builder(engine, llvm.create_pipeline_tuning_options(speed_level=2)))
        return module, engine


def undeclared_externs(module: llvm.ModuleRef) -> list[str]:
    """An unresolved symbol yields a bogus address, so only names on the list may be declared."""
    declared = (f.name for f in module.functions if f.is_declaration)
    return [name for name in declared if not name.startswith("llvm.") and name not in KNOWN_EXTERNS]


def compile_object(text: str, target: Target) -> bytes:
    """The relocatable object file of a module."""
    with _lock:
        module, engine = optimised(text, target)
        return bytes(engine.emit_object(module))


def assembly(text: str, target: Target) -> str:
    with _lock:
        module, engine = optimised(text, target)
        return str(engine.emit_assembly(module))


class Library:
    """Loaded code. Owns what keeps its addresses alive."""

    def __init__(self, tracker: llvm.orcjit.ResourceTracker, symbols: tuple[str, ...]) -> None:
        self._tracker = tracker
        self.address = {name: int(tracker[name]) for name in symbols}
        if 0 in self.address.values():
            raise CompileError("a compiled symbol has no address")


def load_object(image: bytes, symbols: tuple[str, ...]) -> Library:
    """Make the functions of an object file callable; the caller vouches for the bytes."""
    with _lock:
        if not _jit:
            _jit.append(llvm.create_lljit_compiler())
        builder = llvm.JITLibraryBuilder().add_object_img(image)
        for name, address in extern_addresses().items():
            builder.import_symbol(name, address)
        for name in symbols:
            builder.export_symbol(name)
        return Library(builder.link(_jit[0], f"tetrad{next(_libraries)}"), symbols)


def extern_addresses() -> dict[str, int]:
    if not _externs:
        libm, libc = ctypes.CDLL(ctypes.util.find_library("m")), ctypes.CDLL(None)
        for library, names in ((libm, LIBM), (libc, LIBC)):
            for name in names:
                found = getattr(library, name, None)
                if found is not None:
                    _externs[name] = ctypes.cast(found, ctypes.c_void_p).value or 0
    return _externs


_externs: dict[str, int] = {}

