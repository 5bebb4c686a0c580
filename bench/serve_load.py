"""Bench, load: clients of a server, in a process of their own. Lines of JSON in, each a wave of
requests; a line of JSON with times out.

Every request has a connection that stays open, all are sent at once, and answers are streams whose
events are counted, not read. The load runs where the server does, and real clients do not: so it
costs as little as it can, and looks at what has come for all of them together, once a millisecond.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from typing import Any

EVENT, END = b"data: ", b"data: [DONE]"
LOOK_SECONDS = 0.001


class StreamClient:
    """A connection: counts the events of one answer after the other."""

    def __init__(self, port: int) -> None:
        self.link = socket.create_connection(("127.0.0.1", port))
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.begin = self.first = self.end = 0.0
        self.events, self.tail = 0, b""

    def ask(self, data: bytes) -> None:
        self.begin, self.first, self.end = time.perf_counter(), 0.0, 0.0
        self.events, self.tail = 0, b""
        self.link.sendall(data)

    def read(self) -> None:
        data = self.link.recv(1 << 16)
        if not data:
            raise ConnectionError(f"the server has closed: {self.tail!r}")
        if not self.first and EVENT in data:
            self.first = time.perf_counter() - self.begin
        self.events += data.count(EVENT)
        self.tail = (self.tail + data)[-200:]
        if END in self.tail and self.tail.endswith(b"0\r\n\r\n"):
            self.end = time.perf_counter() - self.begin

    def times(self) -> dict[str, float]:
        return {"first": self.first, "end": self.end, "events": self.events - 1}


class Clients:
    """Connections to servers, kept from wave to wave."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, int], StreamClient] = {}

    def client(self, port: int, number: int) -> StreamClient:
        """One whose server has closed it, while nothing was asked, is made anew."""
        found = self.kept.get((port, number))
        if found is None or is_closed(found.link):
            found = self.kept[port, number] = StreamClient(port)
        return found

    def wave(self, port: int, bodies: list[Any], ahead: Any) -> dict[str, Any]:
        """All requests at once; one that is `ahead` is sent a moment before, and not counted."""
        clients = [self.client(port, i) for i in range(len(bodies))]
        sent = [request(port, body) for body in bodies]
        early = []
        if ahead is not None:
            early = [self.client(port, -1)]
            early[0].ask(request(port, ahead))
            time.sleep(0.05)
        begin = time.perf_counter()
        for one, data in zip(clients, sent, strict=True):
            one.ask(data)
        read_all([*clients, *early])
        seconds = max(one.begin + one.end for one in clients) - begin
        return {"seconds": seconds, "answers": [one.times() for one in clients]}


def is_closed(link: socket.socket) -> bool:
    """Between answers nothing comes but the end."""
    with selectors.DefaultSelector() as ready:
        ready.register(link, selectors.EVENT_READ)
        return bool(ready.select(0))


def read_all(clients: list[StreamClient]) -> None:
    """Until every answer has ended."""
    with selectors.DefaultSelector() as ready:
        for one in clients:
            ready.register(one.link, selectors.EVENT_READ, one)
        while ready.get_map():
            ready.select()
            time.sleep(LOOK_SECONDS)  # meanwhile others get theirs
            for key, _ in ready.select():
                key.data.read()
                if key.data.end:
                    ready.unregister(key.fileobj)


def request(port: int, body: Any) -> bytes:
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def main() -> None:
    clients = Clients()
    for line in sys.stdin:
        given = json.loads(line)
        found = clients.wave(given["port"], given["bodies"], given["ahead"])
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
