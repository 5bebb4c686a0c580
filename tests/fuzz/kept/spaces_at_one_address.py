"""Values of one vector were taken for those of another whose index space had its address."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

n = Dim("n", max=33)
PROGRAM = Program(
    items=(
        Leaf(f32, (2 * n, 4, 4), 1004377466, "random"),  # 0
        Step("cast", (0,), {"dtype": u32}),  # 1
        Step("bitwise_invert", (1,), {}),  # 2
        Step("cast", (2,), {"dtype": f64}),  # 3
        Step("add", (3, 3), {}),  # 4
    ),
    outputs=(4,),
    bindings=({"n": 7}, {"n": 31}),
    seed=0,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
