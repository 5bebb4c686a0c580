"""The hub, downloads: one file over HTTP, whole or not at all.

Receives a URL and where the file shall be; returns when it is there, complete and checked. What has
arrived lies in `FILE.part`: the next try goes on behind it. Two who fetch the same file agree by a
lock, and the second finds it done. Servers are strangers: no more is written than was declared and
fits, and nothing through a link.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import string
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlsplit

from tetrad.core.errors import HubError
from tetrad.core.record import record
from tetrad.hub.fits import check_fit, gib, most_that_fits
from tetrad.hub.folder import leftover

PIECE = 1 << 20  # bytes read at a time
TIMEOUT = 30.0  # seconds without a byte
TRIES = 5
PAUSE = 1.0  # seconds before the second try; twice as long before each further one
# a strong one: weak ones do not promise the same bytes
TAG = re.compile(r'"[\x21\x23-\x7e]{1,200}"')
SPAN = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")  # of Content-Range
LENGTH = re.compile(r"\d{1,18}")

Progress = Callable[[int, int | None], None]  # bytes there, bytes in all if known


def silent(done: int, total: int | None) -> None:
    """Progress for whoever wants none."""


@record
class Remote:
    """A file elsewhere, and what is known about it."""

    url: str
    nbytes: int | None = None
    sha256: str = ""
    headers: Mapping[str, str] | None = None


def download(
    remote: Remote,
    target: Path,
    progress: Progress = silent,
    *,
    force: bool = False,
    pause: float = PAUSE,
) -> bool:
    """Whether the file at `target` was fetched by this call: it may have been there.

    Raises HubError; a partial file stays for the next try unless its content is wrong.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target):
        if target.exists():
            return False
        part = target.with_name(target.name + ".part")
        for attempt in range(TRIES):
            try:
                receive(remote, part, progress, force)
                break
            except (urllib.error.URLError, HTTPException, TimeoutError, ConnectionError) as error:
                give_up(remote, error, attempt)
                time.sleep(pause * 2**attempt)
        check_content(remote, part)
        publish(part, target)
        tag_of(part).unlink(missing_ok=True)
    return True


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Only one process at a time works on `target`; the lock goes with the process that holds
    it."""
    with opened(leftover(target), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def opened(path: Path, mode: str) -> IO[bytes]:
    """A file of ours. A link in its place is somebody else's: it is not followed."""

    def descriptor(name: str, flags: int) -> int:
        # a pipe in its place is not waited for
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)

    if path.is_symlink() or (path.exists() and not path.is_file()):
        found = "a link" if path.is_symlink() else "something else"
        raise HubError(
            f"{path}: expected a file or none, found {found}",
            hint="nothing was written; remove it, then give the same command",
        )
    file: IO[bytes] = open(path, mode, opener=descriptor)  # noqa: SIM115  (whoever calls closes it)
    return file


def give_up(remote: Remote, error: Exception, attempt: int) -> None:
    """Raises when another try is of no use: the server's final word, or too many tries."""
    if isinstance(error, urllib.error.HTTPError) and error.code not in (
        408,
        429,
        500,
        502,
        503,
        504,
    ):
        hints = {
            401: "the server wants a token: set HF_TOKEN",
            403: "access is not granted: see the model's page",
        }
        raise HubError(
            f"{remote.url}: the server says {error.code} {error.reason}", hint=hints.get(error.code)
        ) from None
    if attempt == TRIES - 1:
        reason = getattr(error, "reason", None) or error
        raise HubError(
            f"{remote.url}: {reason}; tried {TRIES} times",
            hint="what has arrived is kept: the same command goes on from there",
        ) from None


def receive(remote: Remote, part: Path, progress: Progress, force: bool) -> None:
    """Appends what is missing to the partial file, or starts anew if the server has another file by
    now."""
    have = begun(remote, part)
    if have and have == remote.nbytes:
        return
    with request(remote, have, tag_of(part)) as answer:
        goes_on = have > 0 and answer.status == 206
        start = have if goes_on else 0
        if goes_on and not continues(answer.headers, start):
            raise forgotten(part, "the server goes on elsewhere")
        total = whole_size(answer.headers, start, remote)
        if total is not None:
            check_fit(total, part.parent, part.stem, download=total - start, force=force)
        most = most_that_fits(part.parent, start, force=force) if total is None else total
        remember(tag_of(part), answer.headers)
        with opened(part, "ab" if goes_on else "wb") as file:
            copy(answer, file, start, total, progress, most=most)
    arrived = part.stat().st_size
    if total is not None and arrived != total:
        raise ConnectionError(f"the connection ended after {arrived} of {total} bytes")


