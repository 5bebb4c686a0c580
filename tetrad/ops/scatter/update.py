"""Ops, rows of an array changed where indices say: set, or joined with what lies there. Updates are
applied one after the other, in their order, each result rounded before the next.

The array is changed where it lies (`passes.in_place_updates`). A row out of range is an error; with
`drop` its update is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tetrad.core.dtypes import bool_, i32, i64
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import REGISTRY, Case, Op, op
from tetrad.core.types import ArrayType
from tetrad.graph.build import filled, make_graph, make_parameter
from tetrad.graph.loops import make_scan
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import (
    Batched,
    all_batched,
    amount,
    cast,
    expand,
    full_like,
    moved,
    positions,
    reshape,
    run,
    where,
    zeros_like,
)
from tetrad.ops.cases import Rng, exact_array, pick, random_array, unit_array
from tetrad.ops.dynamic.op import dynamic_slice, dynamic_update_slice, starts_of
from tetrad.ops.gather import offset_indices
from tetrad.ops.movement import flipped
from tetrad.ops.rules import (
    ANY_NUMBERS,
    EVERY,
    FLOATS,
    NUMBERS,
    Array,
    check_dtype,
    wrapped_indices,
)
from tetrad.ops.scatter.op import _scatter_add_cases, scatter_add_type

# NumPy takes 8 ns an element; rows of so many are put in an order in which whole rows are joined.
WIDE_ROW = 16


def update_type(name: str, dtypes: Sequence[Any]) -> Callable[..., ArrayType]:
    def rule(
        x: ArrayType, updates: ArrayType, indices: ArrayType, *, drop: bool = False
    ) -> ArrayType:
        check_dtype(name, x.dtype, tuple(dtypes))
        if updates.dtype is not x.dtype:
            raise DtypeError(f"{name}: {x} cannot take {updates}", hint="convert it with astype")
        is_bool = x.dtype is bool_  # which has no sums
        rows = updates.with_dtype(i32) if is_bool else updates
        if x.rank < 1 or scatter_add_type(rows, indices, size=x.shape[0]).shape != x.shape:
            raise ShapeError(f"{name}: rows of {updates} are no rows of {x}")
        return x

    return rule


def update_cases(dtypes: Sequence[Any], draw: Callable[..., Array]) -> Callable[[Rng], Case]:
    """Values whose results are exact in f32, and indices of which some are out of range where they
    are dropped."""

    def cases(rng: Rng) -> Case:
        case = _scatter_add_cases(rng)
        kind, size = pick(rng, dtypes), case.params["size"]
        updates, indices = case.args
        x, rows = (draw(rng, kind, shape) for shape in ((size, *updates.shape[1:]), updates.shape))
        if not rng.integers(2):
            return Case((x, rows, indices))
        away = rng.integers(0, 2, indices.shape).astype(indices.dtype) * indices.dtype.type(size)
        return Case((x, rows, np.where(indices < 0, indices, indices + away)), {"drop": True})

    return cases


# -- on NumPy --------------------------------------------------------------------------------------


def changed_rows(
    name: str, x: Array, updates: Array, indices: Array, drop: bool, ufunc: Any = None
) -> Array:
    """A copy of x with its rows set, or joined with updates by a function of NumPy's."""
    result = np.array(x, order="C")
    rows, updates = named_rows(name, indices, updates, len(result), drop)
    if not updates.size:
        return result
    with np.errstate(all="ignore"):
        if ufunc is None:
            result[rows] = updates
        elif result[0].size < WIDE_ROW:
            ufunc.at(result.reshape(-1), elements_of(rows, result[0].size), updates.reshape(-1))
        else:
            for part in apart(rows % max(len(result), 1)):
                result[rows[part]] = ufunc(result[rows[part]], updates[part])
    return result


def named_rows(
    name: str, indices: Array, updates: Array, size: int, drop: bool
) -> tuple[Array, Array]:
    if not drop:
        return wrapped_indices(name, indices, 0, size), np.asarray(updates)
    wide = np.asarray(indices).astype(np.int64)
    inside = (wide >= -size) & (wide < size)
    wide = np.where(wide < 0, wide + size, wide)
    every = inside.all()
    return wide if every else wide[inside], np.asarray(updates if every else updates[inside])


