"""Bench, start: a process of its own that starts Tetrad, whichever is first on the path. Prints
seconds as JSON.

    python bench/start.py tanh | gelu | MODEL.gguf

Receives the activation of a 12-layer MLP, or a model. Prints for each step its seconds of processor
time (of all threads) and of wall time. NumPy is loaded before the clock starts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import mlp
import numpy as np

Spent = tuple[float, float]  # processor time, wall time
CALLS = 200  # of the short program in one sample: the clocks cost a tenth of a call


def spent(run: Callable[[], Any], calls: int = 1) -> Spent:
    processor, wall = time.process_time(), time.perf_counter()
    for _ in range(calls):
        run()
    return (time.process_time() - processor) / calls, (time.perf_counter() - wall) / calls


def best(run: Callable[[], Any], samples: int, calls: int = 1) -> Spent:
    found = [spent(run, calls) for _ in range(samples)]
    return min(processor for processor, _ in found), min(wall for _, wall in found)


def with_layers(activation: str) -> dict[str, Spent]:
    values = mlp.inputs()
    imported = spent(load_names)

    import tetrad as td

    function = {"tanh": lambda x: td.tanh(x), "gelu": lambda x: td.nn.gelu(x)}[activation]
    jitted, arrays = (
        td.jit(lambda values: mlp.forward(values, function)),
        [td.asarray(value) for value in values],
    )
    first, second = spent(lambda: jitted(arrays)), best(lambda: jitted(arrays), 25)
    short, few = td.jit(lambda x: x + 1), td.asarray(np.zeros(16, np.float32))
    short(few)
    return {
        "import": imported,
        "first": first,
        "second": second,
        "short": best(lambda: short(few), 100, CALLS),
    }


def load_names() -> None:
    """All of Tetrad that a program with arrays loads: the package itself waits for the first
    name."""
    import tetrad

    for name in ("asarray", "jit", "nn", "tanh"):
        getattr(tetrad, name)


def with_model(path: str) -> dict[str, Spent]:
    def first_token() -> None:
        import tetrad as td

        td.load(path).generate("Once upon a time", max_tokens=1)

    return {"load": spent(first_token)}


if __name__ == "__main__":
    print(
        json.dumps(
            with_layers(sys.argv[1]) if sys.argv[1] in ("tanh", "gelu") else with_model(sys.argv[1])
        )
    )
