"""Bench, programs from JAX: loops whose steps are small, and loops outside jit, against JAX.

Every program is written once, over the few names that differ. Both sides are jitted and alternate;
what is called outside jit is a new function at every call, so both trace it, and compile it unless
they know it. Spikes are those of calls that no other program interrupted.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import Budget, Options, Report, Row, cpu_times, foreign_share, measure, options

import tetrad as td

STEPS = 100_000
LAYERS, BATCH, WIDTH, CALLS = 200, 32, 64, 1000
MOST_SPIKE = 2.0  # of the median
MOST_EQUAL = 0.995  # of the elements: at its edge a set decides by the last bit


@dataclass(frozen=True, slots=True)
class Names:
    """What a program calls of a library."""

    array: Callable[[Any], Any]
    while_loop: Callable[..., Any]
    fori_loop: Callable[..., Any]
    scan: Callable[..., Any]
    cond: Callable[..., Any]
    switch: Callable[..., Any]
    map: Callable[..., Any]
    vmap: Callable[..., Any]
    jit: Callable[..., Any]
    solve: Callable[..., Any]
    wait: Callable[[Any], Any]
    np: Any


def ours() -> Names:
    return Names(
        td.asarray, td.while_loop, td.fori_loop, td.scan, td.cond, td.switch, td.map, td.vmap,
        td.jit, td.linalg.solve, lambda made: made, td,
    )  # fmt: skip


def theirs() -> Names:
    import jax
    import jax.numpy as jnp
    from jax import lax

    return Names(
        jnp.asarray, lax.while_loop, lax.fori_loop, lax.scan, lax.cond, lax.switch, lax.map,
        jax.vmap, jax.jit, jnp.linalg.solve, jax.block_until_ready, jnp,
    )  # fmt: skip


# -- the programs ----------------------------------------------------------------------------------


def counting(n: Names, steps: Any, x: Any) -> Any:
    def body(state: Any) -> Any:
        i, x = state
        return i + 1, x * 0.999 + 0.5

    return n.while_loop(lambda state: state[0] < steps, body, (n.array(np.int32(0)), x))[1]


def fori(n: Names, steps: Any, x: Any) -> Any:
    return n.fori_loop(0, steps, lambda i, x: x * 0.999 + 0.5, x)


def branching(n: Names, x: Any, xs: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        c = n.cond(c > 1, lambda c, x: c * 0.5 + x, lambda c, x: c + x, c, x)
        return c, None

    return n.scan(step, x, xs)[0]


def switching(n: Names, x: Any, xs: Any) -> Any:
    def step(c: Any, x: Any) -> Any:
        i, c = c
        ways = [lambda c: c * 0.5 + x, lambda c: c + x, lambda c: x - c]
        return (i + 1, n.switch(i % 3, ways, c)), None

    return n.scan(step, (n.array(np.int32(0)), x), xs)[0][1]


def collatz(n: Names, x: Any) -> Any:
    def body(state: Any) -> Any:
        x, count = state
        return n.cond(x % 2 == 0, lambda x: x // 2, lambda x: 3 * x + 1, x), count + 1

    def longest(x: Any) -> Any:
        return n.while_loop(lambda s: s[0] != 1, body, (x, n.array(np.int32(0))))[1]

    return n.fori_loop(1, x, lambda i, most: n.np.maximum(most, longest(i)), n.array(np.int32(0)))


def xorshift(n: Names, steps: Any, x: Any) -> Any:
    thirteen, seventeen, five = (n.array(np.uint32(by)) for by in (13, 17, 5))

    def body(i: Any, x: Any) -> Any:
        x = x ^ (x << thirteen)
        x = x ^ (x >> seventeen)
        return x ^ (x << five)

    return n.fori_loop(0, steps, body, x)


def euler(n: Names, steps: Any, x: Any) -> Any:
    """Lorenz's system, a vector of three, where it comes to rest and rounding does not grow."""

    def body(i: Any, s: Any) -> Any:
        x, y, z = s[0], s[1], s[2]
        return s + 0.001 * n.np.stack([10 * (y - x), x * (5 - z) - y, x * y - 8 / 3 * z])

    return n.fori_loop(0, steps, body, x)


