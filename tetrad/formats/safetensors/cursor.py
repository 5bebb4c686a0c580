"""Safetensors, the cursor: steps through a header that may lie about everything.

Receives a mapped file; returns names, texts and numbers, one at a time. The header is a small part
of JSON (objects, texts, lists of whole numbers); nothing else is accepted, so nothing nests, and
nothing is kept that was not asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from mmap import mmap
from typing import NoReturn

from tetrad.core.errors import FileFormatError
from tetrad.formats.safetensors.layout import PREFIX

SPACE = re.compile(rb"[ \t\n\r]*+")
TEXT = re.compile(rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
WHOLE = re.compile(rb"(?:0|[1-9][0-9]{0,18}+)(?![0-9.eE+-])")


class HeaderCursor:
    """A position in the header of one file. `part` names what is being read, for errors."""

    __slots__ = ("data", "end", "file", "part", "position")

    def __init__(self, file: str, data: mmap, end: int) -> None:
        self.file, self.data, self.end = file, data, end
        self.part, self.position = "header", PREFIX

    def fail(self, message: str, offset: int | None = None, hint: str | None = None) -> NoReturn:
        place = self.position if offset is None else offset
        raise FileFormatError(message, file=self.file, part=self.part, offset=place, hint=hint)

    def skip(self) -> int:
        """Over white space; where that ends."""
        found = SPACE.match(self.data, self.position, self.end)
        self.position = self.end if found is None else found.end()
        return self.position

    def take(self, wanted: str) -> str:
        """One of these characters, which must come next."""
        at = self.skip()
        found = chr(self.data[at]) if at < self.end else ""
        if not found or found not in wanted:
            came = "the header ends" if not found else f"got {found!r}"
            self.fail(f"expected {' or '.join(wanted)}, {came}")
        self.position = at + 1
        return found

    def comes(self, character: str) -> bool:
        """Is it next? Then it is stepped over."""
        at = self.skip()
        if at < self.end and self.data[at] == ord(character):
            self.position = at + 1
            return True
        return False

    def text(self, what: str, most: int) -> str:
        """A text of at most so many bytes, all of it characters."""
        start = self.skip()
        found = TEXT.match(self.data, start, self.end)
        if found is None:
            self.fail(f"{what}: expected a text")
        if (size := found.end() - start - 2) > most:
            self.fail(f"{what} has {size} bytes, at most {most} are accepted", start)
        try:
            made: str = json.loads(found[0])
            made.encode()  # half of a pair is no character
        except UnicodeError:
            self.fail(f"{what} is not UTF-8", start)
        self.position = found.end()
        return made

    def whole(self, what: str) -> int:
        start = self.skip()
        found = WHOLE.match(self.data, start, self.end)
        if found is None:
            self.fail(f"{what}: expected a whole number of at most 19 digits, not below 0")
        self.position = found.end()
        return int(found[0])

    def wholes(self, what: str, most: int) -> tuple[int, ...]:
        """A list of at most so many."""
        self.take("[")
        made: list[int] = []
        while not (self.comes("]") if not made else self.take(",]") == "]"):
            if len(made) == most:
                self.fail(f"{what} has more than {most} numbers")
            made.append(self.whole(what))
        return tuple(made)

    def keys(self, what: str, most: int) -> Iterator[tuple[int, str]]:
        """The places and keys of an object; whoever iterates reads each value, and no key comes
        twice."""
        self.take("{")
        seen: set[str] = set()
        while not (self.comes("}") if not seen else self.take(",}") == "}"):
            start = self.skip()
            key = self.text(what, most)
            if key in seen:
                self.fail(f"{what} {key!a:.80} occurs twice", start)
            seen.add(key)
            self.take(":")
            yield start, key
