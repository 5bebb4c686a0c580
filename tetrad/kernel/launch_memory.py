"""Kernel language, memory of a launch: how many elements each buffer has, and what scratch holds at
first.

Receives the arrays and arguments of a launch; returns counts after checking the arrays against the
declarations. Accesses are the business of `kernel.evaluate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tetrad.core.errors import BadInputs
from tetrad.core.sizes import bind, dims_of
from tetrad.kernel import nodes as n

Array = np.ndarray[Any, Any]


def count_of(
    program: n.Program, buffer: n.Buffer, buffers: Mapping[str, Array], args: Mapping[str, int]
) -> int:
    """The number of elements of a buffer in this launch, after checking the array given for it."""
    names = set() if buffer.count is None else {d.name for d in dims_of(buffer.count)}
    known = buffer.count is not None and names <= args.keys()
    declared = bind(buffer.count, args) if buffer.count is not None and known else None
    if buffer.is_scratch:
        if declared is None:
            raise BadInputs(
                f"{program.name}: the size of scratch {buffer.name} needs values for "
                f"{sorted(names)}"
            )
        return declared
    array = buffers.get(buffer.name)
    if array is None:
        raise BadInputs(f"{program.name}: no array for buffer {buffer.name}")
    if array.dtype != buffer.dtype.np or array.ndim != 1:
        raise BadInputs(
            f"{program.name}: buffer {buffer.name} is flat {buffer.dtype}, got {array.dtype} of "
            f"rank {array.ndim}"
        )
    if declared is not None and array.size < declared:
        raise BadInputs(
            f"{program.name}: buffer {buffer.name} has {declared} elements, got {array.size}"
        )
    return array.size if declared is None else declared


def fresh_scratch(buffer: n.Buffer, size: int, is_guarded: bool = False) -> Array:
    """Zeros if the program asks for zeroed scratch; else poison, which shows a read of what was
    never written."""
    dtype = buffer.dtype.np
    if buffer.zeroed or is_guarded:
        return np.zeros(size, dtype)
    if buffer.dtype.is_float:
        return np.full(size, np.nan, dtype)
    return (
        np.ones(size, dtype)
        if dtype == np.bool_
        else np.full(size * dtype.itemsize, 0xA5, np.uint8).view(dtype)
    )
