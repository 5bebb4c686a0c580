"""Safetensors, the public namespace `td.safetensors`: trees of arrays in and out of files.

Receives paths and trees; returns arrays that lie where the file is mapped. A nested tree is stored
by dotted paths: `{"layers": [{"w": x}]}` is the tensor `layers.0.w`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from tetrad.core.errors import SettingError
from tetrad.formats.safetensors.layout import StoredTensor
from tetrad.formats.safetensors.paths import flat, like_tree
from tetrad.formats.safetensors.read import TensorFile, open_file
from tetrad.formats.safetensors.write import write, write_shards
from tetrad.tracing.array import Array

__all__ = ["StoredTensor", "TensorFile", "load", "metadata", "open_file", "save"]


def load(path: str | os.PathLike[str], *, like: Any = None, copy: bool = False) -> Any:
    """The arrays of a file by name; with `like`, a tree of that structure.

    path   a file, an index of shards (`model.safetensors.index.json`), or a folder that has one
           of them (`model.safetensors`)
    like   a tree whose leaves say which shapes and dtypes are expected; the names of the file must
           be its dotted paths
    copy   read the file; else arrays lie where it is mapped, and must not be written over in place

    >>> import tempfile, tetrad as td
    >>> params = {"layer": {"w": td.ones((2, 2)), "b": td.zeros(2)}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     td.safetensors.save(f"{folder}/w.safetensors", params)
    ...     flat = td.safetensors.load(f"{folder}/w.safetensors")
    ...     tree = td.safetensors.load(f"{folder}/w.safetensors", like=params)
    >>> flat["layer.b"], list(tree["layer"])
    (Array([0., 0.], float32), ['b', 'w'])
    """
    with open_file(path) as file:
        arrays = {name: array_of(file, name, copy) for name in sorted(file.tensors)}
        file.check()
        return arrays if like is None else like_tree(file.path, arrays, like)


def array_of(file: TensorFile, name: str, copy: bool) -> Array:
    view = file.array(name)
    return Array.from_numpy(view if view.flags.aligned and not copy else view.copy())


def metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The texts that stand in the header of a file.

    >>> import tempfile, tetrad as td
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     td.safetensors.save(file.name, {"x": td.ones(3)}, metadata={"made by": "hand"})
    ...     td.safetensors.metadata(file.name)
    {'made by': 'hand'}
    """
    with open_file(path) as file:
        return file.metadata


def save(
    path: str | os.PathLike[str],
    tree: Any,
    *,
    metadata: Mapping[str, str] | None = None,
    shard_bytes: int | None = None,
) -> None:
    """Write a tree of arrays, each under its dotted path; all or nothing.

    metadata      texts by name, for the header
    shard_bytes   write files of at most so many bytes each, and their index, in place of one file

    >>> import tempfile, tetrad as td
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/model.safetensors"
    ...     td.safetensors.save(path, {"a": td.ones(4), "b": td.ones(4)}, shard_bytes=16)
    ...     sorted(td.safetensors.load(folder))
    ['a', 'b']
    """
    arrays: dict[str, np.ndarray] = flat(tree)
    if shard_bytes is None:
        write(path, arrays, metadata or {})
        return
    if isinstance(shard_bytes, bool) or not isinstance(shard_bytes, int) or shard_bytes < 1:
        raise SettingError("shard_bytes", "a whole number above 0", shard_bytes)
    write_shards(path, arrays, metadata or {}, shard_bytes)
