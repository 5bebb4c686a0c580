"""A value of a row that needs an early reduction and a late one was stored after the early one."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

PROGRAM = Program(
    items=(
        Leaf(f32, (2, 2), 1, "zeros"),  # 0
        Step("reduce_max", (0,), {"axes": (1,)}),  # 1
        Step("reshape", (1,), {"shape": (2, 1)}),  # 2
        Step("expand", (2,), {"shape": (2, 2)}),  # 3
        Step("reduce_sum", (3,), {"axes": (1,)}),  # 4
        Step("reshape", (4,), {"shape": (2, 1)}),  # 5
        Step("expand", (5,), {"shape": (2, 2)}),  # 6
        Step("divide", (3, 6), {}),  # 7
    ),
    outputs=(7,),
    bindings=({},),
    seed=37,
    via_jit=False,
    transform="grad",
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
