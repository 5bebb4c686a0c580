"""Model files, strings: `Strings`, many strings in one piece of memory, as a model file holds
them.

Receives bytes with a length before each string; returns a sequence that decodes what is asked for.
A vocabulary has hundreds of thousands of strings, few are looked at, and a Python object for each
takes longer than all weights.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import overload

import numpy as np

LENGTH_BYTES = 8
BLOCK = 256  # strings that are decoded together


def text_or_bytes(raw: bytes) -> str | bytes:
    """Tokens may be parts of characters: what is not UTF-8 stays bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


class Strings(Sequence[str | bytes]):
    """An array of strings, decoded when asked for.

    >>> words = Strings(b"\\1\\0\\0\\0\\0\\0\\0\\0a\\2\\0\\0\\0\\0\\0\\0\\0bc", array("I", [9, 19]))
    >>> words[1], list(words), words == Strings.of(["a", "bc"])
    ('bc', ['a', 'bc'], True)
    """

    __slots__ = ("data", "ends")

    def __init__(self, data: bytes, ends: array[int]) -> None:
        # as in the file: 8 bytes of length before each; where each ends in data
        self.data, self.ends = data, ends

    @classmethod
    def of(cls, texts: Iterable[str | bytes]) -> Strings:
        """The same for strings that are Python objects."""
        raw = [
            text.encode(errors="surrogatepass") if isinstance(text, str) else text for text in texts
        ]
        data = b"".join([len(one).to_bytes(LENGTH_BYTES, "little") + one for one in raw])
        return cls(data, array("I", accumulate(len(one) + LENGTH_BYTES for one in raw)))

    def places(self) -> tuple[np.ndarray, np.ndarray]:  # i64[count], i64[count]
        """Where the bytes of each string begin in `data`, and how many they are."""
        stops = np.frombuffer(self.ends, np.uint32).astype(np.int64)
        starts = np.full(len(stops), LENGTH_BYTES)
        starts[1:] += stops[:-1]
        return starts, stops - starts

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> str | bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[str | bytes]: ...
    def __getitem__(self, index: int | slice) -> str | bytes | list[str | bytes]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self.ends))[index]]
        raw = self.raw(index)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw

    def raw(self, i: int) -> bytes:
        """The bytes of one string."""
        ends = self.ends
        if i <= 0:  # the first, or counted from the end
            i = range(len(ends))[i]
        return self.data[(ends[i - 1] if i else 0) + LENGTH_BYTES : ends[i]]

    def __iter__(self) -> Iterator[str | bytes]:
        """All at once, which is many times as quick, where all are UTF-8 and none has a zero in
        it."""
        together = text_or_bytes(self._with_zeros())
        texts = together.split("\0")[1:] if isinstance(together, str) else ()
        return (
            iter(texts)
            if len(texts) == len(self)
            else map(text_or_bytes, map(self.raw, range(len(self))))
        )

    def _with_zeros(self) -> bytes:
        """The bytes of all strings, a zero before each."""
        data, (starts, _) = np.frombuffer(self.data, np.uint8).copy(), self.places()
        kept = np.ones(len(data), np.bool_)
        for back in range(2, LENGTH_BYTES + 1):
            kept[starts - back] = False
        data[starts - 1] = 0
        return data[kept].tobytes()

    def first_bytes(self) -> int | None:
        """Where the first string stands that is not UTF-8; None: there is none.

        Blocks are decoded with the lengths in them: those up to 127 are ASCII. Small ones stay in
        the cache.
        """
        _, lengths = self.places()
        unclear = set((np.flatnonzero(lengths > 127) // BLOCK).tolist())
        for number, first in enumerate(range(0, len(self), BLOCK)):
            last = min(first + BLOCK, len(self))
            block = self.data[self.ends[first - 1] if first else 0 : self.ends[last - 1]]
            if number in unclear or isinstance(text_or_bytes(block), bytes):
                found = next((i for i in range(first, last) if isinstance(self[i], bytes)), None)
                if found is not None:
                    return found
        return None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Strings):
            return self.data == other.data
        return list(self) == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # equal to lists, which have none

    def __repr__(self) -> str:
        more = f", ... {len(self)} in all" if len(self) > 8 else ""
        return f"Strings({', '.join(map(repr, self[:8]))}{more})"
