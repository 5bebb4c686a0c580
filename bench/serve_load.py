"""Bench, load: clients of a server, in a process of their own. Lines of JSON in, each a wave of
requests; a line of JSON with times out.

Every request has a connection that stays open, all are sent at once, and answers are streams whose
events are counted, not read: so the load costs the server's machine as little as it can.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

EVENT, END = b"data: ", b"data: [DONE]"


class StreamClient(asyncio.Protocol):
    """A connection: counts the events of one answer after the other."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.done: asyncio.Future[dict[str, float]] | None = None
        self.begin = self.first = 0.0
        self.events, self.tail = 0, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def ask(self, data: bytes) -> asyncio.Future[dict[str, float]]:
        self.done = asyncio.get_running_loop().create_future()
        self.begin, self.first, self.events, self.tail = time.perf_counter(), 0.0, 0, b""
        self.transport.write(data)
        return self.done

    def data_received(self, data: bytes) -> None:
        if not self.first and EVENT in data:
            self.first = time.perf_counter() - self.begin
        self.events += data.count(EVENT)
        self.tail = (self.tail + data)[-200:]
        if END in self.tail and self.tail.endswith(b"0\r\n\r\n"):
            self.finish()

    def connection_lost(self, error: Exception | None) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(ConnectionError(f"the server has closed: {self.tail!r}"))

    def finish(self) -> None:
        assert self.done is not None
        end = time.perf_counter() - self.begin
        self.done.set_result({"first": self.first, "end": end, "events": self.events - 1})


class Clients:
    """Connections to servers, kept from wave to wave."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, int], StreamClient] = {}

    async def client(self, port: int, number: int) -> StreamClient:
        found = self.kept.get((port, number))
        if found is None or found.transport.is_closing():
            loop = asyncio.get_running_loop()
            _, found = await loop.create_connection(StreamClient, "127.0.0.1", port)
            self.kept[port, number] = found
        return found

    async def wave(self, port: int, bodies: list[Any], ahead: Any) -> dict[str, Any]:
        """All requests at once; one that is `ahead` is sent a moment before, and not counted."""
        clients = [await self.client(port, i) for i in range(len(bodies))]
        sent = [request(port, body) for body in bodies]
        early = None
        if ahead is not None:
            early = (await self.client(port, -1)).ask(request(port, ahead))
            await asyncio.sleep(0.05)
        begin = time.perf_counter()
        answers = await asyncio.gather(
            *(one.ask(data) for one, data in zip(clients, sent, strict=True))
        )
        seconds = time.perf_counter() - begin
        if early is not None:
            await early
        return {"seconds": seconds, "answers": answers}


def request(port: int, body: Any) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


async def main() -> None:
    clients, loop = Clients(), asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        given = json.loads(line)
        found = await clients.wave(given["port"], given["bodies"], given["ahead"])
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
