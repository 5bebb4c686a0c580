"""Kernels, attention inside texts: a workgroup takes one head of one text.

It copies keys and values block by block into scratch, and takes the rows of the text through them
some hundred at a time, a register tile of rows after the other. Blocks, tiles and merging are those
of `ops.attention.dense_kernel`; only where rows lie is another matter.
"""

from __future__ import annotations

from typing import Any

from tetrad.core.dtypes import f32, index
from tetrad.core.machine import LANES
from tetrad.core.record import replace
from tetrad.core.sizes import plain, product
from tetrad.graph.group import Group
from tetrad.graph.nodes import Node
from tetrad.kernel.build import Val
from tetrad.loopnest.frame import Frame
from tetrad.loopnest.index import Space
from tetrad.loopnest.reader import FIRST_TRAP
from tetrad.ops.attention.dense import UNBOUNDED, AttentionForm
from tetrad.ops.attention.dense_kernel import (
    Attend,
    RowBlock,
    Scoring,
    TileRows,
    Visibility,
    rows_of,
)
from tetrad.ops.attention.packing import COLUMNS, Copier, CopyPlan, NearCopies, padded
from tetrad.ops.attention.packing import ROWS as IN_ROWS
from tetrad.ops.attention.texts import NOT_ROWS
from tetrad.schedule.nodes import Launch, TrapSite

TYPICAL = 128  # tokens of a text, to tell how long it takes
ROWS = 256  # of a text that pass a block of keys together: about as many as it has keys


def lower_text_attention(frame: Frame, group: Group) -> Launch:
    return TextAttend(frame, group).launch()


def text_form(node: Node) -> AttentionForm:
    """Of a text, whose rows and keys are taken for as many as all texts have."""
    tokens, width = node.type.shape
    heads, window = int(node.param("heads")), int(dict(node.params).get("window", 0))
    channels, bound = plain(width) // heads, window or UNBOUNDED
    return AttentionForm(
        node.inputs[3].type.shape[0] - 1, tokens, tokens, heads, heads, channels, channels,
        float(node.param("scale")), 0.0, "bsnh", ("bias",) if len(node.inputs) > 4 else (), "",
        bound, bound,
    )  # fmt: skip


class Text:
    """The rows of a text."""

    def __init__(self, frame: Frame, node: Node, number: Val, texts: Val) -> None:
        k, tokens = frame.k, frame.sizes.val(node.type.shape[0])
        starts = node.inputs[3]
        self.first, stop = (
            k.cast(frame.reading.wide(starts, (at,)), index) for at in (number, number + 1)
        )
        is_wrong = (self.first < 0) | (stop < self.first) | (stop > tokens)
        is_wrong = is_wrong | (number.eq(0) & self.first.ne(0))
        is_wrong = is_wrong | ((number + 1).eq(texts) & stop.ne(tokens))
        code = FIRST_TRAP + len(frame.reading.traps)
        frame.reading.traps[code] = TrapSite("text_attention", NOT_ROWS, node.source)
        k.trap(is_wrong, code, stop)
        # an address that is made before the trap is looked at stays inside
        self.first = k.min(k.max(self.first, 0), tokens)
        self.length = k.min(k.max(stop - self.first, 0), tokens - self.first)


class TextRows(RowBlock):
    """The rows of a head of a text."""

    def __init__(
        self, frame: Frame, form: AttentionForm, rows: TileRows, text: Text, head: Val
    ) -> None:
        self.k, self.form, self.rows = frame.k, form, rows
        self.text, self.group, self.count = text, head, text.length
        self.batch = frame.k.index(0)

    def whole_tiles(self, top: Val) -> Val | int:
        tile = self.rows.tile
        return self.k.min((self.count - top + (tile - 1)) // tile * tile, self.rows.block)

    def place(self, row: Val, channel: Val) -> tuple[Val, ...]:
        return self.text.first + row, self.group * self.form.channels + channel


class TextCopies(NearCopies):
    """Copies of one block of keys of a head of a text."""

    def __init__(self, plan: CopyPlan, frame: Frame, text: Text, head: Val) -> None:
        self.text = text
        super().__init__(plan, frame, head, head)

    def copier_of(self, *given: Any) -> Copier:
        return TextCopier(self.text, *given)


class TextCopier(Copier):
    """Copies sixteen keys of a head of a text at a time."""

    def __init__(self, text: Text, *given: Any) -> None:
        super().__init__(*given)
        self.text = text

    def element(self, operand: int, key: Val, channel: Val) -> Val:
        k, channels = self.k, self.plan.channels(operand)
        inside = key < self.text.length
        if channels % LANES:
            inside = inside & (channel < channels)
        value = k.local(0.0, f32)
        with k.when(inside, guard=True):
            at = (self.text.first + key, self.head * channels + channel)
            value.set(self.frame.reading.wide(self.plan.node.inputs[operand], at))
        return value.get()


class TextSight(Visibility):
    """Which keys the rows of a text see: all, or those at most a window away; and their bias."""

    def __init__(self, frame: Frame, node: Node, form: AttentionForm, text: Text) -> None:
        super().__init__(frame, node, form, frame.k.index(0))
        self.end = text.length

    def optional(self, name: str, head: Val, time: Val, key: Val) -> Val | None:
        if name not in self.form.given:
            return None
        k, table = self.k, self.node.inputs[4]
        middle = plain(table.type.shape[1]) // 2
        at = k.min(k.max(key - time + middle, 0), 2 * middle)
        return self.frame.reading.wide(table, (head, at))


class TextAttend(Attend):
    """The kernel: workgroups of one text follow each other, so that its rows stay in the cache."""

    def __init__(self, frame: Frame, group: Group) -> None:
        self.frame, self.k, self.group, self.node = frame, frame.k, group, group.root
        self.form, self.dtype = text_form(self.node), f32
        rows = rows_of(frame.memory.machine.f32_tile, self.form)
        self.rows = replace(rows, block=ROWS // rows.tile * rows.tile)
        self.out = frame.output(frame.memory.slots[self.node])
        self.width = padded(self.form.width)
        self.plan = CopyPlan(
            self.node, self.form, ((1, COLUMNS), (2, IN_ROWS)), LANES * self.rows.vectors
        )

    def launch(self) -> Launch:
        form, k = self.form, self.k
        grid = (form.batch, form.heads)
        position = Space(k, self.frame.sizes, grid, k.group_id())
        head = position.span(1, 2)
        text = Text(self.frame, self.node, position.span(0, 1), self.frame.sizes.val(form.batch))
        self.block = TextRows(self.frame, form, self.rows, text, head)
        self.copies = TextCopies(self.plan, self.frame, text, head)
        self.values = self.copies.buffers[2, IN_ROWS]
        self.scoring = Scoring(self.frame, self.node, form, self.copies, self.block)
        self.scoring.sight = self.sight = TextSight(self.frame, self.node, form, text)
        self.make_scratch()
        with k.loop(text.length, 0, self.rows.block) as top:
            self.run(top)
        flops = product((form.times, form.heads)) * (4 * form.channels * TYPICAL)
        return self.frame.finish(product(grid), self.group, flops=flops)

    def finish(self, top: Val, end: Val) -> None:
        k = self.k
        with k.loop(end - top) as row:
            at = row // self.rows.tile * self.state + row % self.rows.tile
            self.store_row(top, row, k.load(self.totals, at), k.load(self.totals, at).eq(0.0))
