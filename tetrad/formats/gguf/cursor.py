"""GGUF, the cursor: steps through the header of a file that may lie about everything.

Receives a mapped file; returns scalars, strings and arrays, each after its length was compared with
the bytes that are left. All sizes are Python integers, so none wraps; nothing is allocated for a
length that was not checked.
"""

from __future__ import annotations

import struct
from array import array
from mmap import mmap
from typing import NoReturn, TypeAlias

import numpy as np

from tetrad.core.errors import FileFormatError, FileTooShortError
from tetrad.core.visible import shown
from tetrad.formats.gguf.layout import (
    ARRAY,
    LONG_STRING_BYTES,
    MAX_ARRAYS,
    MAX_DEPTH,
    MAX_HEADER_BYTES,
    MAX_NAME_BYTES,
    MAX_STRINGS,
    MAX_TEXT_BYTES,
    SCALAR_NAMES,
    SCALARS,
    STRING,
    Scalar,
    Typed,
)
from tetrad.formats.strings import Strings, text_or_bytes

Ends: TypeAlias = "array[int]"
U32, U64 = struct.Struct("<I"), struct.Struct("<Q")
SMALLEST_STRING = 8  # its length
SMALLEST_ARRAY = 12  # type and count
WINDOW = 1 << 16  # bytes in which strings are looked for at once
# strings that are read one by one where that found few; twice as many each time it did again
STEPS = 256


