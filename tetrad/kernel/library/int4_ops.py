"""Kernel language, library, packed signed INT4 as a library calls it.

Each program is that of a primitive of `library.int4`, unchanged: its only region names the
primitive. The entries carry the names of extensions, and the cases of the published fixtures.
"""

from __future__ import annotations

from tetrad.core.dtypes import f32, i32, u32
from tetrad.kernel.library import int4
from tetrad.kernel.library.int4 import A, B
from tetrad.kernel.nodes import Program
from tetrad.kernel.packing import pack
from tetrad.kernel.registry import register

W = pack([A, B], u32)
SCALES = pack([0.5, 0.25], f32)
# Rows of nine lanes, so that the second word counts.
ROWS_9 = pack([A, 5, B, 0xB, 0xFEDCBA98, 0], u32)
ITEMS_9 = pack([0xC4D3E2F1, 5, 0x1E2D3C4B, 0xF], u32)
ZERO_MATMUL = [pack([0, 0], u32), pack([0, 0], u32), SCALES, pack([0.125, 0.25], f32)]


@register(
    "tetrad::quant::int4_dot_i32",
    category="nn",
    wraps=int4.i4x8_dot_i32,
    extension=("quant.int4.dot", "binary"),
    inputs=[[pack([A], u32), pack([B], u32)]],
    expected=[[pack([40], i32)]],
)
def int4_dot_i32(lhs: str = "lhs", rhs: str = "rhs", out: str = "out", lanes: int = 8) -> Program:
    """out[0] = sum of lhs[l] * rhs[l], modulo 2**32."""
    return int4.i4x8_dot_i32.build_or_raise(lhs, rhs, out, lanes)


@register(
    "tetrad::quant::int4_dot_f32_scaled",
    category="nn",
    wraps=int4.i4x8_dot_f32_scaled,
    extension=("quant.int4.dot.scaled", "binary"),
    inputs=[[pack([A], u32), pack([B], u32), pack([0.5], f32), pack([0.25], f32)]],
    expected=[[pack([5], f32)]],
)
def int4_dot_f32_scaled(
    lhs: str = "lhs",
    rhs: str = "rhs",
    lhs_scale: str = "lhs_scale",
    rhs_scale: str = "rhs_scale",
    out: str = "out",
    lanes: int = 8,
) -> Program:
    """out[0] = ((sum of lhs[l] * rhs[l]) * lhs_scale) * rhs_scale."""
    return int4.i4x8_dot_f32_scaled.build_or_raise(lhs, rhs, lhs_scale, rhs_scale, out, lanes)


@register(
    "tetrad::quant::int4_matvec_f32_scaled",
    category="nn",
    wraps=int4.i4x8_matvec_f32_scaled,
    extension=("quant.int4.matvec.scaled", "ternary"),
    inputs=[[W, pack([1] * 8, f32), SCALES]],
    expected=[[pack([0, 0], f32)]],
)
def int4_matvec_f32_scaled(
    weights: str = "weights",
    x: str = "x",
    row_scales: str = "scales",
    out: str = "out",
    rows: int = 2,
    cols: int = 8,
) -> Program:
    """out[r] = (sum over c of weights[r, c] * x[c]) * row_scales[r]."""
    return int4.i4x8_matvec_f32_scaled.build_or_raise(weights, x, row_scales, out, rows, cols)


@register(
    "tetrad::quant::int4_batched_matvec_f32_scaled",
    category="nn",
    wraps=int4.i4x8_batched_matvec_f32_scaled,
    extension=("quant.int4.batched_matvec.scaled", "ternary"),
    inputs=[[W, pack([1] * 16, f32), SCALES]],
    expected=[[pack([0] * 4, f32)]],
)
def int4_batched_matvec_f32_scaled(
    weights: str = "weights",
    x: str = "x",
    row_scales: str = "scales",
    out: str = "out",
    batch: int = 2,
    rows: int = 2,
    cols: int = 8,
) -> Program:
    """out[b, r] = (sum over c of weights[r, c] * x[b, c]) * row_scales[r]."""
    return int4.i4x8_batched_matvec_f32_scaled.build_or_raise(
        weights, x, row_scales, out, batch, rows, cols
    )


@register(
    "tetrad::quant::int4_batched_matmul_f32_scaled",
    category="nn",
    wraps=int4.i4x8_batched_matmul_f32_scaled,
    extension=("quant.int4.batched_matmul.scaled", "ternary"),
    inputs=[ZERO_MATMUL],
    expected=[[pack([0] * 4, f32)]],
)
def int4_batched_matmul_f32_scaled(
    weights: str = "weights",
    activations: str = "activations",
    row_scales: str = "row_scales",
    batch_scales: str = "batch_scales",
    out: str = "out",
    batch: int = 2,
    rows: int = 2,
    cols: int = 8,
) -> Program:
    """out[b, r] = ((sum over c of weights[r, c] * activations[b, c]) * row_scales[r]) *
    batch_scales[b]."""
    return int4.i4x8_batched_matmul_f32_scaled.build_or_raise(
        weights, activations, row_scales, batch_scales, out, batch, rows, cols
    )


@register(
    "tetrad::quant::int4_batched_matmul_top1_f32_scaled",
    category="nn",
    wraps=int4.i4x8_batched_matmul_top1_f32_scaled,
    extension=("quant.int4.batched_matmul.top1.scaled", "ternary"),
    inputs=[ZERO_MATMUL],
    expected=[[pack([0] * 4, f32)]],
)
def int4_batched_matmul_top1_f32_scaled(
    weights: str = "weights",
    activations: str = "activations",
    row_scales: str = "row_scales",
    batch_scales: str = "batch_scales",
    out: str = "out",
    batch: int = 2,
    rows: int = 2,
    cols: int = 8,
) -> Program:
    """out[b] = the greatest score of item b, out[batch + b] = its row as f32."""
    return int4.i4x8_batched_matmul_top1_f32_scaled.build_or_raise(
        weights, activations, row_scales, batch_scales, out, batch, rows, cols
    )


@register(
    "tetrad::quant::int4_batched_matmul_top1_indexed_f32_scaled",
    category="nn",
    wraps=int4.i4x8_batched_matmul_top1_indexed_f32_scaled,
    inputs=[[ROWS_9, ITEMS_9, pack([0.5, 0.25, 0.125], f32), pack([0.75, 0.375], f32)]],
    expected=[[pack([10.875, 1.40625], f32), pack([0, 2], u32)]],
)
def int4_batched_matmul_top1_indexed_f32_scaled(
    weights: str = "weights",
    activations: str = "activations",
    row_scales: str = "row_scales",
    batch_scales: str = "batch_scales",
    scores: str = "scores",
    indices: str = "indices",
    batch: int = 2,
    rows: int = 3,
    cols: int = 9,
) -> Program:
    """scores[b] = the greatest score of item b, indices[b] = its row as u32."""
    return int4.i4x8_batched_matmul_top1_indexed_f32_scaled.build_or_raise(
        weights, activations, row_scales, batch_scales, scores, indices, batch, rows, cols
    )
