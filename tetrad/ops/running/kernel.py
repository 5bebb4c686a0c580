"""Kernels of running sums and products: left to right, a line of the axis in each lane."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul

from tetrad.core.dtypes import f32, f64
from tetrad.core.op import Op
from tetrad.core.sizes import product
from tetrad.graph.group import Group
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.lines import Lines
from tetrad.ops.running.op import cumprod, cumprod_parts, cumsum, product_parts
from tetrad.schedule.nodes import Launch


@cumsum.kernel
@cumprod.kernel
def lower_running(frame: Frame, group: Group) -> Launch:
    """Sums or products, left to right, one line a lane; those of f32 and halves are held as f64,
    which takes no longer: each step waits for the one before. Halves are rounded to f32 on the
    way, as in `op`."""
    node, k = group.root, frame.k
    computing = node.type.dtype.computing
    wide = f64 if computing is f32 else computing
    lines = Lines(frame, node, node.param("axis"))
    out = frame.output(frame.memory.slots[node])
    exclusive, start, join = dict(node.params).get("exclusive", False), *RUNNING[node.op]

    def body() -> None:
        total = k.local(start, wide)
        with k.loop(frame.sizes.val(lines.shape[lines.axis])) as i:
            at = lines.at(i)
            before = total.get()
            total.set(join(before, k.cast(frame.reading.wide(node.inputs[0], at), wide)))
            found = k.cast(before if exclusive else total.get(), computing)
            frame.write(out, node, at, k.cast(found, node.type.dtype))

    lines.run(body)
    return frame.finish(lines.groups, group, flops=product(lines.shape))


RUNNING: dict[Op, tuple[int, Callable[[Val, Val], Val]]] = {cumsum: (0, add), cumprod: (1, mul)}


@cumprod_parts.kernel
def lower_cumprod_parts(frame: Frame, group: Group) -> Launch:
    """Running products of complex numbers along the first axis, one line a lane."""
    node, k = group.root, frame.k
    lines = Lines(frame, node, 0)
    outputs = [frame.output(slot) for slot in frame.memory.results(node)]

    def body() -> None:
        parts = [k.local(start, node.type.dtype) for start in (1.0, 0.0)]
        with k.loop(frame.sizes.val(lines.shape[0])) as i:
            (a, b), at = (part.get() for part in parts), lines.at(i)
            c, d = (frame.reading.read(operand, at) for operand in node.inputs)
            products = (c, a * c - b * d), (d, a * d + b * c)
            for part, out, (first, value) in zip(parts, outputs, products, strict=True):
                # times 1 + 0i the first might lose the sign of a 0
                part.set(k.select(i.eq(0), first, value))
                frame.write(out, node, at, part.get())

    lines.run(body)
    return frame.finish(lines.groups, group, flops=product(lines.shape) * 6)


@product_parts.kernel
def lower_product_parts(frame: Frame, group: Group) -> Launch:
    """Complex numbers multiplied in order, one line a lane."""
    node, k = group.root, frame.k
    lines = Lines(frame, node, 0)
    outputs = [frame.output(slot) for slot in frame.memory.results(node)]

    def body() -> None:
        re, im = (k.local(start, node.type.dtype) for start in (1.0, 0.0))
        with k.loop(frame.sizes.val(lines.shape[0])) as i:
            a, b = re.get(), im.get()
            c, d = (frame.reading.read(operand, lines.at(i)) for operand in node.inputs)
            re.set(a * c - b * d)
            im.set(a * d + b * c)
        for out, value in zip(outputs, (re, im), strict=True):
            k.store(out, lines.lane, value.get())

    lines.run(body)
    return frame.finish(lines.groups, group, flops=product(lines.shape) * 6)
