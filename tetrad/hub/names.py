"""The hub, names: which names of others may become names of files here.

Receives a path as a repository or a URL spells it; returns it, or raises: every part must be a
plain name on every system, so that what is fetched lies below the folder of models and is found
again by the same name.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from tetrad.core.errors import HubError

# bytes of a name; file systems have 255, and `.NAME.lock` or `NAME.part.tag` must fit
LONGEST = 200
DEEPEST = 8  # folders
FORBIDDEN = re.compile(r'[\\:*?"<>|]')  # drives, other separators, patterns of shells
# devices on Windows, with any ending
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")
FIRST = (".", "-", "~", " ")  # hidden, an option, a home, not seen


def plain_path(path: object, where: str) -> str:
    """The path, if it can name a file below a folder; `where` says who asks for it."""
    if not isinstance(path, str):
        raise HubError(f"{where}: expected the name of a file, got {type(path).__name__}")
    parts = path.split("/")
    wrong = next(filter(None, map(wrong_with, parts)), None)
    if wrong is None and len(parts) > DEEPEST:
        wrong = f"it is in more than {DEEPEST - 1} folders"
    if wrong is not None:
        raise HubError(
            f"{where}: no file here is called {path!r:.120}: {wrong}",
            hint="nothing was written; look at where the name comes from, it may not mean well",
        )
    return path


def wrong_with(name: str) -> str | None:
    """Why a name is no plain name; None if it is one."""
    if not name:
        return "a part of it is empty, as in an absolute path"
    if name.startswith(FIRST):
        return f"a part of it begins with {name[0]!r}"
    if name.endswith((".", " ")):
        return f"a part of it ends with {name[-1]!r}"
    if found := FORBIDDEN.search(name):
        return f"it contains {found[0]!r}"
    if not name.isprintable():
        return "it contains characters that cannot be seen"
    if RESERVED.fullmatch(name):
        return f"{name!r} is a device on some systems"
    return f"a part of it has more than {LONGEST} bytes" if len(name.encode()) > LONGEST else None


def place_below(folder: Path, path: str, where: str) -> Path:
    """The file `path` below `folder`, in which links may not lead out of it."""
    target = folder / PurePosixPath(plain_path(path, where))
    if not leads_to(target.parent).is_relative_to(leads_to(folder)):
        raise HubError(
            f"{target.parent} leads out of the folder of models, to {leads_to(target.parent)}",
            hint="nothing is written through such a link: remove it, or set TETRAD_MODELS to the "
            "folder it leads to",
        )
    return target


def leads_to(folder: Path) -> Path:
    try:
        return folder.resolve()
    except (
        RuntimeError,
        OSError,
    ) as error:  # Python before 3.13 has its own word for links in a circle
        raise HubError(f"{folder} leads nowhere: {error}", hint="remove the links in it") from None
