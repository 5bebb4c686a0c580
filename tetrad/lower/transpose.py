"""Lowering, transposes: tiles of 16 x 16 turned in registers, so that both sides of memory are walked in rows.

The tile pairs the axis that is last in the operand with the axis that is last in the result; all other axes are walked
by scalars.
"""

from __future__ import annotations

from tetrad.core.sizes import Size, ceil_div, product
from tetrad.graph.nodes import Node
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.lower.frame import LANES, Frame, Memory
from tetrad.lower.index import Space
from tetrad.lower.launch import Launch
from tetrad.lower.reader import At
from tetrad.passes.fuse import Group

BAND = 4  # tiles along the operand's last axis in one workgroup: whole cache lines of the result


def lower_transpose(group: Group, inputs: list[Node], memory: Memory) -> Launch:
    node = group.root
    frame = Frame(group.name, memory)
    frame.is_light = True
    k, sizes = frame.k, frame.sizes
    frame.reads(inputs)
    out = frame.output(memory.slots[node])
    shape, perm = node.inputs[0].type.shape, node.param("perm")
    wide = [axis for axis, n in enumerate(shape) if n != 1]
    lane_in, lane_out = wide[-1], [p for p in perm if shape[p] != 1][-1]
    others = tuple(n if a not in (lane_in, lane_out) else 1 for a, n in enumerate(shape))
    across, along = ceil_div(shape[lane_out], LANES), ceil_div(shape[lane_in], LANES * BAND)
    grid: tuple[Size, ...] = (product(others), across, along)
    position = Space(k, sizes, grid, k.group_id())
    rest = Space(k, sizes, others, position.span(0, 1)).axes()
    row0, col0 = position.span(1, 2) * LANES, position.span(2, 3) * (LANES * BAND)
    rows, cols = sizes.val(shape[lane_out]), sizes.val(shape[lane_in])

    def element(row: Val, col: Val) -> Val:
        return frame.reading.read(node.inputs[0], replaced(rest, {lane_out: row, lane_in: col}))

    def result_at(row: Val, col: Val) -> At:
        source = replaced(rest, {lane_out: row, lane_in: col})
        return tuple(source[p] for p in perm)

    def by_tiles() -> None:
        with k.loop(col0 + LANES * BAND, col0, LANES, always=True) as column:  # written out, it takes long to compile
            tile = [element(row0 + i, column + k.lane()) for i in range(LANES)]
            for i, vector in enumerate(turned(k, tile)):
                frame.write(out, node, result_at(row0 + k.lane(), column + i), vector)

    def by_columns() -> None:
        with k.loop(k.min(col0 + LANES * BAND, cols), col0) as col:
            row = row0 + k.lane()
            with k.when(row < rows, guard=True):
                frame.write(out, node, result_at(row, col), element(row, col))

    if is_below(shape[lane_out], LANES) or is_below(shape[lane_in], LANES * BAND):
        by_columns()
        return frame.finish(product(grid), group)
    with k.when((row0 + LANES <= rows) & (col0 + LANES * BAND <= cols)):
        by_tiles()
    with k.otherwise():
        by_columns()
    return frame.finish(product(grid), group)


def is_below(size: Size, least: int) -> bool:
    """Is it known that there is no whole tile?"""
    return isinstance(size, int) and size < least


def replaced(at: At, changes: dict[int, Val]) -> At:
    return tuple(changes.get(axis, i) for axis, i in enumerate(at))


def turned(k: KernelBuilder, tile: list[Val]) -> list[Val]:
    """The transpose of 16 vectors of 16 lanes: four rounds of exchanging blocks of 8, 4, 2 and 1."""
    width = LANES // 2
    while width:
        done: list[Val | None] = [None] * LANES
        for i in range(LANES):
            if i & width:
                continue
            a, b = tile[i], tile[i + width]
            done[i] = k.shuffle(a, b, exchange(width, low=True))
            done[i + width] = k.shuffle(a, b, exchange(width, low=False))
        tile = [v for v in done if v is not None]
        width //= 2
    return tile


def exchange(width: int, *, low: bool) -> tuple[int, ...]:
    """Blocks of `width` lanes, alternately from a and from b: the low blocks of both, or the high ones."""
    start = 0 if low else width
    return tuple((i & ~width) + start if not i & width else LANES + (i & ~width) + start for i in range(LANES))
