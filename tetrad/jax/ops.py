"""JAX's names: `jax.ops`, sums and extremes of rows by the number of their segment."""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.core.errors import TraceError
from tetrad.jax._shell.tables import td
from tetrad.tracing.array import Array, TracedArray, fail
from tetrad.tracing.operands import as_array, convert


def count_of(name: str, segment_ids: Array, num_segments: int | None) -> int:
    if num_segments is not None:
        return int(num_segments)
    if isinstance(segment_ids, TracedArray):
        fail(
            TraceError,
            f"{name}: the number of segments is only known when the program runs",
            "pass num_segments=",
        )
    return int(np.asarray(segment_ids).max(initial=-1)) + 1


def segmented(
    name: str, method: str, neutral: Any, data: Any, segment_ids: Any, num_segments: int | None,
    mode: Any,
) -> Any:  # fmt: skip
    rows, ids = as_array(data), as_array(segment_ids)
    count = count_of(name, ids, num_segments)
    start = td.full((count, *rows.shape[ids.ndim :]), convert(neutral, rows.dtype))
    # an index below 0 names no segment; in an array it would count from the end
    places = td.where(ids < 0, count, ids)
    settings = {"mode": "drop" if mode is None else mode}
    return getattr(start.at[places], method)(rows, **settings)


def least(data: Any) -> Any:
    kind = as_array(data).dtype
    return False if kind.kind == "b" else np.iinfo(kind.np).min if kind.is_integer else -np.inf


def greatest(data: Any) -> Any:
    kind = as_array(data).dtype
    return True if kind.kind == "b" else np.iinfo(kind.np).max if kind.is_integer else np.inf


def segment_sum(
    data: Any, segment_ids: Any, num_segments: int | None = None, indices_are_sorted: bool = False,
    unique_indices: bool = False, bucket_size: int | None = None, mode: Any = None,
) -> Any:  # fmt: skip
    """Sums of rows with the same segment.

    >>> import tetrad.jax.numpy as jnp
    >>> segment_sum(jnp.arange(5), jnp.asarray([0, 0, 1, 1, 2]))
    Array([1, 5, 4], int32)
    """
    return segmented("segment_sum", "add", 0, data, segment_ids, num_segments, mode)


def segment_prod(
    data: Any, segment_ids: Any, num_segments: int | None = None, indices_are_sorted: bool = False,
    unique_indices: bool = False, bucket_size: int | None = None, mode: Any = None,
) -> Any:  # fmt: skip
    """Products of rows with the same segment."""
    return segmented("segment_prod", "multiply", 1, data, segment_ids, num_segments, mode)


def segment_max(
    data: Any, segment_ids: Any, num_segments: int | None = None, indices_are_sorted: bool = False,
    unique_indices: bool = False, bucket_size: int | None = None, mode: Any = None,
) -> Any:  # fmt: skip
    """The greatest of rows with the same segment; where there are none, the least number."""
    return segmented("segment_max", "max", least(data), data, segment_ids, num_segments, mode)


def segment_min(
    data: Any, segment_ids: Any, num_segments: int | None = None, indices_are_sorted: bool = False,
    unique_indices: bool = False, bucket_size: int | None = None, mode: Any = None,
) -> Any:  # fmt: skip
    """The least of rows with the same segment; where there are none, the greatest number."""
    return segmented("segment_min", "min", greatest(data), data, segment_ids, num_segments, mode)
