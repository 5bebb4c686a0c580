"""Kernels of arrays in groups: bytes of codes, numbers of codes, sums over groups.

Where groups are whole vectors of 32 elements a workgroup takes some of them, with the sixteen
numbers that codes can be in a register; else a lane takes an element, a byte or a group.
Quantising is in `ops.groups.quantize_kernel`.
"""

from __future__ import annotations

from tetrad.core.dtypes import f32, u8, u32
from tetrad.core.machine import LANES
from tetrad.core.sizes import ceil_div, plain, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.ops.groups import product_kernel, quantize_kernel
from tetrad.ops.groups.decode import code_numbers, group_table, unscaled
from tetrad.ops.groups.op import (
    dequantize_groups,
    lead_of,
    pack_nibbles,
    product_groups,
    quantize_groups,
    reduce_groups,
)
from tetrad.schedule.nodes import Launch

PAIR = 2 * LANES  # elements of a vector of bytes
UNITS = (4096, 2048, 1024, 512, 256, 128, 64, 32)  # elements that one table serves
RUN = 8192  # elements of a workgroup, about
EVEN, ODD = tuple(range(0, PAIR, 2)), tuple(range(1, PAIR, 2))
FIRST = tuple(i // 2 + LANES * (i % 2) for i in range(LANES))  # halves put side by side again
SECOND = tuple(i + LANES // 2 for i in FIRST)


quantize_groups.kernel(quantize_kernel.lower_quantize)
product_groups.kernel(product_kernel.lower_product)


@pack_nibbles.kernel
def lower_pack(frame: Frame, group: Group) -> Launch:
    """A byte in each lane."""
    node, k = group.root, frame.k
    x, n = frame.reading.buffers[node.inputs[0]], frame.sizes.val(product(node.type.shape))
    out = frame.view(frame.memory.slots[node], u8, "write")
    count = ceil_div(product(node.type.shape), 2)
    byte = k.group_id() * LANES + k.lane()
    with frame.within(byte, frame.sizes.val(count), count):
        low = k.cast(k.load(x, byte * 2), u32) & 15
        high = k.local(0, u32)
        with k.when(byte * 2 + 1 < n):
            high.set(k.cast(k.load(x, byte * 2 + 1), u32) & 15)
        k.store(out, byte, k.cast(low | (high.get() << 4), u8))
    return frame.finish(ceil_div(count, LANES), group)


# -- numbers ---------------------------------------------------------------------------------------


@dequantize_groups.kernel
def lower_dequantize(frame: Frame, group: Group) -> Launch:
    node = group.root
    frame.reads(node.inputs[:1])
    return lower_vectors(frame, group) if is_even(node) else lower_elements(frame, group)


def is_even(node: Node) -> bool:
    """Are groups whole vectors of 32, one after the other, with factors of f32?"""
    codes, scale, size = node.inputs[0].type, node.inputs[1].type, node.param("group")
    lead = lead_of(codes, scale, size)
    each, n = plain(product(codes.shape[lead:])), plain(product(codes.shape))
    is_flat = lead == 0 or each % size == 0
    return scale.dtype is f32 and is_flat and size % PAIR == 0 and n % PAIR == 0 and n > 0


def lower_vectors(frame: Frame, group: Group) -> Launch:
    """Stretches of one group each: a table, then 16 bytes at a time."""
    node, k = group.root, frame.k
    size, n = node.param("group"), plain(product(node.type.shape))
    unit = next(u for u in UNITS if size % u == 0)
    per, units = max(1, RUN // unit), -(-n // unit)
    frame.is_light = True
    out = frame.output(frame.memory.slots[node])
    numbers = code_numbers(k, node.param("scheme"))
    first = k.group_id() * per
    with k.loop(k.min(first + per, units), first) as at:
        start = at * unit
        table = table_at(frame, node, numbers, start // size)
        with k.loop(k.min(n - start, unit), 0, PAIR) as step:
            for half, value in enumerate(pair_of(frame, node, table, (start + step) // 2)):
                made = k.cast(value, node.type.dtype)
                where = start + step + half * LANES + k.lane()
                k.store(out, where, made, frame.hint(node))
    return frame.finish(-(-units // per), group, flops=n)


def table_at(frame: Frame, node: Node, numbers: Val, group: Val) -> Val:
    """The numbers of a group by their codes, from factors that lie in a row."""
    k = frame.k
    factors = [k.load(frame.reading.buffers[i], group) for i in node.inputs[1:]]
    if node.param("scheme") == "ones":
        return numbers * 0.0 + factors[0]
    zero = factors[1] if len(factors) > 1 else None
    scheme, dtype = node.param("scheme"), node.type.dtype
    return group_table(k, numbers, factors[0], zero, scheme, dtype)


def pair_of(frame: Frame, node: Node, table: Val, byte: Val) -> tuple[Val, Val]:
    """32 neighbours from sixteen bytes on."""
    k = frame.k
    codes = k.cast(k.load(frame.reading.buffers[node.inputs[0]], byte + k.lane()), u32)
    low, high = k.permute(table, codes), k.permute(table, codes >> 4)
    return k.shuffle(low, high, FIRST), k.shuffle(low, high, SECOND)


def lower_elements(frame: Frame, group: Group) -> Launch:
    """An element in each lane, whatever the groups are."""
    node, k = group.root, frame.k
    out, total = frame.output(frame.memory.slots[node]), product(node.type.shape)
    flat = k.group_id() * LANES + k.lane()
    with frame.within(flat, frame.sizes.val(total), total):
        at = Space(k, frame.sizes, node.type.shape, flat).axes()
        k.store(out, flat, frame.reading.compute(node, at))
    return frame.finish(ceil_div(total, LANES), group, flops=total)


# -- sums ------------------------------------------------------------------------------------------


@reduce_groups.kernel
def lower_reduce(frame: Frame, group: Group) -> Launch:
    """A group in each lane, its elements one after the other."""
    node, k, size = group.root, frame.k, group.root.param("group")
    x, codes, *zero = node.inputs
    frame.reads([codes])
    out, total, lead = frame.output(frame.memory.slots[node]), node.type.size, node.param("lead")
    inner = x.type.shape[lead:]
    each = plain(product(inner))
    lane = k.group_id() * LANES + k.lane()
    with frame.within(lane, frame.sizes.val(total), total):
        at = Space(k, frame.sizes, node.type.shape, lane).axes()
        low = frame.reading.read(zero[0], at) if zero else None
        start = at[-1] * size
        acc = k.local(0.0, node.type.dtype)
        with k.loop(min(size, each)) as i, k.when(start + i < each):
            place = (*at[:-1], *Space(k, frame.sizes, inner, start + i).axes())
            number = frame.reading.read(x, place)
            if node.param("scheme") != "ones":
                code = frame.reading.read(codes, place)
                weight = unscaled(k, code, low, node.param("scheme"), node.type.dtype)
                acc.set(k.fma(number, weight, acc))
            else:
                acc.set(acc.get() + number)
        k.store(out, lane, acc.get())
    return frame.finish(ceil_div(total, LANES), group, flops=product(x.type.shape) * 2)
