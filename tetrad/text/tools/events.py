"""Text, tools, events: what an answer turns out to be while it comes: text, reasoning, calls of
tools.

A parser gives these; `joined` puts those of a whole answer together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from tetrad.core.record import record

LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@record
class TextDelta:
    """More of what is said to the user."""

    text: str


@record
class ReasoningDelta:
    """More of what the model thinks before it answers."""

    text: str


@record
class CallBegins:
    """A tool is called; its arguments follow. `index` counts the calls of an answer."""

    index: int
    id: str
    name: str


@record
class CallArguments:
    """More of the arguments of a call: all of them joined are one JSON object."""

    index: int
    text: str


AnswerEvent = TextDelta | ReasoningDelta | CallBegins | CallArguments


@record
class ToolCall:
    """A call that is complete; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


@record
class Answer:
    """All events of an answer, put together."""

    content: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]


def joined(events: Iterable[AnswerEvent]) -> Answer:
    """
    >>> events = [CallBegins(0, "c1", "f"), CallArguments(0, "{"), CallArguments(0, "}")]
    >>> joined([TextDelta("Let me "), TextDelta("see."), *events])
    Answer(content='Let me see.', reasoning='', \
tool_calls=(ToolCall(id='c1', name='f', arguments='{}'),))
    """
    said: list[str] = []
    thought: list[str] = []
    calls: list[tuple[CallBegins, list[str]]] = []
    for event in events:
        match event:
            case TextDelta(text):
                said.append(text)
            case ReasoningDelta(text):
                thought.append(text)
            case CallBegins():
                calls.append((event, []))
            case CallArguments(index, text):
                calls[index][1].append(text)
    made = tuple(ToolCall(call.id, call.name, "".join(parts)) for call, parts in calls)
    return Answer("".join(said), "".join(thought), made)


def fresh_id() -> str:
    """A name for a call that no other has: nine letters and digits, which every template takes."""
    return "".join(LETTERS[byte % len(LETTERS)] for byte in os.urandom(9))
