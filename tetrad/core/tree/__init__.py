"""Core: trees of arrays, nested dicts, lists, tuples and dataclasses.

`flatten` receives a tree, returns its leaves in a fixed order and a `TreeDef`, a hashable
description; `unflatten` builds the tree again from the two. None is a tree without leaves. Whatever
is not a known container is a leaf. What programs seldom need is in the files beside this one and
loaded when first used; users find all of it in `td.tree`.
"""

from __future__ import annotations

import builtins
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from weakref import KeyedRef

from tetrad.core import lazy
from tetrad.core.errors import TraceError, TreeError, an
from tetrad.core.locks import process_lock
from tetrad.core.record import record
from tetrad.core.source import user_source

if TYPE_CHECKING:
    from tetrad.core.tree.classes import Partial as Partial
    from tetrad.core.tree.classes import register_dataclass as register_dataclass
    from tetrad.core.tree.classes import register_pytree_node as register_pytree_node
    from tetrad.core.tree.classes import register_pytree_node_class as register_pytree_node_class
    from tetrad.core.tree.classes import register_pytree_with_keys as register_pytree_with_keys
    from tetrad.core.tree.classes import (
        register_pytree_with_keys_class as register_pytree_with_keys_class,
    )
    from tetrad.core.tree.classes import register_static as register_static
    from tetrad.core.tree.later import *  # noqa: F403
    from tetrad.core.tree.paths import DictKey as DictKey
    from tetrad.core.tree.paths import FlattenedIndexKey as FlattenedIndexKey
    from tetrad.core.tree.paths import GetAttrKey as GetAttrKey
    from tetrad.core.tree.paths import SequenceKey as SequenceKey
    from tetrad.core.tree.paths import flatten_with_path as flatten_with_path
    from tetrad.core.tree.paths import keystr as keystr
    from tetrad.core.tree.paths import leaves_with_path as leaves_with_path
    from tetrad.core.tree.paths import map_with_path as map_with_path
    from tetrad.core.tree.tools import all as all
    from tetrad.core.tree.tools import all_leaves as all_leaves
    from tetrad.core.tree.tools import broadcast as broadcast
    from tetrad.core.tree.tools import flatten_one_level as flatten_one_level
    from tetrad.core.tree.tools import flatten_one_level_with_keys as flatten_one_level_with_keys
    from tetrad.core.tree.tools import is_tree_node as is_tree_node
    from tetrad.core.tree.tools import reduce as reduce
    from tetrad.core.tree.tools import reduce_associative as reduce_associative
    from tetrad.core.tree.tools import transpose as transpose
    from tetrad.core.tree.tools import treedef_children as treedef_children
    from tetrad.core.tree.tools import treedef_is_leaf as treedef_is_leaf
    from tetrad.core.tree.tools import treedef_tuple as treedef_tuple

T = TypeVar("T")
Question = Callable[[Any], bool]


@record(eq=False, weakref_slot=True)
class TreeDef:
    """The structure of a tree: the container, what it needs to be built again, and its children.

    There is one object per structure (`tree_def` makes them), so comparing and hashing cost
    nothing.

    >>> shape = structure({"w": 1, "b": (2, None)})
    >>> shape, shape.num_leaves, shape.num_nodes
    (TreeDef({'b': (*, None), 'w': *}), 2, 5)
    >>> shape.unflatten([3, 4]), shape.flatten_up_to({"w": [5, 6], "b": (7, None)})
    ({'b': (3, None), 'w': 4}, [7, [5, 6]])
    """

    container: type | None  # None for a leaf
    data: Hashable
    parts: tuple[TreeDef, ...]
    num_leaves: int
    num_nodes: int

    def leaf_names(self, prefix: str = "") -> Iterator[str]:
        """How a user reaches each leaf: `['w'][0].bias`."""
        if self.container is None:
            yield prefix
            return
        for name, part in zip(self.names(), self.parts, strict=True):
            yield from part.leaf_names(prefix + name)

    def names(self) -> Iterable[str]:
        """How a user reaches each child."""
        return (
            ()
            if self.container is None
            else NODES[self.container].names(self.data, len(self.parts))
        )

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree of this structure with these leaves."""
        return unflatten(self, leaves)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The parts of a tree that stand where this structure has leaves."""
        return parts_below(self, tree, "flatten_up_to")

    def children(self) -> list[TreeDef]:
        return list(self.parts)

    def node_data(self) -> tuple[type, Any] | None:
        """The container and what it keeps beside its children; None of a leaf."""
        return None if self.container is None else (self.container, self.data)

    def compose(self, inner: TreeDef) -> TreeDef:
        """This structure with another in place of each leaf."""
        if self.container is None:
            return inner
        parts = tuple([part.compose(inner) for part in self.parts])
        return tree_def(self.container, self.data, parts)

    def __repr__(self) -> str:
        return f"TreeDef({sketch(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return tree_def, (self.container, self.data, self.parts)


