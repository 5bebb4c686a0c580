"""Core: trees of arrays, nested dicts, lists, tuples and dataclasses.

`flatten` receives a tree, returns its leaves in a fixed order and a `TreeDef`, a hashable
description; `unflatten` builds the tree again from the two. None is a tree without leaves. Whatever
is not a known container is a leaf.
"""

from __future__ import annotations

import builtins
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from tetrad.core import lazy
from tetrad.core.errors import TraceError
from tetrad.core.record import record
from tetrad.core.source import user_source

T = TypeVar("T")
Question = Callable[[Any], bool]


@record(eq=False)
class TreeDef:
    """The structure of a tree: the container, what it needs to be built again, and its children.

    There is one object per structure (`tree_def` makes them), so comparing and hashing cost
    nothing.
    """

    container: type | None  # None for a leaf
    data: Hashable
    children: tuple[TreeDef, ...]

    def leaf_names(self, prefix: str = "") -> Iterator[str]:
        """How a user reaches each leaf: `['w'][0].bias`."""
        if self.container is None:
            yield prefix
            return
        names = NODES[self.container].names(self.data, len(self.children))
        for name, child in zip(names, self.children, strict=True):
            yield from child.leaf_names(prefix + name)


LEAF = TreeDef(None, None, ())
_shapes: dict[Hashable, TreeDef] = {}


def tree_def(container: type, data: Hashable, children: tuple[TreeDef, ...]) -> TreeDef:
    key = (container, typed(data), children)
    found = _shapes.get(key)
    return (
        found if found is not None else _shapes.setdefault(key, TreeDef(container, data, children))
    )


def typed(value: Hashable) -> Hashable:
    """A key under which 1, 1.0 and True, or 0.0 and -0.0, are different settings."""
    if isinstance(value, tuple):
        return type(value), tuple([typed(part) for part in value])
    if value is None or isinstance(value, str):
        return value
    return type(value), value, str(value) if isinstance(value, float | complex) else None


@record
class Container:
    """How a container is taken apart and built again."""

    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]]
    unflatten: Callable[[Any, Sequence[Any]], Any]
    names: Callable[[Any, int], Iterable[str]]


def _numbered(data: object, count: int) -> Iterable[str]:
    return (f"[{i}]" for i in range(count))


def _flatten_dict(tree: dict[Any, Any]) -> tuple[Sequence[Any], Hashable]:
    try:
        keys = tuple(sorted(tree))
    except TypeError:
        raise TraceError(
            "the keys of a dict of arrays cannot be sorted", hint="use keys of one type"
        ) from None
    return [tree[key] for key in keys], keys


def _unflatten_dict(keys: tuple[Any, ...], children: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(keys, children, strict=True))


def _unflatten_defaultdict(
    data: tuple[Any, tuple[Any, ...]], children: Sequence[Any]
) -> defaultdict[Any, Any]:
    return defaultdict(data[0], _unflatten_dict(data[1], children))


def _flatten_defaultdict(tree: defaultdict[Any, Any]) -> tuple[Sequence[Any], Hashable]:
    children, keys = _flatten_dict(tree)
    return children, (tree.default_factory, keys)


def _keys(keys: tuple[Any, ...], count: int) -> Iterable[str]:
    return (f"[{key!r}]" for key in keys)


NODES: dict[type, Container] = {
    dict: Container(_flatten_dict, _unflatten_dict, _keys),
    OrderedDict: Container(  # its order is part of it
        lambda tree: (list(tree.values()), tuple(tree)),
        lambda k, c: OrderedDict(zip(k, c, strict=True)),
        _keys,
    ),
    defaultdict: Container(
        _flatten_defaultdict, _unflatten_defaultdict, lambda data, n: _keys(data[1], n)
    ),
    list: Container(lambda tree: (tree, None), lambda _, children: list(children), _numbered),
    tuple: Container(lambda tree: (tree, None), lambda _, children: tuple(children), _numbered),
    type(None): Container(lambda _: ((), None), lambda _, __: None, _numbered),
}


def register(
    container: type[T],
    flatten: Callable[[T], tuple[Sequence[Any], Hashable]],
    unflatten: Callable[[Any, Sequence[Any]], T],
) -> type[T]:
    """Make a class a container: `flatten(tree)` returns children and hashable data,
    `unflatten(data, children)` is its inverse."""
    NODES[container] = Container(flatten, unflatten, _numbered)
    return container


def register_dataclass(container: type[T], *, static: Sequence[str] = ()) -> type[T]:
    """Make a dataclass a container. Its fields are children; those named in `static` are hashable
    settings.

    >>> import dataclasses
    >>> @register_dataclass
    ... @dataclasses.dataclass
    ... class Linear:
    ...     weight: object
    ...     bias: object
    >>> flatten(Linear(1, [2, 3]))[0]
    [1, 2, 3]
    """
    names = [field.name for field in lazy.module("dataclasses").fields(container)]
    children = [name for name in names if name not in static]

    def flatten_fields(tree: T) -> tuple[Sequence[Any], Hashable]:
        return [getattr(tree, n) for n in children], tuple(getattr(tree, n) for n in static)

    def unflatten_fields(data: tuple[Any, ...], values: Sequence[Any]) -> T:
        return container(
            **dict(zip(children, values, strict=True)), **dict(zip(static, data, strict=True))
        )

    NODES[container] = Container(
        flatten_fields, unflatten_fields, lambda _, __: (f".{n}" for n in children)
    )
    return container


