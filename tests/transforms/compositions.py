"""Random programs for JAX and Tetrad alike: pieces inside pieces, with transforms around them.

A piece is written once, for a library L, and makes a function of three numbers that returns three.
`drawn(seed)` puts pieces into loops, branches, batches, custom rules and derivatives, and a
transform around the whole.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[[Any], Any]
Piece = Callable[[Any], Function]  # library -> function
M = np.random.default_rng(8).standard_normal((3, 3)) / 2
V = np.array([0.4, -0.3, 0.7])
FORWARD = ("jacfwd", "hessian", "vmap of jacfwd", "jvp")  # transforms that a custom vjp refuses


def like(L: Any, a: np.ndarray, x: Any) -> Any:
    return L.np.asarray(a).astype(x.dtype)


def weighted(L: Any, f: Function) -> Function:
    return lambda x: L.np.sum(f(x) * like(L, np.array([1.0, -2.0, 0.5]), x))


def rows(L: Any, x: Any) -> Any:
    return x[:, None] * like(L, M, x) + x


# -- pieces without pieces inside ------------------------------------------------------------------

SIMPLE: dict[str, Piece] = {
    "sine": lambda L: lambda x: L.np.sin(x) * x + 0.3,
    "turned": lambda L: lambda x: x * x[::-1] - 0.2,
    "layer": lambda L: lambda x: L.np.tanh(like(L, M, x) @ x),
    "product": lambda L: lambda x: L.np.tanh(x @ (like(L, M, x) + x[:, None])),
    "sort": lambda L: lambda x: L.np.sort(x) * like(L, V, x),
    "rolled": lambda L: lambda x: L.np.roll(x, 1) * x,
    "taken": lambda L: lambda x: x[L.np.asarray(np.array([2, 0, 2]))] * 0.6,
    "softmax": lambda L: lambda x: L.nn.softmax(x + like(L, V, x)),
    "set": lambda L: lambda x: x.at[1].set(x[0] * x[2]).at[:2].multiply(0.7),
    "added twice": lambda L: lambda x: x.at[L.np.asarray(np.array([0, 0, 2]))].add(L.np.sin(x)),
    "dropped": lambda L: lambda x: x.at[L.np.asarray(np.array([0, 5, -9]))].add(x * x, mode="drop"),
    "filled": lambda L: lambda x: x.at[L.np.asarray(np.array([2, 3, 0]))].get(mode="fill",
    fill_value=0.5) * x,
    "bell": lambda L: lambda x: L.np.exp(-(x**2)) + 0.4 * x,
    "chosen": lambda L: lambda x: L.np.where(x > like(L, V, x), x**2, L.np.cos(x)),
    "stopped": lambda L: lambda x: x * L.stop_gradient(L.np.sin(x)),
    "solved": lambda L: lambda x: L.linalg.solve(
        like(L, M @ M.T + 2 * np.eye(3), x) + 0.1 * L.np.tanh(x)[:, None] * L.np.tanh(x), x),
    "spectrum": lambda L: lambda x: L.np.real(L.fft.fft(x * (1 + 0.5j))) / 2,
    "normed": lambda L: lambda x: x / L.np.sqrt(1 + L.np.sum(x**2)),
    "largest": lambda L: lambda x: x * x[L.np.argmax(x)] - L.np.min(x),
    "multiplied": lambda L: lambda x: L.np.prod(L.np.tanh(x)) + 0.4 * x,
    "updated": lambda L: lambda x: L.dynamic_update_slice(x, x[:2] * x[1:], (L.np.asarray(1),)),
    "einsum": lambda L: lambda x: L.np.einsum("i,ij,j,k->k", x, like(L, M, x), x, L.np.cos(x)),
}  # fmt: skip


# -- pieces around pieces --------------------------------------------------------------------------


def scanned(L: Any, f: Function, **settings: Any) -> Function:
    def run(x: Any) -> Any:
        def step(c: Any, t: Any) -> Any:
            c = L.np.tanh(f(c) + t * x)
            return c, c * t

        last, all_ys = L.scan(step, x, like(L, np.linspace(-1, 1, 4), x), **settings)
        return last + L.np.sum(all_ys**2, axis=0)

    return run


def scanned_tree(L: Any, f: Function) -> Function:
    def step(s: Any, x: Any) -> Any:
        return {"p": (L.np.tanh(f(s["p"][0])), s["p"][0]), "k": s["k"] + 1, "n": None}, (
            s["p"][1] * x["u"],
            None,
        )

    def run(x: Any) -> Any:
        last, (ys, _) = L.scan(step, {"p": (x, 0.5 * x), "k": 0, "n": None}, {"u": x})
        return last["p"][0] * last["k"] + last["p"][1] + L.np.sum(ys, axis=0)

    return run


def branches_in_a_loop(L: Any, f: Function) -> Function:
    def step(x: Any, c: Any, t: Any) -> Any:
        return L.cond(t > 0, lambda u: L.np.tanh(f(u)), lambda u: u * x, c), None

    return lambda x: L.scan(lambda c, t: step(x, c, t), x, x)[0]


def one_of_three(L: Any, f: Function) -> Function:
    return lambda x: L.switch(L.np.argmax(x), [f, lambda x: f(x) * x, L.np.sin], x)


def with_jvp(L: Any, f: Function) -> Function:
    made: Any = L.custom_jvp(f)
    made.defjvp(
        lambda primals, tangents: (made(*primals), (1 + primals[0] ** 2) * tangents[0] * 0.7)
    )
    return lambda x: made(x)


def with_vjp(L: Any, f: Function) -> Function:
    made: Any = L.custom_vjp(f)
    made.defvjp(
        lambda x: (f(x), (x, L.np.sin(x))), lambda kept, ct: (ct * kept[0] * 0.6 + kept[1],)
    )
    return lambda x: made(x)


def with_aux(L: Any, f: Function) -> Function:
    def run(x: Any) -> Any:
        loss = L.value_and_grad(
            lambda p, q: (L.np.sum(f(p) * q), {"u": 2 * p, "z": None}), (0, -1), has_aux=True
        )
        (value, aux), (by_p, by_q) = loss(x, L.np.cos(x))
        return value * by_p + by_q * aux["u"]

    return run


def running(L: Any, f: Function) -> Function:
    def join(p: Any, q: Any) -> Any:
        return p[0] * q[0], q[0] * p[1] + q[1]

    return lambda x: L.np.sum(
        L.associative_scan(join, (L.np.tanh(rows(L, f(x))), rows(L, x)))[1], axis=0
    )


def among_rows(L: Any, f: Function, tell: Callable[[Any, Any], Any]) -> Function:
    mapped = L.vmap(lambda u: L.np.tanh(f(u)) * tell(L, u), axis_name="rows")
    return lambda x: L.np.sum(mapped(rows(L, x)), axis=0)


NEXT = [(0, 1), (1, 2), (2, 0)]
NESTED: dict[str, Callable[[Any, Function], Function]] = {
    "scan": scanned,
    "reversed scan": lambda L, f: scanned(L, f, reverse=True),
    "unrolled scan": lambda L, f: scanned(L, f, unroll=2),
    "scan of a tree": scanned_tree,
    "branches in a loop": branches_in_a_loop,
    "cond": lambda L, f: lambda x: L.cond(L.np.sum(x) > 0.1, f, lambda x: x * 2, x),
    "switch": one_of_three,
    "fori_loop": lambda L, f: lambda x: L.fori_loop(0, 3, lambda i,
    c: L.np.tanh(f(c)) + x * i * 0.1, x),
    "checkpoint": lambda L, f: L.checkpoint(f),
    "jit": lambda L, f: L.jit(f),
    "custom jvp": with_jvp,
    "custom vjp": with_vjp,
    "vmap": lambda L, f: lambda x: L.np.sum(L.vmap(f)(rows(L, x)), axis=0) / 3,
    "vmap of columns": lambda L, f: lambda x: L.np.sum(
        L.vmap(lambda u, w: f(u) * w, in_axes=(1, None), out_axes=1)(rows(L, x)[:, :2], x), axis=1),
    "map": lambda L, f: lambda x: L.np.sum(L.map(f, rows(L, x)), axis=0) / 3,
    "grad": lambda L, f: L.grad(weighted(L, f)),
    "value_and_grad": with_aux,
    "vjp": lambda L, f: lambda x: L.vjp(f, x)[1](L.np.cos(x))[0],
    "jacrev": lambda L, f: lambda x: L.jacrev(f)(x) @ x,
    "associative scan": running,
    "psum": lambda L, f: among_rows(L, f, lambda L, u: L.psum(u, "rows") + L.pmean(u * u, "rows")),
    "all_gather": lambda L, f: among_rows(L, f, lambda L, u: L.all_gather(u,
    "rows")[1] * (L.axis_index("rows") + 1)),
    "ppermute": lambda L, f: among_rows(L, f, lambda L, u: L.ppermute(u, "rows", NEXT)),
    "linear_transpose": lambda L, f: lambda x: L.linear_transpose(lambda u: f(x)[:, None] * like(L,
    M, x) @ u, x)(x)[0],
}  # fmt: skip
PUSHED: dict[str, Callable[[Any, Function], Function]] = {
    "jvp": lambda L, f: lambda x: L.jvp(f, (x,), (L.np.sin(x),))[1],
    "linearize": lambda L, f: lambda x: L.linearize(f, x)[1](x + 0.2),
    "jacfwd": lambda L, f: lambda x: L.jacfwd(f)(x) @ x,
}
AROUND: dict[str, Callable[[Any, Function], Function]] = {
    "grad": lambda L, f: L.grad(weighted(L, f)),
    "vmap": lambda L, f: lambda x: L.vmap(f)(rows(L, x)),
    "vmap of grad": lambda L, f: (
        lambda x: L.vmap(L.grad(weighted(L, f)), in_axes=1, out_axes=-1)(rows(L, x))
    ),
    "grad of vmap": lambda L, f: L.grad(lambda x: L.np.sum(L.vmap(f)(rows(L, x)) ** 2)),
    "jacrev": lambda L, f: L.jacrev(f),
    "jacfwd": lambda L, f: L.jacfwd(f),
    "hessian": lambda L, f: L.hessian(weighted(L, f)),
    "vmap of jacfwd": lambda L, f: lambda x: L.vmap(L.jacfwd(f))(rows(L, x)),
    "jvp": lambda L, f: lambda x: L.jvp(f, (x,), (x + 1,)),
}


def drawn(seed: int) -> tuple[str, Piece]:
    """The name of a program, and the program."""
    choose = random.Random(seed)
    around = choose.choice(list(AROUND))
    name, piece = pieces(
        choose, choose.choice((1, 2, 2, 3)) - (around == "hessian"), around not in FORWARD
    )
    return f"{around}: {name}", lambda L: AROUND[around](L, piece(L))


def pieces(choose: random.Random, depth: int, is_reverse: bool) -> tuple[str, Piece]:
    if depth <= 0:
        name = choose.choice(list(SIMPLE))
        return name, SIMPLE[name]
    inner, first = pieces(choose, depth - 1, is_reverse)
    table = {**NESTED, **({} if "custom vjp" in inner else PUSHED)}
    name = choose.choice([n for n in table if is_reverse or n != "custom vjp"])
    then = choose.choice(list(SIMPLE))
    return f"{name}({inner}), {then}", lambda L: both(L, table[name](L, first(L)), SIMPLE[then](L))


def both(L: Any, f: Function, g: Function) -> Function:
    return lambda x: g(L.np.tanh(f(x)))
