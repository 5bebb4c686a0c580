"""Kernels, convolutions: weights in the order in which tiles read them, [group][panel][tap][input]
[width], zero or anything past the last output.

`launch` copies them once, when the program runs; a weight that is known is copied when the program
is compiled.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import DType
from tetrad.core.machine import LANES
from tetrad.core.types import ArrayType
from tetrad.graph.build import constant
from tetrad.graph.group import Group
from tetrad.graph.nodes import Literal, Node
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import At
from tetrad.loopnest.transpose import turned
from tetrad.ops.conv.geometry import ConvGeometry
from tetrad.ops.conv.op import weight_first
from tetrad.ops.conv.weight_order import WeightOrder, WeightWalk
from tetrad.schedule.nodes import Launch, Slot


class PackWeight:
    """Copies one weight."""

    def __init__(self, form: ConvGeometry, w: Node, dtype: DType, width: int) -> None:
        self.form, self.w, self.dtype, self.width = form, w, dtype, width
        self.panels = -(-form.outputs // width)

    def known(self) -> Slot | None:
        """Of a constant."""
        if self.w.op is not constant:
            return None
        form = self.form
        value = np.broadcast_to(self.w.param("value").array, form.w_shape)
        taps = weight_first(value, form).astype(self.dtype.np)
        taps = taps.reshape(form.groups, form.outputs, form.inputs, form.taps)
        made = np.zeros((form.groups, self.panels * self.width, form.inputs, form.taps), taps.dtype)
        made[:, : form.outputs] = taps
        made = made.reshape(form.groups, self.panels, self.width, form.inputs, form.taps)
        packed = np.ascontiguousarray(made.transpose(0, 1, 4, 3, 2))
        kind = ArrayType(self.dtype, tuple(packed.shape))
        return Slot("packed", kind, "constant", literal=Literal(packed))

    def launch(self, group: Group, memory: Memory) -> tuple[Slot, Launch]:
        """A workgroup copies sixteen outputs."""
        form = self.form
        slot = memory.temp("packed", self.dtype, form.groups, self.panels, form.taps, form.inputs,
                           self.width)  # fmt: skip
        self.frame = Frame(group.name + "_pack", memory)
        self.k = k = self.frame.k
        self.frame.reads([self.w])
        self.out = self.frame.output(slot)
        vectors = self.panels * (self.width // LANES)
        position = Space(k, self.frame.sizes, (form.groups, vectors), k.group_id())
        self.group, self.first = position.span(0, 1), position.span(1, 2) * LANES
        self.order = WeightOrder(k, self.frame.sizes, form, self.group, k.index(0), form.inputs)
        self.copy()
        return slot, self.frame.finish(form.groups * vectors, group)

    def copy(self) -> None:
        """Along the outputs where they lie beside each other, else squares turned in registers."""
        form, k, order = self.form, self.k, self.order
        if not order.is_along_outputs:
            with order.walks() as walk:
                self.copy_turned(walk)
            return
        output = self.first + k.lane()
        with k.loop(form.taps) as tap, k.loop(form.inputs) as c:
            value = k.local(0, self.dtype)
            with self.frame.within(output, k.index(form.outputs), form.outputs):
                value.set(self.read(order.at(output, c, tap)))
            self.put(order.met(tap), c, value.get())

    def copy_turned(self, walk: WeightWalk) -> None:
        """Sixteen outputs, sixteen steps along memory at a time."""
        k = self.k
        with k.loop(walk.length, 0, LANES) as step:
            rows = [k.local(0, self.dtype) for _ in range(LANES)]
            lane = step + k.lane()
            with self.frame.within(lane, k.index(walk.length), walk.length):
                for i, row in enumerate(rows):
                    output = k.min(self.first + i, self.form.outputs - 1)
                    row.set(self.read(walk.at(output, lane)))
            for i, vector in enumerate(turned(k, [row.get() for row in rows])):
                with k.when(step + i < walk.length):
                    self.put(*walk.where(step + i), vector)

    def read(self, at: At) -> Val:
        return self.k.cast(self.frame.reading.wide(self.w, at), self.dtype)

    def put(self, tap: Val, c: Val, vector: Val) -> None:
        """A vector of outputs, under the tap as x meets it."""
        form, k = self.form, self.k
        panel, rest = self.first // self.width, self.first % self.width
        row = (self.group * self.panels + panel) * form.taps + tap
        k.store(self.out, (row * form.inputs + c) * self.width + rest + k.lane(), vector)
