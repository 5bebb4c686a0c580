"""A web server for tests: files with ranges and tags, that can break off, and that counts what it
was asked for."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """`files` by path. `breaks`: where the next answers break off. `seen`: (path, Range) of every
    request."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)
    has_ranges: bool = True
    has_tags: bool = True
    is_chunked: bool = False  # no Content-Length
    span_shift: int = 0  # how far from where it was asked for an answer goes on
    tag: str = ""  # in place of the true one
    reason: str | None = None  # the word after the status
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)

    @property
    def whole(self) -> list[str]:
        """The paths of requests for more than a header."""
        return [path for path, asked in self.seen if asked is None or asked.endswith("-")]


def handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            site.seen.append((path, self.headers.get("Range")))
            site.tokens.append(self.headers.get("Authorization"))
            if path in site.redirects:
                self.answer(302, b"", {"Location": site.redirects[path]})
            elif path in site.files:
                self.send_file(site.files[path])
            else:
                self.answer(404, b"no")

        def send_file(self, data: bytes) -> None:
            tag = site.tag or f'"{hashlib.md5(data).hexdigest()}"'
            extra = {"ETag": tag} if site.has_tags else {}
            asked = self.headers.get("Range")
            if asked and site.has_ranges and self.headers.get("If-Range", tag) == tag:
                first, last = asked.removeprefix("bytes=").split("-")
                start = int(first) + site.span_shift
                end = min(int(last) + 1, len(data)) if last else len(data)
                if start >= len(data):
                    self.answer(416, b"")
                else:
                    span = f"bytes {start}-{end - 1}/{len(data)}"
                    self.answer(206, data[start:end], extra | {"Content-Range": span})
            else:
                self.answer(200, data, extra)

        def answer(self, code: int, data: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(code, site.reason)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            kind = "application/json" if data[:1] == b"{" else "text/html"
            self.send_header("Content-Type", kind)
            if not site.is_chunked:  # the end of the connection is the end of the file
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with suppress(ConnectionError):  # whoever asked has heard enough
                self.wfile.write(data[: site.breaks.pop(0)] if site.breaks and code < 300 else data)

    return Handler


@contextmanager
def serving() -> Iterator[Site]:
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(site))
    site.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
