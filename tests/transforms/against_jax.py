"""Compares derivatives, batches and loops with JAX: every case is written once and run by both. Run
by hand, from the root of the repository:

    python -m venv peer && peer/bin/pip install jax
    PYTHONPATH=. peer/bin/python tests/transforms/against_jax.py

One line a case: the largest difference of all results, beside the largest number of each, in single
precision (the oracle is JAX in double precision on the same numbers), eager and compiled; then how
far JAX's own single precision is from that oracle; then double precision, eager and compiled. Where
terms cancel, single precision may be as far off as three times what JAX is. Known differences are
left out: at 0 the derivative of abs is 0 here and 1 there, and JAX has none for pmax.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

os.environ["JAX_ENABLE_X64"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np

import tetrad as td
from tests.transforms.compositions import drawn

Array = Any
TOLERANCE = {"f32": 1e-6, "f64": 1e-12}
RNG = np.random.default_rng(2)

TETRAD = SimpleNamespace(
    np=td, nn=td.nn, linalg=td.linalg, fft=td.fft, index_add=lambda x, i, size: td.scatter_add(x, i,
    size),
    **{name: getattr(td, name) for name in (
        "grad", "value_and_grad", "vjp", "jvp", "linearize", "vmap", "jit", "jacfwd", "jacrev",
        "hessian", "checkpoint",
        "custom_jvp", "custom_vjp", "scan", "cond", "switch", "while_loop", "fori_loop", "map",
        "associative_scan",
        "stop_gradient", "psum", "pmean", "pmax", "all_gather", "axis_index", "ppermute",
        "pshuffle", "all_to_all",
        "psum_scatter", "dynamic_slice", "dynamic_update_slice", "linear_transpose",
        "checkpoint_policies",
    )},
)  # fmt: skip
JAX = SimpleNamespace(
    np=jnp, nn=jax.nn, linalg=jnp.linalg, fft=jnp.fft,
    index_add=lambda x, i, size: jnp.zeros((size, *x.shape[1:]), x.dtype).at[i].add(x),
    **{name: getattr(jax, name) for name in (
        "grad", "value_and_grad", "vjp", "jvp", "linearize", "vmap", "jit", "jacfwd", "jacrev",
        "hessian", "checkpoint",
        "custom_jvp", "custom_vjp", "linear_transpose", "checkpoint_policies",
    )},
    **{name: getattr(jax.lax, name) for name in (
        "scan", "cond", "switch", "while_loop", "fori_loop", "map", "associative_scan",
        "stop_gradient", "psum",
        "pmean", "pmax", "all_gather", "axis_index", "ppermute", "pshuffle", "all_to_all",
        "psum_scatter",
        "dynamic_slice", "dynamic_update_slice",
    )},
)  # fmt: skip

Case = tuple[str, Callable[[Any], Callable[..., Any]], list[np.ndarray]]
CASES: list[Case] = []


def case(name: str, function: Callable[[Any], Callable[..., Any]], *arguments: Any) -> None:
    CASES.append((name, function, [np.asarray(a) for a in arguments]))


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def summed(L: Any, f: Callable[..., Any], *shape: int) -> Callable[..., Any]:
    """The gradient of a weighted sum of the results, by all arguments."""

    def loss(*xs: Any) -> Any:
        y = f(*xs)
        weights = np.linspace(-1, 2, int(np.prod(y.shape))).reshape(y.shape)
        return L.np.sum(y * L.np.asarray(weights).astype(y.dtype))

    return lambda *xs: L.grad(loss, argnums=tuple(range(len(xs))))(*xs)


# -- functions of elements, at ordinary points and at edges ----------------------------------------

X, Y, P = normal(3, 4), normal(3, 4), np.abs(normal(3, 4)) + 0.2
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0])
for name in (
    "sin",
    "cos",
    "tan",
    "tanh",
    "sinh",
    "cosh",
    "exp",
    "expm1",
    "atan",
    "asinh",
    "square",
    "sign",
    "floor",
):
    case(name, lambda L, n=name: summed(L, getattr(L.np, n)), X)
for name in ("log", "log2", "log10", "log1p", "sqrt", "reciprocal"):
    case(name, lambda L, n=name: summed(L, getattr(L.np, n)), P)
for name in ("asin", "acos", "atanh"):
    case(name, lambda L, n=name: summed(L, getattr(L.np, n)), X / 4)
case("acosh", lambda L: summed(L, L.np.acosh), P + 1)
for name in ("sqrt", "log", "asin"):
    case(f"{name} at edges", lambda L, n=name: summed(L, getattr(L.np, n)), EDGES)
case("pow", lambda L: summed(L, lambda x, y: x**y), P, Y)
case(
    "pow at zero",
    lambda L: summed(L, lambda x, y: x**y),
    [0.0, 0.0, 0.0, 2.0, 1.0],
    [2.0, 1.0, 3.0, 0.0, 0.0],
)
case("cube", lambda L: summed(L, lambda x: x**3), EDGES)
case("atan2", lambda L: summed(L, L.np.atan2), X, Y)
case("divide", lambda L: summed(L, lambda x, y: x / y), X, P)
case("remainder", lambda L: summed(L, L.np.remainder), 5 * X, P)
case("maximum and minimum with ties", lambda L: summed(L, lambda x, y: L.np.maximum(x,
y) * L.np.minimum(y, 0 * x)),
     [1.0, 2.0, 0.0], [1.0, 1.0, 0.0])  # fmt: skip
case("clip at its ends", lambda L: summed(L, lambda x: L.np.clip(x, -1.0, 0.5)), X)
case("where", lambda L: summed(L, lambda x, y: L.np.where(x > y, L.np.sin(x), y**2)), X, Y)
for name in ("relu", "sigmoid", "silu", "softplus", "gelu", "softmax", "log_softmax", "elu"):
    case(f"nn.{name}", lambda L, n=name: summed(L, getattr(L.nn, n)), X)
case("nn.relu at zero", lambda L: summed(L, L.nn.relu), EDGES)
case(
    "logsumexp",
    lambda L: summed(L, lambda x: (L.nn.logsumexp if L is TETRAD else jax.nn.logsumexp)(x, axis=0)),
    X,
)

# -- shapes, sums, elements ------------------------------------------------------------------------

case(
    "mean, var, std",
    lambda L: summed(L, lambda x: L.np.mean(x, axis=0) * L.np.var(x, axis=0) + L.np.std(x)),
    X,
)
case("max and min of rows with ties", lambda L: summed(L, lambda x: L.np.max(x,
axis=1) - L.np.min(x, axis=1)),
     [[1.0, 1.0, 0.0], [2.0, 3.0, 2.0]])  # fmt: skip
case("product", lambda L: summed(L, lambda x: L.np.prod(x, axis=1)), X)
case(
    "product with zeros",
    lambda L: summed(L, lambda x: L.np.prod(x, axis=1)),
    [[0.0, 2.0, 3.0], [0.0, 0.0, 4.0]],
)
case(
    "second derivative of a product with zeros",
    lambda L: L.hessian(L.np.prod),
    [0.0, 2.0, 0.0, 3.0, 5.0],
)
case("cumulative sum", lambda L: summed(L, lambda x: L.np.cumulative_sum(x, axis=1) ** 2), X)
case("sort", lambda L: summed(L, lambda x: L.np.sort(x, axis=0) ** 2), X)
case("slices", lambda L: summed(L, lambda x: x[::-1, 1:] * x[:, :-1] + x[1, ::2][:, None][0]), X)
case(
    "take, twice the same",
    lambda L: summed(L, lambda x: L.np.take(x, L.np.asarray([1, 1, -1, 0]), axis=1) ** 2),
    X,
)
case("take along an axis",
     lambda L: summed(L, lambda x: L.np.take_along_axis(x, L.np.argsort(x, axis=1), axis=1) ** 2),
     X)  # fmt: skip
case(
    "scattered sum",
    lambda L: summed(L, lambda x: L.index_add(x, L.np.asarray([2, 0, 2]), 3) ** 2),
    X,
)
case("movement",
     lambda L: summed(L, lambda x: L.np.flip(L.np.roll(L.np.tile(x, (2, 1)).T, 1, axis=0)) ** 2),
     X)  # fmt: skip
case(
    "joined",
    lambda L: summed(
        L, lambda x, y: L.np.concat([x, y[:1]]) ** 2 @ L.np.stack([x[0], y[1]], axis=1)
    ),
    X,
    Y,
)
case(
    "broadcasting",
    lambda L: summed(L, lambda a, b: (a[:, None] * b) ** 2 / (1 + a[0] ** 2)),
    normal(3),
    normal(4),
)
case(
    "products", lambda L: summed(L, lambda a, b: (a @ b) ** 2), normal(2, 1, 3, 4), normal(3, 4, 2)
)
case(
    "einsum",
    lambda L: summed(L, lambda a, b: L.np.einsum("ijk,kj->i", a, b) ** 2),
    normal(2, 3, 4),
    normal(4, 3),
)
case(
    "tensordot",
    lambda L: summed(L, lambda a, b: L.np.tensordot(a, b, axes=2)),
    normal(2, 3, 4),
    normal(3, 4, 5),
)

# -- transforms of transforms ----------------------------------------------------------------------

W = normal(4, 4)


def energy(L: Any) -> Callable[[Any], Any]:
    return lambda x: L.np.sum(L.np.tanh(L.np.asarray(W).astype(x.dtype) @ x) * L.np.exp(-(x**2)))


case("hessian", lambda L: L.hessian(energy(L)), normal(4))
case(
    "jacfwd of jacrev",
    lambda L: L.jacfwd(L.jacrev(lambda x: L.np.sin(x) * L.np.sum(x**2))),
    normal(4),
)
case(
    "jacrev of jacfwd",
    lambda L: L.jacrev(L.jacfwd(lambda x: L.np.sin(x) * L.np.sum(x**2))),
    normal(4),
)
case(
    "jvp of grad", lambda L: lambda x, v: L.jvp(L.grad(energy(L)), (x,), (v,)), normal(4), normal(4)
)
case(
    "grad of jvp",
    lambda L: L.grad(lambda x, v: L.jvp(energy(L), (x,), (v,))[1]),
    normal(4),
    normal(4),
)
case("vjp of grad", lambda L: lambda x, v: L.vjp(L.grad(energy(L)), x)[1](v), normal(4), normal(4))
case("linearize", lambda L: lambda x, v: L.linearize(energy(L), x)[1](v), normal(4), normal(4))
case(
    "third derivative",
    lambda L: L.grad(L.grad(L.grad(lambda x: L.np.sin(x) * L.np.exp(x) * x**2))),
    0.7,
)
case("vmap of grad", lambda L: L.vmap(L.grad(energy(L))), normal(5, 4))
case("grad of vmap", lambda L: L.grad(lambda x: L.np.sum(L.vmap(energy(L))(x) ** 2)), normal(5, 4))
case(
    "vmap of hessian", lambda L: L.vmap(L.hessian(energy(L)), in_axes=1, out_axes=-1), normal(4, 3)
)
case(
    "vmap of vmap",
    lambda L: L.vmap(L.vmap(lambda a, b: a @ b, (None, 0)), (0, None), 1),
    normal(3, 4),
    normal(2, 4),
)
case("jit inside", lambda L: L.grad(lambda x: L.jit(energy(L))(x) ** 2), normal(4))
case("checkpoint", lambda L: L.hessian(L.checkpoint(energy(L))), normal(4))
case(
    "stopped gradient",
    lambda L: L.grad(lambda x: L.np.sum(x**2 * L.stop_gradient(L.np.sin(x)))),
    normal(4),
)
case("psum and pmean",
     lambda L: summed(L, L.vmap(lambda x: L.psum(x**2, "i") * x - L.pmean(x**3, "i"),
     axis_name="i")), X)  # fmt: skip
case("pmax", lambda L: L.vmap(lambda x: L.pmax(x, "i") * x, axis_name="i"), X)
case(
    "all_gather",
    lambda L: summed(L, L.vmap(lambda x: L.np.sum(L.all_gather(x, "i") ** 3) * x, axis_name="i")),
    X,
)
case(
    "grad inside psum",
    lambda L: L.vmap(L.grad(lambda x: L.psum(L.np.sum(x**2), "i") * x[0]), axis_name="i"),
    X,
)


def with_jvp(L: Any) -> Callable[[Any], Any]:
    f = L.custom_jvp(lambda x: L.np.sin(x))
    f.defjvp(lambda primals, tangents: (f(*primals), 3 * L.np.cos(primals[0]) * tangents[0]))
    return f


def with_vjp(L: Any) -> Callable[[Any], Any]:
    f = L.custom_vjp(lambda x: L.np.sin(x))
    f.defvjp(lambda x: (L.np.sin(x), x), lambda x, ct: (5 * L.np.cos(x) * ct,))
    return f


case("custom jvp", lambda L: L.vmap(L.grad(L.grad(with_jvp(L)))), normal(4))
case("custom vjp", lambda L: L.vmap(L.grad(with_vjp(L))), normal(4))


# -- loops -----------------------------------------------------------------------------------------


def cell(L: Any) -> Callable[..., Any]:
    def run(w: Any, c: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = L.np.tanh(w @ c + x)
            return c, L.np.sum(c**2)

        last, sums = L.scan(step, c, xs)
        return L.np.sum(last) + L.np.sum(sums**2)

    return run


LOOP = normal(3, 3) / 2, normal(3), normal(6, 3)
case("scan", lambda L: L.grad(cell(L), argnums=(0, 1, 2)), *LOOP)
case(
    "scan, second derivative",
    lambda L: L.hessian(lambda c, w, xs: cell(L)(w, c, xs)),
    LOOP[1],
    LOOP[0],
    LOOP[2],
)
case("scan, vmap of grad",
     lambda L: L.vmap(L.grad(cell(L), argnums=1), (None, 0, None)), LOOP[0], normal(4, 3),
     LOOP[2])  # fmt: skip
case("scan in reverse",
     lambda L: L.grad(lambda c, xs: L.scan(lambda c, x: (c * x + L.np.sin(c), c), c, xs,
     reverse=True)[0]),
     0.4, normal(5))  # fmt: skip
case(
    "fori_loop",
    lambda L: L.grad(lambda x: L.fori_loop(0, 5, lambda i, c: L.np.sin(c) * x + c, x)),
    0.3,
)
case("while_loop, jvp",
     lambda L: lambda x: L.jvp(lambda x: L.while_loop(lambda c: c < 50.0, lambda c: c * c + x, x),
     (x,), (x,)),
     1.7)  # fmt: skip
case(
    "cond",
    lambda L: L.vmap(L.grad(lambda x: L.cond(x > 0, L.np.sin, lambda x: x**3, x))),
    normal(5),
)


def root_or_line(L: Any) -> Callable[[Any], Any]:
    return lambda x: L.cond(x > 0, lambda x: L.np.sqrt(x) + L.np.log(x), lambda x: 2 * x, x)


case("cond, branches that are not chosen have infinite slopes",
     lambda L: L.grad(lambda x: L.np.sum(L.vmap(root_or_line(L))(x))), [-1.0, 0.0,
     2.0])  # fmt: skip
case("switch", lambda L: L.vmap(L.grad(lambda x, i: L.switch(i, [L.np.sin, lambda x: x**3,
L.np.exp], x))),
     normal(5), np.array([0, 1, 2, 7, -3], np.int32))  # fmt: skip
case(
    "map",
    lambda L: L.grad(lambda xs: L.np.sum(L.map(lambda x: L.np.sum(x) ** 3, xs))),
    normal(9, 2),
)
case("associative scan",
     lambda L: L.grad(lambda xs: L.np.sum(
         L.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (L.np.cos(xs), xs),
         reverse=True)[1] ** 2)),
     normal(9))  # fmt: skip
case("elements set and added",
     lambda L: L.grad(lambda x, v: L.np.sum(x.at[1].set(v).at[:, ::2].add(v[::2]) ** 2), argnums=(0,
     1)),
     normal(3, 4), normal(4))  # fmt: skip

# -- programs --------------------------------------------------------------------------------------


def kalman(L: Any) -> Callable[..., Any]:
    """The likelihood of observations of a linear system."""

    def likelihood(f: Any, h: Any, q: Any, r: Any, zs: Any) -> Any:
        def step(carry: Any, z: Any) -> Any:
            m, p, total = carry
            m, p = f @ m, f @ p @ f.T + q
            s, v = h @ p @ h.T + r, z - h @ m
            gain = L.linalg.solve(s, h @ p).T
            total = total - 0.5 * (v @ L.linalg.solve(s, v) + L.linalg.slogdet(s)[1])
            return (m + gain @ v, p - gain @ s @ gain.T, total), m

        n = f.shape[0]
        start = (
            L.np.zeros(n, dtype=f.dtype),
            L.np.eye(n, dtype=f.dtype),
            L.np.zeros((), dtype=f.dtype),
        )
        return L.scan(step, start, zs)[0][2]

    return L.value_and_grad(likelihood, argnums=(0, 1, 2, 3, 4))


def orbit(L: Any) -> Callable[..., Any]:
    """An ordinary differential equation with a network on its right side, by Runge and Kutta."""

    def loss(w: Any, v: Any, y: Any, goal: Any) -> Any:
        def f(y: Any) -> Any:
            return L.np.tanh(y @ w) @ v

        def step(y: Any, _: Any) -> Any:
            a = f(y)
            b = f(y + 0.05 * a)
            c = f(y + 0.05 * b)
            y = y + 0.1 / 6 * (a + 2 * b + 2 * c + f(y + 0.1 * c))
            return y, y

        return L.np.mean((L.scan(step, y, None, length=20)[1] - goal) ** 2)

    return L.value_and_grad(loss, argnums=(0, 1, 2))


def attention(L: Any) -> Callable[..., Any]:
    def attend(q: Any, k: Any, v: Any) -> Any:
        scores = L.np.einsum("hid,hjd->hij", q, k) / 2
        past = L.np.asarray(np.tril(np.ones((q.shape[1],) * 2, bool)))
        return L.np.einsum(
            "hij,hjd->hid", L.nn.softmax(L.np.where(past, scores, -L.np.inf), axis=-1), v
        )

    return summed(L, lambda *x: attend(*x) ** 2)


case("Kalman filter", kalman, np.eye(3) * 0.9 + normal(3, 3) / 20, normal(2, 3), np.eye(3) / 10,
np.eye(2) / 5,
     normal(12, 2))  # fmt: skip
case(
    "neural differential equation",
    orbit,
    normal(2, 8) / 2,
    normal(8, 2) / 2,
    normal(2),
    normal(20, 2),
)
case("causal attention", attention, normal(2, 5, 4), normal(2, 5, 4), normal(2, 5, 4))
case("log(exp + exp) and lengths",
     lambda L: L.hessian(lambda x: L.np.sum(L.np.logaddexp(x, x[::-1]) * L.np.hypot(x,
     L.np.ones_like(x)))),
     normal(5))  # fmt: skip
case(
    "softplus, second derivative",
    lambda L: L.vmap(L.hessian(L.nn.softplus)),
    [-20.0, -1.0, 0.0, 1.0, 20.0],
)
case("running products with zeros", lambda L: L.grad(lambda x: L.np.sum(L.np.cumulative_prod(x,
axis=0) ** 2)),
     [[1.0, 0.0, 2.0], [0.0, 3.0, -1.0], [2.0, 2.0, 0.0]])  # fmt: skip

# -- complex numbers, transforms of signals, linear algebra ----------------------------------------

Z = normal(4) + 1j * normal(4)
case("z, absolute value", lambda L: L.grad(lambda z: L.np.sum(L.np.abs(z) ** 3)), Z)
case(
    "z, real part of a product",
    lambda L: L.grad(lambda z: L.np.sum(L.np.real(z * z * L.np.conj(z[::-1])))),
    Z,
)
case("z, holomorphic", lambda L: L.grad(lambda z: L.np.sum(L.np.exp(z) / z), holomorphic=True), Z)
case(
    "z, functions",
    lambda L: L.grad(lambda z: L.np.sum(L.np.imag(L.np.sin(z) * L.np.sqrt(z) + L.np.log(z)))),
    Z,
)
case(
    "z, product of matrices",
    lambda L: L.grad(lambda z: L.np.sum(L.np.abs(z @ z) ** 2)),
    Z.reshape(2, 2),
)
case(
    "fft",
    lambda L: L.grad(lambda x: L.np.sum(L.np.abs(L.fft.fft(x * (1 + 0j))) ** 2 * L.np.arange(6))),
    normal(6),
)
case("rfft and irfft",
     lambda L: L.grad(lambda x: L.np.sum(L.fft.irfft(L.fft.rfft(x) ** 2, n=6) * L.np.sin(x))),
     normal(6))  # fmt: skip
S = normal(3, 3)
POSITIVE = S @ S.T + 3 * np.eye(3)
case("solve", lambda L: summed(L, L.linalg.solve), POSITIVE, normal(3, 2))
case("inverse", lambda L: summed(L, lambda a: L.linalg.inv(a) ** 2), POSITIVE)
case("determinant", lambda L: L.grad(L.linalg.det), S)
case("determinant of a singular matrix", lambda L: L.grad(L.linalg.det),
     [[1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 6.0, 8.0], [1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0,
     3.0]])  # fmt: skip
case("cholesky", lambda L: summed(L, lambda a: L.linalg.cholesky(a @ a.T)), POSITIVE)
case("eigenvalues", lambda L: summed(L, lambda a: L.linalg.eigvalsh(a + a.T)), S)
case(
    "eigenvalues of any matrix",
    lambda L: summed(L, lambda a: L.np.abs(L.linalg.eigvals(a)) ** 3),
    S,
)
case("singular values", lambda L: summed(L, lambda a: L.linalg.svdvals(a)), normal(3, 2))
case("vmap of grad of solve", lambda L: L.vmap(L.grad(lambda a, b: L.np.sum(L.linalg.solve(a,
b) ** 2)), (0, None)),
     np.stack([POSITIVE, POSITIVE + 1]), normal(3))  # fmt: skip

# -- arguments in every form -----------------------------------------------------------------------


def clipped(L: Any) -> Callable[..., Any]:
    """A custom rule with a setting in the middle, and one argument without a cotangent."""
    f = L.custom_vjp(lambda x, limits, s: x * s["by"], nondiff_argnums=(1,))
    f.defvjp(lambda x, limits, s: (x * s["by"], (x, s)),
             lambda limits, kept, ct: (L.np.clip(ct * kept[1]["by"], *limits),
             {"by": None}))  # fmt: skip
    return lambda x: L.np.sum(f(10 * x, (-1, 2), {"by": x}) ** 2)


def fixed_point(L: Any) -> Callable[..., Any]:
    """A root by iteration, differentiated through what holds there (as in JAX's documentation,
    another function)."""

    def step(a: Any, x: Any) -> Any:
        return 0.5 * (x + a / x)

    f = L.custom_vjp(lambda a: L.while_loop(lambda s: L.np.abs(s[0] - s[1]) > 1e-6, lambda s: (s[1],
    step(a, s[1])),
                                            (a, step(a, a)))[1])  # fmt: skip

    def back(kept: Any, ct: Any) -> Any:
        a, x = kept
        slope = L.grad(lambda x: step(a, x))(x)
        return (L.vjp(lambda a: step(a, x), a)[1](ct / (1 - slope))[0],)

    f.defvjp(lambda a: (f(a), (a, f(a))), back)
    return f


def data_parallel(L: Any) -> Callable[..., Any]:
    def step(w: Any, x: Any, y: Any) -> Any:
        loss, slope = L.value_and_grad(lambda w: L.np.mean((x @ w - y) ** 2))(w)
        return w - 0.1 * L.pmean(slope, axis_name="batch"), L.pmean(loss, axis_name="batch")

    return L.vmap(step, in_axes=(None, 0, 0), out_axes=(None, None), axis_name="batch")


def tensor_parallel(L: Any) -> Callable[..., Any]:
    layer = L.vmap(
        lambda x, v, w: L.psum(L.np.tanh(x @ v) @ w, "model"), (None, 1, 0), None, axis_name="model"
    )
    return L.grad(
        lambda x, v, w: L.np.sum(layer(x, v.reshape(3, 2, 4), w.reshape(2, 4, 3)) ** 2),
        argnums=(0, 1, 2),
    )


def ring(L: Any) -> Callable[..., Any]:
    """Attention in which keys and values go round among the rows of a batch."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        turn = [(i, (i + 1) % 3) for i in range(3)]
        top, bottom = 0 * q, 0 * L.np.sum(q, axis=-1)
        for _ in range(3):
            weights = L.np.exp(q @ k.T)
            top, bottom = top + weights @ v, bottom + L.np.sum(weights, axis=-1)
            k, v = (L.ppermute(x, "ring", turn) for x in (k, v))
        return top / bottom[:, None]

    return summed(L, L.vmap(attend, axis_name="ring"))


