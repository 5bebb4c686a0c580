"""Bytes that are no proper request are refused, and the connection is not used again."""

from __future__ import annotations

import re
import socket
import time

import pytest

from tests.serve.running import Running, read_all
from tetrad.serve.limits import Limits
from tetrad.serve.wire import RequestParser, WireError

STATUS = re.compile(rb"HTTP/1\.1 \d\d\d ")
HOST = b"Host: localhost\r\n"
POST = b"POST /tokenize HTTP/1.1\r\n" + HOST
BODY = b'{"content": "a"}'
SECOND = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"  # what would be smuggled

SMUGGLED = {
    "length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 16\r\nContent-Length: 0\r\n\r\n" + BODY,
    "one length twice": POST + b"Content-Length: 16\r\nContent-Length: 16\r\n\r\n" + BODY,
    "lengths in one line": POST + b"Content-Length: 16, 16\r\n\r\n" + BODY,
    "a plus": POST + b"Content-Length: +16\r\n\r\n" + BODY,
    "a minus": POST + b"Content-Length: -16\r\n\r\n" + BODY,
    "hexadecimal": POST + b"Content-Length: 0x10\r\n\r\n" + BODY,
    "an underscore": POST + b"Content-Length: 1_6\r\n\r\n" + BODY,
    "other digits": POST + "Content-Length: \uff11\uff16\r\n\r\n".encode() + BODY,
    "no digits": POST + b"Content-Length: \r\n\r\n" + BODY,
    "twenty digits": POST + b"Content-Length: 00000000000000000016\r\n\r\n" + BODY,
    "an unknown coding": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n" + BODY,
    "two codings": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
    "a tab in the coding": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunks of an old version": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": POST + b"Content-Length : 16\r\n\r\n" + BODY,
    "a folded line": POST + b"X: a\r\n b\r\nContent-Length: 16\r\n\r\n" + BODY,
    "a first folded line": b"POST /tokenize HTTP/1.1\r\n Host: localhost\r\n\r\n",
    "a bare line feed": POST + b"X: a\nContent-Length: 16\r\n\r\n" + BODY,
    "only line feeds": b"GET /health HTTP/1.1\nHost: localhost\n\n\r\n\r\n",
    "a bare carriage return": POST + b"X: a\rb\r\n\r\n",
    "a zero": POST + b"X: a\x00b\r\n\r\n",
    "a zero in a name": POST + b"X\x00: a\r\n\r\n",
    "an empty name": POST + b": a\r\n\r\n",
    "no colon": POST + b"nothing\r\n\r\n",
    "a name with a slash": POST + b"a/b: c\r\n\r\n",
    "two hosts": b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "an absolute address": b"GET http://localhost/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "an authority": b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a small method": b"get /health HTTP/1.1\r\n" + HOST + b"\r\n",
    "two spaces": b"GET  /health HTTP/1.1\r\n" + HOST + b"\r\n",
    "a tab": b"GET\t/health HTTP/1.1\r\n" + HOST + b"\r\n",
    "a space in the path": b"GET /hea lth HTTP/1.1\r\n" + HOST + b"\r\n",
    "letters beyond ASCII": "GET /é HTTP/1.1\r\n".encode() + HOST + b"\r\n",
    "version 2": b"GET /health HTTP/2.0\r\n" + HOST + b"\r\n",
    "version 1.2": b"GET /health HTTP/1.2\r\n" + HOST + b"\r\n",
    "version 0.9": b"GET /health\r\n\r\n",
    "a preface of version 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a bad chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n",
    "a chunk size with a sign": POST
    + b"Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
    "a chunk size with 0x": POST + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk size with a space": POST
    + b"Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
    "a chunk extension": POST + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
    "a chunk size without end": POST + b"Transfer-Encoding: chunked\r\n\r\n00000000000005\r\n",
    "a chunk too short": POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
    "a chunk with line feeds": POST + b"Transfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n      ",
    "a trailer": POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: a\r\n\r\n",
    "two keys": POST + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
}


