"""JAX's names, tables: how a name of JAX is found among the functions of `td`.

Receives the table of a module (JAX's name -> where `td` has it) and a name; returns the function
itself. A name that `td` does not have is an error that says so; nothing stands in for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tetrad.core import lazy


class PublicNames:
    """`td` for the modules of the shell, which are loaded before its names are."""

    def __getattr__(self, name: str) -> Any:
        return getattr(lazy.provided("the public namespace"), name)


td: Any = PublicNames()


def same(names: str) -> dict[str, str]:
    """The part of a table in which the names are ours too.

    >>> same("sin cos")
    {'sin': 'sin', 'cos': 'cos'}
    """
    return {name: name for name in names.split()}


def within(folder: str, names: str) -> dict[str, str]:
    """The same for names of a folder.

    >>> within("fft", "rfft")
    {'rfft': 'fft.rfft'}
    """
    return {name: f"{folder}.{name}" for name in names.split()}


def found(path: str) -> Any:
    """`td.<path>`."""
    value: Any = td
    for part in path.split("."):
        value = getattr(value, part)
    return value


def reexported(module: dict[str, Any], table: Mapping[str, str], name: str) -> Any:
    """The function that a module of the shell offers by a name of JAX; it is kept there."""
    if name not in table:
        raise absent(module["__name__"], name)
    try:
        value = found(table[name])
    except AttributeError as error:
        raise absent(module["__name__"], name) from error
    module[name] = value
    return value


def absent(module: str, name: str) -> AttributeError:
    return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)


def listed(module: Mapping[str, Any], *tables: Iterable[str]) -> list[str]:
    """What `dir` of a module shows."""
    own = (name for name in module if not name.startswith("_"))
    return sorted({*own, *(name for table in tables for name in table)})
