"""Bench, transforms: derivatives, loops, batches, solves and Fourier transforms against JAX and
NumPy on two threads.

    python bench/transforms.py [--only scan] [--quick]

ratio = their time / our time (or bytes). Both sides are written plainly: the same formulas, one
jitted function, memory donated where a training step would donate it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import gradients
import numpy as np
from common import Budget, Options, Report, Row, options, undisturbed
from core import Case, Pair, Work, against_jax, installed, jax, normal, run_case

import tetrad as td
from tetrad.compiler.driver import compile_graph

CASES: dict[str, Case] = {}


def case(name: str, peer: str, at_least: float, make: Callable[[], Pair]) -> None:
    CASES[name] = Case(name, peer, at_least, make)


# -- a training step -------------------------------------------------------------------------------


def training() -> Pair:
    """784-1024-1024-10, batch 256: value, gradients and Adam in one program, parameters and moments
    donated."""
    x, labels = normal(gradients.BATCH, gradients.SIZES[0]), gradients.labels()
    count = sum(value.size for value in gradients.mlp_values())
    products = gradients.BATCH * sum(a * b for a, b in gradients.LAYERS)
    first = gradients.BATCH * gradients.LAYERS[0][0] * gradients.LAYERS[0][1]  # x has no gradient
    work = Work(4 * 4 * count, 3 * 4 * count, 2 * (3 * products - first))
    return Pair(our_training(x, labels), their_training(x, labels), work)


def our_training(x: Any, labels: Any) -> Callable[[], Any]:
    optimiser = td.optim.adam(1e-3)

    @td.jit(donate_argnums=(0, 1))
    def step(params: Any, state: Any, x: Any, labels: Any) -> Any:
        value, found = td.value_and_grad(lambda p: gradients.mlp_loss(td, p, x, labels))(params)
        updates, state = optimiser.update(found, state, params)
        return td.optim.apply_updates(params, updates), state, value

    params = [td.asarray(value) for value in gradients.mlp_values()]
    kept = [params, optimiser.init(params)]
    batch = td.asarray(x), td.asarray(labels)

    def call() -> Any:
        kept[0], kept[1], value = step(kept[0], kept[1], *batch)
        return value, kept[0][-1]

    return call


def their_training(x: Any, labels: Any) -> Callable[[], Any]:
    jnp, tree_map = jax().numpy, jax().tree.map

    def step(params: Any, mean: Any, square: Any, count: Any, x: Any, labels: Any) -> Any:
        value, found = jax().value_and_grad(lambda p: gradients.mlp_loss(jax(), p, x, labels))(
            params
        )
        count = count + 1
        mean = tree_map(lambda m, g: 0.9 * m + 0.1 * g, mean, found)
        square = tree_map(lambda v, g: 0.999 * v + 0.001 * g * g, square, found)
        first, second = 1 - 0.9**count, 1 - 0.999**count

        def moved(p: Any, m: Any, v: Any) -> Any:
            return p - 1e-3 * (m / first) / (jnp.sqrt(v / second) + 1e-8)

        return tree_map(moved, params, mean, square), mean, square, count, value

    jitted = jax().jit(step, donate_argnums=(0, 1, 2))
    params = [jax().device_put(value) for value in gradients.mlp_values()]
    kept = [
        params,
        tree_map(jnp.zeros_like, params),
        tree_map(jnp.zeros_like, params),
        jnp.float32(0),
    ]
    batch = jax().device_put(x), jax().device_put(labels)

    def call() -> Any:
        *kept[:], value = jitted(*kept, *batch)
        jax().block_until_ready(kept)
        return value, kept[0][-1]

    return call


# -- loops -----------------------------------------------------------------------------------------


def cell(backward: bool) -> Callable[[], Pair]:
    """10,000 steps of a 64-wide RNN cell."""

    def make() -> Pair:
        steps, width = gradients.STEPS, gradients.WIDTH
        products = 2 * steps * width * width
        work = Work(4 * steps * width, 4 * steps * width, (3 if backward else 1) * products)

        def ours(w: Any, b: Any, xs: Any) -> Any:
            return gradients.scan_loss(td, td.scan, w, b, xs)

        def theirs(w: Any, b: Any, xs: Any) -> Any:
            return gradients.scan_loss(jax().numpy, jax().lax.scan, w, b, xs)

        if not backward:
            return against_jax(ours, theirs, gradients.scan_values(), work)
        both = td.value_and_grad(ours, argnums=(0, 1)), jax().value_and_grad(theirs, argnums=(0, 1))
        return against_jax(*(flat(f) for f in both), gradients.scan_values(), work)

    return make


def flat(function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """(value, gradients) as one tuple."""

    def wrapped(*args: Any) -> tuple[Any, ...]:
        value, found = function(*args)
        return value, *found

    return wrapped


def recurrence() -> Pair:
    """100,000 steps of one number."""
    steps = 100_000

    def body(c: Any, x: Any) -> tuple[Any, Any]:
        c = c * 0.99 + x
        return c, c

    return against_jax(
        lambda xs: td.scan(body, np.float32(0), xs)[1],
        lambda xs: jax().lax.scan(body, np.float32(0), xs)[1],
        [normal(steps)],
        Work(4 * steps, 4 * steps, 2 * steps),
    )


# -- linear systems and Fourier transforms ---------------------------------------------------------


def systems(backward: bool) -> Callable[[], Pair]:
    """10,000 systems of 8 equations, none near singular: there the two libraries would differ in
    the fourth digit."""

    def make() -> Pair:
        count, n = 10_000, 8
        a = normal(count, n, n) + np.float32(2 * n) * np.eye(n, dtype=np.float32)
        arrays = [a, normal(count, n, seed=1)]
        work = Work(4 * count * (n * n + n), 4 * count * n, count * (2 * n**3 // 3 + 2 * n * n))
        ours, theirs = td.vmap(td.linalg.solve), jax().vmap(jax().numpy.linalg.solve)
        if not backward:
            return against_jax(ours, theirs, arrays, work)
        mine = td.grad(lambda a, b: td.sum(td.square(ours(a, b))), argnums=(0, 1))
        other = jax().grad(lambda a, b: jax().numpy.sum(theirs(a, b) ** 2), argnums=(0, 1))
        return against_jax(mine, other, arrays, work)

    return make


def fourier(count: int, length: int) -> Callable[[], Pair]:
    def make() -> Pair:
        x = (normal(count, length) + 1j * normal(count, length, seed=1)).astype(np.complex64)
        mine, left = td.jit(td.fft.fft), td.asarray(x)
        return Pair(lambda: mine(left), lambda: np.fft.fft(x), Work(x.nbytes, x.nbytes))

    return make


case("MLP 784-1024-1024-10, step with adam", "jax", 2.0, training)
case("scan: RNN of 64, 10,000 steps", "jax", 1.2, cell(False))
case("scan: the same, with gradient", "jax", 1.5, cell(True))
case("scan: a number, 100,000 steps", "jax", 1.0, recurrence)
case("vmap(solve), 10,000 of 8x8", "jax", 4.0, systems(False))
case("vmap(solve), its gradient", "jax", 4.0, systems(True))
case("fft 512x4096 c64", "numpy", 1.5, fourier(512, 4096))
case("fft 512x4099 c64", "numpy", 1.5, fourier(512, 4099))


# -- compiling and memory: processes of their own --------------------------------------------------


def start(library: str, program: str) -> dict[str, float]:
    """What one process tells: nothing is on disk before."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, gradients.__file__, library, program]
        environment = {**installed(), "TETRAD_CACHE_DIR": folder}
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
    return dict(json.loads(done.stdout))


