"""Serve, wire: HTTP/1.1 requests from bytes, without I/O. Bytes in; heads and bodies out.

Strict where leniency has been used to smuggle requests past proxies: every line ends with CRLF,
there is one Host, one length or chunks and not both, no folded lines, no space before a colon, no
control characters, no chunk extensions, no trailers. What breaks a rule is a `WireError` with the
status to answer; the connection is not used again.
"""

from __future__ import annotations

import re

from tetrad.core.record import record
from tetrad.serve.limits import Limits

REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[!-~]*|\*) HTTP/1\.([01])")
HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([ -~\x80-\xff\t]*)")
LENGTH = re.compile(rb"[0-9]{1,19}")
CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}")
ONCE = {"host", "content-length", "transfer-encoding", "authorization", "content-type", "origin"}
LINE, BLANK = b"\r\n", b"\r\n\r\n"
LONGEST_SIZE = 10  # of a line that gives the size of a chunk, its end included


class WireError(Exception):
    """Bytes that are no request; `status` is the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


@record
class RequestHead:
    """The first part of a request. Names of headers are in small letters."""

    method: str
    path: str  # as it was sent, escapes included
    query: str
    headers: dict[str, str]
    is_old: bool  # HTTP/1.0
    length: int  # of the body; 0 where it comes in chunks
    is_chunked: bool

    @property
    def keeps_alive(self) -> bool:
        wanted = self.headers.get("connection", "").lower()
        return "close" not in wanted and (not self.is_old or "keep-alive" in wanted)

    @property
    def awaits_continue(self) -> bool:
        return self.headers.get("expect", "").lower() == "100-continue" and not self.is_old


class RequestParser:
    """The requests of one connection, one after the other: a head, then its body."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.buffer, self.body = bytearray(), bytearray()
        self.looked = 0  # bytes of the buffer in which no head ends
        self.left = 0  # bytes of the body, or of the chunk, that are still to come
        self.chunks = 0

    def feed(self, data: bytes) -> None:
        self.buffer += data

    def take_head(self) -> RequestHead | None:
        """The next head, when all of it is there."""
        if self.looked == 0 and self.buffer[:2] == LINE:  # some clients end bodies with a line
            del self.buffer[:2]
        end = self.buffer.find(BLANK, max(0, self.looked - 3))
        if end < 0:
            self.looked = len(self.buffer)
            self._check_unfinished()
            return None
        head = parse_head(bytes(self.buffer[:end]), self.limits)
        del self.buffer[: end + 4]
        self.looked, self.body, self.left, self.chunks = 0, bytearray(), head.length, 0
        return head

    def _check_unfinished(self) -> None:
        limits = self.limits
        if LINE not in self.buffer and len(self.buffer) > limits.request_line:
            raise WireError(414, f"the first line has more than {limits.request_line} bytes")
        if len(self.buffer) > limits.request_line + limits.header_bytes:
            raise WireError(431, f"the headers have more than {limits.header_bytes} bytes")

    def take_body(self, head: RequestHead) -> bytes | None:
        """The body of that head, when all of it is there."""
        if head.is_chunked:
            return self._take_chunks()
        if len(self.buffer) < head.length:
            return None
        found = bytes(self.buffer[: head.length])
        del self.buffer[: head.length]
        return found

    def _take_chunks(self) -> bytes | None:
        while True:
            if self.left == 0:
                size = self._chunk_size()
                if size is None:
                    return None
                if size == 0:
                    return self._last_chunk()
                self.left = size + 2
            if len(self.buffer) < self.left:
                return None
            if self.buffer[self.left - 2 : self.left] != LINE:
                raise WireError(400, "a chunk does not end with CRLF")
            self.body += self.buffer[: self.left - 2]
            del self.buffer[: self.left]
            self.left = 0

    def _chunk_size(self) -> int | None:
        """What the next line says; it stays in the buffer for the last chunk, whose end may not be
        there yet."""
        end = self.buffer.find(LINE, 0, LONGEST_SIZE)
        if end < 0:
            if len(self.buffer) >= LONGEST_SIZE:
                raise WireError(400, "the size of a chunk is no line of at most 8 hexadecimals")
            return None
        text = bytes(self.buffer[:end])
        if not CHUNK_SIZE.fullmatch(text):
            raise WireError(400, "the size of a chunk is no hexadecimal number alone")
        size = int(text, 16)
        if size and self._is_too_much(size):
            raise WireError(413, f"the body has more than {self.limits.body} bytes, or chunks")
        if size:
            del self.buffer[: end + 2]
        return size

    def _is_too_much(self, size: int) -> bool:
        self.chunks += 1
        return len(self.body) + size > self.limits.body or self.chunks > self.limits.chunks

    def _last_chunk(self) -> bytes | None:
        end = self.buffer.find(LINE) + 2
        if len(self.buffer) < end + 2:
            return None
        if self.buffer[end : end + 2] != LINE:
            raise WireError(400, "there are trailers, which are not taken")
        del self.buffer[: end + 2]
        return bytes(self.body)


def parse_head(text: bytes, limits: Limits) -> RequestHead:
    """A head without the blank line that ends it."""
    first, *lines = text.split(LINE)
    if len(first) > limits.request_line:
        raise WireError(414, f"the first line has more than {limits.request_line} bytes")
    if len(lines) > limits.headers or len(text) - len(first) > limits.header_bytes:
        raise WireError(431, f"more than {limits.headers} headers, or {limits.header_bytes} bytes")
    match = REQUEST_LINE.fullmatch(first)
    if match is None:
        raise WireError(400, "the first line is no METHOD /path HTTP/1.1")
    path, _, query = match[2].decode("ascii").partition("?")
    headers = parse_headers(lines)
    is_old = match[3] == b"0"
    if not is_old and "host" not in headers:
        raise WireError(400, "there is no Host header")
    length, is_chunked = body_of(headers, is_old, limits)
    return RequestHead(match[1].decode("ascii"), path, query, headers, is_old, length, is_chunked)


def parse_headers(lines: list[bytes]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        match = HEADER.fullmatch(line)
        if match is None:
            raise WireError(400, "a header is no line of the form Name: value")
        name, value = match[1].decode("ascii").lower(), match[2].decode("latin-1").rstrip(" \t")
        if name in found and name in ONCE:
            raise WireError(400, f"there is more than one {name} header")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def body_of(headers: dict[str, str], is_old: bool, limits: Limits) -> tuple[int, bool]:
    """(the length of the body, whether it comes in chunks)."""
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    if length is not None and coding is not None:
        raise WireError(400, "there are both a Content-Length and a Transfer-Encoding")
    if coding is not None:
        if coding.lower() != "chunked" or is_old:
            raise WireError(400, "the only Transfer-Encoding is chunked, of HTTP/1.1")
        return 0, True
    if length is None:
        return 0, False
    if not LENGTH.fullmatch(length.encode("latin-1")):
        raise WireError(400, "the Content-Length is no number")
    if int(length) > limits.body:
        raise WireError(413, f"the body has more than {limits.body} bytes")
    return int(length), False
