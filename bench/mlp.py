"""Bench, mlp: a process of its own that imports a library, makes a 12-layer MLP and calls it.
Prints seconds as JSON.

    python bench/mlp.py tetrad | jax

Receives the name of the library, prints the time of its import, of the first and of the best later
call, and the peak memory of the process. Weights are arguments; nothing is computed before the
first call.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LAYERS, WIDTH, BATCH = 12, 512, 256


def main(library: str) -> dict[str, float]:
    start = time.perf_counter()
    call, arrays = {"tetrad": with_tetrad, "jax": with_jax}[library]()
    imported = time.perf_counter()
    values = arrays()
    first, later = timed(call, values), min(timed(call, values) for _ in range(5))
    return {"import": imported - start, "first": first, "later": later, "peak": peak_bytes()}


def timed(call: Callable[[Any], object], values: Any) -> float:
    start = time.perf_counter()
    call(values)
    return time.perf_counter() - start


def peak_bytes() -> float:
    """From the kernel's high-water mark: ru_maxrss would begin with the memory of the process that
    started this one."""
    line = next(
        ln for ln in Path("/proc/self/status").read_text().splitlines() if ln.startswith("VmHWM")
    )
    return float(line.split()[1]) * 1024


def with_tetrad() -> tuple[Callable[[Any], object], Callable[[], Any]]:
    import tetrad as td

    jitted = td.jit(lambda values: forward(values, td.nn.gelu))
    return jitted, lambda: [td.asarray(value) for value in inputs()]


def with_jax() -> tuple[Callable[[Any], object], Callable[[], Any]]:
    import jax

    jitted = jax.jit(lambda values: forward(values, jax.nn.gelu))
    return lambda values: jitted(values).block_until_ready(), lambda: [
        jax.device_put(value) for value in inputs()
    ]


def forward(values: Any, gelu: Callable[[Any], Any]) -> Any:
    """values: x, then weight and bias of each layer."""
    x = values[0]
    for weight, bias in zip(values[1::2], values[2::2], strict=True):
        x = gelu(x @ weight + bias)
    return x


def inputs() -> list[Any]:
    import numpy as np

    g = np.random.default_rng(0)
    shapes = [(BATCH, WIDTH), *([(WIDTH, WIDTH), (WIDTH,)] * LAYERS)]
    return [(g.standard_normal(shape) / WIDTH**0.5).astype(np.float32) for shape in shapes]


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
