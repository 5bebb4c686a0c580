"""The demonstration that `make demo` shows: two small programs from Python function to machine
code, with every number measured here and now.

Receives nothing, prints a report and writes `tetrad-demo.html`. NumPy runs the same expressions,
with its own threads.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tetrad.arrays import functions as td
from tetrad.compiler.jit import Jitted, jit
from tetrad.explain.call import prepare
from tetrad.explain.report import bytes_text, kernel_table, time_text
from tetrad.explain.story import Explanation, explain
from tetrad.tracing.array import Array

PAGE = Path("tetrad-demo.html")
BATCH, WIDTH, HIDDEN, CLASSES = 256, 512, 1024, 64
ELEMENTS = 1 << 20
RUNS, SECONDS = 30, 0.5  # at most, for each time


def classify(
    x: Any, w1: Any, b1: Any, w2: Any, b2: Any, sharpness: float = 1.0, xp: Any = td
) -> Any:
    """Two layers and a softmax. `xp` is tetrad or NumPy: both follow the array API."""
    hidden = xp.tanh(x @ w1 + b1)
    logits = (hidden @ w2 + b2) * sharpness  # a factor of 1 costs nothing: a rule removes it
    e = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def curve(x: Any, y: Any, z: Any, xp: Any = td) -> Any:
    """Elementwise work: NumPy makes six passes over memory, the compiled program one."""
    return xp.tanh(x) * y + xp.exp(-z * z)


def main() -> int:
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 140)
    rng = np.random.default_rng(0)
    layers = [(BATCH, WIDTH), (WIDTH, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,)]
    weights = [
        rng.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[0]))
        for shape in layers
    ]
    vectors = [rng.standard_normal(ELEMENTS, dtype=np.float32) for _ in range(3)]
    stories = [show(console, classify, weights), show(console, curve, vectors)]
    stories[0].html(PAGE)
    console.print(
        Text("the whole story of the first program, with pictures: "),
        Text(str(PAGE.resolve()), "bold"),
    )
    return 0


def show(
    console: Console, function: Callable[..., Any], arrays: Sequence[np.ndarray]
) -> Explanation:
    """One program: the graph before and after, its kernels, its time against NumPy, and whether the
    result is right."""
    compiled: Jitted = jit(function)
    story = explain(compiled)(*arrays)
    console.rule(Text(f"{story.name}{story.signature}"))
    heading(console, f"the graph as traced, {len(story.traced.nodes())} nodes")
    console.print(str(story.traced))
    if story.graph is not story.traced:
        heading(console, f"after the passes, {len(story.graph.nodes())} nodes")
        console.print(str(story.graph))
    heading(console, f"kernels: {len(story.kernels)}")
    console.print("\n".join(kernel_table(story)))
    sizes = [f"{k.name}: {len(k.text.splitlines())} lines" for k in story.kernels]
    arena = (
        f"{bytes_text(story.arena_bytes)} arena; {bytes_text(story.intermediate_bytes)} if "
        "nothing were shared"
    )
    console.print(f"\n  kernel programs: {', '.join(sizes)}\n  {arena}\n")
    compare(console, compiled, arrays, story)
    return story


def heading(console: Console, text: str) -> None:
    console.print(Text(text, "bold"))


def compare(
    console: Console, compiled: Jitted, arrays: Sequence[np.ndarray], story: Explanation
) -> None:
    """Times side by side. NumPy's own threads are those of its BLAS; its elementwise functions have
    one."""
    function = compiled.function
    given = [Array.from_numpy(a) for a in arrays]
    wide = function(*(a.astype(np.float64) for a in arrays), xp=np)
    timed = {
        "NumPy": best_seconds(lambda: function(*arrays, xp=np)),
        "tetrad": best_seconds(lambda: compiled(*given)),
    }
    results = {"NumPy": function(*arrays, xp=np), "tetrad": np.asarray(compiled(*given))}
    if story.threads > 1:
        call = prepare(compiled, tuple(given), {})
        timed["tetrad, one thread"] = best_seconds(
            lambda: call.bound.run(call.storages(), threads=1)
        )
        (alone,) = call.bound.run(call.storages(), threads=1)
        results["tetrad, one thread"] = alone.as_numpy(np.dtype(np.float32), wide.shape)
    table = Table(
        "", "time", "of NumPy's", "largest error against float64", box=None, pad_edge=False
    )
    for name, seconds in timed.items():
        is_alike = name == "tetrad, one thread" and np.array_equal(results[name], results["tetrad"])
        error = f"{np.abs(results[name] - wide).max():.1e}" + (
            " (the same bits)" if is_alike else ""
        )
        table.add_row(name, time_text(seconds * 1e9), f"{seconds / timed['NumPy']:.2f}", error)
    console.print(table)
    spent = sum(seconds for stage, seconds in story.stages.items() if stage != "run")
    busy = "; other programs took processors away meanwhile" * story.is_busy
    console.print(f"{story.threads} threads; compiled in {time_text(spent * 1e9)}{busy}\n")


def best_seconds(run: Callable[[], object]) -> float:
    times: list[float] = []
    deadline = time.perf_counter() + SECONDS
    while len(times) < 3 or (len(times) < RUNS and time.perf_counter() < deadline):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    sys.exit(main())
