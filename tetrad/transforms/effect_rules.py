"""Transforms, effects: batches of what happens. An effect that reads no row of the batch happens
once; what waits for effects has the axis if it had it before.

Importing this module fills the table of `transforms.batch`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.graph.build import results, with_inputs
from tetrad.graph.nodes import Node
from tetrad.ops.callback.op import effect, tie
from tetrad.transforms import batch as batching
from tetrad.transforms.batch import Axis, Many, batched_op
from tetrad.transforms.jvp import Flags


def batch_tie(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> Many:
    return (tie(*inputs),), batched[:1]


def batch_effect(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> Many:
    if any(batched[: node.param("count")]):
        found = batched_op(node, inputs, batched, axis)
        made = found if isinstance(found, tuple) else (found,)
        return made, (True,) * len(made)
    once = with_inputs(node, tuple(inputs))
    made = results(once) if len(once.types) > 1 else (once,)
    return made, (False,) * len(made)


batching.NESTED |= {tie: batch_tie, effect: batch_effect}