case("settings of a custom rule, None for zeros", lambda L: L.grad(clipped(L)), X[0])
case("fixed point, differentiated implicitly", lambda L: L.vmap(L.grad(fixed_point(L))), P[0])
case("fixed point, second derivative", lambda L: L.grad(L.grad(fixed_point(L))), 2.0)
case("data parallel step", data_parallel, normal(3), normal(2, 4, 3), normal(2, 4))
case("tensor parallel layer", tensor_parallel, normal(5, 3), normal(3, 8), normal(8, 3))
case("ring attention", ring, normal(3, 4, 2), normal(3, 4, 2), normal(3, 4, 2))
case("two names together", lambda L: summed(L, L.vmap(L.vmap(
    lambda a: L.np.sin(a) / L.psum(a**2, ("i", "j")) + L.pmean(a, "i") * L.axis_index(("i", "j")),
    axis_name="j"),
    axis_name="i")), X)  # fmt: skip
case(
    "exchanged parts",
    lambda L: summed(
        L,
        L.vmap(
            lambda a: L.all_to_all(a**2, "i", 0, 1) * L.psum_scatter(a, "i")[:, None], axis_name="i"
        ),
    ),
    normal(3, 3, 2),
)
case(
    "shuffled",
    lambda L: summed(L, L.vmap(lambda a: L.pshuffle(a**2, "i", [2, 0, 1]) * a, axis_name="i")),
    X,
)
case("tiled gather",
     lambda L: summed(L, L.vmap(lambda a: L.all_gather(a**2, "i", axis=0, tiled=True),
     axis_name="i")), X)  # fmt: skip
