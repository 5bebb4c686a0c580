"""The hub, Hugging Face: which files `org/repo[:QUANT]` means.

Receives the name; returns URLs with sizes and checksums. `huggingface_hub` answers, so HF_TOKEN, HF_ENDPOINT and
HF_HUB_OFFLINE mean what they mean elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

from tetrad.core.errors import HubError
from tetrad.core.extras import extra
from tetrad.core.record import record
from tetrad.hub.download import Remote
from tetrad.hub.folder import SHARD, quant_of

NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<quant>[\w.-]+))?")
DEFAULT_QUANT = "Q4_K_M"


@record
class Choice:
    """The files of one model: one, or all of a split set."""

    repo: str
    files: tuple[tuple[str, Remote], ...]  # path in the repository, where it is

    @property
    def nbytes(self) -> int:
        return sum(remote.nbytes or 0 for _, remote in self.files)


def choose(name: str, file: str | None = None) -> Choice:
    """The files for `org/repo[:QUANT]`, or the one named `file`."""
    match = NAME.fullmatch(name)
    if match is None:
        raise HubError(f"{name!r} is not org/repo or org/repo:QUANT")
    repo, quant = match["repo"], match["quant"]
    siblings = {s.rfilename: s for s in listing(repo) if s.rfilename.endswith(".gguf")}
    wanted = matching_files(repo, list(siblings), quant, file)
    return Choice(repo, tuple((path, remote_of(repo, siblings[path])) for path in wanted))


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
        hint = "look at the network (and at HF_ENDPOINT, if it is set); a .gguf file on this machine needs none"
        raise HubError(f"{repo}: Hugging Face cannot be asked: {first_line(error)}", hint=hint) from error


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def matching_files(repo: str, paths: list[str], quant: str | None, file: str | None) -> list[str]:
    """The path of the wanted file, or the paths of its shards in order."""
    if not paths:
        raise HubError(f"{repo} has no .gguf file", hint="look for a repository whose name ends in -GGUF")
    models = [path for path in sorted(paths) if "mmproj" not in path.lower()]
    if file is not None:
        found = [path for path in models if PurePosixPath(path.lower()).match(file.lower())]
    else:
        found = of_quant(models, quant or DEFAULT_QUANT) or ([] if quant else models[:1])
    if not found:
        quants = ", ".join(dict.fromkeys(quant_of(PurePosixPath(path).stem) or path for path in models))
        raise HubError(f"{repo} has no {file or quant}", hint=f"it has: {quants}")
    return same_set(found[0], models)


def of_quant(paths: list[str], quant: str) -> list[str]:
    return [path for path in paths if quant_of(PurePosixPath(path).stem) == quant.upper()]


def same_set(path: str, paths: list[str]) -> list[str]:
    stem = path.removesuffix(".gguf")
    if not SHARD.search(stem):
        return [path]
    front = SHARD.sub("", stem)
    return [
        other for other in paths if SHARD.sub("", other.removesuffix(".gguf")) == front and other != f"{front}.gguf"
    ]


def remote_of(repo: str, sibling: Any) -> Remote:
    hub = extra("huggingface_hub", "a model by org/repo")
    token = hub.get_token()
    return Remote(
        hub.hf_hub_url(repo, sibling.rfilename),
        sibling.size,
        sibling.lfs.sha256 if sibling.lfs else "",
        {"Authorization": f"Bearer {token}"} if token else None,
    )
