"""Kernels, attention over arrays: keys and values of a kv head copied once into the orders in
which tiles read them.

Columns lie as [S/16, channels, 16] (a lane is a key), rows as [S, channels] (a lane is a channel),
both in the type that accumulates, zero behind the end. Where keys can be hidden, numbers that are
not finite are 0 in rows, and the key has a flag: NaN, the start of its scores. `Stored` is a launch
that copies everything, for kernels in which many workgroups read a kv head; `NearCopies` copies a
block of keys into the scratch of the one that does.
"""

from __future__ import annotations

from typing import Any

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
from tetrad.ops.attention.dense import AttentionForm, accumulator
from tetrad.ops.attention.op import KEYS
from tetrad.schedule.nodes import Launch

COLUMNS, ROWS = "columns", "rows"
Wanted = tuple[tuple[int, str], ...]  # operand (1: keys, 2: values) and order


def padded(channels: int) -> int:
    """Channels in whole vectors."""
    return -(-channels // LANES) * LANES


def finite_or_zero(k: KernelBuilder, value: Val) -> Val:
    return k.select((value - value).eq(0.0), value, 0.0)


@record
class CopyPlan:
    """What is copied: of a node, in which orders; keys are padded to a multiple of `together`."""

    node: Node
    form: AttentionForm
    wanted: Wanted
    together: int

    @property
    def dtype(self) -> DType:
        return accumulator(self.node.inputs[0].type.dtype)

    @property
    def keys(self) -> Size:
        return ceil_div(self.form.keys, self.together) * self.together

    def channels(self, operand: int) -> int:
        return self.form.channels if operand == 1 else self.form.width

    def width(self, operand: int, order: str) -> int:
        """Elements of a key in a copy."""
        return self.channels(operand) if order == COLUMNS else padded(self.channels(operand))


class Copies:
    """Buffers of copies, as a kernel reads them: `origin` is where the block that was opened last
    begins, in keys."""

    def __init__(self, buffers: dict[tuple[int, str], Buffer], flags: Buffer | None) -> None:
        self.buffers, self.flags = buffers, flags

    def origin(self, base: Val) -> Val:
        raise NotImplementedError

    def open(self, base: Val, first: Val, stop: Val) -> None:
        """From now on the block that begins with key `base`; of it, keys from first to stop (whole
        steps of vectors, counted from there) are read."""


# -- in memory -------------------------------------------------------------------------------------


class Stored(Copies):
    """Copies of all keys of all kv heads, in memory between two launches."""

    def __init__(self, plan: CopyPlan, group: Group, memory: Memory) -> None:
        super().__init__({}, None)
        self.plan, self.group, self.memory = plan, group, memory
        self.lines = product((plan.form.batch, plan.form.groups))
        self.slots = {
            (operand, order): memory.temp(
                f"{'qkv'[operand]}_{order}", plan.dtype, self.lines, plan.keys,
                plan.width(operand, order),
            )
            for operand, order in plan.wanted
        }  # fmt: skip
        is_flagged = plan.form.hides
        self.flag_slot = (
            memory.temp("flags", plan.dtype, self.lines, plan.keys) if is_flagged else None
        )

    def launches(self) -> list[Launch]:
        """A workgroup copies 16 keys of a kv head."""
        plan = self.plan
        if plan.form.keys == 0:
            return []
        frame = Frame(self.group.name + "_pack", self.memory)
        frame.reads([plan.node.inputs[operand] for operand in dict(plan.wanted)])
        buffers = {which: frame.output(slot) for which, slot in self.slots.items()}
        flags = frame.output(self.flag_slot) if self.flag_slot is not None else None
        grid = (self.lines, ceil_div(plan.form.keys, plan.together) * (plan.together // LANES))
        position = Space(frame.k, frame.sizes, grid, frame.k.group_id())
        places = (plan.form.batch, plan.form.groups)
        line = Space(frame.k, frame.sizes, places, position.span(0, 1))
        copier = Copier(frame, plan, buffers, flags, line.span(0, 1), line.span(1, 2))
        copier.copy(position.span(1, 2) * LANES, position.flat)
        return [frame.finish(product(grid), self.group)]

    def read_by(self, frame: Frame, line: Val) -> None:
        """Buffers of the kernel that reads them, for one kv head."""
        self.buffers = {which: frame.input(slot) for which, slot in self.slots.items()}
        self.flags = frame.input(self.flag_slot) if self.flag_slot is not None else None
        self.first = line * frame.sizes.val(self.plan.keys)

    def origin(self, base: Val) -> Val:
        return self.first + base


# -- in scratch ------------------------------------------------------------------------------------


class NearCopies(Copies):
    """Copies of one block of keys of a kv head, in the scratch of the workgroup that reads it."""

    def __init__(self, plan: CopyPlan, frame: Frame, batch: Val, head: Val) -> None:
        keys = plan.keys if isinstance(plan.keys, int) and plan.keys < KEYS else KEYS
        buffers = {
            (operand, order): frame.scratch(
                f"{'qkv'[operand]}_{order}", plan.dtype, keys * plan.width(operand, order)
            )
            for operand, order in plan.wanted
        }
        flags = frame.scratch("flags", plan.dtype, keys) if plan.form.hides else None
        super().__init__(buffers, flags)
        self.k = frame.k
        self.copier = self.copier_of(frame, plan, buffers, flags, batch, head)

    def copier_of(self, *given: Any) -> Copier:
        return Copier(*given)

    def origin(self, base: Val) -> Val:
        return self.k.index(0)

    def open(self, base: Val, first: Val, stop: Val) -> None:
        k = self.k
        k.barrier()
        with k.loop(stop // LANES, first // LANES) as vector:
            self.copier.copy(base + vector * LANES, vector)
        k.barrier()


# -- sixteen keys ----------------------------------------------------------------------------------


class Copier:
    """Copies sixteen keys of a kv head at a time."""

    def __init__(
        self,
        frame: Frame,
        plan: CopyPlan,
        buffers: dict[tuple[int, str], Buffer],
        flags: Buffer | None,
        batch: Val,
        head: Val,
    ) -> None:
        self.frame, self.k, self.plan, self.form = frame, frame.k, plan, plan.form
        self.buffers, self.flags, self.batch, self.head = buffers, flags, batch, head
        self.keys = frame.sizes.val(plan.form.keys)
        self.is_even = is_multiple(plan.form.keys, plan.together)
        self.square = frame.scratch("square", plan.dtype, LANES * LANES)

    def copy(self, key: Val, vector: Val) -> None:
        """The keys from `key` on become a vector of columns and sixteen rows, and their flags."""
        k = self.k
        flag = k.local(0.0, self.plan.dtype)
        for operand in dict(self.plan.wanted):
            with k.loop(padded(self.plan.channels(operand)), 0, LANES) as channel:
                self.copy_square(operand, key, vector, channel, flag)
        if self.flags is not None:
            k.store(self.flags, vector * LANES + k.lane(), flag)

    def copy_square(
        self, operand: int, key: Val, vector: Val, channel: Val, flag: LocalVar
    ) -> None:
        """Sixteen channels: read along channels, turned by way of scratch."""
        k, lane = self.k, self.k.lane()
        columns, rows = (self.buffers.get((operand, order)) for order in (COLUMNS, ROWS))
        is_turned, channels = columns is not None or self.form.hides, self.plan.channels(operand)
        k.barrier()
        with k.loop(LANES, always=True) as i:
            value = self.element(operand, key + i, channel + lane)
            if is_turned:
                k.store(self.square, i * LANES + lane, value)
            if rows is not None:
                where = (vector * LANES + i) * padded(channels) + channel + lane
                k.store(rows, where, finite_or_zero(k, value) if self.form.hides else value)
        k.barrier()
        if not is_turned:
            return
        square = [k.load(self.square, i * LANES + lane) for i in range(LANES)]
        for c, column in enumerate(turned(k, square)):
            if self.flags is not None:
                flag.set(k.fma(column, 0.0, flag))
            if columns is not None:
                where = (vector * channels + channel + c) * LANES + lane
                self.store_column(columns, where, column, channel + c, channels)

    def element(self, operand: int, key: Val, channel: Val) -> Val:
        """Zero behind the last key and the last channel."""
        k, node, channels = self.k, self.plan.node.inputs[operand], self.plan.channels(operand)
        at, dtype = self.form.at(self.batch, key, self.head, channel), self.plan.dtype
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
