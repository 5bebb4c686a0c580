"""Text while it is being generated: whole characters out of tokens, and stop strings found across
their borders.

Receives token ids one by one; returns the text that is certain so far.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tetrad.core.errors import TextError
from tetrad.core.record import record

if TYPE_CHECKING:
    from tetrad.text.tokenizer import Tokenizer


class StreamDecoder:
    """Gives text as ids arrive; the parts joined are `tokenizer.decode(ids)`. U+FFFD only for bytes
    that are no UTF-8.

    `continues`: the ids follow other text, so a leading space is part of it. `shown` are texts of
    special tokens that are not skipped.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special: bool = True,
        continues: bool = False,
        shown: Sequence[str] = (),
    ) -> None:
        self.tokenizer, self.skip_special = tokenizer, skip_special
        pieces = (piece for text in shown for piece in tokenizer.all_special.split(text))
        self.shown = frozenset(piece for piece in pieces if isinstance(piece, int))
        self.fresh = not continues
        self.utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, i: int) -> str:
        """The text that this token completes; empty in the middle of a character."""
        skip = self.skip_special and i not in self.shown
        piece, self.fresh = self.tokenizer.piece(i, self.fresh, skip)
        return self.utf8.decode(piece)

    def flush(self) -> str:
        """What is left at the end: U+FFFD if a character was cut."""
        return self.utf8.decode(b"", final=True)


@record
class Released:
    """Text that may be shown, and the stop string that was reached (None: go on)."""

    text: str
    stop: str | None = None


class StopStrings:
    """Holds text back while it may be the beginning of a stop string.

    >>> stops = StopStrings(["\\nUser:"])
    >>> stops.feed("Fine.\\n"), stops.feed("Us")
    (Released(text='Fine.', stop=None), Released(text='', stop=None))
    >>> stops.feed("er: and")
    Released(text='', stop='\\nUser:')
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if isinstance(stops, str) or any(not isinstance(s, str) or not s for s in stops):
            raise TextError(f"stop strings: expected a list of non-empty strings, got {stops!r}")
        self.stops = tuple(dict.fromkeys(stops))
        self.held = ""
        self.reached: str | None = None

    def feed(self, text: str) -> Released:
        """Text in; out comes what no stop string can begin in any more."""
        if self.reached is not None:
            return Released("", self.reached)
        self.held += text
        found = [(at, -len(stop), stop) for stop in self.stops if (at := self.held.find(stop)) >= 0]
        if found:  # the earliest; of those that start together, the longest
            at, _, self.reached = min(found)
            shown, self.held = self.held[:at], ""
            return Released(shown, self.reached)
        keep = self.begun()
        shown, self.held = self.held[: len(self.held) - keep], self.held[len(self.held) - keep :]
        return Released(shown)

    def begun(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        longest = max((len(stop) for stop in self.stops), default=1) - 1
        for size in range(min(longest, len(self.held)), 0, -1):
            if any(stop.startswith(self.held[-size:]) for stop in self.stops):
                return size
        return 0

    def flush(self) -> str:
        """The text still held, at the end of generation: it was no stop string after all."""
        shown, self.held = self.held, ""
        return shown
