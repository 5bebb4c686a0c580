"""Kernels, the KV cache: rows of new tokens written into a cache where it lies, as they are or in
8 bits."""

from __future__ import annotations

from tetrad.core.dtypes import f16, i8, index
from tetrad.core.machine import LANES
from tetrad.core.sizes import plain, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame
from tetrad.ops.quantized.kernel import quantize_block
from tetrad.quant.lanes import BLOCK
from tetrad.schedule.nodes import Launch


def lower_put_cache(frame: Frame, group: Group) -> Launch:
    """One token and head a workgroup, lanes along the channels; written where the cache lies."""
    cache = CachePlace(frame, group)
    k, rows = frame.k, cache.rows
    if cache.dtype is i8:
        for b in range(cache.channels // BLOCK):
            codes, *_ = quantize_block(k, cache.block(b))
            for h, code in enumerate(codes):
                cache.store(k.index(b * BLOCK + h * LANES) + k.lane(), k.cast(code, i8))
        return cache.launch()
    with k.loop(cache.channels, 0, LANES) as first:
        lane = first + k.lane()
        with frame.within(lane, k.index(cache.channels), cache.channels):
            value = frame.reading.wide(rows, (cache.token, cache.head, lane))
            cache.store(lane, k.cast(value, cache.dtype))
    return cache.launch()


def lower_put_scales(frame: Frame, group: Group) -> Launch:
    """The same for the scales of rows in 8 bits: one value for every 32 channels."""
    cache = CachePlace(frame, group)
    for b in range(cache.channels):
        _, scale, *_ = quantize_block(frame.k, cache.block(b))
        cache.store(frame.k.index(b), frame.k.cast(scale, f16))
    return cache.launch()


class CachePlace:
    """The place of one token and head in a cache: position of its first channel, and how far apart
    channels lie."""

    def __init__(self, frame: Frame, group: Group) -> None:
        self.frame, self.group, node = frame, group, group.root
        k, shape = frame.k, node.type.shape
        _, self.rows, layer, slot, position = node.inputs
        self.dtype, self.out = node.type.dtype, frame.output(frame.memory.slots[node], "readwrite")
        self.heads, self.channels = plain(shape[2]), plain(shape[4])
        is_interleaved = len(shape) == 6
        length = plain(shape[3]) * (LANES if is_interleaved else 1)
        self.token, self.head = k.group_id() // self.heads, k.group_id() % self.heads
        at_layer = checked(frame, node, layer, (), shape[0])
        at_slot = checked(frame, node, slot, (self.token,), shape[1])
        at = checked(frame, node, position, (self.token,), length)
        line = ((at_layer * frame.sizes.val(shape[1]) + at_slot) * self.heads + self.head) * length
        self.step = LANES if is_interleaved else 1
        self.first = line * self.channels + at * self.channels
        if is_interleaved:
            self.first = (line + at // LANES * LANES) * self.channels + at % LANES

    def block(self, b: int) -> list[Val]:
        """32 channels of the row, in two vectors."""
        k = self.frame.k
        columns = [k.index(b * BLOCK + h * LANES) + k.lane() for h in range(BLOCK // LANES)]
        return [
            self.frame.reading.wide(self.rows, (self.token, self.head, column))
            for column in columns
        ]

    def store(self, channel: Val, value: Val) -> None:
        self.frame.k.store(self.out, self.first + channel * self.step, value)

    def launch(self) -> Launch:
        updates = frozenset({self.frame.memory.slots[self.group.root]})
        return self.frame.finish(
            product((self.rows.type.shape[0], self.heads)), self.group, updates=updates
        )


def checked(frame: Frame, node: Node, which: Node, at: tuple[Val, ...], size: object) -> Val:
    k = frame.k
    value = k.cast(frame.reading.wide(which, at), index)
    frame.reading.trap(node, node, (value < 0) | (value >= size), value)
    return value
