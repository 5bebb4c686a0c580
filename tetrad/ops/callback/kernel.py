"""callback, lowering: one step of the schedule that calls the function."""

from __future__ import annotations

from tetrad.graph.group import Group
from tetrad.loopnest.frame import Frame
from tetrad.ops.callback.op import HostFunction, callback
from tetrad.schedule.nodes import Callback, Leaf


@callback.kernel
def lower_callback(frame: Frame, group: Group) -> list[Leaf]:
    node, slots = group.root, frame.memory.slots
    function: HostFunction = node.param("function")
    results = frame.memory.results(node) if len(node.types) > 1 else (slots[node],)
    given, kinds = tuple(slots[i] for i in node.inputs), tuple(i.type for i in node.inputs)
    return [
        Callback(function.name, function, given, results, kinds, source=node.source, group=group)
    ]
