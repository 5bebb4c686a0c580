"""Wrapping: the screen that comes of it, for text cut anywhere."""

from __future__ import annotations

import re
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tetrad.cli.talk.wrap import WordWrapper

MOVES = re.compile(r"\x1b\[(\d+)D\x1b\[K")


def screen(written: str, width: int) -> list[str]:
    """What a terminal of this width shows."""
    lines, at = [""], 0
    for move in [*MOVES.finditer(written), None]:
        for char in written[at : move.start() if move else None]:
            if char == "\n":
                lines.append("")
            elif cell_len(lines[-1]) + cell_len(char) > width:
                lines.append(char)
            else:
                lines[-1] += char
        if move is None:
            return lines
        kept = lines[-1]
        while cell_len(lines[-1]) - cell_len(kept) < int(move[1]):
            kept = kept[:-1]
        lines[-1], at = kept, move.end()
    return lines


def shown(text: str, width: int, cut: int = 1) -> list[str]:
    wrapper = WordWrapper(lambda: width)
    written = "".join(wrapper.feed(text[i : i + cut]) for i in range(0, len(text), cut))
    return [line.rstrip() for line in screen(written, width)]


WORDS = "Wrapping moves a word that does not fit, and nothing else on the screen."


@pytest.mark.parametrize("cut", [1, 3, 7, 100])
@pytest.mark.parametrize("width", [14, 20, 33, 80])
def test_lines_break_between_words(width: int, cut: int) -> None:
    assert shown(WORDS, width, cut) == textwrap.wrap(WORDS, width - 1)


def test_lines_of_the_text_stay() -> None:
    assert shown("one\n\n  two\nthree ", 20) == ["one", "", "  two", "three"]
    full = "x" * 8 + " " + "y" * 10
    assert shown(full + " \nz", 20) == [full, "z"]  # a break instead of the space is the line's end


def test_code_and_tables_are_left_to_the_terminal() -> None:
    long = "call(one, two, three, four)"
    text = f"```python\n{long}\n```\n{long}"
    assert shown(text, 20)[1:3] == [long[:20], long[20:]]
    assert shown(text, 20)[4:] == ["call(one, two,", "three, four)"]
    row = "| one | two | threefold |"
    assert shown(row, 20) == [row[:20], row[20:]]


def test_a_fence_is_closed_by_its_like() -> None:
    assert shown("~~~\n```\none two three four five", 20)[2:] == ["one two three four f", "ive"]


def test_a_word_longer_than_a_line_is_whole_in_the_text() -> None:
    address = "https://example.org/a/very/long/path"
    wrapper = WordWrapper(lambda: 20)
    written = "".join(map(wrapper.feed, f"see {address} now"))
    assert address in written  # no line end of ours in it
    assert shown(f"see {address} now", 20) == ["see", address[:20], address[20:], "now"]


def test_wide_letters_break_anywhere_but_before_their_full_stop() -> None:
    found = shown("日本語の文章は空白なしで書かれます。そして続く。", 21)
    assert all(cell_len(line) <= 20 and not line.startswith("。") for line in found)
    assert len(found) == 3


@given(
    st.text(st.sampled_from("ab é日。👩\u200d\u0301\t\n`|~ "), max_size=120),
    st.integers(12, 40),
    st.integers(1, 9),
)
def test_no_letter_is_lost(text: str, width: int, cut: int) -> None:
    found = "".join(shown(text, width, cut))
    assert re.sub(r"\s", "", found) == re.sub(r"\s", "", text)


def test_a_window_too_narrow_is_left_alone() -> None:
    assert WordWrapper(lambda: 5).feed(WORDS) == WORDS
