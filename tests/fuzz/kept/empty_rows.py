"""A kernel without rows divided by a size of 0."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

PROGRAM = Program(
    items=(
        Leaf(f64, (1, 6, 1, 1), 2, "zeros"),  # 0
        # 1
        Step(
            "slice", (0,), {"starts": (0, 5, 2, 0), "sizes": (1, 1, 0, 1), "steps": (-1, 1, 3, 1)}
        ),
        Step("reduce_sum", (1,), {"axes": (3,)}),  # 2
    ),
    outputs=(2,),
    bindings=({},),
    seed=0,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
