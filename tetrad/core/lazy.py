"""Station 0, shared words: modules that are loaded when they are first used. The one place that
imports by name.

A start that finds its programs on disk loads a third of the package. `tests/test_imports.py` reads
`module("tetrad...")` and `later("tetrad...")` like import statements, so they point the way all
imports point. What a folder needs from above (arrays have the methods of the public namespace) it
asks for by what it is: the package says who provides it.
"""

from __future__ import annotations

import importlib

# as in `tetrad/__init__.py`: to import `typing` would take longer than all else here
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROVIDERS: dict[str, str] = {}  # what is needed below -> the module above that has it


def module(name: str) -> Any:
    """The module of this name, loaded now if it was not before."""
    return importlib.import_module(name)


class Later:
    """A module whose content is loaded when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, found)
        return found


def later(name: str) -> Any:
    """A stand-in for a module, to be a global of another one; type checkers get an import beside
    it."""
    return Later(name)


def provided(what: str) -> Any:
    """The module that the package has named for this."""
    return importlib.import_module(PROVIDERS[what])
