"""JAX's names, tables: how a name of JAX is found among the functions of `td`.

Receives the table of a module (JAX's name -> where `td` has it) and a name; returns the function
itself. A name that `td` does not have is an error that says so; nothing stands in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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


def offers(
    module: dict[str, Any], table: Mapping[str, str], folders: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module of the shell: the names of its table, and the modules
    of its folder."""

    def get(name: str) -> Any:
        if name in folders:
            return lazy.module(f"{module['__name__']}.{name}")
        return reexported(module, table, name)

    return get, lambda: listed(module, table, folders)


def reexported(module: dict[str, Any], table: Mapping[str, str], name: str) -> Any:
    """The function that a module of the shell offers by a name of JAX; it is kept there."""
    if name not in table:
        raise absent(module["__name__"], name)
    module[name] = value = found(table[name])
    return value


def absent(module: str, name: str) -> AttributeError:
    return AttributeError(f"module {module!r} has no attribute {name!r}", name=name)


def listed(module: Mapping[str, Any], *tables: Iterable[str]) -> list[str]:
    """What `dir` of a module shows."""
    own = (name for name in module if not name.startswith("_"))
    return sorted({*own, *(name for table in tables for name in table)})
