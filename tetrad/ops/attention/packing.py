"""Lowering, attention over arrays: keys and values of a kv head copied once into the orders in
which tiles read them.

`Packed` says what is copied and where it lies; `launch` writes the kernel that copies. Columns lie
as [B*G, S/16, channels, 16] (a lane is a key), rows as [B*G, S, channels] (a lane is a channel),
both in the type that accumulates, zero behind the end. Where keys can be hidden, numbers that are
not finite are 0 in rows, and the key has a flag: NaN, the start of its scores.
"""

from __future__ import annotations

from tetrad.core.dtypes import DType
from tetrad.core.machine import LANES
from tetrad.core.record import record
from tetrad.core.sizes import Size, ceil_div, is_multiple, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.index import Space
from tetrad.loopnest.transpose import turned
from tetrad.ops.attention.dense import Form, accumulator
from tetrad.schedule.nodes import Launch, Slot

KEYS_TOGETHER = 32  # keys are padded to a multiple: tiles take one or two vectors of them


def padded(channels: int) -> int:
    """Channels in whole vectors."""
    return -(-channels // LANES) * LANES


def padded_keys(form: Form) -> Size:
    return ceil_div(form.keys, KEYS_TOGETHER) * KEYS_TOGETHER


@record
class Packed:
    """Copies of one operand (1: keys, 2: values); None: nobody asks for it."""

    operand: int
    columns: Slot | None
    rows: Slot | None


class Packing:
    """The copies of a node's keys and values, and the kernel that makes them."""

    def __init__(self, group: Group, form: Form, memory: Memory, wanted: dict[int, str]) -> None:
        """`wanted`: for an operand, "columns", "rows" or both words."""
        self.group, self.node, self.form, self.memory = group, group.root, form, memory
        self.dtype: DType = accumulator(self.node.inputs[0].type.dtype)
        self.packed = [self.slots_of(operand, how) for operand, how in wanted.items()]
        shape = product((form.batch, form.groups)), padded_keys(form)
        self.flags = memory.temp("flags", self.dtype, *shape) if form.hides else None

    def slots_of(self, operand: int, how: str) -> Packed:
        lines = product((self.form.batch, self.form.groups))
        channels, name = self.channels(operand), "qkv"[operand]
        made = {
            which: self.memory.temp(
                f"{name}_{which}", self.dtype, lines, padded_keys(self.form), count
            )
            for which, count in (("columns", channels), ("rows", padded(channels)))
        }
        return Packed(operand, *(made[w] if w in how else None for w in ("columns", "rows")))

    def channels(self, operand: int) -> int:
        return self.form.channels if operand == 1 else self.form.width

    def slot(self, operand: int, which: str) -> Slot:
        found = next(p for p in self.packed if p.operand == operand)
        slot: Slot | None = getattr(found, which)
        if slot is None:
            raise TypeError(f"{which} of operand {operand} are not packed")
        return slot

    def launch(self) -> Launch:
        """A workgroup copies 16 keys of a kv head."""
        frame = Frame(self.group.name + "_pack", self.memory)
        frame.reads([self.node.inputs[p.operand] for p in self.packed])
        vectors = ceil_div(self.form.keys, KEYS_TOGETHER) * (KEYS_TOGETHER // LANES)
        grid = (product((self.form.batch, self.form.groups)), vectors)
        Copier(self, frame, Space(frame.k, frame.sizes, grid, frame.k.group_id())).run()
        return frame.finish(product(grid), self.group)


class Copier:
    """Sixteen keys of a kv head, copied by one workgroup."""

    def __init__(self, packing: Packing, frame: Frame, position: Space) -> None:
        self.packing, self.form, self.frame = packing, packing.form, frame
        self.k: KernelBuilder = frame.k
        self.vector, self.first = position.flat, position.span(1, 2) * LANES
        line = Space(self.k, frame.sizes, (self.form.batch, self.form.groups), position.span(0, 1))
        self.batch, self.head = line.axes()
        self.keys = frame.sizes.val(self.form.keys)
        self.is_even = is_multiple(self.form.keys, KEYS_TOGETHER)
        self.square = frame.scratch("square", packing.dtype, LANES * LANES)

    def run(self) -> None:
        k = self.k
        flag = k.local(0.0, self.packing.dtype)
        for packed in self.packing.packed:
            node, channels = (
                self.packing.node.inputs[packed.operand],
                self.packing.channels(packed.operand),
            )
            columns, rows = (
                self.frame.output(slot) if slot else None for slot in (packed.columns, packed.rows)
            )
            with k.loop(padded(channels), 0, LANES) as channel:
                self.copy(node, channels, channel, columns, rows, flag)
        if self.packing.flags is not None:
            flags = self.frame.output(self.packing.flags)
            k.store(flags, self.vector * LANES + k.lane(), flag)

    def copy(
        self,
        node: Node,
        channels: int,
        channel: Val,
        columns: Buffer | None,
        rows: Buffer | None,
        flag: LocalVar,
    ) -> None:
        """Sixteen channels of the sixteen keys: read along channels, turned by way of scratch."""
        k, lane = self.k, self.k.lane()
        k.barrier()
        with k.loop(LANES, always=True) as i:
            value = self.element(node, channels, self.first + i, channel + lane)
            k.store(self.square, i * LANES + lane, value)
            if rows is not None:
                where = (self.vector * LANES + i) * padded(channels) + channel + lane
                k.store(rows, where, self.cleaned(value))
        k.barrier()
        if columns is None and not self.form.hides:
            return
        square = [k.load(self.square, i * LANES + lane) for i in range(LANES)]
        for c, column in enumerate(turned(k, square)):
            flag.set(k.fma(column, 0.0, flag))
            if columns is not None:
                where = (self.vector * channels + channel + c) * LANES + lane
                self.store_column(columns, where, column, channel + c, channels)

    def element(self, node: Node, channels: int, key: Val, channel: Val) -> Val:
        """Zero behind the last key and the last channel."""
        k, dtype, at = self.k, self.packing.dtype, self.form.at(self.batch, key, self.head, channel)
        inside = [channel < channels] if channels % LANES else []
        inside += [] if self.is_even else [key < self.keys]
        if not inside:
            return k.cast(self.frame.reading.wide(node, at), dtype)
        value = k.local(0.0, dtype)
        with k.when(inside[0] if len(inside) == 1 else inside[0] & inside[1], guard=True):
            value.set(k.cast(self.frame.reading.wide(node, at), dtype))
        return value.get()

    def store_column(
        self, columns: Buffer, where: Val, column: Val, channel: Val, channels: int
    ) -> None:
        if channels % LANES == 0:
            self.k.store(columns, where, column)
            return
        with self.k.when(channel < channels):
            self.k.store(columns, where, column)

    def cleaned(self, value: Val) -> Val:
        """0 for what is not finite, where it might meet a weight of 0."""
        return finite_or_zero(self.k, value) if self.form.hides else value


def finite_or_zero(k: KernelBuilder, value: Val) -> Val:
    return k.select((value - value).eq(0.0), value, 0.0)
