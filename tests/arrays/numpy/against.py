"""A function under NumPy's name, against NumPy: eager, compiled, over a batch, and its derivative.

`check("kron", x, y)` compares values, shapes and kinds of dtypes; arrays among the operands are
traced, all else is a setting. The derivative is compared with finite differences along a line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tetrad as td

RNG = np.random.default_rng(18)
STEP = 1e-6


def floats(*shape: int) -> np.ndarray:
    return np.asarray(RNG.standard_normal(shape))


def same(got: Any, want: Any, rtol: float = 1e-11, atol: float = 1e-12) -> None:
    """Trees of results: sequences part by part."""
    if isinstance(want, tuple | list):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            same(one, other, rtol, atol)
        return
    found, known = np.asarray(got), np.asarray(want)
    assert found.shape == known.shape, (found.shape, known.shape)
    assert kind(found) == kind(known), (found.dtype, known.dtype)
    if known.dtype.kind in "fc":
        if found.dtype in (np.float32, np.complex64):  # of integers, in the default float
            rtol, atol = max(rtol, 3e-6), max(atol, 1e-6)
        np.testing.assert_allclose(found, known, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(found, known)


def kind(x: np.ndarray) -> str:
    """Of the dtype; our integers may have another width or sign than NumPy's."""
    return "i" if x.dtype.kind == "u" else x.dtype.kind


def is_traced(x: Any) -> bool:
    return isinstance(x, np.ndarray)


def bound(function: Callable[..., Any], args: tuple[Any, ...], settings: dict[str, Any]) -> Any:
    """The function of its arrays alone."""

    def of_arrays(*arrays: Any) -> Any:
        left = iter(arrays)
        given = [next(left) if is_traced(x) else x for x in args]
        return function(*given, **settings)

    return of_arrays


def check(
    name: str,
    *args: Any,
    reference: Callable[..., Any] | None = None,
    jit: bool = True,
    vmap: bool = True,
    grad: bool = True,
    rtol: float = 1e-11,
    **settings: Any,
) -> None:
    function: Any = td
    known: Any = np
    for part in name.split("."):
        function = getattr(function, part)
        known = getattr(known, part) if reference is None else reference
    with np.errstate(all="ignore"):
        want = known(*args, **settings)
    arrays = [x for x in args if is_traced(x)]
    of_arrays = bound(function, args, settings)
    same(of_arrays(*arrays), want, rtol)
    if jit and arrays:
        same(td.jit(of_arrays)(*arrays), want, rtol)
    if vmap and jit and arrays:
        batched = td.vmap(of_arrays)(*(np.stack([x, x[::-1] if x.ndim else x]) for x in arrays))
        flipped = of_arrays(*(x[::-1] if x.ndim else x for x in arrays))
        first, second = (td.tree.map(lambda leaf, i=i: leaf[i], batched) for i in (0, 1))
        same(first, want, rtol)
        same(second, td.tree.map(np.asarray, flipped), rtol)
    if grad and jit and arrays and all(x.dtype == np.float64 for x in arrays):
        check_derivative(of_arrays, arrays)


def check_derivative(function: Callable[..., Any], arrays: list[np.ndarray]) -> None:
    """Of the sum of all results, weighted: forward, by differences, and backward."""

    def total(*operands: Any) -> Any:
        leaves = td.tree.leaves(function(*operands))
        real = [x for x in leaves if x.dtype in (td.float64, td.float32)]
        weighted = (td.sum(x * td.cos(td.reshape(td.arange(x.size) * 1.0, x.shape))) for x in real)
        return sum(weighted, start=td.zeros((), dtype=td.float64))

    ways = [np.asarray(RNG.standard_normal(x.shape)) for x in arrays]
    _, forward = td.jvp(total, tuple(arrays), tuple(ways))
    ahead, behind = (
        float(
            total(*(np.asarray(x + side * STEP * way) for x, way in zip(arrays, ways, strict=True)))
        )
        for side in (1, -1)
    )
    np.testing.assert_allclose(forward, (ahead - behind) / (2 * STEP), rtol=1e-4, atol=1e-6)
    backward = td.jit(td.grad(total, argnums=tuple(range(len(arrays)))))(*arrays)
    along = sum(float(np.sum(np.asarray(g) * way)) for g, way in zip(backward, ways, strict=True))
    np.testing.assert_allclose(along, forward, rtol=1e-8, atol=1e-9)
