"""Explain, one call: a function and its arguments, compiled and ready to be run, watched and taken
apart.

Receives what the user would call; returns the compiled program with its table at the sizes of this
call, and copies of the arguments, so that looking never changes what the user holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np

from tetrad.arrays.creation import asarray
from tetrad.backends.cpu.executable import BoundCall, Executable
from tetrad.backends.cpu.memory import Storage
from tetrad.compiler.jit import NATIVE, Jitted, Specialisation
from tetrad.core.errors import TraceError
from tetrad.core.record import record
from tetrad.core.tree import flatten
from tetrad.graph.nodes import Graph
from tetrad.tracing.array import Array


@record(eq=False)
class PreparedCall:
    jitted: Jitted
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    program: Specialisation
    executable: Executable
    bound: BoundCall
    dims: dict[str, int]
    arrays: list[np.ndarray]
    signature: str
    is_new: bool  # compiled just now
    seconds: float  # to find the program: tracing and compiling if it is new

    @property
    def graph(self) -> Graph:
        return self.program.graph

    def storages(self) -> list[Storage]:
        """Memory of the arguments; of those that the program may overwrite, a copy."""
        donated = set(self.program.donated)
        return [
            Storage.from_numpy(np.array(a) if i in donated else a)
            for i, a in enumerate(self.arrays)
        ]

    def eager(self) -> list[np.ndarray]:
        """What the function gives when it is not compiled, of arrays as compiled functions get
        them."""
        arguments = self.jitted.signature.arguments(self.args, self.kwargs)
        args, kwargs = arguments.rebuild(
            [asarray(x) if isinstance(x, np.ndarray) else x for x in arguments.leaves]
        )
        results, _ = flatten(self.jitted.function(*args, **kwargs))
        return [np.asarray(r.memory if isinstance(r, Array) else r) for r in results]


def prepare(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> PreparedCall:
    jitted, args = as_jitted(function, args)
    arguments = jitted.signature.arguments(args, kwargs)
    given, _ = jitted._arrays(arguments)
    known = jitted.compiles
    start = time.perf_counter()
    bound = jitted.bind(arguments)
    executable = bound.program.executable
    if not isinstance(executable, Executable):
        name = type(executable).__name__
        raise TraceError(f"{jitted.signature.name}: compiled by {name}", hint="use td.jit")
    executable = executable.full()
    seconds = time.perf_counter() - start
    dims = dict(zip(executable.dims, bound.dims, strict=True))
    signature = jitted.signatures[list(jitted._programs.values()).index(bound.program)]
    arrays = [np.asarray(x.memory, order="C") for x in given]
    is_new = jitted.compiles > known
    return PreparedCall(
        jitted,
        args,
        kwargs,
        bound.program,
        executable,
        executable.bound(bound.dims),
        dims,
        arrays,
        signature,
        is_new,
        seconds,
    )


def as_jitted(
    function: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[Jitted, tuple[Any, ...]]:
    """The function compiled, as it is if it already was; a method's object is its first
    argument."""
    if isinstance(function, MethodType) and isinstance(function.__func__, Jitted):
        return function.__func__, (function.__self__, *args)
    return (function if isinstance(function, Jitted) else Jitted(function, NATIVE)), args
