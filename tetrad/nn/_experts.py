"""Mixtures of experts, as `td.nn.grouped_matmul` and `td.nn.top_k_experts`: which experts a token
goes to, and products with the matrices of those.

Receives tokens, the matrices of all experts and numbers of experts; returns a row for each pair of
a token and an expert. Pairs are put in order of their experts and cut into blocks of one expert
each, so that all of it is one batch of products, composed of public functions: it differentiates
and batches, in every type of floats. `td.nn` loads this module when it is first used.
"""

from __future__ import annotations

from typing import Any

from tetrad import nn
from tetrad.arrays import functions as td
from tetrad.arrays.creation import positions
from tetrad.core.dtypes import f32, i32
from tetrad.core.errors import DtypeError, SettingError, ShapeError
from tetrad.core.record import record
from tetrad.tracing.array import Array, fail
from tetrad.tracing.operands import as_array

NAME = "grouped_matmul"
NONE = -1  # the number of no expert
BLOCK = (16, 256)  # rows of a block: fewest and most


def grouped_matmul(x: Any, weight: Any, expert: Any) -> Array:
    """Row t of x times the matrix of its expert, or of each of its experts.

    x [tokens, inputs], weight [experts, outputs, inputs], as `linear` has it, expert [tokens] or
    [tokens, used] of integers; the result is [tokens, outputs] or [tokens, used, outputs]. Expert
    -1 is none: a row of zeros. Any other number out of range is an IndexError. Work is that of the
    pairs, not of all experts.

    >>> import tetrad as td
    >>> weight = td.asarray([[[1.0, 2.0]], [[3.0, 4.0]]])  # two experts of one output each
    >>> td.nn.grouped_matmul(td.ones((3, 2)), weight, td.asarray([1, -1, 0]))[:, 0]
    Array([7., 0., 3.], float32)
    """
    x, weight, expert = as_array(x), as_array(weight), as_array(expert)
    _check(x, weight, expert)
    used = 1 if expert.ndim == 1 else expert.shape[1]
    flat = td.reshape(td.astype(expert, i32), (-1,))
    rows = td.reshape(td.broadcast_to(x[:, None], (x.shape[0], used, x.shape[1])), (-1, x.shape[1]))
    count, experts = rows.shape[0], weight.shape[0]
    number = _checked_numbers(flat, experts)
    if count <= experts:
        each = td.take(weight, td.minimum(number, experts - 1), axis=0)
        found = td.matmul(each, rows[:, :, None])[:, :, 0]
    else:
        found = _in_blocks(rows, weight, number)
    found = td.where((flat == NONE)[:, None], 0, found)
    return td.reshape(found, (*expert.shape, weight.shape[1]))


def _check(x: Array, weight: Array, expert: Array) -> None:
    fits = (
        x.ndim == 2
        and weight.ndim == 3
        and expert.ndim in (1, 2)
        and x.shape[1] == weight.shape[2]
        and x.shape[0] == expert.shape[0]
    )
    if not fits:
        message = f"{NAME}: x {x.type}, weight {weight.type} and experts {expert.type} do not fit"
        hint = "x [tokens, inputs], weight [experts, outputs, inputs], expert [tokens, used]"
        fail(ShapeError, message, hint)
    if not expert.dtype.is_integer or not x.dtype.is_float or not weight.dtype.is_float:
        message = f"{NAME}: x {x.type} and weight {weight.type} are floats, experts {expert.type} "
        fail(DtypeError, message + "integers")
    sizes = (*x.shape, *weight.shape, *expert.shape)
    if not all(isinstance(n, int) for n in sizes) or not weight.shape[0]:
        fail(ShapeError, f"{NAME}: sizes are known numbers, with an expert at least")


def _checked_numbers(flat: Array, experts: int) -> Array:
    """Numbers from 0 to `experts`, which is none; others stop the program."""
    is_none = flat == NONE
    asked = td.where(flat < NONE, flat - experts, td.where(is_none, 0, flat))
    return td.where(is_none, experts, td.take(positions(experts), asked, axis=0))  # type: ignore[no-any-return]


