"""One contraction step of a tensor train: the vectors of spec kernel-ir 17.2."""

from __future__ import annotations

import numpy as np
import pytest

import tetrad as td
from tests.kernel.library.oracle import launched, words
from tetrad.core.errors import ShapeError, TrapError
from tetrad.kernel.library.tensor_train import ONE, tt_contract_step

NAMES = ("acc_in", "core_slice", "acc_out")


def step(acc: list[int], core: list[list[int]]) -> list[int]:
    """On both machines; the output holds other numbers before."""
    r_prev, r_next = len(core), len(core[0])
    program = tt_contract_step.build(*NAMES, r_prev, r_next)
    flat = [cell for row in core for cell in row]
    (out,) = launched(program, words(acc), words(flat), words([9] * r_next))
    return np.frombuffer(out, "<u4").tolist()


def fixed(*values: float) -> list[int]:
    return [int(value * ONE) for value in values]


def test_an_identity_keeps_the_accumulator() -> None:
    assert step(fixed(3, 5), [fixed(1, 0), fixed(0, 1)]) == fixed(3, 5)


def test_a_wide_core() -> None:
    assert step(fixed(1, 2), [fixed(1, 2, 3), fixed(4, 5, 6)]) == fixed(9, 12, 15)


def test_fractions() -> None:
    assert step(fixed(1.5, 0.25), [fixed(0.5, 2), fixed(0.5, 4)]) == [0x0000E000, 0x00040000]


@pytest.mark.parametrize(
    ("p", "q", "product"),
    [
        (0x00028000, 0x00014000, 0x00032000),
        (0xFFFFFFFF, 0x00010000, 0xFFFFFFFF),
        (0x80000000, 0x00020000, 0),
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFE0000),
        (1, 0xFFFF, 0),
    ],
)
def test_products_keep_all_64_bits(p: int, q: int, product: int) -> None:
    assert product == (p * q >> 16) & 0xFFFFFFFF
    assert step([p], [[q]]) == [product]


def test_plain_integers_pass_through_ones() -> None:
    """The trick of the analysis: cores of 65536 multiply by the rank, exactly."""
    assert step([7] * 5, [[ONE] * 300] * 5) == [35] * 300


def test_the_layout() -> None:
    program = tt_contract_step.build(*NAMES, 3, 5)
    assert [(b.name, str(b.dtype), b.access, b.count) for b in program.buffers] == [
        ("acc_in", "u32", "read", 3),
        ("core_slice", "u32", "read", 15),
        ("acc_out", "u32", "readwrite", 5),
    ]
    assert program.workgroup == (256, 1, 1)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [((0, 2), "r_prev=0"), ((2, 0), "r_next=0"), ((1 << 16, 1 << 16), "overflows u32")],
)
def test_sizes_that_cannot_be(sizes: tuple[int, int], text: str) -> None:
    with pytest.raises(ShapeError, match=f"Fix: tt_contract_step: .*{text}"):
        tt_contract_step.build_or_raise(*NAMES, *sizes)
    program = tt_contract_step.build(*NAMES, *sizes)
    assert [(b.name, str(b.dtype), b.count) for b in program.buffers] == [("acc_out", "u32", 1)]
    with pytest.raises(TrapError, match=text):
        td.dispatch(program, [])
