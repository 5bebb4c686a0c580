"""Loop nests, frame: the buffers around a kernel body, and the launch it becomes.

Receives a group and the slots of materialised nodes; a generator writes the body with `k`; `finish`
returns the `Launch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from tetrad.core.dtypes import DType
from tetrad.core.machine import LANES, Machine
from tetrad.core.record import record
from tetrad.core.sizes import Size, ceil_div, product
from tetrad.core.types import ArrayType, row_strides
from tetrad.graph.build import item
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.complex import held_as, store_parts
from tetrad.loopnest.index import Sizes, offset
from tetrad.loopnest.reader import At, Reading, splat_value
from tetrad.schedule.build import temp_slot
from tetrad.schedule.nodes import Launch, Slot

STREAM_BYTES = 8 << 20  # larger results leave the cache before they are read again
# name of constants that depend on settings and types alone: equal groups share them
TABLE = "table"


@record
class Memory:
    """The slots of materialised nodes; creates further temporary slots."""

    slots: Mapping[Node, Slot]
    machine: Machine

    def temp(self, name: str, dtype: DType, *shape: Size) -> Slot:
        return temp_slot(name, ArrayType(dtype, tuple(shape)))

    def results(self, node: Node) -> tuple[Slot, ...]:
        """The slots a node with several results writes to: those of its items; results that nobody
        reads get temporary ones."""
        found = {
            m.param("index"): s
            for m, s in self.slots.items()
            if m.op is item and m.inputs[0] is node
        }
        spare = (
            self.temp(f"unused{i}", kind.dtype, *kind.shape) for i, kind in enumerate(node.types)
        )
        return tuple(found.get(i, slot) for i, slot in enumerate(spare))


class Frame:
    """One kernel under construction."""

    def __init__(
        self, name: str, memory: Memory, lanes: int = LANES, inputs: Iterable[Node] = ()
    ) -> None:
        self.k = KernelBuilder(name, lanes)
        self.sizes = Sizes(self.k)
        self.reading = Reading(self.k, self.sizes)
        self.memory, self.inputs = memory, list(inputs)  # what the group reads from memory
        self.slots: list[Slot] = []
        self.writes: set[Slot] = set()
        self.scratches = 0
        # with little work per element memory is the bottleneck: large results bypass the caches
        self.is_light = False

    def reads(self, nodes: Iterable[Node]) -> None:
        """Declare a buffer for every node that is read from memory; a constant with one value needs
        none. Of a node without memory, which is computed as it is read, for what it reads."""
        for node in nodes:
            if splat_value(node) is not None or node in self.reading.buffers:
                continue
            if node in self.memory.slots:
                self.reading.buffers[node] = self.input(self.memory.slots[node])
            else:
                self.reads(node.inputs)

    def input(self, slot: Slot) -> Buffer:
        return self.buffer(slot, "read", "x")

    def view(self, slot: Slot, dtype: DType, access: str = "read") -> Buffer:
        """A slot's memory as elements of another dtype: blocks of quantised types are read as
        words."""
        if access != "read":
            self.writes.add(slot)
        nbytes = slot.type.nbytes
        count = (
            nbytes // dtype.nbytes if isinstance(nbytes, int) else ceil_div(nbytes, dtype.nbytes)
        )
        made = self.k.buffer(
            f"{'x' if access == 'read' else 'y'}{len(self.slots)}", dtype, access, count
        )
        self.slots.append(slot)
        return made

    def output(self, slot: Slot, access: str = "write") -> Buffer:
        self.writes.add(slot)
        return self.buffer(slot, access, "y")

    def buffer(self, slot: Slot, access: str, letter: str) -> Buffer:
        dtype, each = held_as(slot.type.dtype)
        count = product(slot.type.storage_shape) * each
        made = self.k.buffer(f"{letter}{len(self.slots)}", dtype, access, count)
        self.slots.append(slot)
        return made

    def scratch(self, stem: str, dtype: DType, count: Size) -> Buffer:
        """Memory shared by the lanes of a workgroup, under a unique name; at least one element."""
        return self.k.scratch(*self.of_workgroup(stem, dtype, count))

    def private(self, stem: str, dtype: DType, count: Size) -> Buffer:
        """Scratch of which a lane accesses only elements lane, lane + LANES, ...: no barrier is
        needed."""
        return self.k.private(*self.of_workgroup(stem, dtype, count))

    def of_workgroup(self, stem: str, dtype: DType, count: Size) -> tuple[str, DType, Size]:
        self.scratches += 1
        self.sizes.need(count)
        return f"{stem}{self.scratches}", dtype, max(count, 1) if isinstance(count, int) else count

    @contextmanager
    def within(self, lane: Val, end: Val, size: Size, width: int = LANES) -> Iterator[None]:
        """Only lanes before `end`. No test is needed if the size is a multiple of `width` (one
        vector or more)."""
        if isinstance(size, int) and size % width == 0:
            yield
            return
        with self.k.when(lane < end, guard=True):
            yield

    @contextmanager
    def every_lane(self, count: Val, size: Size) -> Iterator[Val]:
        """A loop over `count` positions (at least one) of an axis of this size; each lane takes one
        position."""
        with self.k.loop(count, 0, LANES, always=True) as first:
            lane = first + self.k.lane()
            with self.within(lane, count, size):
                yield lane

    def write(self, buffer: Buffer, node: Node, at: At, *value: Val) -> None:
        """buffer[at] = value, for a buffer that holds all of `node`. A complex number has two
        parts."""
        where = offset(self.sizes, at, node.type.shape, row_strides(node.type.shape))
        if len(value) == 2:
            store_parts(self.k, buffer, where, *value, self.hint(node))
        else:
            self.k.store(buffer, where, value[0], self.hint(node))

    def hint(self, node: Node) -> str:
        nbytes = node.type.nbytes
        large = isinstance(nbytes, int) and nbytes >= STREAM_BYTES
        return "stream" if large and self.is_light else ""

    def finish(self, groups: Size, group: Group | None = None, **fields: object) -> Launch:
        return Launch(
            self.k.finish(),
            tuple(self.slots),
            dict(self.sizes.formulas),
            groups,
            frozenset(self.writes),
            traps=dict(self.reading.traps),
            source=group.root.source if group else None,
            group=group,
            **fields,  # type: ignore[arg-type]
        )