def begun(remote: Remote, part: Path) -> int:
    """Bytes of the partial file that can be gone on behind: those whose end will tell whether they
    were right."""
    have = part.stat().st_size if part.exists() else 0
    is_known = bool(remote.sha256) or bool(known_tag(tag_of(part)))
    too_long = remote.nbytes is not None and have > remote.nbytes
    is_whole = have == remote.nbytes and not remote.sha256
    return 0 if not is_known or too_long or is_whole else have


def continues(headers: HTTPMessage, start: int) -> bool:
    """Does the answer go on exactly where the partial file ends, up to the end?"""
    span = SPAN.fullmatch(headers.get("Content-Range", ""))
    return span is not None and int(span[1]) == start and int(span[2]) + 1 == int(span[3])


def forgotten(part: Path, why: str) -> ConnectionError:
    """The partial file is of no use: the next try begins anew."""
    part.unlink(missing_ok=True)
    tag_of(part).unlink(missing_ok=True)
    return ConnectionError(f"{why}; starting anew")


def request(remote: Remote, have: int, tag: Path) -> Any:
    """The open answer; behind the `have` bytes that are there, if the server still has the same
    file."""
    known = known_tag(tag)
    wanted = {"Range": f"bytes={have}-"} | ({"If-Range": known} if known else {}) if have else {}
    try:
        return ask(remote, wanted)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the partial file is longer than the file
            raise forgotten(tag.with_suffix(""), "the partial file does not fit") from None
        raise


def ask(remote: Remote, wanted: Mapping[str, str]) -> Any:
    """The open answer to a request for it, with these headers besides its own."""
    headers = {"User-Agent": "tetrad", "Accept-Encoding": "identity", **(remote.headers or {})}
    opener = urllib.request.build_opener(Redirects())
    # people paste addresses with letters that are not ASCII
    url = quote(remote.url, safe=string.punctuation)
    request = urllib.request.Request(url, headers={**headers, **wanted})
    return opener.open(request, timeout=TIMEOUT)


class Redirects(urllib.request.HTTPRedirectHandler):
    """A token for one server is not shown to the server it redirects to; what came encrypted stays
    so."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if new not in ("http", "https") or (old == "https" and new == "http"):
            fp.close()
            raise HubError(
                f"{req.full_url}: the server leads to {newurl:.200}, which is no safe way on"
            )
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            made.remove_header("Authorization")
        return made


def whole_size(headers: HTTPMessage, start: int, remote: Remote) -> int | None:
    length = headers.get("Content-Length", "")
    total = start + int(length) if LENGTH.fullmatch(length) else None
    if total is not None and remote.nbytes is not None and total != remote.nbytes:
        raise HubError(f"{remote.url}: expected {remote.nbytes} bytes, the server has {total}")
    return remote.nbytes if total is None else total


def copy(
    answer: Any, file: IO[bytes], start: int, total: int | None, progress: Progress, *, most: int
) -> None:
    """What comes, up to `most` bytes in all; a server that sends more is not believed."""
    done = start
    progress(done, total)
    try:
        while piece := answer.read(PIECE):
            if done + len(piece) > most:
                why = (
                    "than it declared" if most == total else "than fits here, and declared no size"
                )
                forgotten(Path(file.name), why)
                raise HubError(
                    f"{file.name}: the server sends more {why}: the limit is {gib(most)}"
                )
            file.write(piece)
            done += len(piece)
            progress(done, total)
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        if (
            error.errno is not None
            and error.filename is None
            and not isinstance(error, ConnectionError | TimeoutError)
        ):
            hint = "make room, then give the same command: it goes on from there"
            raise HubError(f"{file.name}: {error.strerror}, after {gib(done)}", hint=hint) from None
        raise


def tag_of(part: Path) -> Path:
    return part.with_name(part.name + ".tag")


def remember(tag: Path, headers: HTTPMessage) -> None:
    """A strong tag says later whether the file on the server is still the same."""
    tag.unlink(missing_ok=True)
    if TAG.fullmatch(value := headers.get("ETag", "")):
        with opened(tag, "wb") as file:
            file.write(value.encode())


def known_tag(tag: Path) -> str:
    """The tag of the file that the partial one is the beginning of; empty if there is none."""
    text = tag.read_bytes()[:1000].decode(errors="replace") if tag.is_file() else ""
    return text if TAG.fullmatch(text) else ""


def check_content(remote: Remote, part: Path) -> None:
    if not remote.sha256:
        return
    found = hash_file(part)
    if found != remote.sha256:
        part.unlink()
        tag_of(part).unlink(missing_ok=True)
        raise HubError(
            f"{remote.url}: the content is wrong: sha256 {found}, expected {remote.sha256}",
            hint="the partial file was deleted; try again",
        )


def hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def publish(part: Path, target: Path) -> None:
    """From here on the file is there, and it is whole: also after a loss of power."""
    with part.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(part, target)
