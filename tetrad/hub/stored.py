"""The hub, stored models: what is known of a model that lies on this machine, and safe walks
through the folders of other programs.

Receives folders; returns StoredModels. What other programs write is not believed: walks are
bounded, every name is a plain one, and no link leads out of the folder that is walked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tetrad.core.record import record
from tetrad.hub.names import wrong_with

OURS = "tetrad"
SHARD = re.compile(r"-(\d{5})-of-(\d{5})$")
QUANT = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|MXFP4\w*|BF16|F16|F32))(?:-\d{5}-of-\d{5})?$",
    re.IGNORECASE,
)
MOST_ENTRIES = 20_000  # of a folder of another program, all in all
PROJECTOR = "mmproj"  # in names of files with what sees, and no model


@record
class StoredModel:
    """A model on this machine. A split set is its first file; `paths` are all of them."""

    name: str
    path: Path
    paths: tuple[Path, ...]
    holder: str = OURS  # the program in whose folder it lies

    @property
    def is_ours(self) -> bool:
        return self.holder == OURS

    @property
    def nbytes(self) -> int:
        return sum(path.stat().st_size for path in self.paths)


def stored(path: Path, shown: Path, holder: str = OURS) -> StoredModel:
    """A file, called like its path below the folder of models without the ending."""
    return StoredModel(SHARD.sub("", shown.with_suffix("").as_posix()), path, shards(path), holder)


def stored_folder(path: Path, shown: Path, holder: str = OURS) -> StoredModel:
    """A Hugging Face folder, called like its path."""
    files = tuple(sorted(file for file in path.rglob("*") if file.is_file()))
    return StoredModel(shown.as_posix(), path, files, holder)


def is_model_folder(path: Path) -> bool:
    """Has it what `td.load` wants of a folder?"""
    return (path / "config.json").is_file() and any(path.glob("*.safetensors"))


def shards(path: Path) -> tuple[Path, ...]:
    if not (shard := SHARD.search(path.stem)):
        return (path,)
    count = int(shard[2])
    names = (f"{path.stem[: shard.start()]}-{i + 1:05}-of-{count:05}.gguf" for i in range(count))
    return tuple(found for name in names if (found := path.with_name(name)).exists())


def first_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Those that are models: GGUF files, of split sets the first, and nothing that only sees."""
    for path in paths:
        shard = SHARD.search(path.stem)
        is_first = shard is None or int(shard[1]) == 1
        if path.suffix == ".gguf" and is_first and PROJECTOR not in path.name.lower():
            yield path


def files_below(
    root: Path, deep: int, inside: Path | None = None, left: list[int] | None = None
) -> Iterator[Path]:
    """Regular files below a folder of another program, in order, at most so deep. Names that are
    not plain, and links that lead out of the folder (or out of `inside`), are passed over."""
    left, inside = [MOST_ENTRIES] if left is None else left, inside or real(root)
    for entry in entries(root):
        left[0] -= 1
        if left[0] < 0:
            return
        path = Path(entry.path)
        if wrong_with(entry.name) is not None:
            continue
        if entry.is_dir(follow_symlinks=False) and deep > 1:
            yield from files_below(path, deep - 1, inside, left)
        elif is_file_inside(path, inside):
            yield path


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """None of a folder that is not there, or not for us."""
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)[:MOST_ENTRIES]
    except OSError:
        return []


def is_file_inside(path: Path, root: Path | None) -> bool:
    """Is it a file, and after all links still below the folder?"""
    place = real(path)
    return root is not None and place is not None and place.is_relative_to(root) and place.is_file()


def real(path: Path) -> Path | None:
    """Where links lead; None where they lead nowhere."""
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):
        return None


def folder_from(*names: str, default: str) -> Path:
    """The folder that the first of these variables names, else the default; `~` is a home."""
    found = next(filter(None, (os.environ.get(name) for name in names)), default)
    return Path(os.path.expanduser(found))


def cache_folder(name: str) -> str:
    """Where programs keep what can be fetched again."""
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", name)


def quant_of(name: str) -> str:
    """The kind of weights a file name speaks of, empty if of none.

    >>> quant_of("SmolLM2-135M-Instruct.Q4_1"), quant_of("Qwen3-4B-Q4_K_M-00001-of-00002")
    ('Q4_1', 'Q4_K_M')
    >>> quant_of("model")
    ''
    """
    found = QUANT.search(name)
    return found[1].upper() if found else ""


def without_quant(name: str) -> str:
    """
    >>> without_quant("org/repo/Qwen3-4B-Q4_K_M"), without_quant("model")
    ('org/repo/Qwen3-4B', 'model')
    """
    found = QUANT.search(name)
    return name[: found.start()] if found else name