def compile_row(name: str, program: str, budget: Budget) -> Row:
    """The first call of a jitted gradient in a fresh process, less a later call: what compiling
    costs."""

    def one_round() -> dict[str, float]:
        told = {library: start(library, program) for library in ("tetrad", "jax")}
        return {library: t["first"] - t["later"] for library, t in told.items()}

    one_round()  # writes bytecode and fills the page cache
    timing = undisturbed(one_round, Budget(0, 2 if budget.attempts == 1 else 4, budget.attempts))
    ours, theirs = timing.best["tetrad"], timing.best["jax"]
    return Row(name, ours, "s", theirs / ours, 1.5, "jax", theirs, timing.foreign)


def arena_row() -> Row:
    """Bytes of all intermediates of a gradient through 10,000 steps: about 100 of them stored,
    against all."""
    arena = {}
    for strategy in (None, "sqrt"):
        graph = td.jit(gradients.long_gradient(td, strategy)).trace(*gradients.long_values()).graph
        arena[strategy] = compile_graph(graph).bound().encoded.arena_bytes
    ratio = arena[None] / arena["sqrt"]
    return Row(
        "grad(scan), sqrt: arena", arena["sqrt"], "B", ratio, 20.0, "all stored", arena[None]
    )


def resident_rows() -> Iterator[Row]:
    """The same as a process sees it: how far its peak is above what it held before the call; and
    what that costs."""
    sqrt, every = start("tetrad", "sqrt"), start("tetrad", "stored")
    for name, key, unit, goal in (("resident", "grown", "B", 20.0), ("time", "later", "s", None)):
        ratio = every[key] / sqrt[key]
        yield Row(
            f"grad(scan), sqrt: {name}", sqrt[key], unit, ratio, goal, "all stored", every[key]
        )


def rows(chosen: Options) -> Iterator[Row]:
    for each in CASES.values():
        if chosen.wants(each.name):
            yield run_case(each, chosen.budget)
    for name, program in (("compile grad(MLP)", "mlp"), ("compile grad(scan)", "scan")):
        if chosen.wants(name):
            yield compile_row(name, program, chosen.budget)
    if chosen.wants("grad(scan), sqrt: arena, resident, time"):
        yield arena_row()
        yield from resident_rows()


def main() -> int:
    chosen = options(__doc__ or "")
    report = Report("transforms against peers")
    for row in rows(chosen):
        report.add(row)
    return report.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
