"""What the tests of the kernel library share: packing and arithmetic in plain Python and NumPy,
written without the library, and launches of a registered program on both machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tetrad as td
from tetrad.kernel import nodes as n
from tetrad.kernel import registry
from tetrad.kernel.harness import evaluate_bytes, inferred

Array = np.ndarray[Any, Any]
# spec quant 1.6: the patterns of the generated sweeps
P = [-8, -3, -1, 0, 1, 3, 7, 6, 5, 4, 2, -2, -4, -6, -7, -5]
Q = [7, 5, 3, 1, -1, -3, -5, -7, 6, 4, 2, 0, -2, -4, -6, -8]


def cycled(pattern: Sequence[int], length: int, turn: int = 0) -> list[int]:
    """The pattern rotated by `turn`, repeated to a length."""
    return [pattern[(i + turn) % len(pattern)] for i in range(length)]


def pack_i4(values: Sequence[int]) -> list[int]:
    """Words of eight lanes, saturated to -8..7."""
    made = [0] * -(-len(values) // 8)
    for i, value in enumerate(values):
        made[i // 8] |= (min(max(value, -8), 7) & 15) << 4 * (i % 8)
    return made


def unpack_i4(packed: Sequence[int], lanes: int) -> list[int]:
    """Signed lanes; words that are not there are zero."""
    nibbles = [
        (packed[i // 8] >> 4 * (i % 8)) & 15 if i // 8 < len(packed) else 0 for i in range(lanes)
    ]
    return [u if u < 8 else u - 16 for u in nibbles]


def pack_rows(rows: Sequence[Sequence[int]]) -> list[int]:
    return [word for row in rows for word in pack_i4(row)]


def f32(values: Any) -> Array:
    return np.asarray(values, np.float32)


def sequential(start: Array, terms: Sequence[Array]) -> Array:
    """start + terms[0] + terms[1] + ..., a rounding for each sum."""
    total = np.array(start, np.float32)
    for term in terms:
        total = total + term
    return total


def words(values: Sequence[int]) -> bytes:
    return np.array(values, "<u4").tobytes()


def ints(values: Sequence[int]) -> bytes:
    return np.array(values, "<i4").tobytes()


def floats(values: Any) -> bytes:
    return np.asarray(values, "<f4").tobytes()


def evaluated(program: n.Program, *inputs: bytes, grid: registry.Grid | None = None) -> list[bytes]:
    """On the evaluator, which raises for races and accesses out of range."""
    return evaluate_bytes(program, inputs, {}, grid or inferred(program, inputs, {}))


def launched(program: n.Program, *inputs: bytes, grid: registry.Grid | None = None) -> list[bytes]:
    """Compiled, and the same bits as on the evaluator."""
    found = td.dispatch(program, inputs, grid)
    assert found == evaluated(program, *inputs, grid=grid)
    return found


def f32_of(outputs: list[bytes]) -> list[float]:
    """The only output, as numbers."""
    (only,) = outputs
    return np.frombuffer(only, "<f4").tolist()
