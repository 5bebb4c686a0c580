"""Kernel language, atomics: their meaning on NumPy arrays, one invocation after the other.

Receives an operator, a flat array and, in the order of invocations, positions in it and operands;
changes the array and returns the old elements. Bounds and masks are the business of
`kernel.evaluate`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.core.dtypes import DType
from tetrad.kernel import arith

Array = np.ndarray[Any, Any]


def apply(
    op: str, dtype: DType, memory: Array, at: Array, value: Array, expected: Array | None = None
) -> Array:
    """The n-th accesses to all elements are made together: elements do not depend on each other."""
    old, turns = np.zeros(at.shape, memory.dtype), turn_of(at)
    for turn in range(int(turns.max(initial=-1)) + 1):
        now = turns == turn
        old[now] = before = memory[at[now]]
        memory[at[now]] = changed(op, dtype, before, value[now], expected, now)
    return old


def turn_of(at: Array) -> Array:
    """How many earlier accesses went to the same element, for each access."""
    order = np.argsort(at, kind="stable")
    ordered = at[order]
    starts = np.r_[True, ordered[1:] != ordered[:-1]] if at.size else np.zeros(0, np.bool_)
    first = np.maximum.accumulate(np.where(starts, np.arange(at.size), 0))
    turns = np.empty(at.size, np.int64)
    turns[order] = np.arange(at.size) - first
    return turns


def changed(
    op: str, dtype: DType, old: Array, value: Array, expected: Array | None, now: Array
) -> Array:
    """The new elements."""
    if op == "atomic_exchange":
        return value
    if expected is not None:
        return np.where(old == expected[now], value, old)
    made: Array = arith.binary(op.removeprefix("atomic_"), dtype, old, value)
    return made
