"""layout: operands above users, boxes of a layer apart, edges from box to box."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tetrad.explain.layout import GAP, lay_out, spread


@given(st.integers(0, 10**6), st.integers(0, 60))
def test_random_graphs(seed: int, count: int) -> None:
    rng = random.Random(seed)
    widths = {i: rng.uniform(20, 200) for i in range(count)}
    edges = [(rng.randrange(i), i) for i in range(1, count) for _ in range(rng.randrange(3))]
    layout = lay_out(widths, edges)
    assert set(layout.centres) == set(widths) and set(layout.edges) == set(edges)
    for (a, b), path in layout.edges.items():
        assert path[0] == layout.centres[a] and path[-1] == layout.centres[b]
        assert [y for _, y in path] == sorted({y for _, y in path})
    boxes = sorted((y, x, widths[i]) for i, (x, y) in layout.centres.items())
    for (y0, x0, w0), (y1, x1, w1) in pairwise(boxes):
        assert y0 != y1 or x1 - x0 >= (w0 + w1) / 2 + GAP - 1e-6
    for y, x, width in boxes:
        assert x - width / 2 >= -1e-6 and x + width / 2 <= layout.width + 1e-6 and y < layout.height


@given(st.lists(st.tuples(st.floats(-100, 100), st.floats(0, 10)), max_size=30))
def test_positions_keep_their_distance_and_move_no_more_than_they_must(
    pairs: list[tuple[float, float]],
) -> None:
    wanted, distance = [w for w, _ in pairs], [d for _, d in pairs]
    got = spread(wanted, distance)
    assert all(b - a >= d - 1e-9 for a, b, d in zip(got, got[1:], distance[1:], strict=False))
    if all(b - a >= d for a, b, d in zip(wanted, wanted[1:], distance[1:], strict=False)):
        assert all(abs(a - b) < 1e-9 for a, b in zip(got, wanted, strict=True))
