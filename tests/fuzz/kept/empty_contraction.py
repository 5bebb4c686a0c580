"""A product that contracts a Dim of size 0 was not written."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

n = Dim("n", max=33)
PROGRAM = Program(
    items=(
        Leaf(f32, (n, 9), 3, "random"),  # 0
        Step("transpose", (0,), {"perm": (1, 0)}),  # 1
        Step("matmul", (1, 0), {}),  # 2
    ),
    outputs=(2,),
    bindings=({"n": 0}, {"n": 7}),
    seed=0,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
