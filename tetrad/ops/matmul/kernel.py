"""Kernels of products: a plan, and the generator that follows it."""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core import lazy
from tetrad.graph.group import Group
from tetrad.loopnest.frame import Frame
from tetrad.ops.matmul.op import matmul
from tetrad.ops.matmul.plan import MatmulPlan, plan_matmul, product_of
from tetrad.schedule.nodes import Launch

Generator = Callable[[Frame, Group, MatmulPlan], "Launch | list[Launch]"]
tiles = lazy.later("tetrad.ops.matmul.tiles")
few_rows = lazy.later("tetrad.ops.matmul.few_rows")
weight_rows = lazy.later("tetrad.ops.matmul.weight_rows")
decoded_rows = lazy.later("tetrad.ops.matmul.decoded_rows")
decoded_columns = lazy.later("tetrad.ops.matmul.decoded_columns")
int8_rows = lazy.later("tetrad.ops.matmul.int8_rows")
group_rows = lazy.later("tetrad.ops.matmul.group_rows")
group_int8 = lazy.later("tetrad.ops.matmul.group_int8")
GENERATORS: dict[str, Generator] = {  # each loaded when a plan first names it
    "tiles": lambda *given: tiles.Matmul(*given).launch(),
    "few_rows": lambda *given: few_rows.lower_few_rows(*given),
    "weight_rows": lambda *given: weight_rows.RowMatmul(*given).launch(),
    "decoded_rows": lambda *given: decoded_rows.DecodedMatmul(*given).launch(),
    "decoded_columns": lambda *given: decoded_columns.ColumnMatmul(*given).launch(),
    "int8_rows": lambda *given: int8_rows.Int8Matmul(*given).launch(),
    "panels": lambda *given: int8_rows.Int8Matmul(*given).launch_panels(),
    "group_rows": lambda *given: group_rows.GroupRows(*given).launches(),
    "group_int8": lambda *given: group_int8.GroupInt8(*given).launches(),
}


@matmul.kernel
def lower_matmul(frame: Frame, group: Group) -> Launch | list[Launch]:
    memory = frame.memory
    plan = plan_matmul(product_of(group.root, frame.inputs), memory.machine)
    return GENERATORS[plan.generator](frame, group, plan)
