"""CPU back end, compile cache: compiled objects kept on disk, one file per entry, so that a second
start compiles nothing.

Receives keys (hashes of everything that shaped the code) and object bytes; returns bytes only after
a strong checksum over all of them, because one flipped bit in an object crashes the process or,
worse, changes results. The worst that a damaged, shared, full or forbidden directory can do is a
recompilation.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from tetrad.core.flags import flag
from tetrad.core.pattern import LazyPattern
from tetrad.core.record import record
from tetrad.core.visible import visible

MAGIC = b"TETRADOB"
FORMAT = 1
LIMIT_BYTES = 512 << 20
ORPHAN_SECONDS = 3600  # a temporary file this old belongs to a writer that died

# magic, format, bytes of the body, key; behind it the SHA-256 of this prefix and the body, then the
# body
PREFIX = struct.Struct("<8sIQ64s")
HEADER_BYTES = PREFIX.size + hashlib.sha256().digest_size

KEY = LazyPattern(r"[0-9a-f]{64}")
ENTRY = LazyPattern(r"[0-9a-f]{64}\.obj")
TEMPORARY = LazyPattern(r"[0-9a-f]{64}\.[0-9a-f]{16}\.tmp")

# Where the system has no such flag (Windows), it has no openat either, and the cache says so and
# stays off.
_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
_OPEN_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _FLAGS
# a fifo in place of an entry must not hang us
_OPEN_ENTRY = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _FLAGS
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS


class System(Protocol):
    """The part of the `os` module the cache uses; tests hand in one that fails or dies at any
    call."""

    def makedirs(self, name: str, mode: int = ..., exist_ok: bool = ...) -> None: ...
    def open(self, path: Any, flags: int, mode: int = ..., *, dir_fd: int | None = ...) -> int: ...
    def close(self, fd: int, /) -> None: ...
    def read(self, fd: int, length: int, /) -> bytes: ...
    def write(self, fd: int, data: Any, /) -> int: ...
    def fsync(self, fd: int) -> None: ...
    def fstat(self, fd: int) -> os.stat_result: ...
    def stat(
        self, path: str, *, dir_fd: int | None = ..., follow_symlinks: bool = ...
    ) -> os.stat_result: ...
    def utime(self, path: int) -> None: ...
    def rename(
        self, src: str, dst: str, *, src_dir_fd: int | None = ..., dst_dir_fd: int | None = ...
    ) -> None: ...
    def unlink(self, path: str, *, dir_fd: int | None = ...) -> None: ...
    def listdir(self, path: int) -> list[str]: ...


@record
class Stats:
    """What lies on disk, and what this cache object has seen; `trouble` says why it stopped reading
    or writing."""

    entries: int
    bytes: int
    hits: int
    misses: int
    damaged: int
    trouble: str


@record
class _Entry:
    used: int
    name: str
    size: int


class _Notice:
    """One line on stderr per process, however many caches and entries are in trouble."""

    said = False

    def say(self, text: str) -> None:
        if not self.said and sys.stderr is not None:
            with suppress(OSError, ValueError):  # a closed stderr must not fail a compilation
                print(f"tetrad: {visible(text)}", file=sys.stderr)
        self.said = True


NOTICE = _Notice()


def cache_key(*parts: str) -> str:
    """One key for everything that shaped the code; the boundaries between the parts count.

    >>> cache_key("kernel", "avx2")[:16], cache_key("kernela", "vx2")[:16]
    ('e3d57ea804c92c59', '5dc4f972b82a35ac')
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(struct.pack("<Q", len(data)))
        digest.update(data)
    return digest.hexdigest()


