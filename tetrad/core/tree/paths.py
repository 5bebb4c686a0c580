"""Core, trees, paths: how each leaf of a tree is reached, as keys that programs can compare.

Receives trees; returns their leaves with a path each, a tuple of keys from the root down. Loaded
when one of the names is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from tetrad.core.record import record
from tetrad.core.tree import (
    KEYED,
    LEAF,
    NODES,
    TreeDef,
    container_of,
    parts_below,
    refuse_cycle,
    tree_def,
    unflatten,
)

KeyEntry = Any
KeyPath = tuple[KeyEntry, ...]
PathQuestion = Callable[..., bool]


@record
class DictKey:
    """A step into a dict."""

    key: Hashable

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@record
class SequenceKey:
    """A step into a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@record
class GetAttrKey:
    """A step to an attribute: a field of a dataclass or named tuple."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@record
class FlattenedIndexKey:
    """A step to a child of a class that does not name its children."""

    key: int

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


def keystr(keys: Iterable[KeyEntry], *, simple: bool = False, separator: str = "") -> str:
    """A path as text.

    simple      only what the keys hold, without brackets and dots
    separator   between the keys

    >>> path = (DictKey("w"), SequenceKey(0), GetAttrKey("bias"))
    >>> keystr(path), keystr(path, simple=True, separator="/")
    ("['w'][0].bias", 'w/0/bias')
    """
    return separator.join([simple_name(key) if simple else str(key) for key in keys])


def simple_name(key: KeyEntry) -> str:
    """What a key holds."""
    for kind, name in ((GetAttrKey, "name"), (SequenceKey, "idx")):
        if isinstance(key, kind):
            return str(getattr(key, name))
    return str(key.key) if isinstance(key, DictKey | FlattenedIndexKey) else str(key)


# -- the keys of one container ---------------------------------------------------------------------


def keyed_children(tree: Any) -> tuple[tuple[tuple[KeyEntry, Any], ...], Any]:
    """The children of a container with their keys, and its settings."""
    node = NODES[type(tree)]
    if node.with_keys is not None:
        pairs, data = node.with_keys(tree)
        return tuple([(key, child) for key, child in pairs]), data
    children, data = node.flatten(tree)
    keys = keys_of(type(tree), node.names(data, len(children)), data)
    return tuple(zip(keys, children, strict=True)), data


def keys_of(container: type, names: Iterable[str], data: Any) -> list[KeyEntry]:
    if container in KEYED:
        keys = data[1] if isinstance(data, tuple) and issubclass(container, KEYED[2]) else data
        return [DictKey(key) for key in keys]
    kind = SequenceKey if container in (list, tuple) else FlattenedIndexKey
    return [
        GetAttrKey(name[1:]) if name.startswith(".") else kind(i) for i, name in enumerate(names)
    ]


def names_of(
    unflatten: Callable[[Any, Any], Any],
    with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Any]],
) -> Callable[[Any, int], Iterable[str]]:
    """How users reach the children of a class that names them itself. Asked of a tree with
    stand-ins for leaves; where that cannot be made, children are numbered."""

    def names(data: Any, count: int) -> Iterable[str]:
        try:
            pairs = list(with_keys(unflatten(data, [object() for _ in range(count)]))[0])
        except Exception:
            pairs = []
        if len(pairs) != count:
            return [f"[{i}]" for i in range(count)]
        return [name_of(key) for key, _ in pairs]

    return names


def name_of(key: KeyEntry) -> str:
    return f"[{key.key}]" if isinstance(key, FlattenedIndexKey) else str(key)


# -- whole trees -----------------------------------------------------------------------------------


def flatten_with_path(
    tree: Any, is_leaf: PathQuestion | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], TreeDef]:
    """The leaves, each with its path, and the shape of the tree.

    is_leaf_takes_path   `is_leaf` is asked with the path and the part

    >>> flatten_with_path({"b": (1, 2)})[0][1]
    ((DictKey(key='b'), SequenceKey(idx=1)), 2)
    """
    found: list[tuple[KeyPath, Any]] = []
    ask = is_leaf if is_leaf is None or is_leaf_takes_path else lambda _, part: is_leaf(part)
    try:
        return found, _flatten_into(tree, (), found, ask)
    except RecursionError:
        refuse_cycle(tree)
        raise


def _flatten_into(
    tree: Any, path: KeyPath, found: list[tuple[KeyPath, Any]], ask: PathQuestion | None
) -> TreeDef:
    if (ask is not None and ask(path, tree)) or container_of(tree) is None:
        found.append((path, tree))
        return LEAF
    pairs, data = keyed_children(tree)
    parts = [_flatten_into(child, (*path, key), found, ask) for key, child in pairs]
    return tree_def(type(tree), data, tuple(parts))


def leaves_with_path(
    tree: Any, is_leaf: PathQuestion | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """The leaves alone, each with its path.

    >>> [(keystr(path), leaf) for path, leaf in leaves_with_path({"w": [1, 2], "b": 3})]
    [("['b']", 3), ("['w'][0]", 1), ("['w'][1]", 2)]
    """
    return flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def map_with_path(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: PathQuestion | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:
    """`tree.map` whose function gets the path of each leaf first.

    >>> map_with_path(lambda path, x: f"{keystr(path)} {x}", {"w": [1], "b": 2})
    {'b': "['b'] 2", 'w': ["['w'][0] 1"]}
    """
    pairs, shape = flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    columns: list[Sequence[Any]] = [
        parts_below(shape, other, "tree.map_with_path") for other in rest
    ]
    rows = zip(pairs, *columns, strict=True)
    return unflatten(shape, [f(path, leaf, *others) for (path, leaf), *others in rows])
