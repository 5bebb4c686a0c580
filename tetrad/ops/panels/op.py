"""The op `panel_matmul`: rows times a weight that lies in panels of sixteen outputs.

A weight [outputs, inputs] that many rows will meet is laid out once (`quant.panels`), so that a
kernel reads it in one run. Here are meaning, type and derivatives. The order of a sum is that of
`a b` in `ops.matmul.op`: the same bits as a product with the transposed weight.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, bf16, f16, f32, f64
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.machine import LANES
from tetrad.core.op import Case, op
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import Batched, cast, reshape, swapped, transpose
from tetrad.ops.cases import Rng, exact_array, pick
from tetrad.ops.matmul.op import matmul
from tetrad.ops.rules import Array
from tetrad.quant.panels import weight_of

WEIGHTS_OF = {f32: (f32, f16, bf16), f64: (f64,)}  # of rows of a type


def panel_matmul_type(x: ArrayType, w: ArrayType) -> ArrayType:
    if x.dtype not in WEIGHTS_OF:
        raise DtypeError(f"panel_matmul: expected rows of f32 and panels of floats, got {x}, {w}")
    if w.dtype not in (allowed := WEIGHTS_OF[x.dtype]):
        shown = ", ".join(map(str, allowed))
        raise DtypeError(f"panel_matmul: rows {x} take panels of {shown}, got {w}")
    if x.rank != 2 or w.rank != 3 or w.shape[2] != LANES or x.shape[1] != w.shape[1]:
        raise ShapeError(
            f"panel_matmul: expected rows [n, k] and panels [m, k, {LANES}], got {x} and {w}",
            hint="panels_of lays a weight [outputs, inputs] out",
        )
    return ArrayType(x.dtype, (x.shape[0], w.shape[0] * LANES))


def _panel_cases(rng: Rng) -> Case:
    rows, panels = pick(rng, (1, 2, 3, 8, 9, 17)), pick(rng, (1, 2, 3, 5))
    inner, left = pick(rng, (1, 7, 16, 33, 1030)), pick(rng, tuple(WEIGHTS_OF))
    right = pick(rng, WEIGHTS_OF[left])
    return Case(
        (exact_array(rng, left, (rows, inner)), exact_array(rng, right, (panels, inner, 16)))
    )


@op(
    type=panel_matmul_type,
    kind="special",
    epilogue=True,
    may_fail=False,
    cases=_panel_cases,
    dtypes=tuple(WEIGHTS_OF),
    public=False,
)
def panel_matmul(x: Array, w: Array) -> Array:
    """x w^T of rows [n, k] and a weight in panels [m / 16, k, 16]: [n, m].

    >>> from tetrad.quant.panels import panels_of
    >>> w = np.arange(32, dtype=np.float32).reshape(16, 2)
    >>> panel_matmul(np.float32([[1, 10]]), panels_of(w))[0, :3]
    array([10., 32., 54.], dtype=float32)
    """
    with np.errstate(all="ignore"):
        return np.matmul(x, weight_of(w.astype(x.dtype)).T)


# -- derivatives and batching ----------------------------------------------------------------------


def weight_node(w: Node, dtype: DType) -> Node:
    """The weight [inputs, outputs]."""
    panels, inputs, _ = w.type.shape
    return reshape(transpose(cast(w, dtype), (1, 0, 2)), (inputs, panels * LANES))


def _back_to_rows(ct: Node, x: Node, w: Node) -> Node:
    made: Node = matmul(ct, swapped(weight_node(w, x.type.dtype)))
    return made


def _back_to_panels(ct: Node, x: Node, w: Node) -> Node:
    panels, inputs, _ = w.type.shape
    turned = reshape(matmul(swapped(x), ct), (inputs, panels, LANES))
    return cast(transpose(turned, (1, 0, 2)), w.type.dtype)


def _by_rows(t: Node, y: Node, x: Node, w: Node) -> Node:
    made: Node = panel_matmul(t, w)
    return made


def _by_panels(t: Node, y: Node, x: Node, w: Node) -> Node:
    made: Node = panel_matmul(x, t)
    return made


panel_matmul.jvp(_by_rows, _by_panels)
panel_matmul.transpose(_back_to_rows, _back_to_panels)


@panel_matmul.batch
def panel_matmul_batch(batched: Batched, x: Node, w: Node, **settings: Any) -> Node | None:
    """One product where the weight is shared: rows one below the other."""
    if batched != (True, False):
        return None
    size, rows, inner = x.type.shape
    flat = panel_matmul(reshape(x, (size * rows, inner)), w)
    return reshape(flat, (size, rows, w.type.shape[0] * LANES))
