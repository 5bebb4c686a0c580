"""Explain, layout: where the boxes of a graph go. Operands above users, few crossings, short
straight edges.

Receives boxes with widths and edges between them; returns the centre of every box and the points of
every edge. The steps are those of Sugiyama, Tagawa and Toda (1981): layers by longest path, order
within layers by the middle of the neighbours, positions by least squares under the order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise

from tetrad.core.record import field, record

LAYER_HEIGHT = 70.0
GAP = 18.0  # between boxes of a layer
BEND = 10.0  # width an edge takes where it passes a layer
SWEEPS = 12
ROUNDS = 10

Box = Hashable
Edge = tuple[Box, Box]
Point = tuple[float, float]


@record
class Drawing:
    centres: Mapping[Box, Point]
    edges: Mapping[Edge, tuple[Point, ...]]
    width: float
    height: float


@record(frozen=False)
class _Layers:
    """Boxes and bends by layer, in order, with the neighbours each has above and below."""

    rows: list[list[Box]]
    above: dict[Box, list[Box]] = field(default_factory=lambda: defaultdict(list))
    below: dict[Box, list[Box]] = field(default_factory=lambda: defaultdict(list))
    chains: dict[Edge, list[Box]] = field(default_factory=dict)


def lay_out(widths: Mapping[Box, float], edges: Sequence[Edge]) -> Drawing:
    """Positions for boxes given operands first (as a topological order lists them).

    >>> lay_out({"a": 20, "b": 20}, [("a", "b")]).centres
    {'a': (10.0, 35.0), 'b': (10.0, 105.0)}
    """
    layers = with_bends(layer_numbers(list(widths), edges), edges)
    order(layers)
    x = positions(layers, widths)
    rows = {box: i for i, row in enumerate(layers.rows) for box in row}
    left = min((x[b] - size(b, widths) / 2 for b in rows), default=0.0)
    right = max((x[b] + size(b, widths) / 2 for b in rows), default=0.0)
    at = {box: (x[box] - left, (row + 0.5) * LAYER_HEIGHT) for box, row in rows.items()}
    paths = {edge: tuple(at[b] for b in chain) for edge, chain in layers.chains.items()}
    return Drawing({b: at[b] for b in widths}, paths, right - left, len(layers.rows) * LAYER_HEIGHT)


def size(box: Box, widths: Mapping[Box, float]) -> float:
    return widths.get(box, BEND)


def layer_numbers(boxes: Sequence[Box], edges: Sequence[Edge]) -> dict[Box, int]:
    """One below the lowest operand; boxes without operands, and chains that begin there, go right
    above their users."""
    operands, users = defaultdict(list), defaultdict(list)
    for a, b in edges:
        operands[b].append(a)
        users[a].append(b)
    layer: dict[Box, int] = {}
    for box in boxes:
        layer[box] = 1 + max((layer[o] for o in operands[box]), default=-1)
    for box in reversed(boxes):
        if (
            users[box]
            and len(operands[box]) <= 1
            and all(len(users[o]) == 1 for o in operands[box])
        ):
            layer[box] = min(layer[u] for u in users[box]) - 1
    return layer


def with_bends(layer: Mapping[Box, int], edges: Sequence[Edge]) -> _Layers:
    """Edges that pass layers get a bend in each."""
    made = _Layers([[] for _ in range(max(layer.values(), default=-1) + 1)])
    for box, row in layer.items():
        made.rows[row].append(box)
    for a, b in dict.fromkeys(edges):
        bends: list[Box] = [("bend", a, b, row) for row in range(layer[a] + 1, layer[b])]
        for row, bend in enumerate(bends, layer[a] + 1):
            made.rows[row].append(bend)
        chain = [a, *bends, b]
        made.chains[a, b] = chain
        for upper, lower in pairwise(chain):
            made.below[upper].append(lower)
            made.above[lower].append(upper)
    return made


def order(layers: _Layers) -> None:
    """Sort each layer by the mean place of its neighbours, downwards and upwards in turn."""
    place: dict[Box, float] = {}
    for row in layers.rows:
        place.update((box, float(i)) for i, box in enumerate(row))
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        neighbours = layers.above if down else layers.below
        for row in layers.rows if down else reversed(layers.rows):
            wanted = {box: mean([place[n] for n in neighbours[box]], place[box]) for box in row}
            row.sort(key=wanted.__getitem__)
            place.update((box, float(i)) for i, box in enumerate(row))


def positions(layers: _Layers, widths: Mapping[Box, float]) -> dict[Box, float]:
    """Each box as near to the middle of its neighbours as the order and the gaps allow."""
    x: dict[Box, float] = {}
    for row in layers.rows:
        x.update(zip(row, spread([0.0] * len(row), gaps(row, widths)), strict=True))
    for turn in range(ROUNDS):
        down = turn % 2 == 0
        for row in layers.rows if down else reversed(layers.rows):
            near = layers.above if down else layers.below
            wanted = [mean([x[n] for n in near[box]], x[box]) for box in row]
            x.update(zip(row, spread(wanted, gaps(row, widths)), strict=True))
    return x


def gaps(row: Sequence[Box], widths: Mapping[Box, float]) -> list[float]:
    """The least distance of each box from the one before it."""
    return [0.0, *((size(a, widths) + size(b, widths)) / 2 + GAP for a, b in pairwise(row))][
        : len(row)
    ]


def spread(wanted: Sequence[float], distance: Sequence[float]) -> list[float]:
    """The positions nearest to those wanted, in least squares, that keep the distances: isotonic
    regression.

    >>> spread([0, 0, 9], [0, 2, 2])
    [-1.0, 1.0, 9.0]
    """
    shift, total = [], 0.0
    for gap in distance:
        total += gap
        shift.append(total)
    blocks: list[tuple[float, int]] = []  # mean, how many
    for target, offset in zip(wanted, shift, strict=True):
        value, count = target - offset, 1
        while blocks and blocks[-1][0] > value:
            before, number = blocks.pop()
            value, count = (value * count + before * number) / (count + number), count + number
        blocks.append((value, count))
    flat = [value for value, count in blocks for _ in range(count)]
    return [value + offset for value, offset in zip(flat, shift, strict=True)]


def mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
