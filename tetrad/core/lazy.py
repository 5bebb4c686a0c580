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
    from typing import Any

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