def elements_of(rows: Array, width: int) -> Array:
    """The flat places of the elements of rows."""
    return rows if width == 1 else (rows[:, None] * width + np.arange(width)).reshape(-1)


def extreme_rows(
    name: str, x: Array, updates: Array, indices: Array, drop: bool, ufunc: Any
) -> Array:
    """NumPy does not say which of two zeros is the larger one: +0."""
    found = changed_rows(name, x, updates, indices, drop, ufunc)
    zeros = found == 0
    if found.dtype.kind in "iu" or not zeros.any():
        return found
    wanted = np.signbit if ufunc is np.minimum else lambda v: ~np.signbit(v)
    rows, values = named_rows(name, indices, updates, len(found), drop)
    has_it = changed_rows(
        name, (x == 0) & wanted(x), (values == 0) & wanted(values), rows, False, np.logical_or
    )
    is_negative = has_it if ufunc is np.minimum else ~has_it
    return np.where(zeros, np.where(is_negative, -0.0, 0.0).astype(found.dtype), found)


# -- the ops ---------------------------------------------------------------------------------------


def traits(name: str, dtypes: Sequence[Any], draw: Callable[..., Array]) -> dict[str, Any]:
    """What all of them are."""
    return {
        "type": update_type(name, dtypes),
        "kind": "special",
        "in_place": True,
        "in_memory": (0, 1),  # indices are computed where they are looked at
        "cases": update_cases(dtypes, draw),
        "dtypes": tuple(dtypes),
        "public": False,
    }


@op(**traits("set_at", EVERY, random_array))
def set_at(x: Array, updates: Array, indices: Array, *, drop: bool = False) -> Array:
    """x, whose row indices[i] is row i of updates; of several for one row the last remains. Indices
    as in `gather`; with `drop` those out of range are left out.

    >>> set_at(np.array([1, 1, 1]), np.array([2, 3, 4]), np.array([1, 0, 1]))
    array([3, 4, 1])
    """
    return changed_rows("set_at", x, updates, indices, drop)


@op(**traits("add_at", ANY_NUMBERS, exact_array))
def add_at(x: Array, updates: Array, indices: Array, *, drop: bool = False) -> Array:
    """x, to whose row indices[i] row i of updates is added, i ascending: each sum is rounded before
    the next, and rows that are not named keep their bits. Indices as in `set_at`.

    >>> add_at(np.array([1, 1, 1]), np.array([2, 3, 4]), np.array([1, 0, 1]))
    array([4, 7, 1])
    """
    return changed_rows("add_at", x, updates, indices, drop, np.add)


@op(**traits("multiply_at", NUMBERS, unit_array))
def multiply_at(x: Array, updates: Array, indices: Array, *, drop: bool = False) -> Array:
    """x, whose row indices[i] is multiplied with row i of updates, i ascending, as in `add_at`.

    >>> multiply_at(np.array([1, 1, 1]), np.array([2, 3, 4]), np.array([1, 0, 1]))
    array([3, 8, 1])
    """
    return changed_rows("multiply_at", x, updates, indices, drop, np.multiply)


@op(**traits("divide_at", FLOATS, unit_array))
def divide_at(x: Array, updates: Array, indices: Array, *, drop: bool = False) -> Array:
    """x, whose row indices[i] is divided by row i of updates, i ascending, as in `add_at`.

    >>> divide_at(np.array([8.0, 8.0]), np.array([2.0, 4.0]), np.array([1, 1]))
    array([8., 1.])
    """
    return changed_rows("divide_at", x, updates, indices, drop, np.divide)


@op(**traits("maximum_at", NUMBERS, random_array))
def maximum_at(x: Array, updates: Array, indices: Array, *, drop: bool = False) -> Array:
    """The larger of row indices[i] of x and row i of updates, for every i; as in `maximum`.

    >>> maximum_at(np.array([1, 3, 1]), np.array([2, 2, 4]), np.array([1, 0, 0]))
    array([4, 3, 1])
    """
    return extreme_rows("maximum_at", x, updates, indices, drop, np.maximum)


