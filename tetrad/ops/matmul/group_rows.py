"""Products with weights in groups: float rows times codes of four bits as they lie, lanes along the
columns.

Sixteen bytes of codes are 32 columns: even ones in the low halves, odd ones in the high. So rows of
x are laid out once with even and odd columns apart, and a register with the sixteen numbers that
codes can be in a group decodes exactly what `dequantize_groups` would store. Of few rows the
numbers exist only in registers, for many a few rows of the weight wait in scratch. The order is
that of `ops.matmul.op`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tetrad.core.dtypes import f32, u8, u32
from tetrad.core.machine import LANES
from tetrad.core.sizes import ceil_div, plain, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import LocalVar, Val
from tetrad.kernel.nodes import Buffer
from tetrad.loopnest.frame import Frame
from tetrad.ops.groups.decode import code_numbers, group_table
from tetrad.ops.matmul.op import PAIR
from tetrad.ops.matmul.plan import MANY, MatmulPlan
from tetrad.schedule.nodes import Launch, Slot

CHUNKS = (128, 64, 32)  # columns written out; 128 are a line of memory
EMPTY: Mapping[tuple[int, int], LocalVar] = MappingProxyType({})
EVEN, ODD = tuple(range(0, PAIR, 2)), tuple(range(1, PAIR, 2))


class GroupWeight:
    """The factors of a weight in groups inside a kernel: [outputs, columns] in flat groups."""

    def __init__(self, frame: Frame, node: Node) -> None:
        self.k, (codes, *factors) = frame.k, node.inputs[1:]
        self.scheme, self.group = node.param("scheme"), node.param("group")
        self.slot, self.columns = frame.memory.slots[codes], plain(codes.type.shape[1])
        self.factors = [frame.input(frame.memory.slots[factor]) for factor in factors]
        self.span = min(self.group, self.columns)  # columns of a row that share factors

    def factor(self, which: int, row: Val, column: Val) -> Val | None:
        """The scale (0) or the zero point (1) of a column, None where there is none."""
        if which >= len(self.factors):
            return None
        return self.k.load(self.factors[which], (row * self.columns + column) // self.group)

    def scale(self, row: Val, column: Val) -> Val:
        found = self.factor(0, row, column)
        if found is None:
            raise TypeError("a weight in groups has scales")
        return found


class GroupProduct:
    """What both products with a weight in groups share: which rows and outputs a workgroup takes.

    Who inherits it lays out the rows of x, says where results go (`out`) and multiplies tiles.
    """

    out: Buffer

    def __init__(self, frame: Frame, group: Group, plan: MatmulPlan) -> None:
        self.frame, self.k, self.group, self.plan = frame, frame.k, group, plan
        self.node = group.root
        self.x = self.node.inputs[0]
        self.rows, self.outputs = self.node.type.shape
        self.columns = plain(self.x.type.shape[1])

    def finish(self) -> Launch:
        flops = product((self.rows, self.outputs, self.columns)) * 2
        groups = ceil_div(self.outputs, self.plan.columns)
        return self.frame.finish(groups, self.group, flops=flops)

    def stretch(self) -> tuple[Val, Val]:
        """The outputs of a workgroup."""
        start = self.k.group_id() * self.plan.columns
        return start, self.k.min(start + self.plan.columns, self.frame.sizes.val(self.outputs))

    def store(
        self,
        sums: dict[tuple[int, int], LocalVar],
        rows: list[Val],
        outputs: list[Val],
        more: Mapping[tuple[int, int], LocalVar] = EMPTY,
    ) -> None:
        """Sums of all lanes, and what is added to them."""
        k, pitch = self.k, self.frame.sizes.val(self.outputs)
        for (i, j), acc in sums.items():
            total = k.reduce_lanes("add", acc)
            if more:
                total = total + more[i, j]
            k.store(self.out, rows[i] * pitch + outputs[j], k.cast(total, self.node.type.dtype))


class GroupRows(GroupProduct):
    """The kernels of one product of float rows."""

    def launches(self) -> list[Launch]:
        pairs = self.frame.memory.temp("pairs", f32, self.rows, self.columns)
        staged = Frame(self.group.name + "_pairs", self.frame.memory, inputs=[self.x])
        return [stage_pairs(staged, self.x, pairs), self.launch(pairs)]

    def launch(self, pairs: Slot) -> Launch:
        k, frame = self.k, self.frame
        self.pairs = frame.input(pairs)
        self.weight = GroupWeight(frame, self.node)
        self.codes = frame.view(self.weight.slot, u8)
        self.out = frame.output(frame.memory.slots[self.node])
        self.numbers = code_numbers(k, self.weight.scheme)
        self.chunk = next(c for c in CHUNKS if self.weight.span % c == 0)
        total = frame.sizes.val(self.rows)
        is_known = isinstance(self.rows, int)
        if is_known and plain(self.rows) < MANY:
            self.walk_few()
        elif is_known:
            self.walk_many()
        else:
            with k.when(total >= MANY):
                self.walk_many()
            with k.otherwise():
                self.walk_few()
        return self.finish()

    # -- few rows: numbers in registers ------------------------------------------------------------

    def walk_few(self) -> None:
        k, wide = self.k, self.plan.tile.vectors
        start, end = self.stretch()
        whole = start + (end - start) // wide * wide
        with k.loop(whole, start, wide) as output:
            self.walk_rows([output + j for j in range(wide)])
        with k.loop(end, whole) as output:
            self.walk_rows([output])

    def walk_rows(self, outputs: list[Val]) -> None:
        """All rows, a tile at a time."""
        k, tall = self.k, self.plan.tile.rows
        if isinstance(self.rows, int) and self.rows < tall:
            self.run_decoded([k.index(i) for i in range(self.rows)], outputs)
            return
        total = self.frame.sizes.val(self.rows)
        whole = total // tall * tall
        with k.loop(whole, 0, tall) as row:
            self.run_decoded([row + i for i in range(tall)], outputs)
        with k.loop(total, whole) as row:
            self.run_decoded([row], outputs)

    def run_decoded(self, rows: list[Val], outputs: list[Val]) -> None:
        """Group by group: a table for each output, then 32 columns at a time."""
        k, weight = self.k, self.weight
        sums = self.fresh(rows, outputs)
        with k.loop(self.columns, 0, weight.span) as first:
            tables = [self.table(output, first) for output in outputs]
            with k.loop(weight.span, 0, self.chunk) as step:
                for output in outputs:
                    self.ask_ahead(output + len(outputs), first + step)
                for column in (first + step + c for c in range(0, self.chunk, PAIR)):
                    right = [
                        self.decode(table, output, column)
                        for table, output in zip(tables, outputs, strict=True)
                    ]
                    self.multiply(sums, rows, column, right)
        self.store(sums, rows, outputs)

    def ask_ahead(self, output: Val, column: Val) -> None:
        """For a line of the codes that the next tile reads: rows are too short for processors to
        ask in time by themselves."""
        self.k.prefetch(self.codes, (output * self.columns + column) // 2)

    def fresh(self, rows: list[Val], outputs: list[Val]) -> dict[tuple[int, int], LocalVar]:
        return {
            (i, j): self.k.local(0.0, f32) for i in range(len(rows)) for j in range(len(outputs))
        }

    def table(self, output: Val, column: Val) -> Val:
        weight = self.weight
        scale, zero = weight.scale(output, column), weight.factor(1, output, column)
        dtype = self.node.type.dtype
        return group_table(self.k, self.numbers, scale, zero, weight.scheme, dtype)

    def decode(self, table: Val, output: Val, column: Val) -> tuple[Val, Val]:
        """The even and the odd of 32 columns."""
        k = self.k
        byte = (output * self.columns + column) // 2 + k.lane()
        codes = k.cast(k.load(self.codes, byte), u32)
        return k.permute(table, codes), k.permute(table, codes >> 4)

    def multiply(
        self,
        sums: dict[tuple[int, int], LocalVar],
        rows: list[Val],
        column: Val,
        right: list[tuple[Val, Val]],
    ) -> None:
        k = self.k
        for half in range(2):
            for i, row in enumerate(rows):
                left = k.load(self.pairs, row * self.columns + column + half * LANES + k.lane())
                for j, numbers in enumerate(right):
                    sums[i, j].set(k.fma(left, numbers[half], sums[i, j]))

    # -- many rows: numbers in scratch -------------------------------------------------------------

    def walk_many(self) -> None:
        k, wide = self.k, self.plan.tile.vectors
        self.panel = self.frame.private("panel", f32, wide * self.columns)
        start, end = self.stretch()
        whole = start + (end - start) // wide * wide
        with k.loop(whole, start, wide) as output:
            self.walk_panel([output + j for j in range(wide)])
        with k.loop(end, whole) as output:
            self.walk_panel([output])

    def walk_panel(self, outputs: list[Val]) -> None:
        k, tall, total = self.k, self.plan.tile.rows, self.frame.sizes.val(self.rows)
        for j, output in enumerate(outputs):
            self.fill(output, j)
        whole = total // tall * tall
        with k.loop(whole, 0, tall) as row:
            self.run_panel([row + i for i in range(tall)], outputs)
        with k.loop(total, whole) as row:
            self.run_panel([row], outputs)

    def fill(self, output: Val, j: int) -> None:
        """The numbers of a row, even and odd columns of each 32 apart."""
        k, span = self.k, self.weight.span
        with k.loop(self.columns, 0, span) as first:
            table = self.table(output, first)
            with k.loop(span, 0, PAIR) as step:
                for half, value in enumerate(self.decode(table, output, first + step)):
                    at = j * self.columns + first + step + half * LANES
                    k.store(self.panel, at + k.lane(), value)

    def run_panel(self, rows: list[Val], outputs: list[Val]) -> None:
        k = self.k
        sums = self.fresh(rows, outputs)
        with k.loop(self.columns, 0, PAIR) as column:
            right = [
                tuple(
                    k.load(self.panel, j * self.columns + column + half * LANES + k.lane())
                    for half in range(2)
                )
                for j in range(len(outputs))
            ]
            self.multiply(sums, rows, column, right)  # type: ignore[arg-type]
        self.store(sums, rows, outputs)


def stage_pairs(frame: Frame, x: Node, pairs: Slot) -> Launch:
    """pairs[row] = the row in f32, even and odd columns of each 32 apart; a row a workgroup."""
    k, columns = frame.k, plain(x.type.shape[1])
    frame.reads([x])
    out, row = frame.output(pairs), k.group_id()
    with k.loop(columns, 0, PAIR) as column:
        halves = [
            frame.reading.wide(x, (row, column + half * LANES + k.lane())) for half in range(2)
        ]
        for half, lanes in enumerate((EVEN, ODD)):
            at = row * columns + column + half * LANES + k.lane()
            k.store(out, at, k.shuffle(halves[0], halves[1], lanes))
    return frame.finish(x.type.shape[0], flops=0)
