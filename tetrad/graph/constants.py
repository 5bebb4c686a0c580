"""The graph language, constants: the one value that all elements of a node have. Nodes in, Python
numbers out."""

from __future__ import annotations

import numpy as np

from tetrad.graph.build import constant
from tetrad.graph.nodes import Node

Number = bool | int | float


def constant_value(node: Node) -> Number | None:
    """The one value that every element of a constant, or of a broadcast constant, has; None when
    there is no such.

    Neither quantised blocks, of which only the bytes are here, nor complex numbers are numbers that
    rules know.
    """
    while node.op.spreads:
        node = node.inputs[0]
    if node.op is not constant or node.type.dtype.is_quantized or node.type.dtype.is_complex:
        return None
    value = node.param("value").splat
    return None if value is None else _as_number(value)


def _as_number(value: np.ndarray) -> Number:
    result: Number = float(value) if value.dtype.kind not in "biu" else value.item()
    return result
