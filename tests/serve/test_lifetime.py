"""Clients that leave, wait or trickle; a full queue; the end of a server."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any

import httpx
import pytest

from tests.serve.running import Running, read_all, running, tiny_place, until
from tetrad.serve.limits import Limits

LONG: dict[str, Any] = {"prompt": "the world", "max_tokens": 400, "ignore_eos": True, "seed": 1}


def head(path: str, body: bytes, more: bytes = b"") -> bytes:
    return (
        b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%b\r\n"
        % (path.encode(), len(body), more)
        + body
    )


def asking(server: Running, **more: Any) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    sock.sendall(head("/v1/completions", json.dumps(LONG | more).encode()))
    return sock


def scheduler(server: Running) -> Any:
    return next(iter(server.app.store.loaded.values())).scheduler


def warm(server: Running) -> None:
    with server.client() as client:
        for n in (1, 2):
            client.post("/v1/completions", json=LONG | {"max_tokens": 2, "n": n})


def slow_down(server: Running, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Every step of the model takes so long at least: a tiny model would be done at once."""
    batcher = scheduler(server).batcher
    step = batcher.step

    def slowly() -> bool:
        time.sleep(seconds)
        return bool(step())

    monkeypatch.setattr(batcher, "step", slowly)


@pytest.mark.parametrize(
    "more", [{"stream": True}, {}, {"n": 2}, {"n": 2, "stream": True}], ids=str
)
def test_a_client_that_leaves_frees_its_slots_at_once(
    server: Running, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    warm(server)
    slow_down(server, monkeypatch, 0.01)

    def seconds_until_free() -> float:
        sock = asking(server, **more)
        until(lambda: scheduler(server).stats().running == more.get("n", 1))
        sock.close()
        return until(lambda: scheduler(server).stats().running == 0)

    # A first step is compiled, and others may hold the processor: one try of some is as quick.
    assert any(seconds_until_free() < 0.1 for _ in range(8))
    until(server.is_idle)


def test_a_queued_request_whose_client_leaves_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tiny_place(slots=1)) as server:
        warm(server)
        slow_down(server, monkeypatch, 0.01)
        first, second = asking(server), asking(server)
        until(lambda: scheduler(server).stats().queued == 1)
        second.close()
        until(lambda: scheduler(server).stats().queued == 0)
        assert scheduler(server).stats().running == 1
        first.close()
        until(server.is_idle)


def test_a_full_queue_is_told_with_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tiny_place(slots=1), limits=Limits(waiting=1)) as server:
        warm(server)
        slow_down(server, monkeypatch, 0.01)
        socks = [asking(server)]
        until(lambda: scheduler(server).stats().running == 1)
        socks.append(asking(server))
        until(lambda: scheduler(server).stats().queued == 1)
        with server.client() as client:
            found = client.post("/v1/completions", json=LONG)
        assert found.status_code == 429 and int(found.headers["retry-after"]) > 0
        assert found.json()["error"]["type"] == "rate_limit_error"
        for sock in socks:
            sock.close()
        until(server.is_idle)


