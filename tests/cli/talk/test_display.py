"""The display: thoughts apart or hidden, on a terminal and in a pipe."""

from __future__ import annotations

import io

import pytest

from tetrad.cli.talk.display import Display
from tetrad.cli.talk.local import raw_first
from tetrad.cli.talk.parts import AnswerPart

THOUGHT = [
    AnswerPart("\nHm", True, "<think>\nHm"),
    AnswerPart("", False, "."),
    AnswerPart(".\n", True, "\n"),
    AnswerPart("\n\nYes", False, "</think>\n\nYes"),
    AnswerPart(" \x1b[2Jword", False, " \x1b[2Jword"),
]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, parts: list[AnswerPart], hides: bool
) -> tuple[str, Display]:
    monkeypatch.setattr("sys.stdout", stream)
    display = Display(hides=hides)
    for part in parts:
        display.show(part)
    display.finish()
    return stream.getvalue(), display


def test_thoughts_are_dim_between_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, display = shown(monkeypatch, Screen(), THOUGHT, False)
    assert seen == (
        "\x1b[2mThinking...\nHm\x1b[0m\x1b[2m.\x1b[0m\x1b[2m\n...done thinking.\n\n\x1b[0m"
        "Yes \\x1b[2Jword"
    )
    assert display.text == "Yes \x1b[2Jword"


def test_thoughts_may_be_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Screen(), THOUGHT, True)[0] == "Yes \\x1b[2Jword"
    assert shown(monkeypatch, io.StringIO(), THOUGHT, True)[0] == "Yes \x1b[2Jword"


def test_a_pipe_gets_what_the_model_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, display = shown(monkeypatch, io.StringIO(), THOUGHT, False)
    assert seen == "<think>\nHm.\n</think>\n\nYes \x1b[2Jword"
    assert display.text == "Yes \x1b[2Jword"


def test_an_empty_thought_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [AnswerPart("\n\n", True), AnswerPart("\n\n", False), AnswerPart("Yes", False)]
    assert shown(monkeypatch, Screen(), parts, False)[0] == "Yes"


def test_an_answer_that_ends_in_thought(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, display = shown(monkeypatch, Screen(), [AnswerPart("Hm", True)], False)
    assert seen.endswith("\n...done thinking.\n\n\x1b[0m") and display.text == ""


def test_an_answer_keeps_its_own_empty_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [AnswerPart("\n\nYes\n"), AnswerPart("\nNo")]
    assert shown(monkeypatch, Screen(), parts, False)[0] == "\n\nYes\n\nNo"


def test_what_is_held_back_is_in_the_pipe_at_once() -> None:
    class Held:
        text, completion = "<th", None

    piece = Held()
    assert list(raw_first([], piece, -1, 8)) == [AnswerPart("", False, "<th")]  # type: ignore[arg-type]
