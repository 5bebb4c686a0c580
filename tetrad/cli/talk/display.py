"""Command line, display: the parts of an answer, on a terminal or into a pipe.

Receives `AnswerPart`s; on a terminal words wrap, thoughts are dim between two lines that say so, or
hidden. In a pipe is what the model wrote, byte by byte; with thoughts hidden, the answer alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from tetrad.cli.console import Waiting, paint, write
from tetrad.cli.talk.modes import silent_keys
from tetrad.cli.talk.parts import AnswerCost, AnswerPart
from tetrad.cli.talk.wrap import WordWrapper
from tetrad.core.visible import visible

BEGINS, ENDS = "Thinking...\n", "\n...done thinking.\n\n"


class Display:
    """One answer as it is shown; `text` is what was said so far, without thoughts."""

    def __init__(self, *, hides: bool = False, wraps: bool = True) -> None:
        self.hides, self.is_terminal = hides, sys.stdout.isatty()
        self.wrapper = WordWrapper() if wraps and self.is_terminal else None
        self.text = ""
        self.cost: AnswerCost | None = None
        self.note: str | None = None
        self.thoughts = 0  # characters
        self.in_thought = self.at_start = False
        self.held = ""  # line ends of a thought, which are shown when something follows them
        self.is_open = (
            False  # the line that begins thoughts was shown, and not that which ends them
        )
        self.ends_line = True
        self.before: Callable[[], None] = lambda: None  # called when there is something to show

    def show(self, part: AnswerPart) -> None:
        self.cost, self.note = part.cost, part.note
        text = self.trimmed(part)
        if part.is_thought:
            self.thoughts += len(text)
        else:
            self.text += text
        if self.is_terminal:
            self.show_there(text, part.is_thought)
        else:
            self.put(part.raw if not self.hides else text * (not part.is_thought))

    def trimmed(self, part: AnswerPart) -> str:
        """Without the empty lines around thoughts."""
        if not part.text:
            return ""
        if part.is_thought != self.in_thought:
            self.in_thought, self.at_start, self.held = part.is_thought, True, ""
        text = self.held + part.text
        if self.at_start:
            text = text.lstrip("\n")
            self.at_start = not text
        if not part.is_thought:
            return text
        body = text.rstrip("\n")
        self.held = text[len(body) :]
        return body

    def show_there(self, text: str, is_thought: bool) -> None:
        if not text or is_thought and self.hides:
            return
        if is_thought and not self.is_open:
            self.is_open, text = True, BEGINS + text
        elif not is_thought:
            self.finish()
        self.put(text, is_dim=is_thought)

    def put(self, text: str, *, is_dim: bool = False) -> None:
        if not text:
            return
        self.before()
        self.ends_line = text.endswith("\n")
        if not self.is_terminal:
            write(text)
            return
        shown = visible(text)
        paint(shown if self.wrapper is None else self.wrapper.feed(shown), is_dim=is_dim)

    def finish(self) -> None:
        """Thoughts that were begun are ended."""
        if self.is_open:
            self.is_open = False
            self.put(ENDS, is_dim=True)

    def waiting(self, otherwise: str) -> str:
        return f"thinking: {self.thoughts} characters" if self.thoughts else otherwise


def present(
    parts: Iterator[AnswerPart],
    display: Display,
    waiting: Callable[[], str],
    *,
    begins_line: bool = True,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Shows every part as it comes, until there are no more or `is_over` says so; until something
    can be seen, what is awaited.

    Where the answer follows other text in its line, that is not said: it would be written over the
    text.
    """
    with silent_keys(), Waiting(lambda: display.waiting(waiting()), begins_line) as line:
        display.before = line.end
        for part in parts:
            display.show(part)
            if is_over():
                return
        display.finish()
