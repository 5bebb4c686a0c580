"""Serve, blocks: an answer as a row of blocks: reasoning, text, calls of tools. Events in; blocks
that open, grow and close out.

The APIs that show an answer this way (Anthropic's messages, OpenAI's responses) give each change a
name of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from tetrad.core.record import record
from tetrad.text.tools import AnswerEvent, CallArguments, CallBegins, ReasoningDelta, TextDelta

BlockKind = Literal["text", "reasoning", "call"]


class AnswerBlock:
    """A part of an answer: its kind, its text so far, and of a call its id and name."""

    def __init__(self, index: int, kind: BlockKind, call: CallBegins | None = None) -> None:
        self.index, self.kind = index, kind
        self.call_id, self.name = ("", "") if call is None else (call.id, call.name)
        self.parts: list[str] = []

    @property
    def text(self) -> str:
        """Of a call, its arguments, which are JSON."""
        return "".join(self.parts) or ("{}" if self.kind == "call" else "")

    @property
    def arguments(self) -> Any:
        """Of a call, its arguments; none where the limit of the answer has cut them."""
        try:
            return json.loads(self.text)
        except ValueError:
            return {}


@record
class BlockChange:
    """What happened to a block; `text` is what it grew by."""

    what: Literal["opened", "grew", "closed"]
    block: AnswerBlock
    text: str = ""


class BlockRow:
    """The blocks of one answer, in the order in which they came."""

    def __init__(self) -> None:
        self.blocks: list[AnswerBlock] = []
        self.open: AnswerBlock | None = None

    def feed(self, events: Iterable[AnswerEvent]) -> Iterator[BlockChange]:
        for event in events:
            if isinstance(event, CallBegins):
                yield from self._begin("call", event)
            elif isinstance(event, CallArguments):
                assert self.open is not None
                yield self._grow(self.open, event.text)
            elif event.text:
                yield from self._say(event)

    def _say(self, event: TextDelta | ReasoningDelta) -> Iterator[BlockChange]:
        kind: BlockKind = "text" if isinstance(event, TextDelta) else "reasoning"
        if self.open is None or self.open.kind != kind:
            yield from self._begin(kind, None)
        assert self.open is not None
        yield self._grow(self.open, event.text)

    def _begin(self, kind: BlockKind, call: CallBegins | None) -> Iterator[BlockChange]:
        yield from self.close()
        self.open = AnswerBlock(len(self.blocks), kind, call)
        self.blocks.append(self.open)
        yield BlockChange("opened", self.open)

    def _grow(self, block: AnswerBlock, text: str) -> BlockChange:
        block.parts.append(text)
        return BlockChange("grew", block, text)

    def close(self) -> Iterator[BlockChange]:
        """Nothing more of the block that is open."""
        if self.open is not None:
            yield BlockChange("closed", self.open)
            self.open = None