case(
    "size of an axis",
    lambda L: L.vmap(lambda a: a * L.np.ones(L.psum(1, "i")), axis_name="i"),
    X[0],
)
case("trees of axes", lambda L: lambda x, y: L.vmap(
    lambda p, q: {"r": p["a"] * q, "s": L.np.sum(p["b"])}, ({"a": 0, "b": 1}, None), {"r": 1,
    "s": 0})(
    {"a": x, "b": y}, 2.0), X, normal(4, 3))  # fmt: skip
case("jacobian of trees, aux, argnums", lambda L: lambda a, b: L.jacrev(
    lambda p, q: ({"u": p["a"] * L.np.sum(q), "v": L.np.sum(p["b"] ** 2)}, {"z": q}), argnums=(1,
    0), has_aux=True)(
    {"a": a, "b": b}, a), normal(3), normal(2))  # fmt: skip
case("hessian of trees", lambda L: lambda a,
b: L.hessian(lambda p: L.np.sum(p["a"] ** 2 * p["b"][0]))(
    {"a": a, "b": (b, None)}), normal(3), normal(3))  # fmt: skip
case(
    "third derivative of a jacobian",
    lambda L: L.jacfwd(L.jacrev(L.jacfwd(lambda a: L.np.sum(a**4) * a))),
    normal(3),
)
case("third derivative through a scan of solves",
lambda L: L.vmap(L.grad(L.jacfwd(L.grad(lambda t: L.np.sum(L.scan(
    lambda c, _: (L.linalg.solve(L.np.asarray(POSITIVE).astype(t.dtype) + c[0] * t, c * t + 1),
    None),
    L.np.stack([t, 2 * t, -t]), None, length=3)[0]))))), [0.7, 0.2])  # fmt: skip
