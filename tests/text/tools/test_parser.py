"""Answers to events: what is found, that cuts do not matter, that nothing is lost and nothing
raises."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from tests.text.tools.examples import EXAMPLES, NAMES, Example
from tetrad.text.tools import (
    Answer,
    AnswerEvent,
    CallArguments,
    CallBegins,
    Reasoning,
    ReasoningDelta,
    TextDelta,
    joined,
)
from tetrad.text.tools.family import ToolFamily
from tetrad.text.tools.parser import AnswerParser

CASES = [
    pytest.param(family, example, id=f"{family.name}-{i}")
    for family, examples in EXAMPLES
    for i, example in enumerate(examples)
]
THINK = Reasoning("<think>", "</think>")


def events_of(
    family: ToolFamily | None, pieces: list[str], reasoning: Reasoning | None = None
) -> list[AnswerEvent]:
    parser = AnswerParser(family, NAMES, reasoning)
    return [e for piece in pieces for e in parser.feed(piece)] + parser.finish()


def plain(answer: Answer) -> tuple[str, str, list[tuple[str, Any]]]:
    """What an answer says; ids are new in each, arguments are compared as data."""
    calls = [(call.name, json.loads(call.arguments)) for call in answer.tool_calls]
    return answer.content, answer.reasoning, calls


@pytest.mark.parametrize(("family", "example"), CASES)
def test_what_an_answer_holds(family: ToolFamily, example: Example) -> None:
    reasoning = THINK if example.reasoning else None
    found = plain(joined(events_of(family, [example.text], reasoning)))
    assert found == (example.content, example.reasoning, example.calls)


@pytest.mark.parametrize(("family", "example"), CASES)
def test_cuts_do_not_matter(family: ToolFamily, example: Example) -> None:
    text, reasoning = example.text, THINK if example.reasoning else None
    want = plain(joined(events_of(family, [text], reasoning)))
    for cut in range(len(text)):
        pieces = [text[:cut], text[cut:]]
        assert plain(joined(events_of(family, pieces, reasoning))) == want
    assert plain(joined(events_of(family, list(text), reasoning))) == want


@pytest.mark.parametrize(("family", "example"), CASES)
def test_whatever_comes_is_read(family: ToolFamily, example: Example) -> None:
    """Damaged answers: no error, the same events however they are cut, all calls known ones."""
    chance = random.Random(example.text)
    for _ in range(25):
        text = damaged(example.text, chance)
        whole = joined(events_of(family, [text], THINK))
        parts = joined(events_of(family, list(text), THINK))
        assert (whole.content, whole.reasoning) == (parts.content, parts.reasoning)
        assert [(c.name, c.arguments) for c in whole.tool_calls] == [
            (c.name, c.arguments) for c in parts.tool_calls
        ]
        assert {call.name for call in whole.tool_calls} <= NAMES


def damaged(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 3)):
        at, size = chance.randrange(len(text) + 1), chance.randint(0, 4)
        new = chance.choice(["", "", chance.choice('{}[]":,\\<>x1 \n'), text[at : at + 9]])
        text = text[:at] + new + text[at + size :]
    return text


@pytest.mark.parametrize(("family", "example"), CASES)
def test_arguments_come_while_they_are_written(family: ToolFamily, example: Example) -> None:
    """Once a call is certain, no more than a word of its arguments is held back."""
    if not example.calls:
        return
    parser = AnswerParser(family, NAMES, THINK if example.reasoning else None)
    sizes = []
    for character in example.text:
        sizes += [len(e.text) for e in parser.feed(character) if isinstance(e, CallArguments)]
    assert sizes and max(sizes) < 24


def test_a_call_of_an_unknown_tool_is_text() -> None:
    for family, examples in EXAMPLES:
        for example in examples:
            parser = AnswerParser(family, frozenset({"other"}), None)
            events = parser.feed(example.text) + parser.finish()
            assert not any(isinstance(e, CallBegins) for e in events)


def test_without_tools_every_character_is_kept() -> None:
    for _, examples in EXAMPLES:
        for example in examples:
            parser = AnswerParser(None, frozenset(), None)
            events = [e for c in example.text for e in parser.feed(c)] + parser.finish()
            assert joined(events).content == example.text


@pytest.mark.parametrize(("family", "examples"), EXAMPLES, ids=lambda x: getattr(x, "name", ""))
def test_time_grows_with_the_answer_only(family: ToolFamily, examples: list[Example]) -> None:
    """Marks without end, spaces, brackets, and a call whose arguments never end."""
    call = next(e.text for e in examples if e.calls)
    ends = [family.opens[0], call[: len(call) // 2], " ", "[", "<", '{"name": "', "\\"]
    for unit in ends:
        text = (call[: len(call) // 2] + unit * (12_000 // len(unit)))[:12_000]
        begin = time.perf_counter()
        events_of(family, [text[i : i + 3] for i in range(0, len(text), 3)])
        assert time.perf_counter() - begin < 2


# -- reasoning -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "opened", "want"),
    [
        ("<think>\nWell.\n</think>\n\nYes.", False, ("Yes.", "Well.")),
        ("Well.\n</think>\n\nYes.", True, ("Yes.", "Well.")),
        ("<think>\n\n</think>\n\nYes.", False, ("Yes.", "")),
        ("  <think>a", False, ("", "a")),
        ("a < b", True, ("", "a < b")),
        ("Yes, <think> is a mark.</think>", False, ("Yes, <think> is a mark.</think>", "")),
        ("  Yes", False, ("  Yes", "")),
        ("<thin", False, ("<thin", "")),
        ("", False, ("", "")),
        ("", True, ("", "")),
    ],
)
def test_reasoning_is_apart(text: str, opened: bool, want: tuple[str, str]) -> None:
    reasoning = Reasoning("<think>", "</think>", opened)
    for pieces in ([text], list(text)):
        found = joined(events_of(None, pieces, reasoning))
        assert (found.content, found.reasoning) == want


def test_events_come_as_soon_as_they_are_certain() -> None:
    parser = AnswerParser(None, frozenset(), THINK)
    assert parser.feed("<think>") == []
    assert parser.feed("One") == [ReasoningDelta("One")]
    assert parser.feed(" two</") == [ReasoningDelta(" two")]
    assert parser.feed("think>\n") == []
    assert parser.feed("Three ") == [TextDelta("Three ")]
    assert parser.finish() == [] and parser.feed("late") == []