def default_directory() -> str | None:
    """$XDG_CACHE_HOME/tetrad or ~/.cache/tetrad; None for a user without a home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # the XDG specification: a relative path is to be ignored
        base = os.path.expanduser("~/.cache")
    return os.path.join(base, "tetrad") if os.path.isabs(base) else None


class ObjectCache:
    """Entries in one private directory, least recently used deleted first; without a directory
    every look-up misses.

    Any number of processes may share the directory. No call but `clear` raises because of what the
    disk does.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        limit_bytes: int = LIMIT_BYTES,
        system: System = os,
    ) -> None:
        self._directory = None if directory is None else os.path.abspath(directory)
        self._limit, self._os = limit_bytes, system
        self._reads = self._writes = directory is not None
        self._hits = self._misses = self._damaged = 0
        self._trouble = ""
        # bytes of all entries, as far as this process knows; None before the first scan
        self._total: int | None = None
        self._written = 0  # bytes since the last scan

    @classmethod
    def from_flags(cls) -> ObjectCache:
        """The cache that TETRAD_CACHE_DIR names, in the user's cache directory unless it says
        otherwise."""
        name = flag("TETRAD_CACHE_DIR")
        if name == "off":
            return cls(None)
        directory = os.path.expanduser(name) if name else default_directory()
        if directory is None:
            NOTICE.say(
                "compiled code is not cached: no home directory; set TETRAD_CACHE_DIR to a "
                "directory, or to off"
            )
        return cls(directory)

    def get(self, key: str) -> bytes | None:
        """The body stored under the key, verified; None when there is none or when it is damaged in
        any way."""
        name = _entry_name(key)
        body = None
        if self._reads:
            try:
                with self._opened() as directory:
                    body = self._read_entry(directory, name, key)
            except OSError as error:
                self._stop_using(error)
        self._hits += body is not None
        self._misses += body is None
        return body

    def put(self, key: str, body: bytes) -> None:
        """Stores the body under the key, replacing what was there; readers see the old entry or the
        new, whole."""
        name = _entry_name(key)
        size = HEADER_BYTES + len(body)
        if not self._writes or size > self._floor:
            return
        try:
            with self._opened() as directory:
                self._make_room(directory, size)
                # somebody clears the directory: the entry is lost, nothing is wrong
                with suppress(FileNotFoundError):
                    self._publish(directory, name, _seal(key, body), body)
        except OSError as error:
            self._stop_writing(error)

    def stats(self) -> Stats:
        entries: list[_Entry] = []
        if self._reads:
            try:
                with self._opened() as directory:
                    entries = self._entries(directory)
            except OSError as error:
                self._stop_using(error)
        size = sum(entry.size for entry in entries)
        return Stats(len(entries), size, self._hits, self._misses, self._damaged, self._trouble)

    def clear(self) -> None:
        """Deletes every entry and every temporary file of ours, and nothing else; raises OSError
        when it cannot."""
        if self._directory is None:
            return
        with self._opened() as directory:
            for name in self._os.listdir(directory):
                if ENTRY.fullmatch(name) or TEMPORARY.fullmatch(name):
                    self._unlink(directory, name)
        self._total = 0

    # --- the directory ----------------------------------------------------------------------------

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The directory, open and found private. All files are named relative to it, so it cannot
        be swapped later."""
        descriptor = self._open_directory()
        try:
            refuse_unless_private(self._os.fstat(descriptor), str(self._directory), "chmod 700")
            yield descriptor
        finally:
            self._os.close(descriptor)

    def _open_directory(self) -> int:
        assert self._directory is not None
        try:
            return self._os.open(self._directory, _OPEN_DIRECTORY)
        except FileNotFoundError:
            self._os.makedirs(self._directory, 0o700, exist_ok=True)
            return self._os.open(self._directory, _OPEN_DIRECTORY)

    def _stop_using(self, error: OSError) -> None:
        self._reads = False
        self._stop_writing(error)

    def _stop_writing(self, error: OSError) -> None:
        self._writes = False
        self._trouble = self._trouble or f"{self._directory}: {error.strerror or error}"
        NOTICE.say(f"compiled code is not cached: {self._trouble}")

    # --- one entry --------------------------------------------------------------------------------

    def _read_entry(self, directory: int, name: str, key: str) -> bytes | None:
        try:
            body = self._verified(directory, name, key)
        except FileNotFoundError:
            return None
        except (
            OSError
        ):  # unreadable, a link, or a file that others own or can write: not an entry we wrote
            body = None
        if body is None:
            self._damaged += 1
            with suppress(OSError):
                self._os.unlink(name, dir_fd=directory)
        return body

    def _verified(self, directory: int, name: str, key: str) -> bytes | None:
        """The body, if every byte of the file is what `put` wrote for this key."""
        descriptor = self._os.open(name, _OPEN_ENTRY, dir_fd=directory)
        try:
            status = self._os.fstat(descriptor)
            refuse_unless_private(status, name, "chmod 600")
            size = status.st_size - HEADER_BYTES
            if not stat.S_ISREG(status.st_mode) or not 0 <= size <= self._limit:
                return None
            head, body = self._read(descriptor, HEADER_BYTES), self._read(descriptor, size)
            if len(body) != size or head != _seal(key, body):
                return None
            with suppress(OSError):  # on a read-only disk entries are never deleted either
                self._os.utime(descriptor)
            return body
        finally:
            self._os.close(descriptor)

    def _read(self, descriptor: int, size: int) -> bytes:
        data = self._os.read(descriptor, size)
        while len(data) < size and (more := self._os.read(descriptor, size - len(data))):
            data += more
        return data

    def _publish(self, directory: int, name: str, head: bytes, body: bytes) -> None:
        """Writes beside the entry, makes it durable, then renames: no reader and no crash sees a
        part of it."""
        temporary = f"{name.removesuffix('.obj')}.{os.urandom(8).hex()}.tmp"
        descriptor = self._os.open(temporary, _CREATE, 0o600, dir_fd=directory)
        try:
            try:
                self._write(descriptor, head)
                self._write(descriptor, body)
                self._os.fsync(descriptor)
            finally:
                self._os.close(descriptor)
            self._os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(OSError):
                self._os.unlink(temporary, dir_fd=directory)
            raise

    def _write(self, descriptor: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._os.write(descriptor, rest) :]

    # --- the limit --------------------------------------------------------------------------------

    @property
    def _floor(self) -> int:
        """What is left after entries were deleted for room; a single entry larger than this is not
        worth keeping."""
        return self._limit * 3 // 4

    def _make_room(self, directory: int, size: int) -> None:
        """Looks at the disk again after every eighth of the limit, not only when it is full: others
        write too."""
        if (
            self._total is None
            or self._total + size > self._limit
            or self._written > self._limit // 8
        ):
            self._total, self._written = self._sweep(directory, size), 0
        self._total += size
        self._written += size

    def _sweep(self, directory: int, wanted: int) -> int:
        """Removes what dead writers left and, when over the limit, the least recently used; returns
        the bytes kept."""
        entries = self._entries(directory, remove_orphans=True)
        total = sum(entry.size for entry in entries)
        if total + wanted <= self._limit:
            return total
        for entry in sorted(entries, key=lambda entry: (entry.used, entry.name)):
            if total + wanted <= self._floor:
                break
            self._unlink(directory, entry.name)
            total -= entry.size
        return total

    def _entries(self, directory: int, *, remove_orphans: bool = False) -> list[_Entry]:
        found = []
        for name in self._os.listdir(directory):
            if not ENTRY.fullmatch(name) and not TEMPORARY.fullmatch(name):
                # never touch a file that is not ours: the user may have named any directory
                continue
            with suppress(FileNotFoundError):  # deleted by another process since it was listed
                status = self._os.stat(name, dir_fd=directory, follow_symlinks=False)
                if name.endswith(".obj"):
                    found.append(_Entry(status.st_mtime_ns, name, status.st_size))
                elif remove_orphans and abs(time.time() - status.st_mtime) > ORPHAN_SECONDS:
                    self._os.unlink(name, dir_fd=directory)
        return found

    def _unlink(self, directory: int, name: str) -> None:
        with suppress(FileNotFoundError):
            self._os.unlink(name, dir_fd=directory)


def refuse_unless_private(status: os.stat_result, name: str, remedy: str) -> None:
    """Objects are executable: whoever can write one, or the directory they are in, can run code as
    its reader."""
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "belongs to another user", name)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, f"can be written by other users ({remedy})", name)


def _entry_name(key: str) -> str:
    if not KEY.fullmatch(key):
        raise ValueError(f"cache: a key is made by cache_key, got {key!r}")
    return f"{key}.obj"


def _seal(key: str, body: bytes) -> bytes:
    """The only header that a file with this key and this body may have."""
    prefix = PREFIX.pack(MAGIC, FORMAT, len(body), key.encode())
    digest = hashlib.sha256(prefix)
    digest.update(body)
    return prefix + digest.digest()