@op(**traits("minimum_at", NUMBERS, random_array))
def minimum_at(x: Array, updates: Array, indices: Array, *, drop: bool = False) -> Array:
    """The smaller of row indices[i] of x and row i of updates, for every i; as in `minimum`.

    >>> minimum_at(np.array([1, 3, 1]), np.array([2, 2, 4]), np.array([1, 0, 0]))
    array([1, 2, 1])
    """
    return extreme_rows("minimum_at", x, updates, indices, drop, np.minimum)


UPDATES = (set_at, add_at, multiply_at, divide_at, maximum_at, minimum_at)


# -- what each update meets ------------------------------------------------------------------------


def met_at_type(
    x: ArrayType, updates: ArrayType, indices: ArrayType, *, how: str, drop: bool = False
) -> ArrayType:
    REGISTRY[how].type(x, updates, indices, drop=drop)
    return updates


def _met_at_cases(rng: Rng) -> Case:
    how = pick(rng, ("multiply_at", "divide_at"))
    case = REGISTRY[how].cases(rng)  # type: ignore[misc]
    return Case(case.args, {**case.params, "how": how})


@op(type=met_at_type, kind="special", cases=_met_at_cases, dtypes=NUMBERS, public=False)
def met_at(x: Array, updates: Array, indices: Array, *, how: str, drop: bool = False) -> Array:
    """What each update of `how` finds in its row: x, changed by the updates before it. One that is
    dropped finds zeros.

    >>> met_at(np.array([1, 5]), np.array([2, 3, 4]), np.array([0, 0, 1]), how="multiply_at")
    array([1, 2, 5])
    """
    size, now = len(x), np.array(x)
    wide = np.asarray(indices).astype(np.int64)
    rows = wide if drop else wrapped_indices("met_at", wide, 0, size)
    inside = np.flatnonzero((rows >= -size) & (rows < size))
    found = np.zeros_like(updates)
    join = np.multiply if how == "multiply_at" else np.divide
    with np.errstate(all="ignore"):
        for part in apart(rows[inside] % max(size, 1)):
            chosen = inside[part]
            met = found[chosen] = now[rows[chosen]]
            now[rows[chosen]] = join(met, updates[chosen])
    return found


def apart(rows: Array) -> list[Array]:
    """Positions of rows in parts that name no row twice: the first updates of all rows, the
    second ones, and so on."""
    order = np.argsort(rows, kind="stable")
    is_first = np.diff(rows[order], prepend=-1) != 0
    begin = np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))
    turn = np.arange(len(rows)) - begin
    by_turn = order[np.argsort(turn, kind="stable")]
    return np.split(by_turn, np.cumsum(np.bincount(turn))[:-1]) if len(rows) else []


# -- derivatives -----------------------------------------------------------------------------------


def inside_of(indices: Node, size: Any) -> tuple[Node, Node]:
    """Indices that may be read with, and which of them are in range."""
    wide = cast(indices, i64)
    count = amount(size, wide)
    row = where(run("less", wide, zeros_like(wide)), wide + count, wide)
    inside = run(
        "logical_and",
        run("greater_equal", row, zeros_like(row)),
        run("less", row, count),
    )
    return where(inside, row, 0), inside


def rows_of(x: Node, indices: Node, drop: bool) -> Node:
    """Row indices[i] of x for every i; zeros for what is dropped."""
    if not drop:
        return run("gather", x, indices, axis=0)  # type: ignore[no-any-return]
    rows, inside = inside_of(indices, x.type.shape[0])
    found = run("gather", x, rows, axis=0)
    return where(along(inside, found), found, 0)


def along(flags: Node, rows: Node) -> Node:
    """One flag a row, for every element of the rows."""
    ones = (flags.type.shape[0], *(1,) * (rows.type.rank - 1))
    return expand(reshape(flags, ones), rows.type.shape)


