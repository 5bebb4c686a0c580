"""Bench, gradients: the programs of transforms.py, and a process of its own that compiles one.
Prints numbers as JSON.

    python bench/gradients.py tetrad | jax   mlp | scan
    python bench/gradients.py tetrad         sqrt | stored

Receives the library and the program, prints seconds of the first and of the best later call, and by
how many bytes the peak of the process grew while it called.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

SIZES, BATCH = (784, 1024, 1024, 10), 256
LAYERS = tuple(pairwise(SIZES))
STEPS, WIDTH = 10_000, 64
LONG_WIDTH = 2048


def main(library: str, program: str) -> dict[str, float]:
    call, values = {"tetrad": with_tetrad, "jax": with_jax}[library](program)
    before = start_watching()
    first, later = timed(call, values), min(timed(call, values) for _ in range(3))
    return {"first": first, "later": later, "grown": status("VmHWM") - before}


def start_watching() -> float:
    """Forget the peak so far (5 asks the kernel for it); the bytes that are resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def timed(call: Callable[..., object], values: Any) -> float:
    start = time.perf_counter()
    call(*values)
    return time.perf_counter() - start


def status(field: str) -> float:
    line = next(
        ln for ln in Path("/proc/self/status").read_text().splitlines() if ln.startswith(field)
    )
    return float(line.split()[1]) * 1024


def with_tetrad(program: str) -> tuple[Callable[..., object], Any]:
    import tetrad as td

    gradient, values = program_of(program, td, td, td.scan)
    arrays = [td.asarray(value) for value in values]
    if program in ("sqrt", "stored"):  # the compiler is resident before the watch begins
        td.jit(long_gradient(td, None if program == "stored" else program, 16))(*arrays)
    return td.jit(gradient), arrays


def with_jax(program: str) -> tuple[Callable[..., object], Any]:
    import jax

    gradient, values = program_of(program, jax, jax.numpy, jax.lax.scan)
    jitted = jax.jit(gradient)
    return lambda *args: jax.block_until_ready(jitted(*args)), [
        jax.device_put(value) for value in values
    ]


def program_of(
    name: str, library: Any, functions: Any, scan: Any
) -> tuple[Callable[..., Any], list[Any]]:
    if name == "mlp":
        batch = [normal(BATCH, SIZES[0]), labels()]
        gradient = library.grad(lambda params, x, labels: mlp_loss(library, params, x, labels))
        return lambda x, labels, *params: gradient(list(params), x, labels), [*batch, *mlp_values()]
    if name == "scan":
        return library.grad(
            lambda w, b, xs: scan_loss(functions, scan, w, b, xs), argnums=(0, 1)
        ), scan_values()
    return long_gradient(library, None if name == "stored" else name), long_values()


# -- an MLP with cross entropy ---------------------------------------------------------------------


def mlp_values() -> list[Any]:
    """Weight and bias of each layer."""
    found = []
    for seed, (rows, columns) in enumerate(LAYERS):
        found += [
            normal(rows, columns, seed=seed) * (2 / rows) ** 0.5,
            normal(columns, seed=seed) / 100,
        ]
    return found


def labels() -> Any:
    import numpy as np

    return np.random.default_rng(7).integers(0, SIZES[-1], BATCH).astype(np.int32)


def mlp_loss(library: Any, params: Any, x: Any, labels: Any) -> Any:
    """library: tetrad or jax, both have `nn`."""
    nn = library.nn
    for i, (weight, bias) in enumerate(zip(params[::2], params[1::2], strict=True)):
        x = x @ weight + bias
        x = nn.relu(x) if i + 1 < len(LAYERS) else x
    return -(nn.log_softmax(x) * nn.one_hot(labels, SIZES[-1])).sum() / BATCH


# -- a recurrent cell ------------------------------------------------------------------------------


def scan_values() -> list[Any]:
    """Weight, bias, and what comes in at each step."""
    return [normal(WIDTH, WIDTH) / WIDTH**0.5, normal(WIDTH, seed=1), normal(STEPS, WIDTH, seed=2)]


def scan_loss(functions: Any, scan: Any, w: Any, b: Any, xs: Any) -> Any:
    def body(h: Any, x: Any) -> tuple[Any, Any]:
        h = functions.tanh(h @ w + x + b)
        return h, h

    _, hs = scan(body, functions.zeros(WIDTH, dtype=functions.float32), xs)
    return functions.mean(hs * hs)


# -- a long scan of many numbers, for its memory ---------------------------------------------------


def long_values() -> list[Any]:
    return [normal(LONG_WIDTH), normal(LONG_WIDTH, seed=1)]


def long_gradient(td: Any, strategy: str | None, steps: int = STEPS) -> Callable[..., Any]:
    def loss(w: Any, c: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            return td.sin(w * c) + c, None

        return td.sum(td.square(td.scan(body, c, length=steps, checkpoint=strategy)[0]))

    return td.grad(loss, argnums=(0, 1))  # type: ignore[no-any-return]


def normal(*shape: int, seed: int = 0) -> Any:
    import numpy as np

    return np.random.default_rng(seed).standard_normal(shape, np.float32)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2])))
