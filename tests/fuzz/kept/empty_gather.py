"""A product over nothing that is gathered divided by a size of 0."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

PROGRAM = Program(
    items=(
        Leaf(f32, (1, 1), 474460913, "zeros"),  # 0
        Leaf(u8, (0,), 0, "index"),  # 1
        Step("gather", (0, 1), {"axis": 1}),  # 2
        Step("reduce_prod", (2,), {"axes": (0, 1)}),  # 3
    ),
    outputs=(3,),
    bindings=({},),
    seed=0,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
