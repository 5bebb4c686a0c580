"""Bench, core: the compiler and the runtime against JAX and NumPy on two threads. ratio = their
time / our time.

    python bench/core.py [--only matmul] [--quick]

Inputs are made before the clock starts; results of JAX are waited for. Beside each pair run
contestants that only move the same bytes: what the memory allows.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import mlp
import numpy as np
from common import THREADS, Budget, Report, Row, bound_by, measure, options, undisturbed
from native import Roof, fma_peak, move

import tetrad as td
from tetrad.compiler.driver import compile_graph

Array = np.ndarray
AROUND = "memory, around the cache"
MEMORY_BYTES = 1 << 20  # work that touches less stays in cache


@dataclass(frozen=True, slots=True)
class Work:
    """What the job needs at the very least: bytes read and written, floating-point operations."""

    reads: int
    writes: int
    flops: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """Two functions that compute the same arrays."""

    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    work: Work


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    peer: str
    at_least: float
    make: Callable[[], Pair]


CASES: dict[str, Case] = {}


def case(name: str, peer: str, at_least: float, make: Callable[[], Pair]) -> None:
    CASES[name] = Case(name, peer, at_least, make)


def run_case(case: Case, budget: Budget) -> Row:
    pair = case.make()
    is_right = agree(pair.ours(), pair.theirs())
    roofs = roofs_of(pair.work)
    contestants = {"ours": pair.ours, "theirs": pair.theirs}
    timing = measure(contestants | {name: roof.run for name, roof in roofs.items()}, budget)
    ours, theirs = timing.best["ours"], timing.best["theirs"]
    needed = {
        name: timing.best[name] * work_of(name, pair.work) / roof.work
        for name, roof in roofs.items()
    }
    if "memory" in needed:
        needed["memory"] = min(needed["memory"], needed.pop(AROUND))
    ratio, bound = theirs / ours, bound_by(needed, ours)
    most = theirs / max(needed.values())
    return Row(
        case.name,
        ours,
        "s",
        ratio,
        case.at_least,
        case.peer,
        theirs,
        timing.foreign,
        is_right,
        bound,
        most,
    )


def roofs_of(work: Work) -> dict[str, Roof]:
    """What else runs in turns with the pair. Bytes only for work that can leave the caches: written
    through the caches and around them, the quicker way counts."""
    roofs = {"call path": Roof(shortest_call(), 1.0)}
    if work.flops:
        roofs["arithmetic"] = fma_peak(THREADS)
    if work.reads + work.writes >= MEMORY_BYTES:
        for name, hint in (("memory", ""), (AROUND, "stream")):
            roofs[name] = Roof(move(work.reads, work.writes, THREADS, hint), 1.0)
    return roofs


def work_of(roof: str, work: Work) -> float:
    return float(work.flops) if roof == "arithmetic" else 1.0


def agree(ours: Any, theirs: Any) -> bool:
    """Equal within what the order of f32 sums may change."""
    pairs = zip(leaves(ours), leaves(theirs), strict=True)
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=1e-4 * float(np.abs(b).max()))
        for a, b in pairs
    )


def leaves(value: Any) -> list[Array]:
    return [np.asarray(v) for v in value] if isinstance(value, tuple) else [np.asarray(value)]


# -- contestants -----------------------------------------------------------------------------------


@cache
def jax() -> Any:
    """Loaded after the threads were set; a missing JAX is an error: there is nothing to compare
    with."""
    import jax as module

    return module


def against_jax(
    ours: Callable[..., Any], theirs: Callable[..., Any], arrays: list[Array], work: Work
) -> Pair:
    mine, other = td.jit(ours), jax().jit(theirs)
    left = [td.asarray(a) for a in arrays]
    right = [jax().device_put(a) for a in arrays]
    wait = jax().block_until_ready
    return Pair(lambda: mine(*left), lambda: wait(other(*right)), work)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@cache
def shortest_call() -> Callable[[], Any]:
    """A compiled call on 16 floats: what any call costs."""
    jitted, x = td.jit(lambda x: -x), td.asarray(normal(16))
    return lambda: jitted(x)


def add_one() -> Pair:
    return against_jax(lambda x: x + 1, lambda x: x + 1, [normal(16)], Work(64, 64))


def elementwise() -> Pair:
    count = 4 << 20
    jnp = jax().numpy
    arrays = [normal(count, seed=i) for i in range(3)]
    return against_jax(
        lambda x, y, z: td.tanh(x) * y + td.exp(-z * z),
        lambda x, y, z: jnp.tanh(x) * y + jnp.exp(-z * z),
        arrays,
        Work(12 * count, 4 * count),
    )


ROWS = (4096, 1024)
ROWS_BYTES = 4 * ROWS[0] * ROWS[1]


def softmax() -> Pair:
    return against_jax(
        td.nn.softmax, jax().nn.softmax, [normal(*ROWS)], Work(ROWS_BYTES, ROWS_BYTES)
    )


def logsumexp() -> Pair:
    def theirs(x: Any) -> Any:
        return jax().scipy.special.logsumexp(x, axis=-1)

    return against_jax(
        lambda x: td.nn.logsumexp(x, axis=-1),
        theirs,
        [normal(*ROWS)],
        Work(ROWS_BYTES, 4 * ROWS[0]),
    )


def layer_norm() -> Pair:
    def theirs(x: Any, weight: Any, bias: Any) -> Any:
        return jax().nn.standardize(x, axis=-1, epsilon=1e-5) * weight + bias

    arrays = [normal(*ROWS), normal(ROWS[1], seed=1), normal(ROWS[1], seed=2)]
    return against_jax(td.nn.layer_norm, theirs, arrays, Work(ROWS_BYTES, ROWS_BYTES))


def mean_var() -> Pair:
    jnp = jax().numpy
    return against_jax(
        lambda x: (td.mean(x, axis=-1), td.var(x, axis=-1)),
        lambda x: (jnp.mean(x, axis=-1), jnp.var(x, axis=-1)),
        [normal(*ROWS)],
        Work(ROWS_BYTES, 8 * ROWS[0]),
    )


SQUARE = 4096


def sums(axis: int | None) -> Callable[[], Pair]:
    def make() -> Pair:
        jnp, nbytes = jax().numpy, 4 * SQUARE * SQUARE
        return against_jax(
            lambda x: td.sum(x, axis=axis),
            lambda x: jnp.sum(x, axis=axis),
            [normal(SQUARE, SQUARE)],
            Work(nbytes, 4 * SQUARE),
        )

    return make


def transpose() -> Pair:
    nbytes = 4 * SQUARE * SQUARE
    return against_jax(lambda x: x.T, lambda x: x.T, [normal(SQUARE, SQUARE)], Work(nbytes, nbytes))


def product(m: int, k: int, n: int) -> Callable[[], Pair]:
    def make() -> Pair:
        a, b, out = normal(m, k), normal(k, n, seed=1), np.empty((m, n), np.float32)
        mine, left = td.jit(lambda a, b: a @ b), (td.asarray(a), td.asarray(b))
        work = Work(4 * (m * k + k * n), 4 * m * n, 2 * m * k * n)
        return Pair(lambda: mine(*left), lambda: np.matmul(a, b, out=out), work)

    return make


def dense() -> Pair:
    """A layer as models have it."""
    m, k, n = 1024, 1024, 4096
    arrays = [normal(m, k), normal(k, n, seed=1) / np.float32(k**0.5), normal(n, seed=2)]
    work = Work(4 * (m * k + k * n), 4 * m * n, 2 * m * k * n)
    return against_jax(
        lambda x, w, b: td.nn.gelu(x @ w + b),
        lambda x, w, b: jax().nn.gelu(x @ w + b),
        arrays,
        work,
    )


case("call x+1 on 16 floats", "jax", 1.0, add_one)
case("tanh(x)*y+exp(-z*z) on 4M", "jax", 1.3, elementwise)
case("softmax 4096x1024", "jax", 1.6, softmax)
case("logsumexp 4096x1024", "jax", 2.0, logsumexp)
case("layer norm 4096x1024", "jax", 1.3, layer_norm)
case("mean and var 4096x1024", "jax", 1.3, mean_var)
case("sum axis 0 of 4096x4096", "jax", 1.0, sums(0))
case("sum axis 1 of 4096x4096", "jax", 1.0, sums(1))
case("sum of 4096x4096", "jax", 1.0, sums(None))
case("transpose 4096x4096", "jax", 3.0, transpose)
case("matmul 256", "numpy", 0.95, product(256, 256, 256))
for size in (512, 1024, 2048):
    case(f"matmul {size}", "numpy", 1.0, product(size, size, size))
for batch in (1, 64):
    case(f"matmul {batch}x4096x4096", "numpy", 1.0, product(batch, 4096, 4096))
case("matmul+bias+gelu 1024x1024x4096", "jax", 1.0, dense)


# -- starting: processes of their own --------------------------------------------------------------


JAX_CACHE = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


def launch(library: str, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A new process that imports the library and calls the MLP."""
    command, environment = [sys.executable, mlp.__file__, library], {**installed(), **settings}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


