"""Serve, server-sent events: JSON in; the bytes of a stream out, kept open while nothing comes."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any

import msgspec

from tetrad.serve.connection import Reply

HEADERS = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("x-accel-buffering", "no"),  # proxies pass on what comes, when it comes
)
COMMENT = b": still here\n\n"
DONE = b"data: [DONE]\n\n"


def event_of(data: Any) -> bytes:
    """
    >>> event_of({"a": 1})
    b'data: {"a":1}\\n\\n'
    """
    return b"data: %b\n\n" % msgspec.json.encode(data)


def named_event(name: str, data: Any) -> bytes:
    """
    >>> named_event("ping", {})
    b'event: ping\\ndata: {}\\n\\n'
    """
    return b"event: %b\n%b" % (name.encode(), event_of(data))


class EventStream:
    """The stream of one answer. While it is quiet, comments keep proxies from closing it."""

    def __init__(self, reply: Reply, headers: tuple[tuple[str, str], ...], quiet: float) -> None:
        self.reply, self.headers, self.quiet = reply, headers, quiet
        self.loop = asyncio.get_running_loop()
        self.timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> EventStream:
        self.reply.begin(200, (*self.headers, *HEADERS))
        self.timer = self.loop.call_later(self.quiet, self.speak)
        return self

    def speak(self) -> None:
        since = time.monotonic() - self.reply.written
        if since >= self.quiet:
            self.reply.write(COMMENT)
            since = 0.0
        self.timer = self.loop.call_later(self.quiet - since, self.speak)

    async def send(self, data: bytes) -> None:
        self.reply.write(data)
        await self.reply.drain()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if self.timer is not None:
            self.timer.cancel()
        if error is None:
            self.reply.end()
