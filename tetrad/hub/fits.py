"""The hub, does it fit: disk and memory are looked at before a download begins.

Receives sizes in bytes; returns nothing, or raises with what is there, what is needed and the way
out.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tetrad.core.errors import HubError
from tetrad.core.limits import total_memory
from tetrad.core.visible import one_line

UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
MARGIN = 64 << 20  # bytes that stay free: a full disk breaks other programs


def check_fit(
    nbytes: int,
    folder: Path,
    name: str,
    *,
    download: int | None = None,
    force: bool = False,
    instead: str = "",
) -> None:
    """Is there disk for what is still to be fetched, and memory for the whole model? `instead` is
    what would fit."""
    if force:
        return
    check_disk(nbytes if download is None else download, folder, name, instead)
    memory = total_memory()
    if memory is not None and nbytes > memory:
        raise HubError(
            f"{name} has {gib(nbytes)}, and this machine has {gib(memory)} of memory",
            hint=f"{instead or 'take a smaller quant or model'}; {all_the_same(name)}",
        )


def most_that_fits(folder: Path, there: int, *, force: bool = False) -> int:
    """How large a file may become whose size nobody has said, `there` bytes of which are on
    disk."""
    room = there + shutil.disk_usage(existing(folder)).free - MARGIN
    memory = total_memory()
    return room if force or memory is None else min(room, memory)


def check_disk(nbytes: int, folder: Path, name: str, instead: str = "") -> None:
    free = shutil.disk_usage(existing(folder)).free
    if nbytes + MARGIN > free:
        raise HubError(
            f"{name} needs {gib(nbytes)} more in {folder}, where {gib(free)} are free",
            hint=f"{instead}{', or ' * bool(instead)}make room (`tetrad list`, `tetrad rm MODEL`), "
            f"or set TETRAD_MODELS to another folder; {all_the_same(name)}",
        )


def all_the_same(name: str) -> str:
    """The way past a refusal."""
    return f"`tetrad pull {one_line(name)} --force` fetches it all the same"


def fits_here(nbytes: int, folder: Path) -> bool:
    """Is there disk and memory for a model of this size?"""
    return nbytes <= most_that_fits(folder, 0)


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())


def gib(nbytes: float) -> str:
    """A size as people who fetch models read it.

    >>> gib(4.1 * 2**30), gib(98 * 2**20), gib(2304)
    ('4.10 GiB', '98.00 MiB', '2.25 KiB')
    """
    unit, size = next(((u, s) for u, s in UNITS if nbytes >= s), UNITS[-1])
    return f"{nbytes / size:.2f} {unit}"