def newton(n: Names, x: Any) -> Any:
    """Square roots of 64 numbers, until all are right; many times over."""

    def roots(i: Any, x: Any) -> Any:
        return n.while_loop(
            lambda s: n.np.max(n.np.abs(s * s - 2)) > 1e-4,
            lambda s: s - (s * s - 2) / (2 * s),
            x + 1,
        )

    return n.fori_loop(0, STEPS // 100, roots, x)


def kalman(n: Names, zs: Any) -> Any:
    """A filter of four states, two of them measured."""
    move = n.array((np.eye(4) + 0.1 * np.eye(4, k=2)).astype(np.float32))
    see, noise = n.array(np.eye(2, 4, dtype=np.float32)), n.array(0.1 * np.eye(2, dtype=np.float32))
    drift = n.array(0.01 * np.eye(4, dtype=np.float32))

    def step(state: Any, z: Any) -> Any:
        x, p = state
        x, p = move @ x, move @ p @ move.T + drift
        s = see @ p @ see.T + noise
        det = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
        rows = [n.np.stack([s[1, 1], -s[0, 1]]), n.np.stack([-s[1, 0], s[0, 0]])]
        gain = p @ see.T @ (n.np.stack(rows) / det)
        return (x + gain @ (z - see @ x), p - gain @ see @ p), x

    start = n.array(np.zeros(4, np.float32)), n.array(np.eye(4, dtype=np.float32))
    return n.scan(step, start, zs)[1]


def mandelbrot(n: Names, c: Any) -> Any:
    """Every point goes on as long as it needs to."""

    def one(c: Any) -> Any:
        def goes_on(state: Any) -> Any:
            z, count = state
            return (n.np.abs(z) < 2) & (count < 50)

        start = (c * 0, n.array(np.int32(0)))
        return n.while_loop(goes_on, lambda s: (s[0] * s[0] + c, s[1] + 1), start)[1]

    return n.vmap(one)(c)


def mandelbrot_real(n: Names, a: Any, b: Any) -> Any:
    """The same on pairs of numbers."""

    def one(a: Any, b: Any) -> Any:
        def goes_on(state: Any) -> Any:
            x, y, count = state
            return (x * x + y * y < 4) & (count < 50)

        def step(state: Any) -> Any:
            x, y, count = state
            return x * x - y * y + a, 2 * x * y + b, count + 1

        return n.while_loop(goes_on, step, (a * 0, b * 0, n.array(np.int32(0))))[2]

    return n.vmap(one)(a, b)


def nested(n: Names, steps: Any, x: Any) -> Any:
    def outer(i: Any, x: Any) -> Any:
        return n.fori_loop(0, 10, lambda j, x: x * 0.999 + j, x) * 0.1

    return n.fori_loop(0, steps, outer, x)


def power(n: Names, steps: Any, a: Any, x: Any) -> Any:
    """The power method on a matrix of 32."""

    def body(i: Any, x: Any) -> Any:
        y = a @ x
        return y / n.np.sqrt(n.np.sum(y * y))

    return n.fori_loop(0, steps, body, x)


def sieve(n: Names, flags: Any) -> Any:
    def body(i: Any, flags: Any) -> Any:
        def strike(flags: Any) -> Any:
            return n.while_loop(
                lambda s: s[0] < STEPS, lambda s: (s[0] + i, s[1].at[s[0]].set(False)),
                (i * i, flags),
            )[1]  # fmt: skip

        return n.cond(flags[i], strike, lambda flags: flags, flags)

    return n.fori_loop(n.array(np.int32(2)), n.array(np.int32(316)), body, flags)


def bare_scan(n: Names, x: Any, xs: Any) -> Any:
    return n.scan(lambda c, x: (c * 0.9 + x, c), x, xs)


def bare_map(n: Names, xs: Any) -> Any:
    return n.map(lambda x: x * 2 + 1, xs)


# -- rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    program: Callable[..., Any]
    args: tuple[Any, ...]
    is_bare: bool = False


def cases() -> list[Case]:
    rng = np.random.default_rng(0)
    steps, one = np.int32(STEPS), np.float32(1)
    xs = rng.random(STEPS, dtype=np.float32)
    points = rng.standard_normal((2, 1 << 16), dtype=np.float32)
    square = rng.random((32, 32), dtype=np.float32)
    return [
        Case("while_loop, scalar, 100,000 steps", counting, (steps, one)),
        Case("fori_loop, traced bound, scalar, 100,000 steps", fori, (steps, one)),
        Case("cond inside scan, 100,000 steps", branching, (one, xs)),
        Case("switch inside scan, 100,000 steps", switching, (one, xs)),
        Case("collatz up to 1,000", collatz, (np.int32(1000),)),
        Case("xorshift, 100,000 steps", xorshift, (steps, np.uint32(1))),
        Case("euler, 3 numbers, 100,000 steps", euler, (steps, np.ones(3, np.float32))),
        Case("newton, 64 numbers, 1,000 times", newton, (rng.random(64, dtype=np.float32),)),
        Case("kalman, 4 states, 10,000 steps", kalman, (xs[:20_000].reshape(-1, 2),)),
        Case("fori_loop in fori_loop, 10,000 x 10", nested, (np.int32(10_000), one)),
        Case("power method, 32 x 32, 10,000 steps", power, (np.int32(10_000), square, square[0])),
        Case("sieve of 100,000", sieve, (np.ones(STEPS, np.bool_),)),
        Case("mandelbrot, vmap of while_loop, 65,536 pairs", mandelbrot_real, tuple(points)),
        Case("mandelbrot, complex, 65,536", mandelbrot, (points[0] + 1j * points[1],)),
        Case("bare scan, 100,000 steps", bare_scan, (one, xs), True),
        Case("bare while_loop, 100,000 steps", counting, (steps, one), True),
        Case("bare map, 100,000 rows", bare_map, (xs,), True),
        Case("bare kalman, 10,000 steps", kalman, (xs[:20_000].reshape(-1, 2),), True),
    ]


def rows(chosen: Options) -> Iterator[Row]:
    for case in cases():
        if chosen.wants(case.name):
            yield row(case, chosen.budget)
    if chosen.wants("spikes"):
        yield spikes_row()


def row(case: Case, budget: Budget) -> Row:
    sides = {"ours": called(ours(), case), "JAX": called(theirs(), case)}
    is_right = agree(sides["ours"](), sides["JAX"]())
    timing = measure(sides, budget)
    mine, other = timing.best["ours"], timing.best["JAX"]
    return Row(
        f"loop: {case.name}", mine, "s", other / mine, 1.0, "JAX", other, timing.foreign, is_right
    )


def called(names: Names, case: Case) -> Callable[[], Any]:
    held = [names.array(a) for a in case.args]

    def program(*args: Any) -> Any:
        return case.program(names, *args)

    ready = program if case.is_bare else names.jit(program)
    return lambda: names.wait(ready(*held))


def agree(mine: Any, other: Any) -> bool:
    pairs = zip(leaves(mine), leaves(other), strict=True)
    return all(np.isclose(a, b, rtol=1e-3, atol=1e-3).mean() > MOST_EQUAL for a, b in pairs)


def leaves(made: Any) -> list[np.ndarray]:
    if isinstance(made, tuple | list):
        return [leaf for part in made for leaf in leaves(part)]
    return [np.asarray(made)]


# -- spikes ----------------------------------------------------------------------------------------


def spikes_row() -> Row:
    """The slowest call of a network of 200 layers, in medians, of those that nobody else
    interrupted: in the others other programs ran."""
    rng = np.random.default_rng(0)
    weights = [
        td.asarray(rng.standard_normal((WIDTH, WIDTH), dtype=np.float32) * WIDTH**-0.5)
        for _ in range(LAYERS)
    ]
    x = td.asarray(rng.standard_normal((BATCH, WIDTH), dtype=np.float32))

    def network(weights: Any, x: Any) -> Any:
        for w in weights:
            x = td.tanh(x @ w)
        return x

    forward = td.jit(network)
    before = cpu_times()
    taken, switches = times(lambda: forward(weights, x))
    quiet = taken[switches == 0]
    worst, every = (float(part.max() / np.median(part)) for part in (quiet, taken))
    share = foreign_share(before, cpu_times())
    bound = f"{len(quiet)} of {CALLS} calls were not interrupted; the slowest of all: {every:.1f} x"
    return Row(
        "loop: spikes of an MLP of 200 layers", worst, "x median", MOST_SPIKE / worst, 1.0,
        foreign=share, bound=bound,
    )  # fmt: skip


def times(function: Callable[[], Any]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each call, and how often the processor was taken away from us in it."""
    for _ in range(20):
        function()
    taken, switches = [], []
    for _ in range(CALLS):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
        switches.append(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - before)
    return np.asarray(taken), np.asarray(switches)


def main() -> int:
    chosen = options(__doc__ or "")
    report = Report("port loops against JAX")
    for each in rows(chosen):
        report.add(each)
    return report.finish(chosen)


if __name__ == "__main__":
    sys.exit(main())
