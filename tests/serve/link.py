"""A connection to a server as a suspicious client has it: bytes out, answers in, and every answer
is checked to be one.

What is no answer of HTTP/1.1 is a `NoAnswer`: a status line, a body as long as it says, JSON where
there is an error.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

STATUS = re.compile(rb"HTTP/1\.1 ([1-5][0-9][0-9]) [A-Z][A-Za-z -]+\r\n")
HEADER = re.compile(rb"([a-z0-9-]+): ([ -~]*)\r\n")
SECONDS = 60.0  # after which a server hangs


class NoAnswer(Exception):
    """What came is no answer, or nothing came."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def closes(self) -> bool:
        return self.headers.get("connection") == "close"

    @property
    def data(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """What an error says, in the shape of any API."""
        error = self.data["error"]
        return str(error if isinstance(error, str) else error["message"])


class Link:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Link:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 22))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def half_close(self) -> None:
        self.writer.write_eof()

    async def answer(self, method: str = "GET") -> Answer:
        """The next answer; an error of ours has JSON that says something."""
        try:
            async with asyncio.timeout(SECONDS):
                found = await self._read(method)
        except TimeoutError:
            raise NoAnswer(f"nothing came for {SECONDS} seconds") from None
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise NoAnswer(f"the answer ended early: {error!r:.200}") from None
        if found.status >= 400 and method != "HEAD" and not found.message:
            raise NoAnswer(f"an error that says nothing: {found}")
        return found

    async def _read(self, method: str) -> Answer:
        line = await self.reader.readuntil(b"\r\n")
        match = STATUS.fullmatch(line)
        if match is None:
            raise NoAnswer(f"no status line: {line!r:.200}")
        headers = await self._headers()
        status = int(match[1])
        if status == 100:
            return await self._read(method)
        return Answer(status, headers, await self._body(status, headers, method))

    async def _headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        while (line := await self.reader.readuntil(b"\r\n")) != b"\r\n":
            match = HEADER.fullmatch(line)
            if match is None or match[1].decode() in found:
                raise NoAnswer(f"no header, or one twice: {line!r:.200}")
            found[match[1].decode()] = match[2].decode()
        return found

    async def _body(self, status: int, headers: dict[str, str], method: str) -> bytes:
        if method == "HEAD" or status in (204, 304):
            return b""
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("transfer-encoding") == "chunked":
            return b"".join([part async for part in self.parts()])
        return await self.reader.read()

    async def parts(self) -> Any:
        """The chunks of a body, as they come."""
        while True:
            size = int((await self.reader.readuntil(b"\r\n"))[:-2], 16)
            part = await self.reader.readexactly(size + 2)
            if part[-2:] != b"\r\n":
                raise NoAnswer(f"a chunk that does not end: {part[-40:]!r}")
            if size == 0:
                return
            yield part[:-2]

    async def is_over(self) -> bool:
        """Whether the server says nothing more and closes."""
        try:
            async with asyncio.timeout(SECONDS):
                return await self.reader.read(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):  # the other side was faster
            await self.writer.wait_closed()

    def abort(self) -> None:
        """Leaves at once, with a reset."""
        self.writer.transport.abort()


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    """A request as it should be."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
