"""Block formats: code books, the integers that codes of at most four bits stand for.

Receives the table of a format; finds the entry nearest to a number, and the code of an entry.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tetrad.quant.fields import F32, U8
from tetrad.quant.rounding import ONE, over

REACH = 256  # whole numbers from -128 on; a number lies between two of their halves
LEAST = -128


class CodeBook:
    """A table of integers from -128 to 127, looked up both ways."""

    def __init__(self, table: tuple[int, ...]) -> None:
        self.table = table
        self.end = np.float32(max(table, key=abs))  # the entry furthest from zero

    @cached_property
    def _entry_at(self) -> F32:
        """By the half number below. Entries are whole, so the middle of two is a multiple of a
        half: between such, one entry is nearest."""
        entries = np.unique(np.array(self.table, np.float32))
        middles = (np.arange(2 * REACH) / 2 + LEAST + 0.25)[:, None]
        nearest: F32 = entries[np.abs(middles - entries).argmin(axis=1)]
        return nearest

    @cached_property
    def _code_of(self) -> U8:
        """By the entry, from LEAST on."""
        entries, first = np.unique(np.array(self.table, np.int16), return_index=True)
        codes = np.zeros(REACH, np.uint8)
        codes[entries - LEAST] = first
        return codes

    def nearest(self, x: F32, step: F32) -> F32:
        """The entries whose multiples of the step come nearest to x; of nan some entry, for
        `Format.pack` to refuse."""
        halves = np.floor(x * over(ONE, step) * np.float32(2)) - np.float32(2 * LEAST)
        found: F32 = self._entry_at[np.fmin(np.fmax(halves, 0), 2 * REACH - 1).astype(np.int16)]
        return found

    def codes(self, entries: F32) -> U8:
        """The first code of each entry."""
        found: U8 = self._code_of[entries.astype(np.int16) - LEAST]
        return found
