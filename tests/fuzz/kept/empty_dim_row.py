"""A reduction over a Dim that is 0 read a partial result that is not there."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

n = Dim("n", max=33)
PROGRAM = Program(
    items=(
        Leaf(f64, (n,), 690441846, "zeros"),  # 0
        Step("reduce_prod", (0,), {"axes": (0,)}),  # 1
    ),
    outputs=(1,),
    bindings=({"n": 0}, {"n": 5}),
    seed=0,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