@pytest.mark.parametrize("name", SMUGGLED)
def test_what_is_not_strict_is_refused_and_closed(server: Running, name: str) -> None:
    found = server.raw(SMUGGLED[name] + SECOND)
    assert found.startswith(b"HTTP/1.1 4"), found[:100]
    assert len(STATUS.findall(found)) == 1, "the second request was answered as well"
    assert b"connection: close" in found and b'"error"' in found


LARGE = {
    "a long first line": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    "a first line without end": (b"GET /" + b"a" * 30_000, 414),
    "many headers": (b"GET /health HTTP/1.1\r\n" + HOST + b"a: b\r\n" * 101 + b"\r\n", 431),
    "a long header": (b"GET / HTTP/1.1\r\n" + HOST + b"a: " + b"b" * 17_000 + b"\r\n\r\n", 431),
    "headers without end": (b"GET /health HTTP/1.1\r\n" + HOST + b"a: b\r\n" * 5000, 431),
    "a large body": (POST + b"Content-Length: 9000000\r\n\r\n", 413),
    "a large chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n", 413),
    "many chunks": (
        POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 10_001 + b"0\r\n\r\n", 413,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_what_is_too_large_is_refused(server: Running, name: str) -> None:
    data, status = LARGE[name]
    assert server.raw(data).startswith(b"HTTP/1.1 %d " % status)


def test_a_body_in_chunks(server: Running) -> None:
    parts = b"".join(b"%x\r\n%b\r\n" % (1, BODY[i : i + 1]) for i in range(len(BODY)))
    asked = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + parts + b"0\r\n\r\n"
    assert server.raw(asked).startswith(b"HTTP/1.1 200 ")


def test_requests_one_after_the_other_and_ahead(server: Running) -> None:
    one = POST + b"Content-Length: 16\r\n\r\n" + BODY
    last = one.replace(HOST, HOST + b"Connection: close\r\n")
    assert server.raw(one + one + last).count(b"HTTP/1.1 200 OK") == 3


def test_a_client_that_waits_for_continue(server: Running) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as sock:
        head = b"Expect: 100-continue\r\nConnection: close\r\nContent-Length: 16\r\n\r\n"
        sock.sendall(POST + head)
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(BODY)
        assert read_all(sock).startswith(b"HTTP/1.1 200 OK")


def test_an_old_client_reads_to_the_end(server: Running) -> None:
    body = b'{"prompt": "a", "max_tokens": 2, "stream": true}'
    head = b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
    found = server.raw(head + body)
    assert b"transfer-encoding" not in found and found.endswith(b"data: [DONE]\n\n")


def test_a_head_without_a_body(server: Running) -> None:
    with server.client() as client:
        found = client.head("/health")
    assert found.status_code == 200 and found.content == b""
    assert found.headers["content-length"] == "15"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_requests_may_be_cut_anywhere(size: int) -> None:
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n"
    whole = POST + b"Content-Length: 16\r\n\r\n" + BODY
    data, parser, found = chunked + whole + SECOND, RequestParser(Limits()), []
    head = None
    for at in range(0, len(data), size):
        parser.feed(data[at : at + size])
        while True:
            head = head or parser.take_head()
            body = parser.take_body(head) if head else None
            if head is None or body is None:
                break
            found.append((head.method, body))
            head = None
    assert found == [("POST", b"hello0123456789"), ("POST", BODY), ("GET", b"")]


def test_a_slow_sender_costs_time_that_grows_with_its_bytes() -> None:
    """Looking for the end of a head does not begin anew with every byte."""
    parser = RequestParser(Limits())
    begin = time.perf_counter()
    with pytest.raises(WireError):
        for _ in range(30_000):
            parser.feed(b"a")
            parser.take_head()
    assert time.perf_counter() - begin < 2.0
