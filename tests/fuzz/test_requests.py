"""A small share of hostile requests, every way to smuggle one, and servers whose faults must be
noticed."""

from __future__ import annotations

import asyncio

import pytest

from tests.fuzz.request_bodies import ENDPOINTS
from tests.fuzz.request_wire import INNER, REFUSED, VECTORS
from tests.fuzz.requests import (
    Failure,
    Guest,
    Visit,
    check,
    guest,
    leave_early,
    pipeline,
    send_body,
    send_garbage,
    smuggle,
)
from tests.serve.link import Link
from tetrad.serve.routes import all_routes

SAME = ("/chat/completions", "/completions", "/embeddings", "/rerank", "/v1/reranking",
        "/api/embeddings")  # fmt: skip


@pytest.mark.parametrize("seed", range(2))
def test_hostile_requests_are_answered_and_leave_nothing_behind(seed: int) -> None:
    assert check(seed) is None


def test_every_way_to_smuggle_a_request_is_refused_and_closed() -> None:
    async def refused(name: str, data: bytes) -> None:
        link = await Link.open(guest().server.port)
        link.send(data + INNER)
        answer = await link.answer()
        assert answer.status in REFUSED and answer.closes, (name, answer)
        assert await link.is_over(), name
        await link.close()

    async def all_of_them() -> None:
        await asyncio.gather(*(refused(name, data) for name, data in VECTORS.items()))

    assert len(VECTORS) > 100
    asyncio.run(all_of_them())


def test_every_endpoint_is_visited() -> None:
    posts = {route.path for route in all_routes() if route.method == "POST"}
    assert posts == {place.path for place in ENDPOINTS} | {*SAME}


# -- servers that are wrong ------------------------------------------------------------------------

BROKEN = (
    b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 22\r\n\r\n" + b'{"error": "an error"} '
)
FINE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class FakeProcess:
    """Says the same to everybody."""

    def __init__(self, port: int) -> None:
        self.port = port


@pytest.mark.parametrize(
    "act, said, answer",
    [
        (send_body, "status 500", BROKEN),
        (send_body, "no status line", b"hello\r\n"),
        (send_body, "ended early", FINE[:-1]),
        (send_body, "taken", FINE),
        (smuggle, "200", FINE),
        (send_garbage, "status 500", BROKEN),
    ],
)
def test_a_server_that_answers_wrongly_is_noticed(act, said: str, answer: bytes) -> None:  # type: ignore[no-untyped-def]
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(answer)
        await Link(reader, writer).close()

    async def visit() -> None:
        async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
            one = Visit(FakeProcess(server.sockets[0].getsockname()[1]), 3)  # type: ignore[arg-type]
            try:
                for _ in range(60):
                    await act(one)
                    await one.leave()
            finally:
                await one.leave()

    with pytest.raises(Failure, match=said):
        asyncio.run(visit())


@pytest.mark.parametrize("name", ["slots", "links", "tasks", "files", "threads", "memory"])
def test_what_is_left_behind_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = guest()
    more = {**found.before, name: found.before[name] + (1 << 28)}
    monkeypatch.setattr(type(found.server), "settled", lambda self: more)
    assert (Guest.grown(found) or "").startswith(name)


def test_clients_that_leave_or_ask_ahead() -> None:
    async def visit() -> None:
        one = Visit(guest().server, 0)
        for act in (leave_early, pipeline, leave_early, pipeline):
            await act(one)
        await one.leave()

    asyncio.run(visit())
    assert guest().grown() is None
