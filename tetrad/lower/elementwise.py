"""Lowering, elementwise: one walk over an index space, every output of the group written in it.

Two shapes of kernel. *Flat*: everything is read at the position it is written, so the space is one
axis and lanes run along it. *Rows*: a workgroup takes a stretch of the last axis in one row; lanes
run along the last axis, row positions are scalars.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.dtypes import DType
from tetrad.core.machine import LANES
from tetrad.core.sizes import Shape, Size, ceil_div, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node, topological
from tetrad.kernel.build import Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.complex import held_as
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import At, splat_value
from tetrad.passes.questions import weight
from tetrad.schedule.nodes import Launch, Slot

# vectors of a flat workgroup with light work; heavy work has one, and a quarter of the code
FLAT_VECTORS = 4
LIGHT = 8  # operations an element up to which work counts as light
STRETCH = 2048  # elements of the last axis one workgroup takes


def lower_map(group: Group, inputs: list[Node], memory: Memory) -> Launch:
    nodes = computed(group, inputs)
    frame = Frame(map_name(nodes) or group.name, memory)
    frame.reads(inputs)
    outputs = [(node, frame.output(memory.slots[node])) for node in group.outputs]
    shape = group.root.type.shape
    elsewhere = read_elsewhere(group, set(inputs))
    frame.is_light = sum(map(weight, nodes)) <= LIGHT
    groups = (walk_rows if elsewhere and shape else walk_flat)(
        frame, shape, lambda at: store_all(frame, outputs, at)
    )
    pairs = inplace_pairs(group, [i for i in inputs if i not in elsewhere], memory)
    partly = hardly_read(group, inputs, memory).intersection(frame.slots)
    return frame.finish(groups, group, inplace=pairs, partly=partly, flops=operations(nodes))


def hardly_read(group: Group, inputs: list[Node], memory: Memory) -> frozenset[Slot]:
    """Inputs much larger than the result: an element of it reads one of theirs, or a few."""
    count = group.root.type.size
    large = [
        i
        for i in inputs
        if isinstance(count, int) and isinstance(i.type.size, int) and i.type.size > 8 * count
    ]
    return frozenset(memory.slots[i] for i in large)


def accumulator(node: Node) -> DType:
    """The dtype in which a reduction folds."""
    return node.type.dtype.computing


def copy_launch(source: Slot, result: Slot, memory: Memory) -> Launch:
    """result = source, element by element."""
    frame = Frame("copy", memory)
    read, written = frame.input(source), frame.output(result)
    total = product(source.type.shape) * held_as(source.type.dtype)[1]

    def body(position: Val) -> None:
        frame.k.store(written, position, frame.k.load(read, position))

    guarded_vectors(frame, frame.k.group_id() * (LANES * FLAT_VECTORS), total, FLAT_VECTORS, body)
    return frame.finish(ceil_div(total, LANES * FLAT_VECTORS))


def computed(group: Group, inputs: list[Node]) -> list[Node]:
    """The nodes a kernel computes, operands first: its members, and what has no memory and is
    computed on the spot."""
    read = (node for node in inputs if node not in group.members)
    return [node for node in topological(group.outputs, known=read) if not node.op.leaf]


def map_name(nodes: list[Node]) -> str:
    return "_".join(dict.fromkeys(node.op.name for node in nodes if node.op.kind == "elementwise"))[
        :60
    ]


def operations(nodes: list[Node]) -> Size:
    """Roughly: those on elements, and the steps of reductions."""
    total: Size = 0
    for node in nodes:
        if node.op.kind == "elementwise":
            total = total + product(node.type.shape) * node.op.cost
        elif node.op.kind == "reduce":
            total = total + product(node.inputs[0].type.shape)
    return total


def walk_flat(frame: Frame, shape: Shape, store: Callable[[At], None]) -> Size:
    k, total = frame.k, product(shape)
    if not shape:
        store(())
        return 1
    count = FLAT_VECTORS if frame.is_light else 1
    first = k.group_id() * (LANES * count)

    def body(position: Val) -> None:
        store(Space(k, frame.sizes, shape, position).axes())

    guarded_vectors(frame, first, total, count, body)
    return ceil_div(total, LANES * count)


def guarded_vectors(
    frame: Frame, first: Val, total: Size, count: int, body: Callable[[Val], None]
) -> None:
    """body(position) for `count` vectors from `first`; a short last workgroup goes vector by vector
    under a mask."""
    k = frame.k
    end = frame.sizes.val(total)
    if isinstance(total, int) and total % (LANES * count) == 0:
        for v in range(count):
            body(first + LANES * v + k.lane())
        return
    if count == 1:
        with frame.within(first + k.lane(), end, total):
            body(first + k.lane())
        return
    full = first + LANES * count <= end
    with k.when(full):
        for v in range(count):
            body(first + LANES * v + k.lane())
    with k.otherwise(), k.loop(count, always=True) as vector:
        position = first + vector * LANES + k.lane()
        with k.when(position < end, guard=True):
            body(position)


def walk_rows(frame: Frame, shape: Shape, store: Callable[[At], None]) -> Size:
    k = frame.k
    rows, last = shape[:-1], shape[-1]
    blocks = ceil_div(last, STRETCH)
    row, first = k.group_id(), k.index(0)
    if blocks != 1:
        row, first = row // frame.sizes.val(blocks), (row % frame.sizes.val(blocks)) * STRETCH
    outer = Space(k, frame.sizes, rows, row).axes()
    stop = frame.sizes.val(last) if blocks == 1 else k.min(first + STRETCH, frame.sizes.val(last))
    with k.loop(stop, first, LANES, always=True) as column:
        position = column + k.lane()
        with frame.within(position, stop, last):
            store((*outer, position))
    return product(rows) * blocks


def store_all(frame: Frame, outputs: list[tuple[Node, Buffer]], at: At) -> None:
    """Everything is read before anything is written: an output may lie where an input of another
    one lay."""
    values = [parts_of(frame, node, at) for node, _ in outputs]
    for (node, buffer), value in zip(outputs, values, strict=True):
        frame.write(buffer, node, at, *value)


def parts_of(frame: Frame, node: Node, at: At) -> tuple[Val, ...]:
    """The element, or the two parts of a complex one."""
    if node.type.dtype.is_complex:
        return tuple(frame.reading.part(node, at, which) for which in (0, 1))
    return (frame.reading.read(node, at),)


def read_elsewhere(group: Group, inputs: set[Node]) -> set[Node]:
    """What is read, or computed on the spot, at other places than the flat position written."""
    elsewhere: set[Node] = set()
    stack, seen = [(node, False) for node in group.outputs], set(group.outputs)
    while stack:
        node, is_moved = stack.pop()
        is_moved = is_moved or (node.op.kind != "elementwise" and not node.op.view)
        for operand in node.inputs:
            known = elsewhere if is_moved else seen
            if operand in known or splat_value(operand) is not None:
                continue
            known.add(operand)
            if operand not in inputs and not operand.op.leaf:
                stack.append((operand, is_moved))
    return elsewhere


def inplace_pairs(
    group: Group, inputs: list[Node], memory: Memory
) -> tuple[tuple[Slot, Slot], ...]:
    """A map reads these inputs where it writes, and each element before it writes it: an output may
    take over one of the same size."""
    pairs = []
    for output in group.outputs:
        for node in inputs:
            same = (
                node.type.shape == output.type.shape
                and node.type.dtype.nbytes == output.type.dtype.nbytes
            )
            if splat_value(node) is None and same:
                pairs.append((memory.slots[output], memory.slots[node]))
    return tuple(pairs)
