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
from tetrad.ops.conv.weight_order import WeightOrder, WeightWalk, along_outputs
from tetrad.schedule.nodes import Launch, Slot

PARTS = 4  # of the steps of a sum, for each thread


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
        """A workgroup copies sixteen outputs; where outputs lie beside each other, some steps of a
        sum, so that it reads memory in order."""
        form = self.form
        slot = memory.temp("packed", self.dtype, form.groups, self.panels, form.taps, form.inputs,
                           self.width)  # fmt: skip
        self.frame = Frame(group.name + "_pack", memory)
        self.k = k = self.frame.k
        self.frame.reads([self.w])
        self.out = self.frame.output(slot)
        self.vectors = self.panels * (self.width // LANES)
        steps = form.taps * form.inputs
        each = -(-steps // (PARTS * memory.machine.parallel_groups)) or 1
        is_along = along_outputs(form)
        parts = max(-(-steps // each), 1) if is_along else self.vectors
        position = Space(k, self.frame.sizes, (form.groups, parts), k.group_id())
        self.group, part = position.span(0, 1), position.span(1, 2)
        self.order = WeightOrder(k, self.frame.sizes, form, self.group, k.index(0), form.inputs)
        if is_along:
            with k.loop(k.min((part + 1) * each, steps), part * each) as step:
                self.copy_step(step // form.inputs, step % form.inputs)
        else:
            self.first = part * LANES
            with self.order.walks() as walk:
                self.copy_turned(walk)
        return slot, self.frame.finish(form.groups * parts, group)

    def copy_step(self, tap: Val, c: Val) -> None:
        """All outputs of a tap and an input."""
        k, outputs = self.k, self.form.outputs
        with k.loop(self.vectors) as v:
            self.first = v * LANES
            lane, value = self.first + k.lane(), k.local(0, self.dtype)
            with self.frame.within(lane, k.index(outputs), outputs, self.width):
                value.set(self.read(self.order.at(lane, c, tap)))
            self.put(self.order.met(tap), c, value.get())

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
