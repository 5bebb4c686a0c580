"""The op `panel_matmul`: rows times a weight that lies in panels of sixteen outputs.

A weight [outputs, inputs] that many rows will meet is laid out once (`quant.panels`), so that a
kernel reads it in one run. Here are meaning, type and derivatives. The order of a sum is that of
`a b` in `ops.matmul.op`: the same bits as a product with the transposed weight.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tetrad.core.dtypes import DType, as_dtype, bf16, f16, f32, f64, i8, i32, u8
from tetrad.core.errors import DtypeError, ShapeError
from tetrad.core.machine import LANES
from tetrad.core.op import Case, op
from tetrad.core.record import record
from tetrad.core.types import ArrayType
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import Batched, cast, reshape, swapped, transpose
from tetrad.ops.cases import Rng, exact_array, pick
from tetrad.ops.matmul.op import matmul
from tetrad.ops.quantized.op import SCALE_OF_TOP, SMALLEST
from tetrad.ops.rules import Array
from tetrad.quant.panels import BYTES, HALVES, TOP, ZERO, panels_of, weight_of


@record
class PanelKind:
    """What rows of a type meet, how many inputs are multiplied at once, and what comes out."""

    weights: tuple[DType, ...]
    result: DType
    together: int = 1


KINDS = {
    f32: PanelKind((f32, f16, bf16), f32),
    f64: PanelKind((f64,), f64),
    bf16: PanelKind((bf16,), f32, HALVES),
    u8: PanelKind((i8,), i32, BYTES),
}


def panel_matmul_type(x: ArrayType, w: ArrayType) -> ArrayType:
    if x.dtype not in KINDS:
        raise DtypeError(f"panel_matmul: expected rows of {shown(KINDS)}, got {x}")
    kind = KINDS[x.dtype]
    if w.dtype not in kind.weights:
        raise DtypeError(f"panel_matmul: rows {x} take panels of {shown(kind.weights)}, got {w}")
    width = LANES * kind.together
    if (
        x.rank != 2
        or w.rank != 3
        or w.shape[2] != width
        or x.shape[1] != w.shape[1] * kind.together
    ):
        raise ShapeError(
            f"panel_matmul: expected rows [n, k] and panels [m, k / {kind.together}, {width}], "
            f"got {x} and {w}",
            hint="panels_of lays a weight [outputs, inputs] out",
        )
    return ArrayType(kind.result, (x.shape[0], w.shape[0] * LANES))


def shown(dtypes: Iterable[DType]) -> str:
    return ", ".join(map(str, dtypes))


def _panel_cases(rng: Rng) -> Case:
    left = pick(rng, tuple(KINDS))
    kind = KINDS[left]
    rows, panels = pick(rng, (1, 2, 3, 8, 9, 17)), pick(rng, (1, 2, 3, 5))
    inner = pick(rng, (1, 7, 16, 33, 1030)) * kind.together
    weight = exact_array(rng, pick(rng, kind.weights), (panels * LANES, inner))
    return Case((exact_array(rng, left, (rows, inner)), panels_of(weight, kind.together)))


@op(
    type=panel_matmul_type,
    kind="special",
    epilogue=True,
    may_fail=False,
    cases=_panel_cases,
    dtypes=tuple(KINDS),
    public=False,
)
def panel_matmul(x: Array, w: Array) -> Array:
    """x w^T of rows [n, k] and a weight in panels: [n, m]. Floats have panels [m / 16, k, 16]; rows
    of unsigned bytes meet signed ones, [m / 16, k / 4, 64], in i32, exactly; rows of bf16 meet
    bf16, [m / 16, k / 2, 32], in f32: pairs ascend in chunks of 1,024, the second of a pair before
    the first (`kernel.nodes.Dot2`), chunk sums are added in order.

    >>> from tetrad.quant.panels import panels_of
    >>> w = np.arange(32, dtype=np.float32).reshape(16, 2)
    >>> panel_matmul(np.float32([[1, 10]]), panels_of(w))[0, :3]
    array([10., 32., 54.], dtype=float32)
    """
    wide = KINDS[as_dtype(x.dtype)].result.np
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(x.astype(wide), weight_of(w).astype(wide).T))


def byte_rows_type(x: ArrayType) -> tuple[ArrayType, ArrayType]:
    if x.dtype is not f32 or x.rank != 2:
        raise DtypeError(f"byte_rows: expected rows of f32, got {x}", hint="convert with astype")
    return x.with_dtype(u8), x.with_shape((x.shape[0], 1))


def _byte_cases(rng: Rng) -> Case:
    shape = (pick(rng, (0, 1, 2, 5)), pick(rng, (1, 15, 16, 33, 384)))
    return Case(((rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4)).astype(np.float32),))


@op(
    type=byte_rows_type,
    kind="special",
    may_fail=False,
    cases=_byte_cases,
    dtypes=(f32,),
    public=False,
)
def byte_rows(x: Array) -> tuple[Array, Array]:
    """Rows as unsigned bytes that count from 128, and the scale of each: code = 128 + x * (127 /
    max |x|), rounded to even; scale = max |x| / 127. A row with NaN or infinity has the scale NaN.

    >>> codes, scale = byte_rows(np.float32([[1, -2, 0, 0.5]]))
    >>> codes, float(scale[0, 0] * 127)
    (array([[192,   1, 128, 160]], dtype=uint8), 2.0)
    """
    top = np.abs(x).max(axis=1, initial=0, keepdims=True)
    with np.errstate(all="ignore"):
        inverse = np.where(top < SMALLEST, np.float32(0), np.float32(TOP) / top)
        codes = np.clip(np.nan_to_num(np.rint(x * inverse), nan=TOP), -TOP, TOP) + ZERO
        scale = np.where(top < np.inf, top * np.float32(SCALE_OF_TOP), np.float32(np.nan))
    return codes.astype(np.uint8), scale


byte_rows.not_differentiable("codes of 8 bits do not change smoothly")


# -- derivatives and batching ----------------------------------------------------------------------


def weight_node(w: Node, dtype: DType) -> Node:
    """The weight [inputs, outputs]."""
    panels, lines, width = w.type.shape
    parts = reshape(cast(w, dtype), (panels, lines, LANES, width // LANES))
    return reshape(transpose(parts, (1, 3, 0, 2)), (lines * (width // LANES), panels * LANES))


def _back_to_rows(ct: Node, x: Node, w: Node) -> Node:
    return cast(matmul(ct, swapped(weight_node(w, ct.type.dtype))), x.type.dtype)


def _back_to_panels(ct: Node, x: Node, w: Node) -> Node:
    panels, lines, width = w.type.shape
    found = matmul(swapped(cast(x, ct.type.dtype)), ct)
    parts = transpose(reshape(found, (lines, width // LANES, panels, LANES)), (2, 0, 3, 1))
    return cast(reshape(parts, w.type.shape), w.type.dtype)


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
