"""Lowering, products: what every matmul kernel shares. Operand indices, accumulation, the epilogue."""

from __future__ import annotations

from tetrad.core.dtypes import DType, i8, i32
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.nodes import Buffer
from tetrad.lower.frame import Frame
from tetrad.lower.reader import At, compute_dtype
from tetrad.passes.fuse import Group


def accumulator(dtype: DType) -> DType:
    return i32 if dtype is i8 else compute_dtype(dtype)


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


def store_result(frame: Frame, group: Group, out: Buffer, at: At, total: Val) -> None:
    """The product at `at` through the elementwise members of its group, into memory."""
    result = frame.k.cast(total, group.root.type.dtype)
    frame.reading.provided[group.root] = lambda _: result
    output = group.outputs[0]
    frame.write(out, output, at, frame.reading.read(output, at))
