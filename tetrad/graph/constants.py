"""Graph language, constants: receives a node, returns the one value that all its elements have, if
it is a constant."""

from __future__ import annotations

import numpy as np

from tetrad.graph.build import constant
from tetrad.graph.nodes import Node

Number = bool | int | float


def constant_value(node: Node) -> Number | None:
    """The value of every element of a constant or a broadcast constant; None if the elements
    differ.

    None also for quantised blocks, of which only bytes are held, and for complex numbers: no rule
    uses those.
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
