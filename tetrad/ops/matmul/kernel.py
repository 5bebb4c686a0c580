"""Kernels of products: which generator writes them."""

from __future__ import annotations

from tetrad.graph.group import Group
from tetrad.loopnest.frame import Frame
from tetrad.ops.matmul.decoded_rows import DecodedMatmul
from tetrad.ops.matmul.few_rows import is_thin, lower_thin
from tetrad.ops.matmul.int8_rows import LowbitMatmul
from tetrad.ops.matmul.op import decoded_matmul, lowbit_matmul, matmul, row_matmul
from tetrad.ops.matmul.panels import takes_panels
from tetrad.ops.matmul.tiles import Matmul
from tetrad.ops.matmul.weight_rows import RowMatmul
from tetrad.schedule.nodes import Launch


@matmul.kernel
def lower_matmul(frame: Frame, group: Group) -> list[Launch]:
    return lower_thin(frame, group) if is_thin(group.root) else [Matmul(frame, group).launch()]


@row_matmul.kernel
def lower_row_matmul(frame: Frame, group: Group) -> Launch:
    return RowMatmul(frame, group).launch()


@lowbit_matmul.kernel
def lower_lowbit_matmul(frame: Frame, group: Group) -> Launch:
    made = LowbitMatmul(frame, group)
    is_in_panels = made.terms == 1 and takes_panels(group.root, frame.memory.target)
    return made.launch_panels() if is_in_panels else made.launch()


@decoded_matmul.kernel
def lower_decoded_matmul(frame: Frame, group: Group) -> Launch:
    return DecodedMatmul(frame, group).launch()
