"""Sums of halves were rounded after every addition."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

PROGRAM = Program(
    items=(
        Leaf(f16, (7, 1), 1, "random"),  # 0
        Leaf(u32, (7,), 700830122, "index", below=3),  # 1
        Step("scatter_add", (0, 1), {"size": 3}),  # 2
    ),
    outputs=(2,),
    bindings=({},),
    seed=0,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
