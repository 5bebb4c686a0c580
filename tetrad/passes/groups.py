"""Passes, weights in groups: rules by which a product reads codes and factors directly instead of
decoding them first, and by which factors get their derivatives back without a matrix in memory.

The order of the sum is that of the product with such a weight (docs/numerics.md), which is the
licence of these rules. Loaded for programs that have such weights.
"""

# mypy: disable-error-code="no-any-return"
# Op functions return what their operands are: nodes, here.

from __future__ import annotations

from tetrad.core.dtypes import DType
from tetrad.core.sizes import product
from tetrad.graph.nodes import Node
from tetrad.ops.calculus import reduce_sum, reshape, swapped
from tetrad.ops.groups.op import dequantize_groups, product_groups, reduce_groups
from tetrad.ops.matmul.op import are_rows_of_groups, is_plain, matmul
from tetrad.ops.movement import transpose
from tetrad.ops.rules import FLOATS
from tetrad.passes.rewrite import Rules, var

groups = Rules("groups")
x = var("x")
codes, scale, zero = var("codes"), var("scale"), var("zero")
scheme, group, dtype, lead = var("scheme"), var("group"), var("dtype"), var("lead")

LICENCE = "the order of a sum is that of a product with a weight in groups"
symmetric = dequantize_groups(codes, scale, scheme=scheme, group=group, dtype=dtype)
affine = dequantize_groups(codes, scale, zero, scheme=scheme, group=group, dtype=dtype)


@groups.rule(matmul(x, transpose(symmetric, perm=(1, 0))), licence=LICENCE)
def read_groups_in_place(
    x: Node, codes: Node, scale: Node, scheme: str, group: int, dtype: DType
) -> Node | None:
    """matmul(x, transpose(dequantize_groups(codes, scale)))  ->  matmul(x, codes, scale,
    transposed=True), for matrices whose rows are made of groups."""
    return product_in_place(x, (codes, scale), scheme, group)


@groups.rule(matmul(x, transpose(affine, perm=(1, 0))), licence=LICENCE)
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


def is_product_seen(node: Node) -> bool:
    """Is it a product of two matrices, transposed or converted any number of times? Axes of size 1
    before a matrix may be dropped."""
    is_matrix = node.type.rank == 2
    while is_turned(node) or node.op.converts or drops_ones(node):
        node = node.inputs[0]
    is_one = is_plain(node) and all(n == 1 for n in node.type.shape[:-2])
    return is_matrix and is_one and node.type.dtype in FLOATS


def is_turned(node: Node) -> bool:
    """Is it a transpose of the last two axes?"""
    rank = node.type.rank
    return node.op is transpose and node.param("perm") == (*range(rank - 2), rank - 1, rank - 2)


def drops_ones(node: Node) -> bool:
    if not node.op.view:
        return False
    before, after = node.inputs[0].type.shape, node.type.shape
    return before == (1,) * (len(before) - len(after)) + after


seen = var("seen", where=is_product_seen)
settings = {"scheme": scheme, "group": group, "lead": lead}


@groups.rule(reduce_groups(seen, codes, **settings), licence=SUMS)
def sum_groups_of_product(seen: Node, codes: Node, scheme: str, group: int, lead: int) -> Node:
    """reduce_groups(matmul(a, b), codes)  ->  product_groups(a, b, codes), and of a product that is
    transposed or converted meanwhile."""
    return sums_in_place(seen, (codes,), scheme, group, lead)


@groups.rule(reduce_groups(seen, codes, zero, **settings), licence=SUMS)
def sum_affine_groups_of_product(
    seen: Node, codes: Node, zero: Node, scheme: str, group: int, lead: int
) -> Node:
    """The same, with zero points."""
    return sums_in_place(seen, (codes, zero), scheme, group, lead)


def sums_in_place(seen: Node, weight: tuple[Node, ...], scheme: str, group: int, lead: int) -> Node:
    """Where groups lie along rows, sums without codes are those of b's columns, taken first."""
    a, b, through = product_of(seen)
    columns = weight[0].type.shape[-1]
    is_along = isinstance(columns, int) and columns % group == 0
    if scheme == "ones" and is_along and (a.type.dtype, *through) == (a.type.dtype.computing,):
        rows, groups = b.type.shape[0], columns // group
        sums = reduce_sum(reshape(b, (rows, groups, group)), [2])
        flat = (product((a.type.shape[0], groups)),)
        return reshape(matmul(a, sums), (a.type.shape[0], groups) if lead else flat)
    return product_groups(a, b, *weight, scheme=scheme, group=group, lead=lead, through=through)


def product_of(seen: Node) -> tuple[Node, Node, tuple[DType, ...]]:
    """The factors of a product, exchanged where it is transposed, and the dtypes it goes
    through."""
    through: tuple[DType, ...] = ()
    is_exchanged = False
    while not is_plain(seen):
        if seen.op.converts:
            through = (seen.type.dtype, *through)
        is_exchanged ^= is_turned(seen)
        seen = seen.inputs[0]
    a, b = (reshape(x, x.type.shape[-2:]) for x in seen.inputs)
    return (swapped(b), swapped(a), through) if is_exchanged else (a, b, through)
