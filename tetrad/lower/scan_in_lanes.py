"""Lowering, scans in lanes: a scan whose body works element by element becomes one kernel with the
loop inside.

A lane takes one element of the carries and walks it through all steps; the carries stay in
registers. Constants and xs may be read anywhere, since they do not change; a carry only at the
lane's own element. Carries without axes (a counter) are computed by every workgroup alike.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.machine import LANES
from tetrad.core.record import replace
from tetrad.core.sizes import Shape, ceil_div, product
from tetrad.core.types import row_strides
from tetrad.graph.nodes import Graph, Node
from tetrad.kernel.build import LocalVar, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.index import Space, offset
from tetrad.loopnest.reader import At
from tetrad.passes.plan_loop import LoopPlan, ScanLoop, loop_of
from tetrad.schedule.nodes import Launch


def lower_in_lanes(node: Node, plan: LoopPlan, memory: Memory) -> Launch:
    """One kernel for the whole scan."""
    loop, shape = loop_of(node), plan.lanes
    frame = Frame(f"scan_{work_name(loop.body)}", memory)
    kernel = Recurrence(frame, loop, shape)
    count = product(shape)
    if count == 1:
        kernel.run(tuple(frame.k.index(0) for _ in shape))
    else:
        position = frame.k.group_id() * LANES + frame.k.lane()
        with frame.within(position, frame.sizes.val(count), count):
            kernel.run(Space(frame.k, frame.sizes, shape, position).axes())
    work = sum(n.op.cost for n in loop.body.nodes() if n.op.kind == "elementwise")
    return replace(
        frame.finish(ceil_div(count, LANES), flops=count * loop.length * work), source=node.source
    )


def rounds(frame: Frame, loop: ScanLoop, step: Callable[[Val], None]) -> None:
    """All steps of a loop, `unroll` of them in each trip, and after those the rest."""
    length, together = frame.sizes.val(loop.length), loop.unroll
    whole = length - length % together if loop.leaves_steps else length
    with frame.k.loop(
        whole, 0, together, always=isinstance(loop.length, int) and loop.length > 0
    ) as first:
        for i in (first + number for number in range(together)):
            step(length - 1 - i if loop.reverse else i)
            frame.reading.forget()
    if loop.leaves_steps:
        with frame.k.loop(length, whole) as i:
            step(length - 1 - i if loop.reverse else i)


def work_name(body: Graph) -> str:
    return "_".join(dict.fromkeys(n.op.name for n in body.nodes() if n.op.kind == "elementwise"))[
        :50
    ]


class Recurrence:
    """The kernel of a scan under construction."""

    def __init__(self, frame: Frame, loop: ScanLoop, shape: Shape) -> None:
        self.frame, self.loop, self.shape = frame, loop, shape
        given = [frame.input(frame.memory.slots[i]) for i in loop.node.inputs]
        made = [frame.output(slot) for slot in frame.memory.results(loop.node)]
        first = loop.consts + loop.carries
        frame.reading.buffers.update(zip(loop.body.inputs[: loop.consts], given, strict=False))
        self.init, self.xs = given[loop.consts : first], given[first:]
        self.final, self.ys = made[: loop.carries], made[loop.carries :]

    def run(self, at: At) -> None:
        """All steps for the element at `at`."""
        k, loop = self.frame.k, self.loop
        state = [self.begin(c, b, at) for c, b in zip(loop.carried, self.init, strict=True)]
        rounds(self.frame, loop, lambda t: self.step(t, state, at))
        for carry, buffer, last in zip(loop.carried, self.final, state, strict=True):
            self.write(buffer, k.index(0), carry, at, k.cast(last.get(), carry.type.dtype))

    def begin(self, carry: Node, buffer: Buffer, at: At) -> LocalVar:
        value = self.frame.k.load(buffer, self.place(carry, at))
        return self.frame.k.local(self.frame.k.cast(value, carry.type.dtype.computing))

    def step(self, t: Val, state: list[LocalVar], at: At) -> None:
        k, loop, reading = self.frame.k, self.loop, self.frame.reading
        for carry, local in zip(loop.carried, state, strict=True):
            now = k.cast(local.get(), carry.type.dtype)
            reading.provided[carry] = lambda _, now=now: now  # type: ignore[misc]
        for row, buffer in zip(loop.rows, self.xs, strict=True):
            reading.provided[row] = self.reader(row, buffer, t)
        results = [reading.read(o, self.index_of(o, at)) for o in loop.body.outputs]
        stacked = loop.body.outputs[loop.carries :], self.ys, results[loop.carries :]
        for output, buffer, value in zip(*stacked, strict=True):
            self.write(buffer, t, output, at, value)
        for local, result in zip(state, results, strict=False):
            local.set(k.cast(result, result.dtype.computing))

    def reader(self, row: Node, buffer: Buffer, t: Val) -> Callable[[At], Val]:
        """xs[t] at any index."""
        sizes, shape = self.frame.sizes, row.type.shape
        start = t * sizes.val(product(shape))
        return lambda at: self.frame.k.load(
            buffer, start + offset(sizes, at, shape, row_strides(shape))
        )

    def index_of(self, node: Node, at: At) -> At:
        return at if node.type.shape else ()

    def place(self, node: Node, at: At) -> Val:
        return offset(
            self.frame.sizes, self.index_of(node, at), node.type.shape, row_strides(node.type.shape)
        )

    def write(self, buffer: Buffer, t: Val, node: Node, at: At, value: Val) -> None:
        """Row t of a result. One without axes is the same in every workgroup, and the first one's
        to write."""
        k = self.frame.k
        where = t * self.frame.sizes.val(product(node.type.shape)) + self.place(node, at)
        if node.type.shape or not self.shape:
            k.store(buffer, where, value)
            return
        with k.when(k.group_id().eq(0)):
            k.store(buffer, where, value, "same")
