"""Small graphs whose kernels become PTX: fused elementwise work, reductions of every kind,
products, and some that exchange values, vote or trap. With data for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tetrad as td
from tetrad.backends.cuda.targets import architecture_named
from tetrad.compiler.pipeline import lower_graph
from tetrad.lower.lower import Lowerer
from tetrad.schedule.nodes import Schedule

S = td.Spec
F16, F64, I32 = td.float16, td.float64, td.int32


def normalised(x: Any) -> Any:
    centred = x - td.mean(x, axis=-1, keepdims=True)
    return centred / td.sqrt(td.var(x, axis=-1, keepdims=True) + 1e-5)


GRAPHS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "elementwise": (lambda x, y: td.tanh(x) * y + td.exp(-x * x), [S((1000,)), S((1000,))]),
    "halves": (lambda x: (x * 2).astype(F16), [S((100,), F16)]),
    "integers": (lambda x: td.sum(x // 3 + x % 7), [S((100,), I32)]),
    "sum": (lambda x: td.sum(x), [S((3000,))]),
    "rows": (lambda x: td.sum(x, axis=1), [S((7, 300))]),
    "columns": (lambda x: td.sum(x, axis=0), [S((300, 50))]),
    "any": (lambda x: td.any(x > 1, axis=1), [S((5, 40))]),
    "extremes": (lambda x: (td.max(x, axis=1), td.argmax(x, axis=1)), [S((7, 100))]),
    "running": (lambda x: td.cumulative_sum(x, axis=1), [S((3, 100))]),
    "softmax": (lambda x: td.nn.softmax(x, axis=-1), [S((5, 130))]),
    "normalised": (normalised, [S((4, 100))]),
    "gradient": (td.grad(lambda x: td.sum(td.tanh(x) ** 2)), [S((50,))]),
    "matmul": (lambda a, b: td.exp(a @ b), [S((20, 40)), S((40, 33))]),
    "one row": (lambda a, b: a @ b, [S((1, 70)), S((70, 33))]),
    "doubles": (lambda a, b: a @ b, [S((10, 32), F64), S((32, 20), F64)]),
    "votes": (lambda x, y: td.remainder(x, y), [S((100,)), S((100,))]),
    "sort": (lambda x: td.sort(x, axis=1), [S((3, 50))]),
    "gather": (lambda x, at: td.take(x, at, axis=0), [S((10, 4)), S((6,), I32)]),
}


def lowered(name: str, arch: str = "sm_90") -> Schedule:
    function, specs = GRAPHS[name]
    machine = architecture_named(arch).machine
    return lower_graph(td.trace(function)(*specs), Lowerer(machine))


def data_of(name: str) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    made = []
    for spec in GRAPHS[name][1]:
        dtype = np.zeros(0, spec.dtype).dtype
        whole = dtype.kind == "i"
        values = rng.integers(0, 6, spec.shape) if whole else rng.normal(size=spec.shape)
        made.append(values.astype(dtype))
    return made
