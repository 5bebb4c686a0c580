"""callback and effect, lowering: one step of the schedule that calls the function."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tetrad.core.record import record
from tetrad.core.sizes import Shape
from tetrad.core.source import Source
from tetrad.graph.group import Group
from tetrad.loopnest.frame import Frame
from tetrad.ops.callback.op import HostFunction, callback, effect
from tetrad.ops.rules import Array
from tetrad.schedule.nodes import Callback, Leaf


@callback.kernel
@effect.kernel
def lower_callback(frame: Frame, group: Group) -> list[Leaf]:
    node, slots = group.root, frame.memory.slots
    function: HostFunction = node.param("function")
    results = frame.memory.results(node) if len(node.types) > 1 else (slots[node],)
    given, kinds = tuple(slots[i] for i in node.inputs), tuple(i.type for i in node.inputs)
    run = function if node.op is callback else Effect(function, node.param("count"))
    return [Callback(function.name, run, given, results, kinds, source=node.source, group=group)]


@record
class Effect:
    """The function of an effect as one of all operands, with the token behind its results."""

    function: HostFunction
    count: int

    def __call__(
        self, arrays: Sequence[Array], shapes: Sequence[Shape], source: Source | None = None
    ) -> tuple[Array, ...]:
        made = self.function(arrays[: self.count], shapes[:-1], source)
        return (*made, np.zeros((), np.uint8))
