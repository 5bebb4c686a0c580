"""Core, trees, tools: what `td.tree` offers beside flatten, unflatten and map.

Receives trees and their structures; returns others. Loaded when one of the names is first used.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from tetrad.core import lazy
from tetrad.core.errors import TreeError, an
from tetrad.core.source import user_source
from tetrad.core.tree import (
    LEAF,
    NODES,
    Question,
    TreeDef,
    container_of,
    flatten,
    is_same,
    parts_below,
    sketch,
    tree_def,
    unflatten,
)

ABSENT: Any = object()  # no value was given, where None is one
FIT = "same containers, same keys, down to the leaves of the first tree"
NOTHING = "None has no leaves; is_leaf=lambda x: x is None makes it one"


def reduce(
    function: Callable[[Any, Any], Any],
    tree: Any,
    initializer: Any = ABSENT,
    is_leaf: Question | None = None,
) -> Any:
    """The leaves joined two at a time, from the left, beginning with a value if one is given.

    >>> reduce(lambda a, b: a + b, {"w": 1, "b": [2, 3]}, 10)
    16
    """
    found = flatten(tree, is_leaf)[0]
    return functools.reduce(function, found, *([] if initializer is ABSENT else [initializer]))


def reduce_associative(
    operation: Callable[[Any, Any], Any],
    tree: Any,
    *,
    identity: Any = ABSENT,
    is_leaf: Question | None = None,
) -> Any:
    """The leaves joined two at a time, neighbours first: as deep as the logarithm of their number.

    >>> reduce_associative(lambda a, b: (a, b), [1, 2, 3, 4, 5])
    ((1, 2), (3, (4, 5)))
    """
    found = flatten(tree, is_leaf)[0]
    if found:
        return _joined(operation, found)
    if identity is ABSENT:
        message = "tree.reduce_associative: the tree has no leaves"
        raise TreeError(message, source=user_source(), hint="give identity=")
    return identity


def _joined(operation: Callable[[Any, Any], Any], values: Sequence[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return operation(_joined(operation, values[:half]), _joined(operation, values[half:]))


def all(tree: Any, *, is_leaf: Question | None = None) -> bool:
    """Whether every leaf is true.

    >>> all({"a": True, "b": [1, None]})
    True
    """
    return builtins.all(flatten(tree, is_leaf)[0])


def all_leaves(iterable: Iterable[Any], is_leaf: Question | None = None) -> bool:
    """Whether none of these values is a container.

    >>> all_leaves([1, "a"]), all_leaves([1, (2,)]), all_leaves([None])
    (True, False, False)
    """
    return builtins.all(
        (is_leaf is not None and is_leaf(value)) or container_of(value) is None
        for value in iterable
    )


def is_tree_node(kind: type) -> bool:
    """Whether objects of a class are containers.

    >>> is_tree_node(dict), is_tree_node(int)
    (True, False)
    """
    return kind in NODES or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def broadcast(prefix_tree: Any, full_tree: Any, is_leaf: Question | None = None) -> Any:
    """The leaves of a tree that ends early, repeated for all leaves of the other below them.

    >>> broadcast((1, {"a": 2}), ([0, 0], {"a": (0, 0)}))
    ([1, 1], {'a': (2, 2)})
    """
    values, prefix = flatten(prefix_tree, is_leaf)
    below = parts_below(prefix, full_tree, "tree.broadcast")
    found = [
        value for value, part in zip(values, below, strict=True) for _ in flatten(part, is_leaf)[0]
    ]
    return unflatten(flatten(full_tree, is_leaf)[1], found)


def transpose(
    outer_treedef: TreeDef, inner_treedef: TreeDef | None, pytree_to_transpose: Any
) -> Any:
    """A tree of trees with the containers exchanged: what stood outside stands inside.

    inner_treedef   None: as the first tree inside has it

    >>> rows = [{"x": 1, "y": 2}, {"x": 3, "y": 4}]
    >>> transpose(flatten([0, 0])[1], flatten({"x": 0, "y": 0})[1], rows)
    {'x': [1, 3], 'y': [2, 4]}
    """
    outer, inner = outer_treedef, inner_treedef
    leaves, shape = flatten(pytree_to_transpose)
    if inner is None:
        parts = outer.flatten_up_to(pytree_to_transpose)
        inner = flatten(parts[0])[1] if parts else LEAF
    if shape != outer.compose(inner):
        message = f"tree.transpose: expected {sketch(outer.compose(inner))}, got {sketch(shape)}"
        raise TreeError(message, source=user_source(), hint="every inner tree has one structure")
    count = inner.num_leaves
    columns = [unflatten(outer, leaves[i::count]) for i in range(count)]
    return unflatten(inner, columns)


# -- structures ------------------------------------------------------------------------------------


def treedef_tuple(treedefs: Iterable[TreeDef]) -> TreeDef:
    """The structure of a tuple of trees of these structures.

    >>> treedef_tuple([flatten(0)[1], flatten([0, 0])[1]])
    TreeDef((*, [*, *]))
    """
    return tree_def(tuple, None, tuple(treedefs))


def treedef_children(treedef: TreeDef) -> list[TreeDef]:
    return treedef.children()


def treedef_is_leaf(treedef: TreeDef) -> bool:
    """Whether a structure is that of one value, or of a container without children.

    >>> [treedef_is_leaf(flatten(tree)[1]) for tree in (1, (), None, [1])]
    [True, True, True, False]
    """
    return treedef.num_nodes == 1


def flatten_one_level(tree: Any) -> tuple[tuple[Any, ...], Any]:
    """The children of a container and its settings.

    >>> flatten_one_level({"b": 1, "a": (2,)})
    (((2,), 1), ('a', 'b'))
    """
    children, data = _container(tree).flatten(tree)
    return tuple(children), data


def flatten_one_level_with_keys(tree: Any) -> tuple[tuple[tuple[Any, Any], ...], Any]:
    """The children of a container with their keys, and its settings."""
    _container(tree)
    found: tuple[tuple[tuple[Any, Any], ...], Any] = lazy.module(
        "tetrad.core.tree.paths"
    ).keyed_children(tree)
    return found


def _container(tree: Any) -> Any:
    found = container_of(tree)
    if found is None:
        raise TreeError(f"a tree was expected, {an(type(tree).__name__)} is a leaf")
    return found


def static(**settings: Any) -> Any:
    """A field of a dataclass that is a setting, for `register_dataclass`. Takes the arguments of
    `dataclasses.field`."""
    metadata = {**settings.pop("metadata", {}), "static": True}
    return lazy.module("dataclasses").field(**settings, metadata=metadata)


# -- where two trees part --------------------------------------------------------------------------


def refuse(shape: TreeDef, tree: Any, what: str) -> NoReturn:
    """Raise the error that says where a tree leaves the shape it should have."""
    place, message, hint = next(differences(shape, tree, ""))
    where = f"at {place} " if place else ""
    raise TreeError(f"{what}: {where}{message}", source=user_source(), hint=hint)


def differences(shape: TreeDef, tree: Any, place: str) -> Iterator[tuple[str, str, str]]:
    """Each place where a tree leaves a shape, what differs there, and a hint."""
    if shape.container is None:
        return
    if type(tree) is not shape.container:
        yield (
            place,
            f"the first tree has {_noun(shape)}, another has {_found(tree)}",
            (NOTHING if type(None) in (shape.container, type(tree)) else FIT),
        )
        return
    children, data = NODES[shape.container].flatten(tree)
    if len(children) != len(shape.parts) or not is_same(data, shape.data):
        other = flatten(tree, lambda part: part is not tree)[1]
        yield place, f"the first tree has {sketch(_top(shape))}, another has {sketch(other)}", FIT
        return
    for name, part, child in zip(shape.names(), shape.parts, children, strict=True):
        yield from differences(part, child, place + name)


def _top(shape: TreeDef) -> TreeDef:
    """A structure without what is below its first level."""
    return tree_def(shape.container, shape.data, (LEAF,) * len(shape.parts))


def _noun(shape: TreeDef) -> str:
    return "None" if shape.container in (None, type(None)) else an(shape.container.__name__)


def _found(tree: Any) -> str:
    if tree is None:
        return "None"
    leaf = "" if container_of(tree) is not None else ", which is a leaf"
    return f"{an(type(tree).__name__)}{leaf}"
