"""Compiler, fusion pressure: how much a chain of regions keeps in flight, asked as a tensor train.

Receives the element counts of the buffers between neighbouring regions (ranks); returns the product
of those that are not 0. The kernel form contracts cores of ones, step by step, through a dispatcher
that is handed in (`td.dispatch`, or the evaluator in tests); the closed form needs none and has no
limits. `explain.pressure` shows question and answer for a program.

In the kernel form lanes hold plain integers and cores the fixed-point one, so nothing is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from tetrad.core.backend import RUNNING
from tetrad.core.errors import BackendError, BadInputs
from tetrad.core.record import field, record
from tetrad.kernel.library.tensor_train import ONE, tt_contract_step
from tetrad.kernel.nodes import Program

Grid = tuple[int, int, int]
# program, inputs, grid -> outputs, as `td.dispatch`
Dispatcher = Callable[[Program, Sequence[Any], Grid], Sequence[Any]]
MOST_CELLS = 1 << 20  # of one core
MOST_PRODUCT = (1 << 32) - 1  # more would wrap a lane
LANES = 256
SLOTS = 3  # accumulator, core, output
RANKS = "D010"  # code of errors
HINT = "should_fuse_chain has no limits"


@record(frozen=False, eq=False)
class PressureCalls:
    """How often each form was asked; of the kernel form also how many launches it made."""

    kernel: int = 0
    launches: int = 0
    reference: int = 0


CALLS = PressureCalls()


def no_words() -> np.ndarray:
    return np.empty(0, np.uint32)


@record(frozen=False, eq=False)
class TensorTrainScratch:
    """What a caller keeps from one question to the next: a second one of the same sizes allocates
    nothing. Starts empty."""

    accumulator: np.ndarray = field(default_factory=no_words)
    core: np.ndarray = field(default_factory=no_words)
    output: np.ndarray = field(default_factory=no_words)
    inputs: list[Any] = field(default_factory=list)

    def reserve(self, most: int, cells: int) -> None:
        """Room for `most` lanes and so many cells, all of which hold one."""
        if self.accumulator.size < most or self.output.size < most:
            self.accumulator, self.output = np.zeros(most, np.uint32), np.zeros(most, np.uint32)
        if self.core.size < cells:
            self.core = np.full(cells, ONE, np.uint32)

    def place(self, r_prev: int, r_next: int) -> list[Any]:
        """The inputs of a step: exactly as many slots as it needs, those left over go."""
        del self.inputs[SLOTS:]
        self.inputs.extend(b"" for _ in range(SLOTS - len(self.inputs)))
        self.output[:r_next] = 0
        self.inputs[0] = self.accumulator[:r_prev]
        self.inputs[1] = self.core[: r_prev * r_next]
        self.inputs[2] = self.output[:r_next]
        return self.inputs

    def swap(self) -> None:
        self.accumulator, self.output = self.output, self.accumulator


# -- the kernel form -------------------------------------------------------------------------------


def fusion_pressure_via(dispatcher: Dispatcher, ranks: Iterable[int]) -> float:
    """The pressure of a chain, by launches: one for each rank that is not 0, and one at the end.

    >>> import tetrad as td
    >>> fusion_pressure_via(td.dispatch, [4, 0, 8])
    32.0
    """
    return fusion_pressure_via_with_scratch(dispatcher, ranks, TensorTrainScratch())


def fusion_pressure_via_with_scratch(
    dispatcher: Dispatcher, ranks: Iterable[int], scratch: TensorTrainScratch
) -> float:
    """The same in memory that the caller keeps."""
    CALLS.kernel += 1
    chain = checked_ranks(ranks)
    if not chain:
        return 0.0
    steps = steps_of([rank for rank in chain if rank])
    widest = max(r_next for _, r_next in steps)
    scratch.reserve(max(widest, 1), max(r_prev * r_next for r_prev, r_next in steps))
    scratch.accumulator[0] = 1
    for r_prev, r_next in steps:
        contract(dispatcher, scratch, r_prev, r_next)
    return float(scratch.accumulator[0])


def steps_of(ranks: Sequence[int]) -> list[tuple[int, int]]:
    """The sizes of every step, the last of which ends with one lane; all limits are looked at
    before any memory is reserved."""
    steps: list[tuple[int, int]] = []
    product, r_prev = 1, 1
    for rank in ranks:
        product *= rank
        if product > MOST_PRODUCT:
            message = f"fusion pressure: the product {product} of the ranks exceeds {MOST_PRODUCT}"
            raise BadInputs(message, code=RANKS, hint=HINT)
        if r_prev * rank > MOST_CELLS:
            cells = f"{r_prev} x {rank} = {r_prev * rank}"
            message = f"fusion pressure: a core of {cells} cells exceeds {MOST_CELLS}"
            raise BadInputs(message, code=RANKS, hint=HINT)
        steps.append((r_prev, rank))
        r_prev = rank
    return [*steps, (r_prev, 1)]


def contract(dispatcher: Dispatcher, scratch: TensorTrainScratch, r_prev: int, r_next: int) -> None:
    """One launch; its output is the accumulator of the next."""
    CALLS.launches += 1
    grid = (-(-r_next // LANES), 1, 1)
    made = dispatcher(step_program(r_prev, r_next), scratch.place(r_prev, r_next), grid)
    if not made:
        raise BackendError("fusion pressure: the step gave no output", code=RUNNING, hint=REPORT)
    came = memoryview(made[0]).nbytes
    if came != 4 * r_next:
        message = f"fusion pressure: the step gave {came} bytes, expected {4 * r_next}"
        raise BackendError(message, code=RUNNING, hint=REPORT)
    scratch.output[:r_next] = np.frombuffer(made[0], "<u4")
    scratch.swap()


REPORT = "the dispatcher does not give what the program writes"


@lru_cache(maxsize=256)
def step_program(r_prev: int, r_next: int) -> Program:
    return tt_contract_step.build("acc_in", "core_slice", "acc_out", r_prev, r_next)


def should_fuse_chain_via(dispatcher: Dispatcher, ranks: Iterable[int], threshold: float) -> bool:
    """Is the geometric mean of the ranks at most `threshold`? By the kernel form; not for an empty
    chain.

    >>> import tetrad as td
    >>> should_fuse_chain_via(td.dispatch, [8, 8, 8], 16), should_fuse_chain([8, 8, 8], 4)
    (True, False)
    """
    chain = checked_ranks(ranks)
    if not chain:
        return False
    return is_at_most(int(fusion_pressure_via(dispatcher, chain)), threshold, len(chain))


# -- on the host -----------------------------------------------------------------------------------


def should_fuse_chain(ranks: Iterable[int], threshold: float) -> bool:
    """The same without launches and without limits."""
    chain = checked_ranks(ranks)
    return bool(chain) and is_at_most(product_of(chain), threshold, len(chain))


def reference_fusion_pressure(ranks: Iterable[int]) -> float:
    """The pressure by multiplication: what the kernel form must give."""
    CALLS.reference += 1
    chain = checked_ranks(ranks)
    return float(product_of(chain)) if chain else 0.0


def product_of(ranks: Sequence[int]) -> int:
    """A rank of 0 is a pair of regions without data flow: it does not count."""
    return math.prod(rank for rank in ranks if rank)


def is_at_most(pressure: int, threshold: float, links: int) -> bool:
    """Is pressure <= threshold ** links? In exact numbers: logarithms disagree where both are
    equal."""
    if math.isnan(threshold):
        raise BadInputs("fusion pressure: the threshold is NaN", code=RANKS)
    if threshold <= 0 or math.isinf(threshold):
        return threshold > 0
    return pressure <= Fraction(threshold) ** links


def checked_ranks(ranks: Iterable[int]) -> list[int]:
    found = list(ranks)
    for rank in found:
        if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 0:
            message = f"fusion pressure: a rank is a number of elements, got {rank!r}"
            raise BadInputs(message, code=RANKS)
    return [int(rank) for rank in found]
