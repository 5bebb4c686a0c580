"""The hub, references: what a word means as the name of a model. The one place that reads names.

Receives a word; returns a ModelRef: a path, a repository on Hugging Face with a quant or a file, a
URL, an entry of the table of known models, or a name that only this machine can know. Nothing is
looked up, on disk or elsewhere, and nothing is guessed.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import PurePosixPath
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from tetrad.core.errors import HubError
from tetrad.core.record import record
from tetrad.core.visible import one_line
from tetrad.hub.known import KnownModel, known_model
from tetrad.hub.names import plain_path

SMALL = "smollm2"
HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
REPOSITORY = re.compile(
    r"(?P<repo>\w[\w.-]{0,95}/\w[\w.-]{0,95})(?::(?P<quant>[\w.-]+))?", re.ASCII
)
PAGES = ("blob", "resolve", "raw", "tree")  # what may follow org/repo in an address


class Means(Enum):
    """What kind of thing a word names."""

    PATH = "a file or a folder"
    KNOWN = "a model of the table"
    REPO = "a repository on Hugging Face"
    URL = "a file on the web"
    NAME = "a name of this machine"


@record
class ModelRef:
    """A word that names a model. `repo`, `quant` and `file` say what of Hugging Face it is, where
    it is something there; empty means not said."""

    word: str
    means: Means
    repo: str = ""
    quant: str = ""
    file: str = ""
    url: str = ""
    entry: KnownModel | None = None

    @property
    def can_be_fetched(self) -> bool:
        return self.means in (Means.KNOWN, Means.REPO, Means.URL)

    @property
    def may_be_path(self) -> bool:
        """May something on disk have this name? An address is none."""
        return self.means is not Means.URL and not is_address(self.word)


def resolve(word: str | None = None) -> ModelRef:
    """What a word means; nothing is the small model.

    >>> resolve("qwen3:4b").repo, resolve("hf.co/org/repo:Q8_0").quant
    ('Qwen/Qwen3-4B-GGUF', 'Q8_0')
    >>> resolve("https://huggingface.co/org/repo/blob/main/a.gguf?download=true").file
    'a.gguf'
    >>> resolve("./a.gguf").means, resolve("my-model").means
    (<Means.PATH: 'a file or a folder'>, <Means.NAME: 'a name of this machine'>)
    """
    word = word or SMALL
    if is_address(word):
        return from_address(word)
    if is_url(word):
        return ModelRef(word, Means.URL, url=word)
    if is_path(word):
        return ModelRef(word, Means.PATH)
    if is_repo(word):
        return repository(word, word)
    if (entry := known_model(word)) is not None:
        return ModelRef(word, Means.KNOWN, entry.repo, entry.quant, entry=entry)
    return ModelRef(word, Means.NAME)


def is_url(word: str) -> bool:
    return word.startswith(("http://", "https://"))


def is_path(name: str) -> bool:
    """Can the word be nothing but a path? It ends as one, or has slashes otherwise than org/repo
    has.

    >>> is_path("a.gguf"), is_path("./a"), is_path("a/b/c")
    (True, True, True)
    >>> is_path("org/repo:Q8_0"), is_path("smollm2"), is_path("hf.co/org/repo")
    (False, False, False)
    """
    has_slash = "/" in name or "\\" in name
    return not (is_url(name) or is_address(name)) and (
        name.lower().endswith(".gguf")
        or name.startswith(("~", "."))
        or (has_slash and not is_repo(name))
    )


def is_repo(name: str) -> bool:
    """
    >>> is_repo("org/repo:Q8_0"), is_repo("../repo"), is_repo("models/a.gguf"), is_repo("a/b/c")
    (True, False, False, False)
    """
    return (
        REPOSITORY.fullmatch(name) is not None
        and not name.lower().endswith(".gguf")
        and ".." not in name
    )


def repository(name: str, word: str) -> ModelRef:
    """`org/repo`, `org/repo:QUANT` or, as ollama has it, `org/repo:FILE.gguf`."""
    match = REPOSITORY.fullmatch(name)
    if match is None or ".." in name:
        raise HubError(f"{one_line(word)}: expected org/repo or org/repo:QUANT")
    tag = match["quant"] or ""
    repo = plain_path(match["repo"], "Hugging Face")
    if tag.lower().endswith(".gguf"):
        return ModelRef(word, Means.REPO, repo, file=plain_path(tag, one_line(word)))
    return ModelRef(word, Means.REPO, repo, "" if tag.lower() == "latest" else tag)


# -- addresses of the hub --------------------------------------------------------------------------


def is_address(word: str) -> bool:
    """Does it name something on Hugging Face as browsers and `ollama run` spell it?

    >>> is_address("hf.co/org/repo"), is_address("https://huggingface.co/org/repo")
    (True, True)
    >>> is_address("org/repo"), is_address("https://example.org/a.gguf"), is_address("hf.co")
    (False, False, False)
    """
    host, slash, _ = word.removeprefix("https://").removeprefix("http://").partition("/")
    return bool(slash) and (host.lower() in HOSTS or (is_url(word) and host == mirror()))


def mirror() -> str:
    """The host in place of huggingface.co, where HF_ENDPOINT names one."""
    return split(endpoint).netloc if (endpoint := os.environ.get("HF_ENDPOINT", "")) else ""


def split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError as error:
        raise HubError(f"{one_line(address)}: it is no URL: {error}") from None


def from_address(word: str) -> ModelRef:
    """host/org/repo[:QUANT], or .../blob|resolve|tree/REVISION[/FILE] as browsers show it."""
    address = split(word if is_url(word) else f"https://{word}")
    parts = [unquote(part) for part in address.path.strip("/").split("/")]
    if len(parts) == 2:
        return shown_file(repository("/".join(parts), word), address)
    if len(parts) < 4 or parts[2] not in PAGES:
        raise HubError(
            f"{one_line(word)}: expected a model's page or one of its files",
            hint="an address is https://huggingface.co/org/repo, with /blob/main/FILE.gguf or not",
        )
    found = repository("/".join(parts[:2]), word)
    revision, file = parts[3], "/".join(parts[4:])
    if revision != "main":
        return of_revision(found, address, revision, file)
    return with_file(found, file)


def shown_file(found: ModelRef, address: SplitResult) -> ModelRef:
    """The page of a model may show one of its files."""
    shown = parse_qs(address.query, max_num_fields=20).get("show_file_info", [""])[0]
    return with_file(found, shown)


def with_file(found: ModelRef, file: str) -> ModelRef:
    """A folder of a repository is no file: of those the whole repository is meant."""
    if not file.lower().endswith(".gguf"):
        return found
    path = plain_path(file, one_line(found.word))
    return ModelRef(found.word, Means.REPO, found.repo, file=path)


def of_revision(found: ModelRef, address: SplitResult, revision: str, file: str) -> ModelRef:
    """Another revision than main: one file, fetched as any file of the web is."""
    if not file.lower().endswith(".gguf") or PurePosixPath(revision).name != revision:
        raise HubError(
            f"{one_line(found.word)}: of the revision {one_line(revision)} one file must be named",
            hint=f"give the address of a .gguf file, or {found.repo} for what is there now",
        )
    host = address.netloc if address.netloc == mirror() else "huggingface.co"
    path = plain_path(file, one_line(found.word))
    url = f"{address.scheme}://{host}/{found.repo}/resolve/{revision}/{path}"
    return ModelRef(found.word, Means.URL, url=url)
