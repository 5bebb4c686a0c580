"""Arrays, namespaces: how a folder such as `td.linalg` offers names whose files are loaded when one
of them is first used.

Receives the globals of the folder's own file and its table, file -> names; returns what Python asks
for a name that is not there yet, and for all names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tetrad.core import lazy


def offers(
    module: dict[str, Any], later: Mapping[str, Iterable[str]], modules: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a folder: `modules` are names of files that are public."""
    folder = module["__name__"]
    homes = {name: home for home, names in later.items() for name in names}

    def get(name: str) -> Any:
        if name in modules:
            return lazy.module(f"{folder}.{name}")
        if name not in homes:
            space = folder.rpartition(".")[2]
            raise lazy.module("tetrad.arrays.suggestions").absent(space, name)
        module[name] = found = getattr(lazy.module(f"{folder}.{homes[name]}"), name)
        return found

    return get, lambda: list(module["__all__"])
