"""Compiler, grids: how many workgroups a program means when nobody says.

Receives a program and the element counts of its buffers; returns a grid where the program itself
shows it (one invocation per output element along x, or no look at the workgroup id at all), and
None where guessing would be needed.
"""

from __future__ import annotations

from collections.abc import Mapping

from tetrad.kernel import nodes as n

Grid = tuple[int, int, int]
Linear = dict[str, int]  # factors of "group", "local" and "one"; axis x only


def infer_grid(program: n.Program, counts: Mapping[n.Buffer, int]) -> Grid | None:
    """The grid, or None when the program does not show it.

    A program without group ids does the same in every workgroup: one is enough. Otherwise every
    store must go to the position of its own invocation, and all outputs must be of one size.
    """
    instrs = list(n.walk(program.body))
    ids = [i for i in instrs if isinstance(i, n.Id)]
    if not any(i.which == "group" for i in ids):
        return (1, 1, 1)
    if any(isinstance(i, n.Atomic) for i in instrs):
        return None  # its outputs do not show how many invocations there are
    stores = [s for s in instrs if isinstance(s, n.Store)]
    sizes = {counts[b] for b in program.buffers if b.is_written}
    along_x = not any(i.axis > 0 for i in ids) and program.workgroup[0] == program.lanes
    if not along_x or not stores or len(sizes) != 1 or any(s.buffer.is_scratch for s in stores):
        return None
    if not all(is_own_position(s.at, program.lanes) for s in stores):
        return None
    return (-(-sizes.pop() // program.lanes), 1, 1)


def is_own_position(at: n.Value, lanes: int) -> bool:
    """Is this group * lanes + local?"""
    form = linear(at)
    if form is None or form.get("one", 0) != 0 or form.get("group", 0) != lanes:
        return False
    return lanes == 1 or form.get("local", 0) == 1


def linear(value: n.Value) -> Linear | None:
    """The value as a sum of factors times ids, when it is one."""
    if isinstance(value, n.Const):
        return {"one": int(value.value)}
    if isinstance(value, n.Id):
        return {value.which: 1}
    if not isinstance(value, n.Binary) or value.op not in ("add", "mul"):
        return None
    left, right = linear(value.lhs), linear(value.rhs)
    if left is None or right is None:
        return None
    return added(left, right) if value.op == "add" else scaled(left, right)


def added(left: Linear, right: Linear) -> Linear:
    return {key: left.get(key, 0) + right.get(key, 0) for key in left | right}


def scaled(left: Linear, right: Linear) -> Linear | None:
    """A product is linear when one side is a number."""
    if set(left) == {"one"}:
        left, right = right, left
    return (
        {key: factor * right["one"] for key, factor in left.items()}
        if set(right) == {"one"}
        else None
    )
