"""Packed sequences: several of them one after the other in one array, as ids of segments or as
cumulative lengths.

Receives what says where sequences begin, returns for every query the first key it sees, the first
behind them, and its own place among the keys, [batch, time] each, with a causal order and a window
inside the sequence. The op `attention` walks only these keys, so time and memory are those of the
pairs that see each other.
"""

from __future__ import annotations

from typing import Any

from tetrad.arrays import functions as td
from tetrad.arrays.creation import positions
from tetrad.core.dtypes import i32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.record import record
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array

NAME = "dot_product_attention"


Ranges = tuple[Array, Array, Array]  # start, stop, place


@record
class Sight:
    """How far a query sees inside its sequence."""

    causal: str
    before: int | None
    after: int | None


def ranges_of_segments(ids: Any, batch: Any, times: Any, sight: Sight) -> Ranges:
    """Neighbours with one id are a sequence; one with a negative id sees nothing."""
    ids = as_array(ids)
    ids = ids if ids.ndim == 2 else td.expand_dims(ids, axis=0)
    if not ids.dtype.is_integer or ids.shape[1] != times or ids.shape[0] not in (1, batch):
        fail(
            ShapeError,
            f"{NAME}: segment_ids {ids.type} are not integers [{batch}, {times}]",
            "one id for every token, of queries and keys alike",
        )
    rows, time = ids.shape[0], positions(times)
    is_first = td.logical_or(td.not_equal(ids, td.roll(ids, 1, axis=1)), time == 0)
    run = td.cumulative_sum(td.reshape(td.astype(is_first, i32), (-1,))) - 1
    lengths = td.scatter_add(td.ones_like(run), run, rows * times)
    stops = td.cumulative_sum(lengths)
    row = td.reshape(positions(rows) * times, (-1, 1))
    start, stop = (
        td.reshape(td.take(ends, run, axis=0), ids.shape) - row for ends in (stops - lengths, stops)
    )
    place = td.broadcast_to(time, ids.shape)
    start, stop = within(start, stop, place, sight)
    return start, td.where(ids < 0, start, stop), place


def ranges_of_lengths(queries: Any, keys: Any, times: Any, sight: Sight) -> Ranges:
    """Sequence i has queries from queries[i] to queries[i + 1], which see keys from keys[i] to
    keys[i + 1]."""
    queries = checked("cu_seqlens_q", queries)
    keys = queries if keys is None else checked("cu_seqlens_k", keys)
    if queries.shape != keys.shape:
        fail(ShapeError, f"{NAME}: cu_seqlens_q {queries.type} and cu_seqlens_k {keys.type} differ")
    count, time = queries.shape[0] - 1, positions(times)
    which = td.astype(td.searchsorted(queries, time, side="right"), i32) - 1
    is_inside = td.logical_and(which >= 0, which < count)
    near = td.clip(which, 0, max(count - 1, 0))
    first, last, start, stop = (
        td.take(ends, near + i, axis=0) for ends in (queries, keys) for i in (0, 1)
    )
    place = time - first + start
    if sight.causal == "bottom_right":
        place = place + (stop - start) - (last - first)
    low, high = within(start, stop, place, sight)
    high = td.where(is_inside, high, low)
    return tuple(td.expand_dims(x, axis=0) for x in (low, high, place))  # type: ignore[return-value]


def checked(name: str, ends: Any) -> Array:
    ends = as_array(ends)
    if ends.ndim != 1 or not isinstance(ends.shape[0], int) or ends.shape[0] < 2:
        message = f"{NAME}: {name} {ends.type} is not [sequences + 1]"
        fail(ShapeError, message, "0, the first length, the sum of the first two, ...")
    if not ends.dtype.is_integer:
        fail(DtypeError, f"{NAME}: {name} counts tokens, got {ends.type}")
    return td.astype(ends, i32)


def within(start: Array, stop: Array, place: Array, sight: Sight) -> tuple[Array, Array]:
    """Less what is later, or further away than the window."""
    if sight.causal:
        stop = td.minimum(stop, place + 1)
    if sight.after is not None:
        stop = td.minimum(stop, place + (sight.after + 1))
    if sight.before is not None:
        start = td.maximum(start, place - sight.before)
    return start, td.maximum(stop, start)
