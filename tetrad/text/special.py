"""Finds tokens that are cut out of the text before anything else: control, unknown and user-defined
ones.

Receives their texts; returns text in pieces, ids among strings. At each place the longest token
counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

LEAF = ""  # key of a node that ends a token; no character equals it


class Splitter:
    """A trie of the tokens, entered only where one of their first characters stands.

    >>> list(Splitter({"<a>": 7, "<a><b>": 8}).split("x<a><b><a>"))
    ['x', 8, 7]
    """

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self.root: dict[str, Any] = {}
        for text, i in tokens.items():
            node = self.root
            for char in text:
                node = node.setdefault(char, {})
            node[LEAF] = i
        firsts = re.escape("".join(sorted(self.root)))
        self.first = re.compile(f"[{firsts}]") if firsts else None

    def split(self, text: str) -> Iterator[str | int]:
        done = at = 0
        while self.first is not None and (found := self.first.search(text, at)):
            start, i, stop = found.start(), *self.longest(text, found.start())
            if i is None:
                at = start + 1
                continue
            if done < start:
                yield text[done:start]
            yield i
            done = at = stop
        if done < len(text):
            yield text[done:]

    def longest(self, text: str, start: int) -> tuple[int | None, int]:
        """The longest token that starts here, and where it stops."""
        node, best, stop = self.root, None, start
        for at in range(start, len(text)):
            child = node.get(text[at])
            if child is None:
                break
            node = child
            if LEAF in node:
                best, stop = node[LEAF], at + 1
        return best, stop
