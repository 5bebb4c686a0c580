"""Kernel language, library, layout: a transpose through tiles, a checked gather."""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import f32, i32, index
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.nodes import Program
from tetrad.kernel.packing import pack
from tetrad.kernel.registry import ExpectedTrap, Grid, Sample, register

OUTSIDE = 2  # trap of the gather: an index that is not in the table


def tiles(rows: int = 2, cols: int = 3, tile: int = 4) -> Grid:
    return (-(-cols // tile), -(-rows // tile), 1)


@register(
    "tetrad::layout::transpose",
    category="layout",
    grid=tiles,
    inputs=[[pack([1, 2, 3, 4, 5, 6], f32)]],
    expected=[[pack([1, 4, 2, 5, 3, 6], f32)]],
)
def transpose(rows: int = 2, cols: int = 3, tile: int = 4) -> Program:
    """y[c, r] = x[r, c]: a tile is read along rows, turned in scratch and written along rows."""
    k = KernelBuilder("transpose", (tile, tile, 1))
    size = rows * cols
    x, y = k.buffer("x", f32, count=size), k.buffer("y", f32, "write", size)
    held = k.scratch("held", f32, tile * tile)
    i, j = k.lane(0), k.lane(1)
    across, down = k.group_id(0) * tile, k.group_id(1) * tile
    with k.when((down + j < rows) & (across + i < cols)):
        k.store(held, j * tile + i, k.load(x, (down + j) * cols + across + i))
    k.barrier()
    with k.when((across + j < cols) & (down + i < rows)):
        k.store(y, (across + j) * rows + down + i, k.load(held, i * tile + j))
    return k.finish()


@transpose.sampler
def transpose_sample(rng: np.random.Generator) -> Sample:
    rows, cols, tile = (
        int(rng.integers(1, 40)),
        int(rng.integers(1, 40)),
        int(rng.choice([1, 3, 4, 8, 16])),
    )
    x = rng.normal(size=(rows, cols)).astype("<f4")
    return Sample((rows, cols, tile), (x.tobytes(),), (x.T.tobytes(),))


TABLE = pack([10, 20, 30, 40], f32)


@register(
    "tetrad::layout::gather",
    category="layout",
    inputs=[[TABLE, pack([3, 0, 3], i32)], [TABLE, pack([1, 9, -3], i32)]],
    expected=[[pack([40, 10, 40], f32)], ExpectedTrap(OUTSIDE, 9)],
)
def gather(table: int = 4, count: int = 3) -> Program:
    """y[i] = x[at[i]]; an index outside the table is trap OUTSIDE."""
    k = KernelBuilder("gather", 16)
    x, at, y = (
        k.buffer("x", f32, count=table),
        k.buffer("at", i32, count=count),
        k.buffer("y", f32, "write", count),
    )
    i = k.global_id()
    with k.when(i < count, guard=True):
        where = k.cast(k.load(at, i), index)
        k.trap((where < 0) | (where >= table), OUTSIDE, where)
        k.store(y, i, k.load(x, where))
    return k.finish()


@gather.sampler
def gather_sample(rng: np.random.Generator) -> Sample:
    table, count = int(rng.integers(1, 50)), int(rng.integers(1, 100))
    x, at = rng.normal(size=table).astype("<f4"), rng.integers(0, table, count).astype("<i4")
    return Sample((table, count), (x.tobytes(), at.tobytes()), (x[at].tobytes(),))
