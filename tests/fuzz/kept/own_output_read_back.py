"""A fused kernel read its own result from memory before it was written."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

PROGRAM = Program(
    items=(
        Leaf(f32, (31, 3), 803276590, "random"),  # 0
        Step("cast", (0,), {"dtype": bool_}),  # 1
        Step("logical_not", (1,), {}),  # 2
        Step("cast", (1,), {"dtype": i32}),  # 3
        Step("isnan", (3,), {}),  # 4
    ),
    outputs=(4, 1, 2),
    bindings=({},),
    seed=0,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
