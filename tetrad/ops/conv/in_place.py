"""Kernels, convolutions: x read where it lies, for windows of one element.

Nothing around x is met and no element is met by two taps, so a copy would be read about as often as
x itself. `InPlace` says what `Staged` says: a buffer, and how far apart places are in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.core.types import row_strides
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame
from tetrad.ops.conv.geometry import ConvGeometry, Ints
from tetrad.ops.conv.staging import LINE_BYTES


class InPlace:
    """x [batch, places along three axes, channels], or channels before places, in memory as the
    kernel computes."""

    def __init__(self, frame: Frame, x: Node, form: ConvGeometry, sizes: Ints) -> None:
        self.frame, self.x, self.last, self.channels = frame, x, form.last, form.inputs
        self.buffer = frame.reading.buffers[x]
        self.line = LINE_BYTES // x.type.dtype.nbytes
        self.pitch = form.groups * form.inputs if form.last else 1
        self.row = sizes[2] * self.pitch
        self.plane = sizes[1] * self.row
        self.channel = 1 if form.last else sizes[0] * self.plane  # from one to the next

    def open(self, batch: Val, channel: Val, place: Sequence[Val]) -> Val:
        """Where the first element of a box lies."""
        image = self.frame.sizes.val(row_strides(self.x.type.shape)[0])
        self.begin = batch * image + channel * self.channel
        for i, step in zip(place, (self.plane, self.row, self.pitch), strict=True):
            self.begin = self.begin + i * step
        return self.begin

    def lines_of(self, places: int) -> int:
        """Lines of a cache that so many places are, of the channels of a group."""
        if self.last:
            return places * -(-self.channels // self.line)
        return self.channels * -(-places // self.line)

    def fetch(self, number: Val, places: int) -> None:
        """Ask for one line of the `places` places behind as many of the box."""
        run, many = (self.channels, self.pitch) if self.last else (places, self.channel)
        lines = -(-run // self.line)
        where = self.begin + places * self.pitch
        where = where + number // lines * many + number % lines * self.line
        self.frame.k.prefetch(self.buffer, where)
