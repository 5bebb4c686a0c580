"""Kernels of mixtures of experts: the likeliest experts of a token, and products with the matrices
of those only.

A low-bit product of few tokens takes one (token, expert) pair and sixteen outputs a workgroup. With
more tokens a first kernel lists the pairs of each expert, and a workgroup takes sixteen outputs of
one expert for all tokens that go there: each weight is then read once. Either way a token's sum has
the order of `ops.experts.op`.
"""

from __future__ import annotations

from tetrad.core.dtypes import f32, i32, index
from tetrad.core.errors import RoutingError
from tetrad.core.machine import LANES
from tetrad.core.sizes import Size, ceil_div, plain, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.reader import FIRST_TRAP
from tetrad.ops.experts.op import grouped_matmul, top_experts
from tetrad.ops.matmul.int8_dots import Sums
from tetrad.schedule.nodes import Launch, Slot, TrapSite

FEW = 64  # pairs of a token and an expert up to which each reads its weights alone


# -- routing ---------------------------------------------------------------------------------------


@top_experts.kernel
def lower_top_experts(frame: Frame, group: Group) -> Launch:
    """One token a workgroup, lanes along the experts; one that was taken is less likely than
    any."""
    node, k = group.root, frame.k
    likelihood, used = node.inputs[0], int(node.param("used"))
    experts = plain(likelihood.type.shape[1])
    out = frame.output(frame.memory.slots[node])
    left = frame.scratch("left", f32, -(-experts // LANES) * LANES)
    token = k.group_id()
    with k.loop(experts, 0, LANES) as first:
        lane = first + k.lane()
        k.store(left, lane, k.const(-1.0, f32))
        with frame.within(lane, k.index(experts), experts):
            value = frame.reading.wide(likelihood, (token, lane))
            stop_routing(frame, node, ~(value >= 0.0), token * experts + lane, experts)
            k.store(left, lane, value)
    k.barrier()
    with k.loop(used) as i:
        best = likeliest(k, left, experts)
        k.store(out, token * used + i, k.cast(best, i32))
        k.barrier()
        k.store(left, best, k.const(-1.0, f32))
        k.barrier()
    return frame.finish(
        likelihood.type.shape[0], group, flops=product(likelihood.type.shape) * used
    )


def likeliest(k: KernelBuilder, left: Buffer, experts: int) -> Val:
    """The first position of the greatest value, the same in every lane."""
    best, where = k.local(-1.0, f32), k.local(0, index)
    with k.loop(experts, 0, LANES) as first:
        value = k.load(left, first + k.lane())
        wins = value > best
        where.set(k.select(wins, first + k.lane(), where))
        best.set(k.select(wins, value, best))
    top = k.reduce_lanes("max", best)
    mine = k.select(best.get().eq(top), k.cast(where, i32), k.const(1 << 30, i32))
    return k.cast(k.reduce_lanes("min", mine), index)


def stop_routing(frame: Frame, node: Node, bad: Val, value: Val, experts: int) -> None:
    """End the program where a likelihood is no number; the value tells token and expert."""
    code = FIRST_TRAP + len(frame.reading.traps)
    explain = lambda value: RoutingError(*divmod(value, experts))  # noqa: E731
    frame.reading.traps[code] = TrapSite(node.op.name, "", node.source, explain=explain)
    frame.k.trap(bad, code, value)


def stop(frame: Frame, node: Node, bad: Val, message: str, value: Val) -> None:
    """End the program with an error when `bad` holds in a lane."""
    code = FIRST_TRAP + len(frame.reading.traps)
    frame.reading.traps[code] = TrapSite(node.op.name, f"{node.op.name}: {message}", node.source)
    frame.k.trap(bad, code, value)


# -- products --------------------------------------------------------------------------------------


@grouped_matmul.kernel
def lower_grouped_matmul(frame: Frame, group: Group) -> Launch | list[Launch]:
    _, w, expert = group.root.inputs
    if not w.type.dtype.is_quantized:
        return lower_float_experts(frame, group)
    pairs = product(expert.type.shape)
    if isinstance(pairs, int) and pairs <= FEW:
        return GroupedMatmul(frame, group).each_pair()
    sort = Frame(group.name + "_sort", frame.memory)
    listed = frame.memory.temp("listed", i32, pairs + starts_of(group.root))
    return [list_pairs(sort, group, listed), GroupedMatmul(frame, group).each_expert(listed)]


def expert_of(frame: Frame, node: Node, pair: Val) -> Val:
    """The expert of a pair; stops the program when there is no such expert."""
    k, expert = frame.k, node.inputs[2]
    used = plain(expert.type.shape[1])
    number = k.cast(frame.reading.wide(expert, (pair // used, pair % used)), index)
    experts = int(node.param("experts"))
    message = f"expert {{value}} is out of range for {experts} of them"
    stop(frame, node, (number < -1) | (number >= experts), message, number)
    return number


def starts_of(node: Node) -> int:
    """Entries in front of the list of pairs: where each expert's begin, those without an expert,
    and the end."""
    return int(node.param("experts")) + 2


def list_pairs(frame: Frame, group: Group, listed: Slot) -> Launch:
    """[where the pairs of expert 0, 1, ..., none begin, the end, then the pairs]: a counting sort
    by one workgroup."""
    node, k = group.root, frame.k
    frame.reads([node.inputs[2]])
    starts, pairs = starts_of(node), frame.sizes.val(product(node.inputs[2].type.shape))
    out, next_ = frame.output(listed, "readwrite"), frame.scratch("next", i32, starts)

    def place(pair: Val) -> Val:
        number = expert_of(frame, node, pair)
        return k.select(number < 0, starts - 2, number)

    def number_at(buffer: Buffer, at: Val) -> Val:
        return k.broadcast(k.load(buffer, at))

    with k.loop(starts) as i:
        k.store(next_, i, k.const(0, i32))
    with k.loop(pairs) as pair:
        at = place(pair)
        more = number_at(next_, at) + 1
        k.barrier()
        k.store(next_, at, more)
    total = k.local(0, i32)
    with k.loop(starts) as i:
        before = k.broadcast(total.get())
        total.set(before + number_at(next_, i))
        k.barrier()
        k.store(next_, i, before)
        k.store(out, i, before)
    with k.loop(pairs) as pair:
        at = place(pair)
        where = number_at(next_, at)
        k.barrier()
        k.store(out, starts + k.cast(where, index), k.cast(pair, i32))
        k.store(next_, at, where + 1)
    return frame.finish(1, group)


class GroupedMatmul:
    """The kernel of one low-bit product: sixteen outputs of one expert, for one pair or for all its
    pairs."""

    def __init__(self, frame: Frame, group: Group) -> None:
        self.group, self.node, self.frame = group, group.root, frame
        x, w, expert = self.node.inputs
        self.k, self.sums = frame.k, Sums(frame, x, w)
        self.out = frame.output(frame.memory.slots[self.node])
        self.used, self.pairs = plain(expert.type.shape[1]), product(expert.type.shape)
        self.experts = int(self.node.param("experts"))
        self.outputs = plain(self.node.type.shape[2])
        self.groups = self.outputs // LANES  # of one expert
        self.tile = frame.memory.machine.lowbit_tokens

    def each_pair(self) -> Launch:
        k = self.k
        pair, part = k.group_id() // self.groups, k.group_id() % self.groups
        expert = expert_of(self.frame, self.node, pair)
        with k.when(expert < 0):
            self.store([pair], part, [k.const(0.0, f32)])
        with k.otherwise():
            self.run([pair], expert, part)
        return self.finish(product((self.pairs, self.groups)))

    def each_expert(self, listed: Slot) -> Launch:
        k = self.k
        list_ = self.frame.input(listed)
        expert, part = k.group_id() // self.groups, k.group_id() % self.groups
        first, last = (k.cast(k.load(list_, expert + i), index) for i in range(2))

        def pairs(at: Val, count: int) -> list[Val]:
            return [
                k.cast(k.load(list_, at + (starts_of(self.node) + i)), index) for i in range(count)
            ]

        with k.when(expert.eq(self.experts)), k.loop(last, first) as at:
            self.store(pairs(at, 1), part, [k.const(0.0, f32)])
        with k.otherwise():
            # Tiles as large as registers hold, then smaller ones: an expert seldom has many tokens.
            for size in sorted({self.tile, *(n for n in (4, 2, 1) if n < self.tile)}, reverse=True):
                end = first + (last - first) // size * size
                with k.loop(end, first, size) as at:
                    self.run(pairs(at, size), expert, part)
                first = end
        return self.finish((self.experts + 1) * self.groups)

    def run(self, pairs: list[Val], expert: Val, part: Val) -> None:
        rows = [pair // self.used for pair in pairs]
        self.store(pairs, part, self.sums.run(expert * self.groups + part, rows))

    def store(self, pairs: list[Val], part: Val, values: list[Val]) -> None:
        column = part * LANES + self.k.lane()
        for pair, value in zip(pairs, values, strict=True):
            self.k.store(self.out, pair * self.outputs + column, value)

    def finish(self, groups: Size) -> Launch:
        flops = product((self.pairs, self.outputs, self.sums.x.columns)) * 2
        return self.frame.finish(groups, self.group, flops=flops)


def lower_float_experts(frame: Frame, group: Group) -> Launch:
    """A pair and sixteen outputs a workgroup, one output after the other, lanes along the
    columns."""
    node, k = group.root, frame.k
    x, w, expert = node.inputs
    out = frame.output(frame.memory.slots[node])
    pairs, used = product(expert.type.shape), plain(expert.type.shape[1])
    outputs, columns = plain(node.type.shape[2]), plain(x.type.shape[1])
    parts = ceil_div(outputs, LANES)
    pair, part = k.group_id() // parts, k.group_id() % parts
    number = expert_of(frame, node, pair)
    with k.loop(k.min(part * LANES + LANES, outputs), part * LANES) as output:
        total = k.local(0.0, f32)
        with k.when(number >= 0), k.loop(columns, 0, LANES) as first:
            lane = first + k.lane()
            with frame.within(lane, k.index(columns), columns):
                value = frame.reading.wide(w, (number * outputs + output, lane))
                total.set(k.fma(value, frame.reading.wide(x, (pair // used, lane)), total))
        k.store(out, pair * outputs + output, k.reduce_lanes("add", total))
    return frame.finish(
        product((pairs, parts)), group, flops=product((pairs, outputs, columns)) * 2
    )
