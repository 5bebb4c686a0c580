"""Text, tools, incoming: the text of an answer while it arrives, as those who read it want it.

Readers are generators: they yield where they need more text. What they take is kept, so that what
turns out to be no call can be given back as the text it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from itertools import groupby
from typing import TypeVar

from tetrad.core.record import replace
from tetrad.text.tools.events import (
    AnswerEvent,
    CallArguments,
    CallBegins,
    ReasoningDelta,
    TextDelta,
    fresh_id,
)

T = TypeVar("T")
Steps = Generator[None, None, T]
SPACE = re.compile(r"[ \t\r\n]+")
LONGEST_SPACE = 64  # held back before a call; more of it is text


class Incoming:
    """Text to come. Nothing is looked at twice but a mark that has begun."""

    def __init__(self) -> None:
        self.text, self.at, self.ended = "", 0, False
        self.kept: list[str] | None = None

    def feed(self, text: str) -> None:
        self.text, self.at = self.text[self.at :] + text, 0

    def take(self, size: int) -> str:
        taken = self.text[self.at : self.at + size]
        self.at += len(taken)
        if self.kept is not None:
            self.kept.append(taken)
        return taken

    def keep(self) -> None:
        """From here on what is taken can be given back."""
        self.kept = []

    def release(self) -> str:
        """What was kept; from here on nothing is."""
        kept, self.kept = "".join(self.kept or ()), None
        return kept

    def run(self, pattern: re.Pattern[str]) -> str:
        """Takes what the pattern finds here, as far as it has come."""
        found = pattern.match(self.text, self.at)
        return self.take(found.end() - self.at) if found else ""

    def has(self, size: int) -> Steps[bool]:
        """Waits for so many characters; False if the answer ends before."""
        while len(self.text) - self.at < size:
            if self.ended:
                return False
            yield
        return True

    def peek(self) -> Steps[str]:
        """The next character; empty at the end."""
        return self.text[self.at] if (yield from self.has(1)) else ""

    def space(self) -> Steps[str]:
        """Takes white space, and gives the character after it."""
        while (found := (yield from self.peek())) and found in " \t\r\n":
            self.run(SPACE)
        return found

    def takes(self, word: str) -> Steps[bool]:
        """Takes the word if it stands here; waits only while it may."""
        while not self.text.startswith(word, self.at):
            rest = self.text[self.at : self.at + len(word)]
            if self.ended or len(rest) == len(word) or not word.startswith(rest):
                return False
            yield
        self.take(len(word))
        return True

    def word(self, pattern: re.Pattern[str], longest: int) -> Steps[str]:
        """All that the pattern finds here, once something else follows; it is not taken yet. Empty
        where it is longer than so much."""
        while True:
            found = pattern.match(self.text, self.at)
            stop = found.end() if found else self.at
            if stop - self.at > longest:
                return ""
            if self.ended or stop < len(self.text):
                return self.text[self.at : stop]
            yield

    def until(self, marks: Sequence[str], sink: Callable[[str], None]) -> Steps[str]:
        """Gives text to the sink up to a mark, which is taken; empty if there is none to the end.

        White space before a mark is kept with it, so as much as may be before one is held back.
        """
        any_mark = re.compile("|".join(map(re.escape, sorted(marks, key=len, reverse=True))))
        while (found := any_mark.search(self.text, self.at)) is None:
            sink(self.take(self.certain(marks)))
            if self.ended:
                sink(self.take(len(self.text) - self.at))
                return ""
            yield
        sink(self.take(found.start() - self.at - spaces(self.text, self.at, found.start())))
        self.keep()
        self.run(SPACE)
        return self.take(len(found[0]))

    def begun(self, marks: Sequence[str]) -> int:
        """How much of the end of the text may be the beginning of a mark."""
        rest = self.text[max(self.at, len(self.text) - max(map(len, marks))) :]
        sizes = range(len(rest), 0, -1)
        return next((n for n in sizes if any(m.startswith(rest[-n:]) for m in marks)), 0)

    def certain(self, marks: Sequence[str]) -> int:
        """How much of the text is neither the beginning of a mark nor the space before one."""
        stop = len(self.text) - self.begun(marks)
        return stop - self.at - spaces(self.text, self.at, stop)


def spaces(text: str, start: int, stop: int) -> int:
    """How much white space stands before `stop`, as far as it is held back."""
    start = max(start, stop - LONGEST_SPACE)
    return stop - start - len(text[start:stop].rstrip(" \t\r\n"))


class Output:
    """The events of an answer, and the names of tools that can be called."""

    def __init__(self, source: Incoming, names: frozenset[str]) -> None:
        self.source, self.names = source, names
        self.events: list[AnswerEvent] = []
        self.calls = 0

    def text(self, text: str) -> None:
        if text:
            self.events.append(TextDelta(text))

    def reasoning(self, text: str) -> None:
        if text:
            self.events.append(ReasoningDelta(text))

    def begin(self, name: str, id: str = "") -> None:
        """A call is certain: what was read of it is no text any more."""
        self.source.release()
        self.events.append(CallBegins(self.calls, id or fresh_id(), name))
        self.calls += 1

    def arguments(self, text: str) -> None:
        if text:
            self.events.append(CallArguments(self.calls - 1, text))

    def end(self) -> None:
        """The call is complete; what follows may be text again."""
        self.source.keep()

    def drain(self) -> list[AnswerEvent]:
        """What has become certain, neighbours of a kind in one."""
        found: list[AnswerEvent] = []
        for kind, group in groupby(self.events, key=kind_of):
            parts = list(group)
            if kind is CallBegins:
                found += parts
            else:
                text = "".join(part.text for part in parts if not isinstance(part, CallBegins))
                found.append(replace(parts[0], text=text))
        self.events = []
        return found


def kind_of(event: AnswerEvent) -> object:
    return event.index if isinstance(event, CallArguments) else type(event)
