"""Fuzzing requests, wire: bytes that are no request, or one that means two things.

`VECTORS` are ways to smuggle a request past whoever reads another end of the first one: each must
be refused and the connection closed, with nothing of what follows answered. `garbage` breaks
requests at random places.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.serve.link import request

BODY = b'{"content": "hello"}'
INNER = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"  # what must never be answered
REFUSED = frozenset({400, 403, 405, 404, 411, 413, 414, 431, 501, 505})


def post(*lines: str, first: str = "POST /tokenize HTTP/1.1", end: str = "\r\n") -> bytes:
    """A head with these lines, and a Host."""
    return end.join([first, "Host: localhost", *lines, "", ""]).encode("latin-1")


SIZE = f"Content-Length: {len(BODY)}"
CHUNKED = "Transfer-Encoding: chunked"


def both_lengths() -> dict[str, bytes]:
    """Two ways to say where a body ends."""
    pairs = {
        "length, chunks": (SIZE, CHUNKED),
        "chunks, length": (CHUNKED, SIZE),
        "length twice": (SIZE, SIZE),
        "two lengths": (SIZE, "Content-Length: 3"),
        "length in small letters too": (SIZE, "content-length: 3"),
        "chunks twice": (CHUNKED, CHUNKED),
        "chunks and identity": (CHUNKED, "Transfer-Encoding: identity"),
        "zero length, chunks": ("Content-Length: 0", CHUNKED),
    }
    return {name: post(*lines) + BODY for name, lines in pairs.items()}


def codings() -> dict[str, bytes]:
    names = (
        "identity", "gzip", "gzip, chunked", "chunked, chunked", "chunked, identity", "xchunked",
        "chunked;q=1", '"chunked"', "chunked,", ",chunked", "chunk", "chunked\x00", "\x0bchunked",
        "chun ked", "chunked\xa0",
    )  # fmt: skip
    found = {f"coding {name!r}": post(f"Transfer-Encoding: {name}") for name in names}
    old = post(CHUNKED, first="POST /tokenize HTTP/1.0")
    return {name: head + b"0\r\n\r\n" for name, head in {**found, "old": old}.items()}


def lengths() -> dict[str, bytes]:
    size = len(BODY)
    texts = (
        f"+{size}", f"-{size}", f"0x{size:x}", f"{size}, {size}", f"{size},3", f"{size} {size}",
        f"{size}.0", f"{size}e0", "", " ", "x", f"{size};", f"{size}\x00", "9" * 20, "\xb2",
        f"{size}_0", "NaN",
    )  # fmt: skip
    return {f"length {text!r}": post(f"Content-Length: {text}") + BODY for text in texts}


def header_lines() -> dict[str, bytes]:
    lines = (
        "Transfer-Encoding : chunked", "Transfer-Encoding\t: chunked",
        " Transfer-Encoding: chunked", "\tchunked", "no colon", ": no name", "na me: x",
        "n\xe4me: x", "x: a\x00b", "x: a\nb: c", "x: a\rb: c", "x: \x7f", "x: \x1b[2J",
        "Host: other", "x:y\n", "(x): y", "x\x00: y", "Content-Length\n: 3", "[x]: y", "x: \x01",
    )  # fmt: skip
    return {f"line {line!r}": post(line, SIZE) + BODY for line in lines}


def first_lines() -> dict[str, bytes]:
    lines = (
        "post /tokenize HTTP/1.1", "POST  /tokenize HTTP/1.1", "POST\t/tokenize\tHTTP/1.1",
        "POST /tokenize http/1.1", "POST /tokenize HTTP/1.2", "POST /tokenize HTTP/2.0",
        "POST /tokenize HTTP/1.1 ", " POST /tokenize HTTP/1.1", "POST /tokenize", "POST",
        "POST http://localhost/tokenize HTTP/1.1", "CONNECT localhost:80 HTTP/1.1",
        "POST tokenize HTTP/1.1", "POST /to kenize HTTP/1.1", "POST /\x00 HTTP/1.1",
        "POST /\xe4 HTTP/1.1", "PO\x00ST / HTTP/1.1", "POST /tokenize HTTP/1.1\nX: y",
        "POST /tokenize HTTP/11", "POST /tokenize HTTP/1.", "POST /tokenize HTTP/1.1\r",
        "PRI * HTTP/2.0", "", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "A" * 17 + " / HTTP/1.1",
    )  # fmt: skip
    return {f"first {line!r}": post(SIZE, first=line) + BODY for line in lines}


def chunk_sizes() -> dict[str, bytes]:
    chunks = (
        b"5;ext=1\r\nhello\r\n0\r\n\r\n", b"0x5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n", b"-1\r\nhello\r\n0\r\n\r\n", b" 5\r\nhello\r\n0\r\n\r\n",
        b"5 \r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n" + b"0" * 20, b"100000000\r\nhello\r\n",
        b"FFFFFFFF\r\nhello\r\n", b"\r\nhello\r\n0\r\n\r\n", b"5\r\nhelloXX0\r\n\r\n",
        b"0\r\nX: y\r\n\r\n", b"g\r\n", b"5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n",
        b"5;a\nb\r\nhello\r\n", b"5\r\nhello0\r\n\r\n", b"00000000000\r\n\r\n",
        b"5\x00\r\nhello\r\n",
    )  # fmt: skip
    return {f"chunk {chunk!r}": post(CHUNKED) + chunk for chunk in chunks}


def whole_heads() -> dict[str, bytes]:
    return {
        "LF alone": post(SIZE, end="\n") + BODY + b"\r\n\r\n",
        "CR alone": post(SIZE, end="\r") + BODY + b"\r\n\r\n",
        "no Host": b"GET /health HTTP/1.1\r\nX: y\r\n\r\n",
        "Host twice": b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        "long line": b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "many headers": post(*(f"x{i}: y" for i in range(150))),
        "large header": post("x: " + "y" * 20_000),
        "large headers": post(*(f"x{i}: {'y' * 900}" for i in range(60))),
        "too large a body": post("Content-Length: 9000000"),
    }


VECTORS: dict[str, bytes] = {
    **both_lengths(), **codings(), **lengths(), **header_lines(), **first_lines(), **chunk_sizes(),
    **whole_heads(),
}  # fmt: skip


@dataclass(frozen=True)
class Bytes:
    """What goes over the wire, and whether its client waits for an answer."""

    name: str
    data: bytes


def vector(rng: random.Random) -> Bytes:
    name = rng.choice(sorted(VECTORS))
    return Bytes(name, VECTORS[name] + INNER)


# -- broken at random ------------------------------------------------------------------------------

ODD = (
    b"\x00",
    b"\r",
    b"\n",
    b"\r\n",
    b" ",
    b":",
    b"\xff",
    b"\x7f",
    b"%00",
    b"\t",
    b"\r\n\r\n",
    b"1",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW", "X" * 16)
PATHS = (
    "/", "//", "/..", "/../../etc/passwd", "/%2e%2e/", "/v1", "/v1/", "/v1/chat/completions/",
    "/v1/models/..%2f", "/?a=b&a=c", "/%", "/health?x=" + "y" * 3000, "/tokenize#a", "/a" * 900,
    "/V1/MODELS", "*", "/api/tags?%00", "/props?model=x", "/v1/models/tiny", "/;",
)  # fmt: skip


def broken(rng: random.Random, data: bytes) -> bytes:
    """A request with some bytes changed, put in or left out."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found))
        match rng.randrange(4):
            case 0:
                found[at] = rng.randrange(256)
            case 1:
                found[at:at] = rng.choice(ODD)
            case 2:
                del found[at : at + rng.randint(1, 8)]
            case _:
                found[at:at] = found[at : at + rng.randint(1, 40)]
    return bytes(found)


def garbage(rng: random.Random) -> Bytes:
    if rng.random() < 0.2:
        return Bytes("noise", rng.randbytes(rng.randint(1, 400)) + b"\r\n\r\n")
    return Bytes("broken", broken(rng, request("POST", "/tokenize", BODY)))


def odd_place(rng: random.Random) -> tuple[str, bytes]:
    """(method, request) to somewhere where nothing is, or in a way in which nothing is."""
    method, path = rng.choice(METHODS), rng.choice(PATHS)
    headers = [header for header in HEADERS if rng.random() < 0.1]
    return method, request(method, path, b"", *headers)


HEADERS = (
    "Accept: */*; q=x", "Expect: 100-continue", "Expect: 200-ok", "Upgrade: h2c",
    "Cookie: " + "a" * 900, "Connection: keep-alive, Upgrade", "Range: bytes=0-",
    "If-None-Match: *", "Authorization: Bearer", "Authorization: Basic \xff",
    "X-Forwarded-For: 127.0.0.1", "Content-Type: text/xml", "Origin: null", "Accept-Encoding: br",
    "X-Request-Id: \x80\x81", "Content-Encoding: gzip",
)  # fmt: skip
