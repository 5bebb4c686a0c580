"""Kernel language, cost: an estimate of what one launch of a program does.

Receives a program, its grid and its index arguments; returns the flops of all invocations and the
bytes of its buffers. Behind a guard of the form position < size stand as many invocations as the
size says; other branches count as taken. A loop counts its trips where its bounds follow from
literals and arguments, else once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tetrad.core.record import record
from tetrad.core.sizes import bind, dims_of
from tetrad.kernel import nodes as n
from tetrad.kernel.grids.infer import is_along_x, is_own_position

FLOPS: dict[type[n.Instr], int] = {n.Binary: 1, n.Unary: 1, n.Fma: 2, n.Dot4: 8, n.Dot2: 4}
_BOUND: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a // b if b > 0 else 0,
    "mod": lambda a, b: a % b if b > 0 else 0,
    "min": min,
    "max": max,
}


@record
class KernelCost:
    """Of one launch: arithmetic on floats (a fused multiply-add is two, a four-way dot product of
    bytes eight), and the bytes of all buffers that are read and written, each counted once."""

    flops: int
    bytes_read: int
    bytes_written: int

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written


def cost_of(program: n.Program, grid: tuple[int, int, int], args: Mapping[str, int]) -> KernelCost:
    """
    >>> from tetrad.kernel import registry
    >>> cost_of(registry.entry("tetrad::math::add").build(), (1, 1, 1), {})
    KernelCost(flops=5, bytes_read=40, bytes_written=20)
    """
    invocations = grid[0] * grid[1] * grid[2] * program.lanes
    along_x = is_along_x(program, [i for i in n.walk(program.body) if isinstance(i, n.Id)])
    lanes = program.lanes if along_x and grid[1:] == (1, 1) else None
    sizes = {b: nbytes(b, args) for b in program.buffers if not b.is_scratch}
    return KernelCost(
        flops_of(program.body, args, invocations, lanes),
        sum(size for b, size in sizes.items() if b.access != "write"),
        sum(size for b, size in sizes.items() if b.is_written),
    )


def nbytes(buffer: n.Buffer, args: Mapping[str, int]) -> int:
    """0 where only the launch knows."""
    known = buffer.count is not None and {d.name for d in dims_of(buffer.count)} <= args.keys()
    return bind(buffer.count, args) * buffer.dtype.nbytes if buffer.count and known else 0


def flops_of(block: n.Block, args: Mapping[str, int], invocations: int, lanes: int | None) -> int:
    """Of all invocations that come to the block. `lanes` of a workgroup, if positions lie along
    x."""
    total = 0
    for instr in block:
        there = behind(instr, args, invocations, lanes)
        inner = sum(flops_of(arm, args, there, lanes) for arm in n.inner_blocks(instr))
        total += inner * (trips(instr, args) if isinstance(instr, n.For) else 1)
        if isinstance(instr, n.Value) and (instr.dtype.is_float or isinstance(instr, n.Dot4)):
            total += FLOPS.get(type(instr), 0) * invocations
    return total


def behind(instr: n.Instr, args: Mapping[str, int], invocations: int, lanes: int | None) -> int:
    """How many of the invocations come to what is inside the instruction."""
    if lanes is None or not isinstance(instr, n.If) or instr.orelse:
        return invocations
    cond = instr.cond
    if not isinstance(cond, n.Compare) or cond.op != "lt" or not is_own_position(cond.lhs, lanes):
        return invocations
    end = bound(cond.rhs, args)
    return invocations if end is None else max(0, min(invocations, end))


def trips(loop: n.For, args: Mapping[str, int]) -> int:
    start, stop = bound(loop.start, args), bound(loop.stop, args)
    return 1 if start is None or stop is None else max(0, -(-(stop - start) // loop.step))


def bound(value: n.Value, args: Mapping[str, int]) -> int | None:
    """A loop bound as a number, or None."""
    if isinstance(value, n.Const):
        return int(value.value)
    if isinstance(value, n.Arg):
        return args.get(value.name)
    if not isinstance(value, n.Binary) or value.op not in _BOUND:
        return None
    a, b = bound(value.lhs, args), bound(value.rhs, args)
    combined: Any = None if a is None or b is None else _BOUND[value.op](a, b)
    return combined  # type: ignore[no-any-return]
