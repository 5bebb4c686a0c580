"""Kernels of sums over groups of a product: its elements are made, multiplied with what the codes
stand for and added up without being stored.

Where groups lie along the rows, lanes run along the columns of some rows, which share what is read
of the right side; else a lane takes a group.
"""

from __future__ import annotations

from tetrad.core.machine import LANES
from tetrad.core.sizes import ceil_div, plain, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.loopnest.frame import Frame
from tetrad.ops.convert import cast_lower
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
        self.dtype = self.node.type.dtype  # of the sums

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
            totals = [k.local(0.0, self.dtype) for _ in rows]
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
        k, reading, wide = self.k, self.frame.reading, self.a.type.dtype.computing
        chains = [k.local(0.0, wide) for _ in rows]
        with k.loop(self.frame.sizes.val(self.depth)) as m:
            right = k.cast(reading.read(self.b, (m, column)), wide)
            for row, chain in zip(rows, chains, strict=True):
                left = k.cast(reading.read(self.a, (row, m)), wide)
                chain.set(k.fma(left, right, chain))
        return [rounded(k, chain, self.node) for chain in chains]

    def weight(self, row: Val, g: Val, column: Val) -> Val:
        if self.node.param("scheme") == "ones":
            return self.k.const(1.0, self.dtype)
        code = self.frame.reading.read(self.codes, (row, column))
        low = None
        if self.zero:  # flat, or a row of them for each row: the same place in memory
            low = self.k.load(self.frame.reading.buffers[self.zero[0]], row * self.groups + g)
        return unscaled(self.k, code, low, self.node.param("scheme"), self.dtype)


def rounded(k: KernelBuilder, chain: LocalVar, node: Node) -> Val:
    """An element of the product in the dtype of the sums, by way of those it goes through."""
    value = chain.get()
    for dtype in (node.inputs[0].type.dtype, *dict(node.params).get("through", ())):
        value = k.cast(k.cast(cast_lower(k, value, dtype=dtype), dtype), dtype.computing)
    return value


def lower_any(frame: Frame, group: Group) -> Launch:
    """A group in each lane, its elements one after the other."""
    node, k, reading = group.root, frame.k, frame.reading
    a, b, codes, *zero = node.inputs
    wide = a.type.dtype.computing
    size, scheme, total = node.param("group"), node.param("scheme"), node.type.size
    columns, out = plain(b.type.shape[1]), frame.output(frame.memory.slots[node])
    each = columns if node.param("lead") else plain(product((a.type.shape[0], columns)))
    per = -(-each // size) if each else 1
    lane = k.group_id() * LANES + k.lane()
    with frame.within(lane, frame.sizes.val(total), total):
        base, within = lane // per * each, lane % per * size
        low = k.load(reading.buffers[zero[0]], lane) if zero else None
        acc = k.local(0.0, node.type.dtype)
        with k.loop(min(size, each)) as i, k.when(within + i < each):
            flat = base + within + i
            row, column = flat // columns, flat % columns
            chain = k.local(0.0, wide)
            with k.loop(frame.sizes.val(a.type.shape[1])) as m:
                left = k.cast(reading.read(a, (row, m)), wide)
                chain.set(k.fma(left, k.cast(reading.read(b, (m, column)), wide), chain))
            weight = k.const(1.0, node.type.dtype)
            if scheme != "ones":
                code = reading.read(codes, (row, column))
                weight = unscaled(k, code, low, scheme, node.type.dtype)
            acc.set(k.fma(rounded(k, chain, node), weight, acc))
        k.store(out, lane, acc.get())
    flops = product((a.type.shape[0], columns, a.type.shape[1])) * 2
    return frame.finish(ceil_div(total, LANES), group, flops=flops)
