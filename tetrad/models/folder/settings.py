"""Models, folders, settings: typed access to config.json.

Receives the object that a file holds; returns numbers, words and flags, or raises an error that
names the file and the field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tetrad.core.errors import FileFormatError
from tetrad.models.config import MOST

Fields = Mapping[str, Any]


class FolderSettings:
    """The fields of one object. A field that is null is as good as missing."""

    def __init__(self, fields: Fields, path: str, prefix: str = "") -> None:
        self.fields, self.path, self.prefix = fields, path, prefix

    def error(self, name: str, problem: str) -> FileFormatError:
        return FileFormatError(problem, file=self.path, part=f"field {self.prefix}{name}")

    def has(self, name: str) -> bool:
        return self.fields.get(name) is not None

    def first_of(self, *names: str) -> str:
        """The name that is there, of several for one thing; the first if none is."""
        return next((name for name in names if self.has(name)), names[0])

    def value(self, name: str, default: Any) -> Any:
        found = self.fields.get(name)
        return default if found is None else found

    def number(self, name: str, default: float | None = None) -> float:
        value = self.value(name, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not abs(value) < math.inf:
            came = "nothing" if value is None else repr(value)[:60]
            raise self.error(name, f"expected a number, got {came}")
        return value  # type: ignore[no-any-return]

    def positive(self, name: str, default: float | None = None) -> float:
        if (value := self.number(name, default)) <= 0:
            raise self.error(name, f"expected a number above 0, got {value}")
        return value

    def count(self, name: str, default: int | None = None, least: int = 1, most: int = MOST) -> int:
        value = self.number(name, default)
        if value != int(value) or not least <= value <= most:
            raise self.error(name, f"expected a whole number from {least} to {most}, got {value}")
        return int(value)

    def flag(self, name: str, default: bool) -> bool:
        if not isinstance(value := self.value(name, default), bool):
            raise self.error(name, f"expected true or false, got {value!r:.60}")
        return value

    def word(self, name: str, default: str | None, known: tuple[str, ...]) -> str:
        value = self.value(name, default)
        if not isinstance(value, str) or value not in known:
            raise self.error(name, f"{value!r:.60} is not supported; known: {', '.join(known)}")
        return value

    def words(self, name: str) -> list[str]:
        value = self.value(name, [])
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise self.error(name, f"expected a list of texts, got {value!r:.60}")
        return value

    def numbers(self, name: str, most: int) -> list[float]:
        """A list of numbers above 0."""
        value = self.value(name, None)
        if not isinstance(value, list) or len(value) > most:
            raise self.error(name, f"expected a list of at most {most} numbers")
        inner = FolderSettings({str(i): x for i, x in enumerate(value)}, self.path, f"{name}.")
        return [inner.positive(str(i)) for i in range(len(value))]

    def inner(self, name: str) -> FolderSettings:
        """The fields of an object inside; none where it is missing."""
        value = self.value(name, {})
        if not isinstance(value, dict):
            raise self.error(name, f"expected an object, got {value!r:.60}")
        return FolderSettings(value, self.path, f"{self.prefix}{name}.")

    def with_fields(self, fields: Fields) -> FolderSettings:
        return FolderSettings({**self.fields, **fields}, self.path, self.prefix)
