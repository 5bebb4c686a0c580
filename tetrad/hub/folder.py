"""The hub, the folder: models that are on this machine, found by name.

Receives TETRAD_MODELS; returns paths. A model is a .gguf file below the folder; its name is its
path there without the ending. Files of the Hugging Face cache are found in place, never copied, and
never deleted from here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tetrad.core.errors import FlagError, HubError
from tetrad.core.flags import flag
from tetrad.core.record import record
from tetrad.core.visible import one_line

DEFAULT_QUANT = "Q4_K_M"  # of org/repo, where none is named
SHARD = re.compile(r"-(\d{5})-of-(\d{5})$")
QUANT = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|MXFP4\w*|BF16|F16|F32))(?:-\d{5}-of-\d{5})?$",
    re.IGNORECASE,
)


@record
class StoredModel:
    """A model on this machine. A split set is its first file; `paths` are all of them."""

    name: str
    path: Path
    paths: tuple[Path, ...]
    is_ours: bool = True  # false: it lies in the cache of another program

    @property
    def nbytes(self) -> int:
        return sum(path.stat().st_size for path in self.paths)


def models_folder() -> Path:
    folder = Path(flag("TETRAD_MODELS") or "~/.cache/tetrad/models").expanduser()
    if folder.exists() and not folder.is_dir():
        raise FlagError(
            f"TETRAD_MODELS={str(folder)!r} is not a directory",
            hint="name one, or leave the variable out",
        )
    return folder


def held_models(folder: Path | None = None) -> list[StoredModel]:
    """Every model that can be named, ours first, each by name."""
    folder = models_folder() if folder is None else folder
    ours = [held(path, path.relative_to(folder), True) for path in first_files(folder)]
    return sorted(ours, key=lambda m: m.name.lower()) + sorted(
        hugging_face_models(), key=lambda m: m.name.lower()
    )


def first_files(folder: Path) -> Iterator[Path]:
    """The .gguf files below a folder, of split sets the first."""
    for path in sorted(folder.rglob("*.gguf")):
        shard = SHARD.search(path.stem)
        if path.is_file() and (shard is None or int(shard[1]) == 1):
            yield path


def held(path: Path, shown: Path, is_ours: bool) -> StoredModel:
    return StoredModel(SHARD.sub("", shown.with_suffix("").as_posix()), path, shards(path), is_ours)


def shards(path: Path) -> tuple[Path, ...]:
    if not (shard := SHARD.search(path.stem)):
        return (path,)
    count = int(shard[2])
    names = (f"{path.stem[: shard.start()]}-{i + 1:05}-of-{count:05}.gguf" for i in range(count))
    return tuple(found for name in names if (found := path.with_name(name)).exists())


def hugging_face_models() -> Iterator[StoredModel]:
    """What `huggingface_hub` has fetched for other programs:
    models--ORG--REPO/snapshots/REVISION/FILE."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    for repo in sorted(cache.glob("models--*--*")):
        newest = sorted(repo.glob("snapshots/*"), key=lambda p: p.stat().st_mtime)[-1:]
        for snapshot in newest:
            org_repo = Path(*repo.name.split("--")[1:])
            for path in first_files(snapshot):
                yield held(path, org_repo / path.relative_to(snapshot), False)


def quant_of(name: str) -> str:
    """The kind of weights a file name speaks of, empty if of none.

    >>> quant_of("SmolLM2-135M-Instruct.Q4_1"), quant_of("Qwen3-4B-Q4_K_M-00001-of-00002")
    ('Q4_1', 'Q4_K_M')
    >>> quant_of("model")
    ''
    """
    found = QUANT.search(name)
    return found[1].upper() if found else ""