def _register_namedtuple(container: type) -> Container:
    fields: tuple[str, ...] = container._fields  # type: ignore[attr-defined]
    made = Container(
        lambda t: (t, None), lambda _, c: container(*c), lambda _, __: (f".{n}" for n in fields)
    )
    NODES[container] = made
    return made


def _container(tree: Any) -> Container | None:
    kind = type(tree)
    found = NODES.get(kind)
    if found is None and isinstance(tree, tuple) and hasattr(kind, "_fields"):
        return _register_namedtuple(kind)
    return found


def flatten(tree: Any, is_leaf: Question | None = None) -> tuple[list[Any], TreeDef]:
    """The leaves, left to right (dicts by sorted key), and the shape of the tree.

    is_leaf   asked of every part: where it holds, the part is a leaf as it is

    >>> leaves, shape = flatten({"b": (1, 2), "a": None, "c": [3]})
    >>> leaves
    [1, 2, 3]
    >>> unflatten(shape, leaves)
    {'a': None, 'b': (1, 2), 'c': [3]}
    """
    leaves: list[Any] = []
    try:
        if is_leaf is not None:
            return leaves, _flatten_until(tree, leaves, is_leaf)
        return leaves, _flatten_into(tree, leaves)
    except RecursionError:
        refuse_cycle(tree)
        raise


def refuse_cycle(tree: Any) -> None:
    """Raise an error if a container holds itself, at any depth. Without recursion: the stack is
    already full."""
    waiting: list[tuple[Any, frozenset[int]]] = [(tree, frozenset())]
    while waiting:
        part, around = waiting.pop()
        node = _container(part)
        if node is None:
            continue
        if id(part) in around:
            message = f"a {type(part).__name__} contains itself"
            raise TraceError(
                message, source=user_source(), hint="trees of arrays end in arrays or numbers"
            ) from None
        waiting.extend((child, around | {id(part)}) for child in node.flatten(part)[0])


def _flatten_into(tree: Any, leaves: list[Any]) -> TreeDef:
    node = _container(tree)
    if node is None:
        leaves.append(tree)
        return LEAF
    children, data = node.flatten(tree)
    return tree_def(type(tree), data, tuple([_flatten_into(child, leaves) for child in children]))


def _flatten_until(tree: Any, leaves: list[Any], is_leaf: Question) -> TreeDef:
    node = None if is_leaf(tree) else _container(tree)
    if node is None:
        leaves.append(tree)
        return LEAF
    children, data = node.flatten(tree)
    return tree_def(
        type(tree), data, tuple([_flatten_until(child, leaves, is_leaf) for child in children])
    )


def unflatten(shape: TreeDef, leaves: Iterable[Any]) -> Any:
    """The tree of this shape with these leaves."""
    return _unflatten_from(shape, iter(leaves))


def _unflatten_from(shape: TreeDef, leaves: Iterator[Any]) -> Any:
    if shape.container is None:
        return next(leaves)
    children = [_unflatten_from(child, leaves) for child in shape.children]
    return NODES[shape.container].unflatten(shape.data, children)


def tree_map(
    function: Callable[..., Any], tree: Any, *others: Any, is_leaf: Question | None = None
) -> Any:
    """Apply a function to every leaf (and the matching leaves of trees of the same shape).

    >>> tree_map(lambda a, b: a + b, {"w": 1, "b": [2]}, {"w": 10, "b": [20]})
    {'b': [22], 'w': 11}
    """
    leaves, shape = flatten(tree, is_leaf)
    columns = [leaves]
    for other in others:
        other_leaves, other_shape = flatten(other, is_leaf)
        if other_shape != shape:
            message = (
                f"tree_map: the first tree is {sketch(shape)}, another is {sketch(other_shape)}"
            )
            raise TraceError(message, source=user_source(), hint="same containers, same keys")
        columns.append(other_leaves)
    return unflatten(shape, builtins.map(function, *columns))


map = tree_map  # the names of jax.tree


def leaves(tree: Any, is_leaf: Question | None = None) -> list[Any]:
    """The leaves alone.

    >>> leaves({"w": 1, "b": [2, None]})
    [2, 1]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Question | None = None) -> TreeDef:
    """The shape alone."""
    return flatten(tree, is_leaf)[1]


def reduce(
    function: Callable[[Any, Any], Any], tree: Any, *initial: Any, is_leaf: Question | None = None
) -> Any:
    """The leaves joined two at a time, from the left, beginning with a value if one is given.

    >>> reduce(lambda a, b: a + b, {"w": 1, "b": [2, 3]}, 10)
    16
    """
    return functools.reduce(function, flatten(tree, is_leaf)[0], *initial)


def all(tree: Any, *, is_leaf: Question | None = None) -> bool:
    """Whether every leaf is true."""
    return builtins.all(flatten(tree, is_leaf)[0])


class _Star:
    def __repr__(self) -> str:
        return "*"


def sketch(tree: TreeDef) -> str:
    """A tree with stars for leaves, for error messages: {'w': (*, *)}."""
    return repr(unflatten(tree, [_Star() for _ in tree.leaf_names()]))


__all__ = [
    "TreeDef", "all", "flatten", "leaves", "map", "reduce", "register", "register_dataclass",
    "structure", "unflatten",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
