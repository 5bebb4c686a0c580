"""What programs give, to the bit: `python -m tests.aarch64.bits [--share 0/2] [--only TEXT]` prints
a line for each.

A line is a name, a digest of the operands and one of the results (every NaN is one NaN). Two
processors must print the same lines. Operands are made of integers by exact steps, or come with the
conformance cases; where their digests differ the machines were asked different questions. What
NumPy's LAPACK computes is not ours and may differ: those lines say so in place of a digest.
"""

from __future__ import annotations

import argparse
import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tetrad as td
from tests.compiled import run
from tests.replay.programs import SPECIAL, TRANSFORMED
from tests.test_conformance import OPS, drawn, graph_of
from tetrad.compiler.driver import compile_graph
from tetrad.core.sizes import bind
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Graph
from tetrad.ops.matmul.op import matmul
from tetrad.ops.quantized.op import quantize_rows
from tetrad.passes.inline_custom import inline_custom
from tetrad.quant.lanes import LANES
from tetrad.schedule.nodes import HostCall, innermost_first

S = td.Spec
KEY = S((2,), td.uint32)
THREADS = 2


@dataclass(frozen=True)
class Example:
    """A program with operands; it is made when it is asked for, so that a share of the list costs
    its share."""

    name: str
    make: Callable[[], tuple[Graph, list[np.ndarray]]]


def examples() -> Iterator[Example]:
    yield from conformance()
    for name, (function, *specs) in {
        **TRANSFORMED,
        **SPECIAL,
        **PRODUCTS,
        **SYSTEMS,
        **RANDOM,
    }.items():
        yield traced(name, function, specs)
    yield from low_bit()


def conformance() -> Iterator[Example]:
    """One case of every op and dtype; the largest of a few drawn ones, if it has elements."""
    for op in OPS:
        for dtype in op.dtypes:

            def make(op: Any = op, dtype: Any = dtype) -> tuple[Graph, list[np.ndarray]]:
                case = drawn(op, dtype, 2)[0]
                return graph_of(op, case), [
                    np.ascontiguousarray(a).reshape(a.shape) for a in case.args
                ]

            yield Example(f"{op.name} {dtype}", make)


def traced(name: str, function: Callable[..., Any], specs: Sequence[Any]) -> Example:
    def make() -> tuple[Graph, list[np.ndarray]]:
        graph = inline_custom(td.trace(function)(*specs))
        rng = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
        return graph, [operand(rng, node.type) for node in graph.inputs]

    return Example(name, make)


def operand(rng: np.random.Generator, kind: ArrayType) -> np.ndarray:
    """Numbers that every machine makes alike: integers, and their quotients by powers of two."""
    dtype, shape = kind.dtype.np, tuple(bind(n, {}) for n in kind.shape)
    if dtype.kind in "biu":
        return rng.integers(0, 2 if dtype.kind == "b" else 16, shape).astype(dtype)
    # a lone number has a square root
    steps = rng.integers(-1023 if shape else 1, 1024, (*shape, 2))
    if len(shape) > 1 and shape[-1] == shape[-2] < 64:  # equations that have an answer
        steps[..., 0] += 8192 * np.eye(shape[-1], dtype=np.int64)
    numbers = steps / 512
    return (
        numbers[..., 0] + 1j * numbers[..., 1] if dtype.kind == "c" else numbers[..., 0]
    ).astype(dtype)


# -- beyond the replay's programs ------------------------------------------------------------------

