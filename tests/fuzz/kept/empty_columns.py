"""A sum over nothing along columns was not written."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

PROGRAM = Program(
    items=(
        Leaf(i8, (1, 0, 1), 2, "random"),  # 0
        Step("reduce_sum", (0,), {"axes": (0, 1)}),  # 1
    ),
    outputs=(1,),
    bindings=({},),
    seed=0,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
