"""Kernel language, library, invalid sizes: what builders return where a program cannot be.

Each entry is the program of a size that cannot be. It builds, prints and serialises like any other,
and its launch must fail with the message of the builder.
"""

from __future__ import annotations

from tetrad.kernel.library import int4_ops as ops
from tetrad.kernel.library.linear_4bit import linear_4bit, linear_4bit_affine_grouped
from tetrad.kernel.library.tensor_train import tt_contract_step
from tetrad.kernel.nodes import Program
from tetrad.kernel.registry import INVALID, Entry, ExpectedTrap, register

CASES: list[tuple[Entry, dict[str, int], str]] = [
    (ops.int4_dot_i32, {"lanes": 0}, "lanes=0"),
    (ops.int4_dot_f32_scaled, {"lanes": 0}, "lanes=0"),
    (ops.int4_matvec_f32_scaled, {"rows": 0}, "rows=0"),
    (ops.int4_batched_matvec_f32_scaled, {"cols": 0}, "cols=0"),
    (ops.int4_batched_matmul_f32_scaled, {"batch": 0}, "batch=0"),
    (ops.int4_batched_matmul_top1_f32_scaled, {"rows": (1 << 24) + 1}, "exceeds 2**24"),
    (linear_4bit, {"in_dim": 7}, "divisible by 8"),
    (linear_4bit_affine_grouped, {"group_size": 0}, "group_size=0"),
    (tt_contract_step, {"r_prev": 1 << 16, "r_next": 1 << 16}, "overflows u32"),
]


def register_invalid(entry: Entry, sizes: dict[str, int], message: str) -> None:
    def build() -> Program:
        return entry.build(**sizes)

    build.__doc__ = f"What {entry.id} is with {sizes}: a program that traps."
    register(
        f"tetrad::invalid::{entry.id.rpartition('::')[2]}_{'_and_'.join(sizes)}",
        build=build,
        category="invalid",
        inputs=[[]],
        expected=[ExpectedTrap(INVALID, 0, message)],
    )


for case in CASES:
    register_invalid(*case)
