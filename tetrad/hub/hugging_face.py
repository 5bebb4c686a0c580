"""The hub, Hugging Face: which files `org/repo[:QUANT]` means.

Receives what a word means; returns URLs with sizes and checksums. `huggingface_hub` answers, so
HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE mean what they mean elsewhere. A listing is a stranger's
word: names, sizes and checksums are looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from tetrad.core.errors import HubError
from tetrad.core.extras import extra
from tetrad.core.record import record
from tetrad.core.visible import one_line
from tetrad.hub.download import Remote
from tetrad.hub.folder import DEFAULT_QUANT
from tetrad.hub.names import plain_path
from tetrad.hub.reference import ModelRef
from tetrad.hub.stored import PROJECTOR, SHARD, quant_of

MOST_BYTES = 1 << 44  # of one file: what no model has
MOST_SHARDS = 999
# what a folder of a model is made of; all else in a repository is left where it is
SINGLE, CONFIG = "model.safetensors", "config.json"
FOLDER_FILE = re.compile(
    r"(?:config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|generation_config|modules"
    r"|sentence_bert_config|config_sentence_transformers|model\.safetensors\.index)\.json"
    r"|chat_template\.(?:jinja|json)|\d{1,2}_\w{1,40}/config\.json"
    r"|model(?P<shard>-\d{5}-of-\d{5})?\.safetensors",
    re.ASCII,
)
SHA256 = re.compile(r"[0-9a-fA-F]{64}")


@record
class Offer:
    """What a repository has in one quant."""

    quant: str
    nbytes: int


@record
class ModelFiles:
    """The files of one model: one, all of a split set, or those of a folder; and what else the
    repository offers."""

    repo: str
    files: tuple[tuple[str, Remote], ...]  # path in the repository, where it is
    offers: tuple[Offer, ...] = ()
    is_folder: bool = False

    @property
    def nbytes(self) -> int:
        return sum(remote.nbytes or 0 for _, remote in self.files)

    @property
    def remotes(self) -> list[Remote]:
        return [remote for _, remote in self.files]


def choose(ref: ModelRef, file: str | None = None) -> ModelFiles:
    """The files that a reference means, or the one named `file`."""
    listed = {str(s.rfilename): s for s in listing(ref.repo)}
    models = {path: s for path, s in listed.items() if path.endswith(".gguf")}
    file, quant = file or ref.file or None, ref.quant or None
    is_folder = not (models or file or quant) and CONFIG in listed
    wanted = (
        folder_files(ref.repo, list(listed))
        if is_folder
        else matching_files(ref.repo, list(models), quant, file)
    )
    where = f"the listing of {ref.repo}"
    files = ((plain_path(path, where), remote_of(ref.repo, listed[path])) for path in wanted)
    return ModelFiles(ref.repo, tuple(files), offers(models), is_folder)


def folder_files(repo: str, paths: list[str]) -> list[str]:
    """Those of a folder that `td.load` reads, config.json last: what has one is whole."""
    found = {path: match for path in sorted(paths) if (match := FOLDER_FILE.fullmatch(path))}
    weights = [path for path in found if path.endswith(".safetensors")]
    if not weights or len(found) > MOST_SHARDS:
        raise HubError(
            f"{repo} has neither .gguf files nor {SINGLE}",
            hint="look for a repository whose name ends in -GGUF",
        )
    shards = {path for path, match in found.items() if SINGLE in weights and match["shard"]}
    return [*(path for path in found if path not in shards and path != CONFIG), CONFIG]


def offers(siblings: Mapping[str, Any]) -> tuple[Offer, ...]:
    """What there is in which quant, the largest first; what has no size is not offered."""
    sizes = Counter[str]()
    for path, sibling in siblings.items():
        quant = quant_of(PurePosixPath(str(path)).stem)
        if quant and PROJECTOR not in str(path).lower() and type(sibling.size) is int:
            sizes[quant] += sibling.size
    return tuple(Offer(*each) for each in sorted(sizes.items(), key=lambda each: -each[1]))


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
            "look at the network (and at HF_ENDPOINT, if it is set); a .gguf file on this machine "
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
    models = [path for path in sorted(paths) if PROJECTOR not in path.lower()]
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
