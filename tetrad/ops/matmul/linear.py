"""Products with float weights as model files hold them: a row of the weight for every output, used
where it lies.

The order of a sum is part of its meaning (docs/numerics.md): column c goes to sum c % 16, each an
fma chain over ascending columns, and the sixteen are joined by halving (i with i + 8, then 4, 2,
1).
"""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import bf16, f16, f32
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.op import op
from tetrad.core.types import ArrayType
from tetrad.ops.calculus import cast, run, swapped
from tetrad.ops.rules import Array

FLOATS = (f32, f16, bf16)


def row_matmul_type(x: ArrayType, w: ArrayType) -> ArrayType:
    if x.dtype is not f32 or w.dtype not in FLOATS:
        raise DtypeError(
            f"row_matmul: expected f32 rows and a weight of {', '.join(map(str, FLOATS))}, got "
            f"{x}, {w}"
        )
    if x.rank != 2 or w.rank != 2 or x.shape[1] != w.shape[1]:
        raise ShapeError(f"row_matmul: inner sizes differ: rows {x}, weight {w}")
    return ArrayType(f32, (x.shape[0], w.shape[0]))


@op(type=row_matmul_type, kind="special", public=False)
def row_matmul(x: Array, w: Array) -> Array:
    """x w^T in f32, whatever the weight is stored in.

    >>> row_matmul(np.float32([[1, 2]]), np.float16([[3, 4], [5, 6]]))
    array([[11., 17.]], dtype=float32)
    """
    with np.errstate(all="ignore"):
        return np.asarray((x.astype(np.float64) @ w.astype(np.float64).T).astype(np.float32))


row_matmul.transpose(
    lambda ct, x, w: run("matmul", ct, cast(w, f32)),
    lambda ct, x, w: cast(run("matmul", swapped(ct), x), w.type.dtype),
)
