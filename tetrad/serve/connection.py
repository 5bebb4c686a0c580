"""Serve, connection: one TCP connection. Bytes of a client in; requests to the service, answers
back.

A request is looked at when its head is there, before its body is read, and has the connection for
itself until it is answered. Every wait has a limit: for a head, a body, the next request, and for a
client that does not read. A client that leaves cancels what it asked for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import cache
from typing import Any, Protocol

from tetrad.serve.errors import ApiError
from tetrad.serve.limits import Limits
from tetrad.serve.wire import RequestHead, RequestParser, WireError

PHRASES = {
    200: "OK", 204: "No Content", 304: "Not Modified", 400: "Bad Request", 401: "Unauthorized",
    403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout",
    411: "Length Required", 413: "Content Too Large", 414: "URI Too Long",
    415: "Unsupported Media Type", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable",
    504: "Gateway Timeout",
}  # fmt: skip
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
MOST_AHEAD = 64 << 10  # bytes of further requests that may wait for the one that runs

Headers = Iterable[tuple[str, str]]


class Service(Protocol):
    """What a connection needs of the application."""

    limits: Limits
    connections: set[Connection]
    reading: int  # bytes of bodies that are being read

    def admit(self, head: RequestHead, peer: str) -> Any: ...
    async def run(self, admitted: Any, body: bytes, reply: Reply) -> None: ...
    def refused(self, head: RequestHead | None, error: ApiError, peer: str) -> bytes: ...


class Reply:
    """The answer to one request: whole, or begun, written in parts, and ended."""

    __slots__ = ("connection", "head", "is_begun", "is_ended", "status", "written")

    def __init__(self, connection: Connection, head: RequestHead | None) -> None:
        self.connection, self.head = connection, head
        self.is_begun = self.is_ended = False
        self.status, self.written = 0, time.monotonic()

    def whole(self, status: int, headers: Headers, body: bytes) -> None:
        is_bare = status in (204, 304)
        lines = [*headers, *([] if is_bare else [("content-length", str(len(body)))])]
        shown = b"" if is_bare or (self.head is not None and self.head.method == "HEAD") else body
        self.is_begun = self.is_ended = True
        self._send_head(status, lines, shown)
        self.connection.answered()

    def begin(self, status: int, headers: Headers) -> None:
        """Parts follow. A client of HTTP/1.0 knows the end by the end of the connection."""
        self.is_begun = True
        is_old = self.head is None or self.head.is_old
        self._send_head(status, [*headers, *([] if is_old else [("transfer-encoding", "chunked")])])

    def _send_head(self, status: int, headers: Headers, body: bytes = b"") -> None:
        self.status = status
        closes = [] if self.connection.keeps_alive else [("connection", "close")]
        lines = "".join(f"{name}: {value}\r\n" for name, value in [*headers, *closes])
        first = f"HTTP/1.1 {status} {PHRASES[status]}\r\ndate: {http_date(int(time.time()))}\r\n"
        self.connection.transport.write(f"{first}{lines}\r\n".encode("latin-1") + body)

    def write(self, data: bytes) -> None:
        """One more part, on its way at once. An empty one would be read as the end."""
        if not data:
            return
        self.written = time.monotonic()
        if self.head is None or self.head.is_old:
            self.connection.transport.write(data)
        else:
            self.connection.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def drain(self) -> None:
        """Waits while the client reads slower than is written."""
        if self.connection.waiter is not None:
            await self.connection.waiter

    def end(self) -> None:
        self.is_ended = True
        if self.head is not None and not self.head.is_old:
            self.connection.transport.write(b"0\r\n\r\n")
        self.connection.answered()


class Connection(asyncio.Protocol):
    """Reads requests one after the other, and hands them to the service."""

    def __init__(self, service: Service) -> None:
        self.service, self.limits = service, service.limits
        self.loop = asyncio.get_running_loop()
        self.parser = RequestParser(self.limits)
        self.transport: asyncio.Transport
        self.peer = ""
        self.head: RequestHead | None = None
        self.admitted: Any = None
        self.reserved = 0  # bytes of the body that the service counts
        self.task: asyncio.Task[None] | None = None
        self.keeps_alive, self.is_lost = True, False
        self.timer: asyncio.TimerHandle | None = None
        self.stall: asyncio.TimerHandle | None = None
        self.waiter: asyncio.Future[None] | None = None  # while the client does not read

    # -- the transport calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.peer = str((transport.get_extra_info("peername") or ("",))[0])
        self.service.connections.add(self)
        if len(self.service.connections) > self.limits.connections:
            self.refuse(ApiError(503, "too many connections", kind="server_error"))
            return
        self.set_timer(self.limits.head_seconds, self.drop)

    def data_received(self, data: bytes) -> None:
        if self.is_lost:
            return
        self.parser.feed(data)
        if self.task is not None:
            if len(self.parser.buffer) > MOST_AHEAD:
                self.transport.abort()
            return
        self.advance()

    def eof_received(self) -> bool:
        return False  # the transport closes itself: who has left reads nothing either

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        self.service.connections.discard(self)
        self.release()
        for timer in (self.timer, self.stall):
            if timer is not None:
                timer.cancel()
        self.resume_writing()
        if self.task is not None:
            self.task.cancel()

    def pause_writing(self) -> None:
        self.waiter = self.loop.create_future()
        self.watch_progress()

    def resume_writing(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)
        self.waiter = None
        if self.stall is not None:
            self.stall.cancel()

    def watch_progress(self) -> None:
        """Gives up a client that has read nothing for so long."""
        before = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() < before:
                self.watch_progress()
            else:
                self.transport.abort()

        self.stall = self.loop.call_later(self.limits.stall_seconds, look)

    # -- requests ----------------------------------------------------------------------------------

    def advance(self) -> None:
        """The next request, as far as it is there."""
        try:
            if self.head is None and not self.admit():
                return
            assert self.head is not None
            body = self.parser.take_body(self.head)
        except WireError as error:
            self.refuse(ApiError(error.status, error.message))
            return
        except ApiError as error:
            self.refuse(error)
            return
        if body is not None:
            self.start(body)

    def admit(self) -> bool:
        """Whether a head is there, and what it asks for may be asked for."""
        head = self.parser.take_head()
        if head is None:
            if self.parser.buffer and self.timer is None:
                self.set_timer(self.limits.head_seconds, self.drop)
            return False
        self.head, self.keeps_alive = head, head.keeps_alive
        self.admitted = self.service.admit(head, self.peer)
        self.reserved = self.limits.body if head.is_chunked else head.length
        self.service.reading += self.reserved
        if self.service.reading > self.limits.bodies:
            raise ApiError(503, "too much is being read at the moment", kind="server_error")
        if head.awaits_continue:
            self.transport.write(CONTINUE)
        self.set_timer(self.limits.body_seconds, self.time_out)
        return True

    def release(self) -> None:
        self.service.reading -= self.reserved
        self.reserved = 0

    def start(self, body: bytes) -> None:
        self.release()
        self.set_timer(0, None)
        reply = Reply(self, self.head)
        self.task = self.loop.create_task(self.service.run(self.admitted, body, reply))
        self.task.add_done_callback(lambda task: self.finished(task, reply))

    def finished(self, task: asyncio.Task[None], reply: Reply) -> None:
        """The service is done with a request. Without an answer that is whole there is none."""
        self.task, self.head, self.admitted = None, None, None
        if task.cancelled() or task.exception() is not None or not reply.is_ended:
            self.transport.abort()
        elif not self.is_lost and self.keeps_alive and not self.transport.is_closing():
            self.advance()

    def answered(self) -> None:
        """All of an answer is written."""
        if self.is_lost:
            return
        if not self.keeps_alive:
            self.close()
        else:
            self.set_timer(self.limits.idle_seconds, self.close)

    def refuse(self, error: ApiError) -> None:
        """An answer to a request that is not read to its end; then the connection ends."""
        self.release()
        self.keeps_alive = False
        body = self.service.refused(self.head, error, self.peer)
        Reply(self, self.head).whole(
            error.status, [("content-type", "application/json"), *error.headers], body
        )

    # -- the end -----------------------------------------------------------------------------------

    def set_timer(self, seconds: float, action: Any) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None if action is None else self.loop.call_later(seconds, self.fire, action)

    def fire(self, action: Any) -> None:
        self.timer = None
        action()

    def drop(self) -> None:
        """A client that never finished its head: nothing was asked, or it is told that it took too
        long."""
        if self.parser.buffer:
            self.time_out()
        else:
            self.close()

    def time_out(self) -> None:
        self.refuse(ApiError(408, "the request took too long to arrive"))

    def close(self) -> None:
        """What is written is still sent, and a client that is still sending may read it: a
        connection that is closed with bytes unread takes the answer with it."""
        self.is_lost = True
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        self.set_timer(self.limits.linger_seconds, self.hang_up)

    def hang_up(self) -> None:
        """Sent as far as the client reads it in time."""
        self.transport.close()
        self.set_timer(self.limits.stall_seconds, self.transport.abort)

    def close_if_idle(self) -> None:
        if self.task is None and not self.is_lost:
            self.close()


@cache
def _day(day: int) -> str:
    parts = time.gmtime(day * 86400)
    return f"{DAYS[parts.tm_wday]}, {parts.tm_mday:02} {MONTHS[parts.tm_mon - 1]} {parts.tm_year}"


def http_date(second: int) -> str:
    """
    >>> http_date(784111777)
    'Sun, 06 Nov 1994 08:49:37 GMT'
    """
    rest = second % 86400
    return f"{_day(second // 86400)} {rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02} GMT"
