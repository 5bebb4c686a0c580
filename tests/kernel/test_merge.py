"""Kernels that differ only in sizes and numbers become one that is told them, and computes the same
to the bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tetrad.core.dtypes import DType, f32, f64, i32, i64, u32, u64
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.merge import MOST, merged
from tetrad.kernel.nodes import Program
from tetrad.kernel.text import parse, to_text
from tetrad.kernel.verify import verify

Body = Callable[[KernelBuilder, Val, Val], Val]


def rows(
    rows: int, pitch: int, *, name: str = "rows", factor: float = 2.0, step: int = 16
) -> Program:
    """y[group] = factor * the sum of a row of x; rows are `pitch` apart, and all of a row goes
    through scratch."""
    k = KernelBuilder(name)
    x, y = k.buffer("x", f32, "read", rows * pitch), k.buffer("y", f32, "write", rows)
    kept = k.scratch("kept", f32, pitch)
    total = k.local(0.0, f32)
    with k.loop(pitch, 0, step) as column:
        value = k.load(x, k.group_id() * pitch + column + k.lane())
        k.store(kept, column + k.lane(), value)
        total.set(total.get() + value * factor)
    with k.when(k.group_id() < rows):
        k.store(y, k.group_id(), k.reduce_lanes("add", total.get()))
    return k.finish()


def computed(program: Program, x: np.ndarray, numbers: dict[str, int]) -> np.ndarray:
    y = np.zeros(len(x), np.float32)
    evaluate(program, {"x": x.reshape(-1), "y": y}, numbers, (len(x), 1, 1))
    return y


def data(rows: int, pitch: int) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((rows, pitch), np.float32)


@pytest.mark.parametrize(
    "sizes",
    [[(3, 32), (5, 64)], [(64, 64), (3, 64), (64, 32)], [(7, 48), (48, 48)], [(2, 16), (2, 16)]],
)
def test_one_program_computes_what_each_did(sizes: list[tuple[int, int]]) -> None:
    """In some of them rows and pitch are one literal, in others they are two."""
    programs = [rows(*size) for size in sizes]
    found = merged(programs)
    assert found is not None
    verify(found.program)
    assert to_text(parse(to_text(found.program))) == to_text(found.program)
    for program, numbers, size in zip(programs, found.numbers, sizes, strict=True):
        want = computed(program, data(*size), {})
        assert computed(found.program, data(*size), numbers).tobytes() == want.tobytes()


def test_only_what_differs_is_an_argument() -> None:
    found = merged([rows(3, 32), rows(5, 32)])
    assert found is not None and found.numbers == ({"literal_0": 3}, {"literal_0": 5})
    # storage is what it is, scratch the largest
    assert [b.count for b in found.program.buffers] == [None, None, 32]
    same = merged([rows(3, 32), rows(3, 32)])
    assert same is not None and same.numbers == ({}, {}) and same.program.args == ()


UNLIKE = {"another step": rows(5, 64, step=32), "no loop": rows(5, 16)}


@pytest.mark.parametrize("name", UNLIKE)
def test_what_differs_in_more_than_literals_stays_two(name: str) -> None:
    assert merged([rows(3, 32), UNLIKE[name]]) is None
    assert merged([UNLIKE[name], rows(3, 32)]) is None


def made(body: Body) -> Program:
    k = KernelBuilder("made")
    x, y = k.buffer("x", f32, "read"), k.buffer("y", f32, "write")
    at = body(k, k.group_id(), k.lane())
    k.store(y, k.group_id() * 16 + k.lane(), k.load(x, at))
    return k.finish()


def scaled(dtype: DType, number: float, op: str = "mul") -> Program:
    """y = x op number, or number op x where the operand that is a literal may be either."""
    k = KernelBuilder("scaled")
    x, y = k.buffer("x", dtype, "read", 16), k.buffer("y", dtype, "write", 16)
    k.store(y, k.lane(), k.binary(op, k.load(x, k.lane()), k.const(number, dtype)))
    return k.finish()


NUMBERS = {
    f32: [1.5, -0.0, float("inf"), 1e-45, float("nan")],
    f64: [0.1, -0.0, float("-inf"), 5e-324, -1e300],
    i32: [3, -(2**31), 2**31 - 1],
    i64: [3, -(2**63), 2**63 - 1],
    u32: [3, 2**32 - 1],
    u64: [3, 2**64 - 1, 2**63],
}


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_numbers_are_told_to_the_bit(dtype: DType) -> None:
    programs = [scaled(dtype, number) for number in NUMBERS[dtype]]
    found = merged(programs)
    assert found is not None and len(found.program.args) == 1
    verify(found.program)
    x = np.arange(16).astype(dtype.np)
    for program, numbers in zip(programs, found.numbers, strict=True):
        want, got = np.zeros_like(x), np.zeros_like(x)
        evaluate(program, {"x": x, "y": want}, {}, (1, 1, 1))
        evaluate(found.program, {"x": x, "y": got}, numbers, (1, 1, 1))
        assert got.tobytes() == want.tobytes()


def test_integers_are_divided_by_literals() -> None:
    """Then it is a multiplication; floats are divided either way."""
    for op in ("div", "mod"):
        assert merged([scaled(i32, 3, op), scaled(i32, 5, op)]) is None
    assert merged([scaled(f32, 3, "div"), scaled(f32, 5, "div")]) is not None


def test_a_stride_of_lanes_stays_a_literal() -> None:
    by_lane = [made(lambda k, group, lane, s=s: group * 64 + lane * s) for s in (2, 3)]
    assert merged(by_lane) is None
    by_division = [made(lambda k, group, lane, s=s: group * 64 + lane // s) for s in (2, 4)]
    assert merged(by_division) is None
    by_group = [made(lambda k, group, lane, s=s: group * s + lane) for s in (2, 3)]
    assert merged(by_group) is not None


def test_other_instructions_operands_and_buffers_are_seen() -> None:
    plain = made(lambda k, group, lane: group * 5 + lane)
    assert merged([plain, made(lambda k, group, lane: group - 5 + lane)]) is None
    assert merged([plain, made(lambda k, group, lane: lane * 5 + group)]) is None
    assert merged([plain, made(lambda k, group, lane: group * k.arg("n") + lane)]) is None
    assert merged([plain, rows(3, 32)]) is None


def test_a_dim_keeps_its_name() -> None:
    named = [
        made(lambda k, group, lane, s=s: group * s + k.arg("literal_0") + lane) for s in (2, 3)
    ]
    assert merged(named) is None


def test_many_differences_are_another_kernel() -> None:
    def chain(shift: int, count: int) -> Program:
        def body(k: KernelBuilder, group: Val, lane: Val) -> Val:
            for i in range(count):
                group = k.min(group * 2, 100 * i + shift)
            return group + lane

        return made(body)

    assert merged([chain(1, MOST), chain(2, MOST)]) is not None
    assert merged([chain(1, MOST + 1), chain(2, MOST + 1)]) is None


def test_long_chains_of_operands() -> None:
    def body(k: KernelBuilder, group: Val, lane: Val) -> Val:
        for _ in range(3000):
            group = k.min(group * 2, 77)
        return group + lane

    assert merged([made(body), made(body)]) is not None
