"""Kernels of the positions of extremes: a line of the axis in each lane, from its first element."""

from __future__ import annotations

from tetrad.core.dtypes import i64
from tetrad.core.sizes import product
from tetrad.graph.group import Group
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.lines import Lines
from tetrad.ops.arg_extremes.op import argmax, argmin
from tetrad.schedule.nodes import Launch


@argmax.kernel
@argmin.kernel
def lower_arg(frame: Frame, group: Group) -> Launch:
    """Position of the first extreme element; NaN is more extreme than any number."""
    node, k = group.root, frame.k
    lines = Lines(frame, node, node.param("axis"))
    out = frame.output(frame.memory.slots[node])
    better = "gt" if node.op is argmax else "lt"

    def body() -> None:
        operand = node.inputs[0]
        best = k.local(frame.reading.wide(operand, lines.at(k.index(0))))
        where = k.local(0, i64)
        with k.loop(frame.sizes.val(lines.shape[lines.axis]), 1) as i:
            value = frame.reading.wide(operand, lines.at(i))
            wins = k.compare(better, value, best)
            if value.dtype.is_float:
                wins = (wins | value.ne(value)) & best.get().eq(best)
            where.set(k.select(wins, k.cast(i, i64), where))
            best.set(k.select(wins, value, best))
        at = (*lines.row, *lines.at(k.index(0))[len(lines.row) + 1 :])
        frame.write(out, node, at, where.get())

    lines.run(body)
    return frame.finish(lines.groups, group, flops=product(lines.shape))
