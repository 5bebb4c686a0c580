"""Text, tools, parser: the text of an answer to events, as soon as they are certain.

Receives pieces of text, cut anywhere, and a family that knows how calls are written. Nothing is
lost and nothing raises: what is no call is text.
"""

from __future__ import annotations

from tetrad.text.tools.events import AnswerEvent
from tetrad.text.tools.family import ToolFamily
from tetrad.text.tools.incoming import Incoming, Output, Steps
from tetrad.text.tools.reasoning import Reasoning


class AnswerParser:
    """Reads one answer. Without a family, or tools to call, all but the reasoning is text.

    >>> parser = AnswerParser(None, frozenset(), Reasoning("<think>", "</think>"))
    >>> parser.feed("<thi"), parser.feed("nk>Hm.</think>Yes"), parser.finish()
    ([], [ReasoningDelta(text='Hm.'), TextDelta(text='Yes')], [])
    """

    def __init__(
        self, family: ToolFamily | None, names: frozenset[str], reasoning: Reasoning | None
    ) -> None:
        self.family = family if names else None
        self.reasoning = reasoning
        self.source = Incoming()
        self.output = Output(self.source, names)
        self.steps = self._read()

    def feed(self, text: str) -> list[AnswerEvent]:
        """What this text makes certain."""
        self.source.feed(text)
        return self._advance()

    def finish(self) -> list[AnswerEvent]:
        """What is left, now that nothing follows."""
        self.source.ended = True
        return self._advance()

    def _advance(self) -> list[AnswerEvent]:
        next(self.steps, None)
        return self.output.drain()

    def _read(self) -> Steps[None]:
        if self.reasoning is not None:
            yield from self._think(self.reasoning)
        if self.family is None:
            yield from self._speak()
        else:
            yield from self._call(self.family)

    def _think(self, reasoning: Reasoning) -> Steps[None]:
        """Reasoning, if the answer begins with it."""
        self.source.keep()
        if not reasoning.opened:
            yield from self.source.space()
            if not (yield from self.source.takes(reasoning.begin)):
                self.output.text(self.source.release())
                return
        self.source.release()
        yield from self.source.space()
        yield from self.source.until((reasoning.end,), self.output.reasoning)
        self.source.release()
        yield from self.source.space()

    def _speak(self) -> Steps[None]:
        while (yield from self.source.peek()):
            self.output.text(self.source.take(len(self.source.text)))

    def _call(self, family: ToolFamily) -> Steps[None]:
        """Calls, and the text around them."""
        self.source.keep()
        if family.is_bare and (yield from self.source.space()) == "{":
            yield from self._calls(family, "")
        else:
            self.output.text(self.source.release())
        while mark := (yield from self.source.until(family.opens, self.output.text)):
            yield from self._calls(family, mark)

    def _calls(self, family: ToolFamily, mark: str) -> Steps[None]:
        """What follows a mark; what is no call is text again."""
        is_read = yield from family.read(self.source, self.output, mark)
        kept = self.source.release()
        if is_read:
            yield from self.source.space()
        else:
            self.output.text(kept)
