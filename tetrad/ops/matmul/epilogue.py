"""Kernels, products: what every matmul kernel shares.

Receives nodes and indices of a product; returns where an operand is read, the type and the step of
a sum, and the stores of the result with the elementwise work on it (the epilogue).
"""

from __future__ import annotations

from tetrad.core.dtypes import DType, bool_, i8, i32, u8, u32
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.reader import At


def accumulator(dtype: DType) -> DType:
    """The type sums are held in. Bytes, which registers multiply badly, are words; cast in the end,
    they wrap."""
    return {i8: i32, bool_: i32, u8: u32}.get(dtype, dtype.computing)


def multiply_add(k: KernelBuilder, a: Val, b: Val, c: Val) -> Val:
    return k.fma(a, b, c) if a.dtype.is_float else a * b + c


def operand_at(k: KernelBuilder, operand: Node, batch: At, row: Val, column: Val) -> At:
    """Index of an operand: batch axes of size 1 are shared."""
    shape = operand.type.shape[:-2]
    outer = tuple(k.index(0) if n == 1 else i for n, i in zip(shape, batch, strict=True))
    return (*outer, row, column)


def runs_along_k(b: Node) -> bool:
    """Is the right side the transpose of an array whose last axis is k?"""
    if b.op.name != "transpose":
        return False
    perm = b.param("perm")
    return len(perm) >= 2 and perm[-2] == len(perm) - 1


def output_buffers(frame: Frame, group: Group) -> dict[Node, Buffer]:
    return {node: frame.output(frame.memory.slots[node]) for node in group.outputs}


def store_result(frame: Frame, root: Node, outputs: dict[Node, Buffer], at: At, total: Val) -> None:
    """The product at `at`, and the elementwise work on it, into memory."""
    result = frame.k.cast(total, root.type.dtype)
    frame.reading.provided[root] = lambda _: result
    for node, buffer in outputs.items():
        frame.write(buffer, node, at, frame.reading.read(node, at))
