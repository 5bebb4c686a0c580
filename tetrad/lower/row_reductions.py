"""Lowering, row reductions: reductions over trailing axes and everything that works on the same
rows, in one kernel.

A workgroup takes one row and sweeps over it as often as reductions depend on each other (softmax:
maximum, then sum, then the result). Values too dear to compute twice stay in scratch between
sweeps. The order of every sum is canonical (docs/numerics.md): chunks of 4096, 64 interleaved
partials in a chunk joined by a halving tree, chunks by a pairwise tree.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tetrad.core.machine import LANES
from tetrad.core.sizes import Shape, Size, ceil_div, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node, topological
from tetrad.kernel.build import KernelBuilder, LocalVar, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame, Memory
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import At
from tetrad.lower.column_sums import ColumnSums
from tetrad.lower.elementwise import accumulator, computed, operations
from tetrad.lower.short_rows import is_short, lower_short_rows
from tetrad.passes.questions import row_shape
from tetrad.schedule.nodes import Launch, Slot

CHUNK = 4096
PARTIALS = 4  # vectors of partial results: 4 x 16 = 64
KEEP_COST = 8  # operations above which a value used in a later sweep is kept, not computed again
SPLIT_SIZE = 16384  # a row this long, in a group with few rows, is spread over workgroups
FEW_ROWS = 32
# elements of a row up to which the next one is fetched: both are in the second cache
FETCHED = 16384


def lower_rows(group: Group, inputs: list[Node], memory: Memory) -> list[Launch]:
    outer, inner = row_shape(group.root)
    if is_split(group, outer, inner):
        return split_rows(group, inputs, memory, outer, inner)
    if is_short(group, inputs, outer, inner):
        return [lower_short_rows(group, inputs, memory, outer, inner)]
    return Sweeps(group, inputs, memory, outer, inner).launches()


class Sweeps:
    """The kernel of a rows group: one row per workgroup (or a chunk of rows, if columns are summed
    too), one loop over the row per stage."""

    def __init__(
        self, group: Group, inputs: list[Node], memory: Memory, outer: Shape, inner: Shape
    ) -> None:
        self.group, self.outer, self.inner = group, outer, inner
        self.frame = Frame(group.name, memory)
        self.k, self.reading = self.frame.k, self.frame.reading
        self.frame.reads(inputs)
        self.work = operations(computed(group, inputs))
        self.columns = ColumnSums(self.frame, group, outer, inner)
        self.buffers = {
            node: self.frame.output(memory.slots[node])
            for node in group.outputs
            if node not in self.columns.nodes
        }
        self.position = self.k.group_id()
        self.row = Space(self.k, self.frame.sizes, outer, self.position)
        self.stage = stages(group.members)
        self.reductions = [
            m for m in group.members if m.op.kind == "reduce" and m not in self.columns.nodes
        ]
        self.last = max(self.stage[r] for r in self.reductions)
        self.column = self.k.index(0)
        self.kept = {
            n: self.frame.private("kept", n.type.dtype, product(inner))
            for n in self.worth_keeping()
        }
        self.frame.is_light = all(n in self.kept for n in group.members if self.is_dear(n))

    def launches(self) -> list[Launch]:
        if not self.columns.nodes:
            self.sweep_row()
            return [self.frame.finish(product(self.outer), self.group, flops=self.work)]
        with self.columns.every_row() as self.position:
            self.row = Space(self.k, self.frame.sizes, self.outer, self.position)
            self.sweep_row()
        self.columns.store()
        first = self.frame.finish(self.columns.chunks, self.group, flops=self.work)
        return [first, *self.columns.join(self.group)]

    def sweep_row(self) -> None:
        for stage in range(1 + self.last):
            self.reduce_sweep(stage, [r for r in self.reductions if self.stage[r] == stage])
        self.final_sweep([n for n in self.buffers if self.is_full(n)])

    def is_full(self, node: Node) -> bool:
        return node.type.shape == self.outer + self.inner and (
            bool(self.inner) and node.type.shape != self.outer
        )

    def at(self, column: Val) -> At:
        flat = (
            Space(self.k, self.frame.sizes, self.inner, column).axes()
            if len(self.inner) != 1
            else (column,)
        )
        return (*self.row.axes(), *flat)

    def reduce_sweep(self, stage: int, reductions: list[Node]) -> None:
        results = reduce_chunks(self.frame, reductions, product(self.inner), self.element)
        for node, value in results.items():
            done = self.k.cast(value, node.type.dtype)
            self.reading.provided[node] = always(done)
            self.store_row_values(node)
        self.keep(stage)

    def element(self, node: Node, column: Val) -> Val:
        """The operand of a reduction at a column; what a later sweep wants again goes to scratch on
        the way."""
        self.column, at = column, self.at(column)
        if self.stage[node] == self.last:
            self.fetch_ahead(column)
        value = self.reading.wide(node.inputs[0], at)
        for kept, buffer in self.kept.items():
            if (
                kept in ancestors(node.inputs[0], self.group.members)
                and kept not in self.reading.provided
            ):
                self.k.store(buffer, column, self.reading.read(kept, at))
        return value

    def fetch_ahead(self, column: Val) -> None:
        """The next row on its way while the last sweep has this one at hand: processors stop at the
        end of a page."""
        total = product(self.inner)
        if not isinstance(total, int) or total > FETCHED:
            return
        for node, buffer in self.reading.buffers.items():
            if node.type.shape == self.outer + self.inner:
                self.k.prefetch(buffer, (self.position + 1) * total + column)

    def worth_keeping(self) -> list[Node]:
        """Costly full-size members that more than one sweep needs."""
        sweeps = [[r.inputs[0]] for r in self.reductions]
        summed = [n.inputs[0] for n in self.columns.nodes]
        sweeps.append([*(n for n in self.buffers if self.is_full(n)), *summed])
        found = []
        for node in self.group.members:
            wanted = sum(
                any(node in ancestors(root, self.group.members) for root in roots)
                for roots in sweeps
            )
            if self.is_dear(node) and wanted > 1:
                found.append(node)
        return found

    def is_dear(self, node: Node) -> bool:
        return node.op.kind == "elementwise" and node.op.cost >= KEEP_COST and self.is_full(node)

    def keep(self, stage: int) -> None:
        """From now on, values computed in this stage's sweep are read from scratch."""
        for node, buffer in self.kept.items():
            if self.stage[node] == stage and node not in self.reading.provided:
                self.reading.provided[node] = partial(self.kept_value, buffer)

    def kept_value(self, buffer: Buffer, at: At) -> Val:
        return self.k.load(buffer, self.column)

    def store_row_values(self, node: Node) -> None:
        """Outputs with one value a row, as soon as their reduction is known."""
        for output, buffer in self.buffers.items():
            if not self.is_full(output) and self.last_reduction(output) is node:
                at = self.row_at(output)
                self.frame.write(buffer, output, at, self.reading.read(output, at))

    def last_reduction(self, output: Node) -> Node:
        """The reduction after which `output` can be computed: of the last sweep it depends on, the
        last one."""
        needed = ancestors(output, self.group.members)
        reductions = [r for r in self.reductions if r in needed]
        return max(reversed(reductions), key=lambda m: self.stage[m])

    def row_at(self, node: Node) -> At:
        ones = (self.k.index(0),) * (node.type.rank - len(self.outer))
        return (*self.row.axes(), *ones)

    def final_sweep(self, outputs: list[Node]) -> None:
        if not (outputs or self.columns.nodes) or product(self.inner) == 0:
            return
        total = self.frame.sizes.val(product(self.inner))
        with self.k.loop(
            total, 0, LANES, always=all(isinstance(n, int) and n > 0 for n in self.inner)
        ) as start:
            column = start + self.k.lane()
            with self.frame.within(column, total, product(self.inner)):
                self.column, at = column, self.at(column)
                for node in outputs:
                    self.frame.write(self.buffers[node], node, at, self.reading.read(node, at))
                self.columns.add(column, at)


