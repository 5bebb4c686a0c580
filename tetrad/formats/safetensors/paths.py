"""Safetensors, paths: trees of arrays as names and arrays, and back.

Receives a tree, returns a dict from dotted paths to NumPy arrays; or receives such arrays and a
tree that says how they stand together.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tetrad.core.dtypes import as_dtype
from tetrad.core.errors import DtypeError, FileFormatError, ShapeError, TraceError, an
from tetrad.core.tree import TreeDef, flatten, unflatten
from tetrad.tracing.array import Array, TracedArray
from tetrad.tracing.operands import as_array


def dotted_paths(shape: TreeDef, prefix: str = "") -> Iterator[str]:
    """The path of each leaf.

    >>> list(dotted_paths(flatten({"a": [1, 2], "b": {"c": 3}})[1]))
    ['a.0', 'a.1', 'b.c']
    """
    if shape.container is None:
        yield prefix
        return
    for name, child in zip(shape.names(), shape.parts, strict=True):
        yield from dotted_paths(child, joined(prefix, word_of(name)))


def word_of(name: str) -> str:
    """One step of a path, as users spell it (`.bias`, `[0]`, `['w']`), without what is around it.

    >>> word_of(".bias"), word_of("[0]"), word_of("['w']")
    ('bias', '0', 'w')
    """
    return name[1:] if name.startswith(".") else str(literal_eval(name[1:-1]))


def joined(prefix: str, word: str) -> str:
    return f"{prefix}.{word}" if prefix else word


def named_leaves(tree: Any, what: str) -> dict[str, Any]:
    """Leaves by their paths, of which no two are equal."""
    leaves, shape = flatten(tree)
    paths = list(dotted_paths(shape))
    if len(set(paths)) < len(paths):
        twice = next(path for i, path in enumerate(paths) if path in paths[:i])
        message = f"{what}: two leaves of the tree have the path {twice!r}"
        raise TraceError(message, hint="keys that contain dots may spell the same path")
    return dict(zip(paths, leaves, strict=True))


def flat(tree: Any) -> dict[str, np.ndarray]:
    """NumPy arrays by dotted paths."""
    return {path: plain(path, leaf, "save") for path, leaf in named_leaves(tree, "save").items()}


def plain(path: str, leaf: Any, what: str) -> np.ndarray:
    """A leaf as NumPy has it, in place."""
    if isinstance(leaf, np.ndarray | np.generic):
        return np.asarray(leaf)
    if isinstance(leaf, TracedArray):
        raise TraceError(f"{what}: {path} is being traced", hint="save outside jit, grad and vmap")
    if not isinstance(leaf, Array | bool | int | float | complex):
        hint = "trees end in arrays and numbers"
        raise TraceError(f"{what}: {path} is {an(type(leaf).__name__)}", hint=hint)
    array = as_array(leaf)
    if array.dtype.is_float8:
        return array.elements
    if array.dtype.is_quantized:
        hint = "store x.dequantize(), or the bytes x.to_bytes()"
        raise DtypeError(f"{what}: {path} is {array.type}, blocks of low-bit numbers", hint=hint)
    return array.memory


def like_tree(file: str, arrays: Mapping[str, Array], like: Any) -> Any:
    """The arrays as a tree of the structure of `like`, whose shapes and dtypes they must have."""
    expected = named_leaves(like, "load")
    if wrong := sorted(expected.keys() ^ arrays.keys()):
        name = wrong[0]
        where = "the file has no tensor" if name in expected else "the tree has no leaf"
        more = f" (and {len(wrong) - 1} more differ)" if len(wrong) > 1 else ""
        raise FileFormatError(f"{where} {name!a:.80}{more}", file=file)
    for path, leaf in expected.items():
        check_alike(file, path, arrays[path], leaf)
    return unflatten(flatten(like)[1], [arrays[path] for path in expected])


def check_alike(file: str, path: str, array: Array, leaf: Any) -> None:
    wanted = leaf if hasattr(leaf, "shape") and hasattr(leaf, "dtype") else as_array(leaf)
    if tuple(array.shape) != tuple(wanted.shape):
        raise ShapeError(
            f"load: {file}, tensor {path}: expected shape {list(wanted.shape)}, got "
            f"{list(array.shape)}"
        )
    if array.dtype != wanted.dtype:
        raise DtypeError(
            f"load: {file}, tensor {path}: expected {as_dtype(wanted.dtype)}, got {array.dtype}",
            hint="load without like= and convert with astype",
        )