case(
    "operand by name",
    lambda L: L.vmap(L.grad(lambda x: L.cond(x > 0, L.np.sin, L.np.exp, operand=x))),
    X[0],
)
case("no steps", lambda L: lambda x: (L.scan(lambda c, e: (c * e, c), x[0], x[:0]),
     L.grad(lambda x: L.scan(lambda c, e: (c * e, c), x[0] ** 2, x[:0])[0])(x)), X[0])  # fmt: skip
case("carries that change places",
lambda L: L.grad(lambda x: (lambda c: 2 * c[0] + 3 * c[1] + c[2])(
    L.scan(lambda c, _: ((c[1], c[2], c[0]), None), (x, x**2, x**3), None, length=4)[0])),
    1.2)  # fmt: skip
case(
    "policies",
    lambda L: L.grad(
        lambda w, x: L.np.sum(
            L.checkpoint(
                lambda w, x: L.np.sin(L.np.tanh(x @ w) @ w),
                policy=L.checkpoint_policies.checkpoint_dots,
            )(w, x)
            ** 2
        )
    ),
    W,
    X,
)
case("checkpointed steps, second derivative", lambda L: L.hessian(lambda c: L.np.sum(L.scan(
    L.checkpoint(lambda c, x: (L.np.tanh(L.np.asarray(W).astype(c.dtype) @ c + x), None)), c,
    L.np.asarray(X).astype(c.dtype))[0])), normal(4))  # fmt: skip
