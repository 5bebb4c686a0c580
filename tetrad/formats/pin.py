"""Formats, pins: a file as it was opened, and whether it still is that.

Receives a path; returns a descriptor that outlives whatever happens to the name. A mapping shows
what is in the file now: one that is written over in place gives other numbers, one that is cut
short ends the process with SIGBUS. So whoever reads from a mapping for long asks first.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from collections.abc import Callable

from tetrad.core.errors import FileChangedError, FileFormatError
from tetrad.core.record import record

SAMPLES, SAMPLE = 64, 512  # pieces of a file that are compared, and their bytes


@record
class Identity:
    """What tells a file from others, and from itself at another time. A name does not: another file
    may take it."""

    device: int
    inode: int
    size: int
    time_ns: int


def sampled(descriptor: int, size: int) -> bytes:
    """Some of the content, from everywhere in the file."""
    places = range(0, max(size - SAMPLE, 0) + 1, max(size // SAMPLES, SAMPLE))
    return b"".join(os.pread(descriptor, SAMPLE, place) for place in places)


class Pin:
    """An open file that must stay as it is. Closed with the last reference to it."""

    __slots__ = ("changed_ns", "content", "descriptor", "identity", "path")

    def __init__(self, path: str) -> None:
        self.path, self.descriptor = path, -1
        # Non-blocking: a pipe in place of a file must not hang us.
        flags = (
            os.O_RDONLY
            | getattr(os, "O_NONBLOCK", 0)
            | getattr(os, "O_CLOEXEC", 0)
            | getattr(os, "O_BINARY", 0)
        )
        self.descriptor = os.open(path, flags)
        status = os.fstat(self.descriptor)
        self.identity, self.changed_ns = self.identified(status), status.st_ctime_ns
        self.content = sampled(self.descriptor, status.st_size)

    def identified(self, status: os.stat_result) -> Identity:
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.path)
        if not stat.S_ISREG(status.st_mode):
            raise FileFormatError("not a regular file", file=self.path)
        return Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def check(self) -> None:
        """Raises if the file was changed where it lies. One that was renamed, replaced or deleted
        stays as it is."""
        status = os.fstat(self.descriptor)
        now, was = self.identified(status), self.identity
        # A copy that keeps the time of its source (cp -p) changes only this one, and so does a new
        # name or mode.
        is_same = (
            status.st_ctime_ns == self.changed_ns
            or sampled(self.descriptor, now.size) == self.content
        )
        if is_same:
            self.changed_ns = status.st_ctime_ns
        if now != was or not is_same:
            what = (
                f"had {was.size} bytes, has {now.size}"
                if now.size != was.size
                else "was written to"
            )
            hint = (
                "load it again; to replace a file in use, write another beside it and rename that"
            )
            raise FileChangedError(
                f"the file {what} since it was opened", file=self.path, hint=hint
            )

    def mapped(self) -> mmap.mmap:
        if self.identity.size == 0:  # cannot be mapped
            raise FileFormatError("the file is empty", file=self.path, offset=0)
        return mmap.mmap(self.descriptor, self.identity.size, access=mmap.ACCESS_READ)

    # bound: modules may be emptied before
    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.descriptor >= 0:
            close(self.descriptor)