class UnhashableDef(TreeDef):
    """The structure of a tree with settings that have no hash, such as a list, or of one that holds
    such a tree. There may be several equal ones."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, UnhashableDef)
            and self.container is other.container
            and is_same(self.data, other.data)
            and self.parts == other.parts
        )

    def __hash__(self) -> int:
        """Of the contents of lists, dicts and sets, as they are now."""
        try:
            settings = hash(frozen(self.data))
        except TypeError:
            self._refuse()
        return hash((self.container, settings, self.parts))

    def _refuse(self) -> NoReturn:
        held = unhashable_part(self.data)
        message = f"{an(named(self.container))} has a setting of type {named(type(held))}"
        hint = "settings beside the leaves select the program: " + (
            "hand arrays over as children" if hasattr(held, "__array__") else "give it a __hash__"
        )
        raise TreeError(f"{message}, which has no hash", source=user_source(), hint=hint)


def named(kind: type | None) -> str:
    return "leaf" if kind is None else kind.__name__


def is_same(a: Any, b: Any) -> bool:
    """Whether two settings are equal, where asking may give something other than a bool."""
    if a is b:
        return True
    try:
        return bool(a == b)
    except (TypeError, ValueError):
        return False


def frozen(value: Any) -> Hashable:
    """The contents of what may change, in a form that does not."""
    if isinstance(value, list | tuple):
        return type(value), tuple([frozen(part) for part in value])
    if isinstance(value, dict):
        return type(value), tuple([(key, frozen(part)) for key, part in value.items()])
    if isinstance(value, set):
        return set, frozenset(value)
    return typed(value)


def unhashable_part(value: Any) -> Any:
    """The innermost part of a setting that has no hash."""
    inside = value.values() if isinstance(value, dict) else value
    if isinstance(value, list | tuple | dict):
        for part in inside:
            try:
                hash(frozen(part))
            except TypeError:
                return unhashable_part(part)
    return value


LEAF = TreeDef(None, None, (), 1, 1)
# weak, since settings may be closures, or hold graphs
_shapes: dict[Hashable, KeyedRef[Hashable, TreeDef]] = {}
_kept: set[TreeDef] = set()
_shapes_lock = process_lock()


def tree_def(container: type | None, data: Hashable, parts: tuple[TreeDef, ...]) -> TreeDef:
    """The structure of a node with these children."""
    key = (container, typed(data), parts)
    try:
        found = _shapes.get(key)
    except TypeError:
        return _made(UnhashableDef, container, data, parts)
    shape = None if found is None else found()
    return _interned(key, container, data, parts) if shape is None else shape


def _made(
    kind: type[TreeDef], container: type | None, data: Hashable, parts: tuple[TreeDef, ...]
) -> TreeDef:
    leaves, nodes = (
        sum(counts) for counts in ([p.num_leaves for p in parts], [p.num_nodes for p in parts])
    )
    return kind(container, data, parts, leaves, nodes + 1)


def _interned(
    key: Hashable, container: type | None, data: Hashable, parts: tuple[TreeDef, ...]
) -> TreeDef:
    if container is None:
        return LEAF
    if any(type(part) is UnhashableDef for part in parts):
        return _made(UnhashableDef, container, data, parts)
    with _shapes_lock:
        found = _shapes.get(key)
        shape = None if found is None else found()
        if shape is None:
            shape = _made(TreeDef, container, data, parts)
            _shapes[key] = KeyedRef(shape, _forget, key)
            # without settings: small, and soon met again
            is_plain = data is None or data == () or container in (dict, OrderedDict)
            if is_plain and builtins.all([part is LEAF or part in _kept for part in parts]):
                _kept.add(shape)
        return shape


def _forget(reference: KeyedRef[Hashable, TreeDef]) -> None:
    with _shapes_lock:
        if _shapes.get(reference.key) is reference:
            del _shapes[reference.key]


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
    # a class's own way of naming its children: ((key, child), ...) and its settings
    with_keys: Callable[[Any], tuple[Iterable[tuple[Any, Any]], Hashable]] | None = None


def _numbered(data: object, count: int) -> Iterable[str]:
    return (f"[{i}]" for i in range(count))


def _flatten_dict(tree: dict[Any, Any]) -> tuple[Sequence[Any], Hashable]:
    try:
        keys = tuple(sorted(tree))
    except TypeError:
        raise TreeError(
            "the keys of a dict of arrays cannot be sorted",
            source=user_source(),
            hint="use keys of one type",
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
    flatten: Callable[[T], tuple[Iterable[Any], Any]],
    unflatten: Callable[[Any, Any], T],
    with_keys: Callable[[T], tuple[Iterable[tuple[Any, Any]], Any]] | None = None,
) -> type[T]:
    """Make a class a container: `flatten(tree)` returns children and settings, which should have a
    hash; `unflatten(settings, children)` is its inverse.

    with_keys   like flatten, with (key, child) in place of each child, for paths

    >>> class Pair:
    ...     def __init__(self, left, right):
    ...         self.left, self.right = left, right
    >>> _ = register(Pair, lambda p: ((p.left, p.right), None), lambda _, both: Pair(*both))
    >>> leaves(Pair(1, [2, 3]))
    [1, 2, 3]
    """
    names = (
        _numbered
        if with_keys is None
        else lazy.module("tetrad.core.tree.paths").names_of(unflatten, with_keys)
    )
    return add(container, Container(_apart(container, flatten), unflatten, names, with_keys))


def _apart(
    container: type[T], flatten: Callable[[T], tuple[Iterable[Any], Any]]
) -> Callable[[T], tuple[Sequence[Any], Hashable]]:
    """Children as a tuple, whatever way a class hands them over."""

    def apart(tree: T) -> tuple[Sequence[Any], Hashable]:
        found = flatten(tree)
        if not isinstance(found, tuple | list) or len(found) != 2:
            message = f"the flatten function of {container.__name__} gave {found!r:.80}"
            raise TreeError(message, source=user_source(), hint="a pair: children and settings")
        children, data = found
        return tuple(children), data

    return apart


def add(container: type[T], how: Container) -> type[T]:
    """Make a class a container, once."""
    if container in NODES:
        raise TreeError(
            f"{container.__name__} is a container already",
            source=user_source(),
            hint="a class is registered once",
        )
    NODES[container] = how
    return container


def _register_namedtuple(container: type) -> Container:
    fields: tuple[str, ...] = container._fields  # type: ignore[attr-defined]
    made = Container(
        lambda t: (t, None), lambda _, c: container(*c), lambda _, __: (f".{n}" for n in fields)
    )
    NODES[container] = made
    return made


def container_of(tree: Any) -> Container | None:
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
        node = container_of(part)
        if node is None:
            continue
        if id(part) in around:
            message = f"a {type(part).__name__} contains itself"
            raise TraceError(
                message, source=user_source(), hint="trees of arrays end in arrays or numbers"
            ) from None
        waiting.extend((child, around | {id(part)}) for child in node.flatten(part)[0])


def _flatten_into(tree: Any, leaves: list[Any]) -> TreeDef:
    node = container_of(tree)
    if node is None:
        leaves.append(tree)
        return LEAF
    children, data = node.flatten(tree)
    return tree_def(type(tree), data, tuple([_flatten_into(child, leaves) for child in children]))


def _flatten_until(tree: Any, leaves: list[Any], is_leaf: Question) -> TreeDef:
    node = None if is_leaf(tree) else container_of(tree)
    if node is None:
        leaves.append(tree)
        return LEAF
    children, data = node.flatten(tree)
    return tree_def(
        type(tree), data, tuple([_flatten_until(child, leaves, is_leaf) for child in children])
    )


def unflatten(shape: TreeDef, leaves: Iterable[Any]) -> Any:
    """The tree of this shape with these leaves, of which there must be as many as it has.

    >>> unflatten(structure({"w": 0, "b": (0, None)}), [1, 2])
    {'b': (1, None), 'w': 2}
    """
    if not isinstance(shape, TreeDef):
        message = f"unflatten: expected a structure first, got {an(type(shape).__name__)}"
        hint = "td.tree.unflatten(td.tree.structure(tree), leaves)"
        raise TreeError(message, source=user_source(), hint=hint)
    given = leaves if type(leaves) is list else list(leaves)
    if len(given) != shape.num_leaves:
        message = f"unflatten: {shape!r} has {shape.num_leaves} leaves, got {len(given)}"
        raise TreeError(message, source=user_source())
    return take(shape, iter(given))


def take(shape: TreeDef, leaves: Iterator[Any]) -> Any:
    """The tree of this shape with the next leaves."""
    if shape.container is None:
        return next(leaves)
    children = [take(part, leaves) for part in shape.parts]
    return NODES[shape.container].unflatten(shape.data, children)


def tree_map(f: Callable[..., Any], tree: Any, *rest: Any, is_leaf: Question | None = None) -> Any:
    """Apply a function to every leaf, and to the parts of other trees in the same places: the first
    tree may end above them.

    >>> tree_map(lambda a, b: a + b, {"w": 1, "b": [2]}, {"w": 10, "b": [20]})
    {'b': [22], 'w': 11}
    >>> tree_map(lambda axis, part: (axis, part), {"w": 0, "b": None}, {"w": [1, 2], "b": None})
    {'b': None, 'w': (0, [1, 2])}
    """
    leaves, shape = flatten(tree, is_leaf)
    columns = [parts_below(shape, other, "tree.map") for other in rest]
    return unflatten(shape, [f(*row) for row in zip(leaves, *columns, strict=True)])


map = tree_map  # the names of jax.tree


def parts_below(shape: TreeDef, tree: Any, what: str) -> list[Any]:
    """The parts of a tree that stand where a shape has leaves; the tree may go on below them."""
    found: list[Any] = []
    if not _reaches(shape, tree, found):
        lazy.module("tetrad.core.tree.tools").refuse(shape, tree, what)
    return found


def _reaches(shape: TreeDef, tree: Any, found: list[Any]) -> bool:
    if shape.container is None:
        found.append(tree)
        return True
    if type(tree) is not shape.container:
        return False
    children, data = NODES[shape.container].flatten(tree)
    if len(children) != len(shape.parts) or not is_same(data, shape.data):
        return False
    # not a generator: a leaf is all that most parts are
    for part, child in zip(shape.parts, children, strict=True):
        if not _reaches(part, child, found):
            return False
    return True


def leaves(tree: Any, is_leaf: Question | None = None) -> list[Any]:
    """The leaves alone.

    >>> leaves({"w": 1, "b": [2, None]})
    [2, 1]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Question | None = None) -> TreeDef:
    """The shape alone.

    >>> structure([1, (2, None)])
    TreeDef([*, (*, None)])
    """
    return flatten(tree, is_leaf)[1]


