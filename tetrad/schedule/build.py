"""The schedule language, build: slots, and a builder that puts a schedule together step by step.

Receives types, arrays and kernels, returns slots and a `Schedule`. Lowering takes its slots from
here; tests build whole schedules by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tetrad.core.dtypes import as_dtype
from tetrad.core.sizes import Size
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Graph, Literal
from tetrad.kernel.nodes import Program
from tetrad.schedule.nodes import Call, Launch, Schedule, Slot, Step


def input_slot(position: int, kind: ArrayType) -> Slot:
    return Slot(f"in{position}", kind, "input", position)


def output_slot(position: int, kind: ArrayType) -> Slot:
    return Slot(f"out{position}", kind, "output", position)


def temp_slot(name: str, kind: ArrayType) -> Slot:
    """An intermediate, which the planner places."""
    return Slot(name, kind, "temp")


def constant_slot(name: str, kind: ArrayType, literal: Literal) -> Slot:
    return Slot(name, kind, "constant", -1, literal)


class ScheduleBuilder:
    """Appends steps in order; slots are numbered as they are asked for.

    >>> from tetrad.core.dtypes import f32
    >>> from tetrad.kernel.build import KernelBuilder
    >>> k = KernelBuilder("copy")
    >>> x, y = k.buffer("x", f32), k.buffer("y", f32, "write")
    >>> k.store(y, k.global_id(), k.load(x, k.global_id()))
    >>> b = ScheduleBuilder("f")
    >>> kind = ArrayType(f32, (8,))
    >>> b.launch(k.finish(), b.input(kind), b.output(kind), groups=8)
    >>> print(b.finish())
    kernel copy(x: f32 read, y: f32 write) workgroup=16,1,1
    schedule f(%0):
      %0: f32[8] input 0 in0
      %1: f32[8] output 0 out0
      launch copy(%0, %1) groups=8 writes=y
      return %1
    <BLANKLINE>
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.inputs: list[Slot] = []
        self.outputs: list[Slot] = []
        self.steps: list[Step] = []
        self.count = 0

    def input(self, kind: ArrayType) -> Slot:
        self.inputs.append(input_slot(len(self.inputs), kind))
        return self.inputs[-1]

    def output(self, kind: ArrayType) -> Slot:
        self.outputs.append(output_slot(len(self.outputs), kind))
        return self.outputs[-1]

    def temp(self, kind: ArrayType) -> Slot:
        return temp_slot(f"t{self._next()}", kind)

    def constant(self, array: np.ndarray) -> Slot:
        kind = ArrayType(as_dtype(array.dtype), array.shape)
        return constant_slot(f"c{self._next()}", kind, Literal(array))

    def launch(
        self,
        program: Program,
        *slots: Slot,
        groups: Size,
        args: Mapping[str, Size] | None = None,
        **fields: Any,
    ) -> None:
        """A kernel over slots, one for each storage buffer; it writes those its buffers say."""
        storage = [b for b in program.buffers if not b.is_scratch]
        written = [s for b, s in zip(storage, slots, strict=False) if b.is_written]
        self.add(Launch(program, slots, args or {}, groups, frozenset(written), **fields))

    def call(self, body: Schedule, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> None:
        self.add(Call(body, tuple(inputs), tuple(outputs)))

    def add(self, step: Step) -> None:
        self.steps.append(step)

    def finish(self, outputs: Sequence[Slot] | None = None) -> Schedule:
        """The schedule; its outputs are the output slots, or those given."""
        results = self.outputs if outputs is None else outputs
        graph = Graph(self.name, (), ())
        return Schedule(graph, tuple(self.steps), tuple(self.inputs), tuple(results))

    def _next(self) -> int:
        self.count += 1
        return self.count - 1