SIZES = ((1, 1, 1), (1, 37, 50), (7, 3, 17), (13, 257, 31), (64, 64, 64), (65, 129, 33))
PRODUCTS: dict[str, tuple[Any, ...]] = {
    f"product {dtype} {m}x{k}x{n}": (td.matmul, S((m, k), dtype), S((k, n), dtype))
    for dtype in (td.float32, td.float64, td.float16, td.bfloat16, td.int8, td.complex64)
    for m, k, n in SIZES
} | {
    "matrix and vector": (td.matmul, S((300, 70)), S((70,))),
    "many small products": (td.matmul, S((30, 3, 5)), S((30, 5, 4))),
    "gelu of a product": (
        lambda x, w, b: td.nn.gelu(x @ w + b),
        S((33, 70)),
        S((70, 50)),
        S((50,)),
    ),
    "softmax": (td.nn.softmax, S((33, 1000))),
    "layer norm": (td.nn.layer_norm, S((33, 1000)), S((1000,)), S((1000,))),
    "sums": (lambda x: (td.sum(x), td.sum(x, axis=0), td.sum(x, axis=1)), S((70, 1001))),
    "transposed": (lambda x: td.permute_dims(x, (1, 0)) + 0, S((70, 1001))),
    "jvp": (
        lambda x, t: td.jvp(lambda y: td.sin(y) * td.exp(-y), (x,), (t,)),
        S((300,)),
        S((300,)),
    ),
    "vmap of a product": (td.vmap(td.matmul, in_axes=(0, None)), S((5, 9, 20)), S((20, 24))),
    "sort of pairs": (lambda x: td.argsort(x, axis=0), S((300, 5), td.float16)),
}
SYSTEMS: dict[str, tuple[Any, ...]] = {
    f"solve {dtype} {n}": (td.linalg.solve, S((5, n, n), dtype), S((5, n, 2), dtype))
    for dtype in (td.float32, td.float64)
    for n in (1, 3, 8, 16)
}
SHAPE = (1000,)
RANDOM: dict[str, tuple[Any, ...]] = {
    f"random {name}": (lambda key, name=name, more=more: getattr(td.random, name)(key, *more,
    SHAPE), KEY)
    for name, more in {
        "bits": (), "uniform": (), "normal": (), "gumbel": (), "exponential": (), "laplace": (),
        "logistic": (),
        "cauchy": (), "rademacher": (), "bernoulli": (0.3,), "gamma": (2.5,), "beta": (2.0, 3.0),
        "poisson": (4.0,),
        "truncated_normal": (-1.0, 2.0), "t": (5.0,),
    }.items()
} | {
    "random integers": (lambda key: td.random.randint(key, SHAPE, -7, 1000), KEY),
    "random categories": (lambda key, x: td.random.categorical(key, x), KEY, S((9, 33))),
    "random split": (lambda key: td.random.split(key, 5), KEY),
}  # fmt: skip
ROWS, WEIGHTS, LENGTH = (1, 5, 64), 48, 512


def low_bit() -> Iterator[Example]:
    """Weights of every format: products of few and of many rows in 8 bits with them, and what they
    are as floats."""
    for format in LANES:
        for rows in ROWS:
            yield with_weight(f"{format}, {rows} rows", format, rows, product_in_8_bits)
        yield with_weight(
            f"{format} as floats, 5 rows", format, 5, lambda x, weight: x @ weight.dequantize().mT
        )


def product_in_8_bits(x: Any, weight: Any) -> Any:
    return matmul(quantize_rows(x), weight, transposed=True)


def with_weight(name: str, format: str, rows: int, function: Callable[[Any, Any], Any]) -> Example:
    def make() -> tuple[Graph, list[np.ndarray]]:
        rng = np.random.Generator(np.random.PCG64(1))
        weight = td.quant.quantize(operand(rng, ArrayType(td.float32, (WEIGHTS, LENGTH))), format)
        x = operand(rng, ArrayType(td.float32, (rows, LENGTH)))
        return inline_custom(td.trace(lambda x: function(x, weight))(S(x.shape))), [x]

    return Example(name, make)


# -- lines -----------------------------------------------------------------------------------------


def line(example: Example) -> str:
    graph, arrays = example.make()
    compiled = compile_graph(graph)
    asked = digest(arrays)
    parts = innermost_first(compiled.schedule)
    if any(isinstance(step, HostCall) for part in parts for step in part.steps):
        return f"{example.name} | {asked} | by LAPACK"
    return f"{example.name} | {asked} | {digest(run(compiled, arrays, threads=THREADS))}"


def digest(arrays: Sequence[np.ndarray]) -> str:
    """Of dtypes, shapes and bits; every NaN is the same one."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype} {array.shape} ".encode())
        found.update(canonical(array).tobytes())
    return found.hexdigest()[:24]


def canonical(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "biu":
        return array
    if array.dtype.kind == "c":
        return canonical(np.stack([array.real, array.imag], -1))
    return np.where(np.isnan(array), np.array(np.nan, array.dtype), array)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.aarch64.bits", description=__doc__)
    parser.add_argument(
        "--share", default="0/1", metavar="I/N", help="the examples I, I + N, I + 2 N, ..."
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose names contain it")
    options = parser.parse_args()
    first, step = map(int, options.share.split("/"))
    for example in [e for e in examples() if options.only in e.name][first::step]:
        print(line(example), flush=True)


if __name__ == "__main__":
    main()
