"""Explain, comparing: two arrays that should agree, to the bit or within distances. Returns what to
tell about it.

NaN equals NaN whatever its bits (the payload is free); real zeros keep their sign where nothing may
differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tetrad.explain.bounds import Pair, apart, exact


def told_apart(got: np.ndarray, want: np.ndarray, distance: np.ndarray | float = 0.0) -> str | None:
    """None when they agree, else where and how they do not.

    >>> told_apart(np.float32([1, 2, 4]), np.float32([1, 2, 3]))
    'element [2] is 4.0, it should be 3.0; 1 of 3 elements differ'
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"it is {got.dtype} {list(got.shape)}, it should be {want.dtype} {list(want.shape)}"
    wrong = apart(got, want) > distance
    if want.dtype.kind not in "iubc":
        wrong |= (
            (got == 0)
            & (want == 0)
            & (np.signbit(got) != np.signbit(want))
            & (np.asarray(distance) == 0)
        )
    if not wrong.any():
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    allowed = float(np.broadcast_to(distance, want.shape)[first])
    extra = f", within {allowed:.3g}" if allowed else ""
    return (
        f"element {list(first)} is {got[first]}, it should be {want[first]}{extra}; "
        f"{told_count(wrong)}"
    )


def told_count(wrong: np.ndarray) -> str:
    return f"{int(wrong.sum())} of {wrong.size} elements differ"


def first_apart(
    got: Sequence[np.ndarray], want: Sequence[Pair | np.ndarray]
) -> tuple[int, str] | None:
    """The first array of a list that differs, and how."""
    for i, (array, other) in enumerate(zip(got, want, strict=True)):
        value, distance = other if isinstance(other, tuple) else exact(other)
        detail = told_apart(array, value, distance)
        if detail is not None:
            return i, detail
    return None