# -- shapes as text --------------------------------------------------------------------------------

KEYED = (dict, OrderedDict, defaultdict)
BRACKETS = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}


def sketch(shape: TreeDef) -> str:
    """A tree with stars for leaves, for error messages: {'w': (*, *)}."""
    if shape.container is None:
        return "*"
    if shape.container is type(None):
        return "None"
    parts = ", ".join(_sketched_parts(shape))
    if shape.container in BRACKETS:
        left, right = BRACKETS[shape.container]
        return (
            f"{left}{parts}{',' if parts and shape.parts[1:] == () and left == '(' else ''}{right}"
        )
    return f"{shape.container.__name__}{_sketched_data(shape)}({parts})"


def _sketched_parts(shape: TreeDef) -> Iterator[str]:
    for name, part in zip(shape.names(), shape.parts, strict=True):
        if name.startswith("."):
            yield f"{name[1:]}={sketch(part)}"
        else:
            yield (
                sketch(part)
                if name.startswith("[") and shape.container not in KEYED
                else (f"{name[1:-1]}: {sketch(part)}")
            )


def _sketched_data(shape: TreeDef) -> str:
    if shape.container is defaultdict:
        return f"[{getattr(shape.data[0], '__name__', shape.data[0])}]"  # type: ignore[index]
    is_plain = shape.container in KEYED or shape.data is None or shape.data == ()
    return "" if is_plain else f"[{shape.data!r}]"


