"""Models, config: the numbers that every model has, and typed access to the metadata they are read
from.

Receives metadata, returns a `Config`, checked before anything is allocated. What an architecture
has besides is said, read and checked in its own file; `decoder` has what decoders share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tetrad.core.errors import FileFormatError
from tetrad.core.record import record

# Far above any model; larger is a damaged file.
MOST_LAYERS, MOST_CONTEXT, MOST = 1 << 12, 1 << 27, 1 << 24


@record
class Config:
    """The numbers that every model has."""

    arch: str
    layers: int
    width: int
    vocab: int
    context: int


class Metadata:
    """Metadata of one file: typed access that names the key when something is wrong. `context` is
    the number of positions the caller prepares for, 0 for all the model can."""

    def __init__(self, values: Mapping[str, Any], path: str, arch: str, context: int = 0) -> None:
        self.values, self.path, self.arch, self.context = values, path, arch, context

    def error(self, key: str, problem: str) -> FileFormatError:
        return FileFormatError(f"{self.arch}: {problem}", file=self.path, part=f"key {key}")

    def number(self, name: str, default: float | None = None) -> float:
        key = f"{self.arch}.{name}"
        value = self.values.get(key, default)
        if isinstance(value, np.generic):
            value = value.item()
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise self.error(
                key, f"expected a number, got {'nothing' if value is None else repr(value)[:60]}"
            )
        return value

    def positive(self, name: str, default: float | None = None, above: float = 0.0) -> float:
        if (value := self.number(name, default)) <= above:
            raise self.error(
                f"{self.arch}.{name}", f"expected a number above {above:g}, got {value}"
            )
        return value

    def count(self, name: str, default: int | None = None, least: int = 1, most: int = MOST) -> int:
        value = self.number(name, default)
        if value != int(value) or not least <= value <= most:
            raise self.error(
                f"{self.arch}.{name}",
                f"expected a whole number from {least} to {most}, got {value}",
            )
        return int(value)

    def word(self, name: str, default: str, known: tuple[str, ...]) -> str:
        key = f"{self.arch}.{name}"
        value = self.values.get(key, default)
        if not isinstance(value, str) or value not in known:
            raise self.error(key, f"{value!r:.60} is not supported; known: {', '.join(known)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        key = f"{self.arch}.{name}"
        if not isinstance(value := self.values.get(key, default), bool | np.bool_):
            raise self.error(key, f"expected true or false, got {value!r:.60}")
        return bool(value)


def common_fields(meta: Metadata, vocab: int) -> dict[str, Any]:
    """The fields of `Config`, as the converter of llama.cpp writes them for all architectures."""
    return {
        "arch": meta.arch,
        "layers": meta.count("block_count", most=MOST_LAYERS),
        "width": meta.count("embedding_length"),
        "vocab": vocab,
        "context": meta.count("context_length", most=MOST_CONTEXT),
    }
