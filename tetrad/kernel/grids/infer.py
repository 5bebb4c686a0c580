"""Kernel language, grids: how many workgroups a program means when nobody says, and what a grid
leaves out.

Receives a program and the element counts of its buffers, which may be sizes with Dims; returns a
grid where the program itself shows it, and None where guessing would be needed. `grids.ranges`
finds outputs that a given grid cannot reach.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tetrad.core.sizes import Size, ceil_div
from tetrad.kernel import nodes as n

Grid = tuple[Size, Size, Size]
Linear = dict[str, int]  # factors of "group", "local" and "one"; axis x only


def infer_grid(program: n.Program, counts: Mapping[n.Buffer, Size]) -> Grid | None:
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
    if not is_along_x(program, ids) or not stores or len(sizes) != 1:
        return None
    if any(s.buffer.is_scratch or not is_own_position(s.at, program.lanes) for s in stores):
        return None
    return (ceil_div(sizes.pop(), program.lanes), 1, 1)


def is_along_x(program: n.Program, ids: list[n.Id]) -> bool:
    return not any(i.axis > 0 for i in ids) and program.workgroup[0] == program.lanes


# -- every element ---------------------------------------------------------------------------------


def writes_all(
    program: n.Program, buffer: n.Buffer, count: Size, args: Mapping[str, Size], grid: Grid
) -> bool:
    """Is every element of the buffer written for certain? Then it need not hold zeros before.

    It is when each invocation stores to its own position, and only those beyond the end do not.
    """
    instrs = list(n.walk(program.body))
    if not is_along_x(program, [i for i in instrs if isinstance(i, n.Id)]):
        return False
    if any(isinstance(i, n.Return) for i in instrs) or not reaches(grid, program, count):
        return False
    certain = unconditional(program.body, program.lanes, count, args)
    return any(s.buffer is buffer and is_own_position(s.at, program.lanes) for s in certain)


def reaches(grid: Grid, program: n.Program, count: Size) -> bool:
    """Are there as many invocations along x as elements?"""
    x, y, z = grid
    if isinstance(x, int) and isinstance(count, int):
        return x * program.lanes >= count and y != 0 and z != 0
    return (y, z) == (1, 1) and bool(x == ceil_div(count, program.lanes))


def unconditional(
    block: n.Block, lanes: int, count: Size, args: Mapping[str, Size]
) -> Iterator[n.Store]:
    """The stores that every invocation with a position below `count` comes to."""
    for instr in block:
        if isinstance(instr, n.Store):
            yield instr
        elif isinstance(instr, n.Region):
            yield from unconditional(instr.body, lanes, count, args)
        elif isinstance(instr, n.If) and is_below_end(instr.cond, lanes, count, args):
            yield from unconditional(instr.then, lanes, count, args)


def is_below_end(cond: n.Value, lanes: int, count: Size, args: Mapping[str, Size]) -> bool:
    """Does the condition hold for every position below `count`?"""
    if not isinstance(cond, n.Compare) or cond.op != "lt" or not is_own_position(cond.lhs, lanes):
        return False
    end: Size | None = None
    if isinstance(cond.rhs, n.Const):
        end = int(cond.rhs.value)
    elif isinstance(cond.rhs, n.Arg):
        end = args.get(cond.rhs.name)
    if isinstance(end, int) and isinstance(count, int):
        return end >= count
    return end is not None and bool(end == count)


# -- positions -------------------------------------------------------------------------------------


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