# -- the names of jax.tree_util, and what is loaded when first used --------------------------------

tree_flatten, tree_unflatten = flatten, unflatten
tree_leaves, tree_structure = leaves, structure
PyTreeDef = TreeDef
HOMES = {
    "classes": (
        "Partial", "register_dataclass", "register_pytree_node", "register_pytree_node_class",
        "register_pytree_with_keys", "register_pytree_with_keys_class", "register_static",
    ),
    "paths": (
        "DictKey", "FlattenedIndexKey", "GetAttrKey", "KeyEntry", "KeyPath", "SequenceKey",
        "flatten_with_path", "keystr", "leaves_with_path", "map_with_path",
    ),
    "tools": (
        "all", "all_leaves", "broadcast", "flatten_one_level", "flatten_one_level_with_keys",
        "is_tree_node", "reduce", "reduce_associative", "static", "transpose", "treedef_children",
        "treedef_is_leaf", "treedef_tuple",
    ),
}  # fmt: skip
LATER = {name: home for home, names in HOMES.items() for name in names}
LONG = {  # in jax.tree_util these begin with tree_
    f"tree_{name}": name
    for name in (
        "all", "broadcast", "flatten_with_path", "leaves_with_path", "map_with_path", "reduce",
        "reduce_associative", "transpose",
    )
}  # fmt: skip

__all__ = [
    "PyTreeDef", "TreeDef", "flatten", "leaves", "map", "register", "structure", "tree_flatten",
    "tree_leaves", "tree_map", "tree_structure", "tree_unflatten", "unflatten",
    *LATER, *LONG,
]  # fmt: skip


if not TYPE_CHECKING:  # which would take any name for one of ours

    def __getattr__(name: str) -> Any:
        short = LONG.get(name, name)
        if short not in LATER:
            raise AttributeError(f"tetrad.tree has no {name!r}")
        globals()[name] = found = getattr(lazy.module(f"tetrad.core.tree.{LATER[short]}"), short)
        return found


def __dir__() -> list[str]:
    return __all__
