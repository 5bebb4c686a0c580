"""Kernel language, library, layout: a transpose through tiles, a checked gather."""

from __future__ import annotations

import numpy as np

from tetrad.core.dtypes import f32, i32, index
from tetrad.kernel.build import KernelBuilder
from tetrad.kernel.nodes import Program
from tetrad.kernel.registry import Example, Sample, register

OUTSIDE = 2  # trap of the gather: an index that is not in the table


@register("tetrad::layout::transpose", category="layout", grid=(1, 1, 1))
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


@transpose.cases
def transpose_cases() -> list[Example]:
    x = np.array([[1, 2, 3], [4, 5, 6]], "<f4")
    y = np.array([[1, 4], [2, 5], [3, 6]], "<f4")
    return [Example((x.tobytes(),), (y.tobytes(),))]


@transpose.sampler
def transpose_sample(rng: np.random.Generator) -> Sample:
    rows, cols, tile = (
        int(rng.integers(1, 40)),
        int(rng.integers(1, 40)),
        int(rng.choice([1, 3, 4, 8, 16])),
    )
    x = rng.normal(size=(rows, cols)).astype("<f4")
    grid = (-(-cols // tile), -(-rows // tile), 1)
    return Sample(
        transpose.build(rows, cols, tile), Example((x.tobytes(),), (x.T.tobytes(),)), grid
    )


@register("tetrad::layout::gather", category="layout", grid=(1, 1, 1))
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


@gather.cases
def gather_cases() -> list[Example]:
    x, at = np.array([10, 20, 30, 40], "<f4"), np.array([3, 0, 3], "<i4")
    return [Example((x.tobytes(), at.tobytes()), (np.array([40, 10, 40], "<f4").tobytes(),))]


@gather.sampler
def gather_sample(rng: np.random.Generator) -> Sample:
    table, count = int(rng.integers(1, 50)), int(rng.integers(1, 100))
    x, at = rng.normal(size=table).astype("<f4"), rng.integers(0, table, count).astype("<i4")
    case = Example((x.tobytes(), at.tobytes()), (x[at].tobytes(),))
    return Sample(gather.build(table, count), case, (-(-count // 16), 1, 1))