def always(value: Val) -> Callable[[At], Val]:
    """One value a row: the same wherever it is read."""
    return lambda at: value


def stages(members: tuple[Node, ...]) -> dict[Node, int]:
    """In which sweep a node can be computed: one after every reduction it depends on."""
    found: dict[Node, int] = {}
    for node in members:
        inner = [found[i] + (i.op.kind == "reduce") for i in node.inputs if i in found]
        deep = [
            found[a] + (a.op.kind == "reduce")
            for a in ancestors(node, members)
            if a in found and a is not node
        ]
        found[node] = max(inner + deep, default=0)
    return found


def ancestors(node: Node, members: tuple[Node, ...]) -> set[Node]:
    """The members a node is computed from, itself included."""
    inside = set(members)
    stack, seen = [node], {node}
    while stack:
        fresh = [i for i in stack.pop().inputs if i not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return seen & inside


# -- the canonical order ---------------------------------------------------------------------------


Element = Callable[[Node, Val], Val]  # the operand of a reduction at a column


def reduce_chunks(
    frame: Frame, reductions: list[Node], total: Size, element: Element
) -> dict[Node, Val]:
    """Every reduction of one sweep over `total` columns: chunk results, then the pairwise tree over
    chunks."""
    k = frame.k
    if isinstance(total, int) and total <= CHUNK:
        return reduce_chunk(frame, reductions, k.index(0), frame.sizes.val(total), element, total)
    count = ceil_div(total, CHUNK)
    end = frame.sizes.val(total)
    parts = {node: frame.scratch("parts", accumulator(node), count + 1) for node in reductions}
    for node in reductions:  # a Dim that is 0 has no chunks
        k.store(parts[node], 0, k.const(node.op.monoid.init(accumulator(node)), accumulator(node)))
    k.barrier()  # the first chunk takes their place
    with k.loop(frame.sizes.val(count)) as chunk:
        first = chunk * CHUNK
        found = reduce_chunk(frame, reductions, first, k.min(first + CHUNK, end), element, None)
        for node, value in found.items():
            k.store(parts[node], chunk, value)
    return {node: pairwise(k, node, parts[node], frame.sizes.val(count)) for node in reductions}


def reduce_chunk(
    frame: Frame, reductions: list[Node], first: Val, end: Val, element: Element, size: int | None
) -> dict[Node, Val]:
    """Element j of a chunk goes to partial j mod 64; partials are joined by halving: vectors first,
    then lanes."""
    k = frame.k
    partials = {n: [identity(k, n) for _ in range(PARTIALS)] for n in reductions}
    step = LANES * PARTIALS
    whole = (
        first + k.index((size // step) * step)
        if size is not None
        else first + ((end - first) // step) * step
    )
    if size is None or size >= step:
        with k.loop(whole, first, step) as start:
            for v in range(PARTIALS):
                fold(k, partials, v, start + LANES * v + k.lane(), element)
    for v in range(PARTIALS):
        column = whole + LANES * v + k.lane()
        if size is None or size % step > LANES * v:
            with k.when(column < end, guard=True):
                fold(k, partials, v, column, element)
    return {n: join(k, n, [p.get() for p in partials[n]]) for n in reductions}


def identity(k: KernelBuilder, node: Node) -> LocalVar:
    return k.local(node.op.monoid.init(accumulator(node)), accumulator(node))


def fold(
    k: KernelBuilder, partials: dict[Node, list[LocalVar]], v: int, column: Val, element: Element
) -> None:
    for node, locals_ in partials.items():
        locals_[v].set(node.op.monoid.combine(k, locals_[v].get(), element(node, column)))


def join(k: KernelBuilder, node: Node, vectors: list[Val]) -> Val:
    combine = node.op.monoid.combine
    while len(vectors) > 1:
        half = len(vectors) // 2
        vectors = [combine(k, a, b) for a, b in zip(vectors[:half], vectors[half:], strict=True)]
    value, width = vectors[0], LANES // 2
    while width:
        value = combine(k, value, k.rotate(value, width))
        width //= 2
    return k.broadcast(value)


def pairwise(k: KernelBuilder, node: Node, parts: Buffer, count: Val) -> Val:
    """parts[0..count-1] by a fixed tree: neighbours (0,1), (2,3), ... are joined in place until one
    is left.

    Every invocation does it; none writes over what another has yet to read.
    """
    left = k.local(count)
    with k.loop(64) as _:  # enough halvings for any count
        now = left.get()
        with k.when(now > 1):
            pairs = now // 2
            with k.loop(pairs) as i:
                joined = node.op.monoid.combine(k, k.load(parts, i * 2), k.load(parts, i * 2 + 1))
                k.barrier()
                k.store(parts, i, joined)
            with k.when((now % 2).eq(1)):
                alone = k.load(parts, now - 1)
                k.barrier()
                k.store(parts, pairs, alone)
            left.set(pairs + now % 2)
    return k.load(parts, 0)


# -- few long rows ---------------------------------------------------------------------------------


def is_split(group: Group, outer: Shape, inner: Shape) -> bool:
    rows, total = product(outer), product(inner)
    one_stage = all(m.op.kind == "reduce" for m in group.members if m.type.shape != outer)
    if not isinstance(rows, int) or not isinstance(total, int) or not one_stage:
        return False
    return rows < FEW_ROWS and total >= SPLIT_SIZE and max(stages(group.members).values()) <= 1


def split_rows(
    group: Group, inputs: list[Node], memory: Memory, outer: Shape, inner: Shape
) -> list[Launch]:
    """First every chunk of every row into a partial result, then one small kernel joins the chunks
    of each row."""
    reductions = [m for m in group.members if m.op.kind == "reduce"]
    count = ceil_div(product(inner), CHUNK)
    parts = {
        n: memory.temp(f"parts{i}", accumulator(n), product(outer), count)
        for i, n in enumerate(reductions)
    }
    return [
        chunk_kernel(group, inputs, memory, outer, inner, parts),
        join_kernel(group, memory, outer, parts, inputs),
    ]


def chunk_kernel(
    group: Group,
    inputs: list[Node],
    memory: Memory,
    outer: Shape,
    inner: Shape,
    parts: dict[Node, Slot],
) -> Launch:
    frame = Frame(group.name + "_chunks", memory)
    k, total = frame.k, product(inner)
    count = ceil_div(total, CHUNK)
    frame.reads(inputs)
    buffers = {node: frame.output(slot) for node, slot in parts.items()}
    row = Space(k, frame.sizes, outer, k.group_id() // frame.sizes.val(count))
    first = (k.group_id() % frame.sizes.val(count)) * CHUNK

    def element(node: Node, column: Val) -> Val:
        flat = Space(k, frame.sizes, inner, column).axes() if len(inner) != 1 else (column,)
        return frame.reading.wide(node.inputs[0], (*row.axes(), *flat))

    end = k.min(first + CHUNK, frame.sizes.val(total))
    for node, value in reduce_chunk(frame, list(parts), first, end, element, None).items():
        k.store(buffers[node], k.group_id(), value)
    return frame.finish(product(outer) * count, group, flops=operations(computed(group, inputs)))


def join_kernel(
    group: Group, memory: Memory, outer: Shape, parts: dict[Node, Slot], inputs: list[Node]
) -> Launch:
    frame = Frame(group.name + "_join", memory)
    k = frame.k
    after = list(topological(group.outputs, known=[*parts, *inputs]))
    frame.reads([i for i in inputs if any(i in member.inputs for member in after)])
    row = Space(k, frame.sizes, outer, k.group_id())
    for node, slot in parts.items():
        buffer, count = frame.input(slot), slot.type.shape[1]
        scratch = frame.scratch("tree", slot.type.dtype, count)
        n = frame.sizes.val(count)
        with k.loop(n) as i:
            k.store(scratch, i, k.load(buffer, k.group_id() * n + i))
        done = k.cast(pairwise(k, node, scratch, n), node.type.dtype)
        frame.reading.provided[node] = always(done)
    for output in group.outputs:
        at = (*row.axes(), *(k.index(0),) * (output.type.rank - len(outer)))
        frame.write(frame.output(memory.slots[output]), output, at, frame.reading.read(output, at))
    return frame.finish(
        product(outer), group, flops=sum(product(slot.type.shape) for slot in parts.values())
    )
