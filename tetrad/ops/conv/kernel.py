"""Kernels of convolutions: a plan, and the generator that follows it."""

from __future__ import annotations

from tetrad.graph.group import Group
from tetrad.loopnest.frame import Frame
from tetrad.ops.conv.op import conv, conv_weight, form_of, weight_form_of
from tetrad.ops.conv.plan import plan_conv, plan_weight
from tetrad.ops.conv.tiles import ConvTiles
from tetrad.ops.conv.weight_tiles import WeightTiles
from tetrad.ops.matmul.epilogue import accumulator
from tetrad.schedule.nodes import Launch


@conv.kernel
def lower_conv(frame: Frame, group: Group) -> Launch | list[Launch]:
    node = group.root
    form = form_of(*node.inputs, **dict(node.params))
    dtype = accumulator(node.inputs[0].type.dtype)
    return ConvTiles(frame, group, form, plan_conv(form, dtype, frame.memory.machine)).launches()


@conv_weight.kernel
def lower_conv_weight(frame: Frame, group: Group) -> Launch | list[Launch]:
    node = group.root
    form = weight_form_of(*node.inputs, **dict(node.params))
    dtype = accumulator(node.inputs[0].type.dtype)
    return WeightTiles(frame, group, form, plan_weight(form, dtype, frame.memory.machine)).launch()
