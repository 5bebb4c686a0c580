"""Core: lazy imports. The one place that imports by string.

A start that finds its programs on disk loads a third of the package. `tests/test_imports.py` reads
`module("tetrad...")` and `later("tetrad...")` like import statements, so lazy imports obey the same
order. What a folder needs from a later one (the methods of arrays are public functions) it asks for
by purpose, through `provided`; the package registers the provider.
"""

from __future__ import annotations

import importlib

# as in `tetrad/__init__.py`: to import `typing` would take longer than all else here
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterator, KeysView, ValuesView
    from typing import Any, TypeVar

    V = TypeVar("V")

PROVIDERS: dict[str, str] = {}  # what is needed below -> the module above that has it


def module(name: str) -> Any:
    """The module of this name, imported now if it was not before."""
    return importlib.import_module(name)


class Later:
    """A stand-in for a module, which is imported when an attribute is first read."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, found)
        return found


def later(name: str) -> Any:
    """A stand-in for a module, to be used as a global; an import under TYPE_CHECKING beside it
    tells type checkers."""
    return Later(name)


def provided(what: str) -> Any:
    """The module that the package has registered for this purpose."""
    return importlib.import_module(PROVIDERS[what])


class Filled(dict[str, "V"]):
    """A table that modules fill as they are imported.

    Those of `later` are imported when a name is looked up that is not there yet, one after the
    other until it is; all of them when the whole table is read.
    """

    def __init__(self, *later: str) -> None:
        super().__init__()
        self.later = later

    def load(self, name: str | None = None) -> None:
        """Import modules until one adds `name`; without a name, all."""
        with module("tetrad.core.floats").own_floats():  # modules compute constants as they load
            for each in self.later:
                importlib.import_module(each)
                if name is not None and super().__contains__(name):
                    return
        self.later = ()

    def __missing__(self, name: str) -> V:
        if name not in self:
            raise KeyError(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        if not super().__contains__(name) and self.later and isinstance(name, str):
            self.load(name)
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        found = name in self  # loads what defines it
        return super().__getitem__(name) if found else default

    def __iter__(self) -> Iterator[str]:
        self.load()
        return super().__iter__()

    def __len__(self) -> int:
        self.load()
        return super().__len__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        self.load()
        return super().keys()

    def values(self) -> ValuesView[V]:  # type: ignore[override]
        self.load()
        return super().values()

    def items(self) -> ItemsView[str, V]:  # type: ignore[override]
        self.load()
        return super().items()
