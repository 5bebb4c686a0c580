"""Passes, regroup: rules by which work on the result of a product comes before the reshape that
regroups its rows, and slices come after it. Every rule is bit-exact.

Receives and returns graphs through the rule engine. Products of arrays with many axes are products
of two, with a reshape behind. After these rules the work on the result has the product's own shape,
so that fusion finds it there; and parts of a product are slices of one view of its memory, which
kernels read where they lie.
"""

# mypy: disable-error-code="no-any-return"
# Op functions return what their operands are: nodes, here.

from __future__ import annotations

from collections.abc import Iterator

from tetrad.core.record import record
from tetrad.core.sizes import Shape, product
from tetrad.graph.group import holds
from tetrad.graph.nodes import Node
from tetrad.ops.movement import expand, reshape, slice_
from tetrad.passes.layout import reshaped
from tetrad.passes.questions import group_kind, is_row_reduction
from tetrad.passes.rewrite import Axes, Rules, var

regroup = Rules("regroup")
FAR = 64  # nodes that are looked at for a product

x, starts, sizes, steps, shape = map(var, ("x", "starts", "sizes", "steps", "shape"))


def is_work_on_reshaped(node: Node) -> bool:
    is_elementwise = node.op.kind == "elementwise" and not node.type.dtype.is_complex
    return is_elementwise and any(i.op is reshape for i in node.inputs)


@regroup.rule(var("node", where=is_work_on_reshaped))
def work_before_regrouping(node: Node) -> Node | None:
    """op(reshape(product), y)  ->  reshape(op(product, reshape(y))), for rows that stay rows, and
    for what is computed of whole rows."""
    if any(is_work_on_product(i) for i in node.inputs):
        return None
    source = next((i.inputs[0] for i in node.inputs if is_regrouped_product(i)), None)
    if source is None:
        return None
    operands = [in_rows(i, source.type.shape) for i in node.inputs]
    if any(operand is None for operand in operands):
        return None
    return reshape(node.op(*operands, **dict(node.params)), shape=node.type.shape)


@regroup.rule(var("node", where=lambda node: node.op.kind == "reduce"))
def reduce_before_regrouping(node: Node) -> Node | None:
    """reduce(reshape(product))  ->  reshape(reduce(product)), along rows that stay rows."""
    groups, axes = node.inputs[0], node.param("axes")
    if axes != (groups.type.rank - 1,) or not is_regrouped_product(groups):
        return None
    source = groups.inputs[0]
    if not keeps_rows(source.type.shape, groups.type.shape):
        return None
    return reshape(node.op(source, axes=(source.type.rank - 1,)), shape=node.type.shape)


def is_regrouped_product(node: Node) -> bool:
    """Is it the result of a product, or work on it, with its rows in other groups? Or a value for
    each row?"""
    if node.op is not reshape:
        return False
    source = node.inputs[0]
    is_kept = keeps_rows(source.type.shape, node.type.shape)
    return is_work_on_product(source, of_rows=not is_kept)


def keeps_rows(before: Shape, after: Shape) -> bool:
    return len(before) == 2 and len(after) >= 2 and before[-1] == after[-1]


def is_work_on_product(node: Node, of_rows: bool = False) -> bool:
    """Is it a product whose kernels work on the result, or elementwise work on one? Or on what its
    rows were reduced to: with `of_rows`, nothing else."""
    stack, seen = [(node, of_rows)], {node}
    while stack and len(seen) < FAR:
        one, below_rows = stack.pop()
        if holds(one.op.epilogue, one) and not below_rows:
            return True
        fresh: list[Node] = []
        if one.op.kind == "elementwise":
            fresh = [i for i in one.inputs if i.type.shape == one.type.shape and i not in seen]
        elif is_row_reduction(one):
            fresh, below_rows = [one.inputs[0]], False
        seen.update(fresh)
        stack.extend((i, below_rows) for i in fresh)
    return False


