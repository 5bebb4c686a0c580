"""JAX's names: `jax.ops`: rows folded by segment, those of `td` with JAX's further settings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tetrad.arrays import segments


def with_settings(function: Callable[..., Any], how: str) -> Callable[..., Any]:
    """The function of `td`; promises about the numbers are taken, and change nothing."""

    @functools.wraps(function)
    def fold(
        data: Any, segment_ids: Any, num_segments: int | None = None,
        indices_are_sorted: bool = False, unique_indices: bool = False,
        bucket_size: int | None = None, mode: Any = None,
    ) -> Any:  # fmt: skip
        outside = "drop" if mode is None else mode
        return segments.folded(function.__name__, how, data, segment_ids, num_segments, outside)

    return fold


segment_sum = with_settings(segments.segment_sum, "add")
segment_prod = with_settings(segments.segment_prod, "multiply")
segment_max = with_settings(segments.segment_max, "max")
segment_min = with_settings(segments.segment_min, "min")
