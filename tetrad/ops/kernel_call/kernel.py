"""kernel_call, lowering: the user's program as one launch among the others.

Buffers that are read and written start as a copy of the operand; those that are only written start
as zeros, unless the program shows that it writes every element.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.machine import LANES
from tetrad.core.sizes import Size, ceil_div, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel import nodes as n
from tetrad.kernel.build import Val
from tetrad.kernel.grids.infer import writes_all
from tetrad.kernel.grids.ranges import Ranges
from tetrad.kernel.nodes import Buffer, Program
from tetrad.loopnest.frame import Frame, Memory
from tetrad.ops.kernel_call.op import guarded_program, kernel_call, storage_of, trap_error
from tetrad.schedule.nodes import Launch, Leaf, Slot, TrapSite

MOST_FLOPS = 1 << 50  # of a launch whose loops have no known end


@kernel_call.kernel
def lower_kernel_call(frame: Frame, group: Group) -> list[Leaf]:
    node, memory = group.root, frame.memory
    program = guarded_program(node.param("program"))
    places = slots_of(node, memory, program)
    steps = [
        step
        for buffer, (source, home) in places.items()
        if (step := begun(node, memory, program, buffer, source, home, group)) is not None
    ]
    return [*steps, launch_of(node, program, places, steps, group)]


Places = dict[Buffer, tuple[Slot | None, Slot]]  # what it starts with, where it is


def slots_of(node: Node, memory: Memory, program: Program) -> Places:
    """The slot of each storage buffer: of those that are written, that of the result."""
    given = iter([memory.slots[i] for i in node.inputs])
    single = len(node.types) == 1
    results = iter((memory.slots[node],) if single else memory.results(node))
    found: Places = {}
    for buffer in storage_of(program):
        source = None if buffer.access == "write" else next(given)
        home = next(results) if buffer.is_written else source
        if home is None:
            raise TypeError(f"{program.name}: {buffer.name} is neither read nor written")
        found[buffer] = (source, home)
    return found


def begun(
    node: Node,
    memory: Memory,
    program: Program,
    buffer: Buffer,
    source: Slot | None,
    home: Slot,
    group: Group,
) -> Launch | None:
    """The launch that gives a written buffer what it starts with; None if it needs nothing."""
    if not buffer.is_written:
        return None
    count = product(home.type.shape)
    if source is None and writes_all(
        program, buffer, count, dict(node.param("args")), node.param("grid")
    ):
        return None
    what = "clear" if source is None else "copy"
    frame = Frame(f"{program.name}_{what}", memory)
    read = None if source is None else frame.input(source)
    out, k = frame.output(home), frame.k

    def value(at: Val) -> Val:
        return k.const(0, buffer.dtype) if read is None else k.load(read, at)

    return filled(frame, out, count, value, group)


def filled(
    frame: Frame, out: Buffer, count: Size, value: Callable[[Val], Val], group: Group
) -> Launch:
    at = frame.k.group_id() * LANES + frame.k.lane()
    with frame.within(at, frame.sizes.val(count), count):
        frame.k.store(out, at, value(at))
    return frame.finish(ceil_div(count, LANES), group)


def launch_of(
    node: Node, program: Program, places: Places, steps: list[Launch], group: Group
) -> Launch:
    x, y, z = node.param("grid")
    named = dict(node.param("args"))
    written = frozenset(home for buffer, (_, home) in places.items() if buffer.is_written)
    return Launch(
        program,
        tuple(home for _, home in places.values()),
        {name: named[name] for name in program.args},
        x * y * z,
        written,
        updates=written & frozenset(slot for step in steps for slot in step.writes),
        traps={trap.code: trap_site(program, trap, node) for trap in traps_of(program)},
        flops=operations(program, named, (x, y, z)),
        source=node.source,
        group=group,
        extents=None if (y, z) == (1, 1) else (x, y),
    )


def traps_of(program: Program) -> list[n.Trap]:
    return [instr for instr in n.walk(program.body) if isinstance(instr, n.Trap)]


def trap_site(program: Program, trap: n.Trap, node: Node) -> TrapSite:
    name, code = program.name, trap.code
    return TrapSite(
        name,
        f"{name}: trap {code}, value {{value}}",
        node.source,
        explain=lambda value: trap_error(name, code, value),
    )


def operations(program: Program, args: dict[str, Size], grid: tuple[Size, ...]) -> Size:
    """Roughly; where sizes are not known yet, as if loops ran once."""
    x, y, z = (size if isinstance(size, int) else 1 for size in grid)
    known = {name: size for name, size in args.items() if isinstance(size, int)}
    each = min(Ranges(program, known, (x, y, z), {}).operations, MOST_FLOPS)
    total: Size = product(grid) * program.lanes * int(each)
    return min(total, MOST_FLOPS) if isinstance(total, int) else total
