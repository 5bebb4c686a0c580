"""The hub, stores: the cache of llama.cpp, ORG_REPO_FILE.gguf in one folder.

Receives LLAMA_CACHE, or looks where it is else; returns the files. Which part of a name is the
repository is told by the manifest beside it, whose own name is manifest=ORG=REPO=TAG.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tetrad.hub.stored import (
    StoredModel,
    cache_folder,
    files_below,
    first_files,
    folder_from,
    stored,
)

HOLDER = "llama.cpp"


def llama_cpp_models() -> Iterator[StoredModel]:
    folder = folder_from("LLAMA_CACHE", default=cache_folder("llama.cpp"))
    files = list(files_below(folder, deep=3))
    repos = repositories(path.name for path in files)
    for path in first_files(files):
        yield stored(path, shown(path.relative_to(folder), repos), HOLDER)


def repositories(names: Iterable[str]) -> dict[str, Path]:
    """Beginnings of names of files, and the repositories they stand for, the longest first.

    >>> repositories(["manifest=org=repo=latest.json", "manifest=x.json", "org_repo_a.gguf"])
    {'org_repo_': PosixPath('org/repo')}
    """
    parts = (name.split("=") for name in names if name.startswith("manifest="))
    found = {f"{p[1]}_{p[2]}_": Path(p[1], p[2]) for p in parts if len(p) == 4 and p[1] and p[2]}
    return dict(sorted(found.items(), key=lambda entry: -len(entry[0])))


def shown(path: Path, repos: dict[str, Path]) -> Path:
    for begin, repo in repos.items():
        if path.parent == Path() and path.name.startswith(begin) and path.name != begin:
            return repo / path.name.removeprefix(begin)
    return path
