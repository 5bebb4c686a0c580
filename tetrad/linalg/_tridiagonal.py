"""Linear algebra, tridiagonal systems: elimination with exchange of neighbouring rows, in a loop
over rows that all systems of a batch share."""

from __future__ import annotations

from typing import Any

from tetrad.arrays import functions as td
from tetrad.core.errors import ShapeError
from tetrad.linalg._operands import numbers
from tetrad.tracing.array import Array, fail
from tetrad.tracing.loops import scan
from tetrad.tracing.operands import convert

Row = tuple[Array, Array, Array]  # a diagonal entry, the next one, the right side


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any) -> Array:
    """x with A x = b, A given by its diagonals: `d`, below it `dl` (dl[..., 0] is not read) and
    above it `du` (du[..., -1] is not read), each [..., n]; b is [..., n, k], or a vector [n].

    Infinities or NaN where A is singular.

    >>> import tetrad as td
    >>> one = td.ones(2)
    >>> td.linalg.tridiagonal_solve(one, 2 * one, one, td.asarray([3.0, 3.0]))
    Array([1., 1.], float32)
    """
    (below, middle, above, right), dtype = numbers(dl, d, du, b)
    is_vector = right.ndim == 1 == middle.ndim
    columns = right[:, None] if is_vector else right
    check_sizes(below, middle, above, columns)
    n = int(middle.shape[-1])
    lead = td.broadcast_shapes(middle.shape[:-1], columns.shape[:-2])
    width = columns.shape[-1]
    if not n:
        return convert(right, dtype)

    def rows_first(x: Array) -> Array:
        """With an axis for columns."""
        return td.moveaxis(td.broadcast_to(x, (*lead, n)), -1, 0)[..., None]

    sides = td.moveaxis(td.broadcast_to(columns, (*lead, n, width)), -2, 0)
    x = td.moveaxis(
        substituted(eliminated(rows_first(below), rows_first(middle), rows_first(above), sides)),
        0,
        -2,
    )
    return convert(x[:, 0] if is_vector else x, dtype)


def check_sizes(below: Array, middle: Array, above: Array, columns: Array) -> None:
    fits = below.shape == middle.shape == above.shape and middle.ndim >= 1 and columns.ndim >= 2
    if not fits or columns.shape[-2] != middle.shape[-1]:
        message = (
            "tridiagonal_solve: expected three diagonals [..., n] and a right side [..., n, k]"
        )
        fail(
            ShapeError, f"{message}, got {below.type}, {middle.type}, {above.type}, {columns.type}"
        )


def eliminated(below: Array, middle: Array, above: Array, sides: Array) -> tuple[Array, ...]:
    """Rows of an upper triangle with two diagonals above the main one: their entries, and the right
    sides."""
    zero = td.zeros_like(middle[0])
    last = above.shape[0] - 1
    above = td.concat([above[:last], zero[None]])

    def step(held: Row, row: tuple[Array, ...]) -> tuple[Row, tuple[Array, ...]]:
        """The row held so far and the one below it: the larger first entry goes on top."""
        first, second, side = held
        low, here, beyond, own = row
        swaps = td.abs(low) > td.abs(first)
        pivot, other = td.where(swaps, low, first), td.where(swaps, first, low)
        top = (
            td.where(swaps, here, second),
            td.where(swaps, beyond, zero),
            td.where(swaps, own, side),
        )
        rest = (
            td.where(swaps, second, here),
            td.where(swaps, zero, beyond),
            td.where(swaps, side, own),
        )
        factor = other / td.where(pivot == 0, 1, pivot)
        left: Any = tuple(r - factor * t for r, t in zip(rest, top, strict=True))
        return left, (pivot, *top)

    start = (middle[0], above[0], sides[0])
    held, rows = scan(step, start, (below[1:], middle[1:], above[1:], sides[1:]))
    end = (held[0], held[1], zero, held[2])
    return tuple(td.concat([x, y[None]]) for x, y in zip(rows, end, strict=True))


def substituted(rows: tuple[Array, ...]) -> Array:
    """From the last row to the first."""

    def step(after: tuple[Array, Array], row: tuple[Array, ...]) -> Any:
        pivot, first, second, side = row
        x = (side - first * after[0] - second * after[1]) / pivot
        return (x, after[0]), x

    nothing = td.zeros_like(rows[3][0])
    result: Array = scan(step, (nothing, nothing), rows, reverse=True)[1]
    return result
