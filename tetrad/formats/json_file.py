"""Formats, JSON: small files of settings beside weights (config.json, an index of shards).

Receives a path; returns an object of plain values, or raises an error that names the file. A key
that comes twice, a file that is large or deep, is refused.
"""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from typing import Any

from tetrad.core.errors import FileFormatError

MAX_BYTES = 4 << 20
MAX_DIGITS = 40  # of a number


def read_object(path: str | os.PathLike[str], most: int = MAX_BYTES) -> dict[str, Any]:
    """The object that a file of at most so many bytes holds."""
    file = os.fsdecode(path)
    check_file(file, most)
    with open(file, "rb") as opened:
        found = parsed(opened.read(most), file)
    if not isinstance(found, dict):
        raise FileFormatError(f"expected an object, got {type(found).__name__}", file=file)
    return found


def check_file(file: str, most: int) -> None:
    """A pipe in place of a file would hang us; nor is a large one read."""
    status = os.stat(file)
    if not stat.S_ISREG(status.st_mode):
        raise FileFormatError("not a regular file", file=file)
    if status.st_size > most:
        raise FileFormatError(f"{status.st_size} bytes, at most {most} are accepted", file=file)


def parsed(data: bytes, file: str) -> Any:
    """The value of some JSON; `file` says where it comes from."""
    try:
        return json.loads(data, object_pairs_hook=once(file), parse_int=whole(file))
    except UnicodeDecodeError as error:
        raise FileFormatError("not UTF-8", file=file, offset=error.start) from None
    except json.JSONDecodeError as error:
        hint = "the file is damaged or not complete"
        raise FileFormatError(
            f"not JSON: {error.msg}", file=file, offset=error.pos, hint=hint
        ) from None
    except RecursionError:
        raise FileFormatError("values are nested too deep", file=file) from None


def once(file: str) -> Any:
    """Objects in which no key comes twice: Python would keep the last."""

    def made(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            twice = next(key for key, count in counts.items() if count > 1)
            raise FileFormatError(f"the key {twice!a:.80} occurs twice", file=file)
        return found

    return made


def whole(file: str) -> Any:
    def made(digits: str) -> int:
        if len(digits) > MAX_DIGITS:
            raise FileFormatError(f"a number of {len(digits)} digits", file=file)
        return int(digits)

    return made