def find(name: str, models: list[StoredModel] | None = None) -> StoredModel | None:
    """The held model that a name means; one that may mean several is an error that lists them.

    A name is what `tetrad list` shows, or its last part; with the quant as such (`NAME:Q8_0`) or
    left out where there is one only; or org/repo[:QUANT], which prefers the quant that is fetched
    unless another is named.
    """
    models = held_models() if models is None else models
    # a name spelt exactly so comes first
    folds: tuple[Callable[[str], str], ...] = (str, str.lower)
    for fold in folds:
        for kind in (whole_name, last_part, named_part, repository):
            found = kind(fold(name), [(fold(m.name), m) for m in models])
            if kind is repository and len(found) > 1:
                found = [m for m in found if quant_of(m.name) == DEFAULT_QUANT] or found
            if len({m.name for m in found}) > 1:
                raise ambiguous(name, found)
            if found:
                return found[0]
    return None


Named = list[tuple[str, StoredModel]]


def whole_name(word: str, models: Named) -> list[StoredModel]:
    return [m for name, m in models if name == word]


def last_part(word: str, models: Named) -> list[StoredModel]:
    return [m for name, m in models if name.rpartition("/")[2] == word]


def named_part(word: str, models: Named) -> list[StoredModel]:
    """`NAME` or `NAME:QUANT` for a file NAME-QUANT."""
    plain, _, quant = word.partition(":")
    return [
        m for name, m in models
        if has_quant(m,
        quant) and (without_quant(name) == plain or without_quant(name).rpartition("/")[2] == plain)
    ]  # fmt: skip


def repository(word: str, models: Named) -> list[StoredModel]:
    """All files of org/repo, or those of org/repo:QUANT."""
    plain, _, quant = word.partition(":")
    return [
        m
        for name, m in models
        if plain.count("/") == 1 and name.startswith(f"{plain}/") and has_quant(m, quant)
    ]


def has_quant(model: StoredModel, quant: str) -> bool:
    return not quant or quant_of(model.name) == quant.upper()


def without_quant(name: str) -> str:
    """
    >>> without_quant("org/repo/Qwen3-4B-Q4_K_M"), without_quant("model")
    ('org/repo/Qwen3-4B', 'model')
    """
    found = QUANT.search(name)
    return name[: found.start()] if found else name


def to_remove(name: str, every: bool = False) -> list[StoredModel]:
    """The models that `tetrad rm NAME` deletes: exactly the one that is listed so, or those of
    org/repo[:QUANT].

    Raises where there is none, where there are several and `every` was not said, and where one is
    not ours.
    """
    models = held_models()
    named = [(m.name, m) for m in models]
    found = whole_name(name, named) or repository(name, named)
    # The same may also lie in the cache of another program.
    found = [model for model in found if model.is_ours] or found
    if len(found) > 1 and not every:
        raise ambiguous(name, found, "write the whole name of one, or --all for all of them")
    for model in found:
        check_ours(model)
    return found


def ambiguous(name: str, models: list[StoredModel], hint: str = "write the whole name") -> HubError:
    names = ", ".join(one_line(m.name) for m in models)
    return HubError(f"{name!r} may mean {len(models)} models: {names}", hint=hint)


def check_ours(model: StoredModel) -> None:
    if not model.is_ours:
        raise HubError(
            f"{model.name} lies in the cache of another program, {model.path}",
            hint="delete it there: `hf cache rm`, or the file",
        )


def remove(model: StoredModel) -> int:
    """Deletes the files of a model and folders left empty; returns the bytes that are free now."""
    check_ours(model)
    freed = model.nbytes
    for path in model.paths:
        path.unlink()
        leftover(path).unlink(missing_ok=True)
        origin_of(path).unlink(missing_ok=True)
    parent = model.path.parent
    while (
        parent != models_folder()
        and parent.is_relative_to(models_folder())
        and not any(parent.iterdir())
    ):
        parent.rmdir()
        parent = parent.parent
    return freed


def origin_of(path: Path) -> Path:
    """Where the URL is written that a model was fetched from."""
    return path.with_name(f".{path.name}.url")


def leftover(path: Path) -> Path:
    """The lock that two fetches of the same model agree by."""
    return path.with_name(f".{path.name}.lock")