case(
    "out of range, dropped and filled",
    lambda L: L.grad(
        lambda x, v: L.np.sum(
            x.at[L.np.asarray([1, 9, -7]), :2].set(v, mode="drop") ** 2
            + L.np.sum(x.at[L.np.asarray([0, 5])].get(mode="fill", fill_value=2.0) ** 3)
        ),
        argnums=(0, 1),
    ),
    X,
    normal(3, 2),
)
case("a linear loop turned around", lambda L: lambda x: L.linear_transpose(
    lambda x: L.scan(lambda c, e: (0.5 * c + e, c), x[0], x), x)((x[0], x)), X[0])  # fmt: skip
case(
    "z, jacobians of a holomorphic function",
    lambda L: (
        lambda z: [
            jacobian(lambda z: z * z * L.np.sum(z), holomorphic=True)(z)
            for jacobian in (L.jacfwd, L.jacrev, L.grad)[:2]
        ]
    ),
    Z,
)
case(
    "z, changes and cotangents",
    lambda L: (
        lambda z: (
            L.jvp(lambda z: z * L.np.conj(z) * z, (z,), (1j * z,)),
            L.vjp(lambda z: z * L.np.conj(z) * z, z)[1](z),
        )
    ),
    Z,
)
case(
    "z, through a scan",
    lambda L: L.grad(
        lambda z: L.np.sum(
            L.np.abs(
                L.scan(
                    lambda c, e: (L.np.sin(c) * e + L.np.conj(c), c),
                    z,
                    L.np.asarray([0.5, 0.2]).astype(z.dtype),
                )[1]
            )
            ** 2
        )
    ),
    Z,
)

