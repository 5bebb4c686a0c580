"""What tests of neural-network functions share: vectors in both float types, eager and compiled;
derivatives against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tetrad as td

# vectors are rounded to six digits
TOLERANCE = {np.float32: {"atol": 1e-5, "rtol": 1e-5}, np.float64: {"atol": 2e-6, "rtol": 0}}
in_both_types = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
batches = pytest.mark.parametrize("batch", [1, 3])
STEP, CLOSE = 1e-6, 1e-5


def typed(values: Sequence[Any], dtype: Any) -> list[Any]:
    arrays = [np.asarray(v) for v in values]
    return [a.astype(dtype) if a.dtype.kind == "f" else a for a in arrays]


def gives(
    function: Callable[..., Any], operands: Sequence[Any], want: Any, dtype: Any, **more: Any
) -> None:
    """A function has these results, eager and compiled."""
    arrays = typed(operands, dtype)
    for called in (function, td.jit(function)):
        results = want if isinstance(want, tuple) else (want,)
        for got, expected in zip(td.tree.leaves(called(*arrays)), results, strict=True):
            assert np.asarray(got).dtype == dtype
            np.testing.assert_allclose(got, expected, **{**TOLERANCE[dtype], **more})


def pulls_back(
    function: Callable[..., Any], operands: Sequence[Any], ct: Any, want: Any, dtype: Any
) -> None:
    """A cotangent of the result becomes these, eager and compiled."""

    def cotangents(ct: Any, *operands: Any) -> Any:
        return td.vjp(function, *operands)[1](ct)

    gives(cotangents, (np.asarray(ct, float), *operands), tuple(want), dtype)


def differentiates(function: Callable[..., Any], *operands: np.ndarray) -> None:
    """Both modes against central differences in f64, and the second derivative against the
    first's."""
    arrays = [np.asarray(a, np.float64) for a in operands]
    rng = np.random.default_rng(len(arrays))
    steps = [rng.standard_normal(a.shape) for a in arrays]
    check_first(function, arrays, steps, rng)
    y = np.asarray(function(*arrays))
    ct = rng.standard_normal(y.shape)
    back = td.jit(lambda *xs: td.vjp(function, *xs)[1](ct))
    if all(np.asarray(b).any() for b in back(*arrays)):
        check_first(lambda *xs: td.vjp(function, *xs)[1](ct)[0], arrays, steps, rng)


def check_first(function: Any, arrays: Any, steps: Any, rng: np.random.Generator) -> None:
    y, tangent = td.jit(lambda xs, ts: td.jvp(function, xs, ts))(tuple(arrays), tuple(steps))
    ct = rng.standard_normal(np.shape(y))
    compiled = td.jit(function)
    ends = [
        np.asarray(compiled(*(a + s * step for a, s in zip(arrays, steps, strict=True))))
        for step in (STEP, -STEP)
    ]
    slope = (ends[0] - ends[1]) / (2 * STEP)
    np.testing.assert_allclose(tangent, slope, atol=CLOSE, rtol=CLOSE)
    cotangents = td.jit(lambda xs, ct: td.vjp(function, *xs)[1](ct))(tuple(arrays), ct)
    paired = sum(np.vdot(c, s) for c, s in zip(cotangents, steps, strict=True))
    np.testing.assert_allclose(paired, np.vdot(ct, tangent), rtol=1e-9, atol=1e-9)
