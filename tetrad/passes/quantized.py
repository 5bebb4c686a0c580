"""Passes, quantised weights: rules by which a product reads a weight in blocks directly instead of
decoding it first.

Decoding does not round beyond what the product would see, and the order of the sum is that of a
float matmul. Weights in groups: `passes.groups`.
"""

# mypy: disable-error-code="no-any-return"
# Op functions return what their operands are: nodes, here.

from __future__ import annotations

from tetrad.graph.nodes import Node
from tetrad.ops.matmul.op import matmul
from tetrad.ops.movement import transpose
from tetrad.ops.quantized.op import dequantize
from tetrad.passes.rewrite import Rules, var

quantized = Rules("quantized")
x, w = var("x"), var("w")


@quantized.rule(matmul(x, transpose(dequantize(w), perm=(1, 0))))
def read_weight_in_place(x: Node, w: Node) -> Node | None:
    """matmul(x, transpose(dequantize(w)))  ->  matmul(x, w, transposed=True), for matrices."""
    return matmul(x, w, transposed=True) if x.type.rank == 2 else None


@quantized.rule(matmul(x, dequantize(w)))
def read_columns_in_place(x: Node, w: Node) -> Node | None:
    """matmul(x, dequantize(w))  ->  matmul(x, w), for matrices."""
    return matmul(x, w) if x.type.rank == 2 else None