for seed in range(80):
    name, program = drawn(seed)
    case(name, program, [0.3, -0.8, 0.5])


# -- running ---------------------------------------------------------------------------------------


def leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in td.tree.flatten(tree)[0]]


def typed(a: np.ndarray, bits: str) -> np.ndarray:
    kinds = {"f32": (np.float32, np.complex64), "f64": (np.float64, np.complex128)}[bits]
    return a.astype(kinds[a.dtype.kind == "c"]) if a.dtype.kind in "fc" else a


def apart(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    """The largest difference, beside the largest finite number of each result; infinities and NaN
    must be the same."""
    worst = 0.0
    for x, y in zip(got, want, strict=True):
        if x.shape != y.shape or not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return np.inf
        odd = ~np.isfinite(y)
        if not np.array_equal(x[odd].astype(y.dtype), y[odd], equal_nan=True):
            return np.inf
        x, y = np.where(odd, 0, x), np.where(odd, 0, y)
        scale = np.max(np.abs(y), initial=0)
        worst = max(worst, float(np.max(np.abs(x - y), initial=0) / (scale or 1.0)))
    return worst


def answer(
    library: Any, function: Callable[..., Any], arguments: list[np.ndarray], jit: bool
) -> list[np.ndarray]:
    run = library.jit(function) if jit else function
    return leaves(run(*(library.np.asarray(a) for a in arguments)))


def differences(
    function: Callable[[Any], Any], arguments: list[np.ndarray], bits: str
) -> tuple[list[float], float]:
    """Of Tetrad, eager and compiled, and of JAX itself, from JAX in double precision."""
    given = [typed(a, bits) for a in arguments]
    want = answer(JAX, function(JAX), [typed(a, "f64") for a in given], True)
    ours = [apart(answer(TETRAD, function(TETRAD), given, jit), want) for jit in (False, True)]
    return ours, apart(answer(JAX, function(JAX), given, True), want)


def main() -> int:
    """The number of cases that differ."""
    failures, largest = 0, dict.fromkeys(TOLERANCE, 0.0)
    for name, function, arguments in CASES:
        shown, wrong = [], False
        for bits, within in TOLERANCE.items():
            ours, own = differences(function, arguments, bits)
            shown += [*ours, own] if bits == "f32" else ours
            wrong |= not max(ours) <= max(within, 3 * own)
            largest[bits] = max(largest[bits], *ours)
        failures += wrong
        print(
            f"{'DIFFERS' if wrong else '':8}{name:45}{' '.join(f'{d:8.1e}' for d in shown)}",
            flush=True,
        )
    listed = ", ".join(f"{bits} {value:.1e}" for bits, value in largest.items())
    print(f"{len(CASES)} cases, {failures} differ; largest differences: {listed}")
    return failures


if __name__ == "__main__":
    sys.exit(main())
