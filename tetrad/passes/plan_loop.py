"""Passes, plan of a loop: the one place that chooses between the ways to compute a loop.

Receives a node, a scan or a while loop, returns a `LoopPlan`; changes nothing. `unroll` and
`block_scans` rewrite the graph according to the plan. `lower.scan_in_lanes`,
`lower.scan_in_workgroup` and `lower.linked_loop` make one kernel of a loop that fits into one,
`lower.control` makes a loop of the schedule.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.dtypes import f32, f64, i32, i64
from tetrad.core.record import record
from tetrad.core.sizes import Shape, Size, plain, product
from tetrad.graph.build import constant
from tetrad.graph.effects import has_effects
from tetrad.graph.group import Group
from tetrad.graph.loops import scan, while_loop
from tetrad.graph.nested import graphs_in
from tetrad.graph.nodes import Graph, Node
from tetrad.loopnest.reader import splat_value
from tetrad.ops.matmul.op import CHUNK
from tetrad.passes.fuse import fuse

# elements of a carry in lanes; beyond that, one kernel per step has a better access order
MOST_LANES = 1 << 15
MOST_CARRIES = 12  # that fit into registers
SCRATCH_DTYPES = (f32, f64, i32, i64)  # of values kept in the scratch of a workgroup
MOST_PRODUCTS = 1 << 16  # multiplications per step in one workgroup; more are shared by the workers
MOST_SCRATCH = 1 << 13  # elements kept in scratch
MOST_ROWS = 4
# of a step whose kernels are linked, as far as its graph tells
MOST_NODES = 400
MOST_ELEMENTS = 1 << 13

Groups = Callable[[Graph], tuple[Group, ...]]


@record(eq=False)
class LoopPlan:
    """How a loop is computed:

    unrolled       as many steps as are asked for are all of them: there is no loop
    in_lanes       one kernel: a lane takes one element of the carries (shape `lanes`) through all
    in_workgroup   one kernel of one workgroup, which runs the `groups` of the body in every step
    linked         one kernel of one workgroup, which runs the kernels of a step one after the other
    blocked        a loop over blocks of steps, and the steps that are left
    stepped        a loop of the schedule over the kernels of one step
    """

    how: str
    lanes: Shape = ()
    groups: tuple[Group, ...] = ()

    @property
    def is_one_kernel(self) -> bool:
        return self.is_written_whole or self.how == "linked"

    @property
    def is_written_whole(self) -> bool:
        """Is the kernel written from the graph of a step, without lowering that?"""
        return self.how in ("in_lanes", "in_workgroup")


UNROLLED, BLOCKED, STEPPED = LoopPlan("unrolled"), LoopPlan("blocked"), LoopPlan("stepped")
LINKED = LoopPlan("linked")


def plan_loop(node: Node, groups: Groups = fuse) -> LoopPlan:
    """The plan of a loop whose body is simplified. `groups` returns the fused groups of a body, if
    the caller has them."""
    if node.op is while_loop:
        return LINKED if is_small(node.param("condition"), node.param("body")) else STEPPED
    if is_unrolled(node):
        return UNROLLED
    loop = loop_of(node)
    shape = lane_shape(loop)
    if shape is not None:
        return LoopPlan("in_lanes", lanes=shape)
    in_workgroup = workgroup_groups(loop, groups)
    if in_workgroup is not None:
        return LoopPlan("in_workgroup", groups=in_workgroup)
    if has_blocks(node):
        return BLOCKED
    return LINKED if is_small(loop.body) else STEPPED


def is_unrolled(node: Node) -> bool:
    """Does the scan ask for all steps at once? Only its settings matter: the body may be
    unsimplified."""
    if node.op is not scan or has_effects(node.param("body")):  # a step more is an effect more
        return False
    length, steps = node.param("length"), node.param("unroll")
    return steps > 1 and isinstance(length, int) and 0 < length <= steps


def has_blocks(node: Node) -> bool:
    """Is `unroll` a block size? A length that is a Dim has no number of blocks: the loop stays as
    it is, as it does where a step is to happen once."""
    if has_effects(node.param("body")):
        return False
    length, steps = node.param("length"), node.param("unroll")
    return isinstance(length, int) and 1 < steps < length


# -- the loop --------------------------------------------------------------------------------------


@record(eq=False)
class ScanLoop:
    """The parts of a scan node."""

    node: Node
    body: Graph
    consts: int
    carries: int
    length: Size
    reverse: bool
    unroll: int

    @property
    def leaves_steps(self) -> bool:
        """May there be steps that do not fill a whole trip?"""
        return self.unroll > 1 and not (
            isinstance(self.length, int) and self.length % self.unroll == 0
        )

    @property
    def carried(self) -> tuple[Node, ...]:
        return self.body.inputs[self.consts : self.consts + self.carries]

    @property
    def rows(self) -> tuple[Node, ...]:
        return self.body.inputs[self.consts + self.carries :]


def loop_of(node: Node) -> ScanLoop:
    params = dict(node.params)
    length, unroll = params["length"], params["unroll"]
    together = min(unroll, max(1, length)) if isinstance(length, int) else unroll
    return ScanLoop(
        node,
        params["body"],
        params["consts"],
        params["carries"],
        length,
        params["reverse"],
        together,
    )


# -- in lanes -------------------------------------------------------------------------------------


def lane_shape(loop: ScanLoop) -> Shape | None:
    """The shape whose elements become lanes, if the scan works element by element."""
    if any(t.dtype.is_complex for n in (*loop.body.inputs, *loop.body.nodes()) for t in n.types):
        return None  # a register holds no complex number
    if holds_arrays(loop.body):
        return None
    shapes = {o.type.shape for o in loop.body.outputs} | {c.type.shape for c in loop.carried}
    wide = [shape for shape in shapes if shape]
    if len(wide) > 1 or not 1 <= loop.carries <= MOST_CARRIES:
        return None
    shape: Shape = wide[0] if wide else ()
    count = product(shape)
    if not isinstance(count, int) or not 1 <= count <= MOST_LANES:
        return None
    nodes = [node for node in loop.body.nodes() if not node.op.leaf]
    return shape if all(is_pointwise(node, loop, shape) for node in nodes) else None


def holds_arrays(body: Graph) -> bool:
    """Does it hold constants that are not a single number? The kernel of a loop can read only its
    operands."""
    return any(n.op is constant and splat_value(n) is None for n in body.nodes())


def is_pointwise(node: Node, loop: ScanLoop, shape: Shape) -> bool:
    """Can it be computed on the spot, from carries at the same element?"""
    if node.op.in_place or any(t.dtype.is_quantized for t in node.types):
        return False
    if node.op.kind == "elementwise":
        return True
    moves = node.op.kind == "movement" and node.op.read_rule is not None
    return moves and not any(depends_on_carry(i, loop) and i.type.shape for i in node.inputs)


def depends_on_carry(node: Node, loop: ScanLoop) -> bool:
    carried = set(loop.carried)
    stack, seen = [node], {node}
    while stack:
        current = stack.pop()
        if current in carried:
            return True
        fresh = [i for i in current.inputs if i not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return False


# -- linked ----------------------------------------------------------------------------------------


def is_small(*bodies: Graph) -> bool:
    """May the kernels of a step fit into one? What they compute is small; what is read, or changed
    in place, may be large."""
    nodes = [node for body in bodies for node in body.nodes() if not node.op.leaf]
    return len(nodes) <= MOST_NODES and all(map(is_small_node, nodes))


def is_small_node(node: Node) -> bool:
    if not all(kind.is_static for kind in node.types):
        return False
    graphs = [graph for _, value in node.params for graph in graphs_in(value)]
    if graphs:
        return is_small(*graphs)
    return node.op.in_place or all(plain(kind.size) <= MOST_ELEMENTS for kind in node.types)


# -- in a workgroup --------------------------------------------------------------------------------


def workgroup_groups(loop: ScanLoop, groups_of: Groups) -> tuple[Group, ...] | None:
    """The materialised groups of the body, if all are small products and maps."""
    body = loop.body
    every = [kind for node in (*body.inputs, *body.nodes()) for kind in node.types]
    if not all(kind.is_static for kind in every) or any(node.op.in_place for node in body.nodes()):
        return None
    if holds_arrays(body):
        return None
    if any(
        o in loop.carried and o is not c for o, c in zip(body.outputs, loop.carried, strict=False)
    ):
        return None  # carries are permuted
    groups = tuple(g for g in groups_of(body) if not is_only_reshape(g) or g.root in body.outputs)
    kept = [node for g in groups for node in g.outputs]
    stored = [*kept, *loop.carried]
    small = sum(product(node.type.shape) for node in stored) <= MOST_SCRATCH  # type: ignore[operator]
    if not small or not all(
        node.type.dtype in SCRATCH_DTYPES and 0 not in node.type.shape for node in stored
    ):
        return None
    products = [g for g in groups if g.kind == "matmul"]
    if not products or not all(g.kind in ("map", "matmul") for g in groups):
        return None
    work = sum(product((*g.root.type.shape, g.root.inputs[0].type.shape[-1])) for g in products)
    memory = {*kept, *body.inputs}
    fits = plain(work) <= MOST_PRODUCTS and all(is_row_product(g, memory) for g in products)
    return groups if fits else None


def is_only_reshape(group: Group) -> bool:
    """Does it compute nothing? Then its readers read its operand."""
    return group.members == (group.root,) and group.root.op.view


def is_row_product(group: Group, memory: set[Node]) -> bool:
    """Is it a few rows times a row-major matrix in memory?"""
    node = group.root
    rows, depth = node.type.shape[0], node.inputs[0].type.shape[-1]
    fits = node.type.rank == 2 and rows <= MOST_ROWS and 1 <= depth <= CHUNK  # type: ignore[operator]
    return fits and node.type.dtype in (f32, f64) and node.inputs[1] in memory