def in_rows(node: Node, rows: Shape) -> Node | None:
    """The same elements in the shape of a product: what is repeated must be so along all rows, or
    have a value for each."""
    if node.type.size == 0 or node.op is not expand:
        return reshaped(node.inputs[0] if node.op is reshape else node, rows)
    small = node.inputs[0]
    before = (1,) * (node.type.rank - small.type.rank) + small.type.shape
    if all(n == 1 for n in before):
        return expand(reshaped(small, ()), shape=rows)
    if all(n == 1 for n in before[:-1]) and before[-1] == rows[-1]:
        return expand(reshaped(small, before[-1:]), shape=rows)
    if before[:-1] == node.type.shape[:-1] and before[-1] == 1 and node.type.shape[-1] == rows[-1]:
        return expand(reshaped(small, (*rows[:-1], 1)), shape=rows)
    return None


# -- slices ----------------------------------------------------------------------------------------


@regroup.rule(reshape(slice_(x, starts=starts, sizes=sizes, steps=steps), shape=shape))
def regroup_before_slicing(
    x: Node, starts: Shape, sizes: Shape, steps: Axes, shape: Shape
) -> Node | None:
    """reshape(slice(product))  ->  slice(reshape(product)), where axes are split between heads."""
    if any(step != 1 for step in steps) or not is_in_memory(x):
        return None
    whole, first = list[object](), list[object]()
    blocks = list(matching_axes(sizes, shape))
    for block in reversed(blocks):
        found = regrouped_block(block, x.type.shape, starts, sizes, shape)
        if found is None:
            return None
        whole.extend(found[0])
        first.extend(found[1])
    if not blocks or tuple(whole) == shape:
        return None
    wide = reshape(x, shape=tuple(whole))
    return slice_(wide, starts=tuple(first), sizes=shape, steps=(1,) * len(shape))


def is_in_memory(node: Node) -> bool:
    """Do its elements lie in memory whoever reads them?"""
    while node.op.view:
        node = node.inputs[0]
    return node.op.leaf or group_kind(node) != "map" or is_work_on_product(node)


@record
class AxisBlock:
    """Axes before and after a reshape that hold the same elements."""

    before: range
    after: range


def matching_axes(before: Shape, after: Shape) -> Iterator[AxisBlock]:
    """Blocks of axes with equal products, the last first; none where sizes are 0 or cannot be
    compared."""
    i, j = len(before), len(after)
    while i > 0 and j > 0:
        a, b, p, q = i - 1, j - 1, before[i - 1], after[j - 1]
        while p != q:
            if not (isinstance(p, int) and isinstance(q, int)) or p == 0 or q == 0:
                a, b = 0, 0
                break
            if p < q and a > 0:
                a -= 1
                p = p * before[a]
            elif q < p and b > 0:
                b -= 1
                q = q * after[b]
            else:
                a, b = 0, 0
                break
        yield AxisBlock(range(a, i), range(b, j))
        i, j = a, b
    if i or j:
        yield AxisBlock(range(i), range(j))


def regrouped_block(
    block: AxisBlock, whole: Shape, starts: Shape, sizes: Shape, shape: Shape
) -> tuple[Shape, Shape] | None:
    """Of a block the axes of the whole array, regrouped, and where the slice begins in each."""
    after = tuple(shape[a] for a in block.after)
    if all(whole[a] == sizes[a] for a in block.before):
        return after, (0,) * len(after)
    cut = [a for a in block.before if sizes[a] != 1 or whole[a] != 1]
    if len(cut) != 1 or not after:
        return None
    kept = next((i for i, n in enumerate(after) if n != 1), len(after) - 1)
    inner, start, size = product(after[kept + 1 :]), starts[cut[0]], whole[cut[0]]
    if not (isinstance(inner, int) and isinstance(start, int) and isinstance(size, int)):
        return None
    if inner < 1 or start % inner or size % inner:
        return None
    wide = (*after[:kept], size // inner, *after[kept + 1 :])
    return wide, tuple(start // inner if i == kept else 0 for i in range(len(after)))
