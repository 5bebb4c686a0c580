"""Neural networks, embedding: class numbers in, rows of a table out."""

from __future__ import annotations

from typing import Any

from tetrad.arrays import functions as td
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.nn._settings import refuse
from tetrad.ops.movement import stop_gradient
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array


def embedding(indices: Any, weight: Any, *, padding_idx: int | None = None) -> Array:
    """Rows of the weight [count, width]; the row `padding_idx` gets no gradient.

    Negative indices count from the end, others out of range are an IndexError.

    >>> import tetrad as td
    >>> weight = td.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> embedding(td.asarray([1, 0, 1]), weight)
    Array([[3., 4.],
           [1., 2.],
           [3., 4.]], float32)
    >>> loss = lambda weight: td.sum(embedding(td.asarray([1, 0, 1]), weight, padding_idx=0))
    >>> td.grad(loss)(weight)
    Array([[0., 0.],
           [2., 2.]], float32)
    """
    indices, weight = as_array(indices), as_array(weight)
    if not indices.dtype.is_integer:
        fail(DtypeError, f"embedding: indices are integers, got {indices.type}", "use astype")
    if weight.ndim != 2:
        fail(ShapeError, f"embedding: the weight is [count, width], got {weight.type}")
    rows = td.take(weight, indices, axis=0)
    if padding_idx is None:
        return rows
    count = weight.shape[0]
    if not isinstance(count, int) or not -count <= padding_idx < count:
        refuse("embedding", "padding_idx", f"a row of {weight.type}", padding_idx)
    first = padding_idx % count
    padding = td.logical_or(indices == first, indices == first - count)
    return td.where(td.expand_dims(padding, axis=-1), stop_gradient(rows), rows)  # type: ignore[no-any-return]
