"""Serve, the web page: static files with the headers that keep them harmless.

Receives the name of a file; returns its bytes and headers. Routing is left to the server: `/` is
`index.html`, `/page/NAME` any other. What the page asks of the server is in docs/serve-page.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tetrad.core.record import record

FOLDER = Path(__file__).parent
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Whatever a model writes, the browser runs no script of its, and nothing leaves for elsewhere.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # ask again each time: the ETag makes that cheap
}


@record
class PageFile:
    """A file of the page: what is sent when somebody asks for it."""

    body: bytes
    headers: Mapping[str, str]


@cache
def page_files() -> Mapping[str, PageFile]:
    """All files by name. A name that is no key is no file, so no path leads out of the folder.

    >>> page_files()["icon.svg"].headers["Content-Type"]
    'image/svg+xml'
    """
    found = sorted(path for path in FOLDER.iterdir() if path.suffix in TYPES)
    return {path.name: page_file(path) for path in found}


def page_file(path: Path) -> PageFile:
    body = path.read_bytes()
    tag = hashlib.sha256(body).hexdigest()[:16]
    return PageFile(body, HEADERS | {"Content-Type": TYPES[path.suffix], "ETag": f'"{tag}"'})
