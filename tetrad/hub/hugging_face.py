"""The hub, Hugging Face: which files `org/repo[:QUANT]` means.

Receives the name; returns URLs with sizes and checksums. `huggingface_hub` answers, so HF_TOKEN,
HF_ENDPOINT and HF_HUB_OFFLINE mean what they mean elsewhere. A listing is a stranger's word: names,
sizes and checksums are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from tetrad.core.errors import HubError
from tetrad.core.extras import extra
from tetrad.core.record import record
from tetrad.core.visible import one_line
from tetrad.hub.download import Remote
from tetrad.hub.folder import DEFAULT_QUANT, SHARD, quant_of
from tetrad.hub.names import plain_path

NAME = re.compile(r"(?P<repo>\w[\w.-]{0,95}/\w[\w.-]{0,95})(?::(?P<quant>[\w.-]+))?", re.ASCII)
MOST_BYTES = 1 << 44  # of one file: what no model has
MOST_SHARDS = 999
SHA256 = re.compile(r"[0-9a-fA-F]{64}")


@record
class ModelFiles:
    """The files of one model: one, or all of a split set."""

    repo: str
    files: tuple[tuple[str, Remote], ...]  # path in the repository, where it is

    @property
    def nbytes(self) -> int:
        return sum(remote.nbytes or 0 for _, remote in self.files)


def is_repo(name: str) -> bool:
    """
    >>> is_repo("org/repo:Q8_0"), is_repo("../repo"), is_repo("models/a.gguf"), is_repo("a/b/c")
    (True, False, False, False)
    """
    return (
        NAME.fullmatch(name) is not None and not name.lower().endswith(".gguf") and ".." not in name
    )


def choose(name: str, file: str | None = None) -> ModelFiles:
    """The files for `org/repo[:QUANT]`, or the one named `file`."""
    match = NAME.fullmatch(name)
    if match is None or not is_repo(name):
        raise HubError(f"{name!r} is not org/repo or org/repo:QUANT")
    repo, quant = plain_path(match["repo"], "Hugging Face"), match["quant"]
    siblings = {s.rfilename: s for s in listing(repo) if str(s.rfilename).endswith(".gguf")}
    wanted = matching_files(repo, list(siblings), quant, file)
    where = f"the listing of {repo}"
    return ModelFiles(
        repo, tuple((plain_path(path, where), remote_of(repo, siblings[path])) for path in wanted)
    )


def listing(repo: str) -> Iterable[Any]:
    hub = extra("huggingface_hub", "a model by org/repo")
    try:
        return hub.HfApi().model_info(repo, files_metadata=True).siblings or ()
    except hub.errors.OfflineModeIsEnabled:
        raise HubError(f"{repo} is not on this machine, and HF_HUB_OFFLINE is set") from None
    except hub.errors.RepositoryNotFoundError:
        hint = "look at its page; if it is private or gated, set HF_TOKEN"
        raise HubError(f"there is no {repo} on Hugging Face, or not for you", hint=hint) from None
    except Exception as error:  # whatever the network layer of the day raises
        hint = (
            "look at the network (and at HF_ENDPOINT, if it is set); a .gguf file on this "
            "machine "
            "needs none"
        )
        raise HubError(
            f"{repo}: Hugging Face cannot be asked: {first_line(error)}", hint=hint
        ) from None


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def matching_files(repo: str, paths: list[str], quant: str | None, file: str | None) -> list[str]:
    """The path of the wanted file, or the paths of its shards in order."""
    if not paths:
        raise HubError(
            f"{repo} has no .gguf file", hint="look for a repository whose name ends in -GGUF"
        )
    models = [path for path in sorted(paths) if "mmproj" not in path.lower()]
    if file is not None:
        if not PurePosixPath(file).name:
            raise HubError(f"expected the name of a file in {repo}, got {file!r}")
        found = [path for path in models if PurePosixPath(path.lower()).match(file.lower())]
    else:
        found = of_quant(models, quant or DEFAULT_QUANT) or ([] if quant else models[:1])
    if not found:
        quants = ", ".join(
            dict.fromkeys(quant_of(PurePosixPath(path).stem) or path for path in models)
        )
        raise HubError(f"{repo} has no {file or quant}", hint=f"it has: {one_line(quants[:400])}")
    return same_set(found[0], models)


def of_quant(paths: list[str], quant: str) -> list[str]:
    return [path for path in paths if quant_of(PurePosixPath(path).stem) == quant.upper()]


def same_set(path: str, paths: list[str]) -> list[str]:
    """All parts of the set that a path belongs to, in order; a listing that lacks some is of no
    use."""
    stem = path.removesuffix(".gguf")
    if not (shard := SHARD.search(stem)):
        return [path]
    count = int(shard[2])
    if not 1 <= count <= MOST_SHARDS:
        raise HubError(f"{path!r}: expected a set of 1 to {MOST_SHARDS} files, got {count}")
    wanted = [f"{stem[: shard.start()]}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1)]
    if lacking := [name for name in wanted if name not in paths]:
        raise HubError(
            f"the listing has {count - len(lacking)} of {count} files of the set; {lacking[0]!r} "
            "is missing"
        )
    return wanted


def remote_of(repo: str, sibling: Any) -> Remote:
    hub = extra("huggingface_hub", "a model by org/repo")
    token = hub.get_token()
    return Remote(
        hub.hf_hub_url(repo, sibling.rfilename),
        declared_size(repo, sibling),
        declared_sum(repo, sibling),
        {"Authorization": f"Bearer {token}"} if token else None,
    )


def declared_size(repo: str, sibling: Any) -> int:
    size = sibling.size
    if type(size) is not int or not 0 < size <= MOST_BYTES:
        raise HubError(
            f"the listing of {repo}: {sibling.rfilename}: expected a size in bytes, got "
            f"{size!r:.60}"
        )
    return size


def declared_sum(repo: str, sibling: Any) -> str:
    if not sibling.lfs:  # a small file, kept in the repository itself
        return ""
    found = sibling.lfs.sha256
    if not (isinstance(found, str) and SHA256.fullmatch(found)):
        raise HubError(
            f"the listing of {repo}: {sibling.rfilename}: expected a sha256, got {found!r:.60}"
        )
    return found.lower()
