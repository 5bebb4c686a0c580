"""Passes, quantised weights: rules by which a product reads a quantised weight directly instead of
decoding it first.

Decoding does not round beyond what the product would see. With a weight in blocks the order of the
sum is that of a float matmul; with one in groups it is that of the product with such a weight
(docs/numerics.md), which is the licence of those rules.
"""

# mypy: disable-error-code="no-any-return"
# Op functions return what their operands are: nodes, here.

from __future__ import annotations

from tetrad.core.dtypes import DType, f32
from tetrad.core.sizes import product
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import reduce_sum, reshape, swapped
from tetrad.ops.groups.op import dequantize_groups, product_groups, reduce_groups
from tetrad.ops.matmul.op import are_rows_of_groups, matmul
from tetrad.ops.movement import transpose
from tetrad.ops.quantized.op import dequantize
from tetrad.passes.rewrite import Rules, var

quantized = Rules("quantized")
x, w = var("x"), var("w")
codes, scale, zero = var("codes"), var("scale"), var("zero")
scheme, group, dtype, lead = var("scheme"), var("group"), var("dtype"), var("lead")
a, b = var("a"), var("b")


@quantized.rule(matmul(x, transpose(dequantize(w), perm=(1, 0))))
def read_weight_in_place(x: Node, w: Node) -> Node | None:
    """matmul(x, transpose(dequantize(w)))  ->  matmul(x, w, transposed=True), for matrices."""
    return matmul(x, w, transposed=True) if x.type.rank == 2 else None


LICENCE = "the order of a sum is that of a product with a weight in groups"
symmetric = dequantize_groups(codes, scale, scheme=scheme, group=group, dtype=dtype)
affine = dequantize_groups(codes, scale, zero, scheme=scheme, group=group, dtype=dtype)


@quantized.rule(matmul(x, transpose(symmetric, perm=(1, 0))), licence=LICENCE)
def read_groups_in_place(
    x: Node, codes: Node, scale: Node, scheme: str, group: int, dtype: DType
) -> Node | None:
    """matmul(x, transpose(dequantize_groups(codes, scale)))  ->  matmul(x, codes, scale,
    transposed=True), for matrices whose rows are made of groups."""
    return product_in_place(x, (codes, scale), scheme, group)


@quantized.rule(matmul(x, transpose(affine, perm=(1, 0))), licence=LICENCE)
def read_affine_groups_in_place(
    x: Node, codes: Node, scale: Node, zero: Node, scheme: str, group: int, dtype: DType
) -> Node | None:
    """The same, with zero points."""
    return product_in_place(x, (codes, scale, zero), scheme, group)


def product_in_place(x: Node, weight: tuple[Node, ...], scheme: str, group: int) -> Node | None:
    kinds = [part.type for part in weight]
    if x.type.rank != 2 or not are_rows_of_groups(x.type, *kinds, scheme=scheme, group=group):
        return None
    return matmul(x, *weight, transposed=True, scheme=scheme, group=group)


# -- what factors get back -------------------------------------------------------------------------


SUMS = "sums over groups are taken while a product is in registers, in the order of that op"
turned = transpose(matmul(a, b), perm=(1, 0))
settings = {"scheme": scheme, "group": group, "lead": lead}


@quantized.rule(reduce_groups(matmul(a, b), codes, **settings), licence=SUMS)
def sum_groups_of_product(
    a: Node, b: Node, codes: Node, scheme: str, group: int, lead: int
) -> Node | None:
    """reduce_groups(matmul(a, b), codes)  ->  product_groups(a, b, codes)"""
    return sums_in_place(a, b, (codes,), scheme, group, lead)


@quantized.rule(reduce_groups(turned, codes, **settings), licence=SUMS)
def sum_groups_of_transposed_product(
    a: Node, b: Node, codes: Node, scheme: str, group: int, lead: int
) -> Node | None:
    """The same of transpose(matmul(a, b))."""
    return sums_of_turned(a, b, (codes,), scheme, group, lead)


@quantized.rule(reduce_groups(matmul(a, b), codes, zero, **settings), licence=SUMS)
def sum_affine_groups_of_product(
    a: Node, b: Node, codes: Node, zero: Node, scheme: str, group: int, lead: int
) -> Node | None:
    """The same, with zero points."""
    return sums_in_place(a, b, (codes, zero), scheme, group, lead)


@quantized.rule(reduce_groups(turned, codes, zero, **settings), licence=SUMS)
def sum_affine_groups_of_transposed_product(
    a: Node, b: Node, codes: Node, zero: Node, scheme: str, group: int, lead: int
) -> Node | None:
    """The same of transpose(matmul(a, b)), with zero points."""
    return sums_of_turned(a, b, (codes, zero), scheme, group, lead)


def sums_of_turned(
    a: Node, b: Node, weight: tuple[Node, ...], scheme: str, group: int, lead: int
) -> Node | None:
    is_matrix = a.type.rank == 2
    return sums_in_place(swapped(b), swapped(a), weight, scheme, group, lead) if is_matrix else None


def sums_in_place(
    a: Node, b: Node, weight: tuple[Node, ...], scheme: str, group: int, lead: int
) -> Node | None:
    """Where groups lie along rows, sums without codes are those of b's columns, taken first."""
    if a.type.rank != 2 or b.type.rank != 2 or a.type.dtype is not f32:
        return None
    columns = weight[0].type.shape[-1]
    if scheme == "ones" and isinstance(columns, int) and columns % group == 0:
        rows, groups = b.type.shape[0], columns // group
        sums = reduce_sum(reshape(b, (rows, groups, group)), [2])
        flat = (product((a.type.shape[0], groups)),)
        return reshape(matmul(a, sums), (a.type.shape[0], groups) if lead else flat)
    return product_groups(a, b, *weight, scheme=scheme, group=group, lead=lead)
