"""Kernels of products: a plan, and the generator that follows it."""

from __future__ import annotations

from collections.abc import Callable

from tetrad.graph.group import Group
from tetrad.loopnest.frame import Frame
from tetrad.ops.matmul.decoded_rows import DecodedMatmul
from tetrad.ops.matmul.few_rows import lower_few_rows
from tetrad.ops.matmul.group_int8 import GroupInt8
from tetrad.ops.matmul.group_rows import GroupRows
from tetrad.ops.matmul.int8_rows import Int8Matmul
from tetrad.ops.matmul.op import matmul
from tetrad.ops.matmul.plan import MatmulPlan, plan_matmul, product_of
from tetrad.ops.matmul.tiles import Matmul
from tetrad.ops.matmul.weight_rows import RowMatmul
from tetrad.schedule.nodes import Launch

Generator = Callable[[Frame, Group, MatmulPlan], "Launch | list[Launch]"]
GENERATORS: dict[str, Generator] = {
    "tiles": lambda *given: Matmul(*given).launch(),
    "few_rows": lower_few_rows,
    "weight_rows": lambda *given: RowMatmul(*given).launch(),
    "decoded_rows": lambda *given: DecodedMatmul(*given).launch(),
    "int8_rows": lambda *given: Int8Matmul(*given).launch(),
    "group_rows": lambda *given: GroupRows(*given).launches(),
    "group_int8": lambda *given: GroupInt8(*given).launches(),
    "panels": lambda *given: Int8Matmul(*given).launch_panels(),
}


@matmul.kernel
def lower_matmul(frame: Frame, group: Group) -> Launch | list[Launch]:
    memory = frame.memory
    plan = plan_matmul(product_of(group.root, frame.inputs), memory.machine)
    return GENERATORS[plan.generator](frame, group, plan)
