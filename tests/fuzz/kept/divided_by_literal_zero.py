"""A division of integers by a constant zero was a kernel that the verifier refuses."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

PROGRAM = Program(
    items=(
        Leaf(i64, (1, 1, 1), 2, "zeros"),  # 0
        Leaf(i64, (), 480132, "number", constant=True),  # 1
        Step("expand", (1,), {"shape": (1, 1, 1)}),  # 2
        Step("floor_divide", (0, 2), {}),  # 3
    ),
    outputs=(3,),
    bindings=({},),
    seed=836939806123,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