def test_a_request_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(limits=Limits(request_seconds=0.3)) as server:
        with server.client() as client:
            # the first compiles, and may take longer than that
            until(
                lambda: client.post("/v1/completions", json=LONG | {"max_tokens": 1}).is_success, 60
            )
            slow_down(server, monkeypatch, 0.01)
            found = client.post("/v1/completions", json=LONG)
            assert found.status_code == 504 and found.json()["error"]["code"] == "timeout"
            streamed = client.post("/v1/completions", json=LONG | {"stream": True})
        last = streamed.text.strip().split("\n\n")[-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "timeout"


def test_slow_heads_and_bodies_are_ended() -> None:
    limits = Limits(head_seconds=0.2, body_seconds=0.3, idle_seconds=0.2, linger_seconds=0.1)
    with running(limits=limits) as server:
        begin = time.monotonic()
        for sent, told in (
            (b"", b""),
            (b"GET /hea", b"HTTP/1.1 408"),
            (head("/tokenize", b"{}" + b" " * 50)[:-10], b"HTTP/1.1 408"),
        ):
            found = server.raw(sent, seconds=3)
            assert found.startswith(told) and bool(found) == bool(told)
        assert time.monotonic() - begin < 2.5
        with server.client() as client:
            client.get("/health")
            until(lambda: not server.app.connections)


def test_a_client_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(limits=Limits(stall_seconds=0.3)) as server:
        warm(server)
        connection_sizes: list[int] = []

        def fill() -> None:
            for connection in server.app.connections:
                connection.transport.set_write_buffer_limits(high=1024)
                connection.transport.write(b"x" * 50_000_000)  # more than any socket takes
                connection_sizes.append(connection.transport.get_write_buffer_size())

        slow_down(server, monkeypatch, 0.01)
        until(lambda: not server.app.connections)  # the one that warmed is gone
        with asking(server, stream=True):
            until(lambda: scheduler(server).stats().running == 1)
            server.on_loop(fill)
            until(lambda: not server.app.connections)
            assert connection_sizes
            until(server.is_idle)


def test_too_many_connections_are_told() -> None:
    with running(limits=Limits(connections=2)) as server:
        socks = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        until(lambda: len(server.app.connections) == 2)
        assert server.raw(b"").startswith(b"HTTP/1.1 503 ")
        for sock in socks:
            sock.close()


def test_a_quiet_stream_is_kept_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(limits=Limits(quiet_seconds=0.1)) as server:
        warm(server)
        slow_down(server, monkeypatch, 0.25)
        with server.client() as client:
            found = client.post("/v1/completions", json=LONG | {"max_tokens": 2, "stream": True})
    assert ": still here\n\n" in found.text and found.text.endswith("data: [DONE]\n\n")


def test_the_end_lets_answers_finish_and_refuses_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(drain=20) as server:
        warm(server)
        slow_down(server, monkeypatch, 0.005)
        sock = asking(server, max_tokens=100, stream=True)
        until(lambda: scheduler(server).stats().running == 1)
        server.on_loop(server.server.stop)
        until(lambda: server.app.is_draining)
        with server.client() as client:
            refused = client.post("/v1/completions", json=LONG)
            assert refused.status_code == 503 and "retry-after" in refused.headers
            assert client.get("/health").status_code == 503
        assert read_all(sock).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        sock.close()


def test_those_who_are_left_at_the_end_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(drain=0.1) as server:
        warm(server)
        slow_down(server, monkeypatch, 0.02)
        streamed, whole = asking(server, stream=True), asking(server)
        until(lambda: scheduler(server).stats().running == 2)
        server.on_loop(server.server.stop)
        told = read_all(streamed)
        assert b"shutting down" in told and told.endswith(b"0\r\n\r\n") and b"[DONE]" not in told
        assert read_all(whole).startswith(b"HTTP/1.1 503 ")
        for sock in (streamed, whole):
            sock.close()


def test_many_clients_get_what_they_would_get_alone(server: Running) -> None:
    asked = [LONG | {"max_tokens": 20, "seed": i % 3, "stream": bool(i % 2)} for i in range(16)]

    def text(body: dict[str, Any], into: dict[int, str], i: int) -> None:
        with server.client() as client:
            found = client.post("/v1/completions", json=body).text
        if body["stream"]:
            parts = [json.loads(line[6:]) for line in found.split("\n\n")[:-2]]
            into[i] = "".join(part["choices"][0]["text"] for part in parts)
        else:
            into[i] = json.loads(found)["choices"][0]["text"]

    alone: dict[int, str] = {}
    for i in range(3):
        text(asked[i], alone, asked[i]["seed"])
    together: dict[int, str] = {}
    threads = [threading.Thread(target=text, args=(b, together, i)) for i, b in enumerate(asked)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == {i: alone[body["seed"]] for i, body in enumerate(asked)}


def test_nothing_is_left_of_many_requests_half_of_which_are_given_up(server: Running) -> None:
    warm(server)
    for i in range(40):
        sock = asking(server, max_tokens=30, stream=bool(i % 2), n=1 + i % 3)
        if i % 4 == 0:
            read_some(sock)
        sock.close()
    until(server.is_idle)
    until(lambda: scheduler(server).stats().running == 0 and scheduler(server).stats().queued == 0)
    until(lambda: not server.app.connections)
    assert server.app.reading == 0 and server.app.running == 0
    assert all(one.users == 0 for one in server.app.store.loaded.values())


def read_some(sock: socket.socket) -> None:
    sock.settimeout(5)
    sock.recv(200)


def test_prefixes_are_shared_where_that_is_asked_for(client: httpx.Client) -> None:
    body = LONG | {"prompt": "a prompt of several tokens", "max_tokens": 1}
    client.post("/v1/completions", json=body)
    cached = [
        client.post("/v1/completions", json=body | more).json()["usage"]["prompt_tokens_details"]
        for more in ({}, {"cache_prompt": False})
    ]
    assert cached[0]["cached_tokens"] > 10 and cached[1]["cached_tokens"] == 0
