"""Tiny kernels around the lowering rules of ops, run on the kernel evaluator: what lowering does,
without lowering."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, as_dtype
from tetrad.core.op import Case, Op
from tetrad.core.sizes import Shape, Size, bind
from tetrad.core.types import ArrayType, row_strides
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.kernel.evaluate import evaluate
from tetrad.kernel.nodes import Buffer
from tetrad.kernel.verify import verify

At = tuple[Val, ...]
TRAP = 99


def type_of(array: np.ndarray) -> ArrayType:
    return ArrayType(as_dtype(array.dtype), array.shape)


def result_type(op: Op, case: Case) -> ArrayType:
    return op.type(*map(type_of, case.args), **case.params)


def compute_dtype(dtype: DType) -> DType:
    return dtype.computing


def wide(k: KernelBuilder, x: Val) -> Val:
    return k.cast(x, compute_dtype(x.dtype))


class Reader:
    """A row-major operand in a buffer; symbolic sizes are bound to numbers."""

    def __init__(
        self, k: KernelBuilder, buffer: Buffer, shape: Shape, dims: dict[str, int]
    ) -> None:
        self.k, self.buffer, self.shape, self.dims = k, buffer, shape, dims
        self.dtype = buffer.dtype

    def __call__(self, at: At) -> Val:
        return self.reshaped(at, self.shape)

    def reshaped(self, at: At, shape: Shape) -> Val:
        strides = [bind(s, self.dims) for s in row_strides(shape)]
        terms = (i * stride for i, stride in zip(at, strides, strict=True))
        return self.k.load(self.buffer, reduce(operator.add, terms, self.k.index(0)))

    def size(self, axis: int) -> Val:
        return self.value_of(self.shape[axis])

    def value_of(self, size: Size) -> Val:
        return self.k.index(bind(size, self.dims))

    def check(self, bad: Val, value: Val) -> None:
        self.k.trap(bad, TRAP, value)


def run_elementwise(op: Op, case: Case) -> np.ndarray:
    """Load, widen, lower, narrow, store."""

    def body(k: KernelBuilder, flat: Val, at: At, readers: list[Reader]) -> Val:
        values = [wide(k, k.load(r.buffer, flat)) for r in readers]
        return op.lower_rule(k, *values, **case.params)

    return _run(op, case, body)


def run_movement(op: Op, case: Case) -> np.ndarray:
    return _run(op, case, lambda k, flat, at, readers: op.read_rule(k, at, *readers, **case.params))


def run_reduce(op: Op, case: Case) -> np.ndarray:
    """One invocation per result element folds its elements one after the other."""

    def body(k: KernelBuilder, flat: Val, at: At, readers: list[Reader]) -> Val:
        (x,), axes = readers, case.params["axes"]
        dtype = op.monoid.accumulate(x.dtype)
        total = k.local(op.monoid.init(dtype), dtype)
        with k.loop(int(np.prod([x.shape[a] for a in axes]))) as i:
            inner = unflatten(k, i, tuple(x.shape[a] for a in axes))
            kept = iter(at)
            index = tuple(
                inner[axes.index(a)] if a in axes else next(kept) for a in range(len(x.shape))
            )
            total.set(op.monoid.combine(k, total.get(), wide(k, x(index))))
        return total.get()

    return _run(op, case, body)


def unflatten(k: KernelBuilder, flat: Val, shape: tuple[int, ...]) -> At:
    """The index tuple of a row-major position; of an empty shape, any."""
    strides = row_strides(shape)
    return tuple(
        flat // max(stride, 1) % max(size, 1) for stride, size in zip(strides, shape, strict=True)
    )


Body = Callable[[KernelBuilder, Val, At, list[Reader]], Val]


def _run(op: Op, case: Case, body: Body, kind: ArrayType | None = None) -> np.ndarray:
    kind = kind or result_type(op, case)
    return run_kernel(op.name, case.args, [a.shape for a in case.args], kind, {}, body)


def run_kernel(
    name: str,
    args: tuple[Any, ...],
    shapes: list[Shape],
    kind: ArrayType,
    dims: dict[str, int],
    body: Body,
) -> np.ndarray:
    """Evaluate `body` for every element of a result of type `kind`."""
    k = KernelBuilder(name)
    buffers = [
        k.buffer(f"x{i}", as_dtype(a.dtype), count=a.size or None) for i, a in enumerate(args)
    ]
    shape = tuple(bind(n, dims) for n in kind.shape)
    count = int(np.prod(shape))
    result = k.buffer("result", kind.dtype, "write", count)
    flat = k.global_id()
    readers = [Reader(k, buffer, s, dims) for buffer, s in zip(buffers, shapes, strict=True)]
    with k.when(flat < count):
        value = body(k, flat, unflatten(k, flat, shape), readers)
        k.store(result, flat, k.cast(value, kind.dtype))
    program = k.finish()
    verify(program)
    memory = {
        b.name: np.ascontiguousarray(a).reshape(-1) for b, a in zip(buffers, args, strict=True)
    }
    memory["result"] = np.empty(count, kind.dtype.np)
    evaluate(program, memory, {}, (-(-count // 16), 1, 1), races=True)
    return memory["result"].reshape(shape)
