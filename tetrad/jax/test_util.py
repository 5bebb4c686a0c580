"""JAX's names: `jax.test_util`: derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tetrad.core.tree import tree_map
from tetrad.jax._shell.tables import td


def check_grads(
    f: Callable[..., Any], args: Sequence[Any], order: int, modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None, rtol: float | None = None, eps: float | None = None,
) -> None:  # fmt: skip
    """Refuse a function whose derivatives, of each order, are not near differences of it."""
    has_wide = any(td.asarray(a).dtype == "float64" for a in td.tree.leaves(args))
    step = eps or (1e-4 if has_wide else 1e-2)
    near: Any = {"atol": atol or 2e-2, "rtol": rtol or 2e-2}
    rng = np.random.default_rng(0)
    primals = tuple(tree_map(td.asarray, a) for a in args)
    moves = tree_map(lambda x: td.asarray(rng.normal(size=x.shape)).astype(x.dtype), primals)
    ahead, behind = (
        f(*tree_map(lambda x, v, s=s: x + s * step * v, primals, moves)) for s in (0.5, -0.5)
    )
    wanted = tree_map(lambda a, b: (a - b) / step, ahead, behind)
    if "fwd" in modes:
        found = td.jvp(f, primals, moves)[1]
        for a, b in zip(td.tree.leaves(found), td.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), **near)
    if "rev" in modes:
        value, back = td.vjp(f, *primals)
        weights = tree_map(lambda x: td.asarray(rng.normal(size=x.shape)).astype(x.dtype), value)
        left = sum_of(weights, wanted)
        np.testing.assert_allclose(sum_of(back(weights), moves), left, **near)
    if order > 1:
        check_grads(lambda *xs: td.jvp(f, xs, moves)[1], primals, order - 1, modes, atol, rtol, eps)


def sum_of(a: Any, b: Any) -> float:
    """The inner product of two trees."""
    pairs = zip(td.tree.leaves(a), td.tree.leaves(b), strict=True)
    return float(sum(np.sum(np.asarray(x) * np.asarray(y)) for x, y in pairs))
