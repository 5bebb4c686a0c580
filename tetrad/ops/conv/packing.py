"""Kernels, convolutions: weights in the order in which tiles read them, [group][panel][tap][input]
[width], zero or anything past the last output.

`pack_weight` is a launch that copies them once; a weight that is known is copied when the program
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
from tetrad.ops.conv.geometry import Geometry
from tetrad.ops.conv.op import weight_first
from tetrad.schedule.nodes import Launch, Slot


class PackWeight:
    """The launch that copies a weight."""

    def __init__(self, form: Geometry, w: Node, dtype: DType, width: int) -> None:
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
        self.k = self.frame.k
        self.frame.reads([self.w])
        self.out = self.frame.output(slot)
        vectors = self.panels * (self.width // LANES)
        position = Space(self.k, self.frame.sizes, (form.groups, vectors), self.k.group_id())
        self.group, self.first = position.span(0, 1), position.span(1, 2) * LANES
        self.copy()
        return slot, self.frame.finish(form.groups * vectors, group)

    def copy(self) -> None:
        """Along the outputs where they lie beside each other, else squares turned in registers."""
        form, k = self.form, self.k
        if form.weight == "kio" or (form.weight == "iok" and form.taps == 1):
            output = k.min(self.first + k.lane(), form.outputs - 1)
            with k.loop(form.taps) as tap, k.loop(form.inputs) as c:
                self.put(tap, c, self.element(output, c, tap))
        elif form.weight == "oik":
            self.copy_turned(form.inputs * form.taps, self.of_row)
        elif form.weight == "iok":
            with k.loop(form.inputs) as self.input:
                self.copy_turned(form.taps, self.of_taps)
        else:
            with k.loop(form.taps) as self.tap:
                self.copy_turned(form.inputs, self.of_inputs)

    def of_row(self, step: Val) -> tuple[Val, Val]:
        """Tap and input, of a step along memory."""
        return step % self.form.taps, step // self.form.taps

    def of_taps(self, step: Val) -> tuple[Val, Val]:
        return step, self.input

    def of_inputs(self, step: Val) -> tuple[Val, Val]:
        return self.tap, step

    def copy_turned(self, length: int, where: object) -> None:
        """Sixteen outputs, sixteen steps along memory at a time."""
        k = self.k
        with k.loop(length, 0, LANES) as step:
            rows = [k.local(0, self.dtype) for _ in range(LANES)]
            with self.frame.within(step + k.lane(), k.index(length), length):
                for i, row in enumerate(rows):
                    output = k.min(self.first + i, self.form.outputs - 1)
                    row.set(self.along(output, step + k.lane(), length, where))
            for i, vector in enumerate(turned(k, [row.get() for row in rows])):
                with k.when(step + i < length):
                    tap, c = where(step + i)  # type: ignore[operator]
                    self.put(tap, c, vector)

    def along(self, output: Val, step: Val, length: int, where: object) -> Val:
        """The element of an output at a step along memory."""
        form = self.form
        if where == self.of_row:
            spread = Space(self.k, self.frame.sizes, (form.inputs, *self.tap_sizes), step).axes()
            at: At = (self.group * form.outputs + output, *spread)
            return self.read(at)
        tap, c = where(step)  # type: ignore[operator]
        return self.element(output, c, tap)

    @property
    def tap_sizes(self) -> tuple[int, ...]:
        return tuple(axis.taps for axis in self.form.axes)

    def element(self, output: Val, c: Val, tap: Val) -> Val:
        """At a tap as memory counts them."""
        form = self.form
        taps = Space(self.k, self.frame.sizes, self.tap_sizes, tap).axes()
        inner, outer = (output, c) if form.weight in ("iok", "koi") else (c, output)
        each = form.inputs if form.weight in ("iok", "koi") else form.outputs
        outer = self.group * each + outer
        return self.read((*taps, inner, outer) if form.weight[0] == "k" else (outer, inner, *taps))

    def read(self, at: At) -> Val:
        return self.k.cast(self.frame.reading.wide(self.w, at), self.dtype)

    def put(self, tap: Val, c: Val, vector: Val) -> None:
        """A vector of outputs, under the tap as x meets it."""
        form, k = self.form, self.k
        met = (form.taps - 1) - tap if form.flip else tap
        panel, rest = self.first // self.width, self.first % self.width
        row = (self.group * self.panels + panel) * form.taps + met
        k.store(self.out, (row * form.inputs + c) * self.width + rest + k.lane(), vector)
