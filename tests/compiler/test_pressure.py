"""Fusion pressure: the kernel form, by the evaluator and by dispatch, against the product;
launches, limits, ties, scratch, every error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tetrad as td
from tests.kernel.programs import arrays_of
from tetrad.compiler import pressure
from tetrad.compiler.pressure import (
    CALLS,
    TensorTrainScratch,
    fusion_pressure_via,
    fusion_pressure_via_with_scratch,
    reference_fusion_pressure,
    should_fuse_chain,
    should_fuse_chain_via,
)
from tetrad.core.errors import BackendError, BadInputs
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.nodes import Program

Grid = tuple[int, int, int]


class Counting:
    """A dispatcher that counts, on the evaluator or on the machine."""

    def __init__(self, on_machine: bool = False) -> None:
        self.on_machine, self.launches = on_machine, 0
        self.grids: list[Grid] = []
        self.seen: list[list[Any]] = []

    def __call__(self, program: Program, inputs: Sequence[Any], grid: Grid) -> list[bytes]:
        self.launches += 1
        self.grids.append(grid)
        self.seen.append(list(inputs))
        if self.on_machine:
            return td.dispatch(program, inputs, grid)
        arrays = arrays_of(program, [bytes(memoryview(x).cast("B")) for x in inputs], {})
        evaluate(program, arrays, {}, grid)
        return [arrays[b.name].tobytes() for b in program.buffers if b.is_written]


BOTH = pytest.mark.parametrize("on_machine", [False, True], ids=["evaluator", "dispatch"])
VECTORS = [
    ([64], 64, 2),
    ([4, 8], 32, 3),
    ([2, 3, 5], 30, 4),
    ([2, 3, 5, 7], 210, 5),
    ([8, 8, 8], 512, 4),
    ([4, 0, 8], 32, 3),
    ([0, 0], 1, 1),
    ([1024, 1024], 1_048_576, 3),
    ([], 0, 0),
    ([1], 1, 2),
    ([257, 1, 256], 257 * 256, 4),
]


@BOTH
@pytest.mark.parametrize(("ranks", "want", "launches"), VECTORS)
def test_vectors_and_launches(on_machine: bool, ranks: list[int], want: int, launches: int) -> None:
    dispatcher = Counting(on_machine)
    got = fusion_pressure_via(dispatcher, ranks)
    assert (got, type(got)) == (float(want), float)
    assert dispatcher.launches == launches
    assert got == reference_fusion_pressure(ranks)
    steps = [r for r in ranks if r]
    assert dispatcher.grids == ([(-(-r // 256), 1, 1) for r in steps] + [(1, 1, 1)]) * bool(ranks)


@pytest.mark.parametrize(
    ("ranks", "match"),
    [
        ([4294967295], r"a core of 1 x 4294967295 = 4294967295 cells exceeds 1048576"),
        ([65536, 65536], r"the product 4294967296 of the ranks exceeds 4294967295"),
        ([1024, 1025], r"a core of 1024 x 1025 = 1049600 cells exceeds 1048576"),
        ([1 << 40], "the product 1099511627776"),
        ([2, 3, 1 << 32], "the product 25769803776"),
        ([3, -1], "a rank is a number of elements, got -1"),
        ([2.5], r"a rank is a number of elements, got 2\.5"),
        ([True], "got True"),
    ],
)
def test_refusals_come_before_any_launch_and_any_memory(ranks: list[Any], match: str) -> None:
    dispatcher, scratch = Counting(), TensorTrainScratch()
    with pytest.raises(BadInputs, match=match) as error:
        fusion_pressure_via_with_scratch(dispatcher, ranks, scratch)
    assert error.value.code == "D010"
    assert dispatcher.launches == 0
    assert scratch.accumulator.size == scratch.core.size == scratch.output.size == 0


@pytest.mark.parametrize(
    ("outputs", "match"),
    [
        ([], "the step gave no output"),
        ([b"\0" * 252], "the step gave 252 bytes, expected 256"),
        ([b"\0" * 260], "the step gave 260 bytes, expected 256"),
        ([b""], "the step gave 0 bytes"),
    ],
)
def test_a_missing_or_short_output_is_an_error_of_the_back_end(
    outputs: list[bytes], match: str
) -> None:
    with pytest.raises(BackendError, match=match) as error:
        fusion_pressure_via(lambda program, inputs, grid: outputs, [64])
    assert error.value.code == "1005"


def test_what_the_dispatcher_raises_is_not_caught() -> None:
    def refuses(program: Program, inputs: Sequence[Any], grid: Grid) -> list[bytes]:
        raise BackendError("gone", code="1001")

    with pytest.raises(BackendError, match="gone"):
        fusion_pressure_via(refuses, [3])


def test_random_chains_agree_with_the_product() -> None:
    rng = np.random.default_rng(17)
    dispatcher = Counting()
    for _ in range(60):
        ranks = [int(r) for r in rng.integers(0, 40, rng.integers(1, 6))]
        assert fusion_pressure_via(dispatcher, ranks) == reference_fusion_pressure(ranks)


# -- decisions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "threshold", "want"),
    [
        ([8, 8, 8], 16, True),
        ([8, 8, 8], 4, False),
        ([8, 8, 8], 8, True),
        ([0, 0], 1, True),
        ([0, 0], 0.5, False),
        ([3], 0, False),
        ([3], -1, False),
        ([], 100, False),
        ([4, 0, 8], 4, True),  # 32 <= 4 ** 3: zeros count as links
        ([4, 0, 8], 3.0, False),
        ([5, 5, 5], 5, True),
        ([10] * 6, 10, True),
        ([6, 6, 6], 6, True),
        ([3], math.inf, True),
        ([3], 3 - 1e-15, False),
    ],
)
def test_decisions(ranks: list[int], threshold: float, want: bool) -> None:
    assert should_fuse_chain(ranks, threshold) is want
    assert should_fuse_chain_via(Counting(), ranks, threshold) is want


def test_ties_are_exact() -> None:
    """Ranks all equal to the threshold: logarithms are wrong in 86 cases of these."""
    wrong = 0
    for rank in range(1, 400):
        for links in range(1, 9):
            if rank**links >= 1 << 32:
                break
            assert should_fuse_chain([rank] * links, rank)
            assert not should_fuse_chain([rank] * links, math.nextafter(rank, 0))
            product_form = math.log(rank**links) / links <= math.log(rank)
            sum_form = sum([math.log(rank)] * links) / links <= math.log(rank)
            wrong += not (product_form and sum_form)
    assert wrong >= 86


def test_the_closed_form_has_no_limits() -> None:
    assert should_fuse_chain([1 << 40] * 50, 1 << 40)
    assert not should_fuse_chain([1 << 40] * 50 + [(1 << 40) + 1], 1 << 40)
    assert Fraction(0.1) > Fraction(1, 10)  # thresholds are what they are in binary


def test_a_threshold_that_is_no_number_is_refused() -> None:
    with pytest.raises(BadInputs, match="the threshold is NaN"):
        should_fuse_chain([1], math.nan)


# -- counting and scratch --------------------------------------------------------------------------


def test_calls_are_counted_and_the_oracle_is_not_asked() -> None:
    before = CALLS.kernel, CALLS.launches, CALLS.reference
    fusion_pressure_via(Counting(), [2, 3])
    fusion_pressure_via(Counting(), [])
    should_fuse_chain_via(Counting(), [2], 3)
    should_fuse_chain_via(Counting(), [], 3)  # not counted
    should_fuse_chain([2], 3)
    after = CALLS.kernel, CALLS.launches, CALLS.reference
    assert tuple(b - a for a, b in zip(before, after, strict=True)) == (3, 5, 0)
    reference_fusion_pressure([2])
    assert CALLS.reference == before[2] + 1


@BOTH
def test_a_second_question_of_the_same_sizes_allocates_nothing(on_machine: bool) -> None:
    scratch, dispatcher = TensorTrainScratch(), Counting(on_machine)
    want = fusion_pressure_via_with_scratch(dispatcher, [16, 3, 8], scratch)
    held = {id(scratch.accumulator), id(scratch.output)}
    pointers = {x.ctypes.data for x in (scratch.accumulator, scratch.output, scratch.core)}
    core, inputs = scratch.core, scratch.inputs
    for ranks in ([16, 3, 8], [16, 3, 8], [2, 2], [8, 6, 1]):
        got = fusion_pressure_via_with_scratch(dispatcher, ranks, scratch)
        assert got == reference_fusion_pressure(ranks)
        assert {id(scratch.accumulator), id(scratch.output)} == held
        assert scratch.core is core
        assert scratch.inputs is inputs
        arrays = (scratch.accumulator, scratch.output, scratch.core)
        assert {x.ctypes.data for x in arrays} == pointers
    assert want == 384


def test_slots_are_exactly_those_of_the_program() -> None:
    scratch, dispatcher = TensorTrainScratch(), Counting()
    scratch.inputs[:] = [b"stale"] * 7
    assert fusion_pressure_via_with_scratch(dispatcher, [4], scratch) == 4
    assert [len(inputs) for inputs in dispatcher.seen] == [3, 3]
    assert len(scratch.inputs) == 3
    sizes = [[x.nbytes for x in inputs] for inputs in dispatcher.seen]
    assert sizes == [[4, 16, 16], [16, 16, 4]]


def test_a_larger_question_makes_room_once() -> None:
    scratch, dispatcher = TensorTrainScratch(), Counting()
    fusion_pressure_via_with_scratch(dispatcher, [4], scratch)
    fusion_pressure_via_with_scratch(dispatcher, [100, 100], scratch)
    core = scratch.core
    fusion_pressure_via_with_scratch(dispatcher, [4], scratch)
    assert scratch.core is core
    assert core.size == 10_000
    assert (core == 65536).all()


def test_programs_of_steps_are_made_once() -> None:
    assert pressure.step_program(3, 5) is pressure.step_program(3, 5)
