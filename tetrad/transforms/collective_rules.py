"""Transforms, collective rules: ops between the rows of a batch, once the batch is an axis.

Receives a node that names the axis `batch` adds, and its operand; returns ordinary ops over that
axis. Importing this module fills the table of `transforms.batch`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tetrad.core.dtypes import i32
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import positions, run
from tetrad.ops.collective import all_gather, axis_index, pmax, psum
from tetrad.transforms.batch import COLLECTIVE, Axis, Many, with_axis
from tetrad.transforms.jvp import Flags


def batch_psum(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> Many:
    rows = with_axis(inputs[0], batched[0], axis)
    return (run("reduce_sum", rows, axes=(0,)),), (False,)


def batch_pmax(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> Many:
    return (run("reduce_max", inputs[0], axes=(0,)) if batched[0] else inputs[0],), (False,)


def batch_all_gather(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> Many:
    return (with_axis(inputs[0], batched[0], axis),), (False,)


def batch_axis_index(node: Node, inputs: Sequence[Node], batched: Flags, axis: Axis) -> Many:
    return (positions((axis.size,), 0, i32),), (True,)


COLLECTIVE |= {
    psum: batch_psum,
    pmax: batch_pmax,
    all_gather: batch_all_gather,
    axis_index: batch_axis_index,
}
