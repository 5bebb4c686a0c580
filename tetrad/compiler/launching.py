"""The public door to kernels: `dispatch`. The compiler, and LLVM with it, is loaded by the first
call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tetrad.core import lazy
from tetrad.kernel.nodes import Program


def dispatch(
    program: Program,
    inputs: Sequence[bytes | bytearray | memoryview],
    grid: tuple[int, int, int] | None = None,
    backend: str = "cpu",
    *,
    args: Mapping[str, int] | None = None,
) -> list[bytes]:
    """Run a kernel over `grid` workgroups (x, y, z); the bytes of every buffer it writes, in order
    of declaration.

    inputs   one byte string for each buffer with access read or readwrite, in order of declaration
    grid     None: one invocation per element of the output, where the program shows that it means
             that
    args     the value of each index argument

    Loads out of range give 0, stores out of range do nothing, buffers that are only written and
    scratch start as zeros.

    >>> import tetrad as td
    >>> k = td.kernel.build("increment")
    >>> x, y = k.buffer("x", td.uint8), k.buffer("y", td.uint8, "write", count=4)
    >>> k.store(y, k.global_id(), k.load(x, k.global_id()) + 1)
    >>> dispatch(k.finish(), [bytes([1, 2, 3, 255])])
    [b'\\x02\\x03\\x04\\x00']
    """
    result: list[bytes] = lazy.module("tetrad.compiler.dispatch").dispatch(
        program, inputs, grid, backend, args=args
    )
    return result
