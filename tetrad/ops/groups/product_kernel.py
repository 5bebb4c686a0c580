"""Kernels of sums over groups of a product: its elements are made, multiplied with what the codes
stand for and added up without being stored.

Where groups lie along the rows, lanes run along the columns of some rows, which share what is read
of the right side; else a lane takes a group.
"""

from __future__ import annotations

from tetrad.core.dtypes import f32
from tetrad.core.machine import LANES
from tetrad.core.sizes import ceil_div, plain, product
from tetrad.graph.group import Group
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame
from tetrad.ops.groups.decode import unscaled
from tetrad.schedule.nodes import Launch

ROWS = 4  # of the product in a tile
RUN = 8  # rows of a workgroup


def lower_product(frame: Frame, group: Group) -> Launch:
    node = group.root
    frame.reads([node.inputs[2]])
    columns = plain(node.inputs[1].type.shape[1])
    is_along = columns > 0 and columns % node.param("group") == 0
    return GroupSums(frame, group).launch() if is_along else lower_any(frame, group)


class GroupSums:
    """Groups along the rows."""

    def __init__(self, frame: Frame, group: Group) -> None:
        self.frame, self.k, self.group, self.node = frame, frame.k, group, group.root
        self.a, self.b, self.codes, *self.zero = self.node.inputs
        self.rows, self.depth = self.a.type.shape
        self.columns, self.size = plain(self.b.type.shape[1]), self.node.param("group")
        self.groups = self.columns // self.size

    def launch(self) -> Launch:
        k, sizes = self.k, self.frame.sizes
        self.out = self.frame.output(self.frame.memory.slots[self.node])
        start = k.group_id() * RUN
        end = k.min(start + RUN, sizes.val(self.rows))
        whole = start + (end - start) // ROWS * ROWS
        with k.loop(whole, start, ROWS) as row:
            self.walk_groups([row + i for i in range(ROWS)])
        with k.loop(end, whole) as row:
            self.walk_groups([row])
        flops = product((self.rows, self.columns, self.depth)) * 2
        return self.frame.finish(ceil_div(self.rows, RUN), self.group, flops=flops)

    def walk_groups(self, rows: list[Val]) -> None:
        k = self.k
        with k.loop(self.groups) as g:
            totals = [k.local(0.0, f32) for _ in rows]
            with k.loop(self.size, 0, LANES) as step:
                lane = step + k.lane()
                with self.frame.within(lane, k.index(self.size), self.size):
                    column = g * self.size + lane
                    for row, total, element in zip(
                        rows, totals, self.elements(rows, column), strict=True
                    ):
                        weight = self.weight(row, g, column)
                        total.set(k.fma(element, weight, total))
            for row, total in zip(rows, totals, strict=True):
                k.store(self.out, row * self.groups + g, k.reduce_lanes("add", total))

    def elements(self, rows: list[Val], column: Val) -> list[Val]:
        """Of the product, in one column."""
        k, reading = self.k, self.frame.reading
        chains = [k.local(0.0, f32) for _ in rows]
        with k.loop(self.frame.sizes.val(self.depth)) as m:
            right = reading.read(self.b, (m, column))
            for row, chain in zip(rows, chains, strict=True):
                chain.set(k.fma(reading.read(self.a, (row, m)), right, chain))
        return [chain.get() for chain in chains]

    def weight(self, row: Val, g: Val, column: Val) -> Val:
        if self.node.param("scheme") == "ones":
            return self.k.const(1.0, f32)
        code = self.frame.reading.read(self.codes, (row, column))
        low = None
        if self.zero:  # flat, or a row of them for each row: the same place in memory
            low = self.k.load(self.frame.reading.buffers[self.zero[0]], row * self.groups + g)
        return unscaled(self.k, code, low, self.node.param("scheme"), f32)


def lower_any(frame: Frame, group: Group) -> Launch:
    """A group in each lane, its elements one after the other."""
    node, k, reading = group.root, frame.k, frame.reading
    a, b, codes, *zero = node.inputs
    size, scheme, total = node.param("group"), node.param("scheme"), node.type.size
    columns, out = plain(b.type.shape[1]), frame.output(frame.memory.slots[node])
    each = columns if node.param("lead") else plain(product((a.type.shape[0], columns)))
    per = -(-each // size) if each else 1
    lane = k.group_id() * LANES + k.lane()
    with frame.within(lane, frame.sizes.val(total), total):
        base, within = lane // per * each, lane % per * size
        low = k.load(reading.buffers[zero[0]], lane) if zero else None
        acc = k.local(0.0, f32)
        with k.loop(min(size, each)) as i, k.when(within + i < each):
            flat = base + within + i
            row, column, chain = flat // columns, flat % columns, k.local(0.0, f32)
            with k.loop(frame.sizes.val(a.type.shape[1])) as m:
                left, right = reading.read(a, (row, m)), reading.read(b, (m, column))
                chain.set(k.fma(left, right, chain))
            weight = k.const(1.0, f32)
            if scheme != "ones":
                weight = unscaled(k, reading.read(codes, (row, column)), low, scheme, f32)
            acc.set(k.fma(chain, weight, acc))
        k.store(out, lane, acc.get())
    flops = product((a.type.shape[0], columns, a.type.shape[1])) * 2
    return frame.finish(ceil_div(total, LANES), group, flops=flops)
