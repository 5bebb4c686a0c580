"""Core, trees, classes: how classes become containers, with the names they have in
`jax.tree_util`; and `Partial`, a function with arguments that is a tree.

Receives classes; tells `core.tree` how they are taken apart. Loaded when one of the names is first
used.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from tetrad.core.errors import TreeError, an
from tetrad.core.source import user_source
from tetrad.core.tree import Container, add, register

T = TypeVar("T")
C = TypeVar("C", bound=type)
Apart = Callable[[Any], tuple[Iterable[Any], Any]]
Together = Callable[[Any, Any], Any]
KeyedApart = Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]]


def register_pytree_node(
    nodetype: type[T],
    flatten_func: Apart,
    unflatten_func: Together,
    flatten_with_keys_func: KeyedApart | None = None,
) -> None:
    """Make a class a container: `register` with the names of JAX."""
    register(nodetype, flatten_func, unflatten_func, flatten_with_keys_func)


def register_pytree_node_class(cls: C) -> C:
    """Make a class with methods `tree_flatten` and `tree_unflatten` a container.

    >>> @register_pytree_node_class
    ... class Scale:
    ...     def __init__(self, factor):
    ...         self.factor = factor
    ...     def tree_flatten(self):
    ...         return (self.factor,), None
    ...     @classmethod
    ...     def tree_unflatten(cls, settings, children):
    ...         return cls(*children)
    >>> import tetrad as td
    >>> td.tree.map(lambda x: x + 1, Scale(2)).factor
    3
    """
    register(cls, lambda tree: tree.tree_flatten(), cls.tree_unflatten)  # type: ignore[attr-defined]
    return cls


def register_pytree_with_keys(
    nodetype: type[T],
    flatten_with_keys: KeyedApart,
    unflatten_func: Together,
    flatten_func: Apart | None = None,
) -> None:
    """Make a class a container that names its children: `flatten_with_keys(tree)` returns ((key,
    child), ...) and settings."""
    register(
        nodetype, flatten_func or without_keys(flatten_with_keys), unflatten_func, flatten_with_keys
    )


def without_keys(flatten_with_keys: KeyedApart) -> Apart:
    def flatten(tree: Any) -> tuple[Iterable[Any], Any]:
        pairs, data = flatten_with_keys(tree)
        return [child for _, child in pairs], data

    return flatten


def register_pytree_with_keys_class(cls: C) -> C:
    """Make a class with methods `tree_flatten_with_keys` and `tree_unflatten` a container; one with
    `tree_flatten` as well is taken apart faster."""
    apart: Apart | None = (
        (lambda tree: tree.tree_flatten()) if hasattr(cls, "tree_flatten") else None
    )
    register_pytree_with_keys(
        cls,
        lambda tree: tree.tree_flatten_with_keys(),
        cls.tree_unflatten,  # type: ignore[attr-defined]
        apart,
    )
    return cls


def register_static(cls: C) -> C:
    """Make objects of a class settings: trees without leaves, which select the program. They need a
    hash.

    >>> import tetrad as td
    >>> @register_static
    ... class Mode(str):
    ...     pass
    >>> td.tree.leaves({"mode": Mode("fast"), "x": 1})
    [1]
    """
    register(cls, lambda tree: ((), tree), lambda tree, _: tree)
    return cls


# -- dataclasses -----------------------------------------------------------------------------------


def register_dataclass(
    nodetype: Any = None,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
    *,
    static: Sequence[str] = (),
) -> Any:
    """Make a dataclass a container. `data_fields` are children, `meta_fields` are hashable
    settings.

    Without the two, fields are children, except those named in `static` and those made with
    `metadata={"static": True}`. Fields that `__init__` does not take, and `drop_fields`, are left
    out.

    >>> import dataclasses
    >>> import tetrad as td
    >>> @register_dataclass
    ... @dataclasses.dataclass
    ... class Linear:
    ...     weight: object
    ...     bias: object
    >>> td.tree.leaves(Linear(1, [2, 3]))
    [1, 2, 3]
    """
    if nodetype is None:
        return lambda cls: register_dataclass(
            cls, data_fields, meta_fields, drop_fields, static=static
        )
    data, meta = chosen_fields(nodetype, data_fields, meta_fields, drop_fields, static)

    def apart(tree: Any) -> tuple[Sequence[Any], Any]:
        return [getattr(tree, n) for n in data], tuple([getattr(tree, n) for n in meta])

    def together(settings: tuple[Any, ...], children: Sequence[Any]) -> Any:
        pairs = (*zip(data, children, strict=True), *zip(meta, settings, strict=True))
        return nodetype(**dict(pairs))

    return add(nodetype, Container(apart, together, lambda _, __: (f".{n}" for n in data)))


def chosen_fields(
    cls: type,
    data: Sequence[str] | None,
    meta: Sequence[str] | None,
    dropped: Sequence[str],
    static: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the children and of the settings."""
    if (data is None) != (meta is None):
        given = f"data_fields={data!r}, meta_fields={meta!r}"
        refuse(cls, f"got {given}", "give both, or neither")
    if data is None or meta is None:
        return inferred_fields(cls, dropped, static)
    if static:
        refuse(cls, "static= says what meta_fields says", "give one of them")
    if dataclasses.is_dataclass(cls):
        check_fields(cls, {*data, *meta}, dropped)
    return tuple(data), tuple(meta)


def inferred_fields(
    cls: type, dropped: Sequence[str], static: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if not dataclasses.is_dataclass(cls):
        refuse(cls, "it is no dataclass", "give data_fields and meta_fields, or @dataclass below")
    fields = [f for f in dataclasses.fields(cls) if f.init and f.name not in dropped]
    unknown = set(static) - {f.name for f in fields}
    if unknown:
        refuse(cls, f"it has no field {', '.join(sorted(unknown))}", None)
    meta = tuple(f.name for f in fields if f.name in static or f.metadata.get("static"))
    return tuple(f.name for f in fields if f.name not in meta), meta


def check_fields(cls: type, named: set[str], dropped: Sequence[str]) -> None:
    """Each field that `__init__` takes is named, and nothing else."""
    known = {f.name for f in dataclasses.fields(cls) if f.init}
    missing, unknown = known - named - set(dropped), named - known
    if missing:
        listed = ", ".join(sorted(missing))
        refuse(cls, f"left out: {listed}", "data_fields, meta_fields or drop_fields names each")
    if unknown:
        refuse(cls, f"__init__ takes no {', '.join(sorted(unknown))}", None)


def refuse(cls: Any, message: str, hint: str | None) -> NoReturn:
    name = cls.__name__ if isinstance(cls, type) else an(type(cls).__name__)
    raise TreeError(f"register_dataclass of {name}: {message}", source=user_source(), hint=hint)


# -- functions -------------------------------------------------------------------------------------


class Partial(functools.partial):  # type: ignore[type-arg]
    """`functools.partial` that is a tree: its arguments are the children, the function is a
    setting. So it may be passed to compiled functions, carried by loops, and returned.

    >>> import tetrad as td
    >>> half = Partial(td.multiply, 0.5)
    >>> td.jit(lambda f, x: f(x))(half, td.asarray(3.0))
    Array(1.5, float32)
    >>> td.tree.leaves(half)
    [0.5]
    """


register(
    Partial,
    lambda f: ((f.args, f.keywords), f.func),
    lambda func, parts: Partial(func, *parts[0], **parts[1]),
)
