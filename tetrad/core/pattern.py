"""Core: regular expressions that are compiled when they are first used.

Compiling the expressions of the parsers takes longer than importing their modules, and most
processes parse nothing.
"""

from __future__ import annotations

import re
from functools import cached_property


class LazyPattern:
    """The methods of a compiled expression that we use.

    >>> LazyPattern("a+").match("aab").group()
    'aa'
    """

    def __init__(self, text: str, flags: int = 0) -> None:
        self.text, self.flags = text, flags

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.text, self.flags)

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self.compiled.match(text, start)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self.compiled.fullmatch(text)

    def findall(self, text: str) -> list[str]:
        return self.compiled.findall(text)
