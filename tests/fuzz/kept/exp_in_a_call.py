"""exp of x - max(x) had other bits inside a call, where it is not known that the argument is never
positive."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

PROGRAM = Program(
    items=(
        Leaf(f32, (1, 2, 2, 2), 493529581, "small"),  # 0
        Step("reduce_max", (0,), {"axes": (3,)}),  # 1
        Step("reshape", (1,), {"shape": (1, 2, 2, 1)}, group=1),  # 2
        Step("expand", (2,), {"shape": (1, 2, 2, 2)}, group=1),  # 3
        Step("subtract", (0, 3), {}, group=1),  # 4
        Step("exp", (4,), {}, group=1),  # 5
    ),
    outputs=(5,),
    bindings=({},),
    seed=834908195506,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
