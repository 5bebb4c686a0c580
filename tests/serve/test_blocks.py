"""Events become blocks that open, grow and close, each in its turn."""

from __future__ import annotations

from tetrad.serve.blocks import BlockRow
from tetrad.text.tools import CallArguments, CallBegins, ReasoningDelta, TextDelta


def test_blocks_open_grow_and_close_in_turn() -> None:
    row = BlockRow()
    events = [
        ReasoningDelta("Hm"), ReasoningDelta("."), TextDelta(""), TextDelta("Yes"),
        CallBegins(0, "c0", "f"), CallArguments(0, '{"a":'), CallArguments(0, "1}"),
        CallBegins(1, "c1", "g"), TextDelta("!"),
    ]  # fmt: skip
    changes = [*row.feed(events), *row.close()]
    assert [(c.what, c.block.index, c.text) for c in changes] == [
        ("opened", 0, ""), ("grew", 0, "Hm"), ("grew", 0, "."), ("closed", 0, ""),
        ("opened", 1, ""), ("grew", 1, "Yes"), ("closed", 1, ""),
        ("opened", 2, ""), ("grew", 2, '{"a":'), ("grew", 2, "1}"), ("closed", 2, ""),
        ("opened", 3, ""), ("closed", 3, ""),
        ("opened", 4, ""), ("grew", 4, "!"), ("closed", 4, ""),
    ]  # fmt: skip
    assert [(b.kind, b.name, b.text) for b in row.blocks] == [
        ("reasoning", "", "Hm."), ("text", "", "Yes"), ("call", "f", '{"a":1}'),
        ("call", "g", "{}"), ("text", "", "!"),
    ]  # fmt: skip


def test_nothing_said_is_no_block() -> None:
    row = BlockRow()
    assert [*row.feed([TextDelta("")]), *row.close()] == []