@record(eq=False)
class BlockPlan:
    """Where rows stand once they are in blocks of one expert each."""

    source: Array  # of each place of a block the row, or -1
    place: Array  # of each row
    expert: Array  # of each block


def _in_blocks(rows: Array, weight: Array, number: Array) -> Array:
    count, experts = rows.shape[0], weight.shape[0]
    fewest, most = BLOCK
    # half of what an expert has on average: little padding, few copies of matrices
    size = min(max(-(-count // (2 * experts * fewest)) * fewest, fewest), most)
    plan = _planned(number, count, experts, size)
    is_row = plan.source >= 0
    placed = td.where(is_row[:, None], td.take(rows, td.maximum(plan.source, 0), axis=0), 0)
    blocks = td.reshape(placed, (-1, size, rows.shape[1]))
    each = td.take(weight, td.minimum(plan.expert, experts - 1), axis=0)
    found = td.matmul(blocks, td.matrix_transpose(each))
    return td.take(td.reshape(found, (-1, weight.shape[1])), plan.place, axis=0)


def _planned(number: Array, count: int, experts: int, size: int) -> BlockPlan:
    """Rows in order of their experts, of equal ones in their own; each expert begins a block."""
    blocks = count // size + experts + 1
    order = td.astype(td.argsort(number, stable=True), i32)
    counts = td.scatter_add(td.ones_like(number), number, experts + 1)
    ends = td.cumulative_sum((counts + (size - 1)) // size)  # in blocks
    begin = (ends - (counts + (size - 1)) // size) * size - (td.cumulative_sum(counts) - counts)
    place = positions(count) + td.take(begin, td.take(number, order, axis=0), axis=0)
    source = td.scatter_add(order + 1, place, blocks * size) - 1
    expert = td.searchsorted(ends, positions(blocks), side="right")
    return BlockPlan(source, td.scatter_add(place, order, count), td.astype(expert, i32))


# -- routing ---------------------------------------------------------------------------------------


def top_k_experts(logits: Any, k: int, *, normalize: bool = True) -> tuple[Array, Array]:
    """The k likeliest experts of every token and their shares, [tokens, k] each.

    Shares are the softmax of logits [tokens, experts], of the chosen ones alone if `normalize`.
    They have derivatives, the choice has none. Of equal experts the first is taken.

    >>> import tetrad as td
    >>> experts, shares = td.nn.top_k_experts(td.asarray([[0.0, 2.0, 2.0]]), 2)
    >>> experts, shares
    (Array([[1, 2]], int32), Array([[0.5, 0.5]], float32))
    """
    logits = as_array(logits)
    if logits.ndim != 2 or not logits.dtype.is_float:
        fail(ShapeError, f"top_k_experts: logits are floats [tokens, experts], got {logits.type}")
    if not 1 <= k <= logits.shape[1]:
        raise SettingError("top_k_experts: k", f"from 1 to {logits.shape[1]}", k)
    wide = td.astype(logits, f32) if logits.dtype.bits < 32 else logits
    likelihood = nn.softmax(wide)
    shares, chosen = td.topk(likelihood, k)
    if normalize:
        shares = shares / td.sum(shares, axis=1, keepdims=True)
    return td.astype(chosen, i32), td.astype(shares, logits.dtype)


def load_balance_loss(logits: Any, expert: Any) -> Array:
    """How unevenly tokens use experts: 1 where all are used alike, and more elsewhere.

    The number of experts times the sum over them of the share of pairs an expert has and its mean
    likelihood (Fedus et al. 2021); the likelihood has derivatives.

    >>> import tetrad as td
    >>> td.nn.load_balance_loss(td.zeros((4, 2)), td.asarray([[0], [1], [0], [1]]))
    Array(1., float32)
    """
    logits, expert = as_array(logits), as_array(expert)
    experts = logits.shape[1]
    used = nn.one_hot(td.reshape(expert, (-1,)), experts, dtype=logits.dtype)
    return experts * td.sum(td.mean(used, axis=0) * td.mean(nn.softmax(logits), axis=0))  # type: ignore[no-any-return]
