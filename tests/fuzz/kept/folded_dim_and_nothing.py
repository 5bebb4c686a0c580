"""A constant of a shape with a Dim and a 0 was taken for one of known shape."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

n = Dim("n", max=33)
PROGRAM = Program(
    items=(
        Leaf(u32, (), 497610, "number", constant=True),  # 0
        Step("expand", (0,), {"shape": (n, 2, 0, 1)}),  # 1
        Step("bitwise_and", (1, 1), {}),  # 2
        Leaf(f32, (n,), 837, "zeros"),  # 3
    ),
    outputs=(2, 3),
    bindings=({"n": 2},),
    seed=0,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
