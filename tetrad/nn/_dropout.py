"""Neural networks, dropout: an array and a key in, the array without a random part of its elements
out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tetrad.arrays import functions as td
from tetrad.core import lazy
from tetrad.nn._settings import refuse
from tetrad.tracing.array import Array
from tetrad.tracing.operands import as_array, axes_of


def dropout(
    x: Any,
    p: float = 0.5,
    *,
    key: Any = None,
    inference: bool = False,
    shared_axes: int | Sequence[int] = (),
) -> Array:
    """Each element is 0 with probability p, else it is divided by 1 - p, so that means stay.

    `shared_axes`: elements along these are dropped together (the spatial axes, for whole channels).
    In inference the array stays as it is, and no key is needed.

    >>> import tetrad as td
    >>> dropout(td.ones(4), 0.5, key=td.random.key(0))
    Array([2., 0., 0., 0.], float32)
    >>> dropout(td.ones(4), 0.5, inference=True)
    Array([1., 1., 1., 1.], float32)
    """
    x = as_array(x)
    if not 0 <= p <= 1:
        refuse("dropout", "p", "a probability", p)
    if inference or p == 0:
        return x  # type: ignore[no-any-return]
    if p == 1:
        return td.zeros_like(x)
    if key is None:
        refuse("dropout", "key", "a random key", key, "key=td.random.key(seed)")
    shared = axes_of("dropout", shared_axes, x.ndim)
    shape = tuple(1 if a in shared else n for a, n in enumerate(x.shape))
    kept = lazy.module("tetrad.random").bernoulli(key, 1 - p, shape)
    return td.where(kept, x / (1 - p), 0)  # type: ignore[no-any-return]
