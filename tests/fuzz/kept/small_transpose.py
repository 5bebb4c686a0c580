"""A tile of a transpose read rows that are not there, in a branch never taken."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

PROGRAM = Program(
    items=(
        Leaf(f32, (2, 1), 916315893, "zeros"),  # 0
        Step("expand", (0,), {"shape": (2, 32)}),  # 1
        Step("transpose", (1,), {"perm": (1, 0)}),  # 2
    ),
    outputs=(2,),
    bindings=({},),
    seed=0,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
