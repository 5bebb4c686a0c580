"""A reduction over a Dim had scratch of a size the kernel did not know."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

n = Dim("n", max=33)
PROGRAM = Program(
    items=(
        Leaf(f32, (1, n), 229452001, "random"),  # 0
        Step("reduce_max", (0,), {"axes": (1,)}),  # 1
    ),
    outputs=(1,),
    bindings=({"n": 1}, {"n": 33}),
    seed=0,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
