"""Passes, fusions: the named fusions around products and attention, found in a graph by data flow.

Receives an optimised graph, returns for each place the values between its steps, its *seams*. A
fusion fires where no seam has memory; which one has, and why, is a near miss. `passes.fuse` gives
memory to the seams of fusions that TETRAD_UNFUSED turns off; `td.explain` tells what fired.

    merge_products    products of one array with constant weights are one (`passes.merge_products`)
    bias_activation   elementwise work on a product, in its kernel
    residual_norm     a sum with a residual, in the kernel of the norm that follows
    swiglu            silu(gate) * up of two products, or of the halves of one
    qkv_in_place      slices of a product, read where they lie by attention, or by rope before it
    attention_block   projections, attention and the projection behind it hand on arrays as they lie
    encoder_layer     an attention block, norm, feed-forward and norm of which every part fires
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence

from tetrad.core.flags import FUSIONS, flag_words
from tetrad.core.record import record
from tetrad.graph.build import item
from tetrad.graph.group import Group, holds
from tetrad.graph.nodes import Graph, Node
from tetrad.ops.activations import silu
from tetrad.ops.arithmetic import add, multiply, rsqrt, square, subtract
from tetrad.ops.attention.op import attention
from tetrad.ops.movement import concat, expand, slice_
from tetrad.ops.quotients import divide
from tetrad.passes.questions import is_splat, reorders

FAR = 64  # nodes between attention and the product its operands come from
Uses = Mapping[Node, Sequence[Node]]


@record(eq=False)
class Place:
    """Where a fusion may fire: the node it ends with, its seams, and the readers they have inside
    it."""

    name: str
    root: Node
    seams: tuple[Node, ...]
    inside: frozenset[Node]


@record(eq=False)
class FusionOutcome:
    """What became of a fusion at one place: bytes that are not written and read, or why not."""

    name: str
    root: Node
    nbytes: int
    why_not: str = ""
    saved: tuple[Node, ...] = ()  # what has no memory

    @property
    def fired(self) -> bool:
        return not self.why_not

    def __str__(self) -> str:
        where = "" if self.root.source is None else f"   # {self.root.source}"
        told = f"{self.nbytes} bytes saved" if self.fired else f"not: {self.why_not}"
        return f"{self.name}: {told}{where}"


def users_of(graph: Graph) -> dict[Node, list[Node]]:
    users: dict[Node, list[Node]] = {node: [] for node in graph.nodes()}
    for node in graph.nodes():
        for operand in dict.fromkeys(node.inputs):
            users[operand].append(node)
    return users


def places(graph: Graph) -> Iterator[Place]:
    """Every place of every fusion that is one of seams."""
    users = users_of(graph)
    for node in graph.nodes():
        for find in FINDERS:
            found = find(node, users)
            if found is not None:
                yield found


def seams_of(graph: Graph, names: Container[str]) -> set[Node]:
    """What gets memory if these fusions are off; a whole layer is all of them."""
    names = FUSIONS if "encoder_layer" in names else names
    return {seam for place in places(graph) if place.name in names for seam in place.seams}


# -- products --------------------------------------------------------------------------------------


def bias_activation(node: Node, users: Uses) -> Place | None:
    """product -> elementwise -> elementwise ..."""
    if not holds(node.op.epilogue, node):
        return None
    step = next((u for u in users[node] if is_work_on(u, node)), None)
    chain, inside = [node], set[Node]()
    while step is not None:
        inside.update((step, *users[chain[-1]]) if len(chain) > 1 else (step,))
        chain.append(step)
        step = next((u for u in users[step] if is_work_on(u, node) and joins(u, step, users)), None)
    if len(chain) == 1:
        return None
    return Place("bias_activation", chain[-1], tuple(chain[:-1]), frozenset(inside))


def joins(node: Node, operand: Node, users: Uses) -> bool:
    """Do all that read the operand end in this node? The condition and a side of a `where` do."""
    others = (u for u in users[operand] if u is not node)
    return all(u in node.inputs and users[u] == [node] for u in others)


def is_work_on(node: Node, product: Node) -> bool:
    return node.op.kind == "elementwise" and node.type.shape == product.type.shape


def swiglu(node: Node, users: Uses) -> Place | None:
    """multiply(silu(gate), up)"""
    if node.op is not multiply:
        return None
    gate, up = node.inputs if node.inputs[0].op is silu else node.inputs[::-1]
    if gate.op is not silu or gate is up:
        return None
    sources = [product_below(x, ()) for x in (gate.inputs[0], up)]
    if any(source is None for source in sources):
        return None
    slices = [x for x in (*between(gate.inputs[0]), *between(up)) if x.op is slice_]
    return Place("swiglu", node, (gate, *slices), frozenset((node, gate, *slices)))


# -- norms -----------------------------------------------------------------------------------------


def residual_norm(node: Node, users: Uses) -> Place | None:
    """norm(add(x, residual)): rsqrt of the mean of a square, of the sum or of its distance from its
    mean."""
    if node.op is not rsqrt:
        return None
    mean: Node | None = node.inputs[0]
    while mean is not None and (mean.op in (add, divide, multiply) or mean.op.view):
        mean = next((i for i in mean.inputs if not is_splat(i)), None)
    if mean is None or mean.op.kind != "reduce" or mean.inputs[0].op is not square:
        return None
    normed = mean.inputs[0].inputs[0]
    total = normed.inputs[0] if normed.op is subtract else normed
    inside = [reader for reader in users[total] if is_part_of_norm(reader)]
    while total.op.view:
        total = total.inputs[0]
    if total.op is not add or any(x.op is expand for x in total.inputs):
        return None
    if is_epilogue_work(total):  # the product's kernel adds the residual
        sources = [i for i in total.inputs if holds(i.op.epilogue, i) or is_epilogue_work(i)]
        seam = min(sources, key=lambda i: len(users[i]))  # a residual has other readers
        return Place("residual_norm", node, (seam,), frozenset({total}))
    return Place("residual_norm", node, (total,), frozenset(inside))


def is_part_of_norm(node: Node) -> bool:
    """Does it read a sum to normalise it?"""
    return node.op in (square, subtract, multiply) or node.op.kind == "reduce"


# -- attention -------------------------------------------------------------------------------------


def qkv_in_place(node: Node, users: Uses) -> Place | None:
    """attention(slices of a product)"""
    if not is_dense(node):
        return None
    seams = [x for operand in node.inputs[:3] for x in between(operand) if x.op is slice_]
    seams = [x for x in dict.fromkeys(seams) if product_below(x, ()) is not None]
    if not seams:
        return None
    inside = [x for operand in node.inputs[:3] for x in between(operand)]
    return Place("qkv_in_place", node, tuple(seams), frozenset((node, *inside)))


def attention_block(node: Node, users: Uses) -> Place | None:
    """product(attention(products))"""
    if not is_dense(node):
        return None
    out = [reader for user in users[node] for reader in readers_through(user, users)]
    if not any(holds(reader.op.epilogue, reader) for reader in out):
        return None
    if any(product_below(x, ()) is None for x in node.inputs[:3]):
        return None
    inside = [x for operand in node.inputs[:3] for x in between(operand)]
    moves = [x for x in dict.fromkeys(inside) if x.op.strided or x.op.view]
    return Place("attention_block", node, tuple(moves), frozenset((node, *inside)))


def is_dense(node: Node) -> bool:
    return node.op is attention and holds(node.op.prologue, node)


def between(node: Node) -> Iterator[Node]:
    """What stands between an operand and the product it comes from: views, and the light work of
    rope."""
    stack, seen = [node], {node}
    while stack and len(seen) < FAR:
        one = stack.pop()
        if holds(one.op.epilogue, one) or one.op.leaf or is_epilogue_work(one):
            continue
        if one.op.kind in ("elementwise", "movement"):
            yield one
            fresh = [i for i in one.inputs if i not in seen]
            seen.update(fresh)
            stack.extend(fresh)


def is_epilogue_work(node: Node) -> bool:
    """Is it elementwise work in the shape of a product that it reads?"""
    if node.op.kind != "elementwise":
        return False
    return any(
        i.type.shape == node.type.shape and (holds(i.op.epilogue, i) or is_epilogue_work(i))
        for i in node.inputs
    )


def product_below(node: Node, seen: tuple[Node, ...]) -> Node | None:
    """The product that an operand comes from, through views, rope and elementwise work."""
    if holds(node.op.epilogue, node):
        return node
    if len(seen) > FAR or not (node.op.kind == "elementwise" or is_moved(node)):
        return None
    found = (product_below(i, (*seen, node)) for i in node.inputs)
    return next((x for x in found if x is not None), None)


def is_moved(node: Node) -> bool:
    return node.op.strided or node.op.view or node.op is concat


def readers_through(node: Node, users: Uses) -> Iterator[Node]:
    """Who reads a result, through items and views."""
    if node.op is item or node.op.view:
        for reader in users[node]:
            yield from readers_through(reader, users)
    else:
        yield node


FINDERS: tuple[Callable[[Node, Uses], Place | None], ...] = (
    bias_activation, swiglu, residual_norm, qkv_in_place, attention_block,
)  # fmt: skip


# -- what became of them ---------------------------------------------------------------------------


def outcomes(graph: Graph, groups: Sequence[Group]) -> list[FusionOutcome]:
    """Every place of the fusions of seams, with what fusion made of it, then whole layers."""
    users, memory = users_of(graph), {o for group in groups for o in group.outputs}
    results = set(graph.outputs)
    found = []
    for place in places(graph):
        kept = [seam for seam in place.seams if is_written(seam, memory)]
        saved = [s for s in place.seams if s not in kept and not s.op.view]
        why = why_kept(kept[0], place, users, results) if kept else ""
        found.append(FusionOutcome(place.name, place.root, traffic(saved), why, tuple(saved)))
    return found + list(layers(found, users))


def is_written(node: Node, memory: Container[Node]) -> bool:
    """Has it memory of its own? A reshape of an array in memory is that array."""
    if node.op.view and (node.inputs[0] in memory or node.inputs[0].op.leaf):
        return False
    return node in memory and not (node.op.view and not reorders(node))


def traffic(nodes: Sequence[Node]) -> int:
    """Bytes that would be written and read again."""
    sizes = [node.type.nbytes for node in nodes]
    return sum(2 * n for n in sizes if isinstance(n, int))


def why_kept(node: Node, place: Place, users: Uses, results: Container[Node]) -> str:
    if node in results or any(u.op.view and u in results for u in users[node]):
        return f"{node.op.name} {node.type} is an output of the program"
    others = [u for u in users[node] if u not in place.inside]
    if others:
        where = "" if others[0].source is None else f", {others[0].source}"
        return f"{node.op.name} {node.type} is also read by {others[0].op.name}{where}"
    off = flag_words("TETRAD_UNFUSED")
    if off:
        return f"{node.op.name} {node.type} gets memory: {', '.join(off)} turned off"
    return f"{node.op.name} {node.type} gets memory: its work is too much to do again"


def layers(found: Sequence[FusionOutcome], users: Uses) -> Iterator[FusionOutcome]:
    """An attention block with the two norms that follow it, and what lies between them."""
    norms = [o for o in found if o.name == "residual_norm"]
    for block in (o for o in found if o.name == "attention_block"):
        behind = reached(block.root, users)
        mine = [norm for norm in norms if norm.root in behind][:2]
        if len(mine) < 2:
            continue
        inside = behind - reached(mine[1].root, users)
        parts = [block, *mine, *(o for o in found if o.root in inside and o not in (block, *mine))]
        missed = [o for o in parts if not o.fired]
        why = f"{missed[0].name} is not: {missed[0].why_not}" if missed else ""
        saved = tuple(dict.fromkeys(node for o in parts for node in o.saved))
        yield FusionOutcome("encoder_layer", block.root, traffic(saved), why, saved)


def reached(node: Node, users: Uses) -> set[Node]:
    """Everything that depends on a node."""
    found, stack = {node}, [node]
    while stack:
        fresh = [u for u in users[stack.pop()] if u not in found]
        found.update(fresh)
        stack.extend(fresh)
    return found