def is_last(x: Node, updates: Node, indices: Node, drop: bool) -> Node:
    """Does the row of an update keep it? Of several for one row the last remains."""
    count = updates.type.shape[0]
    kind = i32 if isinstance(count, int) and count < 1 << 31 else i64
    number = positions((count,), 0, kind)
    none = filled(-1, ArrayType(kind, x.type.shape[:1]))
    owner = set_at(none, number, indices, **dropping(drop))
    kept = run("equal", rows_of(owner, indices, drop), number)
    if drop:
        kept = run("logical_and", kept, inside_of(indices, x.type.shape[0])[1])
    return along(kept, updates)


def dropping(drop: bool) -> dict[str, bool]:
    return {"drop": True} if drop else {}


def _set_back_x(ct: Node, x: Node, updates: Node, indices: Node, *, drop: bool = False) -> Node:
    return set_at(ct, zeros_like(updates), indices, **dropping(drop))  # type: ignore[no-any-return]


def _set_back_updates(
    ct: Node, x: Node, updates: Node, indices: Node, *, drop: bool = False
) -> Node:
    return where(is_last(x, updates, indices, drop), rows_of(ct, indices, drop), 0)


set_at.transpose(_set_back_x, _set_back_updates, None)


@set_at.jvp_of_all
def set_at_jvp(
    tangents: tuple[Node | None, ...], y: Node, x: Node, updates: Node, indices: Node, **drop: bool
) -> Node:
    dx, du = (
        zeros_like(v) if t is None else t for t, v in zip(tangents[:2], (x, updates), strict=True)
    )
    return set_at(dx, du, indices, **drop)  # type: ignore[no-any-return]


add_at.transpose(
    lambda ct, x, updates, indices, **drop: ct,
    lambda ct, x, updates, indices, *, drop=False: rows_of(ct, indices, drop),
    None,
)


@add_at.jvp_of_all
def add_at_jvp(
    tangents: tuple[Node | None, ...], y: Node, x: Node, updates: Node, indices: Node, **drop: bool
) -> Node | None:
    dx, du = tangents[:2]
    if du is None:
        return dx
    return add_at(zeros_like(x) if dx is None else dx, du, indices, **drop)  # type: ignore[no-any-return]


def extreme_jvp(
    tangents: tuple[Node | None, ...],
    y: Node,
    x: Node,
    updates: Node,
    indices: Node,
    *,
    drop: bool = False,
) -> Node | None:
    """The change is shared by all that are equal to the result, x among them; counts are made in
    f32 where a half could not hold them."""
    wide, settings = x.type.dtype.computing, dropping(drop)
    stays = cast(run("equal", x, y), wide)
    wins = cast(run("equal", updates, rows_of(y, indices, drop)), wide)
    shared = run("maximum", add_at(stays, wins, indices, **settings), full_like(stays, 1))
    dx, du = tangents[:2]
    changes = zeros_like(x) if dx is None else dx * cast(stays / shared, x.type.dtype)
    if du is None:
        return changes
    each = rows_of(shared, indices, drop)
    part = wins / (run("maximum", each, full_like(each, 1)) if drop else each)
    return add_at(changes, du * cast(part, x.type.dtype), indices, **settings)  # type: ignore[no-any-return]


maximum_at.jvp_of_all(extreme_jvp)
minimum_at.jvp_of_all(extreme_jvp)


def chain_jvp(slopes: Callable[[Node, Node], tuple[Node, Node]], how: Op) -> Callable[..., Node]:
    """The rule of a chain of products. `slopes(met, update)` is how a result changes with what it
    met, and with the update; what follows on the same row is multiplied to it."""

    def rule(
        tangents: tuple[Node | None, ...],
        y: Node,
        x: Node,
        updates: Node,
        indices: Node,
        **drop: bool,
    ) -> Node:
        dx, du = tangents[:2]
        changes = zeros_like(x) if dx is None else how(dx, updates, indices, **drop)
        if du is None:
            return changes
        met = met_at(x, updates, indices, how=how.name, **drop)
        by_met, by_update = slopes(met, updates)
        ones, back = full_like(x, 1), flipped(by_met, 0)
        last_first = met_at(ones, back, flipped(indices, 0), how="multiply_at", **drop)
        part = by_update * flipped(last_first, 0)
        return add_at(changes, du * part, indices, **drop)  # type: ignore[no-any-return]

    return rule


