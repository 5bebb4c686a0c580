"""Formats, replace: a file that takes its name once all of it is on disk.

Receives a path, hands out a new file to write to; leaves a complete file under that name, or what
was there before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO


@contextmanager
def replaced(path: str, kind: str) -> Iterator[BinaryIO]:
    """A new file that takes the name `path` once all of it is on disk; after an error there is no
    trace of it."""
    folder = os.path.dirname(path)
    temporary = os.path.join(folder, f".{kind}-{os.urandom(8).hex()}.tmp")
    try:
        with open(temporary, "xb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename == temporary:
            raise OSError(error.errno, error.strerror, path) from None  # the name users know
        raise
    keep_name(folder)


def keep_name(folder: str) -> None:
    """A new name is on disk when its folder is; some systems cannot say that of a folder."""
    with suppress(OSError):
        descriptor = os.open(folder or ".", os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
