"""Command line, client: requests to a server that is running, with the standard library alone.

Receives the address of a server and JSON; returns JSON, or events as they come (SSE). Answers are
bounded, waiting has an end, and whatever goes wrong is a `RemoteError` that says what to do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tetrad.core import lazy
from tetrad.core.errors import TetradError
from tetrad.core.record import record

if TYPE_CHECKING:
    import http.client as http
else:
    http = lazy.later("http.client")

PORT = 8080  # of `tetrad serve`
CONNECT_SECONDS = 10.0
SILENT_SECONDS = 600.0  # a long prompt on a slow machine; servers say a word meanwhile
MOST_BYTES = 64 << 20  # of an answer that is one piece
MOST_LINE = 8 << 20  # of a stream
MOST_ERROR = 1 << 20


class RemoteError(TetradError, RuntimeError):
    """A server that is not there, refuses, or breaks off."""


@record
class ServerAddress:
    """Where a server is: `path` is what stands before `/v1` and `/api`."""

    host: str
    port: int
    is_secure: bool = False
    path: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' * self.is_secure}://{host}:{self.port}{self.path}"


def address_of(text: str) -> ServerAddress:
    """
    >>> str(address_of("http://127.0.0.1:8080/v1/")), str(address_of("::1")), str(address_of(":81"))
    ('http://127.0.0.1:8080', 'http://[::1]:8080', 'http://127.0.0.1:81')
    >>> str(address_of("https://example.org/llm")), str(address_of("example.org"))
    ('https://example.org:443/llm', 'http://example.org:8080')
    """
    has_scheme = "://" in text
    bare = f"[{text}]" if text.count(":") > 1 and "[" not in text else text
    try:
        parts = urlsplit(text if has_scheme else f"http://{bare}")
        port = parts.port
    except ValueError as error:
        raise wrong_address(text, str(error)) from None
    if parts.scheme not in ("http", "https") or parts.username is not None or parts.query:
        raise wrong_address(text, "only http, https, a host, a port and a path")
    standard = (443 if parts.scheme == "https" else 80) if has_scheme else PORT
    path = parts.path.rstrip("/").removesuffix("/v1").removesuffix("/api")
    host = parts.hostname or "127.0.0.1"
    return ServerAddress(host, port or standard, parts.scheme == "https", path)


def wrong_address(text: str, why: str) -> RemoteError:
    return RemoteError(
        f"--host {text} is no address of a server: {why}",
        hint="such as http://127.0.0.1:8080, or host:port",
    )


class RemoteServer:
    """A server by its address; a request is a connection of its own, which ends with it."""

    def __init__(self, address: ServerAddress, key: str | None = None) -> None:
        self.address, self.key = address, key

    def get(self, path: str) -> Any:
        with self.request("GET", path) as response:
            return read_json(response)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        with self.request("POST", path, body) as response:
            return read_json(response)

    def stream(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Events until `[DONE]`. Whoever closes the iterator closes the connection, which ends the
        answer there as well."""
        with self.request("POST", path, body) as response:
            while line := response.readline(MOST_LINE + 1):
                if len(line) > MOST_LINE:
                    raise RemoteError(f"{self.address} sent a line of more than {MOST_LINE} bytes")
                name, _, value = line.decode(errors="replace").strip().partition(":")
                if name == "data" and value.strip() == "[DONE]":
                    return
                if name == "data" and value.strip():
                    yield event(value)
        raise RemoteError(f"{self.address} ended the answer before it was complete")

    @contextmanager
    def request(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> Iterator[http.HTTPResponse]:
        """The answer of the server, if it is one; else what it said is the error."""
        connection = self.connection()
        try:
            self.connect(connection)
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, self.address.path + path, data, self.headers())
            with connection.getresponse() as response:
                if response.status != 200:
                    raise self.refused(response, path)
                yield response
        except TimeoutError:
            raise RemoteError(
                f"{self.address} has said nothing for {SILENT_SECONDS:.0f} s"
            ) from None
        except (OSError, http.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise RemoteError(f"{self.address}: the connection broke: {reason}") from None
        finally:
            connection.close()

    def connection(self) -> http.HTTPConnection:
        kind = http.HTTPSConnection if self.address.is_secure else http.HTTPConnection
        return kind(self.address.host, self.address.port, timeout=CONNECT_SECONDS)

    def connect(self, connection: http.HTTPConnection) -> None:
        try:
            connection.connect()
        except OSError as error:
            reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or error
            raise RemoteError(
                f"nothing listens at {self.address}: {reason}",
                hint="`tetrad serve MODEL` starts a server; --host or TETRAD_HOST says where it is",
            ) from None
        connection.sock.settimeout(SILENT_SECONDS)

    def headers(self) -> dict[str, str]:
        key = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        return {"Content-Type": "application/json", **key}

    def refused(self, response: http.HTTPResponse, path: str) -> RemoteError:
        said = message_of(response.read(MOST_ERROR)) or response.reason
        hint = {
            401: "--api-key or TETRAD_API_KEY is the key of the server",
            403: "--api-key or TETRAD_API_KEY is the key of the server",
            404: f"is it a server of models? It was asked for {path}",
            429: "it is busy: try again in a moment",
        }.get(response.status)
        return RemoteError(f"{self.address}: {said} (status {response.status})", hint=hint)


def read_json(response: http.HTTPResponse) -> Any:
    data = response.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise RemoteError(f"the server sent more than {MOST_BYTES} bytes")
    return parsed_answer(data)


def parsed_answer(data: bytes | str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RemoteError(f"the server sent what is no JSON: {error}") from None


def event(data: str) -> dict[str, Any]:
    """One event of a stream; one that tells of an error is that error."""
    found = parsed_answer(data)
    if not isinstance(found, dict):
        raise RemoteError(f"the server sent an event that is no object: {data:.80}")
    if "error" in found:
        raise RemoteError(f"the server: {message_of(data.encode()) or 'an error'}")
    return found


def message_of(data: bytes) -> str:
    """What an answer says of an error, in the shapes of OpenAI and of ollama.

    >>> message_of(b'{"error": {"message": "no"}}'), message_of(b'{"error": "no"}'), message_of(b"")
    ('no', 'no', '')
    """
    try:
        found = json.loads(data)
        error = found["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