def product_slopes(met: Node, update: Node) -> tuple[Node, Node]:
    return update, met


def quotient_slopes(met: Node, update: Node) -> tuple[Node, Node]:
    return full_like(update, 1) / update, -met / (update * update)


multiply_at.jvp_of_all(chain_jvp(product_slopes, multiply_at))
divide_at.jvp_of_all(chain_jvp(quotient_slopes, divide_at))
for each in (multiply_at, divide_at):
    each.transpose(
        lambda ct, x, updates, indices, each=each, **drop: each(ct, updates, indices, **drop),
        None,
        None,
    )


@met_at.jvp_of_all
def met_at_jvp(
    tangents: tuple[Node | None, ...],
    y: Node,
    x: Node,
    updates: Node,
    indices: Node,
    *,
    how: str,
    drop: bool = False,
) -> Node:
    """One update after the other: the tangents of the rows are what the loop carries."""
    slopes = product_slopes if how == "multiply_at" else quotient_slopes
    by_met, by_update = slopes(y, updates)
    dx, du = tangents[:2]
    adds = zeros_like(updates) if du is None else by_update * du
    rows, inside = inside_of(indices, x.type.shape[0])
    kept = along(inside, updates)
    stacked = [where(kept, by_met, 1), where(kept, adds, 0), rows]
    start = zeros_like(x) if dx is None else dx
    body = _tangent_step(start.type, updates.type)
    _, found = make_scan(body, [], [start], stacked, length=updates.type.shape[0])
    return where(kept, found, 0) if drop else found


def _tangent_step(rows: ArrayType, updates: ArrayType) -> Any:
    one = updates.with_shape(updates.shape[1:])
    kinds = (rows, one, one, ArrayType(i64, ()))
    changes, factor, addend, row = inputs = [make_parameter(k, i) for i, k in enumerate(kinds)]
    starts = starts_of(changes, row)
    met = dynamic_slice(changes, starts, sizes=(1, *one.shape))
    after = met * reshape(factor, (1, *one.shape)) + reshape(addend, (1, *one.shape))
    written = dynamic_update_slice(changes, after, starts)
    return make_graph("met_at_jvp", inputs, [written, reshape(met, one.shape)])


# -- batches ---------------------------------------------------------------------------------------


def batched_updates(how: Op) -> Callable[..., Node]:
    """Shared indices: the batch is a trailing axis. Else all rows together, in one table after the
    other."""

    def rule(batched: Batched, x: Node, updates: Node, indices: Node, **params: Any) -> Node:
        if not batched[2]:
            sides = all_batched(batched[:2], (x, updates))
            return moved(how(*(moved(side, 0, 1) for side in sides), indices, **params), 1, 0)
        x, updates, indices = all_batched(batched, (x, updates, indices))
        (batch, size, *rest), count = x.type.shape, updates.type.shape[1]
        inner = (
            offset_or_away(indices, batch, size)
            if params.get("drop")
            else offset_indices(how.name, indices, 0, size)
        )
        flat = reshape(inner, (batch * count,))
        tables = reshape(x, (batch * size, *rest)), reshape(updates, (batch * count, *rest))
        rows = how(*tables, flat, **params)
        return reshape(rows, updates.type.shape if how is met_at else x.type.shape)

    return rule


def offset_or_away(indices: Node, batch: Any, size: Any) -> Node:
    """Indices [batch, count] as indices into all tables; what is out of range is so there too."""
    rows, inside = inside_of(indices, size)
    count = amount(size, rows)
    table = positions(rows.type.shape, 0, i64)
    return where(inside, rows + table * count, amount(batch, rows) * count)


for how in (*UPDATES, met_at):
    how.batch(batched_updates(how))
