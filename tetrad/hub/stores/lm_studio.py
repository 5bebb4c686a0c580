"""The hub, stores: LM Studio. Files lie in publisher/model/FILE.gguf below its folder of models.

Receives the file that points to its home, and its settings, which may name another folder; returns
the models in all of these.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tetrad.core.errors import TetradError
from tetrad.formats.json_file import read_object
from tetrad.hub.stored import StoredModel, files_below, first_files, real, stored

HOLDER = "LM Studio"
POINTER = "~/.lmstudio-home-pointer"
HOMES = ("~/.lmstudio", "~/.cache/lm-studio")
SETTINGS, FOLDER = "settings.json", "downloadsFolder"
MOST_BYTES = 1 << 20
LONGEST = 4096  # bytes of a path


def lm_studio_models() -> Iterator[StoredModel]:
    for folder in folders():
        for path in first_files(files_below(folder, deep=4)):
            yield stored(path, path.relative_to(folder), HOLDER)


def folders() -> list[Path]:
    """Where models may be, each place once."""
    homes = [*pointed(), *(Path(os.path.expanduser(home)) for home in HOMES)]
    found = [place for home in homes for place in (*chosen(home), home / "models")]
    return list({real(place): place for place in found if real(place) is not None}.values())


def pointed() -> Iterator[Path]:
    """The home that LM Studio says it has."""
    try:
        with open(os.path.expanduser(POINTER), "rb") as file:
            text = file.read(LONGEST + 1)
    except OSError:
        return
    lines = text.decode(errors="replace").splitlines()
    if lines and len(text) <= LONGEST and is_place(lines[0].strip()):
        yield Path(lines[0].strip())


def chosen(home: Path) -> Iterator[Path]:
    """The folder of models that its settings name."""
    try:
        place = read_object(home / SETTINGS, MOST_BYTES).get(FOLDER)
    except (TetradError, OSError):
        return
    if isinstance(place, str) and len(place) <= LONGEST and is_place(place):
        yield Path(place)


def is_place(text: str) -> bool:
    """An absolute path, and not the whole disk."""
    return text.isprintable() and os.path.isabs(text) and os.path.normpath(text) not in ("/", "//")
