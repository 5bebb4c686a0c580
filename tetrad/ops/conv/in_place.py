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
from tetrad.ops.conv.staging import LINE_BYTES


class InPlace:
    """x [batch, places along three axes, channels], in memory as the kernel computes."""

    def __init__(
        self, frame: Frame, x: Node, sizes: Sequence[int], groups: int, channels: int
    ) -> None:
        self.frame, self.x, self.channels = frame, x, channels
        self.buffer = frame.reading.buffers[x]
        self.line = LINE_BYTES // x.type.dtype.nbytes
        self.pitch = groups * channels
        self.row = sizes[2] * self.pitch
        self.plane = sizes[1] * self.row

    def open(self, batch: Val, place: Sequence[Val], channel: Val) -> Val:
        """Where the first element of a workgroup lies."""
        self.begin = batch * self.frame.sizes.val(row_strides(self.x.type.shape)[0]) + channel
        for i, step in zip(place, (self.plane, self.row, self.pitch), strict=True):
            self.begin = self.begin + i * step
        return self.begin

    def lines_of(self, places: int) -> int:
        """Lines of a cache that so many places are, of the channels of a group."""
        return places * -(-self.channels // self.line)

    def fetch(self, number: Val, places: int) -> None:
        """Ask for one line of the places that are `places` further on."""
        lines = -(-self.channels // self.line)
        place, rest = number // lines + places, number % lines
        where = self.begin + place * self.pitch + rest * self.line
        self.frame.k.prefetch(self.buffer, where)
