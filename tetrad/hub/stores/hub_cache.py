"""The hub, stores: the cache of Hugging Face, models--ORG--REPO/snapshots/REVISION/FILE.

Receives HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE or HF_HOME; returns the GGUF files of the snapshot
that `main` is, and the snapshot itself where it is a whole folder of a model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tetrad.hub.names import wrong_with
from tetrad.hub.stored import (
    StoredModel,
    cache_folder,
    entries,
    files_below,
    first_files,
    folder_from,
    is_model_folder,
    real,
    stored,
)

HOLDER = "Hugging Face"
REPO = re.compile(r"models--(?P<org>[^-](?:-?[^-])*)--(?P<repo>[^-](?:-?[^-])*)")
LONGEST = 200  # characters of a revision
DEEP = 4  # folders of a repository that are looked into


def hub_cache_models() -> Iterator[StoredModel]:
    cache = cache_place()
    for entry in entries(cache):
        found = REPO.fullmatch(entry.name)
        if found is None or wrong_with(entry.name) is not None:
            continue
        for snapshot in snapshots(Path(entry.path)):
            yield from models_in(snapshot, Path(found["org"], found["repo"]), real(cache))


def cache_place() -> Path:
    home = folder_from("HF_HOME", default=cache_folder("huggingface"))
    return folder_from("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", default=str(home / "hub"))


def snapshots(repo: Path) -> list[Path]:
    """The one that `main` is; without a word on that, the newest."""
    if (named := revision(repo / "refs/main")) is not None:
        main = repo / "snapshots" / named
        if main.is_dir():
            return [main]
    found = [Path(e.path) for e in entries(repo / "snapshots") if wrong_with(e.name) is None]
    return sorted(found, key=lambda path: path.lstat().st_mtime)[-1:]


def revision(ref: Path) -> str | None:
    try:
        with ref.open("rb") as file:
            text = file.read(LONGEST + 1).decode(errors="replace").strip()
    except OSError:
        return None
    is_name = text.isascii() and "/" not in text and wrong_with(text) is None
    return text if is_name else None


def models_in(snapshot: Path, repo: Path, cache: Path | None) -> Iterator[StoredModel]:
    """Links lead from a snapshot to blobs beside it: inside the cache, and nowhere else."""
    files = list(files_below(snapshot, DEEP, inside=cache))
    for path in first_files(files):
        yield stored(path, repo / path.relative_to(snapshot), HOLDER)
    seen = [e for e in entries(snapshot) if not (e.name.startswith(".") or e.is_dir())]
    if is_model_folder(snapshot) and {Path(entry.path) for entry in seen} <= set(files):
        yield StoredModel(repo.as_posix(), snapshot, tuple(files), HOLDER)
