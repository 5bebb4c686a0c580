"""How far the result of a Fourier transform is from the true one: the root mean square of a line's
error, in units of the last place of the root mean square of the line. NumPy computes the true one
in a wider type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tetrad.core.dtypes import as_dtype
from tetrad.core.op import Op

Array = np.ndarray


def exact(op: Op, x: Array, params: dict[str, Any]) -> Array:
    return np.asarray(
        op.reference(x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble), **params)
    )


def line_errors(got: Array, want: Array, axis: int) -> Array:
    """Of each line along the axis, in units of the last place of its root mean square."""
    if got.shape != want.shape:
        raise AssertionError(f"got shape {got.shape}, want {want.shape}")
    error, size = (np.sqrt(np.mean(np.abs(x) ** 2, axis)) for x in (got - want, want))
    return np.asarray(error / (np.finfo(got.dtype).eps * np.where(size == 0, 1, size)))


def line_disagreement(
    op: Op, args: Sequence[Array], params: dict[str, Any], got: Array
) -> str | None:
    """Why this cannot be the transform, or None."""
    if got.size == 0:
        return None
    worst = float(line_errors(got, exact(op, args[0], params), params["axis"]).max())
    limit = op.ulps[as_dtype(got.dtype)]
    return None if worst <= limit else f"{worst:.1f} ulps of the line's size, allowed {limit}"
