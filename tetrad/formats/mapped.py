"""Formats, mapped files: tensors whose bytes lie in one file or several, open and pinned.

Receives descriptions of tensors, checked to lie inside their files; returns views of mapped bytes.
What a format knows besides, metadata and types, its own class adds.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from tetrad.core.errors import FileFormatError
from tetrad.core.visible import shown
from tetrad.formats.pin import Pin


class MappedTensor(Protocol):
    """Where the bytes of a tensor are; `offset` counts from the beginning of `file`."""

    @property
    def nbytes(self) -> int: ...
    @property
    def file(self) -> str: ...
    @property
    def offset(self) -> int: ...


class MappedPart(Protocol):
    """One file of a set, or the only one."""

    @property
    def path(self) -> str: ...
    @property
    def mapped(self) -> mmap.mmap: ...
    @property
    def pin(self) -> Pin: ...


T = TypeVar("T", bound=MappedTensor)


class MappedFiles(Generic[T]):
    """An open file or set of files. Views stay valid after `close`: a mapping goes with the last of
    them."""

    def __init__(self, path: str, tensors: Mapping[str, T], parts: Iterable[MappedPart]) -> None:
        self.path, self.tensors = path, dict(tensors)
        parts = list(parts)
        self._maps = {part.path: part.mapped for part in parts}
        self.pins = {part.path: part.pin for part in parts}

    def data(self, name: str) -> np.ndarray:  # u8[nbytes]
        """The bytes of a tensor, read-only, in place."""
        if name not in self.tensors:
            hint = f"`tensors` lists the {len(self.tensors)} there are"
            raise FileFormatError(f"there is no tensor {shown(name)}", file=self.path, hint=hint)
        tensor = self.tensors[name]
        if tensor.file not in self._maps:
            raise ValueError(f"{self.path} is closed")
        return np.frombuffer(self._maps[tensor.file], np.uint8, tensor.nbytes, tensor.offset)

    def contents(self, file: str) -> np.ndarray:  # u8[bytes of the file]
        """All bytes of one file, read-only, in place: `offset` of a tensor counts from here."""
        return np.frombuffer(self._maps[file], np.uint8)

    def check(self) -> None:
        """Raises if one of the files was changed in place since it was opened."""
        for pin in self.pins.values():
            pin.check()

    def release(self, name: str) -> None:
        """Take the pages of a tensor out of this process's memory, for whoever has made something
        of them.

        Views stay valid: a page that is read again comes back. Pages shared with a neighbour stay.
        """
        tensor = self.tensors[name]
        first = -(-tensor.offset // mmap.PAGESIZE) * mmap.PAGESIZE
        size = (tensor.offset + tensor.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
        if size > 0 and hasattr(mmap, "MADV_DONTNEED"):
            self._maps[tensor.file].madvise(mmap.MADV_DONTNEED, first, size)

    def close(self) -> None:
        maps, self._maps, self.pins = self._maps, {}, {}
        for mapped in maps.values():
            with suppress(BufferError):  # a view is alive and keeps the mapping
                mapped.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()