def start(contestant: str, cache: str) -> dict[str, float]:
    """What one process tells; Tetrad keeps compiled code in `cache`, JAX only if asked."""
    kept = {
        "tetrad": {"TETRAD_CACHE_DIR": cache},
        "jax with cache": {"JAX_COMPILATION_CACHE_DIR": cache, **JAX_CACHE},
    }
    return dict(json.loads(launch(contestant.split()[0], kept.get(contestant, {})).stdout))


def installed() -> dict[str, str]:
    """The environment, but bytecode may be written: installed packages have theirs, so must the
    source tree."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def starts() -> dict[str, float]:
    """One round: each library cold, then again with what the first process left on disk."""
    found: dict[str, float] = {}
    for library in ("tetrad", "jax", "jax with cache"):
        with tempfile.TemporaryDirectory() as folder:
            for state in ("cold", "warm"):
                found |= {
                    f"{library} {state} {key}": value
                    for key, value in start(library, folder).items()
                }
    return found


def stages() -> tuple[str, str]:
    """Where a first call spends its time, cold and warm, as `TETRAD_TIME` tells it; codegen
    includes LLVM."""
    told = []
    with tempfile.TemporaryDirectory() as folder:
        settings = {"TETRAD_CACHE_DIR": folder, "TETRAD_TIME": "1"}
        for _ in range(2):
            done = launch("tetrad", settings)
            spent = {
                name: float(ms)
                for name, ms in re.findall(r"^tetrad: (\w+) +([\d.]+) ms$", done.stderr, re.M)
            }
            told.append(
                ", ".join(f"{name} {ms:.0f}" for name, ms in spent.items() if ms >= 1) + " ms"
            )
    return told[0], told[1]


def start_rows(budget: Budget) -> Iterator[Row]:
    starts()  # writes bytecode and fills the page cache
    timing = undisturbed(starts, Budget(0, 2 if budget.attempts == 1 else 4, budget.attempts))
    best, foreign = timing.best, timing.foreign

    def versus(
        name: str, ours: str, theirs: str, goal: float | None, bound: str = "", unit: str = "s"
    ) -> Row:
        mine, other = best[f"tetrad {ours}"], best[f"jax {theirs}"]
        return Row(name, mine, unit, other / mine, goal, "jax", other, foreign, bound=bound)

    cold, warm = stages()
    yield versus("first call of a 12-layer MLP", "cold first", "cold first", 1.0, cold)
    yield versus("first call, second process", "warm first", "cold first", 3.0, warm)
    yield versus("the same, both with a disk cache", "warm first", "with cache warm first", None)
    yield versus("import", "warm import", "warm import", 2.5)
    yield versus("later call of the MLP", "warm later", "warm later", None)
    yield versus("peak memory of the process", "cold peak", "cold peak", None, unit="B")


def arena_row() -> Row:
    values = [td.asarray(value) for value in mlp.inputs()]
    jitted = td.jit(lambda *values: mlp.forward(values, td.nn.gelu))
    planned = compile_graph(jitted.trace(*values).graph).bound().encoded
    every = sum(life.nbytes for life in planned.lives)
    return Row(
        "arena of the MLP, batch 256",
        planned.arena_bytes,
        "B",
        every / max(1, planned.arena_bytes),
        4.0,
        "all of them",
        every,
    )


def main() -> int:
    chosen = options(__doc__ or "")
    report = Report("core against peers")
    for each in CASES.values():
        if chosen.wants(each.name):
            report.add(run_case(each, chosen.budget))
    if chosen.wants("start: first call, second process, import"):
        for row in start_rows(chosen.budget):
            report.add(row)
    if chosen.wants("arena of the MLP, batch 256"):
        report.add(arena_row())
    return report.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
