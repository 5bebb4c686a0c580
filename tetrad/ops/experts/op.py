"""Ops of mixtures of experts: which experts a token goes to, and products with the matrices of just
those.

The matrices of all experts lie above one another in one weight [experts * outputs, inputs]. The
order of a product is that of `matmul` with such a weight, transposed; it does not depend on which
other tokens there are. `grouped_matmul` is an op of its own: which rows meet which matrix is data,
so its result has an axis more, and its kernels walk the pairs of tokens and experts.
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import f32, i32
from tetrad.core.errors import BoundsError, DtypeError, RoutingError, ShapeError
from tetrad.core.op import op
from tetrad.core.types import ArrayType
from tetrad.ops.matmul.op import FLOATS, matmul
from tetrad.ops.quantized.op import Types, check_weight
from tetrad.ops.rules import Array
from tetrad.quant.lanes import ROWS, q8_row

NONE = -1  # the number of no expert


def top_experts_type(likelihood: ArrayType, *, used: int) -> ArrayType:
    if (
        likelihood.dtype is not f32
        or likelihood.rank != 2
        or not isinstance(likelihood.shape[1], int)
    ):
        raise ShapeError(f"top_experts: expected f32[tokens, experts], got {likelihood}")
    if not 1 <= used <= likelihood.shape[1]:
        raise ShapeError(
            f"top_experts: expected from 1 to {likelihood.shape[1]} experts, asked for {used}"
        )
    return ArrayType(i32, (likelihood.shape[0], used))


@op(type=top_experts_type, kind="special", public=False)
def top_experts(likelihood: Array, *, used: int) -> Array:
    """The `used` likeliest experts of each token, likeliest first, of equal ones the first; NaN is
    an error.

    >>> top_experts(np.array([[0.1, 0.4, 0.1, 0.4]], np.float32), used=3)
    array([[1, 3, 0]], dtype=int32)
    """
    if not (right := likelihood >= 0).all():
        raise RoutingError(*(int(i) for i in np.argwhere(~right)[0]))
    return np.argsort(-likelihood, axis=1, kind="stable")[:, :used].astype(np.int32)


top_experts.not_differentiable("which experts are the likeliest does not change smoothly")


def grouped_matmul_type(
    x: ArrayType, w: ArrayType, expert: ArrayType, *, experts: int
) -> ArrayType:
    if expert.dtype is not i32 or expert.rank != 2 or x.rank != 2 or x.shape[0] != expert.shape[0]:
        raise ShapeError(
            f"grouped_matmul: expected rows and i32[rows, experts of each], got {x} and {expert}"
        )
    if (
        w.rank != 2
        or not isinstance(w.shape[0], int)
        or w.shape[0] % experts
        or x.shape[1] != w.shape[1]
    ):
        raise ShapeError(f"grouped_matmul: rows {x} and {experts} matrices in {w} do not fit")
    outputs = w.shape[0] // experts
    if w.dtype.is_quantized:
        check_weight("grouped_matmul", w)
        if outputs % ROWS:
            raise ShapeError(
                f"grouped_matmul: low-bit matrices of {outputs} rows, expected a multiple of {ROWS}"
            )
    elif w.dtype not in FLOATS:
        raise DtypeError(
            f"grouped_matmul: expected a weight of {', '.join(map(str, FLOATS))} or a low-bit one, "
            f"got {w}"
        )
    if x.dtype is not (wanted := q8_row if w.dtype.is_quantized else f32):
        raise DtypeError(f"grouped_matmul: a weight {w} takes rows of {wanted}, got {x}")
    return ArrayType(f32, (*expert.shape, outputs))


@op(type=grouped_matmul_type, kind="special", typed=True, public=False)
def grouped_matmul(x: Array, w: Array, expert: Array, *, experts: int, types: Types) -> Array:
    """Row t times the matrix of each of its experts: f32[tokens, experts of each, outputs]; expert
    -1 gives zeros.

    >>> import tetrad as td
    >>> w = td.asarray([[1.0, 2.0], [3.0, 4.0]])  # two experts with one output each
    >>> grouped_matmul(td.asarray([[1.0, 1.0]]), w, td.asarray([[1, -1]]), experts=2)[0, :, 0]
    Array([7., 0.], float32)
    """
    if expert.size and (expert.min() < NONE or expert.max() >= experts):
        raise BoundsError(f"grouped_matmul: an expert is out of range for {experts} of them")
    whole = matmul.reference(x, w, transposed=True, types=types[:2])
    each = whole.reshape(len(x), experts, whole.shape[1] // experts)
    found = each[np.arange(len(x))[:, None], np.maximum(expert, 0)]
    return np.asarray(np.where(expert[..., None] == NONE, np.float32(0), found))


grouped_matmul.not_differentiable("it serves models that are run, not trained")
