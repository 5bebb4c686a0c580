"""Kernel language, library, tensor trains: one step of the contraction of a chain of cores.

Values are unsigned 16.16 fixed point: 65536 is 1.0. The compiler asks how much a chain of regions
keeps in flight with it, as anyone else can.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import u32
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.library.sizes import checked_product, refuse_empty
from tetrad.kernel.nodes import Program
from tetrad.kernel.packing import pack
from tetrad.kernel.registry import Sample, register

ONE = 1 << 16


def mul16(k: KernelBuilder, p: Val, q: Val) -> Val:
    """(p * q) >> 16 of the whole 64-bit product, modulo 2**32."""
    return (p * q) >> 16 | k.mulhi(p, q) << 16


@register(
    "tetrad::math::tt_contract_step",
    category="math",
    inputs=[
        [
            pack([3 * ONE, 5 * ONE], u32),
            pack([ONE, 0, 0, ONE], u32),
            pack([0, 0], u32),
        ],
        [
            pack([ONE * 3 // 2, ONE // 4], u32),
            pack([ONE // 2, 2 * ONE, ONE // 2, 4 * ONE], u32),
            pack([7, 7], u32),
        ],
    ],
    expected=[[pack([3 * ONE, 5 * ONE], u32)], [pack([0x0000E000, 0x00040000], u32)]],
)
def tt_contract_step(
    acc_in: str = "acc_in",
    core_slice: str = "core_slice",
    acc_out: str = "acc_out",
    r_prev: int = 2,
    r_next: int = 2,
) -> Program:
    """acc_out[b] = sum over a of mul16(acc_in[a], core_slice[a, b]), modulo 2**32."""
    refuse_empty("tt_contract_step", r_prev=r_prev, r_next=r_next)
    cells = checked_product("tt_contract_step", "r_prev * r_next", r_prev, r_next)
    k = KernelBuilder("tt_contract_step", 256)
    acc = k.buffer(acc_in, u32, count=r_prev)
    core, y = k.buffer(core_slice, u32, count=cells), k.buffer(acc_out, u32, "readwrite", r_next)
    t = k.global_id()
    with k.when(t < r_next, guard=True):
        total = k.local(0, u32)
        with k.loop(r_prev, always=True) as a:
            total.set(total.get() + mul16(k, k.load(acc, a), k.load(core, a * r_next + t)))
        k.store(y, t, total.get())
    return k.finish()


@tt_contract_step.sampler
def tt_contract_sample(rng: np.random.Generator) -> Sample:
    r_prev, r_next = int(rng.integers(1, 20)), int(rng.integers(1, 300))
    acc = rng.integers(0, 1 << 32, r_prev, dtype=np.uint64)
    core = rng.integers(0, 1 << 32, (r_prev, r_next), dtype=np.uint64)
    answer = ((acc[:, None] * core) >> np.uint64(16)).sum(axis=0, dtype=np.uint64)
    given = (acc.astype("<u4").tobytes(), core.astype("<u4").tobytes(), bytes(4 * r_next))
    sizes = ("acc_in", "core_slice", "acc_out", r_prev, r_next)
    return Sample(sizes, given, (answer.astype("<u4").tobytes(),))
