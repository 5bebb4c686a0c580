"""Passes, questions: what fusion asks about single nodes.

Receives nodes, returns the kind of group a node starts, whether it can be read in place, and its
work. `passes.fuse` decides which nodes share a kernel.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping, Sequence

from tetrad.core.sizes import Shape, product
from tetrad.graph.build import constant
from tetrad.graph.group import holds
from tetrad.graph.nodes import Node
from tetrad.ops.movement import concat, transpose

CHEAP = 4  # operations an element may cost and still be computed twice
FOLD_WORK = 8  # of a reduction, in operations
PARTS = 8  # of a concat that the kernels of its readers look through ...
DEPTH = 4  # ... and how far down it is looked whether more are alike
WORTH = 32  # less work than that is not worth memory of its own
# Rows and columns for which sums over all rows join a rows group: a workgroup then takes a chunk of
# 256 rows (`lower.column_sums`), so there must be a few, and its sums must stay near.
SUMMED_ROWS, SUMMED_COLUMNS = 1024, (64, 8192)
SUMS = 4  # such sums in one kernel
NEAR = 64  # nodes that are looked at for arrays that two reductions read


def group_kind(node: Node) -> str:
    if holds(node.op.prologue, node):
        return node.op.name
    if node.op.kind == "structural" and not node.op.leaf:
        return node.op.name  # call, item, scan, while_loop, switch
    if node.op.kind == "reduce":
        return "rows" if is_row_reduction(node) else "columns"
    if node.op.kind == "special":
        return "special"
    if node.op is transpose and moves_last_axis(node):
        return "transpose"
    return "concat" if node.op is concat and is_concat_of_alike(node) else "map"


def is_concat_of_alike(node: Node) -> bool:
    """Does it have many parts of few kinds? Then each kind is one kernel."""
    return len(node.inputs) > PARTS and len({looks(part) for part in node.inputs}) <= PARTS


def looks(node: Node, depth: int = DEPTH) -> Hashable:
    """What distinguishes the code that computes a part; sizes do not count, since they can be
    arguments. Below `depth` a node equals only itself."""
    kinds = tuple((kind.dtype, kind.rank) for kind in node.types)
    if node.op.leaf or group_kind(node) != "map":
        return kinds
    if depth == 0:
        return node
    params = () if node.op.sized else repr(node.params)
    return (node.op.name, params, kinds, *(looks(i, depth - 1) for i in node.inputs))


def moves_last_axis(node: Node) -> bool:
    """Does a transpose change the last axis, so that adjacent results are not adjacent in
    memory?"""
    perm = node.param("perm")
    big = [p for p in perm if node.inputs[0].type.shape[p] != 1]
    axes = [a for a, n in enumerate(node.inputs[0].type.shape) if n != 1]
    return bool(big) and big[-1] != axes[-1]


def is_row_reduction(node: Node) -> bool:
    if node.op.kind != "reduce":
        return False
    axes, rank = node.param("axes"), node.inputs[0].type.rank
    return tuple(axes) == tuple(range(rank - len(axes), rank))


def row_shape(node: Node) -> tuple[Shape, Shape]:
    shape, count = node.inputs[0].type.shape, len(node.param("axes"))
    return shape[: len(shape) - count], shape[len(shape) - count :]


def row_level(node: Node, members: Mapping[Node, str], outer: Shape, inner: Shape) -> str | None:
    """How a reader of members joins a rows group: "row", "full", or None."""
    levels = [members[i] for i in node.inputs if i in members]
    if not levels or node.type.dtype.is_complex:
        return None
    shape = node.type.shape
    ones = outer + (1,) * len(inner)
    if node.op.kind == "elementwise":
        if shape == outer + inner and "row" not in levels:
            return "full"
        return "row" if shape in (outer, ones) and "full" not in levels else None
    if node.op.view and levels == ["row"]:
        return "row" if shape in (outer, ones) else None
    if node.op.spreads and levels == ["row"] and shape == outer + inner:
        return "full" if node.inputs[0].type.shape == ones or not outer else None
    if is_row_reduction(node) and levels == ["full"] and row_shape(node) == (outer, inner):
        return "row"
    return None


def may_sum_columns(outer: Shape, inner: Shape) -> bool:
    """Are there enough rows for sums over all of them to join a rows group?"""
    rows, columns = product(outer), product(inner)
    least, most = SUMMED_COLUMNS
    if not isinstance(rows, int) or not isinstance(columns, int):
        return False
    return rows >= SUMMED_ROWS and least <= columns <= most


def is_column_sum(node: Node, outer: Shape, inner: Shape) -> bool:
    """Does it reduce all rows of a rows group, element by element?"""
    if node.op.kind != "reduce" or node.inputs[0].type.dtype.is_complex:
        return False
    same = node.inputs[0].type.shape == outer + inner
    return same and tuple(node.param("axes")) == tuple(range(len(outer)))


def row_arrays(node: Node) -> set[Node]:
    """What a reduction reads element by element, in its own shape; numbers and rows that are spread
    do not count."""
    shape = node.inputs[0].type.shape
    near = at_hand([node], most=NEAR)
    return {n for n in near if n.type.shape == shape and not n.op.spreads} - {node}


def at_hand(members: Iterable[Node], most: int | None = None) -> set[Node]:
    """What the kernel of these members has in registers at the index of its results, as far as
    elementwise work goes; about as much as `most`."""
    found = set(members)
    stack = [m for m in found if m.op.kind in ("elementwise", "reduce")]
    while stack and (most is None or len(found) < most):
        fresh = [i for i in stack.pop().inputs if i not in found]
        found.update(fresh)
        stack.extend(i for i in fresh if i.op.kind == "elementwise")
    return found


def reorders(node: Node) -> bool:
    """Does a reshape regroup axes, beyond adding and dropping axes of size 1?"""
    before, after = node.inputs[0].type.shape, node.type.shape
    return [n for n in before if n != 1] != [n for n in after if n != 1]


def is_view(node: Node, memory: set[Node]) -> bool:
    """Can a matmul read it in place? Transposes, slices and broadcasts of an array in memory."""
    return is_stored(below_strides(node), memory)


def below_strides(node: Node) -> Node:
    """What transposes, slices, broadcasts and axes of size 1 are taken of."""
    while node.op.strided or (node.op.view and not reorders(node)):
        node = node.inputs[0]
    return node


def is_stored(node: Node, memory: Container[Node]) -> bool:
    return node.op.leaf or node in memory or group_kind(node) != "map"


def is_prologue(node: Node, memory: set[Node]) -> bool:
    """Is it a view, or so little elementwise work on views that a matmul does it while reading?"""
    is_work = below_strides(node).op.kind == "elementwise"
    return is_view(node, memory) or (is_work and light_cost(node, memory) <= CHEAP)


def light_cost(node: Node, memory: set[Node], most: int = CHEAP) -> int:
    """Operations per element of elementwise work on views; more than `most` if there is anything
    else, or more work.

    The search stops at `most`: in a chain whose steps read each other twice, the number of paths is
    exponential.
    """
    if is_splat(node) or is_view(node, memory):
        return 0
    node = below_strides(node)
    total = node.op.cost if node.op.kind == "elementwise" else most + 1
    for operand in node.inputs:
        if total <= most:
            total += light_cost(operand, memory, most - total)
    return total


def weight(node: Node) -> int:
    """The amount of code for a node, in operations; 64-bit values count twice, as they take twice
    the registers."""
    if node.op.kind == "elementwise":
        is_wide = any(n.type.dtype.bits > 32 for n in (node, *node.inputs))
        return node.op.cost * 2 if is_wide else node.op.cost
    return FOLD_WORK if node.op.kind == "reduce" else len(node.inputs)


def total_weight(parts: Iterable[Iterable[Node]]) -> int:
    return sum(weight(node) for node in set().union(*parts))


def costliest(
    parts: Mapping[Node, frozenset[Node]], inside: Mapping[Node, frozenset[Node]]
) -> Node | None:
    """The operand (or what it rearranges) with the most work, among those that can be given
    memory."""
    found: Node | None = None
    most = WORTH
    for operand in parts:
        while operand in inside and operand.op.kind == "movement":
            operand = max(operand.inputs, key=lambda i: total_weight([inside.get(i, ())]))
        if operand not in inside or operand.type.dtype.is_complex:
            continue
        work = total_weight([inside[operand]])
        if work > most:
            found, most = operand, work
    return found


def is_splat(node: Node) -> bool:
    if node.op.spreads:
        return is_splat(node.inputs[0])
    return node.op is constant and node.type.size == 1


# -- how far a node is read element by element ----------------------------------------------------


def aligned(root: Node, target: Node, memory: set[Node]) -> bool:
    """Is `target` read only element by element on every path from `root`?"""
    stack, seen = [root], {root}
    while stack:
        node = stack.pop()
        for operand in node.inputs:
            if operand is target and node.op.kind != "elementwise":
                return False
            if operand in seen or operand in memory or operand.op.leaf:
                continue
            if node.op.kind != "elementwise" and depends_on(operand, target, memory):
                return False
            seen.add(operand)
            stack.append(operand)
    return True


def depends_on(node: Node, target: Node, memory: set[Node]) -> bool:
    stack, seen = [node], {node}
    while stack:
        current = stack.pop()
        if current is target:
            return True
        if current in memory:
            continue
        fresh = [i for i in current.inputs if i not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return False


# -- what products compute as they read ------------------------------------------------------------


def source_of(node: Node) -> Node:
    """What its elements are those of."""
    while passes_on(node):
        node = node.inputs[0]
    return node


def passes_on(node: Node) -> bool:
    """Does it give elements of its operand on as they are, or in another dtype?"""
    return node.op is transpose or node.op.converts or (node.op.view and not reorders(node))


def is_read_inline(
    node: Node, users: Mapping[Node, Sequence[Node]], results: Container[Node]
) -> bool:
    """Is it an op that is computed as it is read, or a view of one, for products alone?"""
    return source_of(node).op.inline and feeds_products(node, users, results)


def feeds_products(
    node: Node, users: Mapping[Node, Sequence[Node]], results: Container[Node]
) -> bool:
    """Is every reader a product, or a view or conversion that feeds products?"""
    return node not in results and all(
        holds(user.op.prologue, user) or (passes_on(user) and feeds_products(user, users, results))
        for user in users[node]
    )
