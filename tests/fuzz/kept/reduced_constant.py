"""A reduction of one repeated constant mixed scalars and vectors."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

PROGRAM = Program(
    items=(
        Leaf(f16, (), 46415, "number"),  # 0
        Step("expand", (0,), {"shape": (64, 2)}),  # 1
        Step("transpose", (1,), {"perm": (1, 0)}),  # 2
        Step("reduce_max", (2,), {"axes": (1,)}),  # 3
    ),
    outputs=(3,),
    bindings=({},),
    seed=0,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
