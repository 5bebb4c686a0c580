"""Code generation, LLVM: module text in, object file or assembly out.

Talks to LLVM (`backends.llvm.binding`) and knows nothing of where the code will run. The pass
pipeline is short on purpose and LLVM's vectorisers never run: in the LLVM of llvmlite 0.45 to 0.50
they miscompile (a regression test tells).
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager

from tetrad.backends.llvm.binding import know_other_processors, llvm
from tetrad.backends.llvm.target import Target
from tetrad.core.errors import CompileError
from tetrad.core.floats import own_floats
from tetrad.core.pattern import LazyPattern

PASSES = ("SROA", "InstCombine", "SimplifyCFG")
DECLARED = LazyPattern(r"^declare [^@]*@([\w.$-]+)", re.M)
REPORT = "please report this with TETRAD_SHOW=llvm"

# machines nobody uses now, as many as ever worked at once
_idle: dict[tuple[Target, bool], list[int]] = {}


def compile_module(
    text: str,
    target: Target,
    externs: frozenset[str] = frozenset(),
    *,
    optimise: bool = True,
    is_object: bool = True,
) -> bytes:
    """The relocatable object file of a module, or its assembly; not to optimise code is several
    times as quick. `externs`: functions that are there where the code will run.

    Any number of threads may compile at once.
    """
    unknown = undeclared_externs(text, externs)
    if unknown:
        raise CompileError(f"generated code calls unknown functions: {', '.join(unknown)}")
    lib = llvm()
    with (
        own_floats(),
        lib.owned(lib.ContextCreate(), "ContextDispose") as context,
        lib.owned(parsed(text, context), "DisposeModule") as module,
        target_machine(target, optimise) as engine,
    ):
        if optimise:
            optimised(module, engine)
        buffer, message = lib.told("TargetMachineEmitToMemory", engine, module, int(is_object))
        if not buffer:
            raise CompileError(f"LLVM cannot generate code: {message}", hint=REPORT)
        with lib.owned(buffer, "DisposeMemoryBuffer"):
            return ctypes.string_at(lib.GetBufferStart(buffer), lib.GetBufferSize(buffer))


def undeclared_externs(text: str, externs: frozenset[str]) -> list[str]:
    """An unresolved symbol yields a bogus address, so only names on the list may be declared."""
    return [
        name
        for name in DECLARED.findall(text)
        if not name.startswith("llvm.") and name not in externs
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
def target_machine(target: Target, optimise: bool) -> Iterator[int]:
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
    triple = target.triple.encode()
    found, message = llvm().told("GetTargetFromTriple", triple)
    if not found:
        know_other_processors()
        found, message = llvm().told("GetTargetFromTriple", triple)
    if not found:
        raise CompileError(f"LLVM knows no target {target.triple}: {message}")
    words = (triple, target.cpu.encode(), target.features.encode())
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
