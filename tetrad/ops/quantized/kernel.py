"""Kernels of quantised arrays: rows rounded to 8 bits, rows of a weight as floats, all of it as
floats.
"""

from __future__ import annotations

from collections.abc import Callable

from tetrad.core.dtypes import f32, i8, i32, index
from tetrad.core.machine import LANES
from tetrad.core.sizes import ceil_div, plain, product
from tetrad.graph.group import Group
from tetrad.kernel.build import KernelBuilder, Val
from tetrad.loopnest.frame import Frame
from tetrad.ops.quantized.op import SCALE_OF_TOP, SMALLEST, dequantize, lowbit_rows, quantize_rows
from tetrad.ops.quantized.weight import Weight
from tetrad.quant.lanes import BLOCK, FIELDS, WORDS
from tetrad.schedule.nodes import Launch

ROUNDER, ROUNDER_BITS = 1.5 * 2**23, 0x4B400000

# -- rows of x -------------------------------------------------------------------------------------


@quantize_rows.kernel
def lower_quantize_rows(frame: Frame, group: Group) -> Launch:
    """One row a workgroup, 32 columns at a time in two vectors."""
    node, k = group.root, frame.k
    x, terms = node.inputs[0], int(dict(node.params).get("terms", 1))
    blocks = plain(x.type.shape[1]) // BLOCK
    slot = frame.memory.slots[node]
    codes, floats = (frame.view(slot, kind, "write") for kind in (i8, f32))
    row = k.group_id()
    base = row * (terms * blocks * (WORDS + FIELDS))
    with k.loop(blocks) as first:
        halves = [
            frame.reading.read(x, (row, first * BLOCK + LANES * h + k.lane())) for h in range(2)
        ]
        for b in (first + t * blocks for t in range(terms)):
            quantized, scale, whole, half = quantize_block(k, halves)
            for h, code in enumerate(quantized):
                k.store(codes, base * 4 + b * BLOCK + h * LANES + k.lane(), k.cast(code, i8))
            at = base + terms * blocks * WORDS + b * FIELDS
            for which, value in enumerate((scale, scale * whole, whole, half)):
                k.store(floats, at + which, value)
            halves = [
                h - k.cast(code, f32) * scale for h, code in zip(halves, quantized, strict=True)
            ]
    return frame.finish(x.type.shape[0], group, flops=product(x.type.shape) * 4 * terms)


def quantize_block(k: KernelBuilder, halves: list[Val]) -> tuple[list[Val], Val, Val, Val]:
    """Codes (i32), scale, and the sums of all codes and of those of the first half (f32).

    Magnitudes are compared as integers, which orders floats alike and puts NaN on top. Adding 1.5 *
    2**23 leaves the number rounded to even in the low bits; whatever does not fit is cut off
    afterwards.
    """
    sizes = [k.bitcast(k.abs(h), i32) for h in halves]
    top = k.bitcast(k.broadcast(butterfly(k, k.max(sizes[0], sizes[1]), k.max, (8, 4, 2, 1))), f32)
    inverse = k.select(top < SMALLEST, k.const(0.0, f32), k.const(127.0, f32) / top)
    scale = k.select(top < float("inf"), top * SCALE_OF_TOP, k.const(float("nan"), f32))
    codes = [k.bitcast(h * inverse + ROUNDER, i32) - ROUNDER_BITS for h in halves]
    codes = [k.max(k.min(c, 127), -127) for c in codes]
    both = k.select(
        k.lane() < LANES // 2, *(butterfly(k, c, lambda a, b: a + b, (8,)) for c in codes)
    )
    sums = butterfly(k, both, lambda a, b: a + b, (4, 2, 1))
    half = k.broadcast(sums, 0)
    return codes, scale, k.cast(half + k.broadcast(sums, LANES // 2), f32), k.cast(half, f32)


def butterfly(
    k: KernelBuilder, x: Val, join: Callable[[Val, Val], Val], steps: tuple[int, ...]
) -> Val:
    """Each lane joined with the one whose number differs in one bit, bit by bit."""
    for step in steps:
        x = join(x, k.shuffle(x, x, tuple(i ^ step for i in range(LANES))))
    return x


# -- rows of a weight ------------------------------------------------------------------------------


@lowbit_rows.kernel
def lower_lowbit_rows(frame: Frame, group: Group) -> Launch:
    """Row t of the result is row indices[t] of the weight: a workgroup takes a block of 32 columns
    of one row.

    The sixteen rows a block holds are all decoded into scratch, and the wanted one is stored from
    there.
    """
    node, k = group.root, frame.k
    w, indices = node.inputs
    weight = Weight(frame, w)
    out = frame.output(frame.memory.slots[node])
    rows, columns = node.type.shape
    blocks = plain(columns) // BLOCK
    t, b = k.group_id() // blocks, k.group_id() % blocks
    row = k.cast(frame.reading.wide(indices, (t,)), index)
    size = frame.sizes.val(w.type.shape[0])
    frame.reading.trap(node, w, (row < 0) | (row >= size), row)
    block = weight.block(weight.group(row // LANES), b)
    area = frame.scratch("block", f32, BLOCK * LANES)
    for i, number in enumerate(block.numbers()):
        k.store(area, i * LANES + k.lane(), number)
    k.barrier()
    for h in range(BLOCK // LANES):
        lane = h * LANES + k.lane()
        k.store(
            out,
            t * frame.sizes.val(columns) + b * BLOCK + lane,
            k.load(area, lane * LANES + row % LANES),
        )
    return frame.finish(product((rows, blocks)), group, flops=product((rows, columns)) * 2)


@dequantize.kernel
def lower_dequantize(frame: Frame, group: Group) -> Launch:
    """All numbers of a weight: a workgroup takes 32 columns of sixteen rows and turns them in
    scratch."""
    node, k = group.root, frame.k
    weight = Weight(frame, node.inputs[0])
    out = frame.output(frame.memory.slots[node])
    rows, columns = node.type.shape
    blocks = plain(columns) // BLOCK
    sixteen, b = k.group_id() // blocks, k.group_id() % blocks
    area = frame.scratch("block", f32, BLOCK * LANES)
    for i, number in enumerate(weight.block(weight.group(sixteen), b).numbers()):
        k.store(area, i * LANES + k.lane(), number)
    k.barrier()
    with k.loop(k.min(frame.sizes.val(rows) - sixteen * LANES, LANES)) as row:
        at = (sixteen * LANES + row) * frame.sizes.val(columns) + b * BLOCK
        for h in range(BLOCK // LANES):
            lane = h * LANES + k.lane()
            k.store(out, at + lane, k.load(area, lane * LANES + row))
    return frame.finish(
        product((ceil_div(rows, LANES), blocks)), group, flops=product((rows, columns)) * 2
    )
