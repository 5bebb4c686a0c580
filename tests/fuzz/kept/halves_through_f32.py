"""Casts to halves were rounded twice."""

# ruff: noqa: F401, F403, F405
from numpy import inf, nan

from tests.fuzz.check import check
from tests.fuzz.program import Leaf, Program, Step
from tetrad.core.dtypes import *
from tetrad.core.sizes import Dim

PROGRAM = Program(
    items=(
        Leaf(f64, (64,), 5, "ties"),  # 0
        Step("cast", (0,), {"dtype": f16}),  # 1
        Step("cast", (0,), {"dtype": bf16}),  # 2
    ),
    outputs=(1, 2),
    bindings=({},),
    seed=0,
    via_jit=False,
)

if __name__ == "__main__":
    print(check(PROGRAM) or "right")
