"""Serve, keys: who may ask. The headers of a request in; its tenant out, or an error.

Keys are kept as digests and compared in constant time, all of them every time. A tenant is known by
a part of its key's digest: the log and the sharing of prefixes need no more.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable
from pathlib import Path

from tetrad.core.errors import SettingError
from tetrad.serve.errors import ApiError

SHORTEST = 1
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
WILDCARDS = ("0.0.0.0", "::", "")


class Keys:
    """The keys that are accepted; none: everybody is."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.digests = [digest(key) for key in keys]

    def tenant(self, headers: dict[str, str]) -> str:
        """Who asks; an error where a key is wanted and none of ours is given."""
        if not self.digests:
            return ""
        given = digest(given_key(headers))
        found = [hmac.compare_digest(given, known) for known in self.digests]
        if not any(found):
            raise ApiError(
                401,
                "a valid API key is needed: Authorization: Bearer KEY",
                code="invalid_api_key",
                headers=(("www-authenticate", "Bearer"),),
            )
        return given.hex()[:12]


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def given_key(headers: dict[str, str]) -> str:
    """The key of a request, as OpenAI's clients or Anthropic's send it."""
    kind, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else headers.get("x-api-key", "")


def read_keys(words: Iterable[str], file: Path | None) -> Keys:
    """Keys of the command line, several with commas between them, and of a file, a line each."""
    found = [key.strip() for word in words for key in word.split(",")]
    if file is not None:
        lines = file.read_text(encoding="utf-8").splitlines()
        found += [line.strip() for line in lines if not line.lstrip().startswith("#")]
    keys = [key for key in found if key]
    if file is not None and not keys:
        raise SettingError("api-key-file", "a file with a key on each line", "an empty one")
    return Keys(keys)


class Hosts:
    """The names under which the server may be asked for.

    A page of another site can have its name lead here (DNS rebinding), and then read the answers;
    its requests have that name in the Host header. An address in it is no such trick.
    """

    def __init__(self, host: str, allowed: Iterable[str] = ()) -> None:
        self.is_open = host in WILDCARDS
        self.allowed = LOOPBACK | {host.lower(), f"[{host.lower()}]"} | {n.lower() for n in allowed}

    def check(self, headers: dict[str, str]) -> None:
        name = host_name(headers.get("host", "localhost"))
        if "*" in self.allowed or name in self.allowed or (self.is_open and is_address(name)):
            return
        raise ApiError(
            403, f"this server is not called {name[:100]!r}; --allowed-hosts names it",
            code="host_not_allowed",
        )  # fmt: skip


def host_name(host: str) -> str:
    """
    >>> host_name("localhost:8080"), host_name("[::1]:80"), host_name("Example.org")
    ('localhost', '[::1]', 'example.org')
    """
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class Origins:
    """The sites whose pages may ask. A browser says which page asks; others say nothing."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self.allowed = frozenset(allowed)

    def headers(self, headers: dict[str, str]) -> tuple[tuple[str, str], ...]:
        """What tells a browser that its page may read the answer; an error where it may not ask."""
        origin = headers.get("origin")
        if origin is None or is_same(origin, headers.get("host", "")):
            return ()
        if "*" in self.allowed:
            return (("access-control-allow-origin", "*"),)
        if origin in self.allowed:
            return (("access-control-allow-origin", origin), ("vary", "origin"))
        raise ApiError(
            403, "pages of other sites may not ask here; --cors-origins names those that may",
            code="origin_not_allowed",
        )  # fmt: skip


def is_same(origin: str, host: str) -> bool:
    """
    >>> is_same("http://localhost:8080", "localhost:8080"), is_same("null", "localhost")
    (True, False)
    """
    return origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")


PREFLIGHT = (
    ("access-control-allow-methods", "GET, POST, OPTIONS"),
    ("access-control-allow-headers", "*, authorization"),
    ("access-control-max-age", "600"),
)