class Cursor:
    """A position in the header of one file. `part` names the key or tensor being read, for
    errors."""

    __slots__ = ("arrays", "data", "end", "file", "part", "position", "strings", "text_bytes")

    def __init__(self, file: str, data: mmap | bytes) -> None:
        self.file, self.data, self.end = file, data, min(len(data), MAX_HEADER_BYTES)
        self.part, self.position = "header", 0
        self.arrays = self.strings = self.text_bytes = 0  # so far

    def fail(self, message: str, offset: int | None = None, hint: str | None = None) -> NoReturn:
        place = self.position if offset is None else offset
        raise FileFormatError(message, file=self.file, part=self.part, offset=place, hint=hint)

    def fail_short(self, message: str, offset: int | None = None) -> NoReturn:
        """What is there ends too early; more of the file may hold it."""
        place = self.position if offset is None else offset
        limit = " (the limit of a header)" if self.end == MAX_HEADER_BYTES else ""
        left = f"but only {self.end - self.position} are left{limit}"
        hint = "the file is damaged or not complete"
        raise FileTooShortError(
            f"{message}, {left}", file=self.file, part=self.part, offset=place, hint=hint
        )

    def take(self, count: int, what: str) -> int:
        """Steps over `count` bytes and returns where they begin; the only way forward."""
        start = self.position
        if count > self.end - start:
            self.fail_short(f"{what} needs {count} bytes")
        self.position = start + count
        return start

    def u32(self, what: str) -> int:
        return int(U32.unpack_from(self.data, self.take(4, what))[0])

    def u64(self, what: str) -> int:
        return int(U64.unpack_from(self.data, self.take(8, what))[0])

    def u64s(self, number: int, what: str) -> tuple[int, ...]:
        return struct.unpack_from(f"<{number}Q", self.data, self.take(8 * number, what))

    def count(self, what: str, smallest: int, most: int = MAX_HEADER_BYTES) -> int:
        """A number of things that take at least `smallest` bytes each."""
        start = self.position
        number = self.u64(f"the number of {what}")
        if number > most:
            self.fail(f"{number} {what}, at most {most} are accepted", start)
        if number * smallest > self.end - self.position:
            self.fail_short(f"{number} {what} need at least {number * smallest} bytes", start)
        return number

    def string(self, what: str) -> bytes:
        length = self.u64(f"the length of {what}")
        start = self.take(length, what)
        return self.data[start : start + length]

    def name(self, what: str) -> str:
        """A key or the name of a tensor: not empty, UTF-8, without the zero where C would end
        it."""
        start = self.position
        raw = self.string(what)
        if not 0 < len(raw) <= MAX_NAME_BYTES:
            self.fail(f"{what} has {len(raw)} bytes, 1 to {MAX_NAME_BYTES} are possible", start)
        name = self.text(raw, start)
        if isinstance(name, bytes):
            self.fail(f"{what} {shown(raw)} is not UTF-8", start)
        if "\0" in name:
            self.fail(f"{what} {shown(raw)} contains a zero byte", start)
        return name

    def text(self, raw: bytes, start: int) -> str | bytes:
        """Decoded where that can be, as long as all such text is not too much."""
        if len(raw) >= LONG_STRING_BYTES:
            return raw
        self.text_bytes += len(raw)
        if self.text_bytes > MAX_TEXT_BYTES:
            self.fail(f"names and strings have more than {MAX_TEXT_BYTES} bytes together", start)
        return text_or_bytes(raw)

    def value(self) -> Typed:
        """One value of the metadata, with the type before it."""
        start = self.position
        kind = self.u32("the type of the value")
        if kind == STRING:
            return Typed("str", self.text(self.string("the string"), start))
        if kind == ARRAY:
            return self.array(1)
        type = self._scalar(kind, start)
        return Typed(type, self._number(SCALARS[type]))

    def _scalar(self, kind: int, start: int) -> str:
        if kind not in SCALAR_NAMES:
            self.fail(f"{kind} is not a type of metadata", start, hint="types are 0 to 12")
        return SCALAR_NAMES[kind]

    def _number(self, scalar: Scalar) -> int | float | bool:
        start = self.take(struct.calcsize(scalar.code), "the value")
        if scalar.dtype == "|b1" and self.data[start] > 1:
            self.fail(f"a bool is 0 or 1, not {self.data[start]}", start)
        number: int | float | bool = struct.unpack_from(scalar.code, self.data, start)[0]
        return number

    def array(self, depth: int) -> Typed:
        start, self.arrays = self.position, self.arrays + 1
        if depth > MAX_DEPTH:
            self.fail(f"arrays are nested more than {MAX_DEPTH} deep", start)
        if self.arrays > MAX_ARRAYS:
            self.fail(f"more than {MAX_ARRAYS} arrays", start)
        kind = self.u32("the type of the elements")
        if kind == STRING:
            return Typed("[str]", self._strings())
        if kind == ARRAY:
            return Typed(
                "[array]",
                [self.array(depth + 1) for _ in range(self.count("arrays", SMALLEST_ARRAY))],
            )
        type = self._scalar(kind, start)
        return Typed(f"[{type}]", self._numbers(SCALARS[type]))

    def _numbers(self, scalar: Scalar) -> np.ndarray:
        dtype = np.dtype(scalar.dtype)
        count = self.count("elements", dtype.itemsize)
        start = self.take(count * dtype.itemsize, "the array")
        raw = self.data[start : self.position]  # a copy: metadata outlives the file
        if scalar.dtype == "|b1" and raw.strip(b"\0\1"):
            self.fail("a bool is 0 or 1, the array has other bytes", start)
        return np.ndarray((count,), dtype, raw)

    def _strings(self) -> Strings:
        """Reads lengths only: many at once where strings are short, else one by one."""
        count = self.count("strings", SMALLEST_STRING, MAX_STRINGS - self.strings)
        self.strings += count
        start, ends, steps = self.position, array("I"), STEPS  # headers are far below 4 GiB
        header = np.frombuffer(self.data, np.uint8, self.end)
        while len(ends) < count:
            progress = self._leap(header, start, ends, count) if count - len(ends) > STEPS else 0
            # Looking for strings takes as long as some hundred steps: where it fails it is tried
            # ever more seldom.
            steps = STEPS if progress > WINDOW // 2 else 2 * steps
            self._step(start, ends, count, 1 if progress > WINDOW // 2 else steps)
        return Strings(self.data[start : self.position], ends)

    def _leap(self, header: np.ndarray, start: int, ends: Ends, count: int) -> int:
        """Over the strings that are seen at once in a window; how many bytes that is."""
        before = self.position
        found = short_strings(header[before : before + WINDOW])[: count - len(ends)]
        if len(found):
            ends.frombytes((found + np.uint32(before - start)).tobytes())
            self.position = start + ends[-1]
        return self.position - before

    def _step(self, start: int, ends: Ends, count: int, steps: int) -> None:
        """So many strings, one by one."""
        data, end, length_at, stop = self.data, self.end, U64.unpack_from, self.position
        for i in range(len(ends), min(len(ends) + steps, count)):
            at, stop = stop, stop + SMALLEST_STRING
            if stop <= end:
                stop += length_at(data, at)[0]
            if stop > end:
                self.position = at
                self.fail_short(f"string {i} of {count} needs {stop - at} bytes")
            ends.append(stop - start)
        self.position = stop


def short_strings(window: np.ndarray) -> np.ndarray:  # u8[bytes] -> u32[strings]
    """Where strings end that follow each other from the beginning of the window, as far as that is
    easily seen.

    A length below 256 is a byte before seven zeros, which hardly any string holds. Each such place
    counts only if it is where the string before ends, so what is found is right, whatever the bytes
    are.

    >>> zeros = bytes(7)
    >>> window = b"\\1" + zeros + b"a" + b"\\2" + zeros + b"bc" + b"\\1\\0"
    >>> short_strings(np.frombuffer(window, np.uint8)).tolist()
    [9, 19]
    """
    zero = window[1:] == 0
    two = zero[:-1] & zero[1:]
    four = two[:-2] & two[2:]
    places = np.flatnonzero(four[:-3] & four[3:])  # seven
    ends: np.ndarray = places + window[places] + SMALLEST_STRING
    begins = np.zeros(len(places), np.int64)
    begins[1:] = ends[:-1]
    right = (places == begins) & (ends <= len(window))
    return ends[: len(ends) if right.all() else int(right.argmin())].astype(np.uint32)
