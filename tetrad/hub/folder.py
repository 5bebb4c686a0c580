"""The hub, the folder: models that are on this machine, found by name.

Receives TETRAD_MODELS; returns paths. A model is a .gguf file below the folder; its name is its path there without the
ending. Files of the Hugging Face cache are found in place, never copied, and never deleted from here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from tetrad.core.errors import FlagError, HubError
from tetrad.core.flags import flag
from tetrad.core.record import record

SHARD = re.compile(r"-(\d{5})-of-(\d{5})$")
QUANT = re.compile(
    r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|MXFP4\w*|BF16|F16|F32))(?:-\d{5}-of-\d{5})?$", re.IGNORECASE
)


@record
class Held:
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
        raise FlagError(f"TETRAD_MODELS={str(folder)!r} is not a directory", hint="name one, or leave the variable out")
    return folder


def held_models(folder: Path | None = None) -> list[Held]:
    """Every model that can be named, ours first, each by name."""
    folder = models_folder() if folder is None else folder
    ours = [held(path, path.relative_to(folder), True) for path in first_files(folder)]
    return sorted(ours, key=lambda m: m.name.lower()) + sorted(hugging_face_models(), key=lambda m: m.name.lower())


def first_files(folder: Path) -> Iterator[Path]:
    """The .gguf files below a folder, of split sets the first."""
    for path in sorted(folder.rglob("*.gguf")):
        shard = SHARD.search(path.stem)
        if path.is_file() and (shard is None or int(shard[1]) == 1):
            yield path


def held(path: Path, shown: Path, is_ours: bool) -> Held:
    return Held(SHARD.sub("", shown.with_suffix("").as_posix()), path, shards(path), is_ours)


def shards(path: Path) -> tuple[Path, ...]:
    if not (shard := SHARD.search(path.stem)):
        return (path,)
    count = int(shard[2])
    names = (f"{path.stem[: shard.start()]}-{i + 1:05}-of-{count:05}.gguf" for i in range(count))
    return tuple(found for name in names if (found := path.with_name(name)).exists())


def hugging_face_models() -> Iterator[Held]:
    """What `huggingface_hub` has fetched for other programs: models--ORG--REPO/snapshots/REVISION/FILE."""
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

    >>> quant_of("SmolLM2-135M-Instruct.Q4_1"), quant_of("Qwen3-4B-Q4_K_M-00001-of-00002"), quant_of("model")
    ('Q4_1', 'Q4_K_M', '')
    """
    found = QUANT.search(name)
    return found[1].upper() if found else ""


def find(name: str, models: list[Held] | None = None) -> Held | None:
    """The held model a name means: the whole name, the file name, `org/repo[:QUANT]`, or the beginning of only one."""
    models = held_models() if models is None else models
    plain, _, quant = name.removesuffix(".gguf").lower().partition(":")
    whole = [m for m in models if m.name.lower() == plain or m.name.lower().rpartition("/")[2] == plain]
    inside = [m for m in models if m.name.lower().startswith(f"{plain}/")]
    begun = [
        m for m in models if m.name.lower().startswith(plain) or m.name.lower().rpartition("/")[2].startswith(plain)
    ]
    for found in (whole, inside, begun):
        fitting = [m for m in found if not quant or quant_of(m.name).lower() == quant]
        if len({m.name for m in fitting}) > 1:
            fitting = preferred(fitting) if found is inside and not quant else refuse_several(name, fitting)
        if fitting:
            return fitting[0]
    return None


def preferred(models: list[Held]) -> list[Held]:
    """Q4_K_M if it is there, as whoever fetches without a quant gets it."""
    return sorted(models, key=lambda m: quant_of(m.name) != "Q4_K_M")


def refuse_several(name: str, models: list[Held]) -> list[Held]:
    names = ", ".join(m.name for m in models)
    raise HubError(f"{name!r} may mean {len(models)} models: {names}", hint="write the whole name")


def remove(model: Held) -> int:
    """Deletes the files of a model and folders left empty; returns the bytes that are free now."""
    if not model.is_ours:
        raise HubError(
            f"{model.name} lies in the cache of another program, {model.path}",
            hint="delete it there: `hf cache rm`, or the file",
        )
    freed = model.nbytes
    for path in model.paths:
        path.unlink()
        leftover(path).unlink(missing_ok=True)
    parent = model.path.parent
    while parent != models_folder() and parent.is_relative_to(models_folder()) and not any(parent.iterdir()):
        parent.rmdir()
        parent = parent.parent
    return freed


def leftover(path: Path) -> Path:
    """The lock that two fetches of the same model agree by."""
    return path.with_name(f".{path.name}.lock")
