"""Kernels of convolutions: a plan, and the generator that follows it."""

from __future__ import annotations

from tetrad.core.dtypes import DType
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.reader import splat_value
from tetrad.ops.conv.depthwise import DepthwiseTiles, DepthwiseWeight
from tetrad.ops.conv.op import conv, conv_weight, form_of, weight_form_of
from tetrad.ops.conv.plan import (
    has_holes,
    plan_conv,
    plan_depthwise,
    plan_depthwise_weight,
    plan_weight,
    takes_depthwise,
)
from tetrad.ops.conv.tiles import ConvTiles
from tetrad.ops.conv.weight_tiles import WeightTiles
from tetrad.ops.matmul.epilogue import accumulator
from tetrad.schedule.nodes import Launch


@conv.kernel
def lower_conv(frame: Frame, group: Group) -> Launch | list[Launch]:
    node = group.root
    form = form_of(*node.inputs, **dict(node.params))
    dtype, machine = accumulator(node.inputs[0].type.dtype), frame.memory.machine
    if takes_depthwise(form):
        return DepthwiseTiles(frame, group, form, plan_depthwise(form, dtype, machine)).launch()
    plan = plan_conv(form, dtype, machine, is_readable(frame, node.inputs[0], dtype))
    return ConvTiles(frame, group, form, plan).launches()


@conv_weight.kernel
def lower_conv_weight(frame: Frame, group: Group) -> Launch | list[Launch]:
    node = group.root
    form = weight_form_of(*node.inputs, **dict(node.params))
    dtype, machine = accumulator(node.inputs[0].type.dtype), frame.memory.machine
    if takes_depthwise(form) and not has_holes(form):
        plan = plan_depthwise_weight(form, dtype, machine)
        return DepthwiseWeight(frame, group, form, plan).launch()
    weight_plan = plan_weight(form, dtype, machine, is_readable(frame, node.inputs[0], dtype))
    return WeightTiles(frame, group, form, weight_plan).launch()


def is_readable(frame: Frame, x: Node, dtype: DType) -> bool:
    """Does x lie in memory as the kernel computes with it?"""
    return x in frame.inputs and x.type.dtype is dtype and splat_value(x) is None
