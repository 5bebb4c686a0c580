"""Formats, trees: a whole tree (parameters, optimiser state, keys, counters) on disk and back.

Receives a tree of arrays, numbers, texts and None in dicts, lists, tuples, named tuples and
dataclasses; leaves a safetensors file whose metadata say how the arrays stand together. No code is
in such a file, and none is loaded for it: classes are found among those that exist already.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tetrad.core import lazy
from tetrad.core.dtypes import c128
from tetrad.core.errors import FileFormatError, SettingError, TraceError, an
from tetrad.core.tree import NODES, flatten, unflatten
from tetrad.formats.json_file import parsed
from tetrad.formats.safetensors import array_of
from tetrad.formats.safetensors.paths import check_alike, named_leaves, plain
from tetrad.formats.safetensors.read import TensorFile, open_file
from tetrad.formats.safetensors.write import write
from tetrad.tracing.array import Array

TREE, STEP, VERSION = "tetrad.tree", "tetrad.step", "tetrad.version"
DEEPEST = 64
PLAIN = (bool, int, float, str)
MOST_STEPS = 1 << 62
OPTIMISERS = "tetrad.optim"  # whose states are named tuples


class SavedTree(NamedTuple):
    """What `load_tree` gives."""

    tree: Any
    step: int


def save(path: str | os.PathLike[str], tree: Any, *, step: int = 0) -> None:
    """Write a whole tree, such as (parameters, optimiser state, key), and the step it belongs to.

    All or nothing: until everything is on disk, what was under this name before stays there.

    >>> import tempfile, tetrad as td
    >>> params = {"w": td.ones((2, 2)), "b": td.zeros(2)}
    >>> state = td.optim.adam(1e-3).init(params)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     td.save(f"{folder}/run.safetensors", (params, state), step=100)
    ...     (params, state), step = td.load_tree(f"{folder}/run.safetensors")
    >>> step, params["b"]
    (100, Array([0., 0.], float32))
    """
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= MOST_STEPS:
        raise SettingError("step", "a whole number, not below 0", step)
    arrays: dict[str, np.ndarray] = {}
    names = iter(named_leaves(tree, "save"))
    described = describe(tree, names, arrays, 0)
    metadata = {TREE: json.dumps(described, separators=(",", ":")), STEP: str(step), VERSION: "1"}
    write(path, arrays, metadata)


def load_tree(path: str | os.PathLike[str], *, like: Any = None) -> SavedTree:
    """The tree that `save` wrote, and its step.

    like   a tree of the same structure, whose classes, shapes and dtypes are expected; needed where
           the classes of containers (dataclasses, named tuples) are not known when the file is read

    >>> import tempfile, tetrad as td
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = {"key": td.random.key(0), "losses": [2.5, 1.5], "name": "a run"}
    ...     td.save(f"{folder}/run.safetensors", run)
    ...     td.load_tree(f"{folder}/run.safetensors").tree["losses"]
    [2.5, 1.5]
    """
    with open_file(path) as file:
        for key in (TREE, STEP):
            if key not in file.metadata:
                hint = "td.safetensors.load reads files of any origin"
                raise FileFormatError("not a tree that td.save wrote", file=file.path, hint=hint)
        described = parsed(file.metadata[TREE].encode(), file.path)
        if like is None:
            tree = Restorer(file).made(described, 0)
        else:
            tree = restored_like(file, described, like)
        step = step_of(file)
        file.check()
        return SavedTree(tree, step)


def step_of(file: TensorFile) -> int:
    text = file.metadata[STEP]
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise FileFormatError(
            f"expected a whole number, got {text!r:.40}", file=file.path, part=f"key {STEP}"
        )
    return int(text)


# -- the structure as JSON -------------------------------------------------------------------------
#
# A container is an object of one key, its kind; a leaf is null (None), {"array": name} or
# {"value": ...}.


def describe(tree: Any, names: Iterator[str], arrays: dict[str, np.ndarray], depth: int) -> Any:
    """The structure of a tree; its arrays go into `arrays`."""
    if depth > DEEPEST:
        raise TraceError(f"save: the tree is nested more than {DEEPEST} deep")
    if tree is None:
        return None
    kind = kind_of(tree)
    if kind is None:
        return described_leaf(tree, next(names), arrays)
    children, data = NODES[type(tree)].flatten(tree)
    made = [describe(child, names, arrays, depth + 1) for child in children]
    if kind in ("dict", "ordered"):
        keys = list(data)  # type: ignore[call-overload]
        if not all(type(key) in (str, int) for key in keys):
            raise TraceError("save: keys of a dict are texts or whole numbers")
        return {kind: [[key, child] for key, child in zip(keys, made, strict=True)]}
    if kind == "class":
        return {kind: [class_name(type(tree)), made]}
    return {kind: made}


KINDS: dict[type, str] = {dict: "dict", OrderedDict: "ordered", list: "list", tuple: "tuple"}


def kind_of(tree: Any) -> str | None:
    """How a container is stored; None for a leaf."""
    found = KINDS.get(type(tree))
    return found or ("class" if type(tree) in NODES else None)


def class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def described_leaf(leaf: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if type(leaf) in PLAIN:
        is_number = isinstance(leaf, float)
        return {"float": leaf.hex()} if is_number else {"value": leaf}
    if not isinstance(leaf, Array | np.ndarray | np.generic):
        hint = "trees end in arrays, numbers, texts and None"
        raise TraceError(f"save: {path} is {an(type(leaf).__name__)}", hint=hint)
    array = plain(path, leaf, "save")
    if array.dtype == c128.np:  # the format has no such type
        arrays[path] = np.ascontiguousarray(array)[..., None].view(np.float64)
        return {"complex": path}
    arrays[path] = array
    return {"array": path}


# -- back ------------------------------------------------------------------------------------------


class Restorer:
    """Makes the tree again; every array of the file must be used once."""

    def __init__(self, file: TensorFile) -> None:
        self.file, self.makers = file, dict[str, Callable[..., Any]]()
        self.makers = {
            "dict": lambda body, depth: dict(self.pairs(body, depth)),
            "ordered": lambda body, depth: OrderedDict(self.pairs(body, depth)),
            "list": self.each,
            "tuple": lambda body, depth: tuple(self.each(body, depth)),
            "class": self.instance,
            "value": self.value,
            "float": self.number,
            "array": lambda body, depth: self.array(body),
            "complex": lambda body, depth: self.complex_array(body),
        }

    def wrong(self, message: str) -> FileFormatError:
        return FileFormatError(message, file=self.file.path, part=f"key {TREE}")

    def made(self, described: Any, depth: int) -> Any:
        if described is None:
            return None
        if not isinstance(described, dict) or len(described) != 1 or depth > DEEPEST:
            raise self.wrong("expected null or an object of one key")
        ((kind, body),) = described.items()
        if kind not in self.makers:
            raise self.wrong(f"{kind!a:.40} is no kind of container or leaf")
        return self.makers[kind](body, depth)

    def each(self, body: Any, depth: int) -> list[Any]:
        return [self.made(child, depth + 1) for child in self.checked_list(body)]

    def checked_list(self, body: Any) -> list[Any]:
        if not isinstance(body, list):
            raise self.wrong("expected a list")
        return body

    def pairs(self, body: Any, depth: int) -> list[tuple[Any, Any]]:
        return [(key, self.made(child, depth + 1)) for key, child in self.checked_pairs(body)]

    def checked_pairs(self, body: Any) -> list[tuple[Any, Any]]:
        if not isinstance(body, list) or not all(
            isinstance(pair, list) and len(pair) == 2 and type(pair[0]) in (str, int)
            for pair in body
        ):
            raise self.wrong("expected a list of keys and values")
        return body

    def value(self, body: Any, depth: int) -> Any:
        if type(body) not in (bool, int, str):
            raise self.wrong(f"expected a number, a text, true or false, got {body!r:.40}")
        return body

    def number(self, body: Any, depth: int) -> float:
        try:
            return float.fromhex(body)
        except (TypeError, ValueError, OverflowError):
            raise self.wrong(f"expected a number, got {body!r:.40}") from None

    def array(self, name: Any) -> Array:
        if not isinstance(name, str) or name not in self.file.tensors:
            raise self.wrong(f"the file has no tensor {name!a:.80}")
        return array_of(self.file, name, copy=False)

    def complex_array(self, name: Any) -> Array:
        found = self.array(name).memory
        if found.dtype != np.float64 or found.ndim < 1 or found.shape[-1] != 2:
            raise self.wrong(f"tensor {name!a:.80} does not hold complex numbers")
        return Array.from_numpy(np.ascontiguousarray(found).view(np.complex128)[..., 0])

    def instance(self, body: Any, depth: int) -> Any:
        if not isinstance(body, list) or len(body) != 2 or not isinstance(body[0], str):
            raise self.wrong("expected the name of a class and its fields")
        fields = self.each(body[1], depth)
        found = known_class(body[0], len(fields))
        if found is None:
            hint = "pass like=, a tree of the same structure, or import the module that defines it"
            raise FileFormatError(
                f"the class {body[0]!a:.80} is not known here",
                file=self.file.path,
                part=f"key {TREE}",
                hint=hint,
            )
        return found(*fields)


def known_class(name: str, fields: int) -> Callable[..., Any] | None:
    """The named tuple of this name and as many fields that exists in this process."""
    if name.startswith(OPTIMISERS):
        lazy.module(OPTIMISERS)
    for kind in every_named_tuple(tuple):
        if class_name(kind) == name and len(kind._fields) == fields:  # type: ignore[attr-defined]
            return kind
    return None


def every_named_tuple(kind: type) -> Iterator[type]:
    subclasses: list[type] = kind.__subclasses__()
    for found in subclasses:
        if hasattr(found, "_fields"):
            yield found
        yield from every_named_tuple(found)


def restored_like(file: TensorFile, described: Any, like: Any) -> Any:
    """The leaves, in the structure of another tree."""
    restorer = Restorer(file)
    leaves = list(leaves_of(restorer, described, 0))
    expected, shape = named_leaves(like, "load_tree"), flatten(like)[1]
    if len(leaves) != len(expected):
        message = f"{len(leaves)} leaves, the tree that was given has {len(expected)}"
        raise FileFormatError(message, file=file.path, part=f"key {TREE}")
    for (name, leaf), (path, wanted) in zip(leaves, expected.items(), strict=True):
        if name is not None and name != path:
            message = f"the leaf {name!a:.80} stands where the tree that was given has {path!a:.80}"
            raise FileFormatError(message, file=file.path, part=f"key {TREE}")
        if isinstance(leaf, Array):
            check_alike(file.path, path, leaf, wanted)
    return unflatten(shape, [leaf for _, leaf in leaves])


def leaves_of(restorer: Restorer, described: Any, depth: int) -> Iterator[tuple[str | None, Any]]:
    """(name of an array, else None; leaf), from left to right."""
    if described is None:
        return
    if not isinstance(described, dict) or len(described) != 1 or depth > DEEPEST:
        raise restorer.wrong("expected null or an object of one key")
    ((kind, body),) = described.items()
    for child in children_of(restorer, kind, body):
        yield from leaves_of(restorer, child, depth + 1)
    if kind in ("array", "complex", "value", "float"):
        name = body if kind in ("array", "complex") else None
        yield name, restorer.made(described, depth)


def children_of(restorer: Restorer, kind: str, body: Any) -> Sequence[Any]:
    if kind == "class" and isinstance(body, list) and len(body) == 2:
        kind, body = "tuple", body[1]
    if kind in ("dict", "ordered"):
        return [child for _, child in restorer.checked_pairs(body)]
    if kind in ("list", "tuple"):
        return restorer.checked_list(body)
    if kind in ("array", "complex", "value", "float"):
        return ()
    raise restorer.wrong(f"{kind!a:.40} is no kind of container or leaf, or has other children")
