"""The hub, headers: what a model elsewhere is, from the first bytes of its file.

Receives where the file is; returns its description. The beginning is fetched by range, a little
more each time the header goes on, and read by the reader that reads files: as hostile as any.
"""

from __future__ import annotations

import time
import urllib.error
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any

from tetrad.core.errors import FileFormatError, FileTooShortError, HubError
from tetrad.formats import gguf
from tetrad.formats.gguf.layout import MAX_HEADER_BYTES
from tetrad.formats.json_file import MAX_BYTES, parsed
from tetrad.hub.describe import Description
from tetrad.hub.download import LENGTH, SPAN, Remote, ask

FIRST = 2 << 20  # bytes asked for at first; a vocabulary takes some more
GROWTH = 4
PIECE = 1 << 16
LONGEST = 60.0  # seconds for all of a header
MOST_HEADERS = 64  # of a split set
MOST_BYTES = 1 << 44  # of a file whose size nobody says

Parsed = tuple[dict[str, gguf.Typed], dict[str, gguf.Tensor]]


def remote_description(name: str, files: Sequence[Remote]) -> Description:
    """What a file, or a split set, elsewhere is. `name` stands for its path."""
    metadata: dict[str, object] = {}
    tensors: dict[str, gguf.Tensor] = {}
    for remote in files[:MOST_HEADERS]:
        typed, found = remote_header(remote)
        metadata = metadata or {key: gguf.plain(value) for key, value in typed.items()}
        tensors |= found
    return Description(name, metadata, tensors)


def remote_header(remote: Remote) -> Parsed:
    """Raises HubError where the server does not give it, FileFormatError where it is no GGUF."""
    data, wanted, deadline = b"", FIRST, time.monotonic() + LONGEST
    while True:
        data, size = grown(remote, data, wanted, deadline)
        try:
            return gguf.parse_header(data, size, remote.url)
        except FileTooShortError:
            if len(data) < wanted or wanted >= MAX_HEADER_BYTES:
                raise
        wanted = min(wanted * GROWTH, MAX_HEADER_BYTES)


def remote_object(remote: Remote) -> dict[str, Any]:
    """A small file of JSON, such as config.json."""
    data, _ = grown(remote, b"", MAX_BYTES + 1, time.monotonic() + LONGEST)
    found = parsed(data, remote.url) if len(data) <= MAX_BYTES else None
    if not isinstance(found, dict):
        raise FileFormatError(f"expected an object of at most {MAX_BYTES} bytes", file=remote.url)
    return found


def grown(remote: Remote, data: bytes, wanted: int, deadline: float) -> tuple[bytes, int]:
    """The first `wanted` bytes, of which some are there, and the size of the whole file."""
    try:
        with ask(remote, {"Range": f"bytes={len(data)}-{wanted - 1}"}) as answer:
            span = SPAN.fullmatch(answer.headers.get("Content-Range", ""))
            goes_on = answer.status == 206 and span is not None and int(span[1]) == len(data)
            begin = data if goes_on else b""
            size = int(span[3]) if goes_on and span else whole(remote, answer)
            return begin + first_bytes(answer, wanted - len(begin), deadline), size
    except (urllib.error.URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise HubError(f"{remote.url}: its header cannot be read: {reason}") from None


def whole(remote: Remote, answer: Any) -> int:
    length = answer.headers.get("Content-Length", "")
    if answer.status == 206:
        raise HubError(f"{remote.url}: the server sends another part than was asked for")
    return int(length) if LENGTH.fullmatch(length) else remote.nbytes or MOST_BYTES


def first_bytes(answer: Any, count: int, deadline: float) -> bytes:
    """So many bytes of an answer, or all there are; a server that dawdles is left."""
    pieces, left = list[bytes](), count
    while left and (piece := answer.read(min(left, PIECE))):
        pieces.append(piece)
        left -= len(piece)
        if time.monotonic() > deadline:
            raise TimeoutError(f"more than {LONGEST:.0f} seconds")
    return b"".join(pieces)
