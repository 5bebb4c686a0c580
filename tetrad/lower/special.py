"""Lowering, ops with generators of their own: argmax, argmin, running sums and products,
scatter_add, add_at.

Each is written for one axis seen as [outer, axis, inner]; lanes run along inner where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, mul

from tetrad.core import lazy
from tetrad.core.dtypes import i64, index
from tetrad.core.errors import UnsupportedError
from tetrad.core.machine import LANES
from tetrad.core.sizes import Size, ceil_div, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import At
from tetrad.ops.rules import HALVES
from tetrad.schedule.nodes import Launch


def lower_special(group: Group, inputs: list[Node], memory: Memory) -> Launch | list[Launch]:
    name = group.root.op.name
    if (write := generator(name)) is None:
        raise UnsupportedError(
            f"{name} is not compiled yet", source=group.root.source, hint="call it outside jit"
        )
    frame = Frame(group.name, memory)
    changed = group.root.inputs[:1] if group.root.op.in_place else ()
    # Quantised operands, and complex ones of the op itself, are seen as other elements; parts are
    # read as ever.
    whole = {i for i in group.root.inputs if i.type.dtype.is_complex}
    given = (i for i in inputs if i not in changed)
    frame.reads(i for i in given if not i.type.dtype.is_quantized and i not in whole)
    return write(frame, group)


class Lines:
    """The walk of an axis-wise op: a workgroup takes 16 neighbouring lines (or one, when the axis
    is the last)."""

    def __init__(self, frame: Frame, node: Node, axis: int) -> None:
        k, shape = frame.k, node.inputs[0].type.shape
        self.frame, self.axis, self.shape = frame, axis, shape
        self.outer, self.inner = shape[:axis], shape[axis + 1 :]
        lines = product(self.inner)
        self.blocks: Size = ceil_div(lines, LANES)
        position = Space(k, frame.sizes, (product(self.outer), self.blocks), k.group_id())
        self.row = Space(k, frame.sizes, self.outer, position.span(0, 1)).axes()
        self.is_scalar = lines == 1
        self.lane = k.index(0) if self.is_scalar else position.span(1, 2) * LANES + k.lane()
        self.end = frame.sizes.val(lines)

    @property
    def groups(self) -> Size:
        return product(self.outer) * self.blocks

    def at(self, position: Val) -> At:
        return (
            *self.row,
            position,
            *Space(self.frame.k, self.frame.sizes, self.inner, self.lane).axes(),
        )

    def run(self, body: Callable[[], None]) -> None:
        if self.is_scalar:
            body()
            return
        with self.frame.k.when(self.lane < self.end, guard=True):
            body()


def lower_arg(frame: Frame, group: Group) -> Launch:
    """Position of the first extreme element; NaN is more extreme than any number."""
    node, k = group.root, frame.k
    lines = Lines(frame, node, node.param("axis"))
    out = frame.output(frame.memory.slots[node])
    better = "gt" if node.op.name == "argmax" else "lt"

    def body() -> None:
        operand = node.inputs[0]
        best = k.local(frame.reading.wide(operand, lines.at(k.index(0))))
        where = k.local(0, i64)
        with k.loop(frame.sizes.val(lines.shape[lines.axis]), 1) as i:
            value = frame.reading.wide(operand, lines.at(i))
            wins = k.compare(better, value, best)
            if value.dtype.is_float:
                wins = (wins | value.ne(value)) & best.get().eq(best)
            where.set(k.select(wins, k.cast(i, i64), where))
            best.set(k.select(wins, value, best))
        at = (*lines.row, *lines.at(k.index(0))[len(lines.row) + 1 :])
        frame.write(out, node, at, where.get())

    lines.run(body)
    return frame.finish(lines.groups, group, flops=product(lines.shape))


def lower_running(frame: Frame, group: Group) -> Launch:
    """Sums or products, left to right, one line a lane."""
    node, k = group.root, frame.k
    lines = Lines(frame, node, node.param("axis"))
    out = frame.output(frame.memory.slots[node])
    exclusive, start, join = dict(node.params).get("exclusive", False), *RUNNING[node.op.name]

    def body() -> None:
        total = k.local(start, node.type.dtype.computing)
        with k.loop(frame.sizes.val(lines.shape[lines.axis])) as i:
            at = lines.at(i)
            before = total.get()
            total.set(join(before, frame.reading.wide(node.inputs[0], at)))
            frame.write(
                out, node, at, k.cast(before if exclusive else total.get(), node.type.dtype)
            )

    lines.run(body)
    return frame.finish(lines.groups, group, flops=product(lines.shape))


RUNNING: dict[str, tuple[int, Callable[[Val, Val], Val]]] = {
    "cumsum": (0, add),
    "cumprod": (1, mul),
}


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


def lower_scatter_add(frame: Frame, group: Group) -> Launch:
    """Zero, then updates in order; a workgroup owns 16 columns of the trailing axes, so no two
    write one element.

    Sums of halves wait in scratch as f32: each is rounded once, at the end.
    """
    node, k = group.root, frame.k
    updates, indices = node.inputs
    dtype, wide = node.type.dtype, node.type.dtype.computing
    size, columns = node.type.shape[0], product(node.type.shape[1:])
    n, width = frame.sizes.val(size), frame.sizes.val(columns)
    column = k.index(0) if columns == 1 else k.group_id() * LANES + k.lane()
    is_half = dtype in HALVES
    out = frame.output(frame.memory.slots[node], "write" if is_half else "readwrite")
    own = frame.scratch if columns == 1 else frame.private
    sums = own("sums", wide, size * LANES) if is_half else out

    def place(row: Val) -> Val:
        if not is_half:
            return row * width + column
        return row * LANES + (k.index(0) if columns == 1 else k.lane())

    def body() -> None:
        with k.loop(n) as row:
            k.store(sums, place(row), k.const(0, sums.dtype))
        with k.loop(frame.sizes.val(updates.type.shape[0])) as i:
            where = place(checked_index(frame, node, indices, i, n))
            at = (i, *Space(k, frame.sizes, node.type.shape[1:], column).axes())
            total = k.cast(k.load(sums, where), wide) + frame.reading.wide(updates, at)
            if columns == 1:
                k.barrier()  # all invocations add to one column: all have read before any writes
            k.store(sums, where, k.cast(total, sums.dtype))
        if is_half:
            with k.loop(n) as row:
                k.store(out, row * width + column, k.cast(k.load(sums, place(row)), dtype))

    if columns == 1:
        body()
    else:
        with k.when(column < width, guard=True):
            body()
    return frame.finish(ceil_div(columns, LANES), group, flops=product(updates.type.shape))


def lower_add_at(frame: Frame, group: Group) -> Launch | list[Launch]:
    """Updates in order, where the array lies; a workgroup owns 16 columns of the trailing axes."""
    node, k = group.root, frame.k
    _, updates, indices = node.inputs
    if 0 in updates.type.shape:
        return []
    dtype, columns = node.type.dtype, product(node.type.shape[1:])
    n, width = frame.sizes.val(node.type.shape[0]), frame.sizes.val(columns)
    column = k.index(0) if columns == 1 else k.group_id() * LANES + k.lane()
    out = frame.output(frame.memory.slots[node], "readwrite")

    def body() -> None:
        with k.loop(frame.sizes.val(updates.type.shape[0])) as i:
            where = checked_index(frame, node, indices, i, n) * width + column
            at = (i, *Space(k, frame.sizes, node.type.shape[1:], column).axes())
            total = k.cast(k.load(out, where), dtype.computing) + frame.reading.wide(updates, at)
            if columns == 1:
                k.barrier()  # every invocation has read what all of them write
            k.store(out, where, k.cast(total, dtype))

    if columns == 1:
        body()
    else:
        with k.when(column < width, guard=True):
            body()
    changed = frozenset({frame.memory.slots[node]})
    return frame.finish(
        ceil_div(columns, LANES), group, flops=product(updates.type.shape), updates=changed
    )


def checked_index(frame: Frame, node: Node, indices: Node, i: Val, size: Val) -> Val:
    """indices[i] with negative ones counted from the end; out of range stops the program."""
    k = frame.k
    raw = k.cast(frame.reading.wide(indices, (i,)), index)
    row = k.select(raw < 0, raw + size, raw)
    bad = (row < 0) | (row >= size)
    frame.reading.trap(node, node, bad, raw)
    return row


Generator = Callable[[Frame, Group], Launch | list[Launch]]
GENERATORS: dict[str, Generator] = {
    "add_at": lower_add_at,
    "after": lambda frame, group: [],
    "argmax": lower_arg,
    "argmin": lower_arg,
    "cumprod": lower_running,
    "cumprod_parts": lower_cumprod_parts,
    "cumsum": lower_running,
    "product_parts": lower_product_parts,
    "scatter_add": lower_scatter_add,
}

# Generators in folders of ops, which are loaded when a program needs them: op -> file
ELSEWHERE = {
    "argsort": "sort.kernel", "sort": "sort.kernel", "topk": "sort.kernel",
    "attention": "attention.kernel", "attention_gradient": "attention.gradient_kernel",
    "put_cache": "attention.cache_kernel",
    "put_scales": "attention.cache_kernel",
    "dequantize": "quantized_matmul.float_rows", "dynamic_update_slice": "dynamic.kernel",
    "interleave": "quantized_matmul.layout", "expert_matmul": "quantized_matmul.experts_kernel",
    "top_experts": "quantized_matmul.experts_kernel", "row_matmul": "matmul.weight_rows",
    "fft": "fft.kernel", "rfft": "fft.kernel", "irfft": "fft.kernel",
    "lowbit_rows": "quantized_matmul.int8_rows", "quantize_rows": "quantized_matmul.int8_rows",
    "sample": "sampling.kernel", "top_tokens": "sampling.kernel",
    "lu": "linalg.lapack", "linear_solve": "linalg.lapack", "triangular_solve": "linalg.lapack",
    "cholesky": "linalg.lapack", "qr": "linalg.lapack", "eig": "linalg.lapack",
    "eigvals": "linalg.lapack",
    "eigh": "linalg.lapack", "eigvalsh": "linalg.lapack", "svd": "linalg.lapack",
    "svdvals": "linalg.lapack",
    "lu_det": "linalg.small_systems",
}  # fmt: skip
SHARED = {  # op -> whose function
    "rfft": "fft", "irfft": "fft", "eigvals": "eig", "eigvalsh": "eigh", "svdvals": "svd",
    "lu_det": "det",
}  # fmt: skip


def generator(name: str) -> Generator | None:
    """The function that writes the kernels of an op: `lower_<name>`."""
    if name in ELSEWHERE:
        found: Generator = getattr(
            lazy.module(f"tetrad.ops.{ELSEWHERE[name]}"), f"lower_{SHARED.get(name, name)}"
        )
        return found
    return GENERATORS.get(name)
