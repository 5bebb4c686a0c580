r"""Command line, wrapping: text as it streams, broken between words at the edge of the terminal.

Receives pieces of text that steer no terminal, cut anywhere; returns what to write now. A word is
shown at once and moved to the next line when it turns out not to fit. Code between fences, rows of
tables and words longer than a line are left to the terminal.
"""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Callable

from rich.cells import cell_len

LEAST = 12  # columns below which nothing is wrapped
FENCES = ("```", "~~~")
TAB = 8


def columns() -> int:
    """Of the terminal, as it is now."""
    return shutil.get_terminal_size().columns


class WordWrapper:
    r"""
    >>> wrapper = WordWrapper(lambda: 16)
    >>> wrapper.feed("The quick brown ") + wrapper.feed("fo") + wrapper.feed("x jumps mov")
    'The quick brown\nfox jumps mov'
    >>> wrapper.feed("ing")  # one letter too many
    'in\x1b[5D\x1b[K\nmoving'
    """

    def __init__(self, width: Callable[[], int] = columns) -> None:
        self.width, self.edge = width, 0
        self.column = 0  # cells in this line of the screen
        self.word = ""  # that stands at its end
        self.begin = ""  # of the line of the text: three characters tell what it is
        self.fence = ""  # of the code that this line is in
        self.has_wrapped = False  # instead of a space: more of them, or the end of the line, are it

    def feed(self, text: str) -> str:
        self.edge = self.width()
        return text if self.edge < LEAST else "".join(map(self.put, text))

    def put(self, char: str) -> str:
        if char == "\n":
            return self.end_line()
        if len(self.begin) < 3:
            self.begin = (self.begin + char).lstrip()
        if self.is_verbatim():
            self.column += cell_len(char)
            return char
        return self.put_space(char) if char in " \t" else self.put_letter(char)

    def end_line(self) -> str:
        if self.begin in FENCES and self.fence in ("", self.begin):
            self.fence = "" if self.fence else self.begin
        written = "" if self.has_wrapped else "\n"
        self.column, self.word, self.begin, self.has_wrapped = 0, "", "", False
        return written

    def is_verbatim(self) -> bool:
        return bool(self.fence) or self.begin in FENCES or self.begin.startswith("|")

    def put_space(self, char: str) -> str:
        size = TAB - self.column % TAB if char == "\t" else 1
        self.word = ""
        if self.has_wrapped:
            return ""
        if self.column + size < self.edge:
            self.column += size
            return char
        self.column, self.has_wrapped = 0, True
        return "\n"

    def put_letter(self, char: str) -> str:
        size = cell_len(char)
        if size == 2 and unicodedata.category(char) == "Lo":
            self.word = ""  # between such letters a line may end, but not before their full stop
        before = ""
        if self.column + size >= self.edge:
            before = self.make_room(size)
        self.column, self.word, self.has_wrapped = self.column + size, self.word + char, False
        return before + char

    def make_room(self, size: int) -> str:
        """The word moves to the next line; one that fills this line goes on as the terminal has it.

        The last column stays free: there, terminals differ in where the cursor is.
        """
        taken = cell_len(self.word)
        if taken == self.column:
            if self.column + size > self.edge:
                self.column, self.word = 0, ""
            return ""
        self.column = taken
        return (f"\x1b[{taken}D\x1b[K" if taken else "") + "\n" + self.word
