"""The public transforms: `jit`, bound to the native engine.

Receives functions, returns functions. What runs compiled programs is loaded with the first function
that `jit` wraps, the compiler (and with it LLVM) by the first compilation, so that importing the
package stays quick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tetrad.backends import backend_named
from tetrad.compiler.jit import Compiled, Jitted
from tetrad.core import lazy
from tetrad.core.backend import Backend
from tetrad.graph.nodes import Graph


class NativeEngine:
    """Compiles for a back end, which is loaded when it is first used."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def backend(self) -> Backend:
        return backend_named(self.name, "jit")

    @cached_property
    def from_numpy(self) -> Callable[[np.ndarray], Any]:
        return self.backend.storage

    def prepare(self) -> None:
        self.backend.prepare()

    def compile_graph(self, graph: Graph, donated: tuple[int, ...]) -> Compiled:
        compiled: Compiled = lazy.module("tetrad.compiler.program_cache").compile_graph(
            graph, donated
        )
        return compiled


NATIVE = NativeEngine("cpu")


def jit(
    function: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    donate_argnames: str | Sequence[str] = (),
    dims: Any = None,
) -> Any:
    """Compile a function of arrays. It is traced once per signature: dtypes, shapes, containers and
    static values.

    static_argnums, static_argnames   arguments that are hashable settings, not arrays
    donate_argnums, donate_argnames   arguments whose memory may become a result; they cannot be
                                      used afterwards
    dims                              per argument {axis: Dim}: these axes may have any size, with
                                      one program for all

    >>> import tetrad as td
    >>> jit(lambda x: 2 * x + 1)(td.asarray([1.0, 2.0]))
    Array([3., 5.], float32)
    """
    settings: dict[str, Any] = {
        "static_argnums": static_argnums, "static_argnames": static_argnames,
        "donate_argnums": donate_argnums, "donate_argnames": donate_argnames, "dims": dims,
    }  # fmt: skip
    lazy.module("tetrad.compiler.program_cache")
    if function is None:
        return lambda wrapped: Jitted(wrapped, NATIVE, **settings)
    return Jitted(function, NATIVE, **settings)
