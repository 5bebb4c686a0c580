"""The kernel of one group was used for another that reads a different number, one that has memory
as well."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

PROGRAM = Program(
    items=(
        Leaf(f32, (1, 1), 78223764, "zeros"),  # 0
        Leaf(f32, (0, 1), 3, "zeros"),  # 1
        Leaf(f32, (), 983968, "number", constant=True),  # 2
        Step("expand", (2,), {"shape": (5, 1)}),  # 3
        Step("concat", (3, 1, 0), {"axis": 0}),  # 4
    ),
    outputs=(4,),
    bindings=({},),
    seed=72,
    via_jit=False,
    transform="jvp",
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
