"""Code generation, binding: the functions of llvmlite's shared library that we call, by ctypes.

Goes around `llvmlite.binding`, which lets one thread at a time into LLVM, whatever it works on, and
takes six times as long to import as the library takes to load. Threads may call these side by side,
each on a context of its own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_bool, c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from threading import Lock
from typing import Any

import llvmlite
from llvmlite.utils import get_library_name

from tetrad.core.errors import BackendError

_TEXT_OUT = POINTER(c_char_p)

# The work is done here: other Python threads go on meanwhile. To let go of Python's lock in short
# functions too would take longer than they do: where another thread is busy, 5 ms pass until it is
# given back.
LONG = ("ParseAssembly", "VerifyModule", "RunNewModulePassManager", "TargetMachineEmitToMemory")

# name: (result, arguments)
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "InitializeNativeTarget": (c_int, ()),
    "InitializeNativeAsmPrinter": (c_int, ()),
    "InitializeAllTargetInfos": (None, ()),
    "InitializeAllTargets": (None, ()),
    "InitializeAllTargetMCs": (None, ()),
    "InitializeAllAsmPrinters": (None, ()),
    "ContextCreate": (c_void_p, ()),
    "ContextDispose": (None, (c_void_p,)),
    "ParseAssembly": (c_void_p, (c_void_p, c_char_p, _TEXT_OUT)),
    "VerifyModule": (c_bool, (c_void_p, _TEXT_OUT)),
    "DisposeModule": (None, (c_void_p,)),
    "GetTargetFromTriple": (c_void_p, (c_char_p, _TEXT_OUT)),
    # target, triple, cpu, features, level, relocation, code model, print, for a JIT, name of the
    # ABI
    "CreateTargetMachine": (
        c_void_p,
        (c_void_p, *[c_char_p] * 3, c_int, *[c_char_p] * 2, c_int, c_int, c_char_p),
    ),
    "DisposeTargetMachine": (None, (c_void_p,)),
    "CreateNewModulePassManager": (c_void_p, ()),
    "module_AddSROAPass": (None, (c_void_p,)),
    "module_AddInstCombinePass": (None, (c_void_p,)),
    "module_AddSimplifyCFGPass": (None, (c_void_p,)),
    "DisposeNewModulePassManger": (None, (c_void_p,)),  # spelt like this
    "CreatePipelineTuningOptions": (c_void_p, ()),
    "DisposePipelineTuningOptions": (None, (c_void_p,)),
    "CreatePassBuilder": (c_void_p, (c_void_p, c_void_p)),
    "DisposePassBuilder": (None, (c_void_p,)),
    "RunNewModulePassManager": (None, (c_void_p, c_void_p, c_void_p)),
    "TargetMachineEmitToMemory": (c_void_p, (c_void_p, c_void_p, c_int, _TEXT_OUT)),
    "GetBufferStart": (c_void_p, (c_void_p,)),
    "GetBufferSize": (c_size_t, (c_void_p,)),
    "DisposeMemoryBuffer": (None, (c_void_p,)),
    "DisposeString": (None, (c_char_p,)),
    "GetProcessTriple": (None, (_TEXT_OUT,)),
    "GetHostCPUName": (None, (_TEXT_OUT,)),
    "GetHostCPUFeatures": (c_int, (_TEXT_OUT,)),
}


class Binding:
    """Each function as an attribute, under its name in the table."""

    def __init__(self, path: str) -> None:
        free, locked = ctypes.CDLL(path, handle=opened(path)), ctypes.PyDLL(path)
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(free if name in LONG else locked, f"LLVMPY_{name}", None)
            if function is None:
                message = (
                    f"llvmlite {llvmlite.__version__} has no function {name}, which code "
                    "generation needs"
                )
                raise BackendError(message, hint="install the llvmlite that pyproject.toml names")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    # for type checkers: __init__ has set them all
    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(name)

    def told(self, name: str, *operands: Any) -> tuple[Any, str]:
        """The result of a function whose last argument is a place for a message, and the
        message."""
        message = c_char_p()
        try:
            return getattr(self, name)(*operands, ctypes.byref(message)), (
                message.value or b""
            ).decode()
        finally:
            self.DisposeString(message)

    @contextmanager
    def owned(self, made: Any, dispose: str) -> Iterator[Any]:
        """An object of LLVM's, until the block ends."""
        try:
            yield made
        finally:
            getattr(self, dispose)(made)


def opened(path: str) -> int | None:
    """The handle of a library that the system has loaded; None if it could not, ctypes then says
    why.

    For LLVM that takes 10 ms. Other Python threads go on meanwhile, which ctypes, asked to load it,
    would not let them.
    """
    load = ctypes.CDLL(None).dlopen
    load.restype, load.argtypes = c_void_p, (c_char_p, c_int)
    found: int | None = load(os.fsencode(path), os.RTLD_NOW)
    return found


_lock = Lock()


def llvm() -> Binding:
    """Loaded when first used: that takes longer than running a program that is on disk."""
    with _lock:
        return loaded()


@cache
def loaded() -> Binding:
    found = Binding(os.path.join(os.path.dirname(llvmlite.__file__), "binding", get_library_name()))
    found.InitializeNativeTarget()
    found.InitializeNativeAsmPrinter()
    return found


@cache
def know_other_processors() -> None:
    """LLVM knows only the running one until it is told of the others, which takes longer than
    starting it."""
    for what in ("TargetInfos", "Targets", "TargetMCs", "AsmPrinters"):
        getattr(llvm(), f"InitializeAll{what}")()
