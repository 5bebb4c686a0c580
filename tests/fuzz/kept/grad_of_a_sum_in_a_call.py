"""The cotangent of a sum over a Dim, inside a call, was a graph that no input tells the size of."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

n = Dim("n", max=300)
PROGRAM = Program(
    items=(
        Leaf(f32, (2 * n,), 306846279, "zeros"),  # 0
        Step("reduce_sum", (0,), {"axes": (0,)}, group=1),  # 1
        Step("reshape", (1,), {"shape": (1,)}, group=1),  # 2
    ),
    outputs=(2,),
    bindings=({"n": 17},),
    seed=836939806502,
    via_jit=False,
    transform="grad",
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
